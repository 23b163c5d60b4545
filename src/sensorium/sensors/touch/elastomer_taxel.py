"""Elastomer taxels: displacements of markers in a soft skin where shapes press, drag and twist it.

Axes: ``[env, mount, probe, 3]`` (no mount axis for a singular selector); a grid of probes has two axes instead of one.
Frame: that of the parent link (of the mount).

A probe is a marker at p_i of the skin at rest, with the outward normal n_i. Its depth is its distance inside the
deepest shape, h = max(0, -sd(p)). Its displacement is dilation and shear:

    dilate_i = dilate_scale sum_j [ T_i (p_i - p_j) w_ij + n_i h_j^e exp(-lambda_d r_ij^2) ]      T_i = 1 - n_i n_i'
    shear_i = shear_scale T_i sum_o (x_o - x_o at entry) h_o a_o exp(-lambda_s |p_i - x_o|^2)

The lateral response of the gel depends on `compressibility` c, with r = r_ij:

    c = 1       w = h_j exp(-lambda_d r^2)
    c = 0       w = h_j / (r^2 + s^2)                       s = elastomer_thickness, or the spacing of the probes
    between     w = h_j (c exp(-lambda_d r^2) / N_g + (1 - c) / (r^2 + s^2) / N_i)

N_g = exp(-1/2) / sqrt(2 lambda_d) and N_i = 1 / 2s are the peaks of r times each term, so that c weights comparable
quantities. On a regular grid, a thickness t > 0 makes the gel an incompressible layer bonded to its backing; the first
part is then the response `elastomer_grid.layer_table`, for any c.

The second sum is over points o on the surfaces of the tracked links. h_o is the depth of such a point behind the
tangent plane of the nearest probe. It counts if the point is at most half a grid cell's diagonal beside the probe, and
if the shape extends from the point up to the skin (so that contact at the back of a finger does not drag its front). A
point deeper than `contact_threshold` sticks to the skin at that place, x_o at entry, until its depth is at most
`release` or it leaves the skin sideways. Beyond `max_shear` it slips, and its entry point follows. Twist needs no
separate term: points around the centre are dragged around it. a_o is 1, or the area that a point represents.

Lengths are in metres. The displacement is in metres if the scales have matching units: `dilate_scale` 1/m for c = 1
(with an exponent of 2 along the normal), m for c = 0, and dimensionless in between and for a layer; `shear_scale` 1/m,
or 1/m^3 with areas. The default scales of 1 are those of Genesis: model units that need calibration.

The model follows Y. Zhao et al., "FOTS: A Fast Optical Tactile Simulator for Sim2Real Learning of Tactile-motor Robot
Manipulation Skills", IEEE Robotics and Automation Letters, 2024 (dilation, shear and twist of markers by Gaussians),
with the anchors and the kernels of Genesis's elastomer taxels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from torch import Tensor

from sensorium.compute import Segment, recorded
from sensorium.errors import ConfigError
from sensorium.geometry.samples import SurfaceSamples, body_samples, covered, scattered, surface_area
from sensorium.geometry.shapes import Shape
from sensorium.measurement.record import Record
from sensorium.sensors.core.hooks import used_if
from sensorium.sensors.touch import elastomer_kernels as kernels
from sensorium.sensors.touch.elastomer_cfg import LIVE, LIVE_SHEAR, ElastomerTaxelCfg, ElastomerTaxelData
from sensorium.sensors.touch.elastomer_grid import Convolution, GelLattice, layer_table, typical_spacing
from sensorium.sensors.touch.taxels import TaxelSensor, check_points
from sensorium.shapes.solid_view import SolidViews

TRIED = 4000
"""Number of points of a link's shapes that are tested for being covered by another of its shapes."""
BESIDE = 1.001
"""Overlap of cells, so that rounding leaves no gap between them."""


