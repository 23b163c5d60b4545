"""Sensorium's sensors inside an mjlab environment: added to its scene's config, stepped, reset and read with it.

    add_sensors(cfg.scene, [sn.ImuCfg(name="imu", site="robot/imu", noise={"ang_vel_b": 0.01})], seed=1)
    terms["gyro"] = ObservationTermCfg(func=reading, params={"sensor_name": "imu", "field": "ang_vel_b"})

mjlab calls a sensor's `update` after each physics step, and `reset` before its reset events write the initial state of
an episode. The sensors start the episode in the `write_data_to_sim()` that follows, when that state is complete.

Importing this module requires mjlab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from sensorium.cameras.lenses import PinholeLensCfg
from sensorium.engines.mujoco_warp.engine import MujocoWarpEngine
from sensorium.errors import (
    ConfigError,
    MissingDependencyError,
    ScheduleError,
    SelectionError,
    UnknownNameError,
    listed,
    shown,
)
from sensorium.geometry.transforms import matrix_from_quat
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.readings import DebugShape
from sensorium.scene import Scene
from sensorium.scene.table import prepare
from sensorium.sensors.core.base import Sensor

try:
    import mjlab.sensor
    from mjlab.sensor import Sensor as _MjlabSensor
    from mjlab.sensor import SensorCfg as _MjlabSensorCfg
except ImportError as error:
    raise MissingDependencyError(
        f"sensorium.compat.mjlab needs mjlab for this, which cannot be imported here ({error}): pip install mjlab"
    ) from error

if TYPE_CHECKING:
    import mujoco
    from mjlab.viewer.debug_visualizer import DebugVisualizer


@dataclass(kw_only=True)
class SensoriumCfg(_MjlabSensorCfg):  # type: ignore[misc]  # mjlab is Any where it is not installed
    """Several sensorium sensors as one sensor of an mjlab scene; `add_sensors` creates and adds it.

    It can also be an entry of `SceneCfg.sensors`. mjlab then also wraps the model elements that the sensors need, which
    its scene shows as `sensorium/...`.

    Raises:
        ConfigError: entries that are not sensor configs, no sensors, or a `decimation` below 1.
    """

    name: str = "sensorium"
    """Name in mjlab's scene."""
    sensors: Sequence[SensorCfg[Any]] = ()
    """Configs of the sensors; element names have their entity's prefix: ``site="robot/imu"``."""
    seed: int = 0
    """Seed of all random numbers of these sensors; mjlab's own seed does not affect them."""
    first_env: int | None = None
    """Global index of env 0, if this process simulates a slice of a larger run; see `Scene`."""
    fresh: bool = False
    """Whether the state is recomputed after each tick at which a sensor samples. By default, samples use the state that
    the physics step left, which is one tick old, as `capture_time` says."""
    decimation: int = 1
    """Ticks per control step, the environment's `decimation`: at its start `is_new` and latches are cleared."""
    semantics: Mapping[str, str | Sequence[str]] | None = None
    """Labels of shapes, see `Scene`."""
    prepares: bool = field(default=True, repr=False)
    """Whether the sensor prepares the model when mjlab lets it edit the spec; `add_sensors` prepares it later."""

    def __post_init__(self) -> None:
        config = f"SensoriumCfg({self.name!r})"
        if isinstance(self.sensors, SensorCfg):
            raise ConfigError.single(config, "sensors", self.sensors, "a sequence of configs", "Write sensors=(cfg,).")
        self.sensors = tuple(self.sensors)
        for cfg in self.sensors:
            if not isinstance(cfg, SensorCfg):
                fix = "Keep sensors of mjlab in SceneCfg.sensors."
                raise ConfigError.single(config, "sensors", cfg, "configs of sensorium such as sn.ImuCfg(...)", fix)
        if not self.sensors:
            raise ConfigError.single(config, "sensors", self.sensors, "at least one config")
        if isinstance(self.decimation, bool) or not isinstance(self.decimation, int) or self.decimation < 1:
            raise ConfigError.single(config, "decimation", self.decimation, "an integer of at least 1")

    def build(self) -> SensoriumSensor:
        """Return the sensor of mjlab's scene."""
        return SensoriumSensor(self)


