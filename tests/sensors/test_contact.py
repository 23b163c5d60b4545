"""Contact switches: scripted forces against a slow state machine, exact to the tick; noise; MuJoCo's contacts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from test_contact_force import FEET, NET, engine_of, stepping

import sensorium as sn
from sensorium.spec import CONTACT_REPORT
from sensorium.testing import check_sensor

LEFT = CONTACT_REPORT(("body", ("left",)), None, ("found", "force"), "netforce")
STRONGEST = CONTACT_REPORT(("body", FEET), None, ("found", "force"), "maxforce")


@pytest.mark.parametrize(
    ("fields", "report"),
    [
        pytest.param({"bodies": ".*"}, NET, marks=pytest.mark.full),
        ({"body": "left", "on_force": 10.0, "off_force": 5.0, "debounce": 0.025}, LEFT),
        ({"bodies": FEET, "on_force": 10.0, "debounce_samples": 2, "measure": "strongest",
          "stages": (sn.stages.LowPass(time_constant=0.01),)}, STRONGEST),
    ],
)  # fmt: skip
def test_contract_holds(fields: dict[str, Any], report: Any) -> None:
    """`check_sensor` passes for a plain switch, with hysteresis and debouncing, and with a stage."""
    check_sensor(sn.ContactCfg(**fields), stepping(report))


# Events ---------------------------------------------------------------------------------------------------------------


def shown(forces: Sequence[float], read_every: int = 1, dt: float = 0.01, start: int = 0, **fields: Any) -> list[bool]:
    """Return the measured flag at the ticks that are read, for the left foot's forces per tick."""
    engine = sn.TensorEngine(1, dt, bodies=("left",), provides=("pose", "contact"))
    engine.contacts[LEFT] = (float(forces[0] > 0.0), 0.0, 0.0, forces[0])
    scene = sn.Scene(engine, [], allow_gaps=True, reserve=[LEFT])
    if start:
        scene.update(ticks=start)
    sensor = scene.add(sn.ContactCfg(name="c", body="left", **fields))
    out = [bool(sensor.data[0])]
    for tick, force in enumerate(forces[1:], start=1):
        engine.contacts[LEFT] = (float(force > 0.0), 0.0, 0.0, force)
        scene.update()
        if tick % read_every == 0:
            out.append(bool(sensor.data[0]))
    return out


def by_hand(forces: Sequence[float], on: float, off: float, wait: int) -> list[bool]:
    """Return the flag of a Schmitt trigger that reports lasting changes `wait` ticks after their start."""
    side, flag, since, out = False, False, 0, []
    for tick, force in enumerate(forces):
        side = force > on or (side and force > off)
        if tick == 0:
            flag = side
        elif side == flag:
            since = -1
        else:
            since = tick if since < 0 else since
            if tick - since >= wait:
                flag, since = side, -1
        since = -1 if tick == 0 else since
        out.append(flag)
    return out


@pytest.mark.parametrize("read_every", [1, 7])
@pytest.mark.parametrize("wait", [0, 1, 4])
def test_events_are_exact_to_the_tick_at_any_read_rate(wait: int, read_every: int) -> None:
    """For random forces around both thresholds, on, off and bounces match the state machine."""
    rng = np.random.default_rng(wait)
    forces = np.repeat(rng.choice([0.0, 3.0, 8.0, 12.0, 30.0], 80), rng.integers(1, 8, 80))[:300].tolist()
    expected = by_hand(forces, 10.0, 5.0, wait)
    fields = {"on_force": 10.0, "off_force": 5.0, "debounce": wait * 0.01}
    assert shown(forces, read_every, **fields) == expected[::read_every]
    assert sum(a != b for a, b in pairwise(expected)) > 5


def test_events_are_exact_after_a_million_seconds() -> None:
    """At tick 10^9 of 1 kHz a debounce of 3 ms is three ticks."""
    forces = [0.0, 0.0, 9.0, 9.0, 9.0, 9.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0]
    fields = {"on_force": 5.0, "debounce": 0.003, "dt": 0.001}
    expected = [False] * 5 + [True] * 6 + [False]
    assert shown(forces, **fields) == expected
    assert shown(forces, start=1_000_000_000, **fields) == expected


