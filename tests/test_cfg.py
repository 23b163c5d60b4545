"""Configs: complete error lists, round trips, immutability, knobs."""

from __future__ import annotations

import contextlib
import math
import re
import tomllib
from typing import Annotated, Any

import numpy as np
import pytest
import synthetic as syn
from pydantic import BaseModel, Field
from pydantic_core import PydanticSerializationError

import sensorium as sn
from sensorium.cfg import Cfg, Float, GilbertElliott, OffsetCfg, amount_bounds, meanings, must

# Faults ---------------------------------------------------------------------------------------------------------------


def test_all_faults_are_reported_together() -> None:
    """A single error lists every fault with field, value, accepted values and, where available, the fix."""
    with pytest.raises(sn.ConfigError) as caught:
        syn.ProbeCfg(name="p", noise=-1.0, delay="soon", history_length=-2, rate_hz=0.0, nois=1, evaluate="maybe")
    error = caught.value
    fields = ["noise", "delay", "history_length", "rate_hz", "nois", "evaluate"]
    assert sorted(fault.field for fault in error.faults) == sorted(fields)
    text = str(error)
    assert text.count("\n") == 5 and text.count("ProbeCfg('p').") == 6
    assert "'noise'" in next(str(fault) for fault in error.faults if fault.field == "nois")
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"noise": "0.1"}, "noise"), ({"noise": True}, "noise"), ({"noise": math.nan}, "noise"),
        ({"noise": math.inf}, "noise"), ({"noise": ()}, "noise"), ({"noise": {}}, "noise"),
        ({"noise": {"vec": "x"}}, "noise"), ({"noise": {"vec": -0.1}}, "noise"), ({"noise": (0.1, -0.1)}, "noise"),
        ({"noise": sn.Uniform(-1.0, 1.0)}, "noise"), ({"noise_density": -1.0}, "noise_density"),
        ({"random_walk": -1.0}, "random_walk"), ({"resolution": -1.0}, "resolution"),
        ({"delay": -0.1}, "delay"), ({"delay": (0.1, 0.2)}, "delay"), ({"delay": {"vec": 0.1}}, "delay"),
        ({"jitter": 0.1}, "jitter"), ({"delay": 0.1, "jitter": 0.2}, "jitter"),
        ({"delay": sn.Uniform(0.1, 0.3), "jitter": 0.2}, "jitter"),
        ({"delay": 0.1, "jitter": sn.Uniform(0.0, 0.2)}, "jitter"), ({"delay": 0.1, "jitter": (0.1,)}, "jitter"),
        ({"loss": 1.0}, "loss"), ({"loss": -0.1}, "loss"), ({"loss": "often"}, "loss"),
        ({"update_period": -1.0}, "update_period"), ({"update_period": 0.1, "rate_hz": 10.0}, "rate_hz"),
        ({"update_period": math.inf}, "update_period"), ({"rate_hz": "fast"}, "rate_hz"),
        ({"history_length": 1.5}, "history_length"), ({"name": 3}, "name"), ({"debug_vis": "perhaps"}, "debug_vis"),
        ({"stages": ({"kind": "gauss_markow", "tau": 1.0},)}, "stages"), ({"stages": (1,)}, "stages"),
        ({"stages": sn.stages.Saturation(high=1.0)}, "stages"),
    ],
    ids=str,
)  # fmt: skip
def test_invalid_fields_are_refused(given: dict[str, Any], field: str) -> None:
    """Each wrong value is refused at construction by a ConfigError that names its field."""
    with pytest.raises(sn.ConfigError) as caught:
        syn.ProbeCfg(**given)
    assert any(fault.field.split(".")[0] == field for fault in caught.value.faults), str(caught.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: sn.stages.GaussMarkov(density=-1.0, tau=0.0), "density.*\n.*tau"),
        (lambda: sn.stages.GaussMarkov(density=sn.Uniform(0.0, 1.0), tau=1.0), "density"),
        (lambda: sn.stages.GaussMarkov(density=1.0, tau=1.0, start="late"), "start"),
        (lambda: sn.stages.ScaleError(scale=(1.0, 2.0)), "scale"),
        (lambda: sn.stages.ScaleError(cross_axis=(1.0, 2.0, 3.0, 4.0)), "cross_axis"),
        (lambda: sn.stages.Saturation(high=1.0, low=2.0), "low"),
        (lambda: sn.stages.Saturation(hihg=1.0), "hihg"),
        (lambda: GilbertElliott(1.5, 0.0), "p: .*\n.*r: "),
        (lambda: OffsetCfg(rot=(1.0, 1.0, 0.0, 0.0)), "0.707107"),
        (lambda: OffsetCfg(rot=(0.0, 0.0, 0.0, 0.0)), "unit quaternion"),
        (lambda: OffsetCfg(pos=(0.0, 0.0)), "pos"),
        (lambda: sn.ImuCfg(), "selector"),
        (lambda: sn.ImuCfg(site="a", body="b", gyro_noise=-1.0), "gyro_noise(.|\n)*selector"),
        (lambda: sn.ImuCfg(site="a", fields=("gyro",)), "fields"),
        (lambda: sn.Uniform(1.0, 0.0), "low"),
        (lambda: sn.Normal(0.0, -1.0), "std"),
        (lambda: sn.Choice(()), "values"),
    ],
)
def test_invalid_nested_configs_are_refused(make: Any, text: str) -> None:
    """Stages, offsets, selectors, loss models and distributions name their faults as well."""
    with pytest.raises(sn.ConfigError, match=text):
        make()


