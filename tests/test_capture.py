"""Captured steps: readings equal those of uncaptured steps, without waiting for the device or allocating memory."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import synthetic as syn
import torch
import warp as wp
from no_waiting import nobody_waits
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import sensorium as sn
from sensorium.compute import Compute, Rows, Segment, program

wp.set_module_options({"enable_backward": False})

DT = 0.005
FEET = ("FL", "FR", "RL", "RR")
BODIES = ("base", *FEET)
JOINTS = tuple(f"joint_{k}" for k in range(4))
PERIOD = 48
"""Ticks after which the motion repeats."""
WARM = 40
"""Ticks after which all work is captured with the fixture `at_once`, including work due at every sixth tick only."""


# A third-party sensor in torch ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeightData:
    """A scalar."""

    height: Annotated[Tensor, sn.Field("m")]


class HeightCfg(sn.SimpleSensorCfg[HeightData]):
    """A sensor with torch hooks."""

    gain: float = 2.0
    """A number that can be set per env."""


class Height(sn.SimpleSensor[HeightCfg, HeightData]):
    """Measures the height of the first body, with a lag, with torch only."""

    requires = (sn.engines.BODY_POSE,)
    lookback = 1

    def setup(self) -> None:
        """Create a state."""
        self.total = self.new_state("total", ())

    def update_raw_data(self, raw: sn.Record) -> None:
        """Read the height and multiply it by the gain."""
        raw.height[:] = (self.engine.array("body_pos_w")[:, 0, 2:3] * self.params.gain).squeeze(1)

    def apply_physics_imperfections(self, slot: sn.Record, timeline: sn.Timeline) -> None:
        """Add half of the previous sample and the accumulated sum."""
        slot.height += 0.5 * timeline.at(1).height
        self.total += slot.height

    def apply_hardware_imperfections(self, slot: sn.Record) -> None:
        """Run the standard chain, then add the sum and a random number."""
        self.standard_chain(slot)
        slot.height += 1e-3 * self.total + 0.1 * self.key.normal("dust", "height").view_as(slot.height)


# A world with many sensors --------------------------------------------------------------------------------------------


def configs() -> list[sn.SensorCfg[Any]]:
    """Return one or more configs of most kinds, with noise, stages, rates, delays, losses and histories."""
    feet, target = sn.ContactMatch(mode="body", pattern=FEET), sn.FrameTransformerCfg.FrameCfg(body="[FR].")
    grid = sn.patterns.GridPatternCfg(size=(0.8, 0.4), resolution=0.2)
    spin = sn.patterns.SpinningPatternCfg(
        elevations=(-20.0, -5.0), cycle_interval=2e-3, firing_interval=1e-4, rate_hz=50.0
    )
    return [
        sn.ImuCfg(name="imu", body="base"),
        sn.ImuCfg(
            name="worn", body="base", rate_hz=100, acc_noise=0.1, gyro_bias=sn.Normal(0.0, 0.01), gyro_random_walk=1e-4,
            acc_resolution=0.01, delay=0.02, jitter=0.01, loss=0.1, history_length=3,
            stages=(
                sn.stages.LowPass(cutoff_hz=20.0, fields=("lin_acc_b",)),
                sn.stages.GaussMarkov(density=0.01, tau=0.5, fields=("ang_vel_b",)),
            ),
        ),
        sn.JointSensorCfg(name="joints", joints=".*", fields="all"),
        sn.JointSensorCfg(name="encoders", joints=".*", noise={"position": 1e-3}, position_resolution=1e-3, delay=0.01),
        sn.FrameTransformerCfg(name="frames", body="base", target_frames=(target,)),
        sn.ContactSensorCfg(
            name="feet", primary=feet, fields=("found", "force"), track_air_time=True
        ),
        sn.ContactSensorCfg(name="prims", prim_path="F.", track_air_time=True),
        sn.RayCasterCfg(name="scan", body="base", pattern=grid, ray_alignment="yaw", noise={"distances": 0.01}),
        sn.LidarCfg(name="lidar", body="base", pattern=spin, rate_hz=50.0, delay=0.01),
        sn.RayCasterCameraCfg(
            name="camera", body="base", rate_hz=40.0, pattern=sn.patterns.PinholeCameraPatternCfg(width=12, height=8),
            offset={"pos": (0.0, 0.0, 0.2), "convention": "world"},
        ),
        sn.BarometerCfg(name="barometer", body="base", noise=1.0, rate_hz=60),
        HeightCfg(name="height", noise=0.01, delay=0.015, history_length=2),
    ]  # fmt: skip


def crowd(num_envs: int = 3, cfgs: list[Any] | None = None, device: str = "cpu", **kwargs: Any) -> sn.Scene:
    """Build a scene with all configs over tensors that `advance` writes."""
    shapes = [
        sn.engines.Shape("plane", "ground"),
        sn.engines.Shape("box", "wall", size=(0.1, 2.0, 1.0), pos=(1.5, 0.0, 0.5)),
        sn.engines.Shape("sphere", "ball", size=(0.2,), body="FL", is_static=False),
    ]
    provides = (
        "pose", "velocity", "acceleration", "gravity", "joint_state", "joint_effort", "contact", "magnetic",
    )  # fmt: skip
    engine = sn.TensorEngine(
        num_envs, DT, bodies=BODIES, joints=JOINTS, provides=provides, shapes=shapes, device=device
    )
    write(engine, 0)
    return sn.Scene(engine, configs() if cfgs is None else cfgs, seed=3, **kwargs)


def motion(engine: sn.TensorEngine) -> dict[str, list[Tensor]]:
    """Return every array at every tick of a period; built once per engine, so that a step only copies."""
    if not hasattr(engine, "_motion"):
        draw = torch.Generator().manual_seed(7)
        arrays = {**engine._arrays}
        out: dict[str, list[Tensor]] = {}
        for name, array in arrays.items():
            first = torch.rand((PERIOD, *array.shape[1:]), generator=draw)[:, None]
            values = (first * 2.0 - 1.0) * torch.linspace(0.5, 1.0, array.shape[0]).view(
                1, -1, *(1,) * (array.dim() - 1)
            )
            if name == "body_quat_w":
                values = values + torch.tensor([3.0, 0.0, 0.0, 0.0])
                values = values / values.norm(dim=-1, keepdim=True)
            if name == "body_pos_w":
                values = 0.3 * values + torch.tensor([0.0, 0.0, 0.6])
            if name.startswith("contact:"):
                values = values * (first[..., :1] > 0.5)
                values[..., 0] = (values[..., 0] != 0.0).float()
            out[name] = list(values.to(engine.device).unbind(0))
        engine._motion = out
    return engine._motion


def write(engine: sn.TensorEngine, tick: int) -> None:
    """Write the state of a tick."""
    for name, values in motion(engine).items():
        array = engine._arrays[name]
        if values[0].shape == array.shape:
            array.copy_(values[tick % PERIOD])


def advance(scene: sn.Scene, ticks: int = 1) -> None:
    """Advance the scene, and read every sensor at each tick."""
    for _ in range(ticks):
        write(scene.engine, scene.tick + 1)
        scene.update()
        for sensor in scene.sensors.values():
            _ = sensor.data, sensor.ground_truth


def readings(scene: sn.Scene) -> dict[str, np.ndarray]:
    """Return everything that readers see."""
    return {f"{name}/{k}": v for name, each in scene.sensors.items() for k, v in syn.snapshot(each).items()}


def segments(scene: sn.Scene) -> list[Any]:
    """Return the launch segments of a step."""
    groups = {each.buffers.group: None for each in scene.sensors.values() if each.buffers.group}
    programs = [program for group in groups for program in (group.program, group._observing)]
    return [
        segment for each in programs if each is not None for segment in each._segments if isinstance(segment, Segment)
    ]


# Equal readings -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("num_envs", [1, 5])
def test_captured_and_sharded_steps_give_the_same_bits(num_envs: int) -> None:
    """Uncaptured and captured steps, with one, two and four shards, give the same readings at every tick."""
    scenes = {}
    for shards, capture in ((1, False), (1, True), (2, True), (4, False)):
        scene = scenes[shards, capture] = crowd(num_envs, capture=capture)
        scene.compute.shards = shards
    for tick in range(WARM):
        found = []
        for scene in scenes.values():
            advance(scene)
            if tick == 30:
                scene.reset([0])
            found.append(readings(scene))
        for other in found[1:]:
            syn.same(found[0], other)
    for (shards, capture), scene in scenes.items():
        assert all(segment.is_captured == capture for segment in segments(scene))
        most = max(segment.shards for segment in segments(scene))
        assert most == shards if num_envs > 1 else (most > 1) == (shards > 1)  # one env: as many as there are rays


CHANGES: dict[str, Callable[[sn.Scene], object]] = {
    "a knob for one env": lambda scene: scene["worn"].set("acc_noise", 0.7, [1]),
    "a knob for all envs": lambda scene: scene["worn"].set("gyro_bias", [0.1, 0.2, 0.3]),
    "a knob of a sensor with its own chain": lambda scene: scene["height"].set("noise", 0.3, [0]),
    "a knob in the chain of its rate group": lambda scene: scene["scan"].set("noise", 0.2, [2]),
    "a delay": lambda scene: scene["worn"].set("delay", 0.005, [1]),
    "a jitter and a loss": lambda scene: (scene["worn"].set("jitter", 0.0), scene["worn"].set("loss", 0.6, [0, 2])),
    "a number that a torch hook reads": lambda scene: scene["height"].set("gain", 3.5, [2]),
    "an intrinsic matrix": lambda scene: scene["camera"].set_intrinsic_matrices(
        torch.tensor([[8.0, 0.0, 6.0], [0.0, 9.0, 4.0], [0.0, 0.0, 1.0]]), env_ids=[1]
    ),
    "a camera's place": lambda scene: scene["camera"].set_world_poses(torch.tensor([[0.1, 0.2, 2.0]]), env_ids=[2]),
    "another pattern": lambda scene: scene.reconfigure(
        "scan", pattern=sn.patterns.GridPatternCfg(size=(0.4, 0.4), resolution=0.1)
    ),
    "another sensor": lambda scene: scene.add(sn.ImuCfg(name="late", body="FL", gyro_noise=0.1)),
    "a sensor less": lambda scene: scene.remove("joints"),
    "a reset of some envs": lambda scene: scene.reset(torch.tensor([False, True, False])),
    "a reset of one sensor": lambda scene: scene["worn"].reset([2]),
    "a saved state": lambda scene: scene.load_state(scene.state()),
    "an evaluation anew": lambda scene: (scene.engine.body_pos_w.add_(0.125), scene.update(0)),
}


@pytest.mark.usefixtures("at_once")
def test_graphs_use_values_changed_at_run_time() -> None:
    """Values live in arrays that are written in place, or the work is rebuilt; no explicit capture is needed."""
    scenes = [crowd(capture=capture) for capture in (False, True)]
    for scene in scenes:
        advance(scene, WARM)
    assert all(segment.is_captured for segment in segments(scenes[1]))
    for what, change in CHANGES.items():
        for scene in scenes:
            change(scene)
        for _ in range(13):
            for scene in scenes:
                advance(scene)
            launched, captured = map(readings, scenes)
            for name, values in launched.items():
                assert syn.bits(values) == syn.bits(captured[name]), f"{name} after {what}"
    for scene in scenes:
        advance(scene, WARM)
    assert all(segment.is_captured for segment in segments(scenes[1]))


@pytest.mark.usefixtures("at_once")
def test_run_time_change_affects_readings_without_a_new_graph() -> None:
    """The graphs stay the same, and the readings differ from those without the change."""
    changed, plain = crowd(), crowd()
    for scene in (changed, plain):
        advance(scene, WARM)
    graphs = [shard._graph for each in segments(changed) for step in each._steps for shard in step]
    for what, field in (
        ("a knob for one env", "worn/data.lin_acc_b"),
        ("a knob in the chain of its rate group", "scan/data.distances"),
        ("a delay", "worn/capture_tick"),
        ("an intrinsic matrix", "camera/data.distance_to_image_plane"),
    ):
        CHANGES[what](changed)
        differ = False
        for _ in range(13):
            advance(changed)
            advance(plain)
            differ = differ or syn.bits(readings(changed)[field]) != syn.bits(readings(plain)[field])
        assert differ, what
    assert graphs == [shard._graph for each in segments(changed) for step in each._steps for shard in step]


# Switching capture on and off -----------------------------------------------------------------------------------------


def test_frequently_run_segments_are_captured_automatically(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is captured neither before that pays off nor where capture is turned off."""
    monkeypatch.setattr(program, "CAPTURE_AFTER", 10)
    on, off = crowd(cfgs=configs()[:3]), crowd(cfgs=configs()[:3], capture=False)
    for scene in (on, off):
        advance(scene, 10)
        assert not any(segment.is_captured for segment in segments(scene))
        advance(scene, 14)
    assert all(segment.is_captured for segment in segments(on))
    assert not any(segment.is_captured for segment in segments(off))
    assert "captured graphs" in repr(on.compute) and "recorded launches" in repr(off.compute)


