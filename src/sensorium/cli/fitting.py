"""The commands `fit` and `compare`. Their docstrings are shown by `--help`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from sensorium.cli.arguments import unset
from sensorium.cli.messages import busy, note, progress, stdout
from sensorium.cli.reports import print_table
from sensorium.errors import ModelError, UsageError

if TYPE_CHECKING:
    from sensorium.engines.trajectory.trajectory import Trajectory
    from sensorium.fitting import Fit as Found
    from sensorium.fitting import Samples


@dataclass
class Fit:
    """Fit noise, bias, quantisation and timing to the log of a sensor at rest, and write them as a preset.

    Logs are recordings, ROS 2 and ROS 1 bags, ULog files, CSV tables with a header, npz files with one array per field
    and time, folders of EuRoC sensors, and LeRobot data sets, of which the longest episode is used. Each parameter has
    a 95 % interval. Motion is refused; --static keeps the longest span at rest. With --reference, delay, bias, scale
    and misalignment are fitted too, from a log of the same motion by the same clock: a recording with true values, or
    a file of poses (TUM, EuRoC, CSV) in a world with z up. The noise is then that of the longest span at rest. With
    --poses, bias, scale and misalignment of an accelerometer are fitted to rests in at least 12 poses; 9 give bias and
    scale. --rest takes the noise from another log. A rig loads the preset as preset = "imu.toml".

    For example:
      sensorium fit log.mcap --sensor imu --to imu.toml
      sensorium fit imu.csv --units ang_vel_b=deg/s --units lin_acc_b=g --to imu.toml --html imu.html
      sensorium fit walk.bag --static
      sensorium fit poses.csv --poses --gravity 9.8106 --to imu.toml
      sensorium fit walk.bag --sensor imu --reference walk.bag:/mocap/imu --rest night.bag --to imu.toml
    """

    file: Annotated[Positional[Path], arg(metavar="LOG")]
    """Log of a sensor at rest, or in motion with --reference."""
    sensor: Annotated[str, unset("NAME", "the only one")] = ""
    """Sensor or topic, or a part of the names of its columns."""
    kind: str = "imu"
    """Kind of the sensor config: imu, magnetometer, barometer, force_torque or lidar."""
    units: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=UNIT")] = ()
    """Unit of ang_vel_b, lin_acc_b, mag_b, pressure, force, torque, or of the time of a table, where the log does not
    state it; may be repeated."""
    static: bool = False
    """Use only the longest span in which the sensor is at rest."""
    reference: Annotated[str, unset("LOG[:SENSOR]", "none")] = ""
    """Log of the same motion, with the sensor or topic after a colon where it has several, or a file of poses."""
    poses: bool = False
    """Fit an accelerometer to its rests in at least 12 poses; 9 give bias and scale."""
    rest: Annotated[str, unset("LOG[:SENSOR]", "none")] = ""
    """Log of the same sensor at rest that gives the noise, with --reference or --poses."""
    gravity: float = 9.80665
    """Gravity at the place of the log, m/s^2, for --poses and for a reference with poses."""
    start: Annotated[float | None, unset("S", "the first sample")] = None
    """Time to start at, s."""
    end: Annotated[float | None, unset("S", "the last sample")] = None
    """Time to end at, s."""
    to: Annotated[Path | None, unset("FILE.toml", "none")] = None
    """Preset to write; an existing file is replaced."""
    html: Annotated[Path | None, unset("FILE.html", "none")] = None
    """Page to write, with the fits drawn over the data; an existing file is replaced."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        for option, path, suffix in (("--to", self.to, ".toml"), ("--html", self.html, ".html")):
            if path is not None and path.suffix.lower() != suffix:
                raise UsageError.of(option, str(path), f"a file ending in {suffix}")
        from sensorium.fitting import fit, fit_poses
        from sensorium.fitting.full_scale import add_full_scale
        from sensorium.fitting.rest import at_rest

        samples = _samples(self.file, self.kind, self.sensor, self.units)
        whole = samples.between(-inf if self.start is None else self.start, inf if self.end is None else self.end)
        if not len(whole):
            span = f"a part of {samples.time[0]:.4g} to {samples.time[-1]:.4g} s"
            raise UsageError.of("--start, --end", f"{self.start}, {self.end}", span)
        samples = whole
        if bool(self.reference) + self.static + self.poses > 1:
            raise UsageError.of("--reference, --static, --poses", "several", "one of them")
        if self.rest and not (self.reference or self.poses):
            raise UsageError.of("--rest", self.rest, "--reference or --poses beside it")
        reference = (_poses(self.reference) or self._other(self.reference, truth=True)) if self.reference else None
        rest = self._other(self.rest, truth=False) if self.rest else None
        with progress("fitting", 1.0) as show:
            if self.static:
                samples = at_rest(samples)
                note(f"at rest from {samples.time[0]:.4g} to {samples.time[-1]:.4g} s")
            if self.poses:
                found = fit_poses(samples, gravity=self.gravity)
            else:
                found = fit(samples, self.kind, reference=reference, gravity=self.gravity, progress=show)
            if self.static:
                add_full_scale(found, whole)
            if rest is not None:
                found = found.merged_with(fit(rest, self.kind))
        print_table(found.table())
        for names, reason in found.missing():
            note(f"not found: {names}: {reason}")
        for option, path in (("--to", self.to), ("--html", self.html)):
            if path is not None:
                with UsageError.writing(option, path, "file"):
                    path.write_text(found.to_toml() if option == "--to" else found.to_html(), encoding="utf-8")
                stdout().print(f"wrote {path}", markup=False, soft_wrap=True)
        return 0

    def _other(self, given: str, truth: bool) -> Samples:
        """Return the samples of another log, given as LOG or LOG:SENSOR."""
        log, sensor = given, ""
        if not Path(log).exists() and ":" in log:
            log, _, sensor = log.rpartition(":")
        return _samples(Path(log), self.kind, sensor, self.units, truth)


