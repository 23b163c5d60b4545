"""Any value in any field of any config gives a config or a `ConfigError`: no other exception."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import math
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import two_engines
from pydantic import BaseModel
from selection import gate

import sensorium as sn
from sensorium import registry
from sensorium.cfg import Cfg, GilbertElliott, ObjRef, OffsetCfg
from sensorium.compat import isaaclab
from sensorium.compat.aliases import AliasedCfg
from sensorium.measurement.stage_cfg import STAGE_KINDS
from sensorium.patterns import LidarPatternCfg
from sensorium.patterns.base import PATTERN_KINDS
from sensorium.patterns.ring import Ring

NEEDED: dict[str, dict[str, Any]] = {
    "BuiltinSensorCfg": {"name": "gyro"},
    "CameraCfg": {"body": "b", "width": 4, "height": 3},
    "CollisionEventsCfg": {"primary": sn.ContactMatch(mode="geom", pattern="ball")},
    "EventCameraCfg": {"body": "b", "width": 4, "height": 3},
    "RayCasterCameraCfg": {"body": "b", "pattern": {"kind": "pinhole_camera", "width": 4, "height": 3}},
    "JointSensorCfg": {"joint": "j"},
    "JointTorqueCfg": {"joint": "j"},
    "MotorCurrentCfg": {"joint": "j", "torque_constant": 0.1},
    "TouchCfg": {"site": "s"},
    "GaussMarkov": {"density": 0.1, "tau": 1.0},
    "Flicker": {"bias_instability": 0.1},
    "Crosstalk": {"matrix": [[1.0, 0.0], [0.0, 1.0]]},
    "Debounce": {"samples": 3},
    "KinectDepth": {"fov_deg": 60.0},
    "StereoDepth": {"fov_deg": 60.0, "baseline": 0.05},
    "TofDepth": {"fov_deg": 60.0, "modulation_hz": 2e7},
    "Dropout": {"probability": 0.1},
    "StuckFault": {"probability": 0.1},
    "SpikeFault": {"probability": 0.1, "amount": 1.0},
    "SaturationFault": {"probability": 0.1, "high": 1.0},
    "LowPass": {"cutoff_hz": 10.0},
    "GroupDelay": {"samples": 2},
    "Viscoelastic": {"strength": 0.1, "tau": 1.0},
    "Play": {"width": 0.1},
    "TaxelGain": {"gain": 1.0},
    "DeadTaxels": {"probability": 0.1},
    "StuckTaxels": {"probability": 0.1},
    "RowScan": {"scan_time": 0.01},
    "Saturation": {"high": 1.0},
    "GSensitivity": {"matrix": np.eye(3).tolist()},
    "TaxelCrosstalk": {"strength": 0.1, "sigma": 0.002},
    "GeneratedPatternCfg": {"source": sn.patterns.GridPatternCfg()},
    "LidarPatternCfg": {
        "channels": 4, "vertical_fov_range": (-10.0, 10.0), "horizontal_fov_range": (-90.0, 90.0),
        "horizontal_res": 10.0,
    },
    "TablePatternCfg": {"azimuth": [1, 2], "elevation": [0, 0], "points_per_second": 10.0},
    "RotatingMirrorPatternCfg": {"elevation_range": (-10.0, 10.0), "points_per_second": 1000.0},
    "PinholeCameraPatternCfg": {"width": 4, "height": 3},
    "RingPatternCfg": {"rings": (Ring(0.1, 4),)},
    "RisleyPatternCfg": {"wedges": (10.0, 10.0), "rates_hz": (50.0, -30.0), "points_per_second": 1000.0},
    "SpinningPatternCfg": {"elevations": (0.0, 5.0), "cycle_interval": 1e-3},
    "Ring": {"radius": 0.1, "num_samples": 4},
    "GilbertElliott": {"p": 0.1, "r": 0.5},
    "ObjRef": {"type": "body", "name": "b"},
}  # fmt: skip
"""Required arguments of a config by its class, where a body alone is not sufficient."""

ODD: list[Any] = [
    None, "", "x", "1", b"x", [], {}, (), math.nan, math.inf, -math.inf, -1, 0, True, 10**400, 1j, object(), int, len,
    [None], ["x"], [[]], [1.0, "x"], [math.nan] * 3, [10**400] * 3, [1, [2]], tuple(range(7)), {1}, range(2),
    np.array([math.nan]), {"x": None}, {None: 1}, {"kind": "x"}, {"kind": []}, {"kind": None}, {"kind": "low_pass"},
    [{"kind": []}], [{"kind": None}], [{"kind": "low_pass"}], [{None: 1}], {"uniform": None}, {"uniform": [1, "x"]},
    {"normal": [0]}, {"choice": []}, {"a": {"b": 1}}, 1e300, -1e300, 1e-320, 2**31, 2**63, 4e9, 1e9, 2.0**30, 1.5,
    "10000000000.0", "true", np.True_, np.float32(2.0), np.int64(3), np.uint8(4), np.longdouble("1e4000"), 1 - 2j,
    np.array(2.0), np.array([1, 2]), np.array(["x"]), np.array([None]), np.zeros((2, 0)), Fraction(10**400, 3),
    torch.tensor(True), torch.tensor([1.0, 2.0]), torch.empty(3, device="meta"), torch.tensor(1.0, device="meta"),
    bytearray(b"x"), frozenset({"x"}), iter(()), Ellipsis, NotImplemented, "a\0b", "\n", "..", "a/b", "(", "[z-a]",
    "\ud800", "x" * 10_000, {"uniform": [-1e300, 1e300]}, {"normal": [True, "x"]}, {"choice": [[1], [1, 2]]},
    {"uniform": torch.tensor([0.0, 1.0])}, {None: None}, {True: 1.0}, {("a",): 1.0}, {"": 0.1},
]  # fmt: skip
PLACES = re.compile(r"0x[0-9a-f]+")


def configs() -> list[type[Cfg]]:
    """Return the built-in config classes: of registered sensors, stages and patterns, and of configs inside them."""
    registered = [*registry.registered(), *STAGE_KINDS.values(), *PATTERN_KINDS.values()]
    ours = [cls for cls in registered if cls.__module__.startswith("sensorium.")]
    return [*sorted(ours, key=lambda cls: cls.__qualname__), OffsetCfg, ObjRef, GilbertElliott, Ring]


def arguments(cls: type[Cfg]) -> dict[str, Any]:
    """Return arguments from which a config of a class can be built."""
    if cls.__name__ in NEEDED:
        return NEEDED[cls.__name__]
    if hasattr(cls, "example"):
        cfg = cls.example()
        return {name: getattr(cfg, name) for name in cfg.model_fields_set}
    return {"body": "b"} if "body" in cls.model_fields else {}


def declarer(cls: type[Cfg], name: str) -> type:
    """Return the class that declares a field."""
    return next(base for base in cls.__mro__ if name in inspect.get_annotations(base))


@functools.cache
def heirs() -> dict[tuple[type, str], list[type[Cfg]]]:
    """Return the config classes that inherit a field, by the class that declares it and its name."""
    found: dict[tuple[type, str], list[type[Cfg]]] = {}
    for cls in configs():
        for name in cls.model_fields:
            if (base := declarer(cls, name)) is not cls:
                found.setdefault((base, name), []).append(cls)
    return found


TURNS = 6


def odd_values(cls: type[Cfg], name: str, turn: int) -> list[Any]:
    """Return the odd values that a config class tries in a field in a turn.

    All classes check an inherited field with the same code, so they share the values: in each turn, at least one of
    them tries each value. The values of its own fields are all tried in the first turn.
    """
    sharing = heirs().get((declarer(cls, name), name), [])
    if cls not in sharing:
        return ODD if turn == 0 else []
    first = sharing.index(cls)
    return [value for k, value in enumerate(ODD) if (first + k) % min(len(sharing), TURNS) == turn]


@pytest.mark.parametrize("turn", gate(range(TURNS), {0}))
@pytest.mark.parametrize("cls", configs(), ids=lambda cls: cls.__name__)
def test_odd_field_value_is_accepted_or_refused_by_a_config_error(cls: type[Cfg], turn: int) -> None:
    """The error names a field, the given value and the expected value."""
    given = arguments(cls)
    assert isinstance(cls(**given), cls)
    wrong = []
    for name in cls.model_fields:
        for value in odd_values(cls, name, turn):
            try:
                cls(**{**given, name: value})
            except sn.ConfigError as error:
                complete = error.faults and all(fault.field and fault.got and fault.expected for fault in error.faults)
                if not complete or not error.config:
                    wrong.append(f"{name}={value!r}: no full ConfigError: {error}")
            except Exception as error:
                wrong.append(f"{name}={value!r}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(PLACES.sub("...", line)[-300:] for line in wrong[:20])


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *(((odd,), {}) for odd in (None, 3, "x", b"x", "[1]", [1], {3: 1}, {"no_field": 1}, {"body": 3}, object())),
    *(((), {name: odd}) for name in ("include", "indent", "update", "strict", "schema_generator", "_types_namespace",
                                     "no_field", "force") for odd in (3, "x", {3: 1})),
    ((), {}), ((3, 4), {}),
]  # fmt: skip
"""Arguments that hardly any method of a config accepts."""


@pytest.mark.parametrize("cls", [sn.ImuCfg, isaaclab.ImuCfg], ids=lambda cls: cls.__module__)
def test_every_method_gives_a_result_or_a_config_error(cls: Any) -> None:
    """Those that pydantic deprecates are refused with their replacement, except the `copy` of other systems."""
    given = {"prim_path" if cls is isaaclab.ImuCfg else "body": "imu"}
    inherited = {name for name in dir(BaseModel) if not name.startswith("_")} - {"model_post_init"}  # it does nothing
    names = {*inherited, "replace", "from_dict", "from_json", "from_toml", "to_dict", "to_json", "to_toml", "sealed"}
    for name in sorted(name for name in names if callable(getattr(cls, name))):
        outcomes: list[str] = []
        for owner, (args, options) in itertools.product((cls, cls(**given)), ARGUMENTS):
            if owner is cls and inspect.isfunction(inspect.getattr_static(cls, name)):
                continue
            try:
                result = getattr(owner, name)(*args, **options)
                assert not isinstance(result, Cfg) or type(result)(**given) == result or options.get("force"), name
            except sn.ConfigError as error:
                outcomes.append(str(error))
            else:
                outcomes.append("")
        assert any(outcomes), name
        if (
            name in inherited
            and (not name.startswith("model_") or "construct" in name)
            and name not in vars(AliasedCfg)
        ):
            assert all(
                re.search(rf"ImuCfg\.{name}\(\): got a call, .*\. (Write c|Call the)", each) for each in outcomes
            )
    with pytest.raises(sn.ConfigError, match=r"from_dict\(\): got \{3: 1\}, expected valid arguments\. .*strings"):
        cls.from_dict({3: 1})
    with pytest.raises(
        sn.ConfigError, match=r"ImuCfg\.\(config\): got 3, expected valid arguments\. .* positional argument"
    ):
        cls(3)


@pytest.mark.parametrize("cls", [cls for cls in configs() if cls.__name__ in NEEDED], ids=lambda cls: cls.__name__)
def test_incomplete_config_is_refused_by_a_config_error(cls: type[Cfg]) -> None:
    with pytest.raises(sn.ConfigError, match=cls.__name__):
        cls()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sn.ImuCfg(body="b", loss={}), "ImuCfg.loss.p: got nothing, expected a value"),
        (lambda: GilbertElliott(p=0.1), "GilbertElliott.r: got nothing, expected a value. Give r=..."),
        (lambda: sn.ImuCfg(body="b", stages=[{"kind": []}]), "stages: got [{'kind': []}], expected stages whose kind"),
        (lambda: sn.RayCasterCfg(body="b", pattern={"kind": []}), "pattern.kind: got [], expected one of "),
        (lambda: sn.ImuCfg(body="b", gyro_noise=10**400), "expected finite numbers"),
        (lambda: sn.ImuCfg(body={None: 1}), "None is not a field name"),
        (lambda: sn.ImuCfg(body="b", stages=[{None: 1}]), "None is not a field name"),
    ],
)
def test_message_names_the_fault(make: Any, message: str) -> None:
    with pytest.raises(sn.ConfigError) as caught:
        make()
    assert message in str(caught.value)


BALL = {"primary": sn.ContactMatch(mode="geom", pattern="ball")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sn.ImuCfg(body="b", delay=1e300), "delay: got 1e+300, expected finite numbers of magnitude"),
        (lambda: sn.ImuCfg(body="b", rate_hz=1e-320), "rate_hz: got 1e-320, expected 0, infinity or a number of"),
        (lambda: sn.ImuCfg(body="b", rate_hz=np.True_), "rate_hz: got np.True_, expected a valid number"),
        (lambda: sn.ImuCfg(body="b", rate_hz=torch.tensor(True)), "rate_hz: got tensor(True), expected a valid number"),
        (lambda: sn.ImuCfg(body="b", noise=np.True_), "noise: got np.True_, expected a number, a vector or"),
        (lambda: sn.ImuCfg(body="b", noise=b"3"), "noise: got b'3', expected a number, a vector or"),
        (lambda: sn.ImuCfg(body="b", history_length=4e9), "expected a whole number from -2147483647 to 2147483647"),
        (lambda: sn.ImuCfg(body="b", history_length=-1), "history_length: got -1, expected a whole number >= 0"),
        (lambda: sn.ImuCfg(body="b", history_length="10000000000.0"), "history_length: got '10000000000.0', expected"),
        (lambda: sn.ImuCfg(body="b", history_length="3"), "history_length: got '3', expected a valid integer"),
        (lambda: sn.ImuCfg(body="b", debug_vis="yes"), "debug_vis: got 'yes', expected True or False"),
        (lambda: sn.CollisionEventsCfg(**BALL, max_events=1e9), "max_events: got 1000000000.0, expected"),
        (lambda: sn.CollisionEventsCfg(**BALL, max_events=True), "max_events: got True, expected a valid integer"),
        (lambda: sn.ImuCfg(body="b", gyro_random_walk={None: 1}), "gyro_random_walk: got {None: 1}, expected a map"),
        (lambda: sn.ImuCfg(body="b", name=np.array(["x", "y"])), "name: got array(['x', 'y'], dtype='<U1'), expected"),
        (lambda: sn.ImuCfg(site="a", body="b", name=np.array([1, 2])), "name: got array([1, 2]), expected"),
        (lambda: sn.ImuCfg(body="b", name=b"imu"), "name: got b'imu', expected a valid string"),
        (lambda: sn.BuiltinSensorCfg(name=np.array(["x", "y"])), "name: got array"),
        (lambda: LidarPatternCfg(**{**NEEDED["LidarPatternCfg"], "channels": 2**40}), "channels: got 1099511627776"),
    ],
)  # fmt: skip
def test_meaningless_value_is_refused_at_config_construction(make: Any, message: str) -> None:
    with pytest.raises(sn.ConfigError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"delay": 3e6}, "delay", "at most 1073741824 ticks of 0.002 s, the jitter included"),
        ({"delay": 2e6, "jitter": 2e6}, "delay", "at most 1073741824 ticks"),
        ({"delay": sn.Uniform(0.0, 1e30)}, "delay", "at most 1073741824 ticks"),
        ({"rate_hz": 1e-30}, "rate_hz", "a period of at most 1073741824 ticks of 0.002 s"),
        ({"update_period": 1e9}, "update_period", "a period of at most 1073741824 ticks"),
        ({"gyro_noise": {"x": 0.1}}, "gyro_noise", "one amount: it applies only to 'ang_vel_b'"),
        ({"gyro_noise_density": 3e38}, "gyro_noise_density", "finite numbers of magnitude at most 3.4e+38 per sample"),
    ],
)
def test_value_invalid_for_the_time_step_is_refused_at_scene_build(
    given: dict[str, Any], field: str, expected: str
) -> None:
    with pytest.raises(sn.ConfigError) as caught:
        sn.Scene(sn.TensorEngine(2, dt=0.002), [sn.ImuCfg(name="imu", body="body", **given)])
    (fault,) = caught.value.faults
    assert caught.value.config == "ImuCfg('imu')"
    assert fault.field == field and expected in fault.expected


@pytest.mark.parametrize("value", ["x", None, object(), [0.1, 0.2, 0.3], torch.empty(2, device="meta"), math.nan])
@pytest.mark.parametrize("knob", ["delay", "noise"])
def test_an_odd_value_of_a_knob_is_refused_at_run_time(knob: str, value: Any) -> None:
    cfg = sn.BarometerCfg(body="body", delay=0.1, noise={"pressure": 0.1})
    scene = sn.Scene(sn.TensorEngine(2), [cfg])
    given = {"pressure": value} if knob == "noise" else value
    with pytest.raises(sn.ConfigError, match=knob):
        scene[cfg].set(knob, given)


# Long runs ------------------------------------------------------------------------------------------------------------

OFFERED = configs()


class Awkward:
    """An object that raises in every conversion."""

    def _raise(self, *args: object) -> Any:
        raise RuntimeError("awkward")

    __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = __getitem__ = __eq__ = __array__ = tolist = _raise
    __hash__ = None  # type: ignore[assignment]


def odd_value(rng: random.Random, cls: type[Cfg], depth: int = 0) -> Any:
    """Return a value that hardly any field accepts, or a plain number of any size and type."""
    choice = rng.random()
    if choice < 0.45 or depth > 2:
        return rng.choice([*ODD, Awkward()])
    if choice < 0.7:
        number = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-45.0, 40.0)
        types = (float, np.float64, np.float32, np.array, torch.tensor, int, lambda x: int(x) % 2**33, str, abs)
        with np.errstate(over="ignore", under="ignore"):
            return rng.choice(types)(number)
    parts = [odd_value(rng, cls, depth + 1) for _ in range(rng.choice([0, 1, 2, 3, 3, 4]))]
    if choice < 0.85:
        return rng.choice([tuple, list])(parts)
    names = [*cls.model_fields, "kind", "x", None, 1, "uniform", "normal", "choice", "pos", "rot", "ang_vel_b"]
    return {rng.choice(names): part for part in parts}


def tries(seed: int, count: int) -> Iterator[tuple[type[Cfg], dict[str, Any]]]:
    """Yield random config classes with arguments, of which one to three are odd."""
    rng = random.Random(seed)
    for _ in range(count):
        cls = rng.choice(OFFERED)
        names = rng.sample(list(cls.model_fields), min(rng.choice([1, 1, 1, 2, 3]), len(cls.model_fields)))
        yield cls, {**arguments(cls), **{name: odd_value(rng, cls) for name in names}}


def fuzz(seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Return how many odd configs were accepted and refused, and all other outcomes."""
    told: Counter[str] = Counter()
    wrong = []
    for cls, given in tries(seed, count):
        try:
            cls(**given)
        except sn.ConfigError as error:
            told["refused"] += 1
            str(error)
        except Exception as error:
            wrong.append(f"{cls.__name__}: {type(error).__name__}: {error}: {shown_safely(given)}")
        else:
            told["accepted"] += 1
    return told, wrong


