"""Where, when and how work runs: devices, threads, shards of environments, captured graphs, and the tick."""

from sensorium.compute.clock import Clock, Rate
from sensorium.compute.program import Compute, Program, Rows, Segment, recorded

__all__ = ["Clock", "Compute", "Program", "Rate", "Rows", "Segment", "recorded"]
