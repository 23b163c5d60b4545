"""Execution of work: devices, threads, shards of environments, captured graphs, and the tick."""

from sensorium.compute.clock import FIRST, MAX_TICKS, SAMPLE, Clock, Rate
from sensorium.compute.devices import AsyncCopy, DeviceInventory, cuda_devices, keeps_current, pinned, resolve_device
from sensorium.compute.loading import kernel, native_silence, shared_func, start_warp
from sensorium.compute.memory import Memory, check_envs
from sensorium.compute.program import Compute, Program, Segment, recorded
from sensorium.compute.rows import (
    Rows,
    captured_words,
    episode_words,
    is_first,
    masked_tid,
    mode_now,
    note_tick,
    place_of,
    sample_normals,
    sample_uniforms,
    sample_words,
    tick_captured,
    tick_now,
    tick_of_control,
    ticks_after,
    ticks_since,
)

__all__ = [
    "FIRST", "MAX_TICKS", "SAMPLE", "AsyncCopy", "Clock", "Compute", "DeviceInventory", "Memory", "Program", "Rate",
    "Rows", "Segment", "captured_words", "check_envs", "cuda_devices", "episode_words", "is_first", "keeps_current",
    "kernel", "masked_tid", "mode_now", "native_silence", "note_tick", "pinned", "place_of", "recorded",
    "resolve_device", "sample_normals", "sample_uniforms", "sample_words", "shared_func", "start_warp",
    "tick_captured", "tick_now", "tick_of_control", "ticks_after", "ticks_since",
]  # fmt: skip