def test_capture_can_be_switched_between_steps() -> None:
    """The readings are unaffected, and repeated work is captured as soon as capture is turned on."""
    scene, other = crowd(), crowd(capture=False)
    for on in (False, True, False, True):
        scene.capture(on)
        for _ in range(WARM if on else 6):
            advance(scene)
            advance(other)
            syn.same(readings(scene), readings(other))
        assert ("captured graphs" in repr(scene.compute)) == on
        assert all(segment.is_captured for segment in segments(scene)) or not on
    assert not any(segment.is_captured for segment in segments(other))


def test_engine_is_notified_of_capture(tmp_path: Path) -> None:
    """An engine with its own kernels captures them if and only if the scene does; readings are equal."""
    xml = "<mujoco><worldbody><body name='b'><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    found = []
    for capture in (True, False):
        scene = sn.Scene(
            sn.MujocoEngine(xml, num_envs=2),
            [sn.ImuCfg(body="b", fields="all", magnetic_field=(1, 0, 0))],
            capture=capture,
        )
        assert scene.engine._derived.compute.capture is capture
        for _ in range(2 * program.CAPTURE_AFTER):
            scene.step()
            _ = scene["imu"].data
        assert scene.engine._derived._launches.all_envs.is_captured is capture
        found.append(syn.snapshot(scene["imu"]))
    syn.same(*found)
    scene.capture(True)
    assert scene.engine._derived.compute.capture is True


