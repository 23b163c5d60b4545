"""Whatever is written into a field of any config, the answer is a config or a `ConfigError`: no other exception."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium import registry
from sensorium.cfg import STAGE_KINDS, Cfg, GilbertElliott, ObjRef, OffsetCfg
from sensorium.patterns.base import PATTERN_KINDS
from sensorium.patterns.ring import Ring

NEEDED: dict[str, dict[str, Any]] = {
    "BuiltinSensorCfg": {"name": "gyro"},
    "CollisionEventsCfg": {"primary": sn.ContactMatch(mode="geom", pattern="ball")},
    "RayCasterCameraCfg": {"body": "b", "pattern_cfg": {"kind": "pinhole_camera", "width": 4, "height": 3}},
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
    "GeneratedPatternCfg": {"source": sn.GridPatternCfg()},
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
"""What a config must be given, by its class, where it is more than a body."""

ODD: list[Any] = [
    None, "", "x", "1", b"x", [], {}, (), math.nan, math.inf, -math.inf, -1, 0, True, 10**400, 1j, object(), int, len,
    [None], ["x"], [[]], [1.0, "x"], [math.nan] * 3, [10**400] * 3, [1, [2]], tuple(range(7)), {1}, range(2),
    np.array([math.nan]), {"x": None}, {None: 1}, {"kind": "x"}, {"kind": []}, {"kind": None}, {"kind": "low_pass"},
    [{"kind": []}], [{"kind": None}], [{"kind": "low_pass"}], [{None: 1}], {"uniform": None}, {"uniform": [1, "x"]},
    {"normal": [0]}, {"choice": []}, {"a": {"b": 1}},
]  # fmt: skip
PLACES = re.compile(r"0x[0-9a-f]+")


def configs() -> list[type[Cfg]]:
    """Return our config classes: of all sensors, stages and patterns that are registered, and what is inside them."""
    registered = [*registry.registered(), *STAGE_KINDS.values(), *PATTERN_KINDS.values()]
    ours = [cls for cls in registered if cls.__module__.startswith("sensorium.")]
    return [*sorted(ours, key=lambda cls: cls.__qualname__), OffsetCfg, ObjRef, GilbertElliott, Ring]


def arguments(cls: type[Cfg]) -> dict[str, Any]:
    """Return what a config of a class can be made of."""
    if cls.__name__ in NEEDED:
        return NEEDED[cls.__name__]
    if hasattr(cls, "example"):
        cfg = cls.example()
        return {name: getattr(cfg, name) for name in cfg.model_fields_set}
    return {"body": "b"} if "body" in cls.model_fields else {}


@pytest.mark.parametrize("cls", configs(), ids=lambda cls: cls.__name__)
def test_an_odd_value_of_a_field_is_taken_or_refused_by_a_config_error(cls: type[Cfg]) -> None:
    """The error names a field, what was got and what is expected."""
    given = arguments(cls)
    assert isinstance(cls(**given), cls)
    wrong = []
    for name in cls.model_fields:
        for value in ODD:
            try:
                cls(**{**given, name: value})
            except sn.ConfigError as error:
                complete = error.faults and all(fault.field and fault.got and fault.expected for fault in error.faults)
                if not complete or not error.config:
                    wrong.append(f"{name}={value!r}: no full ConfigError: {error}")
            except Exception as error:
                wrong.append(f"{name}={value!r}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(PLACES.sub("...", line)[-300:] for line in wrong[:20])


@pytest.mark.parametrize("cls", [cls for cls in configs() if cls.__name__ in NEEDED], ids=lambda cls: cls.__name__)
def test_a_config_without_what_it_needs_is_refused_by_a_config_error(cls: type[Cfg]) -> None:
    with pytest.raises(sn.ConfigError, match=cls.__name__):
        cls()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sn.ImuCfg(body="b", loss={}), "ImuCfg.loss.p: got nothing, expected a value"),
        (lambda: GilbertElliott(p=0.1), "GilbertElliott.r: got nothing, expected a value. Give r=..."),
        (lambda: sn.ImuCfg(body="b", stages=[{"kind": []}]), "stages: got [{'kind': []}], expected stages whose kind"),
        (lambda: sn.RayCasterCfg(body="b", pattern_cfg={"kind": []}), "pattern.kind: got [], expected one of "),
        (lambda: sn.ImuCfg(body="b", gyro_noise=10**400), "expected a finite number"),
        (lambda: sn.ImuCfg(body={None: 1}), "None is no name of a field"),
        (lambda: sn.ImuCfg(body="b", stages=[{None: 1}]), "None is no name of a field"),
    ],
)
def test_the_message_says_what_is_wrong(make: Any, message: str) -> None:
    with pytest.raises(sn.ConfigError) as caught:
        make()
    assert message in str(caught.value)