def shown_safely(given: dict[str, Any]) -> str:
    """Return arguments as text, including objects without a working `repr`."""
    return ", ".join(f"{name}={type(value).__name__} {value!r:.80}" for name, value in given.items())


def test_random_odd_values_are_accepted_or_refused_by_a_config_error() -> None:
    told, wrong = fuzz(seed=1, count=1500)
    assert not wrong, "\n".join(wrong[:20])
    assert told["refused"] > 500 and told["accepted"] > 50


@pytest.mark.soak
def test_two_hundred_thousand_odd_values_are_accepted_or_refused_by_a_config_error() -> None:
    told, wrong = fuzz(seed=2, count=200_000)
    assert not wrong, "\n".join(wrong[:20])
    assert sum(told.values()) == 200_000


FAR: list[Any] = [
    0, 1, -1, 2, 7, 64, 1000, 10**6, 2**31 - 1, -(2**31), 0.0, 1e-37, 1e-9, 0.5, 1.0, -1.0, 90.0, 360.0, 1e4, 1e9, 3e38,
    math.inf, -math.inf, "", "x", ".*", "trunk", "world", "auto", "all", None, True, False, sn.Uniform(0.0, 3e38),
    sn.Normal(0.0, 1e37), sn.Choice((0.0, 1e9)), [0.1, 0.2, 0.3], {"x": 0.1}, {"pos": 1e38}, (".*", "trunk"),
    sn.stages.Dropout(probability=0.5),
]  # fmt: skip
"""Values of the right type, of any size."""


