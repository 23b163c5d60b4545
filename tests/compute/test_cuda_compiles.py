"""CUDA compilation: every kernel compiles, also on a machine without a GPU, because Warp includes the compiler."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import warp as wp
from selection import gate

from sensorium.cli.warmup import kernel_modules

ARCH = 90
"""Compute capability 9.0, of an H100 or H200."""


def compiled(modules: Sequence[Any], folder: Path | None = None) -> tuple[dict[str, Path], dict[str, str]]:
    """Compile modules to PTX, in Warp's cache or in a folder.

    Returns:
        Module name to its PTX; for modules that do not compile, the start of the error message.
    """

    def compile_one(module: Any) -> Path | str:
        try:
            (path,) = wp.compile_aot_module(module, arch=ARCH, module_dir=folder, use_ptx=True)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:2000]
        return Path(path)

    with ThreadPoolExecutor(2) as pool:
        results = dict(zip([module.name for module in modules], pool.map(compile_one, modules), strict=True))
    paths = {name: result for name, result in results.items() if isinstance(result, Path)}
    return paths, {name: result for name, result in results.items() if isinstance(result, str)}


def of_each_package(modules: Sequence[Any]) -> list[Any]:
    """Return, for each package of `sensorium` with kernels, the module with the most source."""
    largest: dict[str, Any] = {}
    for module in sorted(modules, key=lambda each: sum(len(k.adj.source) for k in each.kernels.values())):
        package, *rest = next(iter(module.kernels.values())).func.__module__.split(".")
        if package == "sensorium":  # not the kernels of tests
            largest[rest[0]] = module
    return list(largest.values())


@pytest.mark.slow
@pytest.mark.parametrize("kernels", gate(["largest of each package", "all"], {"largest of each package"}))
def test_every_kernel_compiles_for_cuda(kernels: str) -> None:
    """The gate compiles the largest module of each package; the full form all of them, for a minute."""
    modules, _ = kernel_modules()
    if kernels != "all":
        modules = of_each_package(modules)
    paths, faults = compiled(modules)
    assert faults == {}
    count = 0
    for module in modules:
        entries = [line for line in paths[module.name].read_text().splitlines() if ".entry" in line]
        for kernel in module.kernels.values():
            assert any(kernel.key in line for line in entries), (module.name, kernel.key)
            count += 1
    assert count > (100 if kernels == "all" else 4)


SOURCE = '''
import warp as wp

@wp.func_native("""{body}""")
def native(x: float) -> float: ...

@wp.kernel
def run(values: wp.array[float]) -> None:
    values[0] = native(values[0])
'''


@pytest.mark.parametrize(
    ("body", "compiles"), [("return 2.0f * x;", True), ("return __builtin_nontemporal_load(&x);", False)]
)
def test_cpu_only_kernel_is_found(tmp_path: Path, body: str, compiles: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """A snippet that calls a function known only to the CPU compiler."""
    name = f"native_for_test_{int(compiles)}"
    path = tmp_path / f"{name}.py"
    path.write_text(SOURCE.format(body=body))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = python_module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(python_module)
    _, faults = compiled([python_module.run.module], tmp_path)
    assert set(faults) == (set() if compiles else {name})
    wp.load_module(python_module.run.module, device="cpu")
    values = wp.full(1, 3.0, dtype=float, device="cpu")
    wp.launch(python_module.run, dim=1, inputs=[values], device="cpu")
    assert values.numpy()[0] == (6.0 if compiles else 3.0)
    capfd.readouterr()
