"""Memory bounds: sizes that do not fit are rejected by name before allocation, in scenes, engines and by the machine's
limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor

import sensorium as sn
from sensorium.compute import Memory
from sensorium.memory import Allowance, host_available, in_mb
from sensorium.patterns import SpinningPatternCfg

FREE = 400_000_000


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make 400 MB available."""
    monkeypatch.setattr("sensorium.compute.memory.host_available", lambda: FREE)


def engine(num_envs: int = 1) -> sn.TensorEngine:
    wall = sn.engines.Shape("box", "wall", (0.5, 30.0, 30.0), pos=(2.5, 0.0, 0.0))
    return sn.TensorEngine(num_envs, 0.01, provides=("pose", "velocity", "gravity", "contact"), shapes=(wall,))


@dataclass(frozen=True, slots=True)
class WideData:
    cells: Annotated[Tensor, sn.Field("m", (1,))]


class WideCfg(sn.SimpleSensorCfg[WideData]):
    """A custom sensor with its own memory."""

    columns: int = 4
    extra: int = 0
    raises: Any = None


class Wide(sn.SimpleSensor[WideCfg, WideData]):
    def fields(self) -> dict[str, sn.Field]:
        return {"cells": sn.Field("m", (self.cfg.columns,))}

    def setup(self) -> None:
        self.own = torch.zeros((self.num_envs, self.cfg.extra), dtype=torch.float64)
        if self.cfg.raises is not None:
            raise self.cfg.raises

    def update_raw_data(self, raw: Any) -> None:
        raw.cells.zero_()


BODY = {"body": "body"}
LARGE: dict[str, tuple[Any, int, str]] = {
    "history": (sn.ImuCfg(**BODY, history_length=10**9), 1, r"ImuCfg\('imu'\)\.history_length: got 1000000000, expected"
                r" a size that fits: it needs 48000 MB with 1 environment, and 400 MB are available\. Use a smaller"),
    "envs": (sn.ImuCfg(**BODY, history_length=10**5), 1000, r"history_length: .* 4800 MB with 1000 environments"),
    "delay": (sn.ImuCfg(**BODY, delay=1e7), 1, r"ImuCfg\('imu'\)\.delay: got 10000000\.0, .* 48000 MB"),
    "grid": (sn.RayCasterCfg(**BODY, pattern=sn.patterns.GridPatternCfg(size=(100.0, 100.0), resolution=0.02)), 1,
             r"RayCasterCfg\('ray_caster'\)\.pattern: got GridPatternCfg\(.* 2\.501e\+07 rays, 6253 MB"),
    "scan": (sn.LidarCfg(**BODY, pattern=SpinningPatternCfg.os1_64(columns=1_000_000)), 1, r"pattern: .*6.4e\+07 r"),
    "image": (sn.DepthCameraCfg(**BODY, res=(11000, 9000)), 2, r"'depth_camera'\)\.res: got \(11000, 9000\)"),
    "pinhole": (sn.RayCasterCameraCfg(**BODY, pattern=sn.patterns.PinholeCameraPatternCfg(width=11000, height=9000)), 2,
                r"\.pattern: got PinholeCameraPatternCfg\("),
    "cells": (sn.TemperatureGridCfg(**BODY, grid_size=(100, 100, 10)), 4000, r"\.num_envs: got 4000, .* 1600 MB"),
    "points": (sn.ProximityTaxelCfg(**BODY, n_sample_points=1_000_000), 1, r"n_sample_points: got 1000000, .* 1000 MB"),
    "spacing": (sn.ProximityTaxelCfg(**BODY, sample_spacing=0.09), 1, r"\.sample_spacing: got 0\.09, .* MB"),
    "fields": (WideCfg(columns=2 * 10**8), 1, r"WideCfg\('wide'\)\.columns: got 200000000, .* 800 MB"),
    "own": (WideCfg(extra=10**8), 1, r"WideCfg\('wide'\)\.extra: got 100000000, .* 800 MB"),
    "NumPy": (WideCfg(raises=MemoryError("cannot allocate 7 GiB")), 1, r"WideCfg\('wide'\)\.memory: .* 7 GiB"),
    "torch": (WideCfg(raises=RuntimeError("DefaultCPUAllocator: can't allocate memory")), 1, r"wide'\)\.memory: got"),
}  # fmt: skip


