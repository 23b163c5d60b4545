"""`sensorium warmup` compiles all kernels that a scene needs, once for all processes that share the cache."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
import warp as wp
from nursery import COMMAND, PATIENCE, Nursery
from selection import gate

from sensorium import cli
from sensorium.cli import main
from sensorium.cli import warmup as module
from sensorium.cli.warmup import kernel_modules
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.demo import model_path

SCENE = """
import hashlib
import sys
import sensorium as sn
import sensorium.compute
import warp as wp

wp.config.log_level = wp.LOG_INFO  # it then says of each module whether it was compiled
XML = '''<mujoco><worldbody><geom type="plane" size="5 5 0.1"/>
<body name="ball" pos="0 0 0.11"><freejoint/><geom name="ball" size="0.1"/></body></worldbody></mujoco>'''
sensors = [
    sn.ImuCfg(name="imu", body="ball", gyro_noise=0.01, gyro_random_walk=0.01, delay=0.004),
    sn.ContactSensorCfg(name="contact", primary=sn.ContactMatch(mode="body", pattern="ball"), fields=("found",)),
    sn.RayCasterCfg(name="scan", body="ball", pattern=sn.patterns.GridPatternCfg(size=(0.4, 0.4)), noise=0.01),
]
scene = sn.Scene(sn.MujocoEngine(XML, 2, threads=1), sensors[: int(sys.argv[1])], seed=1)
for _ in range(20):
    scene.step()
scene.reset([0])
seen = hashlib.sha256()
for reading in scene.publish().values():
    for name in reading.measured:
        seen.update(reading.measured[name].tobytes())
print("READINGS", seen.hexdigest())
"""


def warm_up(nursery: Nursery, cache: Path) -> str:
    """Run the command in a separate process and return its output."""
    program = nursery.program(COMMAND, "warmup", "--device", "cpu", bare=True, WARP_CACHE_PATH=str(cache))
    assert program.wait(10.0 * PATIENCE) == 0, program.err
    return program.out


def run_scenes(
    nursery: Nursery, cache: Path, sensors: int, processes: int = 1
) -> list[tuple[str, list[str], list[str]]]:
    """Run the scene in processes that start simultaneously.

    Returns:
        For each process, a digest of the readings, the modules that it compiled and those that it found compiled.
    """
    running = [nursery.program(SCENE, str(sensors), bare=True, WARP_CACHE_PATH=str(cache)) for _ in range(processes)]
    results = []
    for program in running:
        assert program.wait(10.0 * PATIENCE) == 0, program.err
        digest = re.search(r"READINGS (\w+)", program.out)
        loads = re.findall(r"Module (\S+) \w+ load on device 'cpu' took .* \((\w+)\)", program.out)
        assert digest is not None and loads, program.out
        compiled, cached = ([name for name, how in loads if how == word] for word in ("compiled", "cached"))
        results.append((digest[1], compiled, cached))
    return results


def own_modules() -> set[str]:
    """Return the names of this package's modules with kernels; tests in the same process define further sensors."""
    return {each.name for each in kernel_modules()[0] if each.name.startswith("sensorium.")}


@pytest.fixture(scope="module", params=gate(["cache of the tests", "empty cache"], {"cache of the tests"}))
def warm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, nursery: Nursery
) -> tuple[Path, str]:
    """A cache that the command filled, and the command's output; in the gate other tests have filled most of it."""
    cache = tmp_path_factory.mktemp("cache")
    if request.param == "cache of the tests":
        wp.init()
        cache = Path(wp.config.kernel_cache_dir).parent
    return cache, warm_up(nursery, cache)


