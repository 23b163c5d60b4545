"""Our sensors inside an mjlab environment: added to its scene's config, stepped and reset by it, read by its terms.

    add_sensors(cfg.scene, [sn.ImuCfg(name="imu", site="robot/imu", noise={"ang_vel_b": 0.01})], seed=1)
    terms["gyro"] = ObservationTermCfg(func=reading, params={"sensor_name": "imu", "field": "ang_vel_b"})

mjlab calls a sensor's `update` after each physics step, and `reset` before its reset events write the state in which an
episode begins. So an episode of ours begins when it is first looked at, or with the next tick where nobody looks.

Importing this module needs mjlab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sensorium.cfg import SensorCfg
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
from sensorium.readings import DebugShape
from sensorium.scene import Scene, prepare

try:
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
    """Several of our sensors as one sensor of an mjlab scene; `add_sensors` makes and adds it.

    It may also stand in `SceneCfg.sensors` by itself. mjlab then wraps the elements that our sensors need of the model,
    too: they are in its scene as `sensorium/...`.

    Raises:
        ConfigError: sensors that are none, no sensors, or a `decimation` below 1.
    """

    name: str = "sensorium"
    """Name in mjlab's scene."""
    sensors: Sequence[SensorCfg[Any]] = ()
    """Their configs; names of elements have their entity's prefix: ``site="robot/imu"``."""
    seed: int = 0
    """Seed of every random number of these sensors; mjlab's own seed does not reach them."""
    first_env: int | None = None
    """Global index of env 0, where this process simulates a slice of a larger run; see `Scene`."""
    fresh: bool = False
    """Compute the state after each tick anew where a sensor samples it. Without, samples are of what the physics step
    left: the state one tick before, and `capture_time` says so."""
    decimation: int = 1
    """Ticks of one control step, the environment's `decimation`: from its begin on a sample is new, a latch empty."""
    semantics: Mapping[str, str | Sequence[str]] | None = None
    """Labels of shapes, see `Scene`."""
    prepares: bool = field(default=True, repr=False)
    """Whether its sensor prepares the model when mjlab lets it edit the spec; `add_sensors` does it later."""

    def __post_init__(self) -> None:
        config = f"SensoriumCfg({self.name!r})"
        if isinstance(self.sensors, SensorCfg):
            raise ConfigError.single(config, "sensors", self.sensors, "several configs", "Write sensors=(cfg,).")
        self.sensors = tuple(self.sensors)
        for cfg in self.sensors:
            if not isinstance(cfg, SensorCfg):
                fix = "Sensors of mjlab stay in SceneCfg.sensors."
                raise ConfigError.single(config, "sensors", cfg, "configs of sensorium such as sn.ImuCfg(...)", fix)
        if not self.sensors:
            raise ConfigError.single(config, "sensors", self.sensors, "at least one config")
        if isinstance(self.decimation, bool) or not isinstance(self.decimation, int) or self.decimation < 1:
            raise ConfigError.single(config, "decimation", self.decimation, "an integer of at least 1")

    def build(self) -> SensoriumSensor:
        """Return the sensor of mjlab's scene."""
        return SensoriumSensor(self)


