"""Messages from the loop to the page: one frame for each update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sensorium.readings import Array, DebugShape, Reading, SceneDescription


@dataclass(slots=True)
class Frame:
    """State of one environment at one tick.

    Attributes:
        env: the environment.
        time: simulation time, s.
        readings: name -> reading of this environment, for sensors with new data; without specs, which the
            description has, and without ground truth that the page does not show.
        bodies: poses of all bodies, float32 `[body, 7]`, m and wxyz; None if they are unknown.
        shapes: name -> shapes, for sensors that draw themselves.
        drawn: sensors that viewers should draw.
        costs: name -> time that the newest reading took on the loop's thread, s.
        is_paused: whether the loop waits.
        speed: wanted simulated seconds per second; 0 for no limit.
        span: first and last time of a recording, s.
        can: commands that the source accepts.
        refusal: reason why it accepts no commands of the loop; empty if it does.
        description: description of the scene, where it changed.
        world: contents of the description of the world, where it changed.
        notes: messages for the user.
    """

    env: int
    time: float
    readings: Mapping[str, Reading]
    bodies: Array | None
    shapes: Mapping[str, list[DebugShape]]
    drawn: frozenset[str]
    costs: Mapping[str, float]
    is_paused: bool
    speed: float
    span: tuple[float, float] | None
    can: frozenset[str]
    refusal: str = ""
    description: SceneDescription | None = None
    world: bytes | None = None
    notes: list[str] = field(default_factory=list)