@wp.kernel
def _double(rows: Rows, values: wp.array2d[wp.float32]) -> None:
    i, k = wp.tid()
    values[rows.start + i, k] *= 2.0


def test_a_kernel_that_cannot_be_captured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that cannot be captured raises an error; without capture the work continues."""
    compute = Compute("cpu", 2)
    compute.capture_after = 0
    values = torch.ones(2, 3)
    segment = compute.record(lambda: compute.launch(_double, (3,), [], [wp.from_torch(values)]))
    for _ in range(program.TIMED_RUNS):
        segment.run()
    command = segment._steps[0][0]._commands[0]

    def fail(stream: Any = None) -> None:
        raise RuntimeError("out of graphs")

    with monkeypatch.context() as patch:
        patch.setattr(command, "launch", fail)
        with pytest.raises(
            sn.SensoriumError, match=r"kernel '_double' could not be captured on cpu: out of graphs.*capture\(False\)"
        ):
            segment.run()
    compute.capture = False
    segment.run()
    compute.capture = True
    segment.run()
    assert segment.is_captured and bool((values == 2.0 ** (program.TIMED_RUNS + 2)).all())


def test_running_capture_is_reported() -> None:
    """Warp allows only one capture at a time, so a foreign capture raises an error that names the scene's capture."""
    compute = Compute("cpu", 2)
    compute.capture_after = 0
    values = torch.ones(2, 3)
    segment = compute.record(lambda: compute.launch(_double, (3,), [], [wp.from_torch(values)]))
    for _ in range(program.TIMED_RUNS):
        segment.run()
    with wp.ScopedCapture(device="cpu"), pytest.raises(sn.SensoriumError, match=r"'_double'.*already in progress"):
        segment.run()


