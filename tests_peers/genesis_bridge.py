"""Genesis' physics with sensorium's sensors: a `TensorEngine` of links, and sensors with Genesis' methods.

`install` replaces the built-in sensors of an imported Genesis and lets its `SensorManager` drive both kinds: sensors of
sensorium, and those that tests or other packages derive from Genesis' `Sensor`.
"""

from __future__ import annotations

import gc
import re
from collections import namedtuple
from dataclasses import fields, is_dataclass
from functools import wraps
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch

import sensorium as sn
from sensorium.compat import genesis as compat
from sensorium.engines.contacts import ContactList
from sensorium.geometry.shapes import Mesh, Shape
from sensorium.geometry.transforms import matrix_from_quat
from sensorium.sensors.touch.contact_depth_probe import ContactDepthProbeCfg
from sensorium.sensors.touch.kinematic_tactile import KinematicTactileSensorCfg

GEL = ("dilate_coefficient", "shear_coefficient", "twist_coefficient", "twist_max_delta", "shear_max_delta")
"""Options of version 0.4's model of the gel that version 1.4, and sensorium, replaced."""


# Options and sensors --------------------------------------------------------------------------------------------------


class Options:
    """Options of one of Genesis' sensors, kept until the scene is built."""

    compat: ClassVar[Any] = None
    more: ClassVar[dict[str, Any]] = {}
    ours: ClassVar[type[Sensor]]
    sensor: ClassVar[type[Sensor]]

    def __init__(self, **given: Any) -> None:
        object.__setattr__(self, "given", given)  # a model of Genesis restricts assignment
        if type(self).compat is not None:
            self.configs()

    def configs(self, name: str = "checked") -> list[Any]:
        """Return the configs of the sensors that give these readings."""
        return [type(self).compat(name=name, **self.more, **self.attached())]

    def attached(self) -> dict[str, Any]:
        """Return the options with the entity by its name; without an entity the sensor is on the world."""
        given = {key: as_numbers(value) for key, value in self.given.items()}
        entity = given.get("entity_idx", -1)
        given["entity_idx"] = None if entity in (None, -1) else f"e{entity}"
        return given


class Sensor:
    """Sensor with Genesis' methods and shapes that reads sensors of sensorium."""

    def __init__(self, side: Side, options: Options, number: int) -> None:
        self._side, self._options, self._idx = side, options, number
        self._names = [f"s{number}"]

    is_built = property(lambda self: self._side.scene is not None)

    def read(self, envs_idx: Any = None) -> Any:
        return self._reading(envs_idx, "data")

    def read_ground_truth(self, envs_idx: Any = None) -> Any:
        return self._reading(envs_idx, "ground_truth")

    def start_recording(self, rec_options: Any) -> Any:
        return self._side.sim._scene._recorder_manager.add_recorder(self.read, rec_options)

    def _reading(self, envs_idx: Any, branch: str) -> Any:
        found = self._convert(*(getattr(self._side.scene[name], branch) for name in self._names_of(branch)))
        return self._of_envs(found, envs_idx)

    def _names_of(self, branch: str) -> list[str]:
        return self._names

    def _of_envs(self, found: Any, envs_idx: Any) -> Any:
        if isinstance(found, dict):
            values = [self._of_envs(value, envs_idx) for value in found.values()]
            return namedtuple(type(self).__name__.replace("Sensor", "Data"), found)(*values)
        if envs_idx is not None:
            return found[[envs_idx] if isinstance(envs_idx, int) else envs_idx].clone()
        return (found[0] if self._side.sim.n_envs == 0 else found).clone()

    def _convert(self, data: Any) -> Any:
        """Return a tensor, or a mapping from names to tensors, with Genesis' names."""
        if parts := getattr(data, "parts", ()):
            return {part: getattr(data, part) for part in parts}
        return getattr(data, fields(data)[0].name) if is_dataclass(data) else data

    def _set(self, knob: str, value: Any, envs_idx: Any = None) -> None:
        value = as_numbers(value)
        for name in self._names:
            try:
                self._side.scene[name].set(knob, value, envs_idx)
            except sn.ConfigError:  # absent from the config
                self._side.scene.reconfigure(name, **{knob: value})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set_"):
            return lambda value, envs_idx=None: self._set(name.removeprefix("set_"), value, envs_idx)
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def set_pos_offset(self, pos_offset: Any, envs_idx: Any = None) -> None:
        self._move(pos=as_numbers(pos_offset))

    def set_quat_offset(self, quat_offset: Any, envs_idx: Any = None) -> None:
        self._move(rot=as_numbers(quat_offset))

    def _move(self, **changes: Any) -> None:
        def move() -> None:
            scene = self._side.scene
            for name in self._names:
                scene.reconfigure(name, offset=scene[name].cfg.offset.replace(**changes))

        self._side.pending.append(move)  # as in Genesis, readings follow with the next sample


