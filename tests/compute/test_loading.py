"""Kernel loading: only kernels that a scene launches are compiled, and a progress line counts them."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from nursery import PATIENCE, Nursery, until
from rich.console import Console

from sensorium.cli import messages
from sensorium.compute import loading

COUNTED = """
import logging
import sys

import warp as wp

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
from sensorium.compute import Compute
from sensorium.compute.clock import _store
from sensorium.compute.loading import watch_loading

words = wp.zeros(4, dtype=wp.int64, device="cpu")
for _ in ("empty cache", "filled cache"):
    with watch_loading(lambda *call: print("CALL", *call)):
        command = Compute("cpu", 2).command(_store, (1,), [2, 0, 0, 0, words])
        command.launch()
        command.launch()
    print("TICK", words.numpy()[0], file=sys.__stderr__)
    print("TICK", words.numpy()[0], flush=True)
    _store.module.unload()
"""

LINE = "compiling kernels, first run only: 1 of 1"


def on_terminal(nursery: Nursery, source: str, cache: Path) -> tuple[str, str]:
    """Run a program whose standard error is a terminal, and return its standard output and the terminal's text."""
    leader, follower = pty.openpty()
    got: list[bytes] = []

    def take() -> None:
        while True:
            try:
                got.append(os.read(leader, 4096))
            except OSError:  # the last writer has closed
                return

    reader = threading.Thread(target=take)
    reader.start()
    program = nursery.program(source, bare=True, err=os.ttyname(follower), WARP_CACHE_PATH=str(cache))
    code = program.wait(4.0 * PATIENCE)
    os.close(follower)
    reader.join()
    os.close(leader)
    shown = b"".join(got).decode()
    assert code == 0, shown
    return program.out, shown


@pytest.mark.slow
def test_progress_line_counts_compiled_kernels(tmp_path: Path, nursery: Nursery) -> None:
    """On a cold cache the terminal, log and watcher get the count; the terminal's line is cleared at the end."""
    both, on_screen = on_terminal(nursery, COUNTED, tmp_path)
    out, out_from_cache, _ = both.split("TICK 2\n")
    shown, shown_from_cache, _ = on_screen.split("TICK 2\r\n")
    assert f"\r\x1b[K{LINE}\r\x1b[K" in shown
    assert f"sensorium.compute {LINE} (sensorium.compute.clock._store)" in out.splitlines()
    calls = [line for line in out.splitlines() if line.startswith("CALL")]
    assert calls == ["CALL 0 1 sensorium.compute.clock._store", "CALL 1 1 "]
    assert (out_from_cache, shown_from_cache) == ("", "")


class Terminal(io.StringIO):
    """A stand-in for a display that has replaced standard error."""

    def isatty(self) -> bool:
        return True


def test_progress_line_is_hidden_during_another_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another display uses the terminal, such as the command line's spinner, nothing is written."""
    taken, real = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", taken)
    loading._report(4, 12, "kernel")
    assert taken.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", real)
    monkeypatch.setattr(sys, "__stderr__", real)
    loading._report(4, 12, "kernel")
    assert real.getvalue() == "\r\x1b[Kcompiling kernels, first run only: 5 of 12"


def test_command_line_spinner_counts_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loading message names the kernel being compiled."""
    screen = Console(file=Terminal(), force_terminal=True, width=120)
    monkeypatch.setattr(messages, "stderr", lambda: screen)
    with messages.busy("loading"):
        loading._report(4, 12, "kernel")
        assert isinstance(screen.file, Terminal)
        until(lambda: "loading, compiling kernels, first run only: 5 of 12 ..." in screen.file.getvalue())


SCENES = """
import json
import sys
import warp as wp

launched, real = set(), wp.launch
loads, Executable = [], wp._src.context.ModuleExec

def launch(kernel, *args, **kwargs):
    launched.add(kernel)
    return real(kernel, *args, **kwargs)

def executable(*args, **kwargs):
    loads.append(args)
    return Executable(*args, **kwargs)

wp.launch = launch
wp._src.context.ModuleExec = executable
import sensorium as sn
from sensorium.demo import model_path

def run(*sensors):
    scene = sn.Scene(sn.MujocoEngine(model_path(), keyframe="home"), sensors)
    before = len(loads)
    for _ in range(5):
        scene.step(None, 2)
        for cfg in sensors:
            scene[cfg].read()
    scene.reset([0])
    modules = [each for each in wp._src.context.user_modules.values() if each.execs]
    idle = [kernel.key for each in modules for kernel in each.kernels.values() if kernel not in launched]
    counts = [len(each.kernels) for each in modules]
    print(json.dumps([sum(counts), len(counts), idle, before, len(loads) - before]))

imus = [sn.ImuCfg(name="clean", site="imu"), sn.ImuCfg(name="imu", site="imu", acc_noise=0.1, delay=0.004)]
run(*imus)
run(*imus, sn.LidarCfg(name="lidar", site="lidar"))
"""
"""A clean IMU is evaluated on read."""


@pytest.fixture(scope="module")
def loaded(nursery: Nursery) -> list[tuple[int, int, list[str], int, int]]:
    """Run scenes of the bundled quadruped in a separate process: IMUs, then also a lidar.

    Returns:
        After each scene, the number of kernels and Warp modules loaded, the kernels among them that were never
        launched, and the number of loads until the scene was built and of later ones. Each compilation is followed by a
        load, also of a kernel that replaces a loaded one.
    """
    program = nursery.program(SCENES, bare=True)
    assert program.wait(4.0 * PATIENCE) == 0, program.err
    return [tuple(json.loads(line)) for line in program.out.splitlines() if line.startswith("[")]


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "kernels", "modules"), [(0, 6, 5), (1, 14, 11)], ids=["IMUs", "IMUs and lidar"])
def test_scene_loads_only_kernels_it_launches(loaded: Any, scene: int, kernels: int, modules: int) -> None:
    """No kernel is compiled that nothing launches, and the number of kernels and of modules is bounded."""
    count, module_count, idle, *_ = loaded[scene]
    assert idle == []
    assert count <= kernels and module_count <= modules


@pytest.mark.slow
def test_a_new_scene_is_ready(loaded: Any) -> None:
    """Kernels are loaded when a scene is built, also those of sensors evaluated on read; no step waits for one."""
    assert loaded[0][3] > 0 and loaded[1][3] > loaded[0][3] + loaded[0][4]
    assert (loaded[0][4], loaded[1][4]) == (0, 0)