class ElastomerTaxel(TaxelSensor[ElastomerTaxelCfg, ElastomerTaxelData]):
    """Displacements of markers in a soft skin, from signed distances and from points that stick to it."""

    single: ClassVar[bool] = True
    checks_state: ClassVar[bool] = False

    # Set-up -----------------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Collect probes, the shapes that press, the points that drag, and the tables of the sums."""
        cfg = self.cfg
        self._lattice = None if isinstance(cfg.lattice, str) else cfg.lattice
        typical, widest = typical_spacing(cfg.places) if self._lattice is None else self._lattice.spacing
        if self._lattice is not None:
            self._reach = BESIDE * 0.5 * math.hypot(typical, widest)
            typical = math.sqrt(typical * widest)
        else:
            self._reach = BESIDE * math.sqrt(0.5) * widest if widest > 0.0 else float(cfg.radii.max())
        self._soft = cfg.elastomer_thickness or typical or self._reach
        self._make_taxels(reach=self._reach)
        self._law = kernels.Law()
        self._has_shear = cfg.shear_scale > 0.0
        self._live = LIVE_SHEAR if self._has_shear else LIVE
        self._put(self._law, self._live)
        self._make_gel()
        self._make_sums()
        self._dragged = kernels.Dragged()
        self._work: list[Tensor] = []
        self._links: tuple[str, ...] = ()
        self._samples: list[SurfaceSamples] = []
        if self._has_shear:
            self._make_surface()
        self.notes = self._notes()
        self._segments: dict[tuple[int, int], tuple[Segment, Segment]] = {}

    def _make_gel(self) -> None:
        cfg, lattice, device = self.cfg, self._lattice, self.device
        gel = self._gel = kernels.Gel()
        skin = self._taxels.skin
        gel.points, gel.normals, gel.radius = skin.points, skin.normals, skin.radius
        span = np.linalg.norm(cfg.places - self._centre, axis=1).max() + self._reach
        gel.reach, gel.deepest = self._reach, float(span)
        self._ball_radius = BESIDE * math.sqrt(2.0) * float(span)
        gel.gauss, gel.inverse = self._weights()
        gel.lambda_d, gel.lambda_s, gel.soft2 = cfg.lambda_d, cfg.lambda_s, self._soft**2
        if lattice is not None:
            gel.rows, gel.columns, gel.origin = lattice.rows, lattice.columns, wp.vec3(*lattice.origin)
            gel.along_rows, gel.along_columns = wp.vec3(*lattice.along_rows), wp.vec3(*lattice.along_columns)
            gel.per_row, gel.per_column = (1.0 / step for step in lattice.spacing)
        self._layer = np.zeros((0, 0, 2))
        if lattice is not None and cfg.is_layer:
            self._layer = layer_table(lattice, cfg.elastomer_thickness)
        gel.layer = wp.array(self._layer.astype(np.float32), dtype=wp.vec2, device=device)

    @property
    def _centre(self) -> NDArray[np.float64]:
        """Centre of the probes, m."""
        places = self.cfg.places
        return np.asarray(0.5 * (places.min(axis=0) + places.max(axis=0)))

    def _weights(self) -> tuple[float, float]:
        """Return the weights of the Gaussian and of the inverse square."""
        cfg, c = self.cfg, self.cfg.compressibility
        if c in (0.0, 1.0):
            return c, 1.0 - c
        if cfg.lambda_d == 0.0:  # a layer, which uses neither
            return 0.0, 0.0
        return c * math.sqrt(2.0 * cfg.lambda_d) * math.exp(0.5), (1.0 - c) * 2.0 * self._soft

    def _make_sums(self) -> None:
        cfg, device, batch = self.cfg, self.device, (self.num_envs, self.mount.count)
        self._convolution: Convolution | None = None
        if not cfg.uses_fft:
            heights = torch.zeros((*batch, 2, cfg.num_probes), dtype=torch.float32, device=device)
            self._heights = heights
            return
        assert self._lattice is not None
        self._convolution = Convolution(self._tables(self._lattice), batch, device)
        self._gel.width = self._convolution.size[1]
        self._heights = self._convolution.heights.flatten(3)

    def _tables(self, lattice: GelLattice) -> NDArray[np.float64]:
        """Return the effect of a unit depth along rows and columns, and of a unit of its power along the normal."""
        x, y = lattice.offsets()
        far = x**2 + y**2
        gauss, inverse = self._weights()
        near = np.exp(-self.cfg.lambda_d * far)
        if len(self._layer):
            return np.stack([self._layer[..., 0], self._layer[..., 1], near])
        weight = gauss * near + inverse / (far + self._soft**2)
        return np.stack([x * weight, y * weight, near])

    def _make_surface(self) -> None:
        """Distribute points over the tracked surfaces, and allocate the memory of their anchors.

        Raises:
            ConfigError: no tracked surface has a bounded area.
        """
        cfg, device, config = self.cfg, self.device, self.cfg.title
        shapes, bodies = self.rays.shapes, self.mount.body.tolist()
        view, hidden = self.rays.view(SolidViews).select(cfg.seen, bodies, config)
        links: dict[int, list[Shape]] = {}
        for k in view.shapes:
            if shapes[k].kind != "plane" or 0.0 not in shapes[k].size:
                links.setdefault(shapes[k].row, []).append(shapes[k])
        if not links:
            names = [shapes[k].name for k in view.shapes]
            fix = "Select another link, since unbounded planes have no points, or disable shear with shear_scale=0."
            raise ConfigError.single(config, "targets", names, "a link with a bounded surface", fix)
        area = sum(surface_area(shape) for each in links.values() for shape in each)
        check_points(self.compute_on.memory, cfg.sample_spacing, cfg.n_sample_points, area, config)
        spacing = cfg.sample_spacing or math.sqrt(sum(map(_open_area, links.values())) / cfg.n_sample_points)
        self._samples = [body_samples(each, spacing=spacing) for each in links.values()]
        bodies_of = self.engine.names("body")
        self._links = tuple(bodies_of[row] if row >= 0 else "world" for row in links)
        out, rows, starts, order, block_body, block_link = kernels.GelSurface(), view.bodies, [0], [], [], []
        first = 0
        for number, (row, samples) in enumerate(zip(links, self._samples, strict=True)):
            for part in _parts(samples.points, self._taxels.block):
                order.append(first + part)
                starts.append(starts[-1] + len(part))
                block_body.append(-1 if links[row][0].is_static else row)
                block_link.append(number)
            first += len(samples)
        joined = np.concatenate(order)
        points = np.concatenate([samples.points for samples in self._samples])[joined]
        self._points = torch.tensor(points, dtype=torch.float32, device=device)
        weights = np.concatenate([samples.areas for samples in self._samples])[joined]
        spans = [points[start:stop] for start, stop in pairwise(starts)]
        centres = [0.5 * (span.min(axis=0) + span.max(axis=0)) for span in spans]
        radii = [np.linalg.norm(span - centre, axis=1).max() for span, centre in zip(spans, centres, strict=True)]
        of_row = [[*links].index(row) if row in links else -1 for row in rows.tolist()] or [-1]
        is_hidden = np.array([hidden[:, rows == [*links][link]].all(axis=1) for link in block_link]).T

        def array(values: Any, dtype: Any, kind: Any) -> Any:
            return wp.array(np.ascontiguousarray(values, dtype=kind), dtype=dtype, device=device)

        out.point = wp.from_torch(self._points, dtype=wp.vec3)
        out.weight = array(weights if cfg.area_weighted else np.ones_like(weights), wp.float32, np.float32)
        out.start, out.body = array(starts, wp.int32, np.int32), array(block_body, wp.int32, np.int32)
        out.link, out.link_of_row = array(block_link, wp.int32, np.int32), array(of_row, wp.int32, np.int32)
        out.centre = array(np.stack(centres), wp.vec3, np.float32)
        out.radius = array(np.array(radii) * BESIDE + 1e-6, wp.float32, np.float32)  # larger than rounding errors
        out.hidden = array(is_hidden, wp.uint8, np.uint8)
        self._surface, self._num_blocks = out, len(block_body)
        self._anchor = self.new_state("anchor", (self.mount.count, len(points), 4))
        size = (self.num_envs, self.mount.count, len(points))
        count = torch.zeros(size[:2], dtype=torch.int32, device=device)
        listed = torch.zeros(size, dtype=torch.int32, device=device)
        pressed = torch.zeros(size, dtype=torch.float32, device=device)
        place, drag = (torch.zeros((*size, 3), dtype=torch.float32, device=device) for _ in range(2))
        self._work = [count, listed, pressed, place, drag]
        self._dragged.count, self._dragged.listed = wp.from_torch(count), wp.from_torch(listed)
        self._dragged.pressed = wp.from_torch(pressed)
        self._dragged.place, self._dragged.drag = (wp.from_torch(each, dtype=wp.vec3) for each in (place, drag))

    # Interface --------------------------------------------------------------------------------------------------------

    @property
    def sample_points(self) -> Mapping[str, SurfaceSamples]:
        """Points that can stick to the skin, by link, in the link's frame (for static links, in the world's)."""
        return dict(zip(self._links, self._samples, strict=True))

    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        """Set a knob as `Sensor.set` does.

        Raises:
            ConfigError: the knob is not given in the config, the value is invalid, or fixed tables depend on it.
        """
        if self._is_param(knob) and knob not in self.params.tables:
            fix = f"Use scene.reconfigure({self.name!r}, {knob}=...)."
            expected = f"a number that can be set at run time: {', '.join(self._live.values())}"
            raise ConfigError.single(self.cfg.title, knob, value, expected, fix)
        super().set(knob, value, env_ids)

    def _notes(self) -> dict[str, str]:
        """Return how the sums are computed, the response of the gel, and the links that drag it."""
        cfg, found = self.cfg, {}
        if self._convolution is not None:
            found["sums"] = "FFT of {} x {}".format(*self._convolution.size)
        else:
            found["sums"] = "direct" + (f": {cfg.lattice}" if isinstance(cfg.lattice, str) else "")
        if cfg.is_layer:
            found["gel"] = f"bonded layer of {cfg.elastomer_thickness:g} m"
        else:
            found["gel"] = f"compressibility {cfg.compressibility:g}"
            found["gel"] += f", softened over {self._soft:.3g} m" if cfg.compressibility < 1.0 else ""
        for link, samples in self.sample_points.items():
            found[link] = f"{len(samples)} points on {samples.area:.3g} m^2"
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        sums = self._heights.numel() * 4 if self._convolution is None else self._convolution.nbytes
        work = sum(each.numel() * each.element_size() for each in self._work)
        return super().nbytes + sums + work

    # One sample -------------------------------------------------------------------------------------------------------

    @used_if(lambda self: self.cfg.uses_fft, otherwise="_direct")
    def update_raw_data(self, raw: Record) -> None:
        """Find contacts and drags, convolve, and displace: launches, the FFT in torch, and a launch."""
        key = (id(self.compute_on.mask), raw.displacement.data_ptr())
        if key not in self._segments:
            record, mask = self.compute_on.record, self.compute_on.mask
            self._segments[key] = record(self._touch, mask), record(lambda: self._displace(raw), mask)
        before, after = self._segments[key]
        before.run()
        assert self._convolution is not None
        self._convolution.run()
        after.run()

    @recorded
    def _direct(self, raw: Record) -> None:
        self._touch()
        self._displace(raw)

    def _touch(self) -> None:
        """Find nearby shapes, the depth of each probe, and the sticking points (two launches, or four)."""
        taxels, launch, mount = self._taxels, self.compute_on.launch, self.mount
        query = taxels.query
        query.place()
        inputs = [taxels.block, self._gel, self._law, query.shapes, query.around]
        launch(kernels.press, taxels.items, inputs, [wp.from_torch(self._heights)])
        if not self._has_shear:
            return
        inputs = [wp.vec3(*self._centre), self._ball_radius, self._gel, self._law, self._surface]
        inputs += [query.shapes, query.around, *query.mount_pose(), *query.body_pose()]
        dragged = self._dragged
        outputs = [wp.from_torch(self._anchor, dtype=wp.vec4), dragged.pressed, dragged.place, dragged.drag]
        launch(kernels.stick, (mount.count, self._num_blocks), inputs, outputs)
        launch(kernels.gather, (mount.count,), [dragged.pressed], [dragged.count, dragged.listed])

    def _displace(self, raw: Record) -> None:
        taxels, launch, out = self._taxels, self.compute_on.launch, self._taxels.vectors(raw.displacement)
        if self._has_shear and self._lattice is not None:
            items = (self.mount.count, self._lattice.rows)
            launch(kernels.shear_grid, items, [self._gel, self._law, self._dragged], [out])
        elif self._has_shear:
            launch(kernels.shear_list, taxels.items, [taxels.block, self._gel, self._law, self._dragged], [out])
        kernel, sums = kernels.displace_direct, self._heights
        if self._convolution is not None:
            kernel, sums = kernels.displace_fft, self._convolution.sums.flatten(3)
        inputs = [taxels.block, self._gel, self._law, wp.from_torch(sums), int(self._has_shear)]
        launch(kernel, taxels.items, inputs, [out])


def _open_area(shapes: list[Shape]) -> float:
    """Return the area of a link's shapes, m^2, without parts covered by another of them, such as a copy."""
    whole = sum(map(surface_area, shapes))
    if len(shapes) == 1 or not whole:
        return whole
    tried = scattered(shapes, TRIED)
    return float(tried.areas[~covered(shapes, tried)].sum())


def _parts(points: NDArray[np.float64], size: int) -> list[NDArray[np.int64]]:
    """Return the rows of points in compact parts of at most `size`: halves along the longest side."""
    parts, whole = [np.arange(len(points))], False
    while not whole:
        whole, cut = True, []
        for part in parts:
            if len(part) <= size:
                cut.append(part)
                continue
            whole = False
            selected = points[part]
            order = part[np.argsort(selected[:, np.ptp(selected, axis=0).argmax()], kind="stable")]
            cut += [order[: len(part) // 2], order[len(part) // 2 :]]
        parts = cut
    return parts


__all__ = ["ElastomerTaxel", "ElastomerTaxelCfg", "ElastomerTaxelData"]
