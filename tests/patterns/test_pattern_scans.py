"""Scans: firing times and directions of the rays."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.compat.carla import lidar_pattern
from sensorium.patterns import RisleyPatternCfg, RotatingMirrorPatternCfg, SpinningPatternCfg, window


def azimuth(table: sn.patterns.ScanTable, channel: int | None = None) -> np.ndarray:
    """Return the azimuths of a channel as a continuous angle, deg."""
    chosen = table.azimuth if channel is None else table.azimuth[table.channel == channel]
    return np.unwrap(chosen, period=360.0)


def cells(table: sn.patterns.ScanTable, until: float, size: float = 1.0) -> set[tuple[int, int]]:
    """Return the cells of azimuth and elevation, `size` degrees wide, that are hit before a time."""
    hit = table.time < until
    pairs = np.floor(np.stack([table.azimuth[hit], table.elevation[hit]], axis=1) / size).astype(int)
    return set(map(tuple, pairs.tolist()))


ALL = {
    "vlp16": SpinningPatternCfg.vlp16(), "hdl32e": SpinningPatternCfg.hdl32e(),
    "os1_64": SpinningPatternCfg.os1_64(), "carla": lidar_pattern(),
    "mid40": RisleyPatternCfg.mid40(period=0.2), "mid40_exact": RisleyPatternCfg.mid40(period=0.2, exact=True),
    "avia": RisleyPatternCfg.avia(period=0.2), "mid360": RotatingMirrorPatternCfg.mid360(period=0.2),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_scan_is_one_period_in_time_order(name: str) -> None:
    cfg = ALL[name]
    rays = cfg.rays()
    assert rays.times is not None and rays.channels is not None and rays.period is not None
    assert rays.times.dtype == torch.float64 and rays.channels.dtype == torch.int32
    assert float(rays.times[0]) == 0.0 and float(rays.times[-1]) < rays.period
    assert bool((rays.times.diff() >= 0.0).all())
    assert math.prod(rays.return_shape) == len(rays) == len(rays.times) == len(rays.channels)
    assert float((rays.directions.double().norm(dim=-1) - 1.0).abs().max()) < 1e-6
    assert not rays.starts.any()
    starts, directions = cfg.func("cpu")
    assert torch.equal(directions, rays.directions) and torch.equal(starts, rays.starts)


# Spinning -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "cycle_us", "firing_us", "elevations"),
    [
        (SpinningPatternCfg.vlp16(), "55.296", "2.304", np.arange(-15.0, 16.0, 2.0)),
        (SpinningPatternCfg.vlp16(rate_hz=20.0), "55.296", "2.304", np.arange(-15.0, 16.0, 2.0)),
        (SpinningPatternCfg.hdl32e(), "46.08", "1.152", -92.0 / 3.0 + 4.0 / 3.0 * np.arange(32)),
    ],
    ids=["vlp16", "vlp16_20hz", "hdl32e"],
)
def test_velodyne_lasers_fire_once_per_cycle_at_their_own_times(cfg, cycle_us, firing_us, elevations) -> None:
    """Counts match exact fractions; times, azimuths and elevations match the closed form."""
    table = cfg.table()
    lasers = len(elevations)
    cycle, firing = Fraction(cycle_us) / 10**6, Fraction(firing_us) / 10**6
    room = 1 / Fraction(cfg.rate_hz) - (lasers - 1) * firing
    cycles = -(-room.numerator * cycle.denominator // (room.denominator * cycle.numerator))  # rounded up
    assert np.bincount(table.channel).tolist() == [cycles] * lasers
    assert cfg.return_shape == (cycles, lasers)
    k, j = np.divmod(np.arange(len(table)), lasers)
    np.testing.assert_array_equal(table.channel, j)
    np.testing.assert_allclose(table.time, k * float(cycle) + j * float(firing), rtol=0, atol=1e-15)
    np.testing.assert_allclose(azimuth(table) - table.azimuth[0], -360.0 * cfg.rate_hz * table.time, atol=1e-9)
    assert table.azimuth[0] == -180.0  # behind
    np.testing.assert_allclose(np.sort(table.elevation[:lasers]), elevations, atol=1e-12)


def test_columns_of_a_vlp16_at_10_hz_are_199_millidegrees_apart() -> None:
    steps = -np.diff(azimuth(SpinningPatternCfg.vlp16().table(), channel=3))
    np.testing.assert_allclose(steps, 0.1990656, atol=1e-9)


@pytest.mark.parametrize(("columns", "rate"), [(512, 10.0), (1024, 10.0), (1024, 20.0), (2048, 10.0), (1000, 7.0)])
def test_os1_fires_columns_of_64_simultaneously(columns: int, rate: float) -> None:
    cfg = SpinningPatternCfg.os1_64(columns, rate)
    table = cfg.table()
    assert cfg.return_shape == (columns, 64)
    times = table.time.reshape(columns, 64)
    assert (times == times[:, :1]).all()
    np.testing.assert_allclose(times[:, 0], np.arange(columns) / (columns * rate), rtol=1e-12)
    histogram, _ = np.histogram(np.mod(table.azimuth[table.channel == 7], 360.0), bins=columns // 4, range=(0.0, 360.0))
    assert set(histogram) <= {3, 4, 5} and histogram.sum() == columns  # a column may lie on the edge of a bin
    np.testing.assert_allclose(table.elevation[[0, 63]], [16.611, -16.611])
    assert len(np.unique(np.round(np.diff(table.elevation[:64]), 9))) == 1


def test_os1_lasers_have_azimuth_offsets() -> None:
    table = SpinningPatternCfg.os1_64().table()
    lean = (azimuth(table, 0) - azimuth(table, 2))[:100]
    np.testing.assert_allclose(np.mod(lean, 360.0), 360.0 - 3.164 - 1.055, atol=1e-9)


def test_the_azimuths_of_a_turn_fill_equal_bins_equally() -> None:
    cfg = SpinningPatternCfg(elevations=(0.0, 5.0), cycle_interval=1e-4, rate_hz=10.0, start=179.9)
    table = cfg.table()
    for channel in (0, 1):
        counts, _ = np.histogram(table.azimuth[table.channel == channel], bins=100, range=(-180.0, 180.0))
        assert counts.tolist() == [10] * 100


def test_rotation_direction_can_be_reversed() -> None:
    fields = {"elevations": (0.0,), "cycle_interval": 1e-3, "rate_hz": 10.0, "start": 0.0}
    left = SpinningPatternCfg(**fields, clockwise=False).rays().directions[25]
    right = SpinningPatternCfg(**fields).rays().directions[25]
    np.testing.assert_allclose(left, [0.0, 1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(right, [0.0, -1.0, 0.0], atol=1e-6)


def test_a_window_of_azimuths_drops_the_other_rays_but_not_their_time() -> None:
    fields = {"elevations": (0.0,), "cycle_interval": 1e-3, "rate_hz": 10.0}
    full = SpinningPatternCfg(**fields).table()
    part = SpinningPatternCfg(**fields, horizontal_fov=(-45.0, 45.0))
    table = part.table()
    keep = (full.azimuth >= -45.0) & (full.azimuth < 45.0)
    np.testing.assert_array_equal(table.time, full.time[keep])
    assert len(table) == 25 and part.return_shape == (25,) and table.period == 0.1


def test_groups_of_lasers_fire_together() -> None:
    cfg = SpinningPatternCfg(elevations=(0.0,) * 8, cycle_interval=1e-4, firing_interval=1e-5, firing_group=4)
    np.testing.assert_allclose(cfg.table().time[:9], [0, 0, 0, 0, 1e-5, 1e-5, 1e-5, 1e-5, 1e-4], atol=1e-18)


def test_each_turn_continues_from_the_previous_one() -> None:
    two = SpinningPatternCfg.vlp16().replace(revolutions=2).table()
    assert two.period == pytest.approx(0.2)
    np.testing.assert_allclose(np.diff(azimuth(two, 0)), -0.1990656, atol=1e-9)


def test_carla_geometry_follows_its_formulas() -> None:
    cfg = lidar_pattern(
        channels=4,
        upper_fov=10.0,
        lower_fov=-20.0,
        points_per_second=4000.0,
        rotation_frequency=10.0,
        horizontal_fov=90.0,
    )
    table = cfg.table()
    assert cfg.return_shape == (100, 4)
    np.testing.assert_allclose(table.elevation[:4], [10.0, 0.0, -10.0, -20.0])
    step = 10.0 * 90.0 * 0.1 / 100  # rotation_frequency * fov * dt / points, dt = 0.1
    carla = np.mod(0.0 + np.arange(100) * step, 90.0) - 45.0  # clockwise positive
    np.testing.assert_allclose(table.azimuth[table.channel == 2], -carla, atol=1e-9)
    assert lidar_pattern(channels=1).table().elevation[0] == 10.0


# Risley ---------------------------------------------------------------------------------------------------------------


def off_axis(table: sn.patterns.ScanTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the angle from x and the direction around x, rad."""
    d = table.directions()
    return np.arctan2(np.hypot(d[:, 1], d[:, 2]), d[:, 0]), np.arctan2(d[:, 2], d[:, 1])