class IMU(Sensor):
    """IMU, whose knobs are nine numbers: accelerometer, gyroscope, magnetometer."""

    def _set(self, knob: str, value: Any, envs_idx: Any = None) -> None:
        if knob.endswith("_cross_axis_coupling"):
            stage, name, scene = compat.IMU(**{knob: as_numbers(value)}).stages, self._names[0], self._side.scene
            kept = [each for each in scene[name].cfg.stages if each.fields != field_of(knob)]
            self._side.pending.append(lambda: scene.reconfigure(name, stages=(*kept, *stage)))
        elif knob in ("jitter", "delay"):
            super()._set(knob, value, envs_idx)
        else:
            nine = np.broadcast_to(as_numbers(value), 9).tolist()
            for number, prefix in enumerate(("acc", "gyro", "mag")):
                super()._set(f"{prefix}_{knob}", tuple(nine[3 * number : 3 * number + 3]), envs_idx)


class Switch(Sensor):
    """Contact switch, whose reading has an axis of length 1."""

    def _convert(self, data: Any) -> Any:
        return super()._convert(data).unsqueeze(-1)


class Force(Sensor):
    """Contact force. The truth of version 0.4 is without the device's range, so it is read from a second sensor."""

    def _names_of(self, branch: str) -> list[str]:
        return [f"{self._names[0]}_unlimited"] if branch == "ground_truth" and is_old() else self._names


class ForceOptions(Options):
    """Options of a contact force."""

    def configs(self, name: str = "checked") -> list[Any]:
        given = self.attached()
        free = {key: given[key] for key in ("entity_idx", "link_idx_local") if key in given}
        truth = [compat.ContactForce(name=f"{name}_unlimited", **free)] if is_old() else []
        return [compat.ContactForce(name=name, **given), *truth]


class DepthCamera(Sensor):
    def read_image(self) -> torch.Tensor:
        return self.read().distances


class Proximity(Sensor):
    """Probes of the nearest surface; the nearest points are an attribute of the sensor."""

    @property
    def nearest_points(self) -> Any:
        return self._of_envs(self._side.scene[self._names[0]].ground_truth.nearest_points, None)


class Placed(Sensor):
    """Sensor with probes, whose grids version 0.4 reads as a list."""

    def _convert(self, data: Any) -> Any:
        found = super()._convert(data)
        return found.flatten(1, -2) if isinstance(found, torch.Tensor) and is_old() else found

    @property
    def probe_local_pos(self) -> torch.Tensor:
        return torch.tensor(self._options.given["probe_local_pos"]).reshape(-1, 3)

    @property
    def _is_grid(self) -> bool:
        return np.ndim(self._options.given["probe_local_pos"]) == 3


class ContactProbe(Placed):
    """Depth and force of the probes of version 0.4, on the link and against the normal, while the link has contacts."""

    def __init__(self, side: Side, options: Options, number: int) -> None:
        super().__init__(side, options, number)
        self._names += [f"s{number}_force", f"s{number}_contact"]

    def _convert(self, depth: Any, touch: Any, is_touched: Any) -> Any:
        on = is_touched[:, None].float()
        return {"penetration": on * depth, "force": -on[..., None] * touch.force}


