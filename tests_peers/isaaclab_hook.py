"""Plugin of pytest: `isaaclab` is this package's compat module, with a stand-in for the simulator around it.

The stand-in knows the names of prims and a time step. Files that import more of a simulator are skipped.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import warp as wp

import sensorium as sn
from sensorium.compat import isaaclab as ours

TICK = 0.0005
"""Step of the clock, s, of which all times in the tests are multiples."""


class Simulation:
    """The stand-in: names of prims, and the sensors that start with it."""

    current: Any = None

    def __init__(self, cfg: Any) -> None:
        self.device, self._timeline = cfg.device, SimpleNamespace(stop=lambda: None)
        type(self).current = self

    @classmethod
    def instance(cls) -> Any:
        """Return the present one."""
        return cls.current

    def reset(self) -> None:
        """Start the sensors, as the simulator does when it starts to play."""
        for sensor in sensors:
            sensor._initialize_impl()
            sensor.is_initialized = True
        sensors.clear()

    def ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing: the stand-in has no bodies, no viewport and no callbacks."""

    step = clear_all_callbacks = clear_instance = set_camera_view = ignore


prims: list[str] = []
sensors: list[SensorBase] = []


class SensorBaseCfg:
    """Isaac Lab's base of a sensor's config, as its tests derive it: attributes of the class are values."""

    prim_path, update_period, history_length, debug_vis = "", 0.0, 0, False

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class SensorBase:
    """Isaac Lab's protocol of a sensor, whose hooks follow the samples of one of ours that is evaluated on access."""

    is_initialized = False

    def __init__(self, cfg: Any) -> None:
        self.cfg = cfg
        sensors.append(self)

    def _initialize_impl(self) -> None:
        simulation = Simulation.instance()
        self.device = self._device = simulation.device
        if hasattr(simulation, "get_clone_plan"):
            envs = len(simulation.get_clone_plan().topology.world_prototype_layout)
        else:
            parent = re.compile(self.cfg.prim_path.rpartition("/")[0])
            envs = sum(parent.fullmatch(path) is not None for path in prims)
        self.num_instances = self._num_envs = envs
        engine = sn.TensorEngine(num_envs=envs, dt=TICK, bodies=["base"], device=simulation.device)
        watched = ours.FrameTransformerCfg(
            prim_path="base",
            target_frames=[{"prim_path": "base"}],
            name="sensor",
            update_period=self.cfg.update_period,
            evaluate="on_access",
        )
        self._scene = sn.Scene(engine, [watched])
        self._frames = torch.zeros(envs, dtype=torch.int64, device=simulation.device)

    def update(self, dt: float, force_recompute: bool = False) -> None:
        """Let time pass; with the flag, take a sample that is due."""
        self._scene["sensor"].update(dt)
        if force_recompute:
            self._update_outdated_buffers()

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Start an episode."""
        self._scene.reset(env_ids)
        self._frames[slice(None) if env_ids is None else env_ids] = 0

    def _update_outdated_buffers(self) -> None:
        sensor = self._scene["sensor"]
        sensor.data  # noqa: B018 - the read takes the sample
        new = sensor.frame != self._frames
        self._frames.copy_(sensor.frame)
        if "env_mask" in inspect.signature(self._update_buffers_impl).parameters:
            self._update_buffers_impl(wp.from_torch(new))
        else:
            self._update_buffers_impl(new.nonzero().flatten())

    def _update_buffers_impl(self, env_ids: Any) -> None:
        raise NotImplementedError


def _module(name: str, **members: Any) -> ModuleType:
    """Put a module with these members into the table of modules, and into its parent."""
    module = sys.modules[name] = ModuleType(name)
    module.__path__ = []  # type: ignore[attr-defined]  # a package
    module.__dict__.update(members)
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)
    return module


def _thing(*_: Any, **members: Any) -> SimpleNamespace:
    """Return what the tests create in a stage, without any effect."""
    return SimpleNamespace(func=lambda *_, **__: None, **members)


def test_devices(_: str) -> list[str]:
    """Return the devices of this machine."""
    return ["cpu", *["cuda:0"] * torch.cuda.is_available()]


test_devices.__test__ = False  # type: ignore[attr-defined]  # no test, in spite of its name


class Simulator(MetaPathFinder):
    """Skips the file that imports a part of the simulator, or of the library, that has no stand-in."""

    def find_spec(self, fullname: str, *_: Any) -> None:
        """Skip the importing file."""
        if fullname.partition(".")[0] in ("carb", "isaaclab", "isaaclab_assets", "isaaclab_tasks", "omni", "pxr"):
            pytest.skip(f"needs {fullname}, a part of Isaac Sim", allow_module_level=True)


sys.meta_path.append(Simulator())
names = {name: getattr(ours, name) for name in ours.__all__}
_module("isaaclab")
_module("isaaclab.app", AppLauncher=lambda **_: SimpleNamespace(app=None))
_module("isaaclab.utils", configclass=ours.configclass)
_module("isaaclab.utils.configclass", configclass=ours.configclass)
sys.modules["isaaclab.utils"].configclass = ours.configclass  # type: ignore[attr-defined]
_module("isaaclab.test")
_module(
    "isaaclab.test.utils",
    DeviceScope=SimpleNamespace(CPU="cpu", CUDA="cuda"),
    test_devices=test_devices,
)
_module(
    "isaaclab.sim",
    SimulationContext=Simulation,
    SimulationCfg=_thing,
    GroundPlaneCfg=_thing,
    SphereLightCfg=_thing,
    create_new_stage=prims.clear,
    create_prim=lambda path, *_, **__: prims.append(path),
    update_stage=lambda: None,
)
_module("isaaclab.sensors", **names | {"SensorBase": SensorBase, "SensorBaseCfg": SensorBaseCfg})
_module("isaaclab.sensors.ray_caster", **names)
_module(
    "isaaclab.sensors.ray_caster.patterns",
    **{name: getattr(ours.patterns, name) for name in ours.patterns.__all__},
    patterns=ours.patterns,
    patterns_cfg=ours.patterns,
)


@pytest.fixture(autouse=True)
def devices(request: pytest.FixtureRequest) -> None:
    """Skip what a machine without CUDA cannot run."""
    device = request.node.callspec.params.get("device") if hasattr(request.node, "callspec") else None
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of the tests."""
    for mark in ("unit", "isaacsim_ci"):
        config.addinivalue_line("markers", f"{mark}: of Isaac Lab")
