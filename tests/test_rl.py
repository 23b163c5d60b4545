"""Environments for reinforcement learning, action delays and seeds, and the wrappers for Gymnasium."""

from __future__ import annotations

import copy
import itertools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from cart import MODEL, Cart
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics

import sensorium as sn
from sensorium.rl import ActionDelay, GymnasiumEnv, GymnasiumVectorEnv, RlEnv


def actions(envs: int, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (steps, envs, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def cart() -> Cart:
    return Cart(3)


# Environments ---------------------------------------------------------------------------------------------------------


def test_episode_is_counted_and_ends(cart: Cart) -> None:
    """An episode terminates at its limit of the state, or is truncated at its limit of time, but never both."""
    cart.reset(seed=0)
    for step in range(1, 41):
        push = np.array([[0.0], [1.0], [-1.0]], np.float32)
        reward, terminated, truncated = cart.step(push)
        assert cart.episode_length.tolist() == [step] * 3 and not (terminated & truncated).any()
        torch.testing.assert_close(reward, torch.exp(-4.0 * cart.place**2))
        assert torch.equal(terminated, cart.place.abs() > 1.5)
    assert truncated.tolist() == [True, False, False] and terminated.tolist() == [False, True, True]
    cart.reset(terminated)
    assert cart.episode_length.tolist() == [40, 0, 0] and cart.action[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert (cart.place[1:].abs() < 1.0).all()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        *((lambda env, ids=ids: env.reset(ids), "env_ids: got") for ids in ([3], [-1], [0.5], [0, 0], "x", [None])),
        *((lambda env, seed=seed: env.reset(seed=seed), "seed: got .* an integer") for seed in (1.5, "x", [1])),
        *((lambda env, seed=seed: GymnasiumVectorEnv(env).reset(seed=seed), "at least 0") for seed in (1.5, "x", -1)),
        (lambda env: env.reset([0], seed=1), "omit env_ids"),
        (lambda env: env.draw("start", sn.Uniform(0.0, 1.0), env_ids=[3]), "env_ids: got"),
        (lambda env: env.scene.draw(3, sn.Uniform(0.0, 1.0)), "draw: purpose: got 3, expected text"),
        (lambda env: env.scene.draw("start", 0.5), "draw: distribution: got 0.5, expected a distribution"),
        (lambda env: env.scene.draw("start", sn.Uniform(0.0, 1.0), 0), "draw: count: got 0, expected an integer of at"),
        *(
            (lambda env, a=a: env.step(a), r"action: got (.|\n)* real numbers")
            for a in ("x", None, np.full((3, 1), 1j))
        ),
        (lambda env: env.step(np.zeros(3)), r"an action of shape \[3\]; \[env, action\], \[3, 1\]"),
        (lambda env: sn.Scene(env.scene.engine, seed=1.5), "seed: got 1.5, expected an integer"),
    ],
)
def test_invalid_arguments_are_named(cart: Cart, call: Callable[[Cart], object], match: str) -> None:
    with pytest.raises(sn.ArgumentError, match=match):
        call(cart)


def test_reset_of_no_environment_changes_nothing(cart: Cart) -> None:
    cart.reset(seed=0)
    cart.step(np.ones((3, 1)))
    state, before = cart.scene.engine.state()["rows"]["state"].clone(), cart.observe()
    for none in ([], torch.zeros(3, dtype=torch.bool), np.zeros(0, np.int64)):
        cart.reset(none)
        cart.scene.reset(none)
    assert torch.equal(cart.scene.engine.state()["rows"]["state"], state) and cart.episode_length.tolist() == [1] * 3
    assert all(torch.equal(values, before[name]) for name, values in cart.observe().items())


@pytest.mark.parametrize("name", ["reward", "terminated"])
def test_result_of_another_shape_is_refused(name: str) -> None:
    """A column `[env, 1]` would be broadcast to `[env, env]`."""
    env = Cart(3)
    setattr(env, name, lambda: torch.zeros(3, 1))
    with pytest.raises(sn.ArgumentError, match=rf"Cart.{name}: returned a tensor \[3, 1\], expected \[env\], \[3\]"):
        env.step(np.zeros((3, 1)))


FALL = """<mujoco><option timestep=".01"><flag autoreset="{autoreset}"/></option><worldbody>
  <geom type="plane" size="9 9 1"/><body name="ball" pos="0 0 .12"><joint type="slide" axis="0 0 1"/>
  <geom size=".1" mass="1"/></body></worldbody><actuator><motor joint="joint_0"/></actuator></mujoco>"""


class Fall(RlEnv):
    """Returns views of sensors, and no state of new episodes; an episode ends when the ball touches the ground."""

    def __init__(self, autoreset: str = "enable") -> None:
        joints = sn.JointSensorCfg(name="joints", joints=".*", fields=("velocity",))
        sensors = [joints, sn.ContactCfg(name="hit", body="ball")]
        xml = (
            FALL.format(autoreset=autoreset)
            .replace('joint="joint_0"', 'joint="s"')
            .replace("<joint ", '<joint name="s" ')
        )
        super().__init__(sn.Scene(sn.MujocoEngine(xml, 2), sensors), {"policy": ["joints"]}, max_episode_steps=50)

    def reward(self) -> torch.Tensor:
        return self.scene["joints"].ground_truth.velocity[:, 0]

    def terminated(self) -> torch.Tensor:
        hit: torch.Tensor = self.scene["hit"].ground_truth
        return hit

    def begin_episode(self, env_ids: torch.Tensor) -> None:
        return None


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_views_of_sensors_keep_the_values_of_their_step(mode: AutoresetMode) -> None:
    """An episode ends at the first contact with the velocity of that step, and no kept result changes later."""
    envs = GymnasiumVectorEnv(Fall(), autoreset_mode=mode)
    envs.reset(seed=1)
    kept, copies, ends = [], [], 0
    for _ in range(20):
        result = envs.step(np.zeros((2, 1), np.float32))
        kept.append(result)
        copies.append(copy.deepcopy(result))
        obs, reward, terminated, _, info = result
        last = np.stack(list(info["final_obs"])) if "final_obs" in info else obs
        if terminated.any():
            ends += 1
            assert terminated.all() and (reward < -0.4).all()
            np.testing.assert_array_equal(reward, last[:, 0])
            if mode == AutoresetMode.DISABLED:
                envs.reset(options={"reset_mask": terminated})
    assert ends >= 2
    np.testing.assert_equal(kept, copies)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("cause", ["state", "kept state", "action"])
def test_diverged_environment_ends_its_episode(
    mode: AutoresetMode, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The episode of the environment with NaN terminates with the reason, a reward of 0 and finite observations, and a
    new one begins by the rules of the mode. The other environment is unaffected.
    """
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log to the working directory
    task, twin = (Fall("disable" if cause == "kept state" else "enable") for _ in range(2))
    envs, calm = (GymnasiumVectorEnv(each, autoreset_mode=mode) for each in (task, twin))
    envs.reset(seed=1)
    calm.reset(seed=1)
    push = np.zeros((2, 1), np.float32)
    envs.step(push)
    calm.step(push)
    broken = push.copy()
    if cause == "action":
        broken[1] = np.nan
    else:
        task.scene.engine.qvel[1] = np.nan  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sn.SensoriumWarning)
        obs, reward, terminated, truncated, info = envs.step(broken)
    expected = calm.step(push)
    assert terminated.tolist() == info["diverged"].tolist() == [False, True] and not truncated.any()
    assert reward[1] == 0.0 and reward[0] == expected[1][0] and obs[0] == expected[0][0]
    if mode == AutoresetMode.SAME_STEP:
        assert info["final_info"]["diverged"].tolist() == [False, True] and np.isfinite(info["final_obs"][1]).all()
    elif mode == AutoresetMode.DISABLED:
        obs, _ = envs.reset(options={"reset_mask": terminated})
    else:
        assert np.isfinite(obs).all()
        obs, reward, terminated, _, info = envs.step(push)
        assert info == {} and not terminated.any()
    assert obs[1] == 0.0 and task.episode_length[1] == 0 and task.scene["joints"].valid.all()
    assert envs.step(push)[4] == {}


def test_a_reward_that_is_not_finite_ends_the_episode() -> None:
    """`TensorEngine` does not report divergence: its state is that of a simulator of the user."""

    class Broken(RlEnv):
        def control(self, action: torch.Tensor) -> Any:
            self.scene.engine.body_pos_w[1, 0, 0] = float("nan")  # type: ignore[attr-defined]

        def reward(self) -> torch.Tensor:
            return self.scene["state"].ground_truth.pos_w[:, 0]

    scene = sn.Scene(sn.TensorEngine(2, bodies=("b",)), [sn.BodyStateCfg(name="state", body="b")])
    envs = GymnasiumVectorEnv(Broken(scene, {"policy": ["state.pos_w"]}, actions=("x",)), autoreset_mode="SameStep")
    envs.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sn.SensoriumWarning)
        _, reward, terminated, _, info = envs.step(np.zeros((2, 1), np.float32))
    assert terminated.tolist() == info["diverged"].tolist() == [False, True] and reward.tolist() == [0.0, 0.0]
    assert np.isfinite(info["final_obs"][1]).all()


def test_single_environment_reports_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = GymnasiumEnv(Cart(1))
    env.reset(seed=1)
    assert env.step(np.zeros(1))[4] == {}
    with pytest.warns(sn.SensoriumWarning, match="controls of env 0 were NaN"):
        obs, reward, terminated, truncated, info = env.step(np.full(1, np.nan))
    assert (reward, terminated, truncated, info) == (0.0, True, False, {"diverged": True}) and np.isfinite(obs).all()
    with pytest.raises(sn.ArgumentError, match="action: got"):
        env.step(np.full(1, 1j))


GYMNASIUM = Path(gymnasium.__file__).parent / "envs/mujoco/assets"


@pytest.mark.filterwarnings("ignore:compiler attribute 'settotalmass'")
@pytest.mark.parametrize("path", sorted(GYMNASIUM.glob("*.xml")), ids=lambda path: path.stem)
def test_each_control_of_gymnasiums_models_is_an_action(path: Path) -> None:
    """Most of these models have actuators without names."""
    engine = sn.MujocoEngine(str(path))
    task = RlEnv(sn.Scene(engine, [sn.JointSensorCfg(name="j", joints=".*")]), {"policy": ["j"]})
    model = mujoco.MjModel.from_xml_path(str(path))
    scalar = model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
    assert GymnasiumEnv(task).action_space.shape == (model.nu,) and model.nu > 0
    assert task.scene["j"].data.position.shape == (1, scalar.sum())
    sealed = sn.MujocoEngine(model)
    for kind in ("body", "joint", "geom", "site", "camera", "actuator"):
        assert engine.names(kind) == sealed.names(kind), kind  # type: ignore[arg-type]


def test_control_of_several_numbers_is_as_many_actions() -> None:
    xml = MODEL.replace("<motor name", '<orientation name="turn" joint="ball" kp="1"/><motor name').replace(
        "</worldbody>", '<body><joint name="ball" type="ball"/><geom size=".1"/></body></worldbody>'
    )
    task = RlEnv(sn.Scene(sn.MujocoEngine(xml), [sn.JointSensorCfg(name="j", joints=".*")]), {"policy": ["j"]})
    assert task.action_names == ("turn[0]", "turn[1]", "turn[2]", "push")


def test_seed_repeats_the_run_and_others_differ(cart: Cart) -> None:
    """Equal seeds give equal starts, noise and biases, over resets of single environments; other seeds do not."""

    def run(seed: int) -> torch.Tensor:
        cart.reset(seed=seed)
        seen = [cart.observe()]
        for step, action in enumerate(actions(3, 12)):
            cart.step(action)
            if step == 5:
                cart.reset([1])
            seen.append(cart.observe())
        return torch.stack([torch.cat([obs["policy"], obs["critic"]], dim=1) for obs in seen])

    first, other = run(7), run(8)
    cart.reset([1])
    assert cart.place[1] == cart.draw("start", sn.Uniform(-1.0, 1.0))[1, 0], "not the start of this episode"
    drawn = cart.draw("start", sn.Uniform(0.0, 1.0))
    assert torch.equal(cart.draw("start", sn.Uniform(0.0, 1.0), env_ids=torch.tensor([False, True, True])), drawn[1:])
    assert torch.equal(run(7), first)
    assert (first[0] != other[0])[:, [0, 1, 3, 5]].all() and (first[0, 1] != first[6, 1])[[0, 3, 5]].all()


def test_seed_keeps_running_statistics(cart: Cart) -> None:
    look = cart.scene.observer(sn.ObsTerm("joints.position", normalise=True))
    seen = []
    for _ in range(2):
        cart.reset(seed=3)
        seen.append((cart.observe()["policy"], look()))
        for action in actions(3, 10):
            cart.step(action)
            look()
    (first, before), (again, after) = seen
    assert torch.equal(first, again) and not torch.equal(before, after)


def test_knobs_and_models_are_randomised() -> None:
    """Each reset draws the knobs and factors of the models of its environments, and leaves the others."""
    env = Cart(
        5,
        randomise={
            "joints.delay": sn.Uniform(0.0, 0.01),
            "joints.noise.velocity": sn.Uniform(0.0, 1.0),
            "model.geom_friction": sn.Uniform(0.5, 2.0),
        },
        delay=0.01,
    )
    friction = env.scene.engine.batch.expanded("geom_friction")  # type: ignore[attr-defined]
    env.reset(seed=1)
    assert len(env.scene["joints"].get("noise.velocity").unique()) == 5
    delay, before = env.scene["joints"].get("delay"), friction.copy()
    assert len(delay.unique()) == 5 and len(np.unique(before[:, 0, 0])) == 5
    np.testing.assert_allclose(before[:, :, 1] / before[:, :, 0], 0.005, rtol=1e-6)  # one factor per environment
    env.reset([0, 3])
    changed = env.scene["joints"].get("delay") != delay
    assert changed.tolist() == (friction != before).any(axis=(1, 2)).tolist() == [True, False, False, True, False]
    with pytest.raises(sn.ConfigError, match="a knob that the config gives"):
        Cart(1, randomise={"joints.resolution.position": sn.Uniform(0.0, 1.0)})
    for law in (sn.Uniform(0.0, 0.011), sn.Choice((0.0, 0.02)), sn.Normal(0.005, 0.001)):  # at construction
        with pytest.raises(sn.ConfigError, match=r"randomise\.joints\.delay: got .*expected.*the capacity of the ring"):
            Cart(1, randomise={"joints.delay": law})
    assert repr(env.randomisation).startswith("Randomisation(joints.delay: Uniform(low=0.0, high=0.01), joints.noise.")
    with pytest.raises(sn.ConfigError, match="The sensor draws it at each reset"):
        Cart(1, randomise={"joints.bias.position": sn.Uniform(0.0, 1.0)})
    with pytest.raises(sn.ConfigError, match=r"randomise\.joints\.noise: got 1\.2, expected a distribution"):
        Cart(1, randomise={"joints.noise": 1.2})  # type: ignore[dict-item]
    for field, match in (
        ("nothing", "cannot vary 'nothing'"),
        ("dof_invweight0", "MuJoCo derives dof_invweight0"),
        ("geom_condim", "a factor would be rounded"),
    ):
        with pytest.raises(sn.ArgumentError, match=match):
            Cart(1, randomise={f"model.{field}": sn.Uniform(0.0, 1.0)})


def test_randomised_knobs_are_drawn_per_env_and_axis_as_those_of_a_config() -> None:
    """Their numbers depend neither on the number of environments nor on which others are reset with them."""
    xml = """<mujoco><worldbody><body name="box"><freejoint/><geom size=".1"/></body><body pos="0 0 1">
      <joint name="arm"/><geom size=".1"/></body></worldbody><actuator><motor joint="arm"/></actuator></mujoco>"""

    def task(envs: int, first: int = 0, **randomise: sn.Uniform | sn.Choice) -> RlEnv:
        cfg = sn.ImuCfg(name="imu", body="box", gyro_bias=0.0, acc_noise=0.0)
        scene = sn.Scene(sn.MujocoEngine(xml, envs), [cfg], first_env=first, seed=3)
        return RlEnv(scene, {"policy": ["imu"]}, randomise={f"imu.{name}": law for name, law in randomise.items()})

    def bias(env: RlEnv) -> Any:
        return env.scene["imu"].get("gyro_bias")

    law = sn.Uniform(-0.05, 0.05)
    whole, parts = task(6, gyro_bias=law), [task(3, first, gyro_bias=law) for first in (0, 3)]
    for each in (whole, *parts):
        each.reset()
    assert len(bias(whole).unique()) == 18 and torch.equal(bias(whole), torch.cat([bias(each) for each in parts]))
    parts[0].reset([0, 1, 2])
    whole.reset([0, 2])
    assert torch.equal(bias(whole)[[0, 2]], bias(parts[0])[[0, 2]])
    axes = task(4, acc_noise=sn.Uniform((0.0, 1.0, 2.0), (1.0, 2.0, 3.0)))
    axes.reset()
    assert (axes.scene["imu"].get("acc_noise").floor() == torch.tensor([0.0, 1.0, 2.0])).all()
    with pytest.raises(sn.ConfigError, match=r"randomise\.imu\.gyro_bias: got Uniform.*expected 3"):
        task(2, gyro_bias=sn.Uniform((0.0, 0.0), (1.0, 1.0)))


def test_scaled_mass_is_that_of_a_model_with_this_mass() -> None:
    """Force and torque accelerate a body by F / m and tau / I, and derived constants are those of a compiled model."""
    xml = """<mujoco><option gravity="0 0 0"/><worldbody><body name="box"><freejoint/>
      <geom type="box" size=".1 .2 .3" mass="2"/>
      <body name="arm" pos=".5 0 0"><joint name="arm"/><geom size=".1"/></body></body></worldbody>
      <actuator><motor joint="arm"/></actuator></mujoco>"""
    engine = sn.MujocoEngine(xml, 3)
    joints = sn.JointSensorCfg(name="arm", joint="arm")
    task = RlEnv(sn.Scene(engine, [joints]), {"policy": ["arm"]}, randomise={"model.body_mass": sn.Uniform(0.5, 2.0)})
    task.reset([0, 2])
    task.reset(seed=1)
    wrench = np.array([3.0, -2.0, 1.0, 0.3, 0.2, -0.1])
    engine.batch.bind("xfrc_applied")[:, 1] = wrench
    acceleration = engine.batch.bind("qacc")
    engine.batch.forward()
    for env in range(3):
        spec = mujoco.MjSpec.from_string(xml)
        scaled = engine.batch.get_model(env)
        factor = scaled.body_mass[1] / 2.0
        assert abs(factor - 1.0) > 0.01
        for geom in spec.geoms:
            geom.mass, geom.density = geom.mass * factor, geom.density * factor
        model = spec.compile()
        for field in (
            "body_inertia",
            "body_subtreemass",
            "body_invweight0",
            "dof_invweight0",
            "dof_M0",
            "actuator_acc0",
        ):
            np.testing.assert_allclose(getattr(scaled, field), getattr(model, field), rtol=1e-9, err_msg=field)
        data = mujoco.MjData(model)
        data.xfrc_applied[1] = wrench
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(acceleration[env], data.qacc, rtol=1e-9)
    task.randomisation.restore()
    for env, field in itertools.product(range(3), ("body_mass", "body_inertia", "body_invweight0", "dof_M0")):
        np.testing.assert_array_equal(getattr(engine.batch.get_model(env), field), getattr(engine.model, field))


def test_action_arrives_after_its_delay() -> None:
    """With a delay of 1.5 control steps, the motor sees the control of a zero action, then each one for two ticks,
    from the tick of its arrival on.
    """
    delay = sn.Choice((0.0, 0.01, 0.03))
    env = Cart(12, action_delay=ActionDelay(delay))
    env.reset(seed=3)
    late = (env.action_delay / 0.01).round().long()
    assert set(late.tolist()) == {0, 1, 3}
    seen: list[torch.Tensor] = []
    watch = env.scene.watch(lambda: seen.append(env.scene.engine.ctrl[:, 0].clone()), every_tick=True)  # type: ignore[attr-defined]
    for step in range(1, 6):
        env.step(torch.full((12, 1), float(step)))
    watch.close()
    ticks = torch.stack(seen)  # the control that holds after each tick, until the next control step
    for tick in range(0, 10, 2):  # after the first tick of a step, its second one begins
        expected = ((tick + 1 - late).clamp(min=-2) // 2 + 1).clamp(min=0)
        assert torch.equal(ticks[tick], expected.double()), tick


def test_jitter_and_loss_of_actions() -> None:
    """A lost action never arrives; a later action is never replaced by an earlier one."""
    env = Cart(64, action_delay=ActionDelay(0.0, jitter=0.04, loss=0.3))
    env.reset(seed=3)
    newest = torch.zeros(64)
    seen: list[torch.Tensor] = []
    watch = env.scene.watch(lambda: seen.append(env.scene.engine.ctrl[:, 0].float().clone()), every_tick=True)  # type: ignore[attr-defined]
    for step in range(1, 31):
        env.step(torch.full((64, 1), float(step)))
    watch.close()
    for ctrl in seen:
        assert (ctrl >= newest).all()
        newest = ctrl
    shown = [set(torch.stack(seen)[:, env].tolist()) for env in range(64)]
    missing = 1.0 - np.mean([len(each & set(range(1, 28))) / 27 for each in shown])
    assert 0.3 < missing < 0.75 and ((30.0 - newest) <= 9.0).all()
    with pytest.raises(sn.ConfigError, match=r"loss: got 1\.5, expected a probability"):
        ActionDelay(0.0, loss=1.5)
    with pytest.raises(sn.ConfigError, match=r"delay: got -0\.1, expected seconds"):
        ActionDelay(-0.1)


def test_missing_parts_are_named() -> None:
    scene = sn.Scene(sn.MujocoEngine(MODEL), [sn.JointSensorCfg(name="joints", joints="rail")])
    task = RlEnv(scene, {"policy": ["joints"]})
    task.reset()
    with pytest.raises(NotImplementedError, match="RlEnv must define reward"):
        task.step(np.zeros((1, 1)))
    with pytest.raises(sn.ConfigError, match="substeps: got 0"):
        RlEnv(scene, {"policy": ["joints"]}, substeps=0)
    with pytest.raises(sn.UnknownNameError, match="Did you mean 'policy'"):
        GymnasiumVectorEnv(task, "polisy")


def test_missing_library_names_the_line_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sensorium.rl as rl

    libraries = {
        "RslRlEnv": ("rsl_rl", "pip install rsl-rl-lib"),
        "StableBaselinesEnv": ("stable_baselines3", "pip install stable-baselines3"),
    }
    for name, (library, line) in libraries.items():
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(sn.MissingDependencyError, match=f"{name} needs {library}.*{line}"):
            getattr(rl, name)
    with pytest.raises(AttributeError, match="Did you mean 'RslRlEnv'"):
        getattr(rl, "RslRlEnw")  # noqa: B009  # a name that the type checker would reject


# Gymnasium ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["policy", None])
def test_single_environment_passes_the_checker(group: str | None) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box observation space m(in|ax)imum.*")
        warnings.filterwarnings("ignore", message=".*render.*")
        warnings.filterwarnings("ignore", message=".*not within the expected interval.*")
        check_env(GymnasiumEnv(Cart(1), group), skip_render_check=True)
    with pytest.raises(sn.ConfigError, match="Use GymnasiumVectorEnv"):
        GymnasiumEnv(Cart(2))


def reference(mode: AutoresetMode, steps: np.ndarray) -> list[tuple[Any, ...]]:
    """Return what a vector environment should return: a loop over `RlEnv` with resets by the rules of Gymnasium."""
    env = Cart(3)
    env.reset(seed=4)
    out: list[tuple[Any, ...]] = [(env.observe()["policy"].numpy(),)]
    waiting = np.zeros(3, bool)
    for action in steps:
        reward, terminated, truncated = (each.numpy().copy() for each in env.step(action))
        final = None
        if mode == AutoresetMode.NEXT_STEP and waiting.any():
            env.reset(torch.from_numpy(waiting))
            reward[waiting], terminated[waiting], truncated[waiting] = 0.0, False, False
        done = terminated | truncated
        obs = env.observe()["policy"].numpy().copy()
        if mode != AutoresetMode.NEXT_STEP and done.any():
            final = obs[done]
            env.reset(torch.from_numpy(done))
            obs = env.observe()["policy"].numpy().copy()
        waiting = done
        out.append((obs, reward, terminated, truncated, final))
    return out


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environment_resets_by_its_mode(mode: AutoresetMode) -> None:
    """Observations, rewards and flags are those of the reference in each mode; final observations are from before the
    reset.
    """
    envs = GymnasiumVectorEnv(Cart(3), autoreset_mode=mode.value)
    assert envs.metadata["autoreset_mode"] == mode and envs.num_envs == 3
    steps = np.concatenate([np.ones((30, 3, 1), np.float32), actions(3, 60)])
    expected = reference(mode, steps)
    obs, info = envs.reset(seed=4)
    np.testing.assert_array_equal(obs, expected[0][0])
    ends = 0
    for action, (next_obs, reward, terminated, truncated, final) in zip(steps, expected[1:], strict=True):
        obs, got_reward, got_terminated, got_truncated, info = envs.step(action)
        done = terminated | truncated
        if mode == AutoresetMode.DISABLED and done.any():
            with pytest.raises(sn.ScheduleError, match="reset_mask"):
                envs.step(action)
            np.testing.assert_array_equal(obs[done], final)
            obs, _ = envs.reset(options={"reset_mask": done})
        np.testing.assert_array_equal(obs, next_obs)
        np.testing.assert_array_equal(got_reward, reward)
        np.testing.assert_array_equal(got_terminated, terminated)
        np.testing.assert_array_equal(got_truncated, truncated)
        assert obs in envs.observation_space and got_reward.dtype == np.float64
        if mode == AutoresetMode.SAME_STEP and done.any():
            np.testing.assert_array_equal(info["_final_obs"], done)
            np.testing.assert_array_equal(np.stack(list(info["final_obs"][done])), final)
            assert all(each is None for each in info["final_obs"][~done])
            assert (np.stack(list(info["final_obs"][done])) != obs[done]).any()
        ends += int(done.sum())
    assert ends >= 6 and terminated.dtype == np.bool_
    for bad in (np.zeros(3, bool), np.ones(2, bool), np.ones(3)):
        with pytest.raises(sn.ArgumentError, match="reset_mask"):
            envs.reset(options={"reset_mask": bad})


def test_wrappers_of_gymnasium_accept_it() -> None:
    """Its own wrappers of vector environments keep returns over episodes, and statistics of observations."""
    envs = RecordEpisodeStatistics(NormalizeObservation(GymnasiumVectorEnv(Cart(3))))
    envs.reset(seed=4)
    total = np.zeros(3)
    for action in 0.1 * actions(3, 40):
        obs, reward, _, truncated, info = envs.step(action)
        total += reward
    np.testing.assert_allclose(info["episode"]["r"][truncated], total[truncated], rtol=1e-6)
    assert truncated.any() and obs.shape == (3, 3)
    plain = GymnasiumVectorEnv(Cart(2), None, action_limit=None)
    obs, _ = plain.reset(seed=1)
    assert {name: each.shape for name, each in obs.items()} == {"policy": (2, 3), "critic": (2, 3)}
    assert obs in plain.observation_space and np.isinf(plain.single_action_space.high).all()  # type: ignore[attr-defined]
