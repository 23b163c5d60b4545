"""Patterns as configs: files, fields of sensors, custom classes and faults."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.cfg import Cfg
from sensorium.compat.carla import lidar_pattern
from sensorium.patterns import GridPatternCfg, LidarPatternCfg, OptionalPatternField, PatternField
from sensorium.patterns.base import PATTERN_KINDS

PATTERNS: list[sn.patterns.PatternBaseCfg] = [
    GridPatternCfg(),
    GridPatternCfg(size=(1.6, 1.0), resolution=0.1, direction=(0.1, 0.0, -1.0), ordering="yx"),
    sn.patterns.RingPatternCfg(rings=(sn.patterns.Ring(0.1, 8), sn.patterns.Ring(0.2, 12)), include_center=False),
    sn.patterns.PinholeCameraPatternCfg(width=8, height=6, focal_length=20.0),
    sn.patterns.ImagePlanePatternCfg(width=4, fovx=50.0),
    sn.patterns.PinholeCameraPatternCfg.from_lens(res=(8, 6)),
    sn.patterns.SphericalPatternCfg(fov=(90.0, (-10.0, 20.0)), n_points=(5, 4)),
    sn.patterns.SphericalPatternCfg(angular_resolution=(10.0, 5.0)),
    sn.patterns.SphericalPatternCfg(angles=((0.0, 90.0), (0.0,))),
    LidarPatternCfg(
        channels=4, vertical_fov_range=(-15, 15), horizontal_fov_range=(0, 90), horizontal_res=7, spacing="one_less"
    ),
    sn.patterns.BpearlPatternCfg(horizontal_fov=180.0),
    sn.patterns.SpinningPatternCfg.vlp16(),
    sn.patterns.SpinningPatternCfg.os1_64(),
    lidar_pattern(horizontal_fov=120.0),
    sn.patterns.RisleyPatternCfg.avia(period=0.1),
    sn.patterns.RotatingMirrorPatternCfg.mid360(period=0.1),
    sn.patterns.TablePatternCfg(
        time=np.arange(5) * 0.1, azimuth=range(5), elevation=[0.0] * 5, channel=[0, 1, 0, 1, 0]
    ),
    sn.patterns.TablePatternCfg.from_table(sn.patterns.ScanTable([0.0, 0.1], [0.0, 1.0], [2.0, 3.0], period=0.5)),
]


class CasterCfg(Cfg):
    pattern: PatternField = GridPatternCfg()
    other: OptionalPatternField = None


@pytest.fixture(autouse=True)
def _own_kinds() -> Iterator[None]:
    """Forget the patterns that a test defines."""
    kinds = dict(PATTERN_KINDS)
    yield
    PATTERN_KINDS.clear()
    PATTERN_KINDS.update(kinds)


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.kind())
def test_pattern_round_trips_through_json_and_toml(pattern: sn.patterns.PatternBaseCfg) -> None:
    for again in (type(pattern).from_json(pattern.to_json()), sn.patterns.PatternBaseCfg.from_toml(pattern.to_toml())):
        assert again == pattern and type(again) is type(pattern)
        assert torch.equal(again.rays().directions, pattern.rays().directions)
        assert torch.equal(again.rays().starts, pattern.rays().starts)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.kind())
def test_a_field_of_a_config_holds_a_pattern_of_any_kind(pattern: sn.patterns.PatternBaseCfg) -> None:
    cfg = CasterCfg(pattern=pattern, other=pattern)
    assert cfg.pattern is pattern
    assert CasterCfg.from_toml(cfg.to_toml()) == CasterCfg.from_json(cfg.to_json()) == cfg
    assert cfg.to_dict()["pattern"]["kind"] == pattern.kind()


def test_kind_is_the_class_name_without_pattern_cfg() -> None:
    ours = {kind for kind, cls in PATTERN_KINDS.items() if cls.__module__.startswith("sensorium.")}
    assert ours == {"grid", "ring", "pinhole_camera", "spherical", "lidar", "bpearl", "spinning", "risley",
                    "rotating_mirror", "table", "generated", "image_plane"}  # fmt: skip
    assert CasterCfg(pattern={"kind": "grid", "size": (2, 2), "resolution": 1}).pattern.return_shape == (3, 3)


@pytest.mark.parametrize(
    ("value", "expected"),
    [({"kind": "gird"}, "pattern.kind: got 'gird', expected one of .*bpearl.*grid.*Did you mean 'grid'"),
     ({"size": (1, 1)}, 'pattern.kind: got None, expected one of .*kind = "grid"'),
     ({"kind": "grid", "resolution": -1}, "pattern.resolution: got -1, expected a resolution greater than 0"),
     (7, r"pattern: got 7, expected a pattern such as GridPatternCfg"), (None, "pattern: got None")],
)  # fmt: skip
def test_invalid_pattern_error_names_the_field(value: Any, expected: str) -> None:
    with pytest.raises(sn.ConfigError, match=expected):
        CasterCfg(pattern=value)


def test_class_refuses_another_kind() -> None:
    with pytest.raises(sn.ConfigError, match=r"GridPatternCfg\.kind: got 'ring', expected 'grid'"):
        GridPatternCfg.from_dict({"kind": "ring"})


def test_patterns_are_a_public_submodule() -> None:
    cfg = GridPatternCfg(size=(1.0, 1.0), resolution=0.5)
    assert sn.patterns.grid_pattern(cfg, "cpu")[0].shape == (9, 3)


# Own patterns ---------------------------------------------------------------------------------------------------------


def cross(cfg: Any, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    directions = torch.tensor([[2.0, 0.0, 0.0], [0.0, cfg.width, 0.0]], device=device)
    return torch.zeros_like(directions), directions


class MethodPatternCfg(sn.patterns.PatternBaseCfg):
    width: float = 3.0

    def func(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        return cross(self, device)


class AttributePatternCfg(sn.patterns.PatternBaseCfg):
    width: float = 3.0
    func = cross


class StaticPatternCfg(sn.patterns.PatternBaseCfg):
    width: float = 3.0
    func = staticmethod(cross)


class ClassVarPatternCfg(sn.patterns.PatternBaseCfg):
    width: float = 3.0
    func: ClassVar[Callable[..., Any]] = functools.partial(cross)


class FieldPatternCfg(sn.patterns.PatternBaseCfg):
    func: Callable[..., Any] = cross
    width: float = 3.0


OWN = [MethodPatternCfg, AttributePatternCfg, StaticPatternCfg, ClassVarPatternCfg, FieldPatternCfg]
OWN_KINDS = {cls.kind(): cls for cls in OWN}


@pytest.mark.parametrize("cls", OWN)
def test_func_can_be_a_method_attribute_or_field(cls: type[sn.patterns.PatternBaseCfg]) -> None:
    rays = cls(width=5.0).rays()
    assert rays.directions.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert rays.return_shape == cls().return_shape == (2,)
    assert rays.times is None and rays.channels is None and rays.period is None
    assert CasterCfg.from_toml(CasterCfg(pattern=cls(width=5.0)).to_toml()).pattern == cls(width=5.0)


def test_function_of_one_config_works_but_is_not_saved() -> None:
    cfg = FieldPatternCfg(func=lambda cfg, device: (torch.zeros(1, 3), torch.tensor([[0.0, 0.0, -cfg.width]])))
    assert cfg.rays().directions.tolist() == [[0.0, 0.0, -1.0]]
    with pytest.raises(sn.ConfigError, match=r"FieldPatternCfg\.func: got .*, expected a value that a file can hold"):
        cfg.to_dict()


def test_installed_plugin_pattern_is_found_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before an unknown kind is an error, installed plugins are loaded."""

    def load() -> None:
        class WindmillPatternCfg(sn.patterns.PatternBaseCfg):
            width: float = 1.0
            func = cross

    monkeypatch.setattr(PATTERN_KINDS, "plugins", SimpleNamespace(load=lambda **how: load(), is_loading=False))
    assert len(CasterCfg(pattern={"kind": "windmill", "width": 2.0}).pattern.rays()) == 2


