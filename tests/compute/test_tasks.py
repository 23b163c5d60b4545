"""Tasks: one launch runs the tasks of many sensors, and each sensor reads as in a separate scene."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import synthetic as syn
import torch
import warp as wp
from test_capture import BODIES, HeightCfg, crowd, readings, segments, write

import sensorium as sn
from sensorium.compute import Compute, Program, Rows, Segment, program

wp.set_module_options({"enable_backward": False})

ENVS = 5


# The rule -------------------------------------------------------------------------------------------------------------


@wp.struct
class StepTask:
    """Two arrays, one of which is written."""

    factor: wp.float32
    x: wp.array2d[wp.float32]
    y: wp.array2d[wp.float32]


@wp.func
def _stepped(t: StepTask, env: int, k: int) -> None:
    t.y[env, k] = t.factor * t.y[env, k] + t.x[env, k] + wp.float32(1 + env + k)


@wp.kernel
def _step_task(rows: Rows, tasks: wp.array[StepTask]) -> None:
    which, i, k = wp.tid()
    env = rows.start + i
    t = tasks[which]
    if rows.mask[env] != wp.uint8(0) and k < t.y.shape[1]:
        _stepped(t, env, k)


@wp.kernel
def _step_launch(rows: Rows, t: StepTask) -> None:
    i, k = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0):
        _stepped(t, env, k)


def task_of(x: torch.Tensor, y: torch.Tensor, factor: float = 2.0) -> Any:
    """Return a task: y = factor y + x + 1 + env + column."""
    task = StepTask()
    task.x, task.y, task.factor = wp.from_torch(x), wp.from_torch(y), factor
    return task


def as_task(compute: Compute, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """Return a hook with one task."""
    return lambda: compute.launch_task(_step_task, (y.shape[1],), task_of(x, y))


def as_launch(compute: Compute, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """Return a hook that does the same as a separate launch."""
    return lambda: compute.launch(_step_launch, (y.shape[1],), [task_of(x, y)])


def kernels(segment: Segment) -> list[str]:
    """Return the kernels that a segment launches, in order."""
    return [launch.kernel.key for launch in segment._launches]


def test_tasks_of_several_owners_share_one_launch() -> None:
    """Tasks of similar sizes join one launch, and each computes the same as alone."""
    compute, sizes = Compute("cpu", ENVS), (3, 1, 4, 3, 2)
    values = [torch.rand(ENVS, size) for size in sizes]
    alone = [value.clone() for value in values]
    recorded = [compute.record(as_task(compute, y, y), owner=k) for k, y in enumerate(values)]
    segment = Segment.joined(recorded)
    assert kernels(segment) == ["_step_task"] and segment._launches[0].dim == (5, ENVS, 4)
    for _ in range(3):
        segment.run()
        for y in alone:
            compute.record(as_task(compute, y, y)).run()
    assert all(map(torch.equal, values, alone))


def test_most_threads_of_a_launch_have_work() -> None:
    """Small tasks join a launch of large ones if at least half of its threads are needed; otherwise they are launched
    separately.
    """
    compute = Compute("cpu", ENVS)
    values = [torch.rand(ENVS, size) for size in (1, 500, 1, 2, 1, 400, 1, 2)]
    segment = Segment.joined([compute.record(as_task(compute, y, y), owner=k) for k, y in enumerate(values)])
    assert [launch.dim for launch in segment._launches] == [(3, ENVS, 500), (5, ENVS, 2)]


def test_task_is_not_moved_before_its_owners_earlier_work() -> None:
    compute = Compute("cpu", ENVS)
    a, b = torch.rand(ENVS, 2), torch.rand(ENVS, 2)
    work = [compute.record(as_task(compute, a, a), owner="a")]
    work += [compute.record(hook(compute, b, b), owner="b") for hook in (as_launch, as_task)]
    assert kernels(Segment.joined(work)) == ["_step_task", "_step_launch", "_step_task"]
    twice = [compute.record(as_task(compute, b, b), owner=owner) for owner in "aabb"]
    assert [len(launch.tasks) for launch in Segment.joined(twice)._launches] == [2, 2]


def test_task_is_not_moved_before_unowned_work() -> None:
    compute = Compute("cpu", ENVS)
    a, b = torch.rand(ENVS, 2), torch.rand(ENVS, 2)
    work = [compute.record(as_task(compute, y, y), owner=owner) for owner, y in (("a", a), (None, b), ("b", b))]
    assert kernels(Segment.joined(work)) == 3 * ["_step_task"]


def test_task_outside_a_recording_runs_immediately() -> None:
    compute, y = Compute("cpu", ENVS), torch.ones(ENVS, 2)
    compute.reset_envs[1] = 1
    with compute.masked(compute.reset_envs):
        compute.launch_task(_step_task, (2,), task_of(y, y, 0.0))
    assert y.tolist() == [[1.0, 1.0], [3.0, 4.0], *3 * [[1.0, 1.0]]]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(12))
def test_moved_tasks_give_the_results_of_the_recorded_order(seed: int) -> None:
    """Random owners mix tasks and launches on their own memory with shared work on all of it.

    Recorded, captured, in shards, and for some envs only, the results are bitwise those of sequential launches.
    """
    draw = random.Random(seed)
    compute = Compute("cpu", ENVS, shards=draw.choice((1, 2, 4)))
    compute.reset_envs[torch.rand(ENVS) < 0.5] = 1
    mask = draw.choice((compute.all_envs, compute.reset_envs))
    memory = [[torch.rand(ENVS, draw.choice((1, 2, 3))) for _ in range(2)] for _ in range(6)]
    expected = [[values.clone() for values in each] for each in memory]
    work, in_order = [], []
    for _ in range(60):
        owner = draw.randrange(6)
        x, y = draw.randrange(2), draw.randrange(2)
        is_nobodys = draw.random() < 0.05
        hook = draw.choice((as_task, as_task, as_task, as_launch))
        source = draw.randrange(6) if is_nobodys else owner
        if memory[source][x].shape != memory[owner][y].shape:
            source, x = owner, y
        name = None if is_nobodys else owner
        work.append(compute.record(hook(compute, memory[source][x], memory[owner][y]), mask, owner=name))
        in_order.append(compute.record(hook(compute, expected[source][x], expected[owner][y]), mask))
    merged = Program(work)
    assert len(merged._segments) == 1 and len(merged._segments[0]._launches) < 60
    for _ in range(program.TIMED_RUNS + 3):
        for each in (*memory, *expected):
            for values in each:
                values.mul_(2.0**-40)  # a value doubled 60 times stays finite
        merged.run()
        for segment in in_order:
            segment.run()
        for mine, theirs in zip(memory, expected, strict=True):
            assert all(map(torch.equal, mine, theirs))
    assert merged._segments[0].is_captured


# Sensors --------------------------------------------------------------------------------------------------------------


def imus(count: int, **knobs: Any) -> list[sn.SensorCfg[Any]]:
    """Return IMUs at different places of different bodies."""
    places = [{"pos": (0.1 * k, -0.05 * k, 0.02), "rot": (math.cos(k), math.sin(k), 0.0, 0.0)} for k in range(count)]
    bodies = [BODIES[k % len(BODIES)] for k in range(count)]
    return [sn.ImuCfg(name=f"imu_{k}", body=bodies[k], offset=places[k], **knobs) for k in range(count)]


def legs(count: int) -> list[sn.SensorCfg[Any]]:
    """Return a joint sensor and a frame transformer for each of some legs."""
    frames = [sn.FrameTransformerCfg.FrameCfg(body=body) for body in BODIES[1 : 1 + count]]
    joints = [sn.JointSensorCfg(name=f"joints_{k}", joints=f"joint_{k}") for k in range(count)]
    feet: list[sn.SensorCfg[Any]] = [
        sn.FrameTransformerCfg(name=f"foot_{k}", body="base", target_frames=(frame,)) for k, frame in enumerate(frames)
    ]
    return [*joints, *feet]


def mixture() -> list[sn.SensorCfg[Any]]:
    """Return 20 IMUs of all sorts and two rates, with a torch sensor among them, joint sensors and frames."""
    sorts: list[dict[str, Any]] = [
        {},
        {"acc_noise": 0.1, "gyro_random_walk": 1e-3},
        {"rate_hz": 100.0, "gyro_noise": 0.01},
        {"acceleration": "difference", "fields": "all", "acc_bias": sn.Normal(0.0, 0.1)},
        {"rate_hz": 100.0, "delay": 0.02, "jitter": 0.01, "loss": 0.2},
        {"fields": ("lin_acc_b", "quat_w"), "gravity_bias": (0.0, 0.0, 1.0), "history_length": 3},
        {"acc_noise": 0.1, "stages": (sn.stages.LowPass(cutoff_hz=20.0, fields=("lin_acc_b",)),)},
    ]
    cfgs = [cfg.replace(**sorts[k % len(sorts)]) for k, cfg in enumerate(imus(19, magnetic_field=(0.1, 0.2, 0.3)))]
    cfgs.append(sn.ImuCfg(name="many", bodies=BODIES, gyro_noise=0.1))
    cfgs.insert(8, HeightCfg(name="height", noise=0.01))
    cfgs.insert(5, sn.JointSensorCfg(name="encoders", joints=".*", position_noise=1e-3, eccentricity=(0.01, 0.0)))
    frames = (sn.FrameTransformerCfg.FrameCfg(body=".*"),)
    cfgs.append(sn.FrameTransformerCfg(name="frames", bodies=("base", "FL"), target_frames=frames, fields="all"))
    return [*cfgs, *legs(4)]


CHANGES: dict[int, Callable[[sn.Scene], object]] = {
    16: lambda scene: scene.reset([1]),
    20: lambda scene: [scene[name].set("acc_noise", 0.7, [0]) for name in scene if name in ("imu_1", "imu_6")],
    23: lambda scene: [scene[name].set("delay", 0.005) for name in scene if name == "imu_4"],
    26: lambda scene: [scene.reconfigure(name, acc_noise=0.3) for name in scene if name in ("imu_3", "imu_5")],
    29: lambda scene: (scene.engine.body_pos_w.add_(0.125), scene.update(0)),
    31: lambda scene: [scene[name].reset([2]) for name in scene if name in ("imu_0", "imu_4", "many")],
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("shards", "capture"), [(1, True), pytest.param(2, True, marks=pytest.mark.full), (4, False)])
def test_sensors_read_the_same_together_and_alone(shards: int, capture: bool) -> None:
    """Two rates, noise, delays, differences and stages, with a torch hook between them and changes at run time."""
    together = crowd(cfgs=mixture(), capture=capture)
    together.compute.shards = shards
    alone = [crowd(cfgs=[cfg], capture=False) for cfg in mixture()]
    for tick in range(38):
        for scene in (together, *alone):
            write(scene.engine, scene.tick + 1)
            scene.update()
            if tick in CHANGES:
                CHANGES[tick](scene)
            if tick == 34 and "imu_7" in scene:
                scene.remove("imu_7")
        if tick > 35:
            together.add(sn.ImuCfg(name=f"late_{tick}", body="FL", acc_noise=0.1))
        found = readings(together)
        for scene in alone:
            syn.same({name: found[name] for name in readings(scene)}, readings(scene))


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"gyro_noise": 0.01, "acc_noise": 0.1, "acc_random_walk": 0.01},
        {"delay": 0.01, "loss": 0.1, "gyro_noise": 0.01},
        {"acceleration": "difference"},
    ],
    ids=["clean", "noisy", "delayed", "differences"],
)
def test_launch_count_is_independent_of_the_number_of_imus(knobs: dict[str, Any]) -> None:
    counts = []
    for number in (1, 3, 20):
        scene = crowd(cfgs=imus(number, fields=("lin_acc_b", "ang_vel_b"), **knobs))
        for _ in range(3):
            scene.update()
            readings(scene)
        counts.append(Counter(name for segment in segments(scene) for name in kernels(segment)))
    assert counts[0] == counts[1] == counts[2] and counts[0]["_imu"] == 1


def test_launch_count_is_independent_of_the_number_of_joint_sensors_and_frame_transformers() -> None:
    for number in (1, 4):
        scene = crowd(cfgs=legs(number))
        for _ in range(3):
            scene.update()
            readings(scene)
        (segment,) = segments(scene)
        assert sorted(kernels(segment)) == ["_frames", "read_joints"]
