"""The client in a Python that has only numpy, pyzmq, msgspec and this package.

The environments are real (`python -m venv`), with links to packages installed in the running environment.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE, SheetCfg, running

import sensorium as sn
from sensorium.errors import CORE_PACKAGES

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
ABSENT = ("torch", "warp", "mujoco", "mujoco_warp", "pydantic", "rich", "tyro", "tomli_w", "matplotlib", "pip")
STEPS = 20
COMPILES = r"waiting for the server at \S+: it compiles kernels, on the first run only\n"
CRATE = 1
"""Number of the body that approaches."""


def environment(folder: Path, *packages: str) -> str:
    """Create an environment with some of the installed packages and this package, and return its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in (*packages, "sensorium"):
        distribution = metadata.distribution(package)
        assert distribution.files is not None
        tops = {file.parts[0] for file in distribution.files if file.parts[0] not in ("..", "__pycache__")}
        if package == "sensorium":
            tops = {top for top in tops if top.endswith(".dist-info")}
        for top in tops:
            (site / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    (site / "sensorium.pth").write_text(f"{SRC}\n", encoding="utf-8")
    return str(folder / "bin/python")


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with the client's requirements."""
    return environment(tmp_path_factory.mktemp("light") / "env", "numpy", "pyzmq", "msgspec")


def run(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python isolated from the outside, with warnings as errors."""
    return subprocess.run(
        [python, "-I", "-W", "error", *arguments], capture_output=True, text=True, timeout=6 * PATIENCE, check=False
    )


def output_of(python: str, *arguments: str) -> str:
    """Return the output of a program without errors; it may say that the server compiles kernels."""
    done = run(python, *arguments)
    assert done.returncode == 0 and not re.sub(COMPILES, "", done.stderr), done.stderr
    return done.stdout


# The world: a robot drives towards a crate in environment 0, beside it in environment 1 -------------------------------


def scene() -> sn.Scene:
    shapes = [
        sn.engines.Shape("box", "hull", (0.5, 0.25, 0.2), body="robot/base"),
        sn.engines.Shape("box", "wood", (0.2, 0.2, 0.2), body="crate/box"),
    ]

    def motion(t: float) -> dict[str, Any]:
        x = 0.125 * round(64.0 * t)
        return {"body_pos_w": np.array([[[x, 0, 0], [3, 0, 0]], [[x, 9, 0], [3, 0, 0]]], np.float32)}

    engine = sn.TensorEngine(2, 1.0 / 64.0, bodies=("robot/base", "crate/box"), shapes=shapes, motion=motion)
    imu = sn.ImuCfg(name="imu", body="robot/base", acc_noise=0.3, rate_hz=32.0)
    return sn.Scene(engine, [imu, SheetCfg(name="sheet", columns=16384)], seed=5)


class Recorded:
    """A server in this process whose loop runs in a thread, and the readings of its sensors in each frame."""

    def __init__(self, *, lockstep: bool) -> None:
        self.scene = scene()
        self.server = sn.serve(self.scene, "tcp://127.0.0.1:0", lockstep=lockstep)
        self.shown: dict[int, dict[str, Any]] = {}
        self.watch = self.scene.watch(self._note) if lockstep else None

    def _note(self) -> None:
        readings = self.scene.publish(["imu", "sheet"], truth=True)
        self.shown[self.server.frame] = {
            "tick": self.scene.tick,
            "acc": bits(readings["imu"]["lin_acc_b"]),
            "true": bits(readings["imu"].truth["lin_acc_b"]),
            "captured": bool((readings["imu"].truth_tick == self.scene.tick).all()),
            "cells": bits(readings["sheet"]["cells"][1:]),
        }


def bits(array: Any) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Iterator[Recorded]:
    made = Recorded(lockstep=request.param == "lock-step")
    with made.server, running(made.server, step=request.param != "lock-step", hz=20.0):
        yield made
    assert made.server.counts.sessions == 0


# Tests ----------------------------------------------------------------------------------------------------------------


def test_light_environment_has_no_other_packages(light: str) -> None:
    """Heavy packages cannot be imported there; all modules of the client and the wire package can.

    Each public name works or names the package to install; presets can be looked up, but not built.
    """
    code = f"""
import importlib.util, pkgutil, sys
assert not [name for name in {ABSENT!r} if importlib.util.find_spec(name)]
import sensorium.client, sensorium.wire
for package in (sensorium.client, sensorium.wire):
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "__main__":
            importlib.import_module(f"{{package.__name__}}.{{module.name}}")
import sensorium
for name in sensorium.client.__all__:
    getattr(sensorium.client, name)
print(sensorium.__version__, sys.prefix != sys.base_prefix)
for name in [*sensorium.__all__, "Scene"]:
    try:
        getattr(sensorium, name)
    except sensorium.MissingDependencyError as error:
        text = str(error)
        assert text.startswith(f"sensorium.{{name}} needs ") and "pip install sensorium" in text, text
        assert error.__suppress_context__
    else:
        print(name)
assert sensorium.presets.presets()["bmi088"].kind == "imu"
try:
    sensorium.preset("bmi088", site="imu")
except sensorium.MissingDependencyError as error:
    assert str(error).startswith("sensorium.preset needs "), error
else:
    raise AssertionError("a config was built")
"""
    version, is_venv, *works = output_of(light, "-c", code).split()
    assert (version, is_venv) == (sn.__version__, "True")
    assert set(LIGHT) <= set(works)
    assert not {"Scene", "ImuCfg", "MujocoEngine", "Uniform", "local_client"} & set(works)


LIGHT = (
    "Attribute", "Client", "Reading", "Pose", "SensorDefinition", "Serializer", "ServerError", "StreamError",
    "UnknownNameError", "SafeDistanceEvent", "connect", "make_generic_sensor_definition",
)  # fmt: skip
"""Names of `sensorium` that a client needs, in addition to those of `sensorium.client`."""


@pytest.mark.parametrize("recorded", ["lock-step"], indirect=True)
@pytest.mark.parametrize("shared", [True, False], ids=["shared memory", "network"])
def test_light_client_listens_steps_spawns_and_synchronises(light: str, shared: bool, recorded: Recorded) -> None:
    """All received data have the server's bits; events and lanes follow from geometry."""
    arrived = json.loads(
        output_of(light, str(HERE / "light_program.py"), recorded.server.address, str(int(shared)), f"{STEPS}")
    )
    assert arrived["heavy"] == []
    assert arrived["segments"] == int(shared)
    steps = {frame: shown for frame, shown in recorded.shown.items() if shown["tick"] >= 1}
    assert [shown["tick"] for shown in steps.values()] == [*range(1, STEPS + 1)]
    for frame, shown in steps.items():
        assert arrived["sheet"][str(frame)] == [shown["tick"], shown["cells"], None, 1]
        due = shown["captured"]
        assert (str(frame) in arrived["imu"]) == due == (shown["tick"] % 2 == 0)
        if due:
            assert arrived["imu"][str(frame)] == [shown["tick"], shown["acc"], shown["true"], 0]
            assert shown["acc"] != shown["true"]
        assert arrived["bundles"][str(frame)] == {"imu": frame if due else None, "sheet": frame}
    # The box reaches 1 m before the hull, whose front is 0.5 m before its middle; the crate starts at 2.8 m.
    near = [[frame, 0, [CRATE]] for frame, shown in steps.items() if 0.125 * shown["tick"] + 1.5 >= 2.8]
    assert arrived["near"] == near and len(near) == 10
    front, back = ["front_left", "front_right"], ["back_left", "back_right"]
    assert arrived["crossed"] == [[tick, 0, "robot/base", "broken", ends] for tick, ends in ((4, front), (12, back))]
    assert arrived["bodies"] == ["robot/base", "crate/box"]
    assert arrived["pose"] == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("recorded", ["free-running"], indirect=True)
def test_plain_listener_runs_in_the_light_environment(light: str, recorded: Recorded) -> None:
    """``python -m sensorium.client`` prints the catalogue, samples as JSON, and errors as a single line."""
    address = recorded.server.address
    table = output_of(light, "-m", "sensorium.client", address)
    assert all(word in table for word in ("imu", "sheet", "world", "lin_acc_b"))
    done = run(light, "-m", "sensorium.client", address, "imu", "sheet", "--json", "--count", "4", "--env", "1")
    assert done.returncode == 0, done.stderr
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    assert {sample["sensor"] for sample in samples} == {"imu", "sheet"}
    frames = [sample["frame"] for sample in samples if sample["sensor"] == "imu"]
    assert len(frames) >= 4 and frames == sorted(set(frames))
    wrong = run(light, "-m", "sensorium.client", address, "imus")
    assert wrong.returncode == 2 and "'imus'" in wrong.stderr and "imu" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize(("package", "module"), [("pyzmq", "zmq"), ("msgspec", "msgspec")])
def test_missing_packages_are_named_with_the_fix(package: str, module: str, tmp_path: Path) -> None:
    """Client and server both name the missing package; functions without a connection still work."""
    others = [each for each in ("numpy", "pyzmq", "msgspec") if each != package]
    python = environment(tmp_path / "env", *others)
    code = """
import importlib, sys, sensorium as sn, sensorium.wire.data
print(*sys.modules)
sn.Pose(), sn.Reading, sn.Serializer, sn.SensorDefinition
for use in ("sn.connect", "sn.Client", "sn.client.FrameSync", "sn.serve", "sn.local_client", "sn.client.LaneInvasion",
            "importlib.import_module('sensorium.client')", "importlib.import_module('sensorium.stream.server')"):
    for _ in range(2):
        try:
            eval(use)
        except sn.MissingDependencyError as error:
            assert isinstance(error, ImportError)
            text = str(error)
        else:
            raise AssertionError(use)
    print(text)
"""
    loaded, *lines = output_of(python, "-c", code).splitlines()
    assert module not in loaded.split()
    assert len(lines) == 8
    for line in lines:
        assert "a simulation needs" in line
        assert f"needs {package}: pip install pyzmq msgspec, or the extra: sensorium[stream]." in line
    assert any(line.startswith("serving") for line in lines) and any(line.startswith("listening") for line in lines)
    done = run(python, "-m", "sensorium.client", "tcp://127.0.0.1:7447")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("error: listening") and package in done.stderr and done.stderr.count("\n") == 1


def test_each_command_names_the_package_to_install(light: str) -> None:
    """A line on stderr names the package and the functions that work without it, without a traceback."""
    assert output_of(light, "-m", "sensorium", "--version").strip() == f"sensorium {sn.__version__}"
    for arguments in (["--help"], ["listen", "tcp://127.0.0.1:7447"]):
        done = run(light, "-m", "sensorium", *arguments)
        assert done.returncode == 2 and not done.stdout, arguments
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ") and " needs rich, which is not installed: pip install sensorium." in line
        assert "python -m sensorium.client ADDRESS" in line


def test_client_without_numpy_reports_it(tmp_path: Path) -> None:
    python = environment(tmp_path / "env", "pyzmq", "msgspec")
    done = run(python, "-m", "sensorium.client", "tcp://127.0.0.1:7447")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: python -m sensorium.client needs numpy, which is not installed")


def test_the_core_packages_are_those_of_a_full_installation() -> None:
    """The packages named in errors are those that `pip install sensorium` installs."""
    required = [entry for entry in metadata.requires("sensorium") or () if "extra ==" not in entry]
    assert sorted(re.split(r"[^\w.-]", entry)[0] for entry in required) == sorted(CORE_PACKAGES.values())
