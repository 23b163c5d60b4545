"""Timing in interleaved rounds, so that a noisy machine disturbs all calls alike. The fastest round counts."""

import os
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

ONCE = "SENSORIUM_BENCHMARKS_ONCE"
"""Environment variable that is set if everything is to run only once, to see that it works."""


def repeats_of(count: int) -> int:
    """Return how often to repeat a measurement: `count`, or 1 with ``python -m benchmarks --once``."""
    return 1 if ONCE in os.environ else count


def interleaved(
    calls: dict[str, Callable[[], object]], repeats: int, rounds: int = 9, warm_up: int = 8
) -> dict[str, float]:
    """Return seconds per call, the minimum over rounds in which all calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(repeats_of(max(repeats // 10, warm_up))):  # warm-up: kernels load, shards are decided
            call()
    repeats = repeats_of(repeats)
    for _ in range(repeats_of(rounds)):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / repeats)
    return best


def wall_and_cpu(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, NDArray[np.float64]]:
    """Return seconds and CPU seconds of all threads `[round, 2]` per call; in each round all take turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(repeats_of(rounds) + 1):
        for name, call in calls.items():
            start, cpu = time.perf_counter(), time.process_time()
            call()
            taken[name].append((time.perf_counter() - start, time.process_time() - cpu))
    return {name: np.array(times[1:]) for name, times in taken.items()}  # the first round is a warm-up


def once(call: Callable[[], object]) -> float:
    """Return seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