class SensoriumSensor(_MjlabSensor):  # type: ignore[misc]
    """Sensor of an mjlab scene that holds a sensorium `Scene`, which is prepared, stepped and reset with it.

    `data` maps the name of each sensor to its measured data: live views, valid until mjlab's next `update`.
    """

    def __init__(self, cfg: SensoriumCfg) -> None:
        super().__init__()
        self.cfg = cfg
        self._scene: Scene | None = None

    def edit_spec(self, scene_spec: mujoco.MjSpec, entities: Mapping[str, Any]) -> None:
        """Add the model elements that the sensors need to the scene's MjSpec."""
        if self.cfg.prepares:
            prepare(scene_spec, self.cfg.sensors)
        if entities:
            self._follow(list(entities.values())[-1])

    def initialize(self, mj_model: mujoco.MjModel, model: Any, data: Any, device: str) -> None:
        """Build the sensorium scene on the compiled model and the simulation's live state.

        Raises:
            SensoriumError: any error of `Scene` for these configs.
        """
        engine = MujocoWarpEngine.from_mjw(mj_model, _struct(model), _struct(data), fresh=self.cfg.fresh)
        cfg = self.cfg
        self._scene = Scene(
            engine, cfg.sensors, seed=cfg.seed, first_env=cfg.first_env, semantics=cfg.semantics, discover=False
        )
        self.ticks = 0
        self._waits = False
        self._waiting = torch.zeros(engine.num_envs, dtype=torch.bool, device=device)

    @property
    def scene(self) -> Scene:
        """The sensorium scene.

        Raises:
            ScheduleError: mjlab has not initialized its scene yet.
        """
        if self._scene is None:
            raise ScheduleError(
                f"sensor {self.cfg.name!r} has no simulation yet: call scene.initialize(mj_model, model, data) first, "
                "as ManagerBasedRlEnv does."
            )
        return self._scene

    def update(self, dt: float) -> None:
        """Advance by one tick of the simulation, and sample due sensors.

        Raises:
            ScheduleError: `dt` is not the model's time step.
        """
        super().update(dt)
        scene = self.scene
        if abs(dt - scene.engine.dt) > 1e-6 * scene.engine.dt:
            raise ScheduleError(
                f"scene.update(dt={dt:g}) of mjlab, but the model's time step is {scene.engine.dt:g} s: call it after "
                "each sim.step(), with the time of that one step."
            )
        if self.ticks % self.cfg.decimation == 0:
            scene.begin_control_step()
        self.ticks += 1
        scene.update()
        if self.ticks % self.cfg.decimation == 0:
            self._settle()
        self._begin_episodes()

    def reset(self, env_ids: torch.Tensor | slice | None = None) -> None:
        """Mark the end of episodes. The next ones start once their state is written, see the module."""
        super().reset(env_ids)
        self._waiting[slice(None) if env_ids is None else env_ids] = True
        self._waits = True

    def debug_vis(self, visualizer: DebugVisualizer) -> None:
        """Draw the shapes of sensors with `debug_vis=True` or `set_debug_vis`, in the environments that mjlab shows."""
        scene = self.scene
        for sensor in scene.sensors.values():
            for shape in sensor.drawings() if sensor.debug_vis else ():
                for env in visualizer.get_env_indices(scene.num_envs):
                    _draw(visualizer, shape.only(env, scene.num_envs))

    def _follow(self, entity: Any) -> None:
        """Start the requested episodes whenever mjlab has written the last entity: a fixed call after reset events.

        mjlab calls none of a sensor's own methods between these events and the next step.
        """
        write = entity.write_data_to_sim

        def write_and_begin() -> None:
            write()
            self._begin_episodes()

        entity.write_data_to_sim = write_and_begin

    def _begin_episodes(self) -> None:
        if self._waits:
            self._waits = False
            self.scene.reset(self._waiting)
            self._waiting.zero_()
            self._settle()

    def _settle(self) -> None:
        """With `fresh`, compute on-read samples now, because mjlab's terms may write the state before they are read."""
        for sensor in self.scene.sensors_in_use.values() if self.cfg.fresh else ():
            if sensor.buffers.plan.is_lazy:
                sensor.ensure_current()

    def _compute_data(self) -> Mapping[str, Any]:
        return LiveData(self)


