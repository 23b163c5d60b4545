"""Every kernel compiles for CUDA, on a machine without a GPU too: Warp brings the compiler."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import warp as wp

from sensorium.cli.warmup import kernel_modules

ARCH = 90
"""Compute capability 9.0, of an H100 or H200."""


def failures(modules: Sequence[Any], folder: Path) -> dict[str, str]:
    """Compile modules to PTX and return those that do not compile, each with the beginning of what was said."""

    def fault(module: Any) -> str:
        try:
            wp.compile_aot_module(module, arch=ARCH, module_dir=folder, use_ptx=True)
        except Exception as error:
            return str(error)[:2000] or repr(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        faults = zip(modules, pool.map(fault, modules), strict=True)
        return {module.name: said for module, said in faults if said}


@pytest.mark.slow
def test_every_kernel_compiles_for_cuda(tmp_path: Path) -> None:
    """Half a minute for all of them, so none is left out."""
    modules, _ = kernel_modules()
    assert failures(modules, tmp_path) == {}
    entries = [line for path in tmp_path.glob("*.ptx") for line in path.read_text().splitlines() if ".entry" in line]
    names = {kernel.key for module in modules for kernel in module.kernels.values()}
    assert {name for name in names if not any(name in line for line in entries)} == set()
    assert len(names) > 100 and len(list(tmp_path.glob("*.ptx"))) == len(modules)


SOURCE = '''
import warp as wp

@wp.func_native("""{body}""")
def native(x: float) -> float: ...

@wp.kernel
def run(values: wp.array[float]) -> None:
    values[0] = native(values[0])
'''


@pytest.mark.parametrize(
    ("body", "compiles"), [("return 2.0f * x;", True), ("static thread_local float kept; return kept += x;", False)]
)
def test_a_kernel_for_the_cpu_alone_is_found(
    tmp_path: Path, body: str, compiles: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """A snippet that a CPU's compiler takes and CUDA's does not."""
    name = f"native_for_test_{int(compiles)}"
    path = tmp_path / f"{name}.py"
    path.write_text(SOURCE.format(body=body))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = python_module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(python_module)
    found = failures([python_module.run.module], tmp_path)
    assert set(found) == (set() if compiles else {name})
    wp.load_module(python_module.run.module, device="cpu")
    values = wp.full(1, 3.0, dtype=float, device="cpu")
    wp.launch(python_module.run, dim=1, inputs=[values], device="cpu")
    assert values.numpy()[0] == (6.0 if compiles else 3.0)
    capfd.readouterr()
