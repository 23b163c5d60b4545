"""The contact probe: two thresholds against a manual state machine, on both branches, per env, across resets."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]

RADIUS = 0.01
GROUND = sn.engines.Shape("plane", "ground")


def engine_of(envs: int = 1, **kwargs: Any) -> sn.TensorEngine:
    """Return an engine whose link is above the ground, without contact."""
    engine = sn.TensorEngine(envs, 0.01, bodies=("tip", "toe"), shapes=[GROUND], provides=("pose",), **kwargs)
    engine.body_pos_w[..., 2] = 1.0
    return engine


def touching(engine: sn.engines.Engine, **cfg: Any) -> tuple[sn.Scene, sn.ContactProbe]:
    given = {"link_name": "tip", "probe_radius": RADIUS, **cfg}
    scene = sn.Scene(engine, [sn.ContactProbeCfg(name="skin", **given)], seed=2)
    return scene, scene["skin"]  # type: ignore[return-value]


def press(scene: sn.Scene, depth: Any) -> None:
    """Take one tick with the probes at the given depth in the ground, m: one number, or one per env."""
    engine = scene.engine
    assert isinstance(engine, sn.TensorEngine)
    engine.body_pos_w[:, 0, 2] = RADIUS - torch.as_tensor(depth)
    scene.update()


def flags(sensor: sn.ContactProbe) -> list[bool]:
    return sensor.data[:, 0].tolist()


# Thresholds -----------------------------------------------------------------------------------------------------------


def test_probe_turns_on_above_one_threshold_and_off_below_the_other() -> None:
    """Over seven steps, a reset of env 0 between the thresholds clears its latch and keeps that of env 1."""
    scene, skin = touching(engine_of(2), contact_threshold=1e-3, release_threshold=5e-4)
    assert skin.data.dtype == torch.bool and skin.data.shape == (2, 1)
    for depth, on in ((0.0, False), (7e-4, False), (1.1e-3, True), (7e-4, True), (4e-4, False), (7e-4, False)):
        press(scene, depth)
        assert flags(skin) == [on, on], depth
    press(scene, 2e-3)
    press(scene, 7e-4)
    assert flags(skin) == [True, True]
    scene.reset([0])
    assert flags(skin) == [False, True]
    press(scene, 7e-4)
    assert flags(skin) == [False, True] and skin.ground_truth[:, 0].tolist() == [False, True]
    press(scene, 1.1e-3)
    assert flags(skin) == [True, True]


def test_the_first_sample_starts_from_off() -> None:
    """Between the thresholds, a flag that was never above the upper threshold stays off."""
    engine = engine_of()
    engine.body_pos_w[:, 0, 2] = RADIUS - 7e-4
    assert flags(touching(engine, contact_threshold=1e-3, release_threshold=5e-4)[1]) == [False]
    assert flags(touching(engine, contact_threshold=6e-4, release_threshold=5e-4)[1]) == [True]


def test_probes_and_envs_have_independent_states() -> None:
    """200 samples of a random walk in 6 envs, with probes at 8 heights, match a loop in Python."""
    on, off = 1e-3, 2e-4
    rng = np.random.default_rng(0)
    heights = rng.uniform(-5e-4, 5e-4, 8)
    scene, skin = touching(
        engine_of(6), contact_threshold=on, release_threshold=off, probe_local_pos=np.c_[np.zeros((8, 2)), heights]
    )
    walk = np.abs(np.cumsum(rng.normal(size=(200, 6)) * 3e-4, axis=0))
    state = np.zeros((6, 8), bool)
    kept = 0
    for sample in walk:
        press(scene, sample)
        depth = sample[:, None] - heights
        assert np.abs(depth - on).min() > 1e-8 and np.abs(depth - off).min() > 1e-8  # values that float32 could confuse
        after = np.where(state, depth > off, depth > on)
        kept += int((after & (depth <= on)).sum())
        np.testing.assert_array_equal(skin.data.numpy(), after)
        state = after
    assert kept > 100


def test_without_release_threshold_there_is_no_state() -> None:
    """By default, the flag is on above 0.1 mm and off again below."""
    scene, skin = touching(engine_of())
    for depth, on in ((0.9e-4, False), (1.1e-4, True), (0.9e-4, False), (0.0, False)):
        press(scene, depth)
        assert flags(skin) == [on]
    cfg = sn.ContactProbeCfg(link_name="tip")
    assert cfg.contact_threshold == 1e-4 and cfg.release_threshold is None


def test_zero_threshold_detects_any_touch() -> None:
    """At exactly the threshold the flag is off: at the surface and outside of it, nothing touches."""
    scene, skin = touching(engine_of(), contact_threshold=0.0, probe_radius=0.0078125)  # 2^-7: exact
    for height, on in ((0.0078125, False), (0.0078124, True), (0.5, False)):
        scene.engine.body_pos_w[:, 0, 2] = height  # type: ignore[attr-defined]
        scene.update()
        assert flags(skin) == [on]


# Per env --------------------------------------------------------------------------------------------------------------


def test_thresholds_can_be_set_per_env_at_run_time() -> None:
    """Thresholds per env are saved and restored with the state."""
    scene, skin = touching(engine_of(3), contact_threshold=1e-3, release_threshold=5e-4)
    skin.set("contact_threshold", [2e-3, 3e-3], env_ids=[1, 2])
    press(scene, 2.5e-3)
    assert flags(skin) == [True, True, False]
    skin.set("release_threshold", 8e-4, env_ids=[1])
    press(scene, 7e-4)
    assert flags(skin) == [True, False, False]
    press(scene, 3.5e-3)
    fresh, same = touching(engine_of(3), contact_threshold=1e-3, release_threshold=5e-4)
    fresh.load_state(scene.state())
    press(fresh, 7e-4)
    assert flags(same) == [True, False, True]


def test_without_hysteresis_set_changes_both_thresholds() -> None:
    scene, skin = touching(engine_of(2))
    skin.set("contact_threshold", 1e-3, env_ids=[0])
    for depth, on in ((1.5e-3, [True, True]), (5e-4, [False, True])):
        press(scene, depth)
        assert flags(skin) == on


def test_invalid_thresholds_are_refused_at_run_time() -> None:
    """Negative thresholds, a wrong order in any env, wrong counts, and thresholds missing in the config are
    rejected.
    """
    scene, skin = touching(engine_of(3), contact_threshold=1e-3, release_threshold=2e-4)
    with pytest.raises(sn.ConfigError, match=r"contact_threshold: got -0\.5, expected a finite depth"):
        skin.set("contact_threshold", -0.5)
    skin.set("release_threshold", 6e-4, env_ids=[1])
    with pytest.raises(sn.ConfigError, match="expected release_threshold at most contact_threshold in each env"):
        skin.set("contact_threshold", [4e-4, 4e-4], env_ids=[0, 1])
    with pytest.raises(sn.ConfigError, match="one number, or 3 of them"):
        skin.set("contact_threshold", [1e-3, 2e-3])
    with pytest.raises(sn.ConfigError, match="one number, or 3 of them"):
        skin.set("contact_threshold", [4e-4, 2e-3])
    press(scene, 9e-4)
    assert flags(skin) == [False] * 3  # nothing was set
    with pytest.raises(sn.SensoriumError, match="release_threshold"):
        touching(engine_of())[1].set("release_threshold", 1e-5)


# Imperfections --------------------------------------------------------------------------------------------------------


def test_truth_and_measured_have_a_latch_each() -> None:
    """An offset of +0.4 mm lifts the measured flag over its threshold; between the thresholds only that flag stays
    on.
    """
    scene, skin = touching(engine_of(), contact_threshold=1e-3, release_threshold=5e-4, bias=0.0)
    skin.set("bias", 4e-4)
    press(scene, 7e-4)
    assert (skin.data.item(), skin.ground_truth.item()) == (True, False)
    skin.set("bias", 0.0)
    press(scene, 7e-4)
    assert (skin.data.item(), skin.ground_truth.item()) == (True, False)
    press(scene, 2e-3)
    skin.set("bias", -1e-3)
    press(scene, 1e-3)
    assert (skin.data.item(), skin.ground_truth.item()) == (False, True)


def test_noise_acts_on_the_depth() -> None:
    """At the threshold half of 4000 probes are on; one standard deviation below it, 15.9 % are on."""
    n, sd = 4000, 5e-4
    scene, skin = touching(engine_of(), contact_threshold=2e-3, noise=sd, probe_local_pos=np.zeros((n, 3)))
    for depth, share in ((2e-3, 0.5), (2e-3 - sd, 0.158655)):
        press(scene, depth)
        on = skin.data.float().mean().item()
        assert abs(on - share) < 5.0 * math.sqrt(share * (1.0 - share) / n)
    assert not skin.ground_truth.any()


def test_radius_noise_acts_on_the_depth() -> None:
    """At a depth d a probe is on with probability (1 + (d - threshold) / a) / 2: d + U a > threshold."""
    n, a = 4000, 1e-3
    scene, skin = touching(engine_of(), contact_threshold=1e-3, probe_radius_noise=a, probe_local_pos=np.zeros((n, 3)))
    for depth in (1.5e-3, 5e-4):
        press(scene, depth)
        share = 0.5 * (1.0 + (depth - 1e-3) / a)
        on = skin.data.float().mean().item()
        assert abs(on - share) < 5.0 * math.sqrt(share * (1.0 - share) / n)
        assert skin.ground_truth.all() == (depth > 1e-3)


def test_stages_act_on_the_depth() -> None:
    """A low-pass of 50 ms on a step of 1 mm passes 0.5 mm after tau ln 2 = 34.7 ms, at the fourth sample of 10 ms."""
    scene, skin = touching(engine_of(), contact_threshold=5e-4, stages=(sn.stages.LowPass(time_constant=0.05),))
    seen = []
    for _ in range(5):
        press(scene, 1e-3)
        seen.append((skin.data.item(), skin.ground_truth.item()))
    assert seen == [(False, True)] * 3 + [(True, True)] * 2


def test_a_probe_without_radius_never_turns_on() -> None:
    """The result is the same for any noise, and inside a solid."""
    scene, skin = touching(
        engine_of(50), probe_local_pos=np.zeros((2, 2, 3)), probe_radius=(0.0, RADIUS, 0.0, RADIUS), noise=1e-2,
        probe_radius_noise=1e-3,
    )  # fmt: skip
    press(scene, RADIUS + 5e-3)
    assert not skin.data[..., 0].any() and skin.data[..., 1].float().mean() > 0.8
    assert not skin.ground_truth[..., 0].any() and skin.ground_truth[..., 1].all()


def test_delay_and_history_show_earlier_flags() -> None:
    """The latch itself has no delay: between the thresholds the flag stays on two samples later as well."""
    scene, skin = touching(engine_of(), contact_threshold=1e-3, release_threshold=5e-4, delay=0.02, history_length=4)
    for depth in (0.0, 2e-3, 7e-4, 7e-4, 0.0):
        press(scene, depth)
    assert flags(skin) == [True] and not skin.ground_truth.any()
    assert skin.history[0, :, 0].tolist() == [False, True, True, True]


# In MuJoCo ------------------------------------------------------------------------------------------------------------

SEAT = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="box" pos="0 0 .15"><freejoint/><geom type="box" size=".1 .1 .05" mass="1"/></body>
    <body name="ball" pos="0 0 .3"><freejoint/><geom name="ball" size=".04" mass=".1"/></body>
  </worldbody>
</mujoco>
"""