def test_built_in_kind_cannot_be_redefined() -> None:
    with pytest.raises(sn.RegistrationError, match=r"the kind 'grid' of .*GridPatternCfg belongs to the built-in"):

        class GridPatternCfg(sn.patterns.PatternBaseCfg):
            func = cross

    assert PATTERN_KINDS["grid"] is sn.patterns.GridPatternCfg


def test_pattern_with_custom_axes_reports_them() -> None:
    class TwoRowsPatternCfg(sn.patterns.PatternBaseCfg):
        rows: int = 2

        def func(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.zeros(6, 3), torch.ones(6, 3)

        @property
        def return_shape(self) -> tuple[int, ...]:
            return self.rows, 3

        def ray_channels(self) -> np.ndarray:
            return np.repeat(np.arange(2), 3)

    rays = TwoRowsPatternCfg().rays()
    assert rays.return_shape == (2, 3) and rays.channels is not None and rays.channels.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(sn.ConfigError, match=r"return_shape: got \(3, 3\), expected a shape whose product"):
        TwoRowsPatternCfg(rows=3).rays()


def test_custom_scan_is_a_table() -> None:
    class LinePatternCfg(sn.patterns.ScanPatternCfg):
        is_abstract: ClassVar[bool] = False
        lines: int = 3

        def table(self) -> sn.patterns.ScanTable:
            return sn.patterns.ScanTable(np.arange(self.lines) * 0.1, np.zeros(self.lines), np.arange(self.lines))

    rays = CasterCfg.from_dict({"pattern": {"kind": "line", "lines": 4}}).pattern.rays()
    assert rays.times is not None and rays.times.tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_mjlab_pattern_object_is_accepted() -> None:
    class Foreign:
        def generate_rays(self, mj_model: object, device: str) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.zeros(4, 3), torch.tensor([[0.0, 0.0, -2.0]] * 4)

    cfg = CasterCfg(pattern=Foreign())
    assert cfg.pattern.rays().directions.tolist() == [[0.0, 0.0, -1.0]] * 4
    with pytest.raises(sn.ConfigError, match="expected a value that a file can hold"):
        cfg.pattern.to_dict()
    starts, directions = GridPatternCfg().generate_rays(None, "cpu")  # and the built-in patterns work with mjlab
    assert starts.shape == directions.shape == (121, 3)


# Bad input ------------------------------------------------------------------------------------------------------------


def pattern_of(result: Any) -> sn.patterns.PatternBaseCfg:
    class BadPatternCfg(sn.patterns.PatternBaseCfg):
        def func(self, device: str) -> Any:
            return result

    return BadPatternCfg()


GOOD = torch.ones(3, 3)
ONE_ZERO = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 0]])
ONE_NAN = torch.tensor([[1.0, 0, 0], [1, 0, 0], [math.nan, 0, 0]])


