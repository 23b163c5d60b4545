"""Timing in interleaved rounds, so that a noisy machine disturbs all calls alike. The fastest round counts."""

import time
from collections.abc import Callable


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


def wall_and_cpu(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return seconds and CPU seconds of all threads per call, each the minimum over rounds in which all take turns."""
    best = {}
    for number in range(-1, rounds):
        for name, call in calls.items():
            start, cpu = time.perf_counter(), time.process_time()
            call()
            taken = time.perf_counter() - start, time.process_time() - cpu
            if number >= 0:  # the first round is a warm-up
                before = best.get(name, taken)
                best[name] = min(before[0], taken[0]), min(before[1], taken[1])
    return best


def once(call: Callable[[], object]) -> float:
    """Return seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
