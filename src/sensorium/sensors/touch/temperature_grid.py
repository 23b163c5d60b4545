"""Temperature grid: temperatures of the parts of a link, as measured by slow sensing elements.

Axes: ``[env, mount, x, y, z]`` (no mount axis for a singular selector): cells over the bounding box of the link's
shapes, along the link's own axes, so that the values do not depend on the orientation of the link.

With C the heat capacity of a cell, A its exposed surface and T, Ta its temperature and that of the surroundings,
kelvin:

    C dT/dt = P + h A (Ta - T) + eps sigma A (Ta^4 - T^4) + sum_n k F / d (Tn - T) + sum_o G (To - T)

over its neighbours n and the touching bodies o (Incropera & DeWitt, Fundamentals of Heat and Mass Transfer, ch. 1 and
5). Volumes, the faces F between cells at a distance d, and surfaces are those of the link's actual shapes, not of their
box. A surface touches another link's shape that faces it within `contact_distance`. Its conductance G is that of half a
cell on either side and of `contact_conductance` in series. Touching surfaces exchange heat with each other, all others
with the air.

The truth is the cell's temperature. With `sensor_time_constant` the element follows it, tau dTm/dt = T - Tm, from the
first sample on. This acts only on the measured branch: the contract's table says "RC filter on both branches", its text
names only the measured one, and a lagging value would not be the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
import warp as wp
from torch import Tensor

from sensorium.compute import recorded
from sensorium.engines.base import FrameOnBody
from sensorium.engines.envs import env_rows
from sensorium.errors import ConfigError, UnknownNameError
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import used_if
from sensorium.sensors.core.parts import frame_rows
from sensorium.sensors.touch import temperature_grid_kernels as kernels
from sensorium.sensors.touch.temperature_grid_cells import LinkCells, in_link, link_cells
from sensorium.sensors.touch.temperature_grid_cfg import LinkThermalCfg, TemperatureGridCfg, TemperatureGridData
from sensorium.shapes.scene import Targets
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement
from sensorium.world.select import WORLD


class TemperatureGrid(SimpleSensor[TemperatureGridCfg, TemperatureGridData]):
    """Temperatures of the cells of one or several links, which exchange heat with the bodies they touch."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    single: ClassVar[bool] = True
    lookback: ClassVar[int] = 1

    def fields(self) -> Mapping[str, Field]:
        """Return the temperatures in the layout of the grid."""
        declared = super().fields()["temperature"]
        return {"temperature": replace(declared, shape=self.cfg.grid_size, axes=("x", "y", "z"))}

    # Set-up -----------------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Cut the links into cells, and allocate the memory of their temperatures."""
        cfg, names = self.cfg, (*self.engine.names("body"),)
        self._materials = cfg.properties_of((WORLD, *names))
        bodies = self._mounted_bodies()
        self._cells = math.prod(cfg.grid_size)
        self._links = [self._cut(body, cfg.grid_size, cfg.surface_samples) for body in bodies]
        own = [self._materials[names[body]] for body in bodies]
        points = np.concatenate([link.samples.points for link in self._links])
        self._query = self.solids(points=points, reach=cfg.contact_distance, targets=cfg.seen)
        self.buffers.body_at_fault = self._query.body_at_fault
        for name, link in zip(self.mount.body_names, self._links, strict=True):
            cells, volume, area = int((link.volume > 0.0).sum()), link.volume.sum(), link.area.sum()
            self.notes[name] = f"{cells} cells, {volume:.4g} m^3, {area:.4g} m^2"
        self._whole = self._simulated_links(bodies)
        whole = {body: self._cut(body, (1, 1, 1), 64) for body in self._whole}
        self._make_nodes(own, whole)
        self._make_skin(own)
        self._make_table(bodies, whole)
        nodes = self.mount.count * self._cells + len(whole)
        self._theta = self.new_state("theta", (2 * nodes,)).view(torch.float64)
        """Temperature of each node above its base, K, float64."""
        self._tick = self.new_state("tick").view(torch.int32)
        if cfg.sensor_time_constant is not None:
            self._rest = self.new_state("rest", (self.mount.count * self._cells,))
        size = (self.num_envs, nodes)
        self._span = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)
        self._covered, self._swept = (torch.zeros(size, dtype=torch.float64, device=self.device) for _ in range(2))
        shape = (self.num_envs, self.mount.count, self._skin.cell.shape[1])
        self._node = torch.full(shape, -1, dtype=torch.int32, device=self.device)
        self._conductance = torch.zeros(shape, dtype=torch.float32, device=self.device)
        self._heat: Tensor | None = None
        if cfg.heat_generation is not None:
            size = (self.num_envs, self.mount.count * self._cells)
            self._heat = torch.zeros(size, dtype=torch.float32, device=self.device)
            self._heat.copy_(self._watts(cfg.heat_generation, 1))
            self.buffers.kept["heat_generation"] = self._heat

    def about_drawing(self) -> dict[str, Any]:
        """Return the centres of the cells, in the frames of their links."""
        rows = []
        for body, link in zip(self.mount.body.tolist(), self._links, strict=True):
            centres = link.low + (np.moveaxis(np.indices(link.grid), 0, -1).reshape(-1, 3) + 0.5) * link.size
            rows += frame_rows(FrameOnBody(body, tuple(centre)) for centre in centres.tolist())
        return {"frames": rows}

    def _mounted_bodies(self) -> list[int]:
        """Return the row of each mount's body.

        Raises:
            ConfigError: a mount is not a link, or a link is given twice.
        """
        bodies, mount = self.mount.body.tolist(), self.mount
        straight = torch.tensor([1.0, 0.0, 0.0, 0.0], device=self.device)
        for k, name in enumerate(mount.names):
            is_link = bool((mount.offset_pos[:, k] == 0.0).all() and (mount.offset_quat[:, k] == straight).all())
            if bodies[k] < 0 or not is_link:
                fix = "" if bodies[k] < 0 else f"Give body={mount.body_names[k]!r}."
                raise ConfigError.single(
                    self.cfg.title, "mount", name, "a link, since the grid covers a whole link", fix
                )
            if bodies[k] in bodies[:k]:
                first = mount.names[bodies.index(bodies[k])]
                raise ConfigError.single(
                    self.cfg.title, "mount", name, f"each link once; it belongs to the same link as {first!r}"
                )
        return bodies

    def _cut(self, body: int, grid: tuple[int, int, int], count: int) -> LinkCells:
        name = self.engine.names("body")[body]
        shapes, cfg = self.rays.shapes, self.cfg
        rows = [k for k, shape in enumerate(shapes) if shape.row == body]
        if rows:
            targets = Targets(geometry=cfg.geometry, groups=cfg.include_geom_groups, include=(name,))
            rows = [k for k in self.rays.select(targets, self.cfg.title) if shapes[k].row == body]
        if not rows:
            fix = 'Select other shapes, for instance with geometry="any".'
            expected = f"a link with shapes for geometry={cfg.geometry!r}"
            raise ConfigError.single(self.cfg.title, "mount", name, expected, fix)
        pos, quat = (
            self.engine.array(array)[0, body].cpu().numpy().astype(np.float64)
            for array in ("body_pos_w", "body_quat_w")
        )
        solid = (in_link(shapes[k], pos, quat) if shapes[k].is_static else shapes[k] for k in rows)
        return link_cells(tuple(solid), grid, count, self.cfg.title, name)

    def _simulated_links(self, bodies: list[int]) -> list[int]:
        """Return the bodies with one variable temperature."""
        if not self.cfg.simulate_all_link_temperatures:
            return []
        still = {self.rays.shapes[k].row for k in self._query.view.shapes if self.rays.shapes[k].is_static}
        return sorted(set(self._query.view.bodies.tolist()) - still - set(bodies) - {-1})

    def _make_nodes(self, own: list[LinkThermalCfg], whole: Mapping[int, LinkCells]) -> None:
        """Build the kernels' table of nodes: cells, links with one temperature, then fixed temperatures."""
        names = self.engine.names("body")
        simulated = [*zip(self._links, own, strict=True)]
        simulated += [(link, self._materials[names[body]]) for body, link in whole.items()]
        fixed = [self._materials[name].base_temperature for name in (WORLD, *names)]
        base = [*(np.full(link.volume.size, each.base_temperature) for link, each in simulated), np.array(fixed)]
        capacity = np.concatenate([link.volume * each.density * each.specific_heat for link, each in simulated])
        per_capacity = np.zeros(capacity.size + len(fixed))
        per_capacity[: capacity.size][capacity > 0.0] = 1.0 / capacity[capacity > 0.0]
        self._capacity = torch.from_numpy(capacity).to(self.device)
        self._base = self._array(np.concatenate(base))
        self._per_capacity = self._array(per_capacity)
        self._area = self._array(np.concatenate([link.area for link, _ in simulated]))
        self._emissivity = self._array(
            np.concatenate([np.full(link.volume.size, each.emissivity) for link, each in simulated])
        )
        mass = capacity[: len(own) * self._cells].reshape(len(own), self._cells)
        self._mass = self._array(np.where(mass > 0.0, mass, 1.0))
        self._faces = [
            self._array(np.stack([link.faces[axis] * each.conductivity / link.size[axis]
                                    for link, each in zip(self._links, own, strict=True)]))
            for axis in range(3)
        ]  # fmt: skip
        shows = np.concatenate([link.nearest + k * self._cells for k, link in enumerate(self._links)])
        starts = np.searchsorted(np.sort(shows), np.arange(capacity.size + 1))
        self._shown = self._array(np.argsort(shows, kind="stable"), wp.int32)
        self._shown_start = self._array(starts, wp.int32)

    def _make_skin(self, own: list[LinkThermalCfg]) -> None:
        """Build the kernels' table of surfaces."""
        shape = (len(own), max(len(link.samples) for link in self._links))
        vectors = np.zeros((2, *shape, 3))
        scalars, cell = np.zeros((2, *shape)), np.full(shape, -1)
        for k, (link, each) in enumerate(zip(self._links, own, strict=True)):
            n, samples = len(link.samples), link.samples
            vectors[:, k, :n] = samples.points, samples.normals
            depth = np.linalg.norm(0.5 * link.size * samples.normals, axis=1)
            scalars[:, k, :n] = samples.areas, depth / each.conductivity
            cell[k, :n] = link.cell
        self._skin = kernels.TemperatureSkin()
        self._skin.point, self._skin.normal = (self._array(each, wp.vec3) for each in vectors)
        self._skin.area, self._skin.resistance = (self._array(each, wp.float32) for each in scalars)
        self._skin.cell = self._array(cell, wp.int32)

    def _make_table(self, bodies: list[int], whole: Mapping[int, LinkCells]) -> None:
        """Build the kernels' table of bodies that can be touched."""
        cfg, links = self.cfg, self._links
        entries = len(self.engine.names("body")) + 1
        gridded = len(links) * self._cells
        node = gridded + len(whole) + np.arange(entries)
        mount = np.full(entries, -1)
        half, low, per_size = np.zeros((3, entries, 3))
        for k, (body, link) in enumerate(zip(bodies, links, strict=True)):
            node[body + 1], mount[body + 1] = k * self._cells, k
            half[body + 1], low[body + 1], per_size[body + 1] = 0.5 * link.size, link.low, 1.0 / link.size
        for k, (body, link) in enumerate(whole.items()):
            node[body + 1], half[body + 1] = gridded + k, 0.5 * link.size
        # of two links with cells, the one with the finer points determines the contact area
        coarse = [(link.samples.area / len(link.samples), k) for k, link in enumerate(links)]
        counts = np.ones((len(links), entries))
        for k in range(len(links)):
            counts[k, [bodies[other] + 1 for other in range(len(links)) if coarse[other] <= coarse[k]]] = 0
        out = self._table = kernels.Links()
        out.of_row = self._array(self._query.view.bodies + 1 if len(self._query.view.bodies) else [0], wp.int32)
        out.node, out.mount = self._array(node, wp.int32), self._array(mount, wp.int32)
        out.counts = self._array(counts, wp.uint8)
        out.half, out.low, out.per_size = (self._array(each, wp.vec3) for each in (half, low, per_size))
        out.resistivity = self._array([1.0 / each.conductivity for each in self._materials.values()], wp.float32)
        _, out.grid_y, out.grid_z = cfg.grid_size
        out.last = wp.vec3(*(float(count - 1) for count in cfg.grid_size))
        out.nearest = self._array(np.stack([link.nearest for link in links]), wp.int32)
        out.gap = 0.0 if cfg.contact_conductance is None else 1.0 / cfg.contact_conductance
        out.reach = cfg.contact_distance

    def _array(self, values: Any, dtype: Any = wp.float64) -> Any:
        kind = np.float32 if dtype is wp.vec3 else wp.dtype_to_numpy(dtype)
        return wp.array(np.asarray(values, kind), dtype=dtype, device=self.device)

    # Interface --------------------------------------------------------------------------------------------------------

    @property
    def link_cells(self) -> tuple[LinkCells, ...]:
        """Cells of each mount's link: volumes, faces and surfaces."""
        return tuple(self._links)

    @property
    def heat_capacity(self) -> Tensor:
        """Heat capacity of each cell, float64 `[mount, x, y, z]`, J/K; 0 for an empty cell."""
        gridded = self._capacity[: self.mount.count * self._cells]
        return gridded.view(self.mount.count, *self.cfg.grid_size).clone()

    def link_temperature(self, link: str) -> Tensor:
        """Return the true mean temperature of a link, weighted by heat capacity, float64 `[env]`, degC.

        Args:
            link: name of a body, or ``"world"``; for bodies that are not simulated the result is the base temperature.

        Raises:
            UnknownNameError: no such link.
        """
        self.ensure_current()
        if link not in self._materials:
            raise UnknownNameError("link", link, self._materials)
        start, stop = 0, 0
        if link in self.mount.body_names:
            start = self.mount.body_names.index(link) * self._cells
            stop = start + self._cells
        elif link != WORLD and self.engine.names("body").index(link) in self._whole:
            start = self.mount.count * self._cells + self._whole.index(self.engine.names("body").index(link))
            stop = start + 1
        share = self._capacity[start:stop] / self._capacity[start:stop].sum()
        return self._materials[link].base_temperature + (self._theta[:, start:stop] * share).sum(dim=1)

    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        """Set a knob as `Sensor.set` does, or ``"heat_generation"``, W.

        Args:
            knob: name of the knob.
            value: for heat, in watts: one number per link, `[n]` for n envs, `[n, mount]`, or per cell `[x, y, z]`,
                `[n, x, y, z]` or `[n, mount, x, y, z]`.
            env_ids: int ids, bool mask or None.

        Raises:
            ConfigError: the knob is not given in the config, or the value is invalid.
        """
        if knob != "heat_generation":
            super().set(knob, value, env_ids)
            return
        self.ensure_current()
        if self._heat is None:
            fix = f"Give heat_generation=0.0 in the config, or use scene.reconfigure({self.name!r}, ...)."
            raise ConfigError.single(self.cfg.title, knob, value, "a knob that the config gives", fix)
        rows = env_rows(env_ids, self.num_envs, self.device)
        count = self.num_envs if rows is None else len(rows)
        watts = self._watts(value, count)
        if rows is None:
            self._heat.copy_(watts.expand_as(self._heat))
        else:
            self._heat[rows] = watts.expand(count, -1)

    def _watts(self, value: Any, count: int) -> Tensor:
        """Return the heat generated in each cell, `[1 or env, mount * cell]`, W."""
        try:
            given = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, np.float64)
        except (TypeError, ValueError):
            given = np.full(0, np.nan)
        grid, mounts = self.cfg.grid_size, self.mount.count
        shapes = {0: (), 1: (count,), 2: (count, mounts), 3: grid, 4: (count, *grid), 5: (count, mounts, *grid)}
        if shapes.get(given.ndim) != given.shape or not np.isfinite(given).all():
            expected = f"watts: a number or finite numbers of shape {(count,)}, {(count, mounts)}, {grid}, "
            expected += f"{(count, *grid)} or {(count, mounts, *grid)}"
            raise ConfigError.single(self.cfg.title, "heat_generation", value, expected)
        lead = given.shape[0] if given.ndim not in (0, 3) else 1
        if given.ndim < 3:
            share = np.stack([link.volume / link.volume.sum() for link in self._links])
            each = np.broadcast_to(given.reshape(lead, -1), (lead, mounts))
            cells = each[:, :, None] * share
        else:
            each = np.broadcast_to(given.reshape(lead, -1, self._cells), (lead, mounts, self._cells))
            cells = np.zeros(each.shape)
            for k, link in enumerate(self._links):  # heat given for an empty cell goes to the nearest one
                np.add.at(cells[:, k].T, link.nearest, each[:, k].T)
        return torch.from_numpy(cells.reshape(lead, -1)).to(self.device, torch.float32)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        own = [self._covered, self._swept, self._span, self._node, self._conductance]
        return super().nbytes + self._query.nbytes + sum(each.numel() * each.element_size() for each in own)

    # One sample -------------------------------------------------------------------------------------------------------

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Advance to the current sample: contacts, exchange, conduction along each axis, losses."""
        cfg, launch, mount, samples = self.cfg, self.compute_on.launch, self.mount, self._node.shape[2]
        self._query.place()
        poses = [*self._query.mount_pose(), *self._query.body_pose()]
        touching, span, theta = [self._node, self._conductance], self._span, self._theta
        inputs = [self._query.shapes, self._query.around, self._skin, self._table, *poses]
        launch(kernels.find_contacts, (mount.count, -(-samples // int(kernels.BLOCK))), inputs, touching)
        dt = wp.float64(self.clock.dt)
        inputs = [dt, self._cells, samples, self._skin.cell, self._skin.area, *touching, self._base]
        launch(kernels.exchange, (), [*inputs, self._per_capacity], [self._tick, span, self._covered, theta])
        stride = self._cells
        for count, faces in zip(cfg.grid_size, self._faces, strict=True):
            stride //= count
            if count > 1:
                inputs = [count, stride, self._cells, span, self._mass, faces]
                launch(kernels.conduct, (mount.count, self._cells // count), inputs, [self._swept, theta])
        inputs = [mount.count * self._cells, span, self._base, self._per_capacity, self._area, self._emissivity]
        inputs += [wp.float64(cfg.convection), wp.float64(cfg.ambient_temperature), self._covered, self._heat]
        inputs += [self._shown_start, self._shown]
        launch(kernels.apply_losses, (theta.shape[1],), inputs, [theta, self._columns(raw)])

    @recorded
    @used_if(lambda self: self.cfg.sensor_time_constant is not None)
    def apply_transform(self, data: Record, timeline: Timeline, *, is_measured: bool) -> None:
        """Update the sensing elements from the cells, on the measured branch (one launch)."""
        if is_measured:
            inputs = [wp.float64(self.cfg.sensor_time_constant), self._span, self._columns(timeline.at(1))]
            outputs = [self._rest, self._columns(data)]
            self.compute_on.launch(kernels.respond, (self._rest.shape[1],), inputs, outputs)

    def _columns(self, record: Record) -> Tensor:
        return record.temperature.view(self.num_envs, -1)


__all__ = ["LinkThermalCfg", "TemperatureGrid", "TemperatureGridCfg", "TemperatureGridData"]