class ContactProbeOptions(Options):
    """Options of version 0.4's probes, which are three sensors."""

    def configs(self, name: str = "checked") -> list[Any]:
        given = compat._attached("KinematicContactProbe", self.attached() | {"name": name, "geometry": "collision"})
        stiffness, normal = given.pop("stiffness", 1000.0), given.pop("probe_local_normal", (0.0, 0.0, 1.0))
        viscous = dict.fromkeys(("normal_damping", "shear_scalar", "twist_scalar"), 0.0)
        given.setdefault("probe_radius", 0.005)
        force = given | viscous | {"normal_stiffness": stiffness, "probe_local_normal": normal}
        for knob in {"noise", "bias", "random_walk", "resolution"} & force.keys():
            force[knob] = {"force": force[knob]}
        force["name"] = f"{name}_force"
        on = compat.Contact(name=f"{name}_contact", body=given["body"])
        return [ContactDepthProbeCfg(**given), KinematicTactileSensorCfg(**force), on]


class ElastomerOptions(Options):
    """Options of a gel; of version 0.4's model only the dilation, since sensorium follows version 1.4."""

    compat = compat.ElastomerDisplacement
    more: ClassVar[dict[str, Any]] = {"geometry": "collision"}

    def attached(self) -> dict[str, Any]:
        given = super().attached()
        if any(name in given for name in GEL) or "dilate_max_delta" in given or "track_link_idx" not in given:
            given["lambda_d"] = given.get("dilate_coefficient", 1e-2)
            given["dilate_scale"] = float(given.pop("dilate_max_delta", 0.1) > 0.0)
            given["shear_scale"] = 0.0
            given = {name: value for name, value in given.items() if name not in GEL}
        return given


class Temperature(Sensor):
    """Temperatures of a link, one mount of the sensor that all links with the same grid share."""

    mount = 0

    def _convert(self, data: Any) -> Any:
        return data[:, self.mount]

    @property
    def link_temperatures(self) -> torch.Tensor:
        """Temperature of each link, a tensor that later steps update."""
        return self._side.link_temperatures[0] if self._side.sim.n_envs == 0 else self._side.link_temperatures


class TemperatureOptions(Options):
    """Options of temperature grids; materials and surroundings are those of all grids of the scene."""

    shared: ClassVar[tuple[str, ...]] = ("ambient_temperature", "convection_coefficient")
    own: ClassVar[tuple[str, ...]] = ("heat_generation", "sensor_time_constant", "noise", "bias", "resolution", "delay")

    def configs(self, name: str = "checked") -> list[Any]:
        """Return no config: `Side` makes one for all links with the same grid."""
        return []


class Camera(Sensor):
    """Colour camera with the handles of Genesis' renderer that its tests use: the pose of each camera's node."""

    def _convert(self, data: Any) -> Any:
        return {"rgb": data.rgb}

    @property
    def _shared_metadata(self) -> Any:
        return self._side.renderer

    def _of_envs(self, found: Any, envs_idx: Any) -> Any:
        if isinstance(envs_idx, int) and not isinstance(found, dict):
            return found[envs_idx].clone()
        return super()._of_envs(found, envs_idx)


class CameraOptions(Options):
    """Options of a colour camera; the lights of each camera are omitted, since those of a scene light all cameras."""

    compat = compat.RasterizerCameraOptions

    def attached(self) -> dict[str, Any]:
        return {name: value for name, value in super().attached().items() if name != "lights"}


def is_old() -> bool:
    """Whether the imported Genesis is one before version 1."""
    import genesis as gs

    return int(gs.__version__.partition(".")[0]) < 1


def as_numbers(value: Any) -> Any:
    """Return a tensor or an array as tuples."""
    if isinstance(value, torch.Tensor | np.ndarray):
        value = value.tolist()
    return tuple(map(as_numbers, value)) if isinstance(value, list | tuple) else value


def field_of(knob: str) -> tuple[str, ...]:
    """Return the field of an IMU that a knob with a prefix acts on."""
    return (compat.IMU.prefixed_knobs[knob.partition("_")[0]][0],)


# Physics --------------------------------------------------------------------------------------------------------------


class Renderer:
    """What Genesis' camera tests reach through `_shared_metadata`: nodes, and poses with the axes of OpenGL."""

    def __init__(self, side: Side) -> None:
        self.renderer = self.context = self._scene = self  # one object for the handles of all three
        self._renderer = side.scene
        self._camera_nodes = {sensor._idx: sensor._names[0] for sensor in side.sensors}

    def get_pose(self, node: str) -> np.ndarray:
        """Return the poses of a camera `[env, 4, 4]`."""
        data = self._renderer[node].data
        pose = torch.eye(4).repeat(len(data.pos_w), 1, 1)
        pose[:, :3, :3] = matrix_from_quat(data.quat_w_opengl)
        pose[:, :3, 3] = data.pos_w
        return pose.numpy()


