"""Options of terms, groups, memory of observers and mirror images, against references in NumPy."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from reference.draws import normals_numpy, uniforms_numpy

import sensorium as sn
from sensorium import ObsTerm
from sensorium.random import stream_key
from sensorium.scene.mirror import Mirror, other_side


def numbers(scene: sn.Scene, ticks: int, look: Any, resets: dict[int, list[int]] | None = None) -> np.ndarray:
    """Return the observations of some ticks, `[tick, env, column]`; environments are reset at given ticks."""
    out = []
    for tick in range(ticks):
        if tick:
            syn.advance(scene)
        if tick in (resets or {}):
            syn.reset(scene, (resets or {})[tick])
        out.append(look().numpy().copy())
    return np.stack(out)


def filled(values: np.ndarray, late: np.ndarray, entries: int, starts: np.ndarray) -> np.ndarray:
    """Return delayed histories `[tick, env, entry, ...]`, which hold the first value of each episode."""
    ticks, envs = values.shape[:2]
    out = np.zeros((ticks, envs, entries, *values.shape[2:]), np.float32)
    for tick in range(ticks):
        for env in range(envs):
            for entry in range(entries):
                out[tick, env, entry] = values[max(tick - late[env] - entry, starts[tick, env]), env]
    return out


# Options --------------------------------------------------------------------------------------------------------------


ON_DEVICES = pytest.mark.parametrize("is_cpu", [True, False], ids=["CPU", "other devices"])
"""The work of an observer on the CPU, and that on other devices, which runs on the CPU too."""


@ON_DEVICES
def test_clip_scale_delay_and_history_follow_one_another(is_cpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A term clips, then scales, then delays and stacks; a reset fills the history with the first new value."""
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"))])
    twin = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"))])
    vec = ObsTerm("p.vec", clip=(-40.0, 70.0), scale=(2.0, 0.5, -1.0), delay=2, history=3)
    with monkeypatch.context() as patch:
        patch.setattr(scene.compute, "is_cpu", is_cpu)
        look = scene.observer(vec, ObsTerm("p.speed", history=2))
    resets = {5: [1, 3]}
    got, raw = numbers(scene, 9, look, resets), numbers(twin, 9, twin.observer("p.vec", "p.speed"), resets)
    starts = np.zeros((9, 4), int)
    starts[5:, [1, 3]] = 5
    vec = np.clip(raw[..., :3], -40.0, 70.0) * np.array([2.0, 0.5, -1.0], np.float32)
    np.testing.assert_array_equal(got[..., :9], filled(vec, np.full(4, 2), 3, starts).reshape(9, 4, 9))
    np.testing.assert_array_equal(got[..., 9:], filled(raw[..., 3], np.zeros(4, int), 2, starts))
    assert look.shape == (4, 11) and look.columns[:4] == ["p.vec[0,x]", "p.vec[0,y]", "p.vec[0,z]", "p.vec[1,x]"]
    parts = look.split(look())
    assert parts["p.vec"].shape == (4, 3, 3) and parts["p.speed"].shape == (4, 2)
    assert look.low[:3].tolist() == [-80.0, -20.0, -70.0] or look.low[:3].min() == -80.0


@pytest.mark.parametrize("delay", [0, (0, 2)])
def test_history_can_be_an_axis(delay: int | tuple[int, int]) -> None:
    """Stacked, the columns are those of one value; a second call at the same tick changes nothing."""
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"))])
    flat, stacked = (scene.observer(ObsTerm("p", delay=delay), history=9, stacked=each) for each in (False, True))
    for _ in range(12):
        syn.advance(scene)
        first, again, parts = stacked(), stacked(), flat.split(flat())
    assert stacked.shape == (4, 9, 4) and torch.equal(first, again)
    torch.testing.assert_close(first[..., :3], parts["p.vec"], rtol=0, atol=0)
    torch.testing.assert_close(first[..., 3], parts["p.speed"], rtol=0, atol=0)
    assert stacked.columns == ["p.vec[x]", "p.vec[y]", "p.vec[z]", "p.speed"] and stacked.low.shape == (9, 4)
    assert torch.equal(stacked.split(first)["p.vec"], first[..., :3])
    assert scene.observer("p", history=1, stacked=True)().shape == (4, 1, 4)
    with pytest.raises(sn.ConfigError, match=r"history: got .0, 2., expected one history >= 1"):
        scene.observer(ObsTerm("p.vec", history=2), "p.speed", stacked=True)


