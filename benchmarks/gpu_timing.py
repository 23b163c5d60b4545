"""Measurement of times, memory and bandwidth on a GPU or the CPU, in interleaved rounds.

On CUDA a round is timed by events on the device around many calls; the host waits only between rounds. Clocks of a GPU
vary, so only ratios within one run say much: calls that are compared take turns, and ratios are taken round by round.
"""

from __future__ import annotations

import gc
import platform
import random
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from unittest import mock

import torch
import warp as wp

from benchmarks.waits import reported_waits
from sensorium.compute import DeviceInventory, Segment

Call = Callable[[], object]

ROUNDS = 9
FEWEST_ROUNDS = 3
WARM_UP = 8
"""Warm-up calls, in which kernels load, shards are decided and graphs are captured."""
COPY_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}


@dataclass(frozen=True)
class Times:
    """Seconds per call on the device, round by round, and seconds that the host needs to submit a call."""

    rounds: tuple[float, ...]
    host: float

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half of the interquartile range, as a share of the median."""
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return 0.5 * (high - low) / self.median

    def over(self, other: Times) -> float:
        """Return the ratio to the times of the other call, measured in turns with this one."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True))


class Device:
    """A device under test, CPU or GPU.

    Args:
        name: ``"cpu"`` or ``"cuda:INDEX"``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cpu = name == "cpu"
        self.wp = wp.get_device(name)
        self.least_bytes = 1 << 20 if self.is_cpu else 1
        """Smallest increase of `used` that is significant."""
        if not self.is_cpu:
            torch.cuda.set_device(name)

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        if not self.is_cpu:
            wp.synchronize_device(self.wp)

    def graph(self, work: Callable[[], None]) -> Call:
        """Run Warp work once, capture it, and return a function that replays it on torch's current stream."""
        self.wait()  # torch filled the inputs
        with wp.ScopedDevice(self.wp):
            work()  # loads its kernels
            self.wait()
            collects = gc.isenabled()
            gc.disable()  # freeing memory during a capture would break it
            try:
                with wp.ScopedCapture(device=self.wp, force_module_load=False) as captured:
                    work()
            finally:
                if collects:
                    gc.enable()
        stream = None if self.is_cpu else wp.stream_from_torch(torch.cuda.current_stream(self.name))
        keep = work  # also keeps the arrays that the graph writes to

        def replay(graph: object = captured.graph, _: object = keep) -> None:
            wp.capture_launch(graph, stream)

        return replay

    def warm_up(self, call: Call, seconds: float = 0.0) -> None:
        """Call until everything is loaded and captured, and for some time."""
        start, count = time.perf_counter(), 0
        while count < WARM_UP or time.perf_counter() - start < seconds:
            call()
            count += 1
        self.wait()

    def interleaved(self, calls: Mapping[str, Call], seconds: float) -> dict[str, Times]:
        """Return the times of calls measured in turns.

        Args:
            calls: by name; each has been warmed up.
            seconds: about how long each is measured.
        """
        once = {name: self._round(call, 2)[0] for name, call in calls.items()}
        once |= {name: self._round(calls[name], 20)[0] for name, value in once.items() if value < 1e-3}
        repeats = {name: max(1, int(seconds / ROUNDS / value)) for name, value in once.items()}
        slowest = max(once.values(), default=0.0)
        count = min(ROUNDS, max(FEWEST_ROUNDS, int(seconds / slowest))) if slowest else 0
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        turns = random.Random(0)  # periodic load must not hit the same call each time
        for _ in range(count):
            for name in turns.sample(list(calls), len(calls)):
                measured[name].append(self._round(calls[name], repeats[name]))
        return {
            name: Times(tuple(device for device, _ in rounds), statistics.median(host for _, host in rounds))
            for name, rounds in measured.items()
        }

    def _round(self, call: Call, repeats: int) -> tuple[float, float]:
        """Return seconds per call, on the device and on the host."""
        if self.is_cpu:
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            took = (time.perf_counter() - start) / repeats
            return took, took
        stream = torch.cuda.current_stream(self.name)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start = time.perf_counter()
        begin.record(stream)
        for _ in range(repeats):
            call()
        end.record(stream)
        host = (time.perf_counter() - start) / repeats
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / repeats, host

    def used(self) -> int:
        """Return bytes in use: torch's and Warp's memory of the device; on the CPU the process's resident memory."""
        gc.collect()
        self.wait()
        if self.is_cpu:
            status = Path("/proc/self/statm")
            return int(status.read_text().split()[1]) * 4096 if status.exists() else 0
        pool = wp.get_mempool_used_mem_current(self.wp) if wp.is_mempool_enabled(self.wp) else 0
        return torch.cuda.memory_allocated(self.name) + int(pool)

    def tidy(self) -> None:
        """Release unused memory."""
        gc.collect()
        if not self.is_cpu:
            self.wait()
            torch.cuda.empty_cache()

    def copy_bandwidth(self, seconds: float) -> float:
        """Return the bytes per second that a large copy reads and writes."""
        size = COPY_BYTES["cpu" if self.is_cpu else "cuda"]
        if not self.is_cpu:
            size = min(size, torch.cuda.mem_get_info(self.name)[0] // 4)
        source, target = (torch.zeros(size, dtype=torch.uint8, device=self.name) for _ in range(2))

        def copy() -> object:
            return target.copy_(source)

        self.warm_up(copy)
        return 2 * size / self.interleaved({"copy": copy}, seconds)["copy"].median

    def describe(self) -> dict[str, str]:
        """Return device, driver, versions and date for the report."""
        found = DeviceInventory.detect()
        packages = ("torch", "warp-lang", "mujoco", "mujoco-warp")
        machine = {
            "date": datetime.now().astimezone().strftime("%Y-%m-%d"),
            "device": processor() if self.is_cpu else torch.cuda.get_device_name(self.name),
        }
        if self.is_cpu:
            machine["threads"] = f"{torch.get_num_threads()} for sensorium, 1 for mujoco_warp"
        else:
            properties = torch.cuda.get_device_properties(self.name)
            machine["memory"] = f"{properties.total_memory / 2**30:.0f} GiB"
            machine["driver"] = f"{driver_version()}, CUDA up to {found.driver}"
            machine["CUDA"] = f"torch {found.torch_for}, warp {found.warp_for}"
            if peak := peak_bandwidth(properties):
                machine["peak bandwidth"] = f"{peak / 1e9:.0f} GB/s by memory clock and bus width"
        machine["Python"] = platform.python_version()
        return machine | {package: metadata.version(package) for package in packages}


def launches_and_waits(call: Call) -> tuple[int, int]:
    """Return the number of sensorium's kernels that a call launches, also in graphs, and of its waits for the device.

    Kernels of torch and of a simulator are not counted. The same holds on every device.
    """
    launches, waits, run = 0, list[str](), Segment.run

    def counted(segment: Segment) -> None:
        nonlocal launches
        launches += len(segment._launches)
        run(segment)

    with mock.patch.object(Segment, "run", counted), reported_waits(waits.append):
        call()
    return launches, len(waits)


def peak_bandwidth(properties: object) -> float:
    """Return bytes per second from clock (kHz, two transfers per cycle) and width (bit); 0 if unknown."""
    clock, width = (getattr(properties, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))
    return 2e3 * clock * width / 8


def driver_version() -> str:
    """Return the version of the NVIDIA driver according to nvidia-smi, or "unknown"."""
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[0].strip() or "unknown"


def processor() -> str:
    """Return the name of the CPU."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1] if match else platform.processor() or platform.machine()