class SensoriumSensor(_MjlabSensor):  # type: ignore[misc]
    """A sensor of an mjlab scene that holds a `Scene` of ours, which is prepared, stepped and reset with it.

    `data` maps the name of each sensor to its measured data: live views, valid until mjlab's next `update`.
    """

    def __init__(self, cfg: SensoriumCfg) -> None:
        super().__init__()
        self.cfg = cfg
        self._scene: Scene | None = None
        self._ticks = 0
        self._waits = False
        self._waiting = torch.zeros(0, dtype=torch.bool, device="cpu")

    def edit_spec(self, scene_spec: mujoco.MjSpec, entities: Mapping[str, Any]) -> None:
        """Add to the scene's MjSpec what the sensors need of the model."""
        if self.cfg.prepares:
            prepare(scene_spec, self.cfg.sensors)

    def initialize(self, mj_model: mujoco.MjModel, model: Any, data: Any, device: str) -> None:
        """Build our scene on the compiled model and the simulation's live state.

        Raises:
            SensoriumError: what `Scene` raises for these configs.
        """
        engine = MujocoWarpEngine.from_mjw(mj_model, _struct(model), _struct(data), fresh=self.cfg.fresh)
        cfg = self.cfg
        self._scene = Scene(
            engine, cfg.sensors, seed=cfg.seed, first_env=cfg.first_env, semantics=cfg.semantics, discover=False
        )
        self._ticks = 0
        self._waits = False
        self._waiting = torch.zeros(engine.num_envs, dtype=torch.bool, device=device)

    @property
    def scene(self) -> Scene:
        """Our scene. Taking it begins the episodes that mjlab asked for, in the state that the simulation now has.

        Raises:
            ScheduleError: mjlab has not initialized its scene yet.
        """
        self._begin_episodes()
        return self._built

    @property
    def _built(self) -> Scene:
        if self._scene is None:
            raise ScheduleError(
                f"sensor {self.cfg.name!r} has no simulation yet: call scene.initialize(mj_model, model, data) first, "
                "as ManagerBasedRlEnv does."
            )
        return self._scene

    def update(self, dt: float) -> None:
        """Note that the simulation took one tick, and sample what is due.

        Raises:
            ScheduleError: `dt` is not the model's time step.
        """
        super().update(dt)
        scene = self._built
        if abs(dt - scene.engine.dt) > 1e-6 * scene.engine.dt:
            raise ScheduleError(
                f"scene.update(dt={dt:g}) of mjlab, but the model's time step is {scene.engine.dt:g} s: call it after "
                "each sim.step(), with the time of that one step."
            )
        if self._ticks % self.cfg.decimation == 0:
            scene.begin_control_step()
        self._ticks += 1
        scene.update()
        if not self.cfg.fresh:
            scene.engine.refresh()  # else a first read after mjlab's forward() would be of another instant
        self._begin_episodes()

    def reset(self, env_ids: torch.Tensor | slice | None = None) -> None:
        """Note that episodes end here; the next begin when their state is written, see the module."""
        super().reset(env_ids)
        self._waiting[slice(None) if env_ids is None else env_ids] = True
        self._waits = True

    def debug_vis(self, visualizer: DebugVisualizer) -> None:
        """Draw the shapes of those sensors that are drawn (`debug_vis=True` or `set_debug_vis`), where mjlab looks."""
        scene = self.scene
        for sensor in scene.sensors.values():
            for shape in sensor.debug_draw() if sensor.debug_vis else ():
                for env in visualizer.get_env_indices(scene.num_envs):
                    _draw(visualizer, shape, shape.of_env(env, scene.num_envs))

    def _begin_episodes(self) -> None:
        if self._waits:
            self._waits = False
            self._built.reset(self._waiting)
            self._waiting.zero_()

    def _compute_data(self) -> Mapping[str, Any]:
        return LiveData(self)


class LiveData(Mapping[str, Any]):
    """Name of each sensor -> its measured data now; see `SensoriumSensor`."""

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


def _draw(visualizer: DebugVisualizer, shape: DebugShape, items: np.ndarray) -> None:
    """Draw points, lines, arrows or frames `[n, ...]` in the size that mjlab takes for the model."""
    color, size = (*shape.color, 1.0), visualizer.meansize
    for item in items[np.isfinite(items).all(axis=tuple(range(1, items.ndim)))]:
        if shape.kind == "points":
            visualizer.add_sphere(item, 0.2 * size, color)
        elif shape.kind == "arrows":
            visualizer.add_arrow(item[0], item[1], color, width=0.1 * size)
        elif shape.kind == "lines":
            visualizer.add_cylinder(item[0], item[1], 0.05 * size, color)
        else:
            turn = matrix_from_quat(torch.from_numpy(item[3:])).numpy()
            visualizer.add_frame(item[:3], turn, scale=size, axis_radius=0.05 * size)


def _struct(bridge: Any) -> Any:
    """Return the struct of mujoco_warp behind mjlab's bridge, whose arrays look like tensors; a struct as it is."""
    return getattr(bridge, "struct", bridge)


