"""Where, when and how work runs: devices, threads, shards of environments, captured graphs, and the tick."""

from sensorium.compute.clock import MOST_TICKS, Clock, Rate
from sensorium.compute.devices import Found, cuda_devices, keeps_current, pinned, resolve_device
from sensorium.compute.loading import kernel
from sensorium.compute.memory import Memory, check_envs
from sensorium.compute.program import Compute, Program, Rows, Segment, recorded

__all__ = [
    "MOST_TICKS",
    "Clock",
    "Compute",
    "Found",
    "Memory",
    "Program",
    "Rate",
    "Rows",
    "Segment",
    "check_envs",
    "cuda_devices",
    "keeps_current",
    "kernel",
    "pinned",
    "recorded",
    "resolve_device",
]
