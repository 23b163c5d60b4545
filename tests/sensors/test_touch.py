"""Touch, checked against MuJoCo's touch sensor, with statics and with measurement settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.testing import check_sensor

G = 9.81
PADS = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="box" pos="0 0 0.1"><freejoint/>
      <geom name="shell" type="box" size="0.2 0.1 0.1" mass="4"/>
      <site name="front" type="box" size="0.1 0.12 0.02" pos="0.11 0 -0.1"/>
      <site name="back" type="box" size="0.1 0.12 0.02" pos="-0.11 0 -0.1"/>
      <site name="top" type="box" size="0.2 0.1 0.02" pos="0 0 0.1"/>
    </body>
    <body name="weight" pos="0.1 0 0.25"><freejoint/><geom name="ball" size="0.05" mass="1"/></body>
  </worldbody>
  <sensor><touch name="own front" site="front"/><touch name="own back" site="back"/><touch name="own top" site="top"/></sensor>
</mujoco>
"""  # noqa: E501


def native(envs: int) -> sn.TensorEngine:
    """Return an engine whose pads are pressed by changing forces, differently in each env."""
    engine = sn.TensorEngine(
        envs,
        0.01,
        sites={"a": "body", "b": "body"},
        native={"subject/a": 1, "subject/b": 1, "other/a": 1, "other/b": 1},
    )
    phase = 0.7 * torch.arange(envs, dtype=torch.float64)[:, None]
    engine.motion = lambda t: {f"native:{name}": 20.0 + 10.0 * (9.0 * t + phase).sin() for name in engine.native}
    return engine


@pytest.mark.parametrize("fields", [{"site": "a"}, {"sites": ".*"}])
def test_contract_holds(fields: dict[str, Any]) -> None:
    """`check_sensor` passes with and without a mount axis."""
    check_sensor(sn.TouchCfg(**fields), native)


def test_pads_under_a_box_match_mujoco_and_carry_its_weight() -> None:
    """Bits equal the model's own touch sensors as the pile settles; then the pads share the weight by the lever."""
    scene = sn.Scene(sn.MujocoEngine(PADS), [sn.TouchCfg(name="pads", sites=("front", "back", "top"))])
    for _ in range(60):
        scene.step(substeps=25)
        own = torch.stack([scene[f"own {name}"].data[:, 0] for name in ("front", "back", "top")], dim=1)
        assert torch.equal(scene["pads"].data, own)
    front, back, top = scene["pads"].data[0].tolist()
    assert front + back == pytest.approx(5.0 * G, rel=0.01) and top == pytest.approx(G, rel=0.01)
    # the ball at x = 0.1 over contacts at x = +-0.2: half a kilogramme times 1 + x / 0.2 is on the front
    assert front == pytest.approx((2.0 + 0.75) * G, rel=0.02)
    assert scene["pads"].info.mounts == ("front", "back", "top")


def test_contacts_outside_the_volume_do_not_count() -> None:
    """A ball on the lid is sensed by the top pad and by no other body's pad."""
    xml = PADS.replace('pos="0 0 0.1"/>\n    </body>', 'pos="0 0 0.3"/>\n    </body>')
    scene = sn.Scene(sn.MujocoEngine(xml), [sn.TouchCfg(name="pads", site="front")])
    scene.step(substeps=600)
    assert scene["pads"].data.shape == (1,) and float(scene["pads"].data[0]) > 20.0


def test_knobs_and_stages_act_on_the_force() -> None:
    """Bias, quantisation and full scale work as on any sensor; the truth is unaffected; a pattern gives the mount
    axis.
    """
    engine = native(2)
    engine.motion = None
    engine.native["subject/a"] = [[3.2], [90.0]]
    engine.native["subject/b"] = [[0.0], [7.9]]
    cfg = sn.TouchCfg(
        name="subject", sites="[ab]", bias=0.1, resolution=0.5, stages=(sn.stages.Saturation(low=0.0, high=50.0),)
    )
    scene = sn.Scene(engine, [cfg])
    scene.update()
    np.testing.assert_allclose(scene["subject"].data.numpy(), [[3.5, 0.0], [50.0, 8.0]], rtol=1e-6)
    np.testing.assert_allclose(scene["subject"].ground_truth.numpy(), [[3.2, 0.0], [90.0, 7.9]], rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"body": "box"}, "a site, by site or sites.*ContactForceCfg"),
        ({"site": "front", "offset": sn.OffsetCfg(pos=(0.0, 0.0, 1.0))}, "Move the site"),
        ({}, "no selector"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.TouchCfg(**fields)


def test_unknown_names_raise() -> None:
    """A missing site, and an engine without such a sensor, raise an error and never give zeros."""
    with pytest.raises(sn.SelectionError, match=r"frond.*front"):
        sn.Scene(sn.MujocoEngine(PADS), [sn.TouchCfg(site="frond")])
    with pytest.raises(sn.UnsupportedError, match="NATIVE_SENSOR"):
        sn.Scene(sn.TensorEngine(sites={"a": "body"}), [sn.TouchCfg(site="a")])
