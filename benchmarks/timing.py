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


def once(call: Callable[[], object]) -> float:
    """Return seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
