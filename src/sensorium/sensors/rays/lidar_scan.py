"""Scan of a lidar: its window of the pattern, the sub-rays of its beams, and its channel biases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ConfigError
from sensorium.measurement.draws import column_distribution
from sensorium.patterns import Rays
from sensorium.sensors.rays.lidar_cfg import LidarCfg
from sensorium.spec import exact_fraction

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """Window of a pattern that forms a scan.

    Attributes:
        count: number of rays in a scan.
        duration: length of the scan, s.
        moves: whether scans start at different rays of the pattern; otherwise each scan is one whole period.
        oldest: maximum age of a ray at the capture, s.
    """

    count: int
    duration: float
    moves: bool
    oldest: float


def window_of(cfg: LidarCfg, rays: Rays, every: Fraction, dt: Fraction) -> Window:
    """Return the window of a pattern that forms a scan.

    Args:
        cfg: the lidar's config.
        rays: the rays of one period.
        every: time between samples, s.
        dt: physics step, s.

    Raises:
        ConfigError: the pattern does not support the scan.
    """
    if rays.times is None or rays.period is None:
        for name in ("scan_duration", "motion_distortion"):
            if name in cfg.model_fields_set and getattr(cfg, name):
                expected = "no value, since all rays of this pattern fire at once"
                fix = "Use a pattern with times: SpinningPatternCfg, RisleyPatternCfg, TablePatternCfg or others."
                raise ConfigError.single(cfg.title, name, getattr(cfg, name), expected, fix)
        return Window(len(rays), 0.0, False, 0.0)
    duration = float(every) if cfg.scan_duration is None else cfg.scan_duration
    period, times = rays.period, rays.times.numpy()
    turns = every / exact_fraction(period)
    if abs(duration - period) < 1e-9 * period and turns.denominator == 1:
        return Window(len(rays), period, False, period - float(times[0]))
    count = round(len(rays) * duration / period)
    if count < 1:
        fix = f"Give at least {period / len(rays):g} s, the interval between its rays."
        raise ConfigError.single(cfg.title, "scan_duration", duration, "time for at least one ray of the pattern", fix)
    even = np.arange(len(rays)) * (period / len(rays))
    if (times - even).max() > float(dt):
        fix = f"Set scan_duration to {period:g} s, and sample every {period:g} s or a multiple of it."
        expected = "whole periods, since the rays of this pattern do not fire at even intervals"
        raise ConfigError.single(cfg.title, "scan_duration", duration, expected, fix)
    is_even = (turns * len(rays)).denominator == (every / dt).denominator == 1
    late = 0.0 if is_even else 0.5  # the end of a window may be rounded down by this fraction of a ray
    return Window(count, duration, True, (count + late) * period / len(rays) + max(float((even - times).max()), 0.0))


def sub_rays(cfg: LidarCfg, starts: NDArray[Any], directions: NDArray[Any]) -> tuple[Array, Array, Array]:
    """Return starts and directions of the sub-rays, adjacent for each ray, and the weights of the sub-rays."""
    step, turns = 0.5, [(6, 1.0, 0.0)]
    if cfg.sub_rays == 19:
        step, turns = 0.4, [(6, 1.0, 0.0), (6, math.sqrt(3.0), math.pi / 6.0), (6, 2.0, 0.0)]
    offsets = [(0.0, 0.0)]
    for count, radius, phase in turns:
        angles = [phase + 2.0 * math.pi * k / count for k in range(count)]
        offsets += [(step * radius * math.cos(angle), step * radius * math.sin(angle)) for angle in angles]
    grid = np.array(offsets)
    weights = np.exp(-4.0 * math.log(2.0) * (grid**2).sum(axis=1))
    weights /= weights.sum()
    d = np.asarray(directions, np.float64)
    left = np.cross([0.0, 0.0, 1.0], d)
    left[np.linalg.norm(left, axis=1) < 1e-6] = (0.0, 1.0, 0.0)
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    up = np.cross(d, left)
    across, along = (grid[:, k, None] for k in range(2))  # [sub, 1]
    spread = np.tan(np.array(cfg.divergence))
    aside = across * spread[0] * left[:, None] + along * spread[1] * up[:, None]
    shift = cfg.beam_diameter * (across * left[:, None] + along * up[:, None])
    sub_starts = np.asarray(starts, np.float64)[:, None] + shift
    return sub_starts.reshape(-1, 3), (d[:, None] + aside).reshape(-1, 3), weights


def bias_distribution(cfg: LidarCfg, channels: int, device: Any) -> Any:
    """Return the distribution of the errors of channels, m, on a Warp device.

    Raises:
        ConfigError: the number of columns differs from the number of channels.
    """
    amount: Any = cfg.channel_bias
    columns = channels if amount is not None else 0
    given = len(amount) if isinstance(amount, tuple) else getattr(amount, "columns", None)
    if given is not None and given != columns:
        expected = f"one number, or one for each of the {columns} channels"
        raise ConfigError.single(cfg.title, "channel_bias", amount, expected)

    def spread(value: Any) -> Array:
        return np.broadcast_to(np.asarray(value, np.float64), columns)

    return column_distribution(amount or 0.0, columns, spread, device)
