"""`sensorium warmup`: precompiles the kernels, once for all processes that share a cache."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pkgutil
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.markup import escape
from tyro.conf import arg

from sensorium.cli.arguments import unset
from sensorium.cli.explain import bytes_text
from sensorium.cli.messages import note, progress, stderr, stdout
from sensorium.errors import listed
from sensorium.jobs.models import EngineName

BINARIES = (".o", ".ptx", ".cubin")
"""Suffixes of compiled kernels in Warp's cache."""


@dataclass
class Warmup:
    """Precompile all kernels, so that no simulation waits for a compiler.

    Kernels are compiled on first use and kept in a cache on disk. Every new machine and every new container image
    spends half a minute on this in its first run, and so does every one of N ranks that start together. Run this
    command once on each, as the user who simulates; all processes with that cache then load the kernels in
    milliseconds.

    The cache is a folder, whose path is printed. Set the environment variable WARP_CACHE_PATH to move it, for example
    to a disk that all ranks share, or into the image. Compiled kernels fit one version of sensorium and of Warp, and
    one kind of CPU or GPU: run the command again after an update.

    With --model it also runs that model for one step on the engine, whose kernels depend on the model.

    For example:
      sensorium warmup
      sensorium warmup --device cuda:0
      sensorium warmup --device cuda --model robot.xml --envs 4096
      WARP_CACHE_PATH=/shared/warp sensorium warmup && torchrun --nproc-per-node 8 train.py
    """

    device: Annotated[tuple[str, ...], arg(metavar="D [D ...]")] = ("all",)
    """Devices of the sensors: cpu, cuda, cuda:INDEX, several of them, or all: the CPU and one GPU of each kind."""
    model: Annotated[Path | None, unset("MODEL", "none")] = None
    """MJCF or URDF file: also compile the engine's kernels for it."""
    engine: Literal["mujoco_warp", "newton"] = "mujoco_warp"
    """Engine of the model. The engine mujoco has no kernels."""
    envs: Annotated[int, arg(metavar="N")] = 1
    """Number of environments of the model, as in your runs: some kernels depend on it."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.cli.checks import check_envs, check_files

        check_envs(self.envs)
        check_files(self.model, None)
        devices = _devices(self.device)
        modules, skipped = kernel_modules()
        for name, reason in skipped.items():
            note(f"not compiled: {name} ({reason})")
        console = stdout()
        for device in devices:
            start = time.perf_counter()
            compiled = _compile(modules, device)
            took = time.perf_counter() - start
            console.print(
                f"[bold]{device}[/]: {len(modules)} modules of kernels, {_counted(compiled, took)}", soft_wrap=True
            )
            if self.model is not None:
                start = time.perf_counter()
                compiled = _simulate(self.model, self.envs, device, self.engine)
                took = time.perf_counter() - start
                console.print(
                    f"[bold]{device}[/]: {escape(str(self.model))} on {self.engine}, {_counted(compiled, took)}",
                    soft_wrap=True,
                )
        cache = kernel_cache()
        console.print(f"cache: {escape(str(cache))} ({bytes_text(_size(cache))})", soft_wrap=True)
        console.print(
            "To move it, set WARP_CACHE_PATH=DIR for this command and for your runs, or "
            "warp.config.kernel_cache_dir at the start of a script.",
            soft_wrap=True,
        )
        return 0


def kernel_cache() -> Path:
    """Return the folder where Warp keeps compiled kernels."""
    import warp as wp

    return Path(wp.config.kernel_cache_dir)


def _size(folder: Path) -> int:
    """Return bytes of the files in a folder; other processes may remove files meanwhile."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(os.path.join(place, name)).st_size
    return size


def kernel_modules() -> tuple[list[Any], dict[str, str]]:
    """Import all modules of this package and the installed plugins, and return their Warp modules with kernels.

    Returns:
        The Warp modules, sorted by name; and modules with kernels that could not be imported, each with the reason,
        such as an extra that is not installed.
    """
    import warp as wp

    import sensorium
    from sensorium.compute.loading import DECLARED
    from sensorium.registry import registered

    skipped = {}
    for info in pkgutil.walk_packages(sensorium.__path__, "sensorium."):
        if info.name.split(".")[1] == "cli" or info.name.endswith(".__main__"):  # has no kernels, or is a program
            continue
        try:
            importlib.import_module(info.name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "sensorium":
                raise
            spec = importlib.util.find_spec(info.name)
            if spec is not None and spec.origin and "@kernel" in Path(spec.origin).read_text(encoding="utf-8"):
                skipped[info.name] = str(error)
    packages = {"sensorium", *(sensor.__module__.partition(".")[0] for sensor in registered().values())}
    found = {kernel.module.name: kernel.module for kernel in DECLARED}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            kernels = [value for value in vars(module).values() if isinstance(value, wp.Kernel)]
            found.update({kernel.module.name: kernel.module for kernel in kernels})
    return [found[name] for name in sorted(found)], skipped


def _devices(names: Iterable[str]) -> list[str]:
    """Return canonical device names without repetition; for "all" the CPU and the first GPU of each architecture."""
    import warp as wp

    from sensorium.cli.simulation import check_device
    from sensorium.compute import cuda_devices

    chosen: dict[str, None] = {}
    for name in names or ("all",):
        if name != "all":
            chosen[check_device(name)] = None
            continue
        chosen[check_device("cpu")] = None
        of_kind: dict[int, list[str]] = {}
        for device in cuda_devices():
            of_kind.setdefault(wp.get_device(device).arch, []).append(device)
        for same in of_kind.values():
            chosen[same[0]] = None
            if same[1:]:
                note(f"{same[0]} represents {listed(same[1:])}, of the same architecture")
    return list(chosen)


def _compile(modules: list[Any], device: str) -> int:
    """Load modules on a device, with a progress bar, and return how many had to be compiled."""
    from sensorium.compute.loading import load_modules

    before = _binaries()
    with progress(f"compiling for {device}", len(modules)) as show_progress:
        for done, module in enumerate(load_modules(modules, device), start=1):
            show_progress(done, text=module.name)
    return len(_binaries() - before)


def _simulate(model: Path, envs: int, device: str, engine: EngineName) -> int:
    """Run a model for one step on an engine and return how many modules were compiled for it."""
    from sensorium.compute import native_silence
    from sensorium.jobs.models import load_model
    from sensorium.scene import Scene

    before = _binaries()
    with stderr().status(f"{model.name} on {device}"), native_silence():
        scene = Scene(load_model(model, envs, device, engine))
        scene.step()
        scene.reset()
    return len(_binaries() - before)


def _binaries() -> set[tuple[str, str]]:
    """Return the compiled files, as (folder, file); files that another process is writing are omitted."""
    return {
        (folder.name, path.name)
        for folder in kernel_cache().glob("wp_*")
        if not re.search(r"_p\d+_t\d+$", folder.name)
        for path in folder.glob("*")
        if path.suffix in BINARIES
    }


def _counted(compiled: int, seconds: float) -> str:
    return f"{compiled or 'none'} compiled now, {seconds:.1f} s"
