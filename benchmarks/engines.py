"""Cost of fresh accelerations: a tick of MujocoEngine with current derived state against a bare step of MuJoCo."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from benchmarks.timing import wall_and_cpu
from sensorium import MujocoEngine
from sensorium.demo import model_path
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY

Row = tuple[str, str, str]
Values = NDArray[np.float64]
TICKS = 20
WANTED = dict.fromkeys((BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY), "benchmark")


def _engine(num_envs: int) -> MujocoEngine:
    engine = MujocoEngine(model_path(), num_envs, keyframe="home")
    engine.prepare(WANTED)
    return engine


def fresh(num_envs: int) -> list[Row]:
    """Measure a fresh tick of the quadruped with a held control, and with one that changes every 10 or 4 ticks."""
    calls: dict[str, Callable[[], None]] = {}
    for control, every in (("held", 0), ("new every 10 ticks", 10), ("new every 4 ticks", 4)):
        engine = _engine(num_envs)
        batch = Batch(engine.model, num_envs, engine.batch.nthread)
        batch.reset(keyframe=0)

        def observed(engine: MujocoEngine = engine) -> None:
            engine.step()
            engine.refresh()

        sides = {"bare": (batch.bind("ctrl"), batch.step), "fresh": (engine.ctrl.numpy(), observed)}
        for side, (ctrl, step) in sides.items():
            calls[f"{control}: {side}"] = partial(_ticks, ctrl, ctrl.copy(), step, every, count())
    times = wall_and_cpu(calls, repeats=max(1, 64 // num_envs), rounds=9)
    rows = []
    for name, (wall, cpu) in times.items():
        base_wall, base_cpu = times[f"{name.partition(':')[0]}: bare"]
        ratio = "baseline" if name.endswith("bare") else f"{wall / base_wall:.2f} x bare, CPU {cpu / base_cpu:.2f} x"
        what = f"quadruped, a tick, {num_envs} envs, control {name}"
        rows.append((what, f"{wall / TICKS * 1e3:.2f} ms, CPU {cpu / TICKS * 1e3:.2f} ms", ratio))
    return rows


def _ticks(ctrl: Values, home: Values, step: Callable[[], None], every: int, numbers: Iterator[int]) -> None:
    """Take `TICKS` ticks; the control alternates between two values."""
    for _ in range(TICKS):
        tick = next(numbers)
        if every and tick % every == 0:
            ctrl[...] = home + 0.01 * (tick // every % 2)
        step()