def test_equal_prisms_draw_the_rose_r_2d_cos() -> None:
    cfg = RisleyPatternCfg.mid40(period=0.1)
    table = cfg.table()
    r, around = off_axis(table)
    w1, w2 = (2.0 * math.pi * rate for rate in cfg.rates_hz)
    d = math.radians(0.51 * cfg.wedges[0])
    law = 2.0 * d * np.cos(0.5 * (w1 - w2) * table.time)
    np.testing.assert_allclose(r, np.abs(law), atol=1e-9)
    turn = np.exp(1j * (around - 0.5 * (w1 + w2) * table.time))
    far = r > 1e-3
    np.testing.assert_allclose(turn[far], np.sign(law)[far], atol=1e-6)


@pytest.mark.parametrize("exact", [False, True])
def test_the_field_of_view_of_a_mid40_is_a_circle_of_38_degrees(exact: bool) -> None:
    table = RisleyPatternCfg.mid40(period=0.5, exact=exact).table()
    assert len(table) == 50_000
    assert 2.0 * math.degrees(off_axis(table)[0].max()) == pytest.approx(38.4, abs=0.02)


def test_one_exact_prism_bends_by_snells_law() -> None:
    """A plane entry and an exit tilted by w: deviation asin(n sin w) - w, towards the angle of the prism."""
    cfg = RisleyPatternCfg(
        wedges=(18.0, 0.0), rates_hz=(10.0, 0.0), points_per_second=1e4, period=0.1, exact=True, refractive_index=1.51
    )
    table = cfg.table()
    r, around = off_axis(table)
    w = math.radians(18.0)
    np.testing.assert_allclose(r, math.asin(1.51 * math.sin(w)) - w, atol=1e-12)
    np.testing.assert_allclose(np.exp(1j * around), np.exp(2j * math.pi * 10.0 * table.time), atol=1e-9)


