"""How much of sensorium a value passes through: modules imported, functions and files entered at build, step and read.

    python -m benchmarks.footprint
    python -m benchmarks.footprint imu pixel

Each case runs in a separate process with 4 environments of a `TensorEngine`, or of MuJoCo where its name says so: it
is built, takes three steps and is read once. A function counts once, also if it is called often. Bodies of modules
and classes, and comprehensions, do not count. Kernels count where they are launched, not inside.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from inspect import CO_NEWLOCALS, CO_OPTIMIZED
from pathlib import Path
from types import CodeType
from typing import Any

import sensorium as sn
from benchmarks.timing import repeats_of

Row = tuple[str, str, str]
Work = Callable[[], object]
PACKAGE = str(Path(sn.__file__).parent)
STEPS = 3
BALL = (
    '<mujoco><worldbody><body name="base"><freejoint/><geom size=".1"/><site name="base"/></body></worldbody></mujoco>'
)


def _engine(**parts: Any) -> sn.TensorEngine:
    return sn.TensorEngine(num_envs=4, dt=0.01, bodies=["base"], **parts)


def _scene(engine: Any, cfg: sn.SensorCfg[Any], field: str) -> tuple[Work, Work]:
    scene = sn.Scene(engine, [cfg])
    return scene.step, lambda: getattr(scene[cfg].data, field)


def imu() -> tuple[Work, Work]:
    """Build an IMU."""
    return _scene(_engine(), sn.ImuCfg(name="imu", body="base"), "ang_vel_b")


def imu_mujoco() -> tuple[Work, Work]:
    """Build an IMU in MuJoCo."""
    return _scene(sn.MujocoEngine(BALL, num_envs=4), sn.ImuCfg(name="imu", site="base"), "ang_vel_b")


def ray() -> tuple[Work, Work]:
    """Build a ray caster above a plane."""
    pattern = sn.patterns.GridPatternCfg(size=(0.4, 0.4))
    cfg = sn.RayCasterCfg(name="scan", body="base", pattern=pattern)
    return _scene(_engine(shapes=[sn.engines.Shape("plane", "ground")]), cfg, "ray_hits_w")


def contact() -> tuple[Work, Work]:
    """Build a contact sensor in MuJoCo."""
    cfg = sn.ContactSensorCfg(name="contact", primary=sn.ContactMatch(mode="body", pattern="base"))
    return _scene(sn.MujocoEngine(BALL, num_envs=4), cfg, "found")


def pixel() -> tuple[Work, Work]:
    """Build a depth camera above a plane."""
    cfg = sn.DepthCameraCfg(name="camera", body="base", pattern=sn.patterns.PinholeCameraPatternCfg(width=8, height=6))
    return _scene(_engine(shapes=[sn.engines.Shape("plane", "ground")]), cfg, "output")


def observation() -> tuple[Work, Work]:
    """Build an observation of an IMU."""
    scene = sn.Scene(_engine(), [sn.ImuCfg(name="imu", body="base", gyro_noise=0.01)])
    return scene.step, scene.observer("imu.ang_vel_b")


def frame() -> tuple[Work, Work]:
    """Build a server of an IMU and a client over TCP; both sides are in this process, in their threads."""
    scene = sn.Scene(_engine(), [sn.ImuCfg(name="imu", body="base")])
    server = sn.serve(scene, "tcp://127.0.0.1:0")
    got = threading.Event()
    sn.connect(server.address).sensors["imu"].listen(lambda _: got.set())

    def step() -> None:
        scene.step()
        server.poll()

    def read() -> None:
        while not got.wait(0.01):
            step()

    return step, read


CASES: dict[str, Callable[[], tuple[Work, Work]]] = {
    "imu": imu,
    "imu/mujoco": imu_mujoco,
    "ray": ray,
    "contact": contact,
    "pixel": pixel,
    "observation": observation,
    "streamed frame": frame,
}
GOALS = {"modules": "75", "build": "600 in 80", "step and read": "110 in 22"}
"""Greatest numbers for an IMU on either engine: modules, and functions and files."""


def counted(work: Callable[[], Any]) -> tuple[Any, set[CodeType]]:
    """Return the result of a call, and the functions of sensorium that it and the threads that it starts enter."""
    entered: set[CodeType] = set()

    def note(frame: Any, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    functions = CO_OPTIMIZED | CO_NEWLOCALS
    return result, {
        code for code in entered
        if code.co_flags & functions == functions and (code.co_name[0] != "<" or code.co_name == "<lambda>")
    }  # fmt: skip


def measured(name: str) -> dict[str, Any]:
    """Return the modules of one case, and functions and files of each phase."""
    (step, read), build = counted(CASES[name])
    _, steps = counted(lambda: [step() for _ in range(STEPS)])
    _, reads = counted(read)
    phases = {"build": build, "step": steps, "read": reads, "step and read": steps | reads}
    return {
        "modules": sorted(each for each in sys.modules if each.partition(".")[0] == "sensorium"),
        **{phase: (len(codes), len({code.co_filename for code in codes})) for phase, codes in phases.items()},
    }


def in_process(name: str) -> dict[str, Any]:
    """Return the result of `measured` in a new process."""
    code = (
        f"import json, sys; from benchmarks.footprint import measured; sys.stdout.write(json.dumps(measured({name!r})))"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=root, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(names: list[str] | None = None) -> list[Row]:
    """Measure the cases."""
    rows = []
    for name in (names or list(CASES))[: repeats_of(len(CASES))]:
        found = in_process(name)
        found["modules"] = len(found["modules"])
        for what, value in found.items():
            text = f"{value} imported" if what == "modules" else "{} functions in {} files".format(*value)
            goal = f"goal {GOALS[what]}" if name.startswith("imu") and what in GOALS else ""
            rows.append((f"{name}: {what}", text, goal))
    return rows


if __name__ == "__main__":
    for row in run(sys.argv[1:]):
        print(*(text.ljust(width) for text, width in zip(row, (32, 32, 0), strict=True)))
