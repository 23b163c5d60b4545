"""Observers: fields of several sensors as a single tensor that may be kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
import synthetic as syn
import torch
from torch import Tensor

import sensorium as sn
from sensorium import Field, Record
from sensorium.compat import genesis


def rig() -> list[Any]:
    """Return lazy, eager, slow and delayed sensors, with every dtype that a probe has."""
    return [
        syn.ProbeCfg(name="lazy", fields=syn.ALL_FIELDS),
        syn.ProbeCfg(name="noisy", fields=("vec", "quat"), noise={"vec": 0.5, "quat": 0.01}, random_walk={"vec": 0.1}),
        syn.ProbeCfg(name="late", fields=("vec", "label", "flag"), delay=0.03, jitter=0.02, loss=0.2),
        syn.ScalarCfg(name="slow", update_period=0.03, history_length=2, noise=1.0),
        syn.ScalarCfg(name="alone", noise=1.0),
    ]


FIELDS = ("late", "alone", "lazy.quat", "lazy.flag", "lazy.byte", "lazy.label", "noisy.quat", "noisy.vec", "slow")
TRUTH = ("noisy.vec", "slow", "late.vec")


def by_hand(scene: sn.Scene, fields: Iterable[str], truth: Iterable[str]) -> Tensor:
    """Concatenate what the views show."""
    columns = []
    for text, what in [*((text, "data") for text in fields), *((text, "ground_truth") for text in truth)]:
        name, _, field = text.partition(".")
        sensor = scene[name]
        data = getattr(sensor, what)
        names = [field] if field else [spec.name for spec in sensor.specs]
        columns += [data if sensor.single else getattr(data, each) for each in names]
    return torch.cat([column.reshape(len(column), -1).to(torch.float32) for column in columns], dim=1)


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("capture", "shards"), [(False, 1), (True, 1), (True, 2), (False, 3)])
def test_observer_matches_views_of_a_twin_scene(capture: bool, shards: int) -> None:
    """Values agree bit for bit at every tick and after resets, for lazy, delayed and slow sensors and all dtypes."""
    scene, twin = syn.world(rig()), syn.world(rig(), capture=False)
    scene.compute.shards = shards
    scene.capture(capture)
    look = scene.observer(*FIELDS, truth=TRUTH)
    for tick in range(24):
        for each in (scene, twin):
            syn.advance(each)
            if tick in (9, 16):
                syn.reset(each, [1, 3])
        obs = look()
        assert obs.shape == look.shape == (4, len(look)) and obs.dtype == look.dtype == torch.float32
        assert obs.is_contiguous() and obs.device.type == scene.compute.device
        assert syn.bits(obs.numpy()) == syn.bits(by_hand(twin, FIELDS, TRUTH).numpy())


def test_observing_counts_as_reading() -> None:
    """Lazy sensors are evaluated once per tick on read, and not for an observer that is not called."""
    scene = syn.world([syn.ProbeCfg(name="p")])
    look = scene.observer("p.vec", truth=("p.vec",))
    look()
    before = syn.Probe.calls
    syn.advance(scene, 3)
    assert syn.Probe.calls == before
    look(), look(), scene["p"].data
    assert syn.Probe.calls == before + 1


def test_observer_can_use_truth_for_all_fields() -> None:
    scene = syn.world([syn.ScalarCfg(name="s", noise=9.0)], tick=5)
    look = scene.observer("s", truth=True)
    assert list(look.names) == ["truth:s"]
    assert torch.equal(look()[:, 0], syn.signal(5, 4)[:, 0])


@dataclass(frozen=True, slots=True)
class OddData:
    big: Annotated[Tensor, Field("m", (3,), ("part",), dtype="float64")]
    long: Annotated[Tensor, Field("1", dtype="int64", kind="id")]
    short: Annotated[Tensor, Field("1", (2,), ("pair",), dtype="int16", kind="id")]
    far: Annotated[Tensor, Field("m", (4,), ("ray",))]
    none: Annotated[Tensor, Field("m", (0,), ("nothing",))]


class OddCfg(sn.SimpleSensorCfg[OddData]):
    """A sensor with rare dtypes, infinities and an empty field."""


class Odd(sn.SimpleSensor[OddCfg, OddData]):
    requires = (sn.engines.BODY_POSE,)

    def update_raw_data(self, raw: Record) -> None:
        raw.big.copy_(torch.tensor([1.0 / 3.0, math.inf, math.nan], dtype=torch.float64))
        raw.long.fill_(2**40 + 1)
        raw.short.copy_(torch.tensor([-7, 300]))
        raw.far.copy_(torch.tensor([math.inf, -math.inf, 1.5, 1e30]))


def test_every_dtype_becomes_float32() -> None:
    scene = syn.world([OddCfg(name="odd")])
    look = scene.observer("odd")
    values = np.array([1.0 / 3.0, np.inf, np.nan, 2**40 + 1, -7, 300, np.inf, -np.inf, 1.5, 1e30], np.float32)
    assert np.array_equal(look()[2].numpy(), values, equal_nan=True)
    assert look["odd.none"] == slice(10, 10) and look.split(look())["odd.none"].shape == (4, 0)


def test_infinite_values_can_be_replaced() -> None:
    """+inf and -inf become a number and its negative; NaN and finite values stay."""
    obs = syn.world([OddCfg(name="odd")]).observer("odd", replace_inf=8.0)()
    expected = np.array([1.0 / 3.0, 8.0, np.nan, 2**40 + 1, -7, 300, 8.0, -8.0, 1.5, 1e30], np.float32)
    np.testing.assert_array_equal(obs[0].numpy(), expected)


@dataclass(frozen=True, slots=True)
class OwnData:
    image: Annotated[Tensor, Field("1", (2, 3), ("row", "column"), dtype="uint8")]


class OwnCfg(sn.SensorCfg[OwnData]):
    """A sensor with private memory."""


class Own(sn.Sensor[OwnCfg, OwnData]):
    uses_ring_pipeline: ClassVar[bool] = False

    def setup(self) -> None:
        self.image = torch.zeros((self.num_envs, 2, 3), dtype=torch.uint8)
        self.set_outputs({"image": self.image})

    def compute(self, truth: Record, measured: Record) -> None:
        wide = torch.full((self.num_envs, 3, 2), self.clock.tick % 256, dtype=torch.uint8)
        wide[:, 0, 1] = 9
        self.image.copy_(wide.transpose(1, 2))


def test_sensor_with_its_own_memory_is_observed() -> None:
    scene = syn.world([OwnCfg(name="own")])
    look = scene.observer("own")
    for tick in range(1, 5):
        syn.advance(scene)
        assert look()[1].tolist() == [tick, tick, tick, 9, tick, tick]


def test_single_and_plural_mounts_are_observed() -> None:
    """A singular selector has no mount axis in the observation either; several mounts are concatenated by name."""
    engine = sn.TensorEngine(2, 0.01, bodies=("a", "b"), provides=("pose", "velocity", "gravity"))
    engine.body_ang_vel_w[:] = torch.arange(12.0).reshape(2, 2, 3)
    fields = ("ang_vel_b",)
    scene = sn.Scene(
        engine, [sn.ImuCfg(name="one", body="b", fields=fields), sn.ImuCfg(name="all", bodies=".*", fields=fields)]
    )
    look = scene.observer("one.ang_vel_b", "all.ang_vel_b")
    assert look().tolist() == [[3, 4, 5, 0, 1, 2, 3, 4, 5], [9, 10, 11, 6, 7, 8, 9, 10, 11]]
    assert look.columns[2:5] == ["one.ang_vel_b[z]", "all.ang_vel_b[a,x]", "all.ang_vel_b[a,y]"]
    parts = look.split(look())
    assert parts["one.ang_vel_b"].shape == (2, 3) and parts["all.ang_vel_b"].shape == (2, 2, 3)


# Names ----------------------------------------------------------------------------------------------------------------


def test_sensor_names_can_contain_dots_and_slashes() -> None:
    """A name is split at its last dot, unless all of it is a sensor; a prefix may be omitted."""
    cfgs = [
        syn.ProbeCfg(name="p", fields=("vec", "speed")),
        syn.ScalarCfg(name="p.vec"),
        syn.ProbeCfg(name="robot/left.foot", fields=("vec",)),
    ]
    look = syn.world(cfgs, tick=3).observer("p.vec", "p.speed", "left.foot.vec", "robot/left.foot")
    assert dict(look.names) == {
        "p.vec": slice(0, 1), "p.speed": slice(1, 2), "left.foot.vec": slice(2, 5), "robot/left.foot.vec": slice(5, 8)
    }  # fmt: skip
    assert look["p.speed"] == slice(1, 2)
    assert look()[0].tolist() == [3.0, 6.0, 3.0, 1.75, -1.5, 3.0, 1.75, -1.5]


def test_declared_sensors_are_observed() -> None:
    body = "<body name='b'><freejoint/><geom size='.1'/><site name='s'/></body>"
    rates = "<gyro name='rate' site='s'/><framequat name='pose.quat' objtype='site' objname='s'/>"
    xml = f"<mujoco><worldbody>{body}</worldbody><sensor>{rates}</sensor></mujoco>"
    scene = sn.Scene(sn.MujocoEngine(xml, num_envs=2))
    look = scene.observer("pose.quat", "rate.value")
    scene.step(None, 2)
    shown = [scene["pose.quat"].data, scene["rate"].data]
    assert torch.equal(look(), torch.cat(shown, dim=1))


def test_field_aliases_are_accepted() -> None:
    wall = sn.engines.Shape("box", "wall", (0.1, 9.0, 9.0), pos=(2.0, 0.0, 0.0))
    scene = sn.Scene(sn.TensorEngine(1, shapes=[wall]), [
        genesis.IMU(name="imu", body="body", fields=("ang_vel_b",)),
        sn.CameraCfg(name="eye", body="body", width=4, height=3, data_types=("depth",)),
    ])  # fmt: skip
    scene.update()
    look = scene.observer("imu.ang_vel", "eye.depth")
    assert list(look.names) == ["imu.ang_vel", "eye.depth"]
    torch.testing.assert_close(look()[0, 3:], torch.full((12,), 1.9))


@pytest.mark.parametrize(
    ("fields", "options", "error", "says"),
    [
        (("lasy.vec",), {}, sn.UnknownNameError, "unknown observation 'lasy.vec'. Did you mean 'lazy.vec'"),
        (("lasy",), {}, sn.UnknownNameError, "unknown observation 'lasy'. Did you mean 'lazy'"),
        (("lazy.vex",), {}, sn.UnknownNameError, "unknown field 'vex'. Did you mean 'vec'"),
        (("noisy.speed",), {}, sn.ConfigError, r"Observer of 'noisy'.field: got 'speed', .* vec, quat.*fields="),
        (("alone", "alone"), {}, sn.DuplicateNameError, "'alone' was given twice"),
        (("lazy", "lazy.vec"), {}, sn.DuplicateNameError, "'lazy.vec' was given twice"),
        ((), {}, sn.ConfigError, "fields: got"),
        ((3,), {}, sn.ConfigError, "fields: got 3"),
        (("alone",), {"truth": ("vec",)}, sn.UnknownNameError, "unknown observation 'vec'"),
        (("alone",), {"replace_inf": math.inf}, sn.ConfigError, "replace_inf: got inf, expected a finite number"),
    ],
)  # fmt: skip
def test_bad_names_are_refused(fields: tuple[Any, ...], options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        syn.world(rig()).observer(*fields, **options)


def test_non_tensor_property_is_refused() -> None:
    """A constant of the data class and a field without elements are refused."""
    engine = sn.MujocoEngine("<mujoco><worldbody><body name='b'><geom size='.1'/></body></worldbody></mujoco>")
    contact = sn.ContactSensorCfg(name="c", primary=sn.ContactMatch(mode="body", pattern="b"))
    scene = sn.Scene(engine, [contact])
    with pytest.raises(sn.ConfigError, match=r"'primary_names', expected a tensor with an env axis: found, force"):
        scene.observer("c.primary_names")
    with pytest.raises(sn.ConfigError, match="at least one element"):
        syn.world([OddCfg(name="odd")]).observer("odd.none")


def test_ambiguous_short_names_are_refused() -> None:
    scene = syn.world([syn.ScalarCfg(name="a/s"), syn.ScalarCfg(name="b/s")])
    with pytest.raises(sn.SelectionError, match="a/s, b/s"):
        scene.observer("s")


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def counting() -> tuple[sn.Scene, sn.Observer]:
    """Return a scene whose only column is the tick in env 0."""
    scene = syn.world([syn.ScalarCfg(name="s")], num_envs=2)
    return scene, scene.observer("s")


def next_obs(scene: sn.Scene, look: sn.Observer) -> Tensor:
    syn.advance(scene)
    return look()


def test_rollout_can_keep_observations(counting: tuple[sn.Scene, sn.Observer]) -> None:
    scene, look = counting
    kept = [next_obs(scene, look) for _ in range(50)]
    assert len({obs.data_ptr() for obs in kept}) == 50
    assert [obs[0, 0].item() for obs in kept] == list(range(1, 51))


HOLDS: dict[str, Callable[[Tensor], Any]] = {
    "a view": lambda obs: obs[:1, 0],
    "a view of a view": lambda obs: obs.unbind()[0].view(1, 1),
    "a NumPy array": lambda obs: obs.numpy()[:1],
    "a detached alias": lambda obs: obs.detach(),
    "what a backward pass needs": lambda obs: obs * torch.ones(1, requires_grad=True),
    "DLPack": lambda obs: obs.__dlpack__(),
    "a split": lambda obs: {"s": obs[..., 0]},
    "a list in a list": lambda obs: [[obs]],
}


@pytest.mark.parametrize("what", HOLDS)
def test_held_observation_is_not_overwritten(what: str, counting: tuple[sn.Scene, sn.Observer]) -> None:
    scene, look = counting
    held, address = HOLDS[what](obs := next_obs(scene, look)), obs.data_ptr()
    del obs
    assert all(next_obs(scene, look).data_ptr() != address for _ in range(12))
    del held


def test_shared_observation_is_not_overwritten(counting: tuple[sn.Scene, sn.Observer]) -> None:
    """Torch moves tensors into shared memory when it sends them to another process."""
    scene, look = counting
    obs = next_obs(scene, look)
    sent = obs.share_memory_().untyped_storage()._share_filename_cpu_()
    received = [torch.UntypedStorage._new_shared_filename_cpu(*sent)]
    del obs
    kept = torch.empty(0).set_(received[0])[:1]
    assert [next_obs(scene, look)[0, 0].item() for _ in range(12)] == list(range(2, 14))
    assert kept.item() == 1.0


def test_gradients_flow_through_kept_observations(counting: tuple[sn.Scene, sn.Observer]) -> None:
    """The gradient of a weight is the sum of the observations at the time of each step."""
    scene, look = counting
    weight = torch.ones(1, requires_grad=True)
    loss = torch.zeros(())
    for _ in range(9):
        loss = loss + (weight * next_obs(scene, look)[0]).sum()
    loss.backward()
    assert weight.grad is not None and weight.grad.item() == sum(range(1, 10))


def test_observer_works_in_inference_mode(counting: tuple[sn.Scene, sn.Observer]) -> None:
    """Observations made in inference mode, by observers made there or not, can be used in a later backward pass."""
    scene, look = counting
    with torch.inference_mode():
        late = scene.observer(sn.ObsTerm("s", history=2, normalise=True, noise=0.0, delay=(0, 1)))
        kept = [next_obs(scene, look) for _ in range(6) if late() is not None]
    weight = torch.ones(1, requires_grad=True)
    sum((weight * obs[0]).sum() for obs in [*kept, next_obs(scene, look)]).backward()  # type: ignore[union-attr]
    assert weight.grad is not None and weight.grad.item() == sum(range(1, 8))
    assert not late().is_inference()


def test_observation_has_no_gradient(counting: tuple[sn.Scene, sn.Observer]) -> None:
    """A function may return a tensor of a graph: the observation, its memory and later ones are detached."""
    scene, _ = counting
    weight = torch.ones(2, requires_grad=True)
    look = scene.observer(sn.ObsTerm(lambda: weight * scene.tick, name="w", history=2))
    kept = [next_obs(scene, look) for _ in range(3)]
    assert not any(obs.requires_grad for obs in kept) and kept[-1].tolist() == [[3.0, 2.0]] * 2


# Changing sensors -----------------------------------------------------------------------------------------------------


def test_observer_follows_a_reconfigured_sensor() -> None:
    """The observer follows a sensor whose branches or memory changed, or that was re-added, while results are kept."""
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec",)), syn.ScalarCfg(name="s")])
    look = scene.observer("s", "p.vec", truth=("p.vec",))
    kept = look()
    scene.reconfigure("p", fields=("speed", "vec"), delay=0.02, noise={"vec": 1.0})
    assert torch.equal(look(), by_hand(scene, ("s", "p.vec"), ("p.vec",)))
    scene.remove("s")
    scene.add(syn.ScalarCfg(name="s", bias=100.0))
    syn.advance(scene, 3)
    assert torch.equal(look(), by_hand(scene, ("s", "p.vec"), ("p.vec",)))
    assert look()[0, 0] == 103.0 and kept[0, 0] == 0.0


def test_bounds_follow_a_reconfigured_sensor() -> None:
    scene = syn.world([sn.ImuCfg(name="imu", body="body", fields=("projected_gravity_b",))])
    look = scene.observer("imu")
    assert look.high.tolist() == [1.0] * 3
    scene.reconfigure("imu", noise=0.1)
    look()
    assert look.high.tolist() == [math.inf] * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda scene: scene.remove("w"), "sensor 'w' is no longer in the scene, so 'w.x'"),
        (lambda scene: scene.reconfigure("w", name="v"), "sensor 'w' is no longer in the scene"),
        (lambda scene: scene.reconfigure("w", columns=7), r"field 'x' has the shape \[4, 7\], formerly \[4, 5\]"),
        (lambda scene: scene.reconfigure("p", fields=("speed",)), "reconfigured and no longer has the field 'vec'"),
    ],
)  # fmt: skip
def test_removed_field_raises(change: Callable[[sn.Scene], object], says: str) -> None:
    """Each call raises until the field is back; kept results stay."""
    others = [syn.WideCfg(name="other/w", columns=5), syn.ProbeCfg(name="other/p")]
    scene = syn.world([syn.WideCfg(name="w", columns=5), syn.ProbeCfg(name="p"), *others])
    look = scene.observer("w.x", "p.vec")
    kept = look()
    before = kept.clone()
    change(scene)
    for _ in range(2):
        with pytest.raises(sn.StaleError, match=says):
            look()
    assert torch.equal(kept, before)


# Column descriptions --------------------------------------------------------------------------------------------------


def test_columns_are_described() -> None:
    scene = syn.world(rig())
    look = scene.observer("lazy", "alone", truth=("noisy.quat",))
    assert look.columns == [
        *(f"lazy.vec[{axis}]" for axis in "xyz"), "lazy.speed", *(f"lazy.quat[{axis}]" for axis in "wxyz"),
        "lazy.label", "lazy.flag", "lazy.byte", "alone", *(f"truth:noisy.quat[{axis}]" for axis in "wxyz"),
    ]  # fmt: skip
    assert look.units == ["m"] * 3 + ["m/s"] + ["1"] * 7 + ["m"] + ["1"] * 4
    inf = math.inf
    assert look.low.tolist() == [-inf] * 4 + [-1] * 4 + [-inf, 0, 0, -inf] + [-1] * 4
    assert look.high.tolist() == [inf] * 4 + [1] * 4 + [inf, 1, 255, inf] + [1] * 4
    assert look.low.dtype == look.high.dtype == np.float32
    text = repr(look)
    assert text.startswith("Observer(4 env(s), 16 columns, float32 on cpu)")
    assert "0:3" in text and "lazy.quat" in text and "m/s" in text and "-1 to 1" in text and "truth:noisy" in text


def test_parts_can_have_different_units() -> None:
    engine = sn.TensorEngine(1, provides=("pose", "velocity"))
    scene = sn.Scene(engine, [sn.GnssCfg(name="gnss", body="body", origin=(47.0, 8.0, 400.0))])
    assert scene.observer("gnss.lla").units == ["deg", "deg", "m"]


def test_split_gives_views_of_any_leading_axes() -> None:
    scene = syn.world(rig())
    look = scene.observer("lazy.vec", "lazy.speed", "noisy.quat")
    obs = look()
    parts = look.split(obs)
    assert {name: tuple(part.shape) for name, part in parts.items()} == {
        "lazy.vec": (4, 3), "lazy.speed": (4,), "noisy.quat": (4, 4)
    }  # fmt: skip
    assert torch.equal(parts["lazy.vec"], scene["lazy"].data.vec)
    parts["lazy.speed"][2] = 77.0
    assert obs[2, look["lazy.speed"]].item() == 77.0
    rollout = torch.stack([obs, obs + 1.0])
    assert torch.equal(look.split(rollout)["noisy.quat"][1], parts["noisy.quat"] + 1.0)
    with pytest.raises(ValueError, match=r"got shape \(4, 3\), expected \[..., 8\]"):
        look.split(obs[:, :3])
    with pytest.raises(sn.UnknownNameError, match=r"Did you mean 'lazy\.vec'"):
        look["lazy.vek"]


def scan_scene(**options: Any) -> sn.Scene:
    """Return a scene with two rays down from 0.5 m: one hits a box, the other passes it."""
    engine = sn.TensorEngine(1, 0.01, shapes=[sn.engines.Shape("box", "box", (0.2, 0.2, 0.1), pos=(0.0, 0.0, -0.6))])
    pattern = sn.patterns.GridPatternCfg(size=(1.0, 0.0), resolution=1.0)
    return sn.Scene(engine, [sn.RayCasterCfg(name="scan", body="body", pattern=pattern, max_distance=4.0, **options)])


@pytest.mark.parametrize(
    ("options", "replace_inf", "low", "high"),
    [
        ({}, None, 0.0, math.inf),
        ({}, 4.0, 0.0, 4.0),
        ({}, 9.0, 0.0, 9.0),
        ({"no_hit_value": -1.0}, None, -1.0, 4.0),
        ({"noise": 0.1}, 4.0, -math.inf, math.inf),
    ],
)
def test_range_fields_have_bounds(options: Any, replace_inf: float | None, low: float, high: float) -> None:
    """Bounds are those of the config, including the values of misses; noise has no bounds. The truth keeps them."""
    scene = scan_scene(**options)
    look = scene.observer("scan.distances", replace_inf=replace_inf)
    assert (look.low[0], look.high[0]) == (low, high)
    obs = look().numpy()
    assert (look.low <= obs).all() and (obs <= look.high).all()
    assert (replace_inf is None) or np.isfinite(obs).all()
    true = scene.observer("scan.distances", truth=True, replace_inf=4.0)
    assert np.isfinite([true.low, true.high]).all()


def test_values_stay_within_bounds() -> None:
    """On a walking robot, all true values are within the stated bounds, up to rounding."""
    from sensorium.demo import model_path

    engine = sn.MujocoEngine(model_path(), num_envs=2, keyframe="home")
    feet = sn.ContactMatch(mode="geom", pattern=".*foot.*")
    scene = sn.Scene(
        engine,
        [
            sn.ImuCfg(name="imu", site="imu", fields="all"),
            sn.ContactSensorCfg(name="feet", primary=feet, fields=("found", "normal", "tangent"), track_air_time=True),
        ],
    )
    look = scene.observer("imu", "feet")
    bounded = np.isfinite(look.low) | np.isfinite(look.high)
    assert bounded.sum() > 4 + 3
    for _ in range(20):
        scene.step(None, 5)
        obs = look().numpy()
        assert (obs >= look.low - 1e-6).all() and (obs <= look.high + 1e-6).all()
    assert obs[:, look["feet.found"]].any()
