"""Cost of a scene besides the chain: idle sensors, sensors computed on read, two IMUs, memory, start-up."""

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from torch import Tensor

from benchmarks.timing import interleaved
from sensorium import Field, ImuCfg, MujocoEngine, Scene, SimpleSensor, SimpleSensorCfg, TensorEngine
from sensorium.demo import model_path

Row = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class WideData:
    """Many columns."""

    value: Annotated[Tensor, Field("1")]


class WideCfg(SimpleSensorCfg[WideData]):
    """A sensor with any number of columns."""

    columns: int = 16


class Wide(SimpleSensor[WideCfg, WideData]):
    """Writes the tick into every column."""

    def fields(self) -> dict[str, Field]:
        """Return one field of the configured width."""
        return {"value": Field("1", (self.cfg.columns,))}

    def update_raw_data(self, raw: Any) -> None:
        """Fill."""
        raw.value.fill_(float(self.clock.tick))


def _engine(num_envs: int = 1) -> TensorEngine:
    return TensorEngine(num_envs, 0.002, provides=("pose", "velocity", "acceleration", "gravity"))


def idle() -> list[Row]:
    """Measure an idle sensor and an unread one that is computed on read, at two sizes. The cost must be equal."""
    rows = []
    for what, knobs in (("not due in the run", {"rate_hz": 1e-3, "noise": 0.1}), ("computed on read, unread", {})):
        scenes = {
            "no sensor": Scene(_engine(64), []),
            "16 columns": Scene(_engine(64), [WideCfg(columns=16, **knobs)]),
            "16384 columns": Scene(_engine(64), [WideCfg(columns=16384, **knobs)]),
        }
        seconds = interleaved({name: scene.update for name, scene in scenes.items()}, repeats=2000)
        for name, value in seconds.items():
            ratio = "baseline" if name == "no sensor" else f"{value / seconds['no sensor']:.2f} x no sensor"
            rows.append((f"one tick, 64 envs, sensor {what}: {name}", f"{value * 1e6:.2f} us", ratio))
    return rows


def two_imus() -> list[Row]:
    """Measure a step of two noisy IMUs in one env, read at each step."""
    imu = {"acc_noise": 0.1, "gyro_noise": 0.01, "body": "body"}
    rows = []
    for capture in (False, True):
        scene = Scene(
            _engine(), [ImuCfg(name="a", **imu), ImuCfg(name="b", delay=0.004, **imu)], capture=capture
        )  # fmt: skip

        def step(scene: Scene = scene) -> object:
            scene.update()
            return scene["a"].data, scene["b"].data

        seconds = interleaved({"step": step}, repeats=1000)["step"]
        mode = "captured" if capture else "launches"
        what = f"two noisy IMUs (one delayed), 1 env, a step with both reads: {mode}"
        rows.append((what, f"{seconds * 1e6:.1f} us", ""))
    return rows


def with_physics() -> list[Row]:
    """Measure a control step of 5 ticks of the walking quadruped, with and without two IMUs."""
    rows = []
    for num_envs in (1, 64, 1024):
        bare = MujocoEngine(model_path(), num_envs=num_envs, keyframe="home")
        scene = Scene(
            MujocoEngine(model_path(), num_envs=num_envs, keyframe="home"),
            [
                ImuCfg(name="trunk", site="imu", gyro_noise=0.01, acc_noise=0.1),
                ImuCfg(name="foot", site="FL_foot_imu", rate_hz=200, delay=0.004, acc_noise=0.1),
            ],
        )

        def sensed(scene: Scene = scene) -> object:
            scene.step(None, 5)
            return scene["trunk"].data, scene["foot"].data

        calls = {"physics alone": lambda bare=bare: bare.step(None, 5), "with two IMUs": sensed}
        seconds = interleaved(calls, repeats=max(5, 200 // num_envs), rounds=5)
        for name, value in seconds.items():
            ratio = "baseline" if name == "physics alone" else f"{value / seconds['physics alone']:.2f} x physics"
            rows.append((f"quadruped, 5 ticks, {num_envs} env(s): {name}", f"{value * 1e3:.2f} ms", ratio))
    return rows


def memory() -> list[Row]:
    """Compare the memory of sensors with their payload."""
    rows = []
    cases = [
        ("clean, 1000 columns x 256 envs", WideCfg(columns=1000), 256, 4000),
        ("clean IMU x 4096 envs", ImuCfg(body="body"), 4096, 36),
        ("noisy IMU x 4096 envs", ImuCfg(body="body", acc_noise=0.1), 4096, 36),
        ("noisy, delayed by 2 ticks, IMU x 4096 envs", ImuCfg(body="body", acc_noise=0.1, delay=0.004), 4096, 36),
    ]
    for name, cfg, num_envs, payload in cases:
        nbytes = Scene(_engine(num_envs), [cfg])[cfg].info.nbytes
        rows.append((f"memory: {name}", f"{nbytes / 1e3:.0f} kB", f"{nbytes / (payload * num_envs):.2f} x payload"))
    return rows


def commands() -> list[Row]:
    """Whole processes: the import, and commands that simulate nothing, against the import of their dependencies."""
    processes = {
        "import torch and warp": ["-c", "import torch, warp"],
        "import sensorium": ["-c", "import sensorium"],
        "sensorium --help": ["-m", "sensorium.cli", "--help"],
        "sensorium list": ["-m", "sensorium.cli", "list"],
    }

    def call(arguments: list[str]) -> object:
        return subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    calls = {name: partial(call, arguments) for name, arguments in processes.items()}
    seconds = interleaved(calls, repeats=1, rounds=3, warm_up=1)
    base = seconds["import torch and warp"]
    return [
        (f"process: {name}", f"{value:.2f} s", "baseline" if value == base else f"{value / base:.2f} x the import")
        for name, value in seconds.items()
    ]


def discovery() -> list[Row]:
    """Measure scenes on models that declare few or many sensors: the cost per sensor before the first read."""
    rows = []
    for count in (0, 100, 1000):
        declared = "".join(f'<gyro name="gyro_{k}" site="here"/>' for k in range(count))
        body = "<body><freejoint/><geom size='1'/><site name='here'/></body>"
        xml = f"<mujoco><worldbody>{body}</worldbody><sensor>{declared}</sensor></mujoco>"
        engine = MujocoEngine(xml)
        engine.native_sensors()  # the model is compiled

        seconds = interleaved({"scene": partial(Scene, engine, [])}, repeats=1, rounds=5)["scene"]
        each = f"{seconds / count * 1e6:.0f} us each" if count else ""
        rows.append((f"a scene on a model that declares {count} sensors", f"{seconds * 1e3:.2f} ms", each))
    return rows