def test_scalar_for_several_units_is_refused() -> None:
    """A scalar for fields with several units is refused with the units; values per field are accepted."""
    with pytest.raises(sn.ConfigError, match=r"units .*m"):
        syn.world([syn.ProbeCfg(fields=("vec", "speed"), noise=0.1)])
    syn.world([syn.ProbeCfg(fields=("vec", "speed"), noise={"vec": 0.1, "speed": 0.2})])
    with pytest.raises(sn.ConfigError, match=r"(?s)noise.*'sped'.*'speed'.*bias"):
        syn.world([syn.ProbeCfg(fields=("vec", "speed"), noise={"sped": 0.1}, bias=1.0)])
    with pytest.raises(sn.ConfigError, match="fits"):
        syn.world([syn.ProbeCfg(bias=(1.0, 2.0))])
    with pytest.raises(sn.ConfigError, match=r"bias"):
        syn.world([syn.ProbeCfg(bias=sn.Uniform((0.0, 0.0), (1.0, 1.0)))])


# Values ---------------------------------------------------------------------------------------------------------------


def test_configs_are_frozen() -> None:
    """Neither the user nor the library can change a config; `replace` returns a validated copy."""
    cfg = syn.ProbeCfg(name="p", noise={"vec": (1.0, 2.0, 3.0)})
    with pytest.raises(Exception, match="immutable"):
        cfg.name = "q"
    before = cfg.to_json()
    scene = syn.world([cfg])
    scene["p"].set("noise", {"vec": 9.0})
    syn.advance(scene, 2)
    assert cfg.to_json() == before
    assert cfg.replace(name="q").name == "q" and cfg.name == "p"
    with pytest.raises(sn.ConfigError):
        cfg.replace(delay=-1.0)


def test_accepted_kinds_of_numbers() -> None:
    """Integers, NumPy and torch numbers are numbers; lists and arrays become tuples."""
    import torch

    cfg = syn.ProbeCfg(noise=1, bias=[1, 2, 3], resolution=np.array([0.1, 0.2, 0.3]), random_walk=torch.tensor(0.5),
                       delay=np.float64(0.5), rate_hz=100)  # fmt: skip
    assert cfg.noise == 1.0 and isinstance(cfg.noise, float) and cfg.bias == (1.0, 2.0, 3.0)
    assert cfg.resolution == (0.1, 0.2, 0.3) and cfg.random_walk == 0.5 and cfg.delay == 0.5 and cfg.rate_hz == 100.0


def test_bounds_are_enforced() -> None:
    """The bounds of an amount are its least and greatest possible value, at any nesting depth."""
    assert amount_bounds(2.0) == (2.0, 2.0) and amount_bounds(((1.0, -3.0), (2.0, 5.0))) == (-3.0, 5.0)
    assert amount_bounds({"a": sn.Uniform((0.0, 1.0), (2.0, 3.0)), "b": sn.Choice((7.0, -1.0))}) == (-1.0, 7.0)
    low, high = amount_bounds(sn.Normal(1.0, 2.0))
    assert low < -9.0 and high > 11.0


# Files ----------------------------------------------------------------------------------------------------------------

