"""Help of configs: fields with plain types, units, defaults and meanings."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest
from pydantic import BaseModel

import sensorium as sn
from sensorium import registry
from sensorium.cfg import Cfg, Float, meanings
from sensorium.cfg.help import FIELDS

OURS = [cfg for cfg in registry.registered() if cfg.__module__.startswith("sensorium.")]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("cfg", OURS, ids=lambda cfg: cfg.kind())
def test_every_field_is_described_with_its_type_default_and_unit(cfg: Any) -> None:
    docstring, fields = (flat(part) for part in cfg.__doc__.split(FIELDS))
    texts = meanings(cfg)
    assert docstring
    for name, info in cfg.model_fields.items():
        found = fields.partition(f"{name}: ")[2]
        head, _, rest = found.partition(flat(texts[name]))
        assert rest or fields.endswith(flat(texts[name])), name
        assert info.is_required() or f" = {info.get_default(call_default_factory=True)!r}" in head, name
        assert not {"Annotated", "Any", "Plain"} & set(head.replace("[", " ").replace("(", " ").split()), head
        extra = info.json_schema_extra
        if isinstance(extra, dict) and "unit" in extra:
            assert str(extra["unit"]) in head or str(extra["unit"]) in texts[name], name
    assert "Annotated" not in str(inspect.signature(cfg)) and "Plain" not in str(inspect.signature(cfg))


class GaugeCfg(Cfg):
    """A gauge."""

    reach: Float
    """How far it reaches."""
    period: Float | None = None
    """Time between readings, s."""


def test_help_shows_fields_before_methods() -> None:
    shown = pydoc.render_doc(sn.ImuCfg, renderer=pydoc.plaintext)
    assert shown.index("gyro_noise: Knob | None = None. `noise` of ang_vel_b, rad/s.") < shown.index("Methods")
    assert "rate_hz: float | None = None [Hz]. Samples per second" in flat(shown.replace("|  ", ""))
    assert "PlainValidator" not in shown and "to_toml" in shown
    assert not [name for name in dir(BaseModel) if f" {name}(" in shown or f" {name} =" in shown]


@pytest.mark.parametrize("cfg", OURS, ids=lambda cfg: cfg.kind())
def test_completion_lists_methods_and_given_fields_without_pydantics(cfg: Any) -> None:
    made = BaseModel.model_construct.__func__(cfg)  # type: ignore[attr-defined]  # defaults of required fields as well
    given = {name for name in cfg.model_fields if getattr(made, name, None) is not None}
    assert given <= {*dir(made)} and len(dir(made)) <= 60 and {"replace", "to_toml"} <= {*dir(cfg)} <= {*dir(made)}
    assert not {*dir(BaseModel)} & {*dir(made)}


def test_signature_has_required_fields_first_and_defaults() -> None:
    assert str(inspect.signature(GaugeCfg)) == "(*, reach: float, period: float | None = None)"
    assert GaugeCfg.__doc__ == (
        "A gauge.\n\nFields:\n    reach: float. How far it reaches.\n"
        "    period: float | None = None. Time between readings, s."
    )
    assert inspect.signature(sn.ImuCfg).parameters["rate_hz"].default is None


def test_the_description_in_json_has_no_second_list_of_fields() -> None:
    schema = GaugeCfg.model_json_schema()
    assert schema["description"] == "A gauge."
    assert schema["properties"]["reach"]["description"] == "How far it reaches."
