"""`check_engine` checks an engine against every rule of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sensorium.engines.base import Engine
from sensorium.errors import ArgumentError, shown
from sensorium.testing.engine import EngineFactory
from sensorium.testing.engine_rules import RULES, EngineRules


def check_engine(
    engine: EngineFactory,
    *,
    advance: Callable[[Engine], object] | None = None,
    free: Mapping[str, float] | None = None,
    ticks: int = 40,
) -> list[str]:
    """Check an engine against the protocol and return the names of the checked rules.

    Rules without a subject are not checked, such as those about velocities if nothing moves.

    Args:
        engine: function that creates the engine for a number of envs, or its class. Let bodies move and touch.
        advance: function that advances an engine by one tick; by default `engine.step()`. Engines around a loop of the
            user need it.
        free: bodies that only gravity and contacts act on, and whose frame origin is their centre of mass, each with
            its mass, kg; enables the rule about gravity and contact forces.
        ticks: ticks of the run in which motion is checked.

    Raises:
        ContractError: a rule is broken, or the engine raises an error while a rule is checked.
        ArgumentError: `engine` is not a function.
    """
    if not callable(engine):
        raise ArgumentError(f"engine: got {shown(engine)}, expected a function of the number of envs: lambda n: ....")
    rules = EngineRules(engine, advance or (lambda each: each.step()), free or {}, ticks)
    return [rule for rule in RULES if rules.holds(rule)]