class Side:
    """Sensorium's side of one Genesis scene: engine, scene and sensors."""

    def __init__(self, sim: Any) -> None:
        self.sim, self.sensors, self.scene, self.renderer = sim, list[Any](), None, None
        self.pending = list[Any]()

    def add(self, options: Options) -> Sensor:
        self.sensors.append(options.sensor(self, options, len(self.sensors)))
        return self.sensors[-1]

    def build(self) -> None:
        """Build the engine from Genesis' links and geoms, and the scene from the sensors added so far."""
        solver = self.solver = self.sim.rigid_solver
        self.links = [f"e{link.entity.idx}/{link.name}_{link.idx}" for link in solver.links]
        parents = [link.parent_idx for link in solver.links]
        self._make_contacts()
        self.engine = sn.TensorEngine(
            num_envs=self.sim._B, dt=self.sim.dt, bodies=self.links, parents=parents, shapes=self._shapes(),
            provides=("pose", "velocity", "acceleration", "gravity"), contact_list=self.contacts,
        )  # fmt: skip
        self._copy()
        cfgs = [cfg for sensor in self.sensors for cfg in sensor._options.configs(sensor._names[0])]
        self.scene = sn.Scene(self.engine, [*cfgs, *self._temperatures()], seed=0)
        self.renderer = Renderer(self)
        self._show_temperatures()

    def step(self) -> None:
        self._copy()
        while self.pending:
            self.pending.pop(0)()
        self.scene.update()
        self._show_temperatures()

    def reset(self, envs_idx: Any) -> None:
        self._copy()
        self.scene.reset(envs_idx)
        self._show_temperatures()

    def destroy(self) -> None:
        if self.renderer is not None:
            self.renderer._renderer = None
        self.scene = self.engine = self.renderer = None
        gc.collect()

    def _make_contacts(self) -> None:
        from genesis.utils.misc import qd_to_torch

        state = None if getattr(self.solver, "collider", None) is None else self.solver.collider._collider_state
        places = 1 if state is None else max(1, state.contact_data.link_a.shape[0])
        envs = self.sim._B
        self._count = None if state is None else lambda: qd_to_torch(state.n_contacts)
        vectors = [torch.zeros(envs * places, 3) for _ in range(3)]
        sides = torch.zeros(envs * places, 2, dtype=torch.int32)
        count, dist = torch.zeros(envs, dtype=torch.int32), torch.zeros(envs * places)
        self.contacts = ContactList(count, sides, *vectors, dist=dist, kind="body")

    def _copy(self) -> None:
        solver, engine = self.solver, self.engine
        if not self.links:
            return
        engine.body_pos_w, engine.body_quat = solver.get_links_pos(), solver.get_links_quat()
        engine.body_lin_vel_w, engine.body_ang_vel_w = solver.get_links_vel(), solver.get_links_ang()
        engine.body_lin_acc_w, engine.body_ang_acc_w = solver.get_links_acc(), solver.get_links_acc_ang()
        engine.gravity_w = solver.get_gravity()
        if self._count is not None:
            found, ours, envs = solver.collider.get_contacts(True, True, True), self.contacts, self.sim._B
            many = found["link_a"].shape[1]
            ours.count.copy_(self._count().reshape(envs))
            for side, name in enumerate(("link_a", "link_b")):
                ours.sides.view(envs, -1, 2)[:, :many, side] = found[name].to(torch.int32)
            for array, name in ((ours.point, "position"), (ours.normal, "normal"), (ours.force, "force")):
                array.view(envs, -1, 3)[:, :many] = found[name]
            ours.dist.view(envs, -1)[:, :many] = -found["penetration"]
        engine.refresh()

    def _shapes(self) -> list[Shape]:
        """Return the collision geoms, whose spheres are meshes in Genesis, and the visual geoms."""
        shapes = []
        for geom in self.solver.geoms:
            kind, vertices = geom.type.name.lower(), np.asarray(geom.init_verts)
            common = {"body": geom.link.idx, "pos": tuple(geom.init_pos), "quat": tuple(geom.init_quat)}
            common |= {"name": f"g{geom.idx}", "is_visual": False, "is_visible": False, "group": 3}
            if kind == "plane" and np.allclose(geom.data[:3], (0.0, 0.0, 1.0)):
                shapes.append(Shape("plane", **common))
            elif kind == "box":
                shapes.append(Shape("box", size=tuple(np.ptp(vertices, axis=0) / 2), **common))
            else:
                mesh = Mesh(vertices, np.asarray(geom.init_faces), drop_degenerate=True)
                shapes.append(Shape("mesh", mesh=mesh, **common))
        for vgeom in self.solver.vgeoms:
            mesh = Mesh(vgeom.init_vverts, vgeom.init_vfaces, drop_degenerate=True)
            color = getattr(vgeom.surface, "color", None) or (0.5, 0.5, 0.5)
            shapes.append(
                Shape("mesh", f"v{vgeom.idx}", body=vgeom.link.idx, pos=tuple(vgeom.init_pos),
                      quat=tuple(vgeom.init_quat), mesh=mesh, is_collision=False, group=2,
                      rgba=(*color, 1.0)[:4])
            )  # fmt: skip
        return shapes

    # Temperatures ----------------------------------------------------------------------------------------------------

    def _temperatures(self) -> list[Any]:
        """Return one config for all temperature grids of the same size, with the materials of all."""
        grids = [sensor for sensor in self.sensors if isinstance(sensor, Temperature)]
        options = [sensor._options.given for sensor in grids]
        materials = {row: each for given in options for row, each in given.get("properties_dict", {}).items()}
        shared = {
            key: given[key] for given in options for key in TemperatureOptions.shared if given.get(key) is not None
        }
        shared["simulate_all_link_temperatures"] = any(
            given.get("simulate_all_link_temperatures", False) for given in options
        )
        rows = [self._link_of(given) for given in options]
        grids_fixed = [self.solver.links[row].is_fixed for row in rows]  # Genesis has no contacts of two fixed links
        self._base = torch.full((len(self.links),), 21.0)
        if -1 in materials:
            shared["default_properties"] = materials[-1]
            self._base[:] = materials[-1].base_temperature
        named = {self.links[row]: each for row, each in materials.items() if row >= 0}
        for row, each in materials.items():
            self._base[max(row, 0)] = each.base_temperature if row >= 0 else self._base[0]
        shared["properties"] = {re.escape(name): each for name, each in named.items()}
        touched = {self.links[link.idx] for link in self.solver.links if not link.is_fixed or not any(grids_fixed)}
        if -1 not in materials and named:
            touched &= named.keys()
        if touched:
            shared["targets"] = tuple(map(re.escape, sorted(touched)))
        self.link_temperatures = self._base.repeat(self.sim._B, 1)
        cfgs, self._cells = [], []
        for size in {given.get("grid_size", (1, 1, 1)) for given in options}:
            alike = [sensor for sensor in grids if sensor._options.given.get("grid_size", (1, 1, 1)) == size]
            own = {key: value for key, value in alike[0]._options.given.items() if key in TemperatureOptions.own}
            rows = []
            for sensor in alike:
                name, row = f"grid_{len(cfgs)}", self._link_of(sensor._options.given)
                rows += [] if row in rows else [row]
                sensor._names, sensor.mount = [name], rows.index(row)
            bodies = tuple(re.escape(self.links[row]) for row in rows)
            cfgs.append(compat.TemperatureGrid(name=name, bodies=bodies, grid_size=size, **own, **shared))
            self._cells.append((name, rows))
        return cfgs

    def _link_of(self, given: dict[str, Any]) -> int:
        return int(self.sim.scene.entities[given["entity_idx"]].link_start + given.get("link_idx_local", 0))

    def _show_temperatures(self) -> None:
        for name, rows in self._cells:
            self.link_temperatures[:, rows] = self.scene[name].ground_truth.mean(dim=(-3, -2, -1))


