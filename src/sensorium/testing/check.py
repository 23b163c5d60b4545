"""`check_sensor` checks a sensor against every rule of the contract."""

from __future__ import annotations

import warnings
from typing import Any

from sensorium.measurement.sensor_cfg import MountedSensorCfg, SensorCfg
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.trial import HookError
from sensorium.testing.engine import EngineFactory, tumbling_engine
from sensorium.testing.rules import Rules
from sensorium.testing.trial import ContractError


def check_sensor(
    subject: type[Sensor[Any, Any]] | type[SensorCfg[Any]] | SensorCfg[Any],
    engine: EngineFactory | None = None,
    *,
    steps: int = 12,
) -> list[str]:
    """Check one sensor against the contract and return the names of the checked rules.

    Args:
        subject: a config, or a sensor or config class that can be built with its defaults (one with a mount gets
            ``body="body"``; a class may define ``example() -> cfg`` instead).
        engine: function that creates the engine for a number of envs; by default `tumbling_engine`.
        steps: ticks per run.

    Raises:
        ContractError: a rule is broken.
    """
    cfg = _example(subject)
    try:
        check = Rules(cfg, engine or tumbling_engine, steps, own_engine=engine is not None)
        done = []
        for rule in (
            check.declares_what_it_reads,
            check.leaves_the_engine_alone,
            check.shapes_and_dtypes,
            check.fields_follow_the_config,
            check.same_seed_same_numbers,
            check.nothing_lasts_in_plain_attributes,
            check.raw_is_written_in_place,
            check.hooks_work_on_all_envs_at_once,
            check.post_process_only_projects,
            check.reading_changes_nothing,
            check.env_count_does_not_matter,
            check.mounts_do_not_matter,
            check.other_sensors_do_not_matter,
            check.lazy_equals_eager,
            check.truth_is_never_altered,
            check.no_time_no_change,
            check.reset_leaves_the_others,
            check.nothing_old_after_reset,
            check.resuming_is_exact,
            check.setters_reach_only_their_envs,
            check.delay_invents_nothing,
            check.config_round_trip,
            check.streams_as_it_is,
            check.errors_name_the_field,
        ):
            check.rule = rule.__name__
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if rule():
                    done.append(rule.__name__)
    except HookError as error:
        raise ContractError(str(error), error.rule) from error
    return done


def _example(subject: Any) -> SensorCfg[Any]:
    if isinstance(subject, SensorCfg):
        return subject
    cfg_class = subject
    if isinstance(subject, type) and issubclass(subject, Sensor):
        cfg_class = subject.cfg_class
    for owner in (subject, cfg_class):
        if hasattr(owner, "example"):
            made: SensorCfg[Any] = owner.example()
            return made
    built: SensorCfg[Any] = cfg_class(body="body") if issubclass(cfg_class, MountedSensorCfg) else cfg_class()
    return built
