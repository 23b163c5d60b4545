"""Sums of taxels: the total load on a pad of a tactile skin.

For taxels at x_i with forces F_i and unit normals n_i, all in the frame of the link:

    force  = sum F_i
    torque = sum (x_i - o) x F_i                   about o; or the sum of the taxels' own torques, moved to o
    load   = sum w_i,   w_i = |F_i . n_i|          the normal load on the pad
    centre = sum w_i x_i / load                    the centre of pressure
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
import torch
import warp as wp
from torch import Tensor

from sensorium.compute import graph, kernel
from sensorium.errors import ConfigError, UnknownNameError, shown
from sensorium.patterns.taxels import TaxelLayout, taxel_list


@dataclass(frozen=True, slots=True)
class PadReading:
    """Result of pads: views that the next call with tensors of the same shape overwrites.

    `...` are the axes before those of the taxels: `[env, mount]`, or `[env]` without a mount axis.

    Attributes:
        force: float32 `[..., pad, 3]`, N, link frame: the sum of the taxels' forces.
        torque: float32 `[..., pad, 3]`, N m, link frame, about the pads' reference points.
        load: float32 `[..., pad]`, N: the sum of the magnitudes of the normal forces.
        centre: float32 `[..., pad, 3]`, m, link frame: the centre of pressure; for an unloaded pad, the centroid of its
            taxels. Never NaN for finite forces.
        valid: bool `[..., pad]`: whether the pad is loaded, so that `centre` is a centre of pressure.
        active: int32 `[..., pad]`: number of taxels with a normal force.
    """

    force: Tensor
    torque: Tensor
    load: Tensor
    centre: Tensor
    valid: Tensor
    active: Tensor

    def clone(self) -> PadReading:
        """Return a copy that later calls do not overwrite."""
        return PadReading(*(getattr(self, item.name).clone() for item in fields(self)))


@kernel
def _sum(
    first: wp.array[wp.int32],
    taxels: wp.array[wp.int32],
    points: wp.array[wp.vec3],
    normals: wp.array[wp.vec3],
    about: wp.array[wp.vec3],
    middle: wp.array[wp.vec3],
    loaded_above: float,
    active_above: float,
    force_in: wp.array2d[wp.vec3],
    torque_in: wp.array2d[wp.vec3],
    force_out: wp.array2d[wp.vec3],
    torque_out: wp.array2d[wp.vec3],
    load_out: wp.array2d[wp.float32],
    centre_out: wp.array2d[wp.vec3],
    valid_out: wp.array2d[wp.bool],
    active_out: wp.array2d[wp.int32],
) -> None:
    row, pad = wp.tid()
    force = wp.vec3()
    torque = wp.vec3()
    load = wp.float32(0.0)
    moment = wp.vec3()
    active = wp.int32(0)
    for k in range(first[pad], first[pad + 1]):
        i = taxels[k]
        f = force_in[row, i]
        arm = points[i] - about[pad]
        if torque_in.shape[0] > 0:
            torque = torque + torque_in[row, i]
            arm = -about[pad]
        force = force + f
        torque = torque + wp.cross(arm, f)
        normal = wp.abs(wp.dot(f, normals[i]))
        load = load + normal
        moment = moment + normal * (points[i] - middle[pad])  # about the centroid, which preserves precision
        if normal > active_above:
            active += 1
    centre = middle[pad]
    is_loaded = load > loaded_above
    if is_loaded:
        centre = centre + moment / load
    force_out[row, pad] = force
    torque_out[row, pad] = torque
    load_out[row, pad] = load
    centre_out[row, pad] = centre
    valid_out[row, pad] = is_loaded
    active_out[row, pad] = active


class Pads:
    """Sums of the taxels of a skin per pad, on the device of the taxels, without host synchronisation.

    Args:
        layout: positions and normals of the taxels.
        pads: taxels of each pad, by name, as a NumPy index of the taxels, `[probe]` or `[row, column]`: a slice, a list
            of indices, a mask, or for a grid a pair of these, such as ``numpy.s_[:4, :]``. A taxel may belong to
            several pads, or to none.
        about: reference point of torques: the origin of the link, the centroid of each pad's taxels, or one point, m,
            link frame.
        loaded_above: load above which a pad counts as loaded, N.
        active_above: normal force above which a taxel counts as active, N.
        device: torch device of the forces.

    Attributes:
        names: names of the pads, in the order of the pad axis.
        centroids: float32 `[pad, 3]`, m, link frame: centroid of each pad's taxels.

    Raises:
        ConfigError: no pads, a pad without taxels or with a repeated taxel, indices beyond the layout, negative
            thresholds, or an invalid `about`.
    """

    def __init__(
        self,
        layout: TaxelLayout,
        pads: Mapping[str, Any],
        *,
        about: Literal["link", "pad"] | Sequence[float] = "link",
        loaded_above: float = 0.0,
        active_above: float = 0.0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.layout = layout
        self._taxels = {name: _taxels(layout, name, index) for name, index in dict(pads).items()}
        if not self._taxels:
            raise ConfigError.single(
                "Pads", "pads", pads, "at least one pad", "Give {'pad': slice(None)} for all taxels."
            )
        for field, value in (("loaded_above", loaded_above), ("active_above", active_above)):
            if isinstance(value, bool) or not 0.0 <= value < float("inf"):
                raise ConfigError.single("Pads", field, value, "a force >= 0, N")
        self.names = tuple(self._taxels)
        self._loaded_above, self._active_above = float(loaded_above), float(active_above)
        places, normals = (np.reshape(part, (-1, 3)) for part in (layout.positions, layout.normals))
        middles = np.stack([places[rows].mean(axis=0) for rows in self._taxels.values()])
        points = _reference(about, middles)
        chosen = list(self._taxels.values())

        def put(values: Any, dtype: torch.dtype = torch.float32) -> Tensor:
            with torch.inference_mode(False):
                return torch.tensor(np.ascontiguousarray(values), dtype=dtype, device=device)

        self.centroids = put(middles)
        self._starts = put(np.cumsum([0, *map(len, chosen)]), torch.int32)
        self._rows = put(np.concatenate(chosen), torch.int32)
        self._places, self._normals, self._about = put(places), put(normals), put(points)
        self._device = wp.get_device(str(self.centroids.device))
        self._buffers: dict[tuple[int, ...], PadReading] = {}

    @classmethod
    def of(
        cls,
        sensor: Any,
        pads: Mapping[str, Any],
        *,
        about: Literal["link", "pad"] | Sequence[float] = "link",
        loaded_above: float = 0.0,
        active_above: float = 0.0,
    ) -> Self:
        """Return the pads of a tactile sensor whose config has `probe_local_pos` and `probe_local_normal`.

        Args:
            sensor: a sensor of a scene: ``scene[skin]``.
            pads: as for `Pads`.
            about: as for `Pads`.
            loaded_above: as for `Pads`.
            active_above: as for `Pads`.

        Raises:
            ConfigError: the sensor has no taxels; and as for `Pads`.
        """
        cfg = sensor.cfg
        if not hasattr(cfg, "probe_local_pos") or not hasattr(cfg, "probe_local_normal"):
            raise ConfigError.single(
                "Pads", "sensor", type(sensor).__name__, "a sensor with probe_local_pos and probe_local_normal",
                "Give a layout for other tensors: Pads(sn.patterns.taxel_list(positions, normals), ...).",
            )  # fmt: skip
        return cls(
            taxel_list(cfg.probe_local_pos, cfg.probe_local_normal),
            pads,
            about=about,
            loaded_above=loaded_above,
            active_above=active_above,
            device=sensor.device,
        )

    def __repr__(self) -> str:
        pads = ", ".join(f"{name}: {len(rows)}" for name, rows in self._taxels.items())
        return f"Pads({pads} of {len(self.layout)} taxels)"

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the index of a pad on the pad axis.

        Raises:
            UnknownNameError: no pad has that name.
        """
        if name not in self._taxels:
            raise UnknownNameError("pad", name, self.names)
        return self.names.index(name)

    def taxels(self, name: str) -> tuple[int, ...]:
        """Return the indices of a pad's taxels, counted along the rows of a grid.

        Raises:
            UnknownNameError: no pad has that name.
        """
        return tuple(self._taxels[self.names[self.index(name)]].tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of memory it holds."""
        own = [self.centroids, self._starts, self._rows, self._places, self._normals, self._about]
        for reading in self._buffers.values():
            own += [getattr(reading, item.name) for item in fields(reading)]
        return sum(tensor.numel() * tensor.element_size() for tensor in own)

    @torch.no_grad()
    def __call__(self, force: Tensor, torque: Tensor | None = None) -> PadReading:
        """Return the sums of the pads; memory is allocated at the first call with tensors of a shape, then reused.

        Args:
            force: float32 `[..., probe, 3]` or `[..., row, column, 3]`, N, link frame: true, measured, or a history.
            torque: in the same shape, N m, about the origin of the link: the taxels' own torques, which may include a
                twist. By default, the torque of the forces at their positions.

        Raises:
            ConfigError: a tensor of another shape, dtype or device.
        """
        lead = self._lead("force", force)
        if torque is not None and self._lead("torque", torque) != lead:
            raise ConfigError.single("Pads", "torque", tuple(torque.shape), f"the shape of force: {tuple(force.shape)}")
        reading = self._made(lead)
        number, taxels, pads = int(np.prod(lead, dtype=np.int64)), len(self.layout), len(self.names)

        def vectors(tensor: Tensor, *shape: int) -> Any:
            return wp.from_torch(tensor.detach().reshape(*shape, 3), dtype=wp.vec3)

        own = torque if torque is not None else force[:0]
        inputs = [
            wp.from_torch(self._starts), wp.from_torch(self._rows), vectors(self._places, taxels),
            vectors(self._normals, taxels), vectors(self._about, pads), vectors(self.centroids, pads),
            self._loaded_above, self._active_above, vectors(force, number, taxels),
            vectors(own, number if torque is not None else 0, taxels),
        ]  # fmt: skip
        outputs = [
            vectors(reading.force, number, pads), vectors(reading.torque, number, pads),
            wp.from_torch(reading.load.view(number, pads)), vectors(reading.centre, number, pads),
            wp.from_torch(reading.valid.view(number, pads), dtype=wp.bool),
            wp.from_torch(reading.active.view(number, pads)),
        ]  # fmt: skip
        device = self._device
        stream = wp.stream_from_torch(torch.cuda.current_stream(force.device)) if device.is_cuda else None
        with graph.launching:
            wp.launch(_sum, dim=(number, pads), inputs=inputs, outputs=outputs, device=device, stream=stream)
        return reading

    def _lead(self, field: str, tensor: Tensor) -> tuple[int, ...]:
        """Return the sizes of the axes before those of the taxels."""
        tail = (*self.layout.shape, 3)
        shape = tuple(tensor.shape)
        if len(shape) < len(tail) or shape[len(shape) - len(tail) :] != tail:
            raise ConfigError.single("Pads", field, shape, f"a tensor of shape [..., {', '.join(map(str, tail))}]")
        if tensor.dtype != torch.float32 or tensor.device != self.centroids.device:
            got, expected = f"{tensor.dtype} on {tensor.device}", f"torch.float32 on {self.centroids.device}"
            raise ConfigError.single(
                "Pads", field, got, expected, "Give Pads(..., device=...) the device of the forces."
            )
        return shape[: len(shape) - len(tail)]

    def _made(self, lead: tuple[int, ...]) -> PadReading:
        """Return the outputs for tensors with these leading axes."""
        if lead not in self._buffers:
            device, pads = self.centroids.device, len(self.names)

            def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
                return torch.zeros((*lead, *shape), dtype=dtype, device=device)

            with torch.inference_mode(False):
                self._buffers[lead] = PadReading(
                    zeros(pads, 3), zeros(pads, 3), zeros(pads), zeros(pads, 3),
                    zeros(pads, dtype=torch.bool), zeros(pads, dtype=torch.int32),
                )  # fmt: skip
        return self._buffers[lead]


def pad_blocks(layout: TaxelLayout, rows: int, columns: int) -> dict[str, tuple[slice, slice]]:
    """Return the `pads` argument that cuts a grid into nearly equal blocks, ``"0,0"`` to ``"rows-1,columns-1"``.

    Args:
        layout: a grid.
        rows: number of blocks along the rows.
        columns: number of blocks along the columns.

    Raises:
        ConfigError: the layout is a list, or has fewer rows or columns than blocks.
    """
    if len(layout.shape) != 2:
        raise ConfigError.single("pad_blocks", "layout", layout, "a grid: [row, column, 3]")
    for field, blocks, taxels in zip(("rows", "columns"), (rows, columns), layout.shape, strict=True):
        if isinstance(blocks, bool) or not isinstance(blocks, int) or not 0 < blocks <= taxels:
            raise ConfigError.single("pad_blocks", field, blocks, f"a number of blocks from 1 to {taxels}")

    def cuts(taxels: int, blocks: int) -> list[slice]:
        return [slice(taxels * i // blocks, taxels * (i + 1) // blocks) for i in range(blocks)]

    along, across = cuts(layout.shape[0], rows), cuts(layout.shape[1], columns)
    return {f"{i},{j}": (one, other) for i, one in enumerate(along) for j, other in enumerate(across)}


def _taxels(layout: TaxelLayout, name: str, index: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers of the taxels that an index selects."""
    numbers = np.arange(len(layout)).reshape(layout.shape)
    field = f"pads.{name}"
    if isinstance(index, Tensor):
        index = index.cpu().numpy()
    if isinstance(index, list | range):
        index = np.asarray(index)
    if isinstance(index, np.ndarray) and index.dtype == np.bool_ and index.shape != numbers.shape:
        raise ConfigError.single("Pads", field, f"a mask of shape {index.shape}", f"a mask of shape {layout.shape}")
    try:
        rows = np.asarray(numbers[index]).ravel()
    except (IndexError, TypeError, ValueError) as error:
        expected = f"a NumPy index of taxels of shape {layout.shape}"
        raise ConfigError.single("Pads", field, index, expected, f"{str(error).capitalize()}.") from None
    if not len(rows):
        raise ConfigError.single("Pads", field, index, "at least one taxel")
    if len(np.unique(rows)) < len(rows):
        raise ConfigError.single("Pads", field, index, "each taxel once")
    return np.asarray(rows, np.int64)


def _reference(about: str | Sequence[float], middles: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the reference point of each pad's torque, `[pad, 3]`, m."""
    if isinstance(about, str):
        if about not in ("link", "pad"):
            raise ConfigError.single("Pads", "about", about, "'link', 'pad' or a point (x, y, z), m")
        return middles if about == "pad" else np.zeros_like(middles)
    try:
        point = np.array(about, dtype=np.float64)
    except (TypeError, ValueError):
        point = np.zeros(0)
    if point.shape != (3,) or not np.isfinite(point).all():
        raise ConfigError.single("Pads", "about", shown(about), "'link', 'pad' or a point (x, y, z), m")
    return np.broadcast_to(point, middles.shape)