# Installation ---------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[type[Sensor], Any, dict[str, Any]]] = {
    "IMU": (IMU, compat.IMU, {}),
    "Contact": (Switch, compat.Contact, {}),
    "ContactForce": (Force, ForceOptions, {}),
    "Raycaster": (Sensor, compat.Raycaster, {}),
    "DepthCamera": (DepthCamera, compat.DepthCamera, {}),
    "Proximity": (Proximity, compat.Proximity, {"geometry": "collision"}),
    "SurfaceDistanceProbe": (Proximity, compat.SurfaceDistanceProbe, {"geometry": "collision"}),
    "KinematicContactProbe": (ContactProbe, ContactProbeOptions, {}),
    "KinematicTaxel": (Placed, compat.KinematicTaxel, {"geometry": "collision"}),
    "ElastomerDisplacement": (Placed, ElastomerOptions, {}),
    "ElastomerTaxel": (Placed, ElastomerOptions, {}),
    "TemperatureGrid": (Temperature, TemperatureOptions, {}),
    "RasterizerCameraOptions": (Camera, CameraOptions, {}),
}
"""Genesis' options: our sensor, our options, and options that the bridge adds."""
OTHERS = ("GridPattern", "SphericalPattern", "DepthCameraPattern", "TemperatureProperties")


