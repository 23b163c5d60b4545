"""Cost of fresh accelerations: a tick of MujocoEngine with current derived state against a bare step of MuJoCo."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, product

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
CONTROLS = {"held": 0, "new every 10 ticks": 10, "new every 4 ticks": 4}


def fresh(num_envs: int) -> list[Row]:
    """Measure a tick of the quadruped on one core and on all, with a held control and with controls that change."""
    calls: dict[str, Callable[[], None]] = {}
    for (cores, threads), (control, every) in product({"1 core": 1, "all cores": None}.items(), CONTROLS.items()):
        engine = MujocoEngine(model_path(), num_envs, keyframe="home", threads=threads)
        engine.prepare(WANTED)
        batch = Batch(engine.model, num_envs, engine.batch.nthread)
        batch.reset(keyframe=0)
        sides = {"bare": (batch.bind("ctrl"), batch.step), "fresh": (engine.ctrl.numpy(), partial(_observed, engine))}
        for side, (ctrl, step) in sides.items():
            calls[f"{cores}, control {control}: {side}"] = partial(_ticks, ctrl, ctrl.copy(), step, every, count())
    times = wall_and_cpu(calls, rounds=max(9, 1600 // num_envs))
    rows = []
    for name, (wall, cpu) in times.items():
        base_wall, base_cpu = times[f"{name.partition(':')[0]}: bare"]
        ratio = "baseline" if name.endswith("bare") else f"{wall / base_wall:.2f} x bare, CPU {cpu / base_cpu:.2f} x"
        size = f"{wall / TICKS * 1e3:.2f} ms, CPU {cpu / TICKS * 1e3:.2f} ms"
        rows.append((f"quadruped, a tick, {num_envs} envs, {name}", size, ratio))
    return rows


def _observed(engine: MujocoEngine) -> None:
    engine.step()
    engine.refresh()


def _ticks(ctrl: Values, home: Values, step: Callable[[], None], every: int, numbers: Iterator[int]) -> None:
    """Take `TICKS` ticks; the control alternates between two values."""
    for _ in range(TICKS):
        tick = next(numbers)
        if every and tick % every == 0:
            ctrl[...] = home + 0.01 * (tick // every % 2)
        step()