def mutated(rng: random.Random, value: Any) -> Any:
    """Return a value of a field with a part of it replaced by a value of any size."""
    if isinstance(value, Cfg) and rng.random() < 0.8:
        name = rng.choice(list(type(value).model_fields))
        return value.replace(**{name: mutated(rng, getattr(value, name))})
    if isinstance(value, tuple) and value and rng.random() < 0.7:
        k = rng.randrange(len(value))
        cut = rng.choice([1, 1, 1, 0])
        return (*value[:k], *[mutated(rng, value[k])] * rng.choice([0, 1, 1, 1, 2]), *value[k + cut :])
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.3:
        return value * rng.choice([-1, 0.1, 2, 10, 1e3])
    return rng.choice(FAR)


TAKES_MEMORY = ("delay", "jitter", "history_length", "num_slots", "max_events", "max_contact_data_count_per_prim")
"""Fields that determine the size of an allocation: valid values that take gigabytes are not tried."""


def numbers_of(value: Any) -> list[float]:
    """Return the numbers in a value of a field."""
    if isinstance(value, sn.Uniform | sn.Normal | sn.Choice):
        return [float(np.max(np.abs(value.bounds)))]
    return [float(value)] if isinstance(value, int | float) else []


def odd_sensor(rng: random.Random, offered: list[Any]) -> tuple[Any, str, Any]:
    """Return a sensor's config with an extreme value in a field of it or of a stage, that field and its value.

    Raises:
        ConfigError: the value is refused.
    """
    base = rng.choice(offered)
    if rng.random() < 0.25:
        cls = rng.choice([cls for cls in OFFERED if issubclass(cls, sn.stages.StageCfg)])
        field = rng.choice(list(cls.model_fields))
        stage = cls(**arguments(cls))
        value = mutated(rng, getattr(stage, field))
        return base.replace(stages=(stage.replace(**{field: value}),)), f"{cls.__name__}.{field}", value
    field = rng.choice(list(type(base).model_fields))
    value = mutated(rng, getattr(base, field)) if rng.random() < 0.9 else odd_value(rng, type(base))
    return base.replace(**{field: value}), field, value