@pytest.mark.slow
def test_all_kernels_are_compiled_once(
    warm: tuple[Path, str], request: pytest.FixtureRequest, nursery: Nursery
) -> None:
    """The first run compiles each module into the cache that it names; the second run finds all."""
    cache, said = warm
    modules = own_modules()
    is_empty = "empty" in request.node.callspec.id
    compiled = str(len(modules)) if is_empty else r"(none|\d+)"
    assert re.search(rf"^cpu: {len(modules)} modules of kernels, {compiled} compiled now, [\d.]+ s$", said, re.M)
    assert f"cache: {cache / wp.__version__} (" in said and "WARP_CACHE_PATH" in said
    found = list((cache / wp.__version__).glob("wp_sensorium.*/*.o"))
    assert len(found) == len(modules) if is_empty else len(found) >= len(modules)
    said = warm_up(nursery, cache)
    assert re.search(rf"^cpu: {len(modules)} modules of kernels, none compiled now, [\d.]+ s$", said, re.M)


@pytest.mark.slow
def test_scene_after_warmup_compiles_nothing(warm: tuple[Path, str], nursery: Nursery) -> None:
    """An IMU, a contact sensor and rays run in a new process from the cache."""
    ((_, compiled, cached),) = run_scenes(nursery, warm[0], 3)
    assert compiled == []
    assert len(cached) > 8 and all(name.startswith("sensorium.") for name in cached)


@pytest.mark.slow
def test_ranks_that_start_at_once_share_an_empty_cache(tmp_path: Path, nursery: Nursery) -> None:
    """Two processes that compile into one empty cache at the same time both finish, with equal numbers."""
    (first, compiled, _), (second, _, _) = run_scenes(nursery, tmp_path, 1, processes=2)
    assert first == second
    assert compiled  # the cache was empty
    assert not [path for path in (tmp_path / wp.__version__).iterdir() if re.search(r"_p\d+_t\d+$", path.name)]


def test_every_module_with_kernels_is_found() -> None:
    """The modules found from the package's names agree with those registered in Warp."""
    found = own_modules()
    known = wp._src.context.user_modules
    expected = {name for name, each in known.items() if name.startswith("sensorium.") and each.kernels}
    assert found == expected and len(found) >= 50


