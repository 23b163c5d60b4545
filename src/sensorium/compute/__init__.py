"""Where, when and how work runs: devices, threads, shards of environments, captured graphs, and the tick."""

from sensorium.compute.clock import Clock, Rate
from sensorium.compute.devices import Found, cuda_devices, keeps_current, pinned, resolve_device
from sensorium.compute.memory import Memory, check_envs
from sensorium.compute.program import Compute, Program, Rows, Segment, recorded

__all__ = [
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
    "pinned",
    "recorded",
    "resolve_device",
]