def build_each(seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Return how many odd sensors were refused, could not be built and were read, and all other outcomes."""
    rng = random.Random(seed)
    told: Counter[str] = Counter()
    wrong = []
    offered = two_engines.sensors()
    for number in range(count):
        try:
            cfg, field, value = odd_sensor(rng, offered)
        except sn.ConfigError:
            told["refused"] += 1
            continue
        if field in TAKES_MEMORY and any(1e3 < abs(size) <= 1e7 for size in numbers_of(value)):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", sn.SensoriumWarning)
                scene = sn.Scene(sn.MujocoEngine(two_engines.MODEL, num_envs=2), [cfg])
                scene.step(substeps=2)
                scene[cfg.label].read()
            told["read"] += 1
        except sn.SensoriumError:
            told["not built"] += 1
        except Exception as error:
            wrong.append(f"{cfg.label}: {type(error).__name__}: {error}: {shown_safely({field: value})}")
        del cfg
        if number % 50 == 0:
            gc.collect()  # a scene holds itself, and the threads of its engine
    return told, wrong


def test_sensor_with_any_value_is_built_or_refused_by_a_sensorium_error() -> None:
    told, wrong = build_each(seed=1, count=120)
    assert not wrong, "\n".join(wrong[:20])
    assert told["read"] > 10 and told["not built"]


@pytest.mark.soak
def test_thousands_of_sensors_with_any_value_are_built_or_refused_by_a_sensorium_error() -> None:
    told, wrong = build_each(seed=2, count=10_000)
    assert not wrong, "\n".join(wrong[:20])
    assert told["read"] > 1000 and told["not built"] > 100
