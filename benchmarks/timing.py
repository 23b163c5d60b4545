"""Timing in interleaved rounds, so that a noisy machine disturbs all calls alike. The fastest round counts."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def interleaved(
    calls: dict[str, Callable[[], object]], repeats: int, rounds: int = 9, warm_up: int = 8
) -> dict[str, float]:
    """Return seconds per call, the minimum over rounds in which all calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(max(repeats // 10, warm_up)):  # warm-up: kernels load, shards are decided
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / repeats)
    return best


def wall_and_cpu(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, NDArray[np.float64]]:
    """Return seconds and CPU seconds of all threads `[round, 2]` per call; in each round all take turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
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