CONFIGS: list[Any] = [
    *syn.menagerie(),
    sn.ImuCfg(
        name="imu",
        site="imu",
        offset=OffsetCfg(pos=(1.0, 2.0, 3.0), rot=(0.0, 1.0, 0.0, 0.0)),
        rate_hz=200.0,
        gyro_noise_density=sn.Normal(0.1, 0.01),
        acc_bias=sn.Choice(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))),
    ),
    sn.ImuCfg(bodies=("a", sn.ObjRef(type="body", name="b.*", entity="robot")), fields="all"),
    syn.ProbeCfg(noise=sn.Uniform((0.0, 0.1, 0.2), 1.0), delay=sn.Uniform(0.1, 0.2), jitter=sn.Normal(0.0, 0.01)),
    sn.ImuCfg(name="faulty", site="imu", stages=(sn.stages.SpikeFault(amount=1.0, rate=0.1, duration=None),)),
    sn.CameraCfg(name="none", width=2, height=2, camera="none", stages=(sn.stages.ImageSensor(bit_depth=None),)),
    sn.LidarCfg(name="lidar", body="base", noise={"ranges": sn.Uniform(0.0, 0.1)}, reflectance={"wall": 0.5}),
    sn.TerrainHeightCfg(name="text", body="none", reduction="none"),
]


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.label)
def test_configs_round_trip_through_json_and_toml(cfg: Any) -> None:
    """Every config survives JSON and TOML, also twice, and its dict holds plain values and a kind."""
    data = cfg.to_dict()
    assert data["kind"] == cfg.kind()
    for again in (cfg.from_dict(data), cfg.from_json(cfg.to_json()), cfg.from_toml(cfg.to_toml())):
        assert again == cfg and again.to_dict() == data
        assert again.model_fields_set == cfg.model_fields_set and hash(again) == hash(cfg)
    text = cfg.to_toml()
    assert tomllib.loads(f"[[sensor]]\n{text}\n[[sensor]]\n{text}") == {"sensor": [tomllib.loads(text)] * 2}  # a rig


def test_none_is_written_where_it_is_not_the_default() -> None:
    """In every config class; a file without it would be read as the default."""
    classes = [Cfg]
    for cls in classes:
        classes += cls.__subclasses__()
        for name, info in cls.model_fields.items() if cls.__module__.startswith("sensorium.") else ():
            with contextlib.suppress(sn.ConfigError, PydanticSerializationError):  # None is not accepted
                construct = BaseModel.model_construct.__func__  # type: ignore[attr-defined]  # without validation
                data = Cfg.to_dict(construct(cls, _fields_set={name}, **{name: None}))
                assert (name in data) == (info.default is not None), (cls, name)


def test_files_are_readable() -> None:
    """Distributions, stages, losses and offsets appear in a file as a person would write them."""
    cfg = sn.ImuCfg(site="imu", gyro_noise=sn.Uniform(0, 0.02), loss=GilbertElliott(0.1, 0.5), delay=0.01,
                    stages=(sn.stages.Saturation(high=16.0, fields=("lin_acc_b",)),))  # fmt: skip
    assert cfg.to_dict() == {
        "kind": "imu", "site": "imu", "gyro_noise": {"uniform": [0.0, 0.02]}, "loss": {"p": 0.1, "r": 0.5},
        "delay": 0.01, "stages": [{"kind": "saturation", "high": 16.0, "fields": ["lin_acc_b"]}],
    }  # fmt: skip


def test_loaded_config_gives_equal_readings() -> None:
    """Scenes built from configs and from their TOML agree bit for bit."""
    cfgs = syn.menagerie()
    scenes = [syn.world(cfgs), syn.world([type(cfg).from_toml(cfg.to_toml()) for cfg in cfgs])]
    for scene in scenes:
        syn.advance(scene, 3)
    for name in scenes[0]:
        syn.same(*(syn.snapshot(scene[name]) for scene in scenes))


@pytest.mark.parametrize(
    "text", ["x", "[1]", "[" * 5000, '{"noise": ' + "[" * 700 + "]" * 700 + "}", "a." * 5000 + "a=1"]
)
def test_text_that_holds_no_config_is_refused(text: str) -> None:
    for read in (sn.ImuCfg.from_json, sn.ImuCfg.from_toml):
        with pytest.raises(sn.ConfigError, match="ImuCfg"):
            read(text)


def test_unknown_names_in_files_are_refused() -> None:
    """An unknown field or stage kind in a file is refused with the nearest name."""
    with pytest.raises(sn.ConfigError, match="'noise'"):
        syn.ProbeCfg.from_toml('name = "p"\nnoize = 1.0\n')
    with pytest.raises(sn.ConfigError, match="gauss_markov"):
        syn.ProbeCfg.from_json('{"stages": [{"kind": "gaus_markov"}]}')
    with pytest.raises(sn.ConfigError, match="tau"):
        syn.ProbeCfg.from_dict({"stages": [{"kind": "gauss_markov", "density": 1.0, "tau": -1.0}]})


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("viz", "debug_vis=True"),
        ("class_type", "omit this field"),
        ("entity_idx", "ObjRef"),
        ("pos_offset", "OffsetCfg(pos=...)"),
    ],
)
def test_field_names_of_other_libraries_are_translated(field: str, hint: str) -> None:
    """A field in the notation of another library is refused with the notation to use instead."""
    with pytest.raises(sn.ConfigError, match=re.escape(hint)):
        sn.ImuCfg(site="imu", **{field: 1})


