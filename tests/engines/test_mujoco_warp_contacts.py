"""mujoco_warp before 4 confuses the side of a primary that is the first geom of one contact and the second of
another.
"""

from __future__ import annotations

import mujoco
import pytest

from sensorium.engines.mujoco_warp.source import misread_primaries
from sensorium.spec import CONTACT_REPORT, Requirement

MODEL = """
<mujoco>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 .1"/>
    <geom name="picture" type="box" size=".1 .1 .1" contype="0" conaffinity="0"/>
    <body name="ball" pos="0 0 1"><freejoint/><geom name="ball" type="sphere" size=".1"/></body>
    <body name="box" pos="1 0 1"><freejoint/><geom name="box" type="box" size=".1 .1 .1"/></body>
    <body name="rod" pos="2 0 1"><freejoint/><geom name="rod" type="capsule" size=".1 .1"/></body>
  </worldbody>
</mujoco>
"""


def found(primary: str, secondary: tuple[str, str] | None, reduce: str = "maxforce", version: str = "3.11.0") -> bool:
    model = mujoco.MjModel.from_xml_string(MODEL)
    report: Requirement = CONTACT_REPORT(("geom", (primary,)), secondary, ("found", "force"), reduce, 1)
    return misread_primaries(report, model, version) == [primary]


def test_primary_between_geoms_of_lower_and_higher_type_is_named() -> None:
    """A ball is second to the ground and first to a box; a box is second to all others here, a plane first."""
    assert found("ball", None) and found("rod", None)
    assert not found("box", None) and not found("ground", None)


@pytest.mark.parametrize("reduce", ["mindist", "maxforce"])
def test_secondary_always_on_one_side_is_safe(reduce: str) -> None:
    assert not found("ball", ("geom", "ground"), reduce) and not found("ball", ("geom", "box"), reduce)
    assert found("ball", None, reduce)


def test_sums_unordered_contacts_and_version_4_are_safe() -> None:
    assert not found("ball", None, "netforce") and not found("ball", None, "none")
    assert not found("ball", None, version="4.0.0")