@pytest.mark.parametrize("case", LARGE)
def test_oversized_field_is_refused_with_name_and_size(case: str) -> None:
    """The error names the config and the field that drives the size; a running scene continues without the sensor."""
    cfg, num_envs, says = LARGE[case]
    with pytest.raises(sn.ConfigError, match=says):
        sn.Scene(engine(num_envs), [cfg])
    scene = sn.Scene(engine(num_envs))
    with pytest.raises(sn.ConfigError, match=says):
        scene.add(cfg)
    scene.update()
    assert not scene.sensors


def test_sensors_must_fit_in_memory_together() -> None:
    cfgs = [sn.ImuCfg(name=f"imu_{k}", **BODY, history_length=3_000_000) for k in range(4)]  # 144 MB each
    with pytest.raises(sn.ConfigError, match=r"ImuCfg\('imu_2'\)\.history_length: .* 144 MB .*, and 1\d\d MB are avai"):
        sn.Scene(engine(), cfgs)


def test_author_exception_is_not_replaced() -> None:
    with pytest.raises(RuntimeError, match="no motor"):
        sn.Scene(engine(), [WideCfg(raises=RuntimeError("no motor"))])


def test_absurd_numbers_of_environments_are_refused() -> None:
    says = r"num_envs: got 10{9}, expected a number that fits: the state needs \S+ MB, and 400 MB are available"
    for make in (engine, lambda num_envs: sn.MujocoEngine("<mujoco/>", num_envs)):
        with pytest.raises(sn.ConfigError, match=says):
            make(10**9)
        with pytest.raises(sn.SensoriumError, match=r"num_envs: got 10{12}, expected an integer"):
            make(10**12)


def test_pattern_size_is_known_before_rays_are_generated() -> None:
    """The count is that of the rays, or a bound that is at most one row and column larger."""
    prisms = {"wedges": (10.0, 10.0), "rates_hz": (70.0, -60.0), "points_per_second": 1e5, "period": 0.01}
    turn = {"horizontal_fov_range": (-180.0, 180.0), "horizontal_res": 7.0}
    patterns: list[Any] = [
        sn.patterns.GridPatternCfg(size=(1.05, 0.5), resolution=0.1),
        sn.patterns.RingPatternCfg(rings=({"radius": 0.1, "num_samples": 4},)),
        sn.patterns.SphericalPatternCfg(),
        sn.patterns.SphericalPatternCfg(angular_resolution=(7.0, 3.0)),
        sn.patterns.BpearlPatternCfg(),
        sn.patterns.LidarPatternCfg(channels=4, vertical_fov_range=(-10.0, 10.0), **turn),
        sn.patterns.PinholeCameraPatternCfg(width=7, height=5),
        SpinningPatternCfg.vlp16(),
        sn.patterns.RotatingMirrorPatternCfg.mid360(0.1),
        sn.patterns.RisleyPatternCfg(**prisms, beams=((0.0, 0.0), (1.0, 0.0))),
    ]
    for pattern in patterns:
        count, true = pattern.count_rays(), len(pattern.rays("cpu"))
        assert count is not None and true <= count <= 1.3 * true, pattern


def test_allowance_counts_memory_built_within_it() -> None:
    memory = Memory("cpu", 4)
    with memory.within(Allowance(1e6, 100, "at most 1 MB", "Ask for more.")) as allowance:
        with memory.building():
            kept = torch.zeros(4, 1000), torch.ones(10, dtype=torch.uint8), torch.full((2, 5), 1.0)
            kept[0].clone(), torch.zeros_like(kept[1]), kept[0].new_zeros(3, 4), torch.empty(size=(5,))
            memory.take_rays((5, 4), 1)
        assert allowance.taken == 2 * 16_000 + 2 * 10 + 40 + 48 + 20 and allowance.rays_taken == 80
        with (
            memory.building(),
            pytest.raises(sn.ConfigError, match=r"memory: got \[1000, 300\], expected at most 1 MB:"),
        ):
            torch.zeros(1000, 300)
        with pytest.raises(
            sn.ConfigError, match=r"rays: got 6, .* 24 rays with 4 environments, and 20 .* Ask for more"
        ):
            memory.take_rays((6,), 1)
    torch.zeros(1000, 300)


def test_memory_limit_of_the_control_group_applies(tmp_path: Path) -> None:
    whole = host_available(tmp_path)
    assert whole is None or whole > 2**20
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50000\n")
    assert host_available(tmp_path) == 150_000
    (tmp_path / "memory.max").write_text("max\n")
    assert host_available(tmp_path) != 150_000


def test_sizes_are_written_in_mb() -> None:
    assert [in_mb(n) for n in (0, 1234, 5e6, 1.5e9, 4.5e12)] == ["0 MB", "0.00123 MB", "5 MB", "1500 MB", "4.5e+06 MB"]