@pytest.mark.usefixtures("at_once")
def test_captured_scenes_can_step_alternately() -> None:
    """A second scene, captured while the first exists and has stepped, does not disturb the first, and vice versa."""
    alone = crowd()
    advance(alone, 2 * WARM)
    first = crowd()
    advance(first, WARM)
    second = crowd()
    for _ in range(WARM):
        advance(first)
        advance(second)
    advance(second, WARM)
    expected = readings(alone)
    syn.same(readings(first), expected)
    syn.same(readings(second), expected)
    assert all(segment.is_captured for scene in (first, second) for segment in segments(scene))


@pytest.mark.usefixtures("at_once")
def test_torch_hooks_split_the_graph() -> None:
    """A plugin's torch hooks are called between graphs, in order."""
    scene, launched = (
        crowd(cfgs=[configs()[1], configs()[-1]]),
        crowd(cfgs=[configs()[1], configs()[-1]], capture=False),
    )
    for _ in range(30):
        advance(scene)
        advance(launched)
        syn.same(readings(scene), readings(launched))
    work = [segment for group in scene._schedule._groups for segment in group.program._segments]
    kinds = [isinstance(segment, Segment) for segment in work]
    assert kinds.count(False) >= 3 and any(kinds[kinds.index(False) :]) and kinds[0]
    assert all(segment.is_captured for segment in work if isinstance(segment, Segment))