def add_sensors(scene_cfg: Any, sensors: Sequence[SensorCfg[Any]], **options: Any) -> SensoriumCfg:
    """Add sensors to the config of an mjlab scene, before the environment is built.

    What they need of the model is added after mjlab looked for sensors in it, so that its scene does not show it, and
    after the config's own `spec_fn`, whose elements they can thus be mounted on.

    Args:
        scene_cfg: mjlab's `SceneCfg`; `sensors` and `spec_fn` are replaced in it.
        sensors: their configs; names of elements have their entity's prefix: ``site="robot/imu"``.
        options: see `SensoriumCfg`: `name`, `seed`, `first_env`, `fresh`, `decimation`, `semantics`.

    Returns:
        The config that was added.

    Raises:
        ConfigError: see `SensoriumCfg`, a name that another sensor of the scene has, or groups of which some are fresh.
    """
    cfg = SensoriumCfg(sensors=sensors, prepares=False, **options)
    if cfg.name in [other.prefixed_name for other in scene_cfg.sensors]:
        fix = "Give each group of sensors a name: add_sensors(..., name='imus')."
        raise ConfigError.single("add_sensors", "name", cfg.name, "a name that no other sensor of the scene has", fix)
    if any(isinstance(other, SensoriumCfg) and other.fresh != cfg.fresh for other in scene_cfg.sensors):
        fix = "What one computes anew is in the simulation's own arrays, where the other would read it as one tick old."
        raise ConfigError.single("add_sensors", "fresh", cfg.fresh, "the same for all groups of one scene", fix)
    scene_cfg.sensors = (*scene_cfg.sensors, cfg)
    scene_cfg.spec_fn = _Preparation(scene_cfg.spec_fn, cfg.sensors)
    return cfg


@dataclass(frozen=True)
class _Preparation:
    """A `spec_fn` of mjlab's scene that prepares the model for sensors, after another one."""

    before: Callable[[Any], None] | None
    sensors: Sequence[SensorCfg[Any]]

    def __call__(self, spec: mujoco.MjSpec) -> None:
        if self.before is not None:
            self.before(spec)
        prepare(spec, self.sensors)


def scene_of(env: Any, name: str | None = None) -> Scene:
    """Return our scene in an mjlab environment: its sensors, `set`, `publish` and the rest.

    Take it anew where you need it, and keep the sensors instead of the scene: taking it begins the episodes that mjlab
    asked for.

    Args:
        env: the environment, a wrapper of it, or a scene of mjlab.
        name: name of the `SensoriumCfg`; None where there is one only.

    Raises:
        UnknownNameError: there is no such `SensoriumCfg`.
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
        sensor_name: name of our sensor.
        field: field of its data; None where it has one only.
        truth: give the ground truth instead of what is measured.
        group: name of the `SensoriumCfg` that has it; None where one only has a sensor of this name.

    Returns:
        A tensor of its own, float32 `[env, D]`: all other axes in one, flags as 0 and 1.

    Raises:
        UnknownNameError: no such sensor, field or group.
        SelectionError: sensors of several groups have this name.
    """
    sensor = _holding(env, sensor_name, group)[sensor_name]
    fields = [spec.name for spec in sensor.specs]
    if field is None and len(fields) == 1:
        field = fields[0]
    if field not in fields:
        fix = "Others may be chosen in its config." if len(fields) > 1 else ""
        raise UnknownNameError(f"field of {sensor_name!r}", shown(field).strip("'"), fields, fix)
    data = sensor.ground_truth if truth else sensor.data
    values: torch.Tensor = data if sensor.single else getattr(data, field)
    return values.to(torch.float32, copy=True).reshape(sensor.num_envs, -1)


def _holding(env: Any, sensor_name: str, group: str | None) -> Scene:
    """Return the one scene that has a sensor."""
    groups = _groups(env)
    if group is not None or len(groups) < 2:
        return scene_of(env, group)
    found = {name: each.scene for name, each in groups.items() if sensor_name in each.scene}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise SelectionError.single("reading", "group", group, f"one of {listed(found)}: each has a {sensor_name!r}")
    raise UnknownNameError("sensor", sensor_name, {name for each in groups.values() for name in each.scene})


__all__ = ["LiveData", "SensoriumCfg", "SensoriumSensor", "add_sensors", "reading", "scene_of"]