class SceneSensor(_MjlabSensor):  # type: ignore[misc]
    """Sensor of an mjlab scene that one config of this package describes.

    All such sensors of a scene are in one sensorium scene, which the first of them advances. Attributes that mjlab does
    not define are those of the sensorium sensor, such as `set` and `primary_names`.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg: SensorCfg[Any] = cfg
        self._leads = False

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Mjlab's class for such a config, which its terms check; a camera has no place in mjlab's viewer."""
        name = type(self.cfg).__name__.removesuffix("Cfg")
        return getattr(mjlab.sensor, name) if name != "CameraSensor" and hasattr(mjlab.sensor, name) else SceneSensor

    @property
    def _sensor(self) -> Sensor[Any, Any]:
        return self._shared.scene[self.cfg.label]

    def edit_spec(self, scene_spec: mujoco.MjSpec, entities: Mapping[str, Any]) -> None:
        """Join the other sensors of the scene, and add the required model elements to its MjSpec."""
        shared = _SHARED.get(id(scene_spec))
        if shared is None:
            self._leads = True
            shared = _SHARED[id(scene_spec)] = SensoriumSensor(SensoriumCfg(sensors=[self.cfg]))
            shared.spec = scene_spec  # kept, since its id is the key
            shared.edit_spec(scene_spec, entities)
        else:
            shared.cfg.sensors = (*shared.cfg.sensors, self.cfg)
            prepare(scene_spec, [self.cfg])
        self._shared = shared
        camera, lens = (getattr(self.cfg, name, None) for name in ("camera", "lens"))
        if isinstance(lens, PinholeLensCfg) and lens.fovy is not None and isinstance(camera, str):
            scene_spec.camera(camera).fovy = lens.fovy  # as mjlab does, for its viewers

    def initialize(self, mj_model: mujoco.MjModel, model: Any, data: Any, device: str) -> None:
        """Build the sensorium scene with all its sensors; see `SensoriumSensor.initialize`."""
        if self._leads:
            self._shared.initialize(mj_model, model, data, device)

    def update(self, dt: float) -> None:
        """Advance the sensorium scene by one tick; see `SensoriumSensor.update`."""
        super().update(dt)
        if self._leads:
            self._shared.update(dt)

    def reset(self, env_ids: torch.Tensor | slice | None = None) -> None:
        """Mark the end of episodes; see `SensoriumSensor.reset`."""
        super().reset(env_ids)
        if self._leads:
            self._shared.reset(env_ids)

    def debug_vis(self, visualizer: DebugVisualizer) -> None:
        """Draw the shapes of all sensors; see `SensoriumSensor.debug_vis`."""
        if self._leads:
            self._shared.debug_vis(visualizer)

    @property
    def data(self) -> Any:
        """Measured data, as of the last `update`; before the first one, of the present state."""
        if self._shared.ticks == 0:
            self._shared.scene.engine.forward()
            self._sensor.reset()
            self._invalidate_cache()
        return super().data

    def _compute_data(self) -> Any:
        """Return the measured data in a new object, as mjlab does. Its tensors are live views, as elsewhere."""
        sensor = self._sensor
        data = sensor.data
        if sensor.single or getattr(self.cfg, "copy_data", False):
            return data
        return sensor.packaged(sensor.own_tensors(is_measured=True))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._sensor, name)


_SHARED: WeakValueDictionary[int, SensoriumSensor] = WeakValueDictionary()
"""Sensorium scene of the `SceneSensor` of each mjlab scene, by the id of its MjSpec."""


class LiveData(Mapping[str, Any]):
    """Mapping of sensor name -> present measured data; see `SensoriumSensor`."""

    def __init__(self, sensor: SensoriumSensor) -> None:
        self._sensor = sensor

    def __getitem__(self, name: str) -> Any:
        return self._sensor.scene[name].data

    def __iter__(self) -> Iterator[str]:
        return iter(self._sensor.scene)

    def __len__(self) -> int:
        return len(self._sensor.scene)

    def __repr__(self) -> str:
        return f"LiveData({listed(self)})"


def _draw(visualizer: DebugVisualizer, shape: DebugShape) -> None:
    """Draw the shapes of one environment; without a size, at the scale that mjlab uses for the model."""
    mean, items = visualizer.meansize, shape.items
    finite = np.isfinite(items).all(axis=tuple(range(1, items.ndim)))
    for item, rgb in zip(items[finite], shape.colors_of_env(0, 1)[finite].tolist(), strict=True):
        color = (*rgb, 1.0)
        if shape.kind == "points":
            visualizer.add_sphere(item, 0.5 * shape.size if shape.size else 0.2 * mean, color)
        elif shape.kind == "arrows":
            visualizer.add_arrow(item[0], item[1], color, width=shape.size or 0.1 * mean)
        elif shape.kind == "lines":
            visualizer.add_cylinder(item[0], item[1], 0.5 * shape.size if shape.size else 0.05 * mean, color)
        else:
            turn, size = matrix_from_quat(torch.from_numpy(item[3:])).numpy(), shape.size or mean
            visualizer.add_frame(item[:3], turn, scale=size, axis_radius=0.05 * size)


def _struct(bridge: Any) -> Any:
    """Return the struct of mujoco_warp behind mjlab's bridge, whose arrays look like tensors; a struct is unchanged."""
    return getattr(bridge, "struct", bridge)


