"""Cost of fresh accelerations and of sensors: ticks and control steps of MujocoEngine against bare steps of MuJoCo.

Both sides of a ratio take turns, and the ratio is the median over their rounds. Trajectories have no bare step: they
are compared with real time.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, product

import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from benchmarks.gpu_cases import CONTACT, ENCODERS, IMU, height_scan
from benchmarks.timing import repeats_of, wall_and_cpu
from sensorium import ImuCfg, MujocoEngine, Scene, TrajectoryEngine
from sensorium.demo import hall, model_path
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY

Row = tuple[str, str, str]
Values = NDArray[np.float64]
Calls = dict[str, Callable[[], None]]
STEPS = 20
WANTED = dict.fromkeys((BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY), "benchmark")
CORES = {"1 core": 1, "all cores": None}
CONTROLS = {"held": 0, "new every 10 ticks": 10, "new every 4 ticks": 4, "new at each tick": 1}
SUBSTEPS = 5
"""Ticks of a control step of the demo, 10 ms."""
SENSORS = (IMU, ENCODERS, CONTACT, height_scan(SUBSTEPS * 0.002))
"""Sensors of a walking robot: all but the height scan are sampled at each tick."""


def fresh(num_envs: int) -> list[Row]:
    """Measure a tick of the quadruped on one core and on all, with a held control and with controls that change."""
    calls: Calls = {}
    for (cores, threads), (control, every) in product(CORES.items(), CONTROLS.items()):
        engine = MujocoEngine(model_path(), num_envs, keyframe="home", threads=threads)
        engine.prepare(WANTED)
        batch = _bare(engine)
        sides = {"bare": (batch.bind("ctrl"), batch.step), "fresh": (engine.ctrl.numpy(), partial(_observed, engine))}
        for side, (ctrl, step) in sides.items():
            calls[f"{cores}, control {control}: {side}"] = partial(_steps, ctrl, ctrl.copy(), step, every, count())
    return _rows(f"quadruped, a tick, {num_envs} envs", calls, max(9, 1600 // num_envs))


def control_step(num_envs: int) -> list[Row]:
    """Measure a control step of 5 ticks, held or new, with current derived state and with all sensors read."""
    calls: Calls = {}
    for (cores, threads), (control, every) in product(CORES.items(), {"held": 0, "new": 1}.items()):
        engine, sensed = (MujocoEngine(model_path(), num_envs, keyframe="home", threads=threads) for _ in range(2))
        batch = _bare(engine)
        engine.prepare(WANTED)
        scene = Scene(sensed, SENSORS)
        steps = {
            "bare": (batch.bind("ctrl"), partial(batch.step, nstep=SUBSTEPS)),
            "fresh": (engine.ctrl.numpy(), partial(_observed, engine, SUBSTEPS)),
            "fresh, with sensors": (sensed.ctrl.numpy(), partial(_sensed, scene)),
        }
        for side, (ctrl, step) in steps.items():
            calls[f"{cores}, control {control}: {side}"] = partial(_steps, ctrl, ctrl.copy(), step, every, count())
    return _rows(f"quadruped, a control step, {num_envs} envs", calls, max(5, 640 // num_envs))


def trajectory(num_envs: int) -> list[Row]:
    """Measure samples of an IMU at 200 Hz with noise on a trajectory, at time steps of 1 ms, against real time."""
    scene = Scene(
        TrajectoryEngine(hall.drone(), num_envs=num_envs), [ImuCfg(body="body", rate_hz=200.0, gyro_noise=0.01)]
    )

    def samples() -> None:
        scene.reset()
        for _ in range(repeats_of(10_000)):
            scene.step(None, 5)

    cpu = float(np.median(wall_and_cpu({"": samples}, 5)[""][:, 1])) / repeats_of(10_000)
    return [
        (f"IMU at 200 Hz on a trajectory, {num_envs} envs", f"CPU {cpu * 1e6:.1f} us", f"{0.005 / cpu:.0f} x real time")
    ]


def _bare(engine: MujocoEngine) -> Batch:
    batch = Batch(engine.model, engine.num_envs, engine.batch.nthread)
    batch.reset(keyframe=0)
    return batch


def _rows(what: str, calls: Calls, rounds: int) -> list[Row]:
    times = wall_and_cpu(calls, rounds)
    rows = []
    for name, taken in times.items():
        wall, cpu = np.median(taken, axis=0) / repeats_of(STEPS) * 1e3
        ratios = np.median(taken / times[f"{name.partition(':')[0]}: bare"], axis=0)
        ratio = "baseline" if name.endswith("bare") else f"{ratios[0]:.2f} x bare, CPU {ratios[1]:.2f} x"
        rows.append((f"{what}, {name}", f"{wall:.2f} ms, CPU {cpu:.2f} ms", ratio))
    return rows


def _observed(engine: MujocoEngine, ticks: int = 1) -> None:
    for _ in range(ticks):
        engine.step()
        engine.refresh()


def _sensed(scene: Scene) -> None:
    scene.step(None, SUBSTEPS)
    for cfg in SENSORS:
        _ = scene[cfg].data


def _steps(ctrl: Values, home: Values, step: Callable[[], None], every: int, numbers: Iterator[int]) -> None:
    """Take `STEPS` steps; the control alternates between two values."""
    for _ in range(repeats_of(STEPS)):
        number = next(numbers)
        if every and number % every == 0:
            ctrl[...] = home + 0.01 * (number // every % 2)
        step()