@pytest.mark.parametrize(
    ("result", "expected"),
    [((GOOD, ONE_ZERO), r"func\.directions\[1\]: got \[0\.0, 0\.0, 0\.0\], expected finite and not all zero.* 2 of 3"),
     ((GOOD, ONE_NAN), r"func\.directions\[2\]: got \[nan, 0\.0, 0\.0\], expected finite"),
     ((GOOD, GOOD * math.inf), r"func\.directions\[0\]"), ((ONE_NAN, GOOD), r"func\.starts\[2\].*expected finite"),
     ((GOOD, GOOD[:2]), r"func\.directions: got 2, expected as many directions as starts, 3"),
     ((GOOD, GOOD[:, :2]), r"func\.directions: got \(3, 2\), expected a tensor \[ray, 3\]"),
     ((GOOD[:0], GOOD[:0]), r"func\.starts: got \(0, 3\)"), ((GOOD, GOOD.int()), r"func\.directions: got torch\.int32"),
     ((GOOD, np.ones((3, 3))), r"func\.directions: got .*expected a torch tensor"), (GOOD, "func: .*a pair of tensors"),
     (None, "func: got None, expected a pair of tensors")],
)  # fmt: skip
def test_result_of_func_is_checked_and_the_ray_named(result: Any, expected: str) -> None:
    with pytest.raises(sn.ConfigError, match=rf"(?s)BadPatternCfg\.{expected}"):
        pattern_of(result).rays()


