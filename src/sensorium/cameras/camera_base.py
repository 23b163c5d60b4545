"""Base of cameras: image and lens, setters of intrinsics and poses, and the drawn frustum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sensorium.cameras.annotators import ANNOTATORS
from sensorium.cameras.camera_base_cfg import CameraBaseCfg
from sensorium.cameras.camera_data import ALWAYS, DISTANCES, CameraData
from sensorium.cameras.geometry import (
    CONVENTIONS,
    Convention,
    convert_orientation_convention,
    inverse_intrinsics,
    look_at,
)
from sensorium.cameras.lenses import LensCfg, PinholeLensCfg
from sensorium.cameras.stages.depth_image import DepthStage
from sensorium.engines.envs import env_rows
from sensorium.errors import ConfigError, Fault
from sensorium.geometry.transforms import quat_apply, quat_conjugate, quat_level, quat_mul
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.parts import declared_fields
from sensorium.spec import Field

CameraCfgT = TypeVar("CameraCfgT", bound=CameraBaseCfg[Any])
CameraDataT = TypeVar("CameraDataT", bound=CameraData)


class CameraBase(SimpleSensor[CameraCfgT, CameraDataT], Generic[CameraCfgT, CameraDataT]):
    """Camera at one or several mounts. A subclass calls `_take_lens` in its `setup`.

    Intrinsics and poses can be changed per env between steps (`set_intrinsic_matrices`, `set_world_poses`). A sample of
    the current tick is retaken with the change and the same noise, in every mode of `evaluate`. An earlier sample is
    held, as is that of a camera with memory such as a delay or a history: the change applies from the next sample on.
    Changes are saved with the scene's state and persist across resets.
    """

    _k: Tensor
    _inverse_k: Tensor
    _offset_pos: Tensor
    _offset_quat: Tensor

    @property
    def _alignment(self) -> str:
        """Rotation of the camera with its mount: ``"base"``, ``"yaw"`` or ``"world"``."""
        return "base"

    def _follow_lens(self, matrices: Tensor) -> None:
        """Follow a change to other intrinsic matrices, `[env, 3, 3]`, or raise `ConfigError`; by default nothing."""

    @cached_property
    def optics(self) -> LensCfg:
        """The lens; its intrinsic matrices are in the data."""
        return PinholeLensCfg()

    @property
    def lens(self) -> dict[str, Any]:
        """Kind and given fields of `optics`."""
        return self.optics.to_dict()

    @property
    def image_shape(self) -> tuple[int, int]:
        """(height, width), pixels."""
        width, height = self._lens[0]
        return height, width

    @cached_property
    def _lens(self) -> tuple[tuple[int, int], NDArray[np.float64]]:
        """(width, height), px, and the initial intrinsic matrices `[1 or env, 3, 3]`.

        Raises:
            ConfigError: neither the config nor the camera of the model defines image and lens, or cameras differ.
        """
        names = [name for name in self.mount.cameras if name]
        first = names[0] if len(names) == self.mount.count else ""
        found = [(name, self.engine.camera_lens(name)) for name in names] if first else [("", None)]
        image = self.cfg.image_on(found[0][1], first)
        k = self.cfg.matrices_on(found[0][1], first)
        for name, lens in found[1:]:
            differs = "image" if self.cfg.image_on(lens, name) != image else ""
            if not differs and not np.allclose(self.cfg.matrices_on(lens, name), k, rtol=1e-9):
                differs = "lens"
            if differs:
                got = f"{first!r} and {name!r}, whose {differs} differs"
                fix = "Use one sensor per camera, or give width, height and fovy in the config."
                expected = "cameras with the same image size and lens"
                raise ConfigError(self.cfg.title, [Fault(self.cfg.selector[0], got, expected, fix)])
        return image, k

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the size of the image; only one of the two distances takes noise."""
        self.compute_on.memory.check_cast(self.image_shape, self.mount.count)
        declared = declared_fields(self.data_class)
        out = {}
        for name in self.cfg.selected:
            field = declared[name]
            if name not in ALWAYS:
                field = ANNOTATORS[name].sized(name, field, self)
            if name == DISTANCES[1] and DISTANCES[0] in self.cfg.selected:
                field = replace(field, kind="derived")
            out[name] = field
        return out

    def _check_stages_of(self, k: NDArray[np.float64]) -> None:
        """Raise `ConfigError` if the lens of a model of depth errors differs from a camera of intrinsic matrix k."""
        (fx, _, cx), (_, fy, cy), _ = k.tolist()
        fix = f"Use the camera's values: fx {fx:.6g}, fy {fy:.6g}, centre ({cx:.6g}, {cy:.6g}) px."
        faults = []
        for number, stage in enumerate(self.cfg.stages):
            if not isinstance(stage, DepthStage):
                continue
            image = stage.pinhole(*self.image_shape)
            where, focal = f"stages.{number}", float(image.focal)
            if max(abs(focal / fx - 1.0), abs(focal / fy - 1.0)) > 1e-3:
                faults.append(Fault(f"{where}.focal_px", f"{focal:.6g}", "the focal length of the camera, px", fix))
            elif max(abs(image.cx - cx), abs(image.cy - cy)) > 0.5:
                got = f"({image.cx:.6g}, {image.cy:.6g})"
                faults.append(Fault(f"{where}.principal_point", got, "the principal point of the camera, px", fix))
        if faults:
            raise ConfigError(self.cfg.title, faults)

    def _take_lens(self) -> None:
        """Store the initial lens and offset, `[env, ...]`, in live memory that is saved."""
        cfg, device, envs = self.cfg, self.device, self.compute_on.num_envs
        self.data_types = cfg.asked
        self.labels: dict[str, Any] = {}
        for each in np.unique(self._lens[1], axis=0):
            self._check_stages_of(each)
        k = torch.tensor(self._lens[1], dtype=torch.float32, device="cpu")
        inverse = inverse_intrinsics(k, cfg.title)
        self._k = k.float().expand(envs, 3, 3).contiguous().to(device)
        self._inverse_k = inverse.float().expand(envs, 3, 3).contiguous().to(device)
        shape = (envs, self.mount.count)
        pos, quat = cfg.offset_on(all(self.mount.cameras))
        self._offset_pos = pos.float().expand(*shape, 3).contiguous().to(device)
        self._offset_quat = quat.float().expand(*shape, 4).contiguous().to(device)
        names = ("k", "inverse_k", "offset_pos", "offset_quat")
        self.buffers.kept |= {f"camera/{name}": getattr(self, f"_{name}") for name in names}
        self.pose_offset = self._offset_pos, self._offset_quat  # live: x forward, z up

    # Intrinsics and poses ---------------------------------------------------------------------------------------------

    @property
    def intrinsic_matrices(self) -> Tensor:
        """Intrinsic matrices of the next sample, float32 `[env, 3, 3]`, px (a copy)."""
        return self._k.clone()

    def set_intrinsic_matrices(self, matrices: Tensor, focal_length: float | None = 1.0, env_ids: Any = None) -> None:
        """Set the intrinsic matrices of some envs; all mounts of an env have the same matrix.

        Args:
            matrices: `[n, 3, 3]` for n envs, or `[3, 3]` for all of them, px: ((fx, skew, cx), (0, fy, cy), (0, 0, 1)).
            focal_length: unit of apertures, which are not stored; has no effect.
            env_ids: int ids, bool mask or None for all.

        Raises:
            ConfigError: a wrong shape, a matrix that is singular, not finite or of another form, or a lens that folds
                over with it. The intrinsics stay as they were.
        """
        rows = self._rows(env_ids)
        k = torch.as_tensor(matrices, dtype=torch.float64, device="cpu").detach()
        k = self._one_per_env("matrices", k, rows, (3, 3))
        inverse = inverse_intrinsics(k, self.cfg.title)
        matrices = self._k.clone()
        matrices[rows] = k.float().to(self.device)
        self._follow_lens(matrices)
        self._k.copy_(matrices)
        self._inverse_k[rows] = inverse.float().to(self.device)
        self._context.retake(self)

    def set_world_poses(
        self,
        positions: Tensor | None = None,
        orientations: Tensor | None = None,
        env_ids: Any = None,
        convention: Convention = "ros",
    ) -> None:
        """Set the poses of cameras in the world. This changes their offsets, so the cameras still follow their mounts.

        Args:
            positions: `[n, 3]` for n envs (`[n, mount, 3]` with a mount axis), or `[3]` for all, m; None keeps them.
            orientations: `[n, 4]` in the same forms, quaternions (w, x, y, z); None keeps them.
            env_ids: int ids, bool mask or None for all.
            convention: camera axes that `orientations` rotate.

        Raises:
            ConfigError: a wrong shape, a number that is not finite, a quaternion that is not of unit length, or an
                unknown convention.
        """
        if convention not in CONVENTIONS:
            raise ConfigError.single(self.cfg.title, "convention", convention, f"one of {', '.join(CONVENTIONS)}")
        rows = self._rows(env_ids)
        pos, turn = (tensor[rows] for tensor in self._parents())
        back = quat_conjugate(turn)
        offset_pos = self._offset_pos[rows].double()
        offset_quat = self._offset_quat[rows].double()
        if positions is not None:
            offset_pos = quat_apply(back, self._per_mount("positions", positions, rows, 3) - pos)
        if orientations is not None:
            wanted = self._per_mount("orientations", orientations, rows, 4)
            length = wanted.norm(dim=-1, keepdim=True)
            if not bool(((length - 1.0).abs() < 1e-3).all()):
                worst = wanted.reshape(-1, 4)[int((length - 1.0).abs().reshape(-1).argmax())].tolist()
                raise ConfigError.single(self.cfg.title, "orientations", worst, "unit quaternions (w, x, y, z)")
            offset_quat = quat_mul(back, convert_orientation_convention(wanted / length, convention, "world"))
        self._offset_pos[rows] = offset_pos.float()
        self._offset_quat[rows] = (offset_quat / offset_quat.norm(dim=-1, keepdim=True)).float()
        self._poses_changed(rows)
        self._context.retake(self)

    def set_world_poses_from_view(self, eyes: Tensor, targets: Tensor, env_ids: Any = None) -> None:
        """Set the positions of cameras and the points they look at; the world's z axis is up in the image.

        A camera that looks straight up or down is rotated as if it had looked along the world's x axis and was then
        tilted.

        Args:
            eyes: positions of the cameras, as `positions` of `set_world_poses`, m.
            targets: points they look at, in the same forms, m.
            env_ids: int ids, bool mask or None for all.

        Raises:
            ConfigError: a wrong shape, a number that is not finite, or an eye at the position of its target.
        """
        rows = self._rows(env_ids)
        where, what = (self._per_mount(name, given, rows, 3) for name, given in (("eyes", eyes), ("targets", targets)))
        quat = look_at(where, what, "world", self.cfg.title)
        axis = (slice(None), slice(None)) if self._mount_axis else (slice(None), 0)
        self.set_world_poses(where[axis], quat[axis], env_ids, "world")

    def _rows(self, env_ids: Any) -> Tensor:
        if self.is_retired:
            self.ensure_current()  # raises
        rows = env_rows(env_ids, self.num_envs, self.device)
        return torch.arange(self.num_envs, device=self.device) if rows is None else rows

    def _one_per_env(self, name: str, given: Tensor, rows: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return values for each env in `rows`, given per env or once for all."""
        full = (len(rows), *shape)
        if tuple(given.shape) not in (shape, full):
            expected = f"{list(full)} for {len(rows)} envs, or {list(shape)} for all"
            raise ConfigError.single(self.cfg.title, name, tuple(given.shape), expected)
        return given.expand(full)

    def _per_mount(self, name: str, given: Any, rows: Tensor, size: int) -> Tensor:
        """Return finite values `[n, mount, size]`, float64."""
        values = torch.as_tensor(given, dtype=torch.float64, device=self.device).detach()
        if values.dim() == 1:
            values = self._one_per_env(name, values, rows, (size,))[:, None].expand(-1, self.mount.count, -1)
        elif self._mount_axis:
            shape = (len(rows), self.mount.count, size)
            if tuple(values.shape) != shape:
                expected = f"{list(shape)} for {len(rows)} envs, or [{size}] for all"
                raise ConfigError.single(self.cfg.title, name, tuple(values.shape), expected)
        else:
            values = self._one_per_env(name, values, rows, (size,))[:, None]
        if not bool(torch.isfinite(values).all()):
            raise ConfigError.single(self.cfg.title, name, values.reshape(-1, size).tolist()[:3], "finite numbers")
        return values

    def _parents(self) -> tuple[Tensor, Tensor]:
        """Return the current parent poses of the offset: float64 `[env, mount, 3]` and `[env, mount, 4]`."""
        mount, device = self.mount, self.device
        self.engine.refresh()
        body = mount.body.long()
        pos = mount.offset_pos.double().expand(self.num_envs, -1, -1).clone()
        quat = mount.offset_quat.double().expand(self.num_envs, -1, -1).clone()
        on_body = body >= 0
        if bool(on_body.any()):
            bodies = body[on_body]
            turn = self.engine.array("body_quat_w").to(device)[:, bodies].double()
            pos[:, on_body] = self.engine.array("body_pos_w").to(device)[:, bodies].double() + quat_apply(
                turn, pos[:, on_body]
            )
            quat[:, on_body] = quat_mul(turn, quat[:, on_body])
        if self._alignment == "world":
            quat = quat.new_tensor([1.0, 0.0, 0.0, 0.0]).expand(quat.shape)
        elif self._alignment == "yaw":
            quat = quat_level(quat)
        return pos, quat / quat.norm(dim=-1, keepdim=True)

    def _poses(self) -> tuple[Tensor, Tensor]:
        """Return the current poses of the cameras, x forward: float64 `[env, mount, 3]` and `[env, mount, 4]`."""
        pos, turn = self._parents()
        return pos + quat_apply(turn, self._offset_pos.double()), quat_mul(turn, self._offset_quat.double())

    def _poses_changed(self, rows: Tensor) -> None:
        """Follow a change of the offsets of some envs; by default nothing."""

    # Saving and drawing -----------------------------------------------------------------------------------------------

    def load(self, tensors: Mapping[str, Tensor], counters: Mapping[str, int]) -> None:
        """Restore the result of `tensors` and `counters`."""
        super().load(tensors, counters)
        self._follow_lens(self._k)
        self.expire()

    def about_drawing(self) -> dict[str, Any]:
        """Return nothing: the frustum follows from the lens."""
        return {}