@dataclass
class Compare:
    """Compare the parameters of a real sensor with those of its simulation, each found in a log at rest.

    The verdict of a parameter is "same" if its two values differ by no more than their 95 % intervals allow, as 95 % of
    the parameters of a twin do. A larger difference is "unclear" if chance explains it in so many parameters, and
    "different" otherwise. The exit code is 1 if a parameter is different.

    For example:
      sensorium compare real.mcap simulated.mcap --kind imu
      sensorium compare imu.toml simulated.mcap
    """

    real: Annotated[Positional[Path], arg(metavar="REAL")]
    """Log of the real sensor at rest, or the preset that sensorium fit wrote, with any of its options."""
    sim: Annotated[Positional[Path], arg(metavar="SIM")]
    """Log of the simulated sensor at rest, or a preset of sensorium fit."""
    sensor: Annotated[str, unset("NAME", "the only one")] = ""
    """Sensor or topic of the real log, and of the simulated one unless --sim-sensor is given."""
    sim_sensor: Annotated[str, unset("NAME", "as --sensor")] = ""
    """Sensor or topic of the simulated log."""
    kind: str = "imu"
    """Kind of the sensor config: imu, magnetometer, barometer, force_torque or lidar."""
    units: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=UNIT")] = ()
    """Unit of a field in the real log, where it does not state one; may be repeated."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.fitting import compare

        real = _fitted(self.real, self.kind, self.sensor, self.units)
        sim = _fitted(self.sim, self.kind, self.sim_sensor or self.sensor, ())
        table = compare(real, sim)
        print_table(table)
        return int(any(row[-1] == "different" for row in table.rows))


def _fitted(path: Path, kind: str, sensor: str, units: Sequence[str]) -> Found:
    """Return the fit of a log, or the one that a preset contains."""
    from sensorium.fitting import Fit, Parameter, fit
    from sensorium.presets.info import read_preset

    if path.suffix.lower() != ".toml":
        samples = _samples(path, kind, sensor, units)
        with busy("fitting"):
            return fit(samples, kind)
    preset = read_preset(path)
    found = {name: Parameter(**each) for name, each in preset.parameters.items() if "low" in each}
    if not found:
        raise ModelError(f"preset file {str(path)!r} has no intervals. Give one that sensorium fit wrote.")
    return Fit(preset.kind, preset.source, found, {}, preset.fields)


def _poses(given: str) -> Trajectory | None:
    """Return the trajectory in a text file, None for logs of other formats and tables of a sensor."""
    from sensorium.engines.trajectory.files import SUFFIXES
    from sensorium.engines.trajectory.trajectory import Trajectory

    path = Path(given)
    if path.suffix.lower() not in SUFFIXES:
        return None
    try:
        return Trajectory.from_file(path)
    except ModelError:
        if path.suffix.lower() != ".csv":
            raise
        return None


def _samples(path: Path, kind: str, sensor: str, units: Sequence[str], truth: bool = False) -> Samples:
    from sensorium.fitting.logs import read_samples

    given: Mapping[str, str] = dict(each.partition("=")[::2] for each in units)
    if "" in given.values():
        raise UsageError.of("--units", " ".join(units), "FIELD=UNIT, such as ang_vel_b=deg/s")
    with busy("reading"):
        return read_samples(path, kind, sensor, given, truth=truth)