def test_a_number_of_samples_is_one_more_than_the_ticks_between() -> None:
    """`debounce_samples` includes the first changed sample: 4 samples are 3 ticks."""
    forces = np.repeat(np.random.default_rng(3).choice([0.0, 9.0], 60), 3)[:150].tolist()
    by_time = shown(forces, on_force=5.0, debounce=0.03)
    assert shown(forces, on_force=5.0, debounce_samples=4) == by_time


def test_debounced_switch_equals_switch_plus_debounce_stage() -> None:
    """The rule is that of `sn.stages.Debounce`, applied to the force of a switch without hysteresis."""
    forces = np.repeat(np.random.default_rng(5).choice([0.0, 9.0], 90), 2)[:150].tolist()
    stage = sn.stages.Debounce(time=0.02, threshold=5.0)
    assert shown(forces, on_force=5.0, debounce=0.02) == shown(forces, on_force=5.0, stages=(stage,))


def test_no_chatter_inside_the_hysteresis_band() -> None:
    """A force of 8 N with 4 N of vibration, noise included, between 10 N and 5 N switches on once and off once."""
    rng = np.random.default_rng(6)
    forces = [0.0, 0.0, 15.0, *(8.0 + 1.9 * np.sign(rng.normal(size=400))).tolist(), 0.0, 0.0]
    flags = shown(forces, on_force=10.0, off_force=5.0, noise=0.01)
    assert flags == [False, False, *[True] * 401, False, False]
    chattering = shown(forces, on_force=8.0, noise=0.01)
    assert sum(a != b for a, b in pairwise(chattering)) > 100


def test_force_at_the_threshold_is_off() -> None:
    """The switch is on above `on_force` and off at `off_force`; with a threshold of 0 any force switches it on."""
    assert shown([10.0, 10.001, 5.001, 5.0, 0.0], on_force=10.0, off_force=5.0) == [False, True, True, False, False]
    assert shown([0.0, 1e-6, 0.0]) == [False, True, False]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_any_number_of_feet_is_supported(count: int) -> None:
    """Each foot is independent; a row of three or four feet is not interpreted as a vector or a quaternion."""
    names = tuple("abcde"[:count])
    engine = sn.TensorEngine(2, 0.01, bodies=names, provides=("pose", "contact"))
    cfg = sn.ContactCfg(name="c", bodies=".*", on_force=5.0, debounce_samples=2, noise=0.1)
    scene = sn.Scene(engine, [cfg])
    report = CONTACT_REPORT(("body", names), None, ("found", "force"), "netforce")
    engine.contacts[report][1, count - 1, 0] = torch.tensor([1.0, 0.0, 20.0, 0.0])
    for expected in (False, True):
        scene.update()
        assert scene["c"].data.tolist() == [[False] * count, [False] * (count - 1) + [expected]]


# Noise ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "knobs",
    [{"noise": 50.0}, {"bias": 20.0}, {"random_walk": 30.0}, {"noise": sn.Uniform(1.0, 9.0), "resolution": 3.0}],
)
@pytest.mark.parametrize("stages", [(), (sn.stages.LowPass(time_constant=0.02),)])
def test_noise_without_force_causes_no_contact(knobs: dict[str, Any], stages: Any) -> None:
    """In the air all samples of 64 envs stay off, at any noise and threshold; under load noise has an effect."""
    engine = engine_of(64)
    common = {"body": "left", "stages": stages, **knobs}
    cfgs = [sn.ContactCfg(name="any", **common), sn.ContactCfg(name="two", on_force=2.0, **common)]
    scene = sn.Scene(engine, cfgs)
    on = torch.zeros(64, dtype=torch.bool)
    for _ in range(31):
        scene.update()
        on |= scene["any"].data | scene["two"].data
    assert not on.any()
    engine.contacts[LEFT] = (1.0, 0.0, 0.0, 2.5)
    work = []
    for _ in range(50):
        scene.update()
        work.append(scene["two"].buffers.work["force"].clone())
    assert float((torch.stack(work) - 2.5).abs().max()) > 0.5


def test_noise_affects_the_force_and_not_the_flag() -> None:
    """A load one standard deviation above the threshold is missed with the normal probability, 15.87 %."""
    engine = engine_of(2000)
    engine.contacts[LEFT] = (1.0, 0.0, 0.0, 12.0)
    scene = sn.Scene(engine, [sn.ContactCfg(name="c", body="left", on_force=10.0, noise=2.0)])
    missed = []
    for _ in range(20):
        scene.update()
        missed.append((~scene["c"].data).double().mean())
        assert scene["c"].ground_truth.all()
    p = 0.5 * math.erfc(math.sqrt(0.5))
    assert float(torch.stack(missed).mean()) == pytest.approx(p, abs=5.0 * math.sqrt(p * (1.0 - p) / 40000))


