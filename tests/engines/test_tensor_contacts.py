from __future__ import annotations

import pytest
import torch

from sensorium.engines.base import FrameOnBody
from sensorium.engines.tensor import TensorEngine
from sensorium.errors import ModelError, UnknownNameError, UnsupportedError
from sensorium.spec import BODY_POSE, CONTACT_REPORT, contact_array, contact_columns

FEET = CONTACT_REPORT(("geom", ("left toe", "right toe")), ("body", "ground"), ("found", "force", "pos"), "maxforce", 2)
WHOLE = CONTACT_REPORT(("subtree", ("trunk",)), None, ("found", "force"), "netforce")
GEOMS = {"left toe": "left", "right toe": ("right", (0.1, 0.0, 0.0)), "floor": "ground"}


def robot(num_envs=3, **options):
    words = {"provides": ("pose", "contact"), **options}
    return TensorEngine(num_envs, bodies=("trunk", "left", "right", "ground"), geoms=GEOMS, **words)


def test_required_report_is_writable_by_the_user():
    """The report has its requirement's shape, starts without contact, and is read by sensors at one address."""
    engine = robot()
    engine.prepare({FEET: "feet", WHOLE: "bumper"})
    assert list(engine.contacts) == sorted((FEET, WHOLE), key=contact_array) and len(engine.contacts) == 2
    array = engine.array(contact_array(FEET))
    assert array.shape == (3, 2, 2, 7) and array.dtype == torch.float32 and not array.any()
    assert engine.array(contact_array(WHOLE)).shape == (3, 1, 1, 4)
    address = array.data_ptr()
    engine.contacts[FEET] = [1.0, 50.0, 0.0, 0.0, 0.1, 0.2, 0.3]
    engine.contacts[FEET][2, 1, 1] = 0.0
    engine.contacts.field(FEET, "force")[0, 0, 0] = torch.tensor([7.0, 8.0, 9.0])
    engine.refresh()
    assert array[1, 1, 1].tolist() == pytest.approx([1.0, 50.0, 0.0, 0.0, 0.1, 0.2, 0.3]) and not array[2, 1, 1].any()
    assert array[0, 0, 0].tolist() == pytest.approx([1.0, 7.0, 8.0, 9.0, 0.1, 0.2, 0.3])
    assert engine.contacts[FEET] is engine.contacts[contact_array(FEET)] is array and array.data_ptr() == address


def test_report_can_be_named_before_a_sensor_requires_it():
    """Values written before a sensor requires the report are read by that sensor."""
    engine = robot()
    engine.contacts[WHOLE] = [2.0, 0.0, 0.0, 30.0]
    engine.prepare({WHOLE: "bumper"})
    assert engine.array(contact_array(WHOLE))[2, 0, 0].tolist() == [2, 0, 0, 30]
    assert contact_columns(FEET) == {"found": slice(0, 1), "force": slice(1, 4), "pos": slice(4, 7)}


def test_motion_reset_and_state_include_reports():
    """Motion writes a report from the start, a reset writes rows of some envs, and a restored state restores all."""
    engine = robot(dt=0.5, motion=lambda t: {WHOLE: [1.0, 0.0, 0.0, 10.0 * t]})
    engine.prepare({WHOLE: "bumper", FEET: "feet"})
    engine.step(substeps=4)
    assert engine.contacts.field(WHOLE, "force")[..., 2].flatten().tolist() == [20, 20, 20]
    engine.reset([2, 0], {contact_array(WHOLE): 0.0, contact_array(FEET): torch.arange(14.0).view(1, 2, 1, 7)})
    assert engine.contacts[WHOLE].flatten(1).any(dim=1).tolist() == [False, True, False]
    assert engine.contacts[FEET][0, 1, 1].tolist() == list(range(7, 14)) and not engine.contacts[FEET][1].any()
    other = robot(dt=0.5)
    other.prepare({WHOLE: "bumper", FEET: "feet"})
    address = other.array(contact_array(FEET)).data_ptr()
    other.load_state(engine.state())
    for report in (WHOLE, FEET):
        assert torch.equal(other.contacts[report], engine.contacts[report])
    assert other.array(contact_array(FEET)).data_ptr() == address
    named = robot(motion=lambda t: {"contact:nothing": 0.0} if t else {})
    with pytest.raises(UnknownNameError, match="array returned by motion 'contact:nothing'"):
        named.forward() or named.step()


