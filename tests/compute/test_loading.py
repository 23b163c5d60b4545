"""Kernel loading: only kernels that a scene launches are compiled, and a progress line counts them."""

from __future__ import annotations

import functools
import io
import json
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
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

words = wp.zeros(4, dtype=wp.int32, device="cpu")
with watch_loading(lambda *call: print("CALL", *call)):
    command = Compute("cpu", 2).command(_store, (1,), [2, 0, 0, 0, words])
    command.launch()
    command.launch()
print("TICK", words.numpy()[0])
"""

LINE = "compiling kernels, first run only: 1 of 1"


def on_terminal(source: str, cache: Path) -> tuple[str, str]:
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
    environment = {**os.environ, "WARP_CACHE_PATH": str(cache), "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, text=True, env=environment)
    os.close(follower)
    reader.join()
    os.close(leader)
    shown = b"".join(got).decode()
    assert done.returncode == 0, shown
    return done.stdout, shown


@pytest.mark.slow
def test_progress_line_counts_compiled_kernels(tmp_path: Path) -> None:
    """On a cold cache the terminal, log and watcher get the count; the terminal's line is cleared at the end."""
    out, shown = on_terminal(COUNTED, tmp_path)
    assert f"\r\x1b[K{LINE}\r\x1b[K" in shown
    assert f"sensorium.compute {LINE} (sensorium.compute.clock._store)" in out.splitlines()
    calls = [line for line in out.splitlines() if line.startswith("CALL")]
    assert calls == ["CALL 0 1 sensorium.compute.clock._store", "CALL 1 1 "]
    assert "TICK 2" in out

    out, shown = on_terminal(COUNTED, tmp_path)  # from the cache
    assert "compiling" not in shown and "\x1b[K" not in shown
    assert out.splitlines() == ["TICK 2"]


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
        time.sleep(0.3)  # it redraws a few times per second
    assert isinstance(screen.file, Terminal)
    assert "loading, compiling kernels, first run only: 5 of 12 ..." in screen.file.getvalue()


SCENE = """
import json
import sys
import warp as wp

launched, real = set(), wp.launch

def launch(kernel, *args, **kwargs):
    launched.add(kernel)
    return real(kernel, *args, **kwargs)

wp.launch = launch
import sensorium as sn
from sensorium.compute.loading import watch_loading
from sensorium.demo import model_path

told = []
with watch_loading(lambda *call: told.append(call)):
    sensors = [{configs}]
    scene = sn.Scene(sn.MujocoEngine(model_path(), keyframe="home"), sensors)
    before = len(told)
    for _ in range(5):
        scene.step(None, 2)
        for cfg in sensors:
            scene[cfg].read()
    scene.reset([0])
modules = [each for each in wp._src.context.user_modules.values() if each.execs]
idle = [kernel.key for each in modules for kernel in each.kernels.values() if kernel not in launched]
counts = [len(each.kernels) for each in modules]
print(json.dumps([sum(counts), len(counts), idle, len(told) - before, sorted(sys.modules)]))
"""

IMU = 'sn.ImuCfg(name="imu", site="imu", acc_noise=0.1, delay=0.004)'
LIDAR = 'sn.LidarCfg(name="lidar", site="lidar")'


@functools.cache
def loaded_by(configs: str, cache: Path | None = None) -> tuple[int, int, list[str], int, set[str]]:
    """Run a scene of the bundled quadruped in a separate process.

    Returns:
        The number of kernels and Warp modules loaded, the kernels among them that were never launched, the number of
        watcher calls after the scene was built, and the imported Python modules.
    """
    environment = {**os.environ, **({"WARP_CACHE_PATH": str(cache)} if cache else {})}
    command = [sys.executable, "-c", SCENE.replace("{configs}", configs)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    kernels, modules, idle, late, imported = json.loads(done.stdout.splitlines()[-1])
    return kernels, modules, idle, late, set(imported)


@pytest.mark.slow
@pytest.mark.parametrize(("configs", "kernels", "modules"), [(IMU, 6, 5), (f"{IMU}, {LIDAR}", 14, 11)])
def test_scene_loads_only_kernels_it_launches(configs: str, kernels: int, modules: int) -> None:
    """No kernel is compiled that nothing launches, and the number of kernels and of modules is bounded."""
    loaded, count, idle, _, _ = loaded_by(configs)
    assert idle == []
    assert loaded <= kernels and count <= modules


@pytest.mark.slow
def test_imu_scene_loads_no_kernels_of_other_sensors() -> None:
    """A scene with an IMU imports neither other sensors nor the kernels of rays and solids."""
    imported = loaded_by(IMU)[-1]
    own = {name for name in imported if name.startswith("sensorium.")}
    assert "sensorium.sensors.inertial.imu" in own
    for name in ("sensors.lidar", "sensors.contact_sensor", "sensors.elastomer_taxel", "geometry.trace"):
        assert f"sensorium.{name}" not in own


@pytest.mark.slow
def test_a_new_scene_is_ready(tmp_path: Path) -> None:
    """Kernels are compiled when a scene is built, also those of sensors evaluated on read; no step waits."""
    lazy = 'sn.ImuCfg(name="clean", site="imu")'
    assert loaded_by(f"{lazy}, {IMU}", tmp_path)[3] == 0