def test_stuck_fault_produces_a_false_contact() -> None:
    """A stuck switch stays on in the air, in the measured branch only."""
    fault = sn.stages.StuckFault(start=0.02)
    engine = engine_of(1)
    engine.contacts[LEFT] = (1.0, 0.0, 0.0, 30.0)
    scene = sn.Scene(engine, [sn.ContactCfg(name="c", body="left", on_force=5.0, noise=1.0, stages=(fault,))])
    for _ in range(4):
        scene.update()
    engine.contacts[LEFT] = 0.0
    scene.update()
    assert bool(scene["c"].data[0]) and not bool(scene["c"].ground_truth[0])


# Force ----------------------------------------------------------------------------------------------------------------


def test_opposing_forces_cancel_unless_the_strongest_is_used() -> None:
    """A gripped body has no net force; its strongest contact is reported in the contact's frame."""
    engine = engine_of(1)
    cfgs = [sn.ContactCfg(name=how, bodies=FEET, on_force=5.0, measure=how) for how in ("net", "strongest")]  # type: ignore[arg-type]
    scene = sn.Scene(engine, cfgs)
    engine.contacts[NET] = torch.tensor([[2.0, 0.0, 0.0, 1.0], [1.0, 3.0, 4.0, 3.0]])[None, :, None]
    engine.contacts[STRONGEST] = torch.tensor([[2.0, 20.0, 0.0, 0.0], [1.0, 5.0, 3.0, 0.0]])[None, :, None]
    scene.update()
    assert scene["net"].data.tolist() == [[False, True]]
    assert scene["strongest"].data.tolist() == [[True, True]]
    assert scene["net"].info.notes == {"on": "net force > 5 N", "off": "<= 5 N"}


def test_dropped_box_touches_when_mujoco_reports_contact() -> None:
    """Contact is on exactly at the ticks with a floor force above 2 N, bounces included, and never before."""
    xml = """
    <mujoco><option timestep="0.002"/><worldbody>
      <geom name="floor" type="plane" size="5 5 1" solref="-5000 -5"/>
      <body name="ball" pos="0 0 0.15"><freejoint/><geom name="g" size="0.05" mass="0.5" solref="-5000 -5"/></body>
    </worldbody></mujoco>
    """
    cfgs = [sn.ContactCfg(name="c", body="ball", on_force=2.0, noise=0.0), sn.ContactForceCfg(name="f", body="ball"),
            sn.ContactCfg(name="ignoring", body="ball", ignore="world")]  # fmt: skip
    scene = sn.Scene(sn.MujocoEngine(xml), cfgs)
    flags, forces = [], []
    for _ in range(500):
        scene.step()
        flags.append(bool(scene["c"].data[0]))
        forces.append(float(scene["f"].data[0].norm()))
        assert not scene["ignoring"].data[0]
    assert flags == [force > 2.0 for force in forces]
    lands = sum(b and not a for a, b in pairwise(flags))
    assert lands >= 3 and not any(flags[:60])


# Refused configs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"site": "s"}, "a body or a geom"),
        ({"body": "left", "on_force": -1.0}, "force >= 0"),
        ({"body": "left", "on_force": 2.0, "off_force": 3.0}, "at most on_force, 2 N"),
        ({"body": "left", "debounce": -0.1}, "time >= 0"),
        ({"body": "left", "debounce_samples": 0}, ">= 1"),
        ({"body": "left", "debounce": 0.1, "debounce_samples": 3}, "either debounce or debounce_samples"),
        ({"body": "left", "measure": "strongest", "ignore": "right"}, "Use measure='net'"),
        ({"body": "left", "offset": sn.OffsetCfg(pos=(0.0, 0.0, 1.0))}, "offset: .*expected no offset"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.ContactCfg(**fields)


def test_unnamed_element_is_refused() -> None:
    """A switch without a selector is an error, and does not default to the model's last body."""
    with pytest.raises(sn.ConfigError, match="no selector"):
        sn.ContactCfg()