def test_landed_box_with_a_ball_detects_exactly_both() -> None:
    """Probes on the top and the bottom of a box are on at the ticks at which MuJoCo reports a smaller distance."""
    places = ((0.0, 0.0, 0.049), (0.0, 0.0, -0.049), (0.05, 0.05, 0.049))
    skin = sn.ContactProbeCfg(name="skin", body="box", probe_local_pos=places, probe_radius=0.0015)
    engine = sn.MujocoEngine(SEAT)
    scene = sn.Scene(engine, [skin])
    model, data = engine.model, mujoco.MjData(engine.model)
    seen = []
    for _ in range(400):
        scene.step()
        data.qpos[:] = engine.qpos[0].numpy()
        mujoco.mj_forward(model, data)
        top, bottom, beside = scene["skin"].data[0].tolist()
        for flag, geom, local in ((top, "ball", places[0]), (bottom, "floor", places[1])):
            turn = data.body("box").xmat.reshape(3, 3)
            centre = data.body("box").xpos + turn @ local
            gap = centre[2] if geom == "floor" else float(np.linalg.norm(data.geom(geom).xpos - centre) - 0.04)
            if abs(0.0015 - gap - 1e-4) > 1e-6:
                assert flag == (0.0015 - gap > 1e-4)
        seen.append((top, bottom))
        assert not beside
    assert seen[0] == (False, False) and seen[-1] == (True, True)


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"contact_threshold": -1e-3}, r"contact_threshold: got -0\.001, expected a finite depth >= 0, m"),
        ({"contact_threshold": math.nan}, "contact_threshold: got nan, expected a finite depth"),
        ({"contact_threshold": math.inf}, "contact_threshold: got inf, expected a finite depth"),
        ({"release_threshold": -1e-3}, r"release_threshold: got -0\.001, expected a finite depth"),
        ({"release_threshold": math.nan}, "release_threshold: got nan, expected a finite depth"),
        ({"release_threshold": 2e-4}, r"release_threshold: got 0\.0002, expected at most contact_threshold = 0\.0001"),
    ],
    ids=str,
)
def test_bad_thresholds_are_refused_by_name(given: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.ContactProbeCfg(link_name="tip", **given)


# The contract ---------------------------------------------------------------------------------------------------------


def test_genelab_name_is_an_alias() -> None:
    assert sn.ContactProbeCfg.kind() == "contact_probe"


def test_info_shows_the_thresholds() -> None:
    notes = touching(engine_of(), contact_threshold=1e-3, release_threshold=5e-4)[1].info.notes
    assert notes == {"on": "depth > 0.001 m", "off": "depth <= 0.0005 m"}
    assert touching(engine_of())[1].info.notes["off"] == "depth <= 0.0001 m"


def test_shape_without_pose_invalidates_the_sample() -> None:
    engine = sn.TensorEngine(
        2,
        0.01,
        bodies=("tip", "thing"),
        shapes=[sn.engines.Shape("sphere", "ball", (0.1,), body="thing")],
        provides=("pose",),
    )
    scene, skin = touching(engine)
    assert skin.valid.tolist() == [True, True]
    engine.body_pos_w[1, 1] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="thing"):
        scene.update()
        assert skin.valid.tolist() == [True, False]