@pytest.mark.parametrize(
    ("field", "hint"),
    [("fovy", "Give lens=PinholeLensCfg(fovy=...)."), ("res", "Give width=..., height=...")],
)
def test_a_translation_names_only_fields_of_the_config(field: str, hint: str) -> None:
    with pytest.raises(sn.ConfigError, match=re.escape(hint)):
        sn.CameraCfg(site="imu", **{field: 1})
    with pytest.raises(sn.ConfigError) as other:
        sn.LidarCfg(site="imu", **{field: 1})
    assert "Give" not in str(other.value)


@pytest.mark.parametrize("pos", [(float("nan"), 0.0, 0.0), (0.0, float("inf"), 0.0)])
def test_offset_must_be_finite(pos: tuple[float, float, float]) -> None:
    """A position that is not finite would make every reading NaN, so the config refuses it."""
    with pytest.raises(sn.ConfigError, match=r"pos: got .*three finite numbers"):
        sn.ImuCfg.OffsetCfg(pos=pos)


# Field descriptions ---------------------------------------------------------------------------------------------------


class OuterCfg(syn.ProbeCfg):
    """A config whose fields say what they mean in different ways."""

    class InnerCfg(sn.OffsetCfg):
        """One inside another."""

        depth: float = 0.0
        """Depth of the inner one, m."""

    noise: Any = None
    width: float = 1.0
    """Width, m;
    on two lines."""
    told: float = Field(1.0, description="In the field itself.")
    """Not this."""
    silent: float = 1.0


def test_field_docstring_is_its_description() -> None:
    """Own, inherited (also with a changed default) and nested fields have one; an explicit description wins."""
    texts = meanings(OuterCfg)
    assert texts["width"] == "Width, m;\non two lines."
    assert texts["told"] == "In the field itself."
    assert "silent" not in texts
    assert texts["noise"] == meanings(sn.SimpleSensorCfg)["noise"]
    assert texts["noise"].startswith("Standard deviation of white noise")
    inner = meanings(OuterCfg.InnerCfg)
    assert inner == {**meanings(sn.OffsetCfg), "depth": "Depth of the inner one, m."}


def test_json_schema_contains_field_descriptions() -> None:
    """Each property has its meaning as description, also in nested configs; numeric constraints are unchanged."""
    properties = OuterCfg.InnerCfg.model_json_schema()["properties"]
    assert properties["depth"]["description"] == "Depth of the inner one, m."
    assert properties["depth"]["type"] == "number"

    class Holder(sn.OffsetCfg):
        inner: OuterCfg.InnerCfg = OuterCfg.InnerCfg()

    schema = Holder.model_json_schema()
    assert schema["$defs"]["InnerCfg"]["properties"]["depth"]["description"] == "Depth of the inner one, m."


class Ruled(Cfg):
    """A config whose fields have constraints."""

    size: Annotated[Float, must(lambda number: number > 0.0, "a number > 0")] = 1.0
    limit: Annotated[Float, must(lambda number: number > 0.0, "a number > 0")] | None = None


def test_redeclared_field_keeps_its_rule() -> None:
    """Another default, another description or the removal of None does not change the accepted values."""

    class Again(Ruled):
        size: Float = 2.0
        limit: Float | None = 3.0

    class OnceMore(Again):
        size: float = 4.0

    for cls in (Again, OnceMore):
        for field in ("size", "limit"):
            with pytest.raises(sn.ConfigError, match=rf"{field}: got -1.0, expected a number > 0"):
                cls(**{field: -1.0})
    assert (Again().size, Again().limit, OnceMore().size, Again(limit=None).limit) == (2.0, 3.0, 4.0, None)


def test_redeclared_field_with_a_rule_has_only_that_rule() -> None:
    """A subclass can accept more values if it declares so."""

    class Wider(Ruled):
        size: Annotated[Float, must(lambda number: number >= 0.0, "a number >= 0")] = 0.0

    assert Wider(size=0.0).size == 0.0
    with pytest.raises(sn.ConfigError, match="a number >= 0"):
        Wider(size=-1.0)