# No synchronisation ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("control", ["update", "step"])
def test_captured_step_does_not_wait_for_the_device(control: str) -> None:
    """Steps and reads of values, truth, histories and metadata never wait for the device, for many kinds of sensors."""
    cuda = torch.cuda.is_available()
    scene = crowd(device="cuda:0" if cuda else "cpu")
    observer = scene.observer("imu.ang_vel_b", "feet.found", "scan.distances", "worn.lin_acc_b")

    def some(ticks: int) -> None:
        for _ in range(ticks):
            write(scene.engine, scene.tick + 1)
            scene.step(substeps=2) if control == "step" else scene.update()
            for sensor in scene.sensors.values():
                _ = sensor.data, sensor.ground_truth
                _ = sensor.valid, sensor.is_new, sensor.capture_tick, sensor.age, sensor.frame, sensor.stamp
                if sensor.cfg.history_length and not sensor.own_history:
                    _ = sensor.history, sensor.history_valid
            observer()

    some(WARM)
    with nobody_waits(cuda):
        some(60)
    assert all(segment.is_captured for segment in segments(scene))


@pytest.mark.usefixtures("at_once")
def test_mask_reset_does_not_wait_for_the_device() -> None:
    """A mask on the scene's device, such as that of terminated episodes, stays there; readings equal those by ids."""
    cuda = torch.cuda.is_available()
    device = "cuda:0" if cuda else "cpu"
    cfgs = [cfg for cfg in configs() if not isinstance(cfg, HeightCfg)]
    masked, listed = crowd(cfgs=cfgs, device=device), crowd(cfgs=cfgs, device=device)
    mask = torch.zeros(masked.num_envs, dtype=torch.bool, device=device)
    mask[1:3] = True
    for scene, which in ((masked, mask), (listed, [1, 2])):
        for _ in range(4):  # the work of resets is captured as well
            advance(scene, WARM // 4)
            scene.reset(which)
    with nobody_waits(cuda):
        masked.reset(mask)
    listed.reset([1, 2])
    for _ in range(3):
        advance(masked)
        advance(listed)
        syn.same(readings(masked), readings(listed))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("look", [float, bool, lambda value: value.item(), lambda value: value[value > 0.0]])
def test_waiting_hook_is_detected(look: Callable[[Tensor], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of the test above raises for a hook that waits."""

    def peek(self: Height, raw: sn.Record) -> None:
        raw.height.zero_()
        look(self.engine.array("body_pos_w")[0, 0, 2])

    monkeypatch.setattr(Height, "update_raw_data", peek)
    scene = crowd(cfgs=[HeightCfg(name="height")])
    advance(scene, WARM)
    with nobody_waits(cuda=False), pytest.raises(AssertionError, match=r"captured step"):
        advance(scene)


class Calls(TorchDispatchMode):
    """Records every torch operation."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("at_once")
def test_captured_kernel_step_calls_no_torch_operation() -> None:
    """Neither a step nor a read of values creates a tensor or touches one on the host."""
    scene = crowd(cfgs=[cfg for cfg in configs() if not isinstance(cfg, HeightCfg)])
    advance(scene, WARM)
    with Calls() as calls:
        for _ in range(12):
            scene.update()
            for sensor in scene.sensors.values():
                _ = sensor.data, sensor.ground_truth
    assert calls.names == []


# Memory ---------------------------------------------------------------------------------------------------------------


def addresses(scene: sn.Scene) -> dict[str, int]:
    """Return the address of every tensor that a sensor keeps or exposes."""
    out = {}
    for name, sensor in scene.sensors.items():
        shown = {f"data/{k}": v for k, v in sensor.own_tensors(is_measured=True).items()}
        shown |= {f"truth/{k}": v for k, v in sensor.own_tensors(is_measured=False).items()}
        out |= {f"{name}/{what}": tensor.data_ptr() for what, tensor in {**sensor.tensors(), **shown}.items()}
    return out


def in_use(device: str) -> tuple[int, int]:
    """Return the bytes that the process uses, and the bytes used on a device."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize(), torch.cuda.memory_allocated(device) if "cuda" in device else 0


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read where Linux says it")
def test_two_thousand_steps_allocate_nothing_and_keep_addresses() -> None:
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    scene = crowd(device=device)
    advance(scene, 500)
    scene.reset([1])
    before, places = in_use(device), addresses(scene)
    for _ in range(4):
        advance(scene, 500)
        scene.reset([1])
    after = in_use(device)
    assert addresses(scene) == places
    assert after[0] - before[0] < 400_000  # 200 bytes a step; a tensor of Python alone has as many
    assert after[1] == before[1]