def install() -> None:
    """Replace the options of an imported Genesis, and its sensors once `genesis.init` lets them be imported."""
    import genesis as gs

    replaced = {}
    modules = [gs.sensors, *(each for each in vars(gs.sensors).values() if isinstance(each, ModuleType))]
    for name, (sensor, ours, more) in KINDS.items():
        if (old := getattr(gs.sensors, name, None)) is None:
            continue
        is_ours = issubclass(ours, Options)
        # a subclass, since tests select options by their bases; `Options` never calls the constructor of Genesis
        parent = gs.sensors.Raycaster if name == "DepthCamera" else old
        bases = (parent,) if issubclass(parent, Options) else (ours if is_ours else Options, parent)
        options = type(name, bases, {"__module__": old.__module__})
        options.ours = sensor
        if not is_ours:
            options.compat, options.more = ours, more
        replaced[old] = options
        put(modules, old, options)
    for name in OTHERS:
        if (old := getattr(gs.sensors, name, None)) is not None:
            put(modules, old, getattr(compat, name))
    init, first = gs.init, [True]

    @wraps(init)
    def init_and_replace(*args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)
        if first:
            first.clear()
            replace_sensors(replaced)

    gs.init = init_and_replace


def put(modules: list[ModuleType], old: Any, new: Any) -> None:
    """Replace an object under all names that it has in some modules."""
    for module in modules:
        for name, value in list(vars(module).items()):
            if value is old:
                setattr(module, name, new)


def replace_sensors(replaced: dict[Any, Any]) -> None:
    """Replace the sensors of replaced options, and drive ours from Genesis' `SensorManager`."""
    from genesis.engine import sensors
    from genesis.engine.sensors.sensor_manager import SensorManager

    modules = [sensors, *(each for each in vars(sensors).values() if isinstance(each, ModuleType))]
    for old, options in replaced.items():
        table = SensorManager.SENSOR_TYPES_MAP
        theirs = table.pop(options if options in table else old)
        options.sensor = type(theirs.__name__, (options.ours,), {})
        table[options] = options.sensor
        put(modules, theirs, options.sensor)
    drive(SensorManager)


def drive(manager: Any) -> None:
    """Let Genesis' `SensorManager` create, build, step, reset and destroy our sensors beside its own."""
    create = manager.create_sensor

    def create_sensor(self: Any, options: Any) -> Any:
        if not isinstance(options, Options):
            return create(self, options)
        if not hasattr(self, "_sensorium"):
            self._sensorium = Side(self._sim)
        return self._sensorium.add(options)

    def also(name: str) -> Any:
        theirs = getattr(manager, name)

        def both(self: Any, *args: Any, **kwargs: Any) -> None:
            theirs(self, *args, **kwargs)
            side = getattr(self, "_sensorium", None)
            if side is not None and (name in ("build", "destroy") or side.scene is not None):
                getattr(side, name)(*(kwargs.values() or args))

        return both

    manager.create_sensor = create_sensor
    for name in ("build", "step", "reset", "destroy"):
        setattr(manager, name, also(name))