def add_sensors(scene_cfg: Any, sensors: Sequence[SensorCfg[Any]], **options: Any) -> SensoriumCfg:
    """Add sensors to the config of an mjlab scene, before the environment is built.

    The required model elements are added after mjlab has searched the model for sensors, so that its scene does not
    show them. They are also added after the config's own `spec_fn`, so that sensors can be mounted on its elements.

    Args:
        scene_cfg: mjlab's `SceneCfg`; `sensors` and `spec_fn` are replaced in it.
        sensors: configs of the sensors; element names have their entity's prefix: ``site="robot/imu"``.
        options: see `SensoriumCfg`: `name`, `seed`, `first_env`, `fresh`, `decimation`, `semantics`.

    Returns:
        The added config.

    Raises:
        ConfigError: as for `SensoriumCfg`, a name of another sensor of the scene, or groups with different `fresh`.
    """
    cfg = SensoriumCfg(sensors=sensors, prepares=False, **options)
    if cfg.name in [other.prefixed_name for other in scene_cfg.sensors]:
        fix = "Give each group of sensors a name: add_sensors(..., name='imus')."
        raise ConfigError.single("add_sensors", "name", cfg.name, "a name unused by other sensors of the scene", fix)
    if any(isinstance(other, SensoriumCfg) and other.fresh != cfg.fresh for other in scene_cfg.sensors):
        fix = "Use the same value, since the groups share the simulation's arrays."
        raise ConfigError.single("add_sensors", "fresh", cfg.fresh, "the same for all groups of one scene", fix)
    scene_cfg.sensors = (*scene_cfg.sensors, cfg)
    scene_cfg.spec_fn = _Preparation(scene_cfg.spec_fn, cfg.sensors)
    return cfg


@dataclass(frozen=True)
class _Preparation:
    """`spec_fn` of mjlab's scene that prepares the model for sensors, after another `spec_fn`."""

    before: Callable[[Any], None] | None
    sensors: Sequence[SensorCfg[Any]]

    def __call__(self, spec: mujoco.MjSpec) -> None:
        if self.before is not None:
            self.before(spec)
        prepare(spec, self.sensors)


def scene_of(env: Any, name: str | None = None) -> Scene:
    """Return the sensorium scene in an mjlab environment, with its sensors, `set`, `publish` and other methods.

    Args:
        env: the environment, a wrapper of it, or a scene of mjlab.
        name: name of the `SensoriumCfg`; None if there is only one.

    Raises:
        UnknownNameError: no such `SensoriumCfg`.
        SelectionError: there are several, and no name was given.
    """
    groups = _groups(env)
    if name is None and len(groups) == 1:
        return next(iter(groups.values())).scene
    if name is None and groups:
        raise SelectionError.single("scene_of", "name", name, f"one of {listed(groups)}")
    if name not in groups:
        fix = "" if groups else "Add sensors to the config of the scene first: add_sensors(cfg.scene, [...])."
        raise UnknownNameError("group of sensors", name or "sensorium", groups, fix)
    return groups[name].scene


def _groups(env: Any) -> dict[str, SensoriumSensor]:
    env = getattr(env, "unwrapped", env)
    sensors = getattr(env, "scene", env).sensors
    return {name: sensor for name, sensor in sensors.items() if isinstance(sensor, SensoriumSensor)}


def reading(
    env: Any, sensor_name: str, field: str | None = None, truth: bool = False, group: str | None = None
) -> torch.Tensor:
    """Return a field of a sensor for a policy: an observation term of mjlab.

    Args:
        env: the environment.
        sensor_name: name of the sensorium sensor.
        field: field of its data; None if there is only one.
        truth: return the ground truth instead of the measured value.
        group: name of the `SensoriumCfg` with the sensor; None if the sensor's name is unique.

    Returns:
        A new tensor, float32 `[env, D]`: all other axes flattened, flags as 0 and 1.

    Raises:
        UnknownNameError: no such sensor, field or group.
        SelectionError: sensors of several groups have this name.
    """
    sensor = _holding(env, sensor_name, group)[sensor_name]
    fields = [spec.name for spec in sensor.specs]
    if field is None and len(fields) == 1:
        field = fields[0]
    if field not in fields:
        fix = "Select further fields in its config." if len(fields) > 1 else ""
        raise UnknownNameError(f"field of {sensor_name!r}", shown(field).strip("'"), fields, fix)
    data = sensor.ground_truth if truth else sensor.data
    values: torch.Tensor = data if sensor.single else getattr(data, field)
    return values.to(torch.float32, copy=True).reshape(sensor.num_envs, -1)


def _holding(env: Any, sensor_name: str, group: str | None) -> Scene:
    """Return the one scene that has the sensor."""
    groups = _groups(env)
    if group is not None or len(groups) < 2:
        return scene_of(env, group)
    found = {name: each.scene for name, each in groups.items() if sensor_name in each.scene}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise SelectionError.single(
            "reading", "group", group, f"one of {listed(found)}, since each has a {sensor_name!r}"
        )
    raise UnknownNameError("sensor", sensor_name, {name for each in groups.values() for name in each.scene})


__all__ = ["LiveData", "SceneSensor", "SensoriumCfg", "SensoriumSensor", "add_sensors", "reading", "scene_of"]