def test_float64_and_tiny_directions_become_unit_float32() -> None:
    rays = pattern_of((torch.zeros(1, 3).double(), torch.tensor([[0.0, 3e-100, 4e-100]], dtype=torch.float64))).rays()
    assert rays.directions.dtype == rays.starts.dtype == torch.float32
    np.testing.assert_allclose(rays.directions.numpy(), [[0.0, 0.6, 0.8]], atol=1e-7)


def test_class_without_func_error_shows_the_method() -> None:
    class EmptyPatternCfg(sn.patterns.PatternBaseCfg):
        pass

    with pytest.raises(sn.RegistrationError, match=r"EmptyPatternCfg has no func\. Write a method: def func"):
        EmptyPatternCfg().rays()
    assert "empty" not in PATTERN_KINDS


LIDAR = {"channels": 4, "vertical_fov_range": (-15, 15), "horizontal_fov_range": (-180, 180), "horizontal_res": 1.0}


@pytest.mark.parametrize(
    ("cls", "fields", "expected"),
    [(GridPatternCfg, {"ordering": "zx"}, "ordering: got 'zx', expected 'xy' or 'yx'"),
     (GridPatternCfg, {"resolution": -1.0}, r"resolution: got -1\.0, expected a resolution greater than 0, m"),
     (GridPatternCfg, {"resolution": 0.0}, r"resolution: got 0\.0"),
     (GridPatternCfg, {"resolution": math.nan}, "resolution: got nan"),
     (GridPatternCfg, {"resolution": 1e-7}, "resolution: .*at most 100000000 rays"),
     (GridPatternCfg, {"size": (-1.0, 1.0)}, "size: .*two lengths >= 0"),
     (GridPatternCfg, {"direction": (0, 0, 0)}, "direction: .*not zero"),
     (sn.patterns.RingPatternCfg, {"rings": (), "include_center": False}, "include_center: .*at least one ray"),
     (sn.patterns.RingPatternCfg, {"rings": ({"radius": 0.0, "num_samples": 3},)}, r"rings\.0\.radius: got 0\.0"),
     (sn.patterns.RingPatternCfg, {"rings": ({"radius": 1.0, "num_samples": 0},)}, r"rings\.0\.num_samples: got 0"),
     (sn.patterns.RingPatternCfg, {"rings": (), "direction": (0, 0, math.nan)}, "direction: .*finite"),
     (sn.patterns.SphericalPatternCfg, {"fov": (361.0, 10.0)}, "fov: .*at most 360 degrees, not 361"),
     (sn.patterns.SphericalPatternCfg, {"fov": (90.0, 181.0)}, "fov: .*elevations from -90 to 90"),
     (sn.patterns.SphericalPatternCfg, {"n_points": (0, 4)}, "n_points: .*at least 1"),
     (sn.patterns.SphericalPatternCfg, {"angular_resolution": (0.0, 1.0)}, "angular_resolution: .*greater than 0"),
     (sn.patterns.SphericalPatternCfg, {"angles": ((), (0.0,))}, "angles: .*at least one"),
     (LidarPatternCfg, {**LIDAR, "channels": 0}, "channels: got 0, expected at least 1 channel"),
     (LidarPatternCfg, {**LIDAR, "channels": 2.5}, r"channels: got 2\.5, expected a valid integer"),
     (LidarPatternCfg, {**LIDAR, "horizontal_res": 0.0}, r"horizontal_res: got 0\.0, expected a step greater"),
     (LidarPatternCfg, {**LIDAR, "horizontal_fov_range": (-200, 200)}, "horizontal_fov_range: .*at most 360"),
     (LidarPatternCfg, {**LIDAR, "vertical_fov_range": (-100, 0)}, "vertical_fov_range: .*-90 to 90"),
     (LidarPatternCfg, {**LIDAR, "spacing": "v2"}, "spacing"),
     (sn.patterns.BpearlPatternCfg, {"horizontal_fov": 400.0}, r"horizontal_fov: got 400\.0, .*up to 360"),
     (sn.patterns.BpearlPatternCfg, {"horizontal_res": -1.0}, r"horizontal_res: got -1\.0"),
     (sn.patterns.BpearlPatternCfg, {"vertical_ray_angles": ()}, "vertical_ray_angles: .*at least one")],
)  # fmt: skip
def test_bad_fields_are_refused_with_the_expected_value(cls, fields, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        cls(**fields)