def test_contacts_not_provided_are_refused():
    """Without the entry in `provides` a report raises an error that states the fix, never zeros."""
    engine = robot(provides=("pose",))
    with pytest.raises(
        UnsupportedError,
        match=r"'feet' requires CONTACT_REPORT.*provides=\('pose', 'magnetic', 'contact'\).*contacts\[",
    ):
        engine.prepare({FEET: "feet"})
    with pytest.raises(ValueError, match="not declared as provided"):
        engine.contacts[FEET] = 0.0
    with pytest.raises(UnsupportedError):
        robot(provides=("contact",)).prepare({BODY_POSE: "imu"})


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (CONTACT_REPORT(("geom", ("left toes",))), "primary: there is no geom 'left toes'. Did you mean 'left toe'"),
        (CONTACT_REPORT(("body", ("left toe",))), "primary: there is no body 'left toe'.*There are: trunk, left"),
        (CONTACT_REPORT(("body", ("left",)), ("body", "mud")), "secondary: there is no body 'mud'"),
        (CONTACT_REPORT(("site", ("left",))), "primary: got kind 'site'"),
        (CONTACT_REPORT(("body", ())), "primary: got the names"),
        (CONTACT_REPORT(("body", ("left",)), slots=0), "slots: got 0"),
        (CONTACT_REPORT(("body", ("left",)), reduce="netforce", slots=3), "slots: got 3, expected 1"),
        (CONTACT_REPORT(("body", ("left",)), reduce="sum"), "reduce: got 'sum'"),
    ],
)
def test_invalid_report_is_refused_by_name(report, message):
    """As on every engine, unknown elements and wrong numbers are errors with the reason."""
    with pytest.raises(UnsupportedError, match=message):
        robot().prepare({report: "feet"})


def test_unknown_names_raise():
    """Errors for unknown reports, fields and shapes list the available ones."""
    engine = robot()
    engine.prepare({WHOLE: "bumper"})
    with pytest.raises(UnknownNameError, match=r"contact report 'contact:feet'.*CONTACT_REPORT\(\.\.\.\)"):
        engine.contacts["contact:feet"]
    with pytest.raises(UnknownNameError, match="unknown contact report 'BODY_POSE'"):
        engine.contacts[BODY_POSE]
    with pytest.raises(UnknownNameError, match=r"field of the contact report 'pos'.*force, found"):
        engine.contacts.field(WHOLE, "pos")
    with pytest.raises(ValueError, match=r"got values of shape \(2,\), expected \(3, 1, 1, 4\)"):
        engine.contacts[WHOLE] = [1.0, 2.0]


def test_geoms_are_named_and_sit_on_bodies():
    """Geoms are names with a position; a body has its own geoms, and there is no kinematic tree."""
    engine = robot()
    assert engine.names("geom") == ("left toe", "right toe", "floor")
    assert engine.frame("geom", "right toe") == FrameOnBody(2, (0.1, 0.0, 0.0))
    assert engine.geoms("right") == ("right toe",) and engine.geoms("trunk") == engine.geoms("world") == ()
    assert engine.subtree("trunk") is None
    assert TensorEngine(geoms={"floor": "world"}).geoms("world") == ("floor",)
    with pytest.raises(UnknownNameError, match="unknown geom 'toe'"):
        engine.frame("geom", "toe")
    with pytest.raises(ModelError, match="geom 'toe': got 'foot'"):
        TensorEngine(geoms={"toe": "foot"})