def test_delay_is_drawn_per_episode() -> None:
    """All delays of the range occur, each is constant in an episode, and other environments do not change it."""
    envs = 64
    scene, few = syn.world([syn.ScalarCfg(name="s")], num_envs=envs), syn.world([syn.ScalarCfg(name="s")], num_envs=3)
    looks = [each.observer(ObsTerm("s", delay=(1, 3))) for each in (scene, few)]
    seen = []
    for tick in range(12):
        for each in (scene, few):
            syn.advance(each)
            if tick == 5:
                syn.reset(each, tick=each.tick)
        values = [look()[:, 0] for look in looks]
        seen.append((syn.signal(scene.tick, envs)[:, 0] - values[0]).numpy())
        assert torch.equal(values[0][:3], values[1])
    late = np.stack(seen)
    for part in (late[3:5], late[9:]):
        assert (part == part[0]).all() and set(np.unique(part)) == {1.0, 2.0, 3.0}
    assert (late[4] != late[9]).any()


@ON_DEVICES
def test_noise_of_a_term_is_a_pure_function(is_cpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the NumPy twin for seed, group, term, tick and episode, on top of the value, before the clip."""
    sensors = [syn.ProbeCfg(name="p", fields=("vec", "speed")), syn.WideCfg(name="w", columns=6)]
    scene = syn.world(sensors, num_envs=11, seed=5, first_env=7)
    terms = ObsTerm("p.vec", noise=0.5, clip=(-20.0, 20.0)), "p.speed", ObsTerm("w.x", noise=sn.Uniform(-1.0, 2.0))
    plain = scene.observer("p.vec", "p.speed", "w.x")
    with monkeypatch.context() as patch:
        patch.setattr(scene.compute, "is_cpu", is_cpu)
        look = scene.observer(*terms, history=2)
    syn.advance(scene, 4)
    syn.reset(scene, [1, 9], tick=scene.tick)
    envs, episodes = 7 + np.arange(11), scene.clock.episode.numpy()
    normals = normals_numpy(stream_key(5, "/p.vec", "observation"), 4, envs, episodes, 0, 3)
    uniforms = uniforms_numpy(stream_key(5, "/w.x", "observation"), 4, envs, episodes, 0, 6)
    expected = plain().numpy()
    expected[:, :3] = np.clip(expected[:, :3] + np.float32(0.5) * normals, -20.0, 20.0)
    expected[:, 4:] += np.float32(-1.0) + np.float32(3.0) * uniforms
    got = look()
    np.testing.assert_array_equal(np.concatenate([got[:, :3], got[:, 6:7], got[:, 8:14]], axis=1), expected)
    assert torch.equal(look(), got)


def test_statistics_follow_all_values_and_stop() -> None:
    """Mean and deviation are those of all values so far; the newest batch counts from the next observation on."""
    scene = syn.world([syn.ProbeCfg(name="p"), syn.WideCfg(name="w", columns=70)], num_envs=7)
    envs = torch.arange(7.0)
    odd = 1000.0 + torch.stack([torch.log(envs), torch.where(envs > 0, 3.0, torch.nan)], 1)  # invalid in environment 0
    terms = [ObsTerm("p.vec"), ObsTerm(lambda: odd + scene.tick % 3, name="odd"), ObsTerm("w.x", history=2)]
    plain = scene.observer(*terms)
    look = scene.observer(*(replace(term, normalise=True) for term in terms), ObsTerm("p", name="raw"))
    values: list[np.ndarray] = []
    for _ in range(6):
        syn.advance(scene)
        now, got = plain().numpy().astype(np.float64)[:, :75], look().numpy()
        past = np.concatenate(values or [now])
        past[~np.isfinite(past)] = np.nan
        expected = (now - np.nanmean(past, axis=0)) / np.sqrt(np.nanvar(past, axis=0) + 1e-8)
        np.testing.assert_allclose(got[:, :75], expected.clip(-10.0, 10.0), atol=2e-4)
        np.testing.assert_array_equal(got[:, 145:], syn.signal(scene.tick, 7))
        values.append(now)
    look.learns = False
    kept = look().clone()
    syn.advance(scene, 3)
    look(), syn.reset(scene, tick=scene.tick - 3)
    np.testing.assert_allclose(look()[:, :3], kept[:, :3], atol=1e-5)
    assert look.low[:145].tolist() == [-10.0] * 145 and set(look.units[:145]) == {"1"}


def test_memory_is_part_of_the_state() -> None:
    """Saved and restored into a twin, histories and statistics continue bit for bit."""

    def build() -> tuple[sn.Scene, Any]:
        scene = syn.world([syn.ProbeCfg(name="p")])
        late = ObsTerm("p", delay=(0, 3), noise=1.0, name="d")
        terms = ObsTerm("p.vec", history=3, delay=1), ObsTerm("p", normalise=True, name="n"), late
        return scene, scene.observer(*terms)

    scene, look = build()
    numbers(scene, 5, look)
    saved = scene.state()
    after = numbers(scene, 4, look, {2: [1, 3]})
    twin, other = build()
    with pytest.raises(sn.ConfigError, match=r"observers: got .*Create them before scene.load_state"):
        syn.world([syn.ProbeCfg(name="p")]).load_state(saved)
    for loaded, observer in ((twin, other), (scene, look)):
        loaded.load_state(saved)
        syn.write(loaded, loaded.tick)
        np.testing.assert_array_equal(numbers(loaded, 4, observer, {2: [1, 3]}), after)


# Sources --------------------------------------------------------------------------------------------------------------


def test_age_validity_derived_values_and_functions_are_observed() -> None:
    scene = syn.world([syn.ScalarCfg(name="s", delay=0.03, update_period=0.02), syn.ProbeCfg(name="p")])
    look = scene.observer(
        "s.age", "s.valid", "s.is_new", ObsTerm(lambda: 2.0 * syn.signal(scene.tick, 4), name="twice"), "p.vec"
    )
    seen = []
    for _ in range(6):
        syn.advance(scene)
        parts, s = look.split(look()), scene["s"]
        assert torch.equal(parts["s.age"], s.age.float()) and torch.equal(parts["s.valid"], s.valid.float())
        assert torch.equal(parts["s.is_new"], s.is_new.float()) and torch.equal(parts["twice"], 2.0 * parts["p.vec"])
        seen.append(parts["s.valid"][0].item())
    assert seen[0] == 0.0 and seen[-1] == 1.0 and look.columns[3] == "twice[x]"
    assert look.low[:3].tolist() == [0.0, 0.0, 0.0] and look.high[:3].tolist() == [math.inf, 1.0, 1.0]
    with pytest.raises(sn.ConfigError, match="this value belongs to the measured data"):
        scene.observer(ObsTerm("s.age", truth=True))
    with pytest.raises(sn.ConfigError, match=r"a named function that returns a tensor \[env, ...\]"):
        scene.observer(ObsTerm(lambda: torch.zeros(3), name="short"))


def test_height_scan_is_observed_measured_and_true() -> None:
    engine = sn.TensorEngine(2, 0.01, shapes=[sn.engines.Shape("box", "box", (0.2, 0.2, 0.1), pos=(0.0, 0.0, -0.6))])
    pattern = sn.patterns.GridPatternCfg(size=(1.0, 0.0), resolution=0.5)
    scan = sn.RayCasterCfg(name="scan", body="body", pattern=pattern, max_distance=4.0, noise=0.05)
    scene = sn.Scene(engine, [scan])
    look = scene.observer("scan.height_scan", ObsTerm("scan.height_scan", truth=True, history=2))
    obs = look()
    assert torch.equal(obs[:, :3], scene["scan"].height_scan()) and not torch.equal(obs[:, :3], obs[:, 3:6])
    torch.testing.assert_close(obs[:, 3:6], torch.tensor([[4.0, 0.5, 4.0]]).expand(2, 3))
    assert list(look.names) == ["scan.height_scan", "truth:scan.height_scan"] and look.units[0] == "m"


def test_knobs_can_be_read_and_observed() -> None:
    """What is drawn per episode is that which the readings contain."""
    cfg = sn.ImuCfg(
        name="imu", body="body", fields=("ang_vel_b", "lin_acc_b"), gyro_bias=sn.Uniform(-1.0, 1.0), gyro_noise=0.0,
        delay=sn.Uniform(0.0, 0.04), loss=0.0,
        stages=(sn.stages.ScaleError(fields=("lin_acc_b",), scale=sn.Normal(0.0, 0.1)),),
    )  # fmt: skip
    scene = syn.world([cfg], provides=("pose", "velocity", "acceleration", "gravity"))
    imu, look = scene["imu"], scene.observer(groups={"policy": ["imu"], "critic": ["imu.gyro_bias", "imu.delay"]})
    for _ in range(2):
        bias, delay = imu.get("gyro_bias"), imu.get("delay")
        assert bias.shape == (4, 3) and len(bias.unique()) == 12 and len(delay.unique()) == 4
        torch.testing.assert_close(bias, imu.buffers.work.ang_vel_b[:, 0] - imu.ground_truth.ang_vel_b)
        assert torch.equal(look()["critic"], torch.cat([bias, delay[:, None]], dim=1))
        scene.reset()
        assert not torch.equal(imu.get("gyro_bias"), bias)
    assert look["critic"].units == ["rad/s"] * 3 + ["s"]
    assert torch.equal(imu.get("bias.ang_vel_b", [2]), imu.get("gyro_bias")[2:3])
    assert imu.get("gyro_noise").tolist() == [[0.0] * 3] * 4 and imu.get("loss").tolist() == [0.0] * 4
    assert imu.get("scale_error.scale_lin_acc_b").shape == (4, 3)
    imu.set("gyro_noise", 0.25, [1])
    assert imu.get("gyro_noise")[:, 0].tolist() == [0.0, 0.25, 0.0, 0.0]
    with pytest.raises(sn.ConfigError, match="a knob that the config gives"):
        imu.get("acc_bias")
    with pytest.raises(sn.UnknownNameError, match="gyro_bias"):
        imu.get("gyro_bais")
    with pytest.raises(sn.ConfigError, match="a knob that is set in the config"):
        imu.get("jitter")


def test_groups_have_their_own_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensordict", None)
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"), noise={"vec": 1.0, "speed": 1.0})])
    look = scene.observer(
        groups={"policy": ["p"], "critic": ["p.speed", ObsTerm("p.vec", truth=True)]}, history=2, stacked=["policy"]
    )
    syn.advance(scene, 2)
    obs = look()
    assert {name: tuple(each.shape) for name, each in obs.items()} == {"policy": (4, 2, 4), "critic": (4, 8)}
    assert all(each.is_contiguous() for each in obs.values()) and look["critic"].shape == (4, 8)
    assert torch.equal(obs["policy"][:, 0, 3], obs["critic"][:, 0]) and torch.equal(look["policy"](), obs["policy"])
    assert torch.equal(look["critic"].split(obs["critic"])["truth:p.vec"][:, 0], syn.signal(2, 4))
    with pytest.raises(sn.UnknownNameError, match="Did you mean 'critic'"):
        look["critik"]
    with pytest.raises(sn.MissingDependencyError, match="pip install tensordict"):
        look.tensordict()
    with pytest.raises(sn.ConfigError, match="groups instead of fields and truth"):
        scene.observer("p", groups={"policy": ["p"]})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"noise": -1.0}, "noise: got -1.0"),
        ({"noise": sn.Choice((1.0, 2.0))}, "noise: got"),
        ({"clip": (2.0, 1.0)}, "clip: got"),
        ({"scale": math.nan}, "scale: got nan"),
        ({"delay": (2, 1)}, "delay: got"),
        ({"history": -1}, "history: got -1"),
        ({"history": True}, "history: got True"),
        ({"delay": 1.0}, "delay: got 1.0"),
        ({"clip": 3.0}, "clip: got 3.0"),
        ({"scale": "x"}, "scale: got 'x'"),
    ],
)
def test_invalid_option_is_named(options: Any, says: str) -> None:
    with pytest.raises(sn.ConfigError, match=says):
        ObsTerm("p.vec", **options)


def test_option_must_fit_the_field() -> None:
    scene = syn.world([syn.ProbeCfg(name="p", fields=syn.ALL_FIELDS)])
    with pytest.raises(sn.ConfigError, match=r"scale: got .*, expected a number, or factors that fit \[3\]"):
        scene.observer(ObsTerm("p.vec", scale=(1.0, 2.0)))
    with pytest.raises(sn.ConfigError, match="no noise for a rotation"):
        scene.observer(ObsTerm("p.quat", noise=0.1))


# Mirror ---------------------------------------------------------------------------------------------------------------

LEFT_RIGHT = """
<mujoco><worldbody><body name="trunk" pos="0 0 1"><freejoint/><geom size=".1 .1 .1" type="box"/><site name="imu"/>
  {legs}
</body></worldbody></mujoco>"""
LEG = """<body name="{s}_hip" pos="0.2 {y} 0"><joint name="{s}_roll" axis="1 0 0" damping=".1"/><geom size=".05"/>
  <body name="{s}_knee" pos="0.05 {z} -.3"><joint name="{s}_pitch" axis="0 1 0" damping=".1"/>
  <geom size=".05" pos=".02 {z} -.1"/>  <site name="{s}_foot" pos="0.1 {z} -.2"/></body></body>"""


def test_mirror_of_a_mirrored_robot() -> None:
    """Two falling robots whose states are mirror images of one another have mirrored observations."""
    legs = LEG.format(s="L", y=0.1, z=0.03) + LEG.format(s="R", y=-0.1, z=-0.03)
    engine = sn.MujocoEngine(LEFT_RIGHT.format(legs=legs), num_envs=2)
    grid = sn.patterns.GridPatternCfg(size=(0.4, 0.4), resolution=0.2)
    scene = sn.Scene(
        engine,
        [
            sn.ImuCfg(name="imu", site="imu", fields=("quat_w", "ang_vel_b", "lin_acc_b", "lin_vel_b", "ang_acc_b")),
            sn.JointSensorCfg(name="joints", joints=".*_(roll|pitch)"),
            sn.BodyStateCfg(name="feet", sites=".*_foot"),
            sn.ImuCfg(name="left_imu", site="L_foot"), sn.ImuCfg(name="right_imu", site="R_foot"),
            sn.RayCasterCfg(name="scan", site="imu", pattern=grid, fields=("distances",)),
        ],
    )  # fmt: skip
    qpos = torch.tensor([[0.1, 0.2, 1.0, 0.9, 0.1, 0.3, -0.2, 0.3, -0.4, 0.1, 0.2]], dtype=torch.float64)
    qpos[:, 3:7] /= qpos[:, 3:7].norm()
    qvel = torch.tensor([[0.5, -1.0, 0.3, 1.0, 2.0, -1.5, 0.4, -0.3, 0.8, 0.6]], dtype=torch.float64)
    pos = torch.tensor([1.0, -1, 1, 1, -1, 1, -1])
    vel = torch.tensor([1.0, -1, 1, -1, 1, -1])
    legs_of = torch.tensor([2, 3, 0, 1])
    turns = torch.tensor([-1.0, 1, -1, 1])
    other_pos = torch.cat([qpos[:, :7] * pos, qpos[:, 7:][:, legs_of] * turns], dim=1)
    other_vel = torch.cat([qvel[:, :6] * vel, qvel[:, 6:][:, legs_of] * turns], dim=1)
    scene.reset(qpos=torch.cat([qpos, other_pos]), qvel=torch.cat([qvel, other_vel]))
    look = scene.observer("imu", "joints", "feet", "left_imu", "right_imu", "scan", ObsTerm("imu.ang_vel_b", name="h",
                          history=2), replace_inf=9.0)  # fmt: skip
    mirror = look.mirror(flip=[".*_roll"])
    for _ in range(3):
        obs = look()
        torch.testing.assert_close(mirror(obs[0]), obs[1], atol=1e-4, rtol=1e-4)
        assert torch.equal(mirror(mirror(obs)), obs) and (mirror(obs[0]) - obs[0]).abs().max() > 0.5
        scene.step(substeps=5)
    with pytest.raises(sn.ConfigError, match=r"flip: got None, .*'joints.position' has joints"):
        look.mirror()
    with pytest.raises(sn.ConfigError, match="a partner 'R_roll' among"):
        scene.observer(ObsTerm(lambda: torch.zeros(2, 1), name="x", items=["L_roll"])).mirror()
    with pytest.raises(sn.ConfigError, match=r"x: got '2 elements without names', expected named elements.*items="):
        scene.observer(ObsTerm(lambda: torch.zeros(2, 2), name="x")).mirror()
    assert scene.observer(ObsTerm(lambda: torch.zeros(2, 2), name="x", items=["sin", "cos"])).mirror()
    assert torch.equal(
        Mirror.of_names(["L_a", "R_a"], flip=["R_a"])(torch.tensor([1.0, 2.0])), torch.tensor([2.0, -1.0])
    )
    pairs = look.mirror(pairs=[("L_", "R_"), ("left", "right")], flip=[".*_roll"])
    assert torch.equal(pairs.columns, mirror.columns) and torch.equal(pairs.signs, mirror.signs)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("FL_hip", "FR_hip"), ("RL_foot", "RR_foot"), ("left_knee", "right_knee"), ("robot/LF_HAA", "robot/RF_HAA"),
        ("shoulderLeft", "shoulderRight"), ("l_hand", "r_hand"), ("torso", "torso"), ("upright", "upright"),
        ("L515", "L515"), ("HL.x", "HR.x"), ("roll", "roll"),
    ],
)  # fmt: skip
def test_partner_by_name(name: str, other: str) -> None:
    assert other_side(name) == other and other_side(other) == name


def test_vector_without_parity_needs_a_choice() -> None:
    scene = syn.world([syn.ProbeCfg(name="p")])
    look = scene.observer("p.vec")
    with pytest.raises(sn.ConfigError, match='Mark its Field with parity="polar" or "axial"'):
        look.mirror()
    assert look.mirror(flip=["p.vec.y."]).signs.tolist() == [1.0, -1.0, 1.0]