def test_debug_points_show_probes_that_are_on() -> None:
    scene, skin = touching(engine_of(2), probe_local_pos=((0.1, 0.0, 0.0), (0.2, 0.0, 0.5)))
    press(scene, [1e-3, 0.0])
    (shape,) = skin.debug_draw()
    np.testing.assert_allclose(shape.data, [[0.1, 0.0, RADIUS - 1e-3]], atol=1e-6)
    assert list(shape.counts or ()) == [1, 0]


def tumbling_over_ground(num_envs: int, shift: float = 0.0) -> sn.TensorEngine:
    plain = tumbling_engine(num_envs, shift=shift)
    ground, box = (
        sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -0.5)),
        sn.engines.Shape("box", "box", (0.2, 0.3, 0.4)),
    )
    return sn.TensorEngine(
        num_envs, 0.002, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=plain.motion,
        shapes=[ground, box], provides=("pose", "velocity", "acceleration", "gravity"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, marks=pytest.mark.full),
        {"probe_radius_noise": 0.05, "probe_radius": (0.0, 0.4), "contact_threshold": 0.2, "release_threshold": 0.1},
        {"rate_hz": 200.0, "delay": 0.01, "noise": 0.01, "contact_threshold": 2.0},
    ],
    ids=str,
)
def test_contract_holds(given: dict[str, Any]) -> None:
    check_sensor(sn.ContactProbeCfg.example().replace(**given), engine=tumbling_over_ground)