def test_exact_and_paraxial_differ_by_the_third_power_of_the_wedge() -> None:
    errors = []
    for wedge in (1.0, 2.0, 4.0):
        fields = {"wedges": (wedge, wedge), "rates_hz": (13.0, -7.0), "points_per_second": 2e3, "period": 0.5}
        paraxial, exact = (RisleyPatternCfg(**fields, exact=e).table().directions() for e in (False, True))
        errors.append(np.linalg.norm(paraxial - exact, axis=1).max())
    np.testing.assert_allclose(np.array(errors[1:]) / errors[:-1], 8.0, rtol=0.05)


def test_an_avia_has_six_beams_that_fire_together_and_fills_its_field_of_view() -> None:
    table = RisleyPatternCfg.avia(period=0.5).table()
    assert np.bincount(table.channel).tolist() == [20_000] * 6
    assert (table.time.reshape(-1, 6) == table.time[::6, None]).all()
    d = table.directions()
    assert math.degrees(np.arctan2(d[:, 1], d[:, 0]).max()) == pytest.approx(0.5 * 70.4, abs=0.1)
    assert table.elevation.max() == pytest.approx(0.5 * 77.2, abs=0.1)
    assert table.elevation.min() == pytest.approx(-0.5 * 77.2, abs=0.1)


@pytest.mark.parametrize(
    ("table", "cells_in_view"),
    [(RisleyPatternCfg.mid40(period=1.0).table(), math.pi * 19.2**2),
     (RotatingMirrorPatternCfg.mid360(period=1.0).table(), 360.0 * 59.0)],
    ids=["mid40", "mid360"],
)  # fmt: skip
def test_coverage_grows_from_frame_to_frame_and_frames_do_not_repeat(table, cells_in_view) -> None:
    """Over 0.1 s to 0.5 s: the share of 1-degree cells hit, and the cells hit by the newest frame only."""
    frames = [cells(table, 0.1 * k) for k in range(1, 6)]
    shares = np.array([len(each) for each in frames]) / cells_in_view
    assert (np.diff(shares) > 0.0).all() or shares[-1] > 0.99
    assert shares[0] < 0.8 < shares[-1]
    later = sn.patterns.ScanTable(
        *(c[table.time >= 0.1] for c in (table.time, table.azimuth, table.elevation)), period=2.0
    )
    fine, fine_later = cells(table, 0.1, 0.2), cells(later, 0.2, 0.2)
    assert len(fine & fine_later) < 0.5 * min(len(fine), len(fine_later))