def test_kernels_of_an_installed_plugin_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of a sensor are compiled whichever package registered it."""
    path = tmp_path / "wind_for_test.py"
    path.write_text("import warp as wp\n\n@wp.kernel\ndef blow(x: wp.array[float]) -> None:\n    x[0] = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugin = __import__("wind_for_test")
    monkeypatch.setitem(sys.modules, "wind_for_test", plugin)
    sensor = type("Wind", (), {"__module__": "wind_for_test"})
    monkeypatch.setattr("sensorium.registry.registered", lambda: {object: sensor})
    assert "wind_for_test" in {each.name for each in kernel_modules()[0]}


def test_modules_of_missing_extras_are_omitted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with kernels that cannot be imported is named with the reason; a fault of the package is raised."""
    asked = module.importlib.import_module

    def without(name: str) -> types.ModuleType:
        if name == "sensorium.sensors.inertial.gnss":
            raise ModuleNotFoundError("No module named 'galileo'", name="galileo")
        return asked(name)

    monkeypatch.setattr(module.importlib, "import_module", without)
    assert kernel_modules()[1] == {"sensorium.sensors.inertial.gnss": "No module named 'galileo'"}

    def broken(name: str) -> types.ModuleType:
        raise ModuleNotFoundError("No module named 'sensorium.nowhere'", name="sensorium.nowhere")

    monkeypatch.setattr(module.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        kernel_modules()


def test_devices_are_named_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For "all", a single GPU represents each architecture; duplicate devices are compiled once."""
    architectures = {"cuda:0": 90, "cuda:1": 90, "cuda:2": 89}
    monkeypatch.setattr("sensorium.compute.cuda_devices", lambda: list(architectures))
    monkeypatch.setattr(wp, "get_device", lambda name: types.SimpleNamespace(arch=architectures[name]))
    assert module._devices(["all", "cpu"]) == ["cpu", "cuda:0", "cuda:2"]
    assert "cuda:0 represents cuda:1, of the same architecture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--device", "gpu"], ["--device: got 'gpu'", "use --device cuda"]),
        (["--device", "cpu", "cuda:99"], ["--device: got 'cuda:99'"]),
        (["--model", "robt.xml"], ["model file", "'robt.xml'", "does not exist"]),
        (["--envs", "0"], ["--envs", ">= 1"]),
        (["--arch", "90"], ["--arch: got '90'", "sm_90"]),
        (["--arch", "sm_90", "--model", "ROBOT"], ["--model", "use --device instead of --arch"]),
        (["--engine", "mujoco", "--model", "robot.xml"], ["mujoco_warp", "newton"]),
    ],
)
def test_a_wrong_option_is_explained(
    options: list[str], parts: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong option ends the command before any compilation, and without a traceback."""
    for name in ("_compile", "compile_for_arch"):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("it compiled"))
    assert main(["warmup", *(str(model_path()) if each == "ROBOT" else each for each in options)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    for part in parts:
        assert part in said
    assert "Traceback" not in said


@kernel
def _tiny(rows: Rows, out: wp.array[wp.float32]) -> None:
    env = masked_tid(rows)
    out[env] = float(env)


def test_kernels_for_an_absent_gpu_are_found_by_a_machine_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command writes the very files for which Warp looks on a GPU of that kind, which then compiles nothing."""
    wp.init()
    if 90 not in wp.get_cuda_supported_archs():
        pytest.skip("this build of Warp has no compiler for sm_90")
    monkeypatch.setattr(module, "kernel_modules", lambda: ([_tiny.module], {}))
    monkeypatch.setattr(wp.config, "kernel_cache_dir", wp.config.kernel_cache_dir)  # restored at the end
    monkeypatch.setenv("WARP_CACHE_PATH", "elsewhere")
    assert main(["warmup", "--arch", "sm_90", "--to", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "sm_90: 1 modules of kernels, 1 compiled now" in said and f"WARP_CACHE_PATH={tmp_path}" in said
    gpu: Any = object.__new__(wp._src.context.Device)
    gpu.runtime, gpu.alias, gpu.ordinal, gpu.arch, gpu.is_cubin_supported = (
        wp._src.context.runtime,
        "cuda:0",
        0,
        90,
        True,
    )
    tiny = _tiny.module
    folder = tmp_path / wp.__version__ / tiny.get_module_identifier()
    assert (folder / tiny._get_compile_output_name(gpu)).is_file() and (folder / tiny._get_meta_name()).is_file()
    monkeypatch.setattr(wp._src.build, "build_cuda", lambda *_, **__: pytest.fail("it compiled"))
    assert not tiny._compile(gpu, folder, output_arch=tiny._get_compile_arch(gpu))


def test_cache_size_is_robust_to_concurrent_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders and files that vanish during the count are ignored."""
    for name in ("wp_a/a.o", "wp_a_p1_t2/a.o", "wp_b/b.o"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"1234")
    scan, stat = os.scandir, os.stat

    def vanished(path: Any) -> Any:
        if "_p1_t2" in os.fspath(path):
            raise FileNotFoundError(path)
        return scan(path)

    def removed(path: Any, **options: Any) -> Any:
        if os.fspath(path).endswith("b.o"):
            raise FileNotFoundError(path)
        return stat(path, **options)

    monkeypatch.setattr(os, "scandir", vanished)
    monkeypatch.setattr(os, "stat", removed)
    assert module._size(tmp_path) == 4


def test_help_explains_when_to_use_warmup(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["warmup", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for part in ("N ranks", "WARP_CACHE_PATH", "sensorium warmup --device cuda --model robot.xml --envs 4096"):
        assert part in said


PENDULUM = """
<mujoco><worldbody><body name="arm" pos="0 0 1"><joint name="hinge" axis="0 1 0"/><geom size="0.1"/></body></worldbody>
</mujoco>
"""


@pytest.mark.slow
def test_a_model_is_stepped_on_its_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --model the engine's kernels are compiled too: the second time none is left."""
    model = tmp_path / "pendulum.xml"
    model.write_text(textwrap.dedent(PENDULUM))
    monkeypatch.setattr(module, "kernel_modules", lambda: ([], {}))
    for _ in range(2):
        assert main(["warmup", "--device", "cpu", "--model", str(model), "--envs", "2"]) == 0
        said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"pendulum\.xml on mujoco_warp, none compiled now", said)