def test_a_mid360_stays_in_its_band_at_its_rate() -> None:
    table = RotatingMirrorPatternCfg.mid360(period=1.0).table()
    assert len(table) == 200_000
    np.testing.assert_allclose([table.elevation.min(), table.elevation.max()], [-7.0, 52.0], atol=0.1)
    counts, _ = np.histogram(table.elevation, bins=10, range=(-7.0, 52.0))
    np.testing.assert_allclose(counts, 20_000, rtol=0.01)
    counts, _ = np.histogram(table.azimuth, bins=36, range=(-180.0, 180.0))
    np.testing.assert_allclose(counts, 200_000 / 36, rtol=0.002)


# Windows --------------------------------------------------------------------------------------------------------------


def test_consecutive_windows_neither_share_nor_lose_rays() -> None:
    times = np.sort(np.random.default_rng(0).uniform(0.0, 0.25, 500))
    edges = np.cumsum(np.random.default_rng(1).uniform(0.0, 0.4, 30))
    parts = [window(times, 0.25, a, b) for a, b in zip([0.0, *edges[:-1]], edges, strict=True)]
    indices = np.concatenate([i for i, _ in parts])
    fired = np.concatenate([t for _, t in parts])
    count = len(indices)
    np.testing.assert_array_equal(indices, np.arange(count) % 500)
    np.testing.assert_array_equal(fired, np.arange(count) // 500 * 0.25 + times[indices])
    assert fired[-1] < edges[-1] <= (count // 500) * 0.25 + times[count % 500]


def test_a_window_holds_the_rays_from_its_start_to_before_its_stop() -> None:
    indices, fired = window([0.0, 1.0, 2.0], 3.0, 4.0, 7.0)
    assert (indices.tolist(), fired.tolist()) == ([1, 2, 0], [4.0, 5.0, 6.0])
    assert [len(part) for part in window([0.0, 1.0], 2.0, 5.0, 5.0)] == [0, 0]
    with pytest.raises(ValueError, match=r"got 2\.0 to 1\.0 s, expected 0 <= start <= stop"):
        window([0.0], 1.0, 2.0, 1.0)


def test_doubled_scan_rate_casts_the_same_rays() -> None:
    rays = SpinningPatternCfg.vlp16().rays()
    whole, _ = window(rays.times, rays.period, 0.3, 0.4)
    halves = [window(rays.times, rays.period, a, a + 0.05)[0] for a in (0.3, 0.35)]
    np.testing.assert_array_equal(np.concatenate(halves), whole)


# Tables ---------------------------------------------------------------------------------------------------------------


def some_table() -> sn.patterns.ScanTable:
    rng = np.random.default_rng(3)
    return sn.patterns.ScanTable(
        rng.uniform(0.0, 0.1, 300),
        rng.uniform(-180, 180, 300),
        rng.uniform(-90, 90, 300),
        rng.integers(0, 4, 300),
        0.125,
    )


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_table_file_round_trip_is_bit_identical(suffix: str, tmp_path: Path) -> None:
    table = some_table()
    table.to_file(tmp_path / f"scan{suffix}")
    again = sn.patterns.ScanTable.from_file(tmp_path / f"scan{suffix}")
    for name in ("time", "azimuth", "elevation", "channel"):
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
    assert again.period == table.period == 0.125
    rays = sn.patterns.TablePatternCfg(path=tmp_path / f"scan{suffix}").rays()
    np.testing.assert_allclose(rays.directions.numpy(), table.directions(), atol=1e-7)
    assert rays.period == 0.125


def test_rows_are_sorted_stably_by_time() -> None:
    table = sn.patterns.ScanTable([0.2, 0.0, 0.2, 0.1], [1.0, 2.0, 3.0, 4.0], [0.0] * 4)
    assert table.azimuth.tolist() == [2.0, 4.0, 1.0, 3.0]
    assert table.period == pytest.approx(0.3)


def test_manufacturers_column_names_and_units_are_understood(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Time/s,Azimuth/deg,Zenith/deg\n0.0,10.0,90.0\n0.5,-20.0,60.0\n")
    (tmp_path / "b.csv").write_text(
        f"ring,t_us,azimuth[rad],el_rad,x\n2,0,{math.pi / 18},0,7\n3,5e5,{-math.pi / 9},{math.pi / 6},8\n"
    )
    for name in ("a.csv", "b.csv"):
        table = sn.patterns.ScanTable.from_file(tmp_path / name)
        np.testing.assert_allclose(
            [table.time, table.azimuth, table.elevation], [[0, 0.5], [10, -20], [0, 30]], atol=1e-12
        )
    assert table.channel.tolist() == [2, 3]


@pytest.mark.parametrize("keep", [0, 1, 40, 200, 500])
def test_damaged_file_raises_config_error_with_its_name(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "scan.npz"
    sn.patterns.ScanTable([0.0, 0.1], [1.0, 2.0], [0.0, 0.0]).to_file(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(sn.ConfigError, match=r"ScanTable\.path: got .*scan\.npz"):
        sn.patterns.ScanTable.from_file(path)


def test_a_rate_stands_for_a_column_of_times(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("azimuth,elevation\n1,0\n2,0\n3,0\n")
    table = sn.patterns.TablePatternCfg(path=str(tmp_path / "a.csv"), points_per_second=10.0).table()
    np.testing.assert_allclose(table.time, [0.0, 0.1, 0.2])
    assert table.period == pytest.approx(0.3)
    given = sn.patterns.TablePatternCfg(azimuth=[1, 2, 3], elevation=[0, 0, 0], points_per_second=10.0).table()
    np.testing.assert_array_equal(given.time, table.time)


def test_rewritten_file_is_reread(tmp_path: Path) -> None:
    path = tmp_path / "scan.npz"
    some_table().to_file(path)
    cfg = sn.patterns.TablePatternCfg(path=path)
    assert len(cfg.rays()) == 300
    sn.patterns.ScanTable([0.0, 1.0], [0.0, 1.0], [0.0, 0.0]).to_file(path)
    assert len(cfg.rays()) == 2


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(([0.0, math.nan], [0, 0], [0, 0]), r"ScanTable\.time\[1\]: got nan, expected a finite number"),
     (([0.0, 1.0], [0, 0], [0, 91.0]), r"elevation\[1\]: got 91\.0, expected from -90 to 90, deg\. .*zenith angle"),
     (([-1.0, 1.0], [0, 0], [0, 0]), r"time\[0\]: got -1\.0, expected a time >= 0"),
     (([0.0, 1.0], [0, 0], [0]), "elevation: got 1, expected as many rows as times, 2"),
     (([], [], []), "time: got .*, expected one number per ray"),
     (([0.0, 1.0], [0, 0], [0, 0], [0, 1.5]), r"channel\[1\]: got 1\.5, expected a whole number"),
     (([0.0, 1.0], [0, 0], [0, 0], None, 1.0), r"period: got 1\.0, expected a time after that of the last ray, 1 s"),
     (([1.0, 1.0], [0, 0], [0, 0]), "period: got None, expected a period, s"),
     ((["x"], [0], [0]), "time: got .*, expected numbers, one per ray")],
)  # fmt: skip
def test_bad_columns_are_refused_by_row(columns, expected: str) -> None:
    with pytest.raises(sn.ConfigError, match=expected):
        sn.patterns.ScanTable(*columns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, "expected a file that exists"), ("time,azimuth\n0,1\n", "elevation missing"), ("", "a table"),
     ("time,azimuth,elevation\n0,1\n", "a table: rows of 3 numbers"),
     ("time,azimuth,elevation\n0,x,1\n", "a table: could not convert"),
     ("time,azimuth,elevation\n0,1,nan\n", r"elevation\[0\]: got nan")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_bad_files_are_refused_at_config_construction(text: str | None, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "scan.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(sn.ConfigError, match=expected):
        sn.patterns.TablePatternCfg(path=path)


def test_a_table_pattern_needs_a_file_or_columns_and_not_both(tmp_path: Path) -> None:
    with pytest.raises(sn.ConfigError, match=r"TablePatternCfg\.time: got None, expected a column\. Give path"):
        sn.patterns.TablePatternCfg()
    with pytest.raises(sn.ConfigError, match="expected either path or columns"):
        sn.patterns.TablePatternCfg(path="a.csv", time=[0.0])
    with pytest.raises(sn.ConfigError, match=r"a name that ends in \.csv or \.npz"):
        some_table().to_file(tmp_path / "scan.txt")


SPIN = {"elevations": (0.0, 1.0), "cycle_interval": 1e-3}
RISLEY = {"wedges": (10.0, 10.0), "rates_hz": (10.0, -7.0), "points_per_second": 1e4}
MIRROR = {"elevation_range": (-7.0, 52.0), "points_per_second": 1e4}


@pytest.mark.parametrize(
    ("cls", "base", "fields", "expected"),
    [(SpinningPatternCfg, SPIN, {"elevations": ()}, "elevations: got .*, expected the elevation of at least one"),
     (SpinningPatternCfg, SPIN, {"elevations": (91.0,)}, "elevations: got .*, expected elevations from -90 to 90"),
     (SpinningPatternCfg, SPIN, {"cycle_interval": 0.0}, r"cycle_interval: got 0\.0, expected a number greater"),
     (SpinningPatternCfg, SPIN, {"cycle_interval": math.nan}, "cycle_interval: got nan, expected finite numbers"),
     (SpinningPatternCfg, SPIN, {"rate_hz": -1.0}, r"rate_hz: got -1\.0"),
     (SpinningPatternCfg, SPIN, {"firing_interval": -1.0}, r"firing_interval: got -1\.0"),
     (SpinningPatternCfg, SPIN, {"firing_interval": 2e-3}, r"firing_interval: got 0\.002, .*a cycle of 0\.001"),
     (SpinningPatternCfg, SPIN, {"firing_group": 0}, "firing_group: got 0"),
     (SpinningPatternCfg, SPIN, {"azimuth_offsets": (1.0,)}, "azimuth_offsets: got 1, expected one azimuth for"),
     (SpinningPatternCfg, SPIN, {"horizontal_fov": (-200.0, 200.0)}, "horizontal_fov: .*at most 360 degrees"),
     (SpinningPatternCfg, SPIN, {"horizontal_fov": (10.0, -10.0)}, "horizontal_fov: .*Swap low and high"),
     (SpinningPatternCfg, SPIN, {"horizontal_fov": (5.0, 5.0)}, "horizontal_fov: .*not empty"),
     (SpinningPatternCfg, SPIN, {"revolutions": 0}, "revolutions: got 0"),
     (SpinningPatternCfg, SPIN, {"cycle_interval": 1e-12}, "cycle_interval: .*at most 100000000 rays"),
     (RisleyPatternCfg, RISLEY, {"wedges": (0.0, 0.0)}, "wedges: .*not both 0"),
     (RisleyPatternCfg, RISLEY, {"refractive_index": 1.0}, "refractive_index: .*greater than 1"),
     (RisleyPatternCfg, RISLEY, {"beams": ()}, "beams: .*at least one beam"),
     (RisleyPatternCfg, RISLEY, {"points_per_second": 0.0}, r"points_per_second: got 0\.0"),
     (RisleyPatternCfg, RISLEY, {"period": 1e6}, r"period: got 1000000\.0, expected between 1 and"),
     (RisleyPatternCfg, RISLEY, {"wedges": (44.0, 44.0), "refractive_index": 2.5}, "wedges: .*below 90 degrees"),
     (RisleyPatternCfg, RISLEY, {"wedges": (40.0, 40.0), "exact": True}, "wedges: .*total reflection"),
     (RotatingMirrorPatternCfg, MIRROR, {"elevation_range": (5.0, -5.0)}, "elevation_range: .*Swap low and high"),
     (RotatingMirrorPatternCfg, MIRROR, {"stroke_hz": 0.0}, r"stroke_hz: got 0\.0"),
     (RotatingMirrorPatternCfg, MIRROR, {"period": 1e6}, "period: .*between 1 and")],
)  # fmt: skip
def test_bad_scanners_are_refused_by_field(cls, base, fields, expected: str) -> None:
    with pytest.raises(sn.ConfigError, match=rf"{cls.__name__}\.{expected}"):
        cls(**{**base, **fields})
