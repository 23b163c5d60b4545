"""The commands `export` and `calib`. Their docstrings are shown by `--help`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from sensorium.cli.arguments import unset
from sensorium.cli.checks import recorded_env
from sensorium.cli.messages import progress, stdout
from sensorium.errors import ArgumentError, UnknownNameError, UsageError, listed

if TYPE_CHECKING:
    from sensorium.readings import SceneDescription
    from sensorium.record import Replay

Format = Literal["csv", "npz", "parquet", "euroc", "tum", "kitti", "lerobot", "rosbag2"]
HOLDS = {
    "euroc": "measured values of IMUs and cameras, and the true poses, velocities and biases of one sensor",
    "tum": "the true poses of sensors",
    "kitti": "the measured scans of one lidar with its poses, images of 8 bits, and true values of GNSS and IMU",
}
"""Format -> its content; tables hold all values, and rosbag2 all values for which a message exists."""
TABLES = ("csv", "npz", "parquet")
LOGGED = (*TABLES, "lerobot")
"""Formats that hold logged values and marks."""
UNDATED = ("kitti", "lerobot")
"""Formats whose times count from the start of the recording; tables have it in description.json."""


@dataclass
class Export:
    """Convert a recording to files of other tools. The end of the output lists all data that the format cannot hold.

    csv, npz, parquet: DIR/SENSOR.measured.FORMAT and DIR/SENSOR.truth.FORMAT. A row is one capture in one environment:
    env, tick, time, then the fields. Columns are named FIELD.AXIS, e.g. lin_acc_b.x; npz holds one array per field.
    Measured rows also have the sensor's own time stamp, the time of arrival, and the pose. Events have one row each, in
    SENSOR.BRANCH.events.FORMAT; controls and logged values are in log.NAME.measured.FORMAT. DIR/description.json has
    units, frames, configs, marks, and the date of time 0 (start_ns) of a trajectory or a bag.

    euroc: DIR/mav0 with IMUs and cameras, and the true poses of the first IMU, or of the first sensor that has poses;
    with its velocities and biases if the recording has states (sensorium run --states).
    tum: DIR/SENSOR.tum, the true poses of each sensor that has poses.
    kitti: DIR/sequences/00 and DIR/poses/00.txt, the scans and poses of the first lidar, with images of cameras, the
    firing times of points (point_times), and the true values of the first GNSS receiver and IMU (oxts).
    lerobot: a data set of LeRobot, layout v3.0: a frame per logged action, with measured values as observation.state
    and observation.images.SENSOR; the logs action and reward; episodes and tasks from the marks. --feature, --fps and
    --video are for this format.
    rosbag2: a bag with standard ROS 2 messages, for ros2 bag play DIR.

    For example:
      sensorium export run.mcap --to out/tables --format csv
      sensorium export run.mcap --to out/imu --format parquet --sensor imu --start 2 --end 4
      sensorium export run.mcap --to out/euroc --format euroc --env 3
      sensorium export run.mcap --to out/bag --format rosbag2 --env 0
      sensorium export robot_bag --to out/set --format lerobot --fps 30 --video --feature state=joint_states
        --feature action=joint_commands --feature tactile=skin:5
    """

    file: Annotated[Positional[Path], arg(metavar="FILE.mcap")]
    """Recording, written by sensorium run --record or scene.record, or a ROS 2 bag: an MCAP or .db3 file, or a folder
    (pip install 'sensorium[bags]')."""
    to: Annotated[Path, arg(metavar="DIR")]
    """Folder for the files; created if missing, existing files are replaced."""
    format: Format
    """Format of the files. parquet and lerobot need: pip install 'sensorium[parquet]'."""
    sensor: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = ()
    """Only this sensor; may be repeated. By default all."""
    env: Annotated[int | None, unset("K", "all; euroc, tum, kitti: the first")] = None
    """Only this environment."""
    start: Annotated[float | None, unset("S", "the first sample")] = None
    """Simulation time to start at, s."""
    end: Annotated[float | None, unset("S", "the last sample")] = None
    """Simulation time to end at, s."""
    feature: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=SENSOR,...[:COUNT]")] = ()
    """Vector observation.NAME, or action, of the values of sensors, or of fields as SENSOR.FIELD; with COUNT, of their
    newest COUNT captures, oldest first. May be repeated. By default state of all sensors."""
    fps: Annotated[float | None, unset("HZ", "one frame per action, or per sample of the slowest sensor")] = None
    """Frames per second."""
    video: bool = False
    """Write images as H.264 in MP4 files instead of PNG (pip install 'sensorium[lerobot]')."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.record.staging import staged

        for option, given in (("--feature", self.feature), ("--fps", self.fps), ("--video", self.video)):
            if given and self.format != "lerobot":
                raise UsageError.of(option, given, "--format lerobot", "Other formats do not have this option.")
        with _opened(self.file, self.env, self.sensor) as replay:
            with UsageError.writing("--to", self.to), staged(self.to, source=self.file) as root:
                with self._following(replay) as follow:
                    notes = self._export(replay, root, follow)
            _report(self.to, self.format, (*notes, *self._left_out(replay)))
        return 0

    def _export(self, replay: Replay, root: Path, follow: Callable[..., Iterator[Any]]) -> list[str]:
        """Write the files, and return messages about everything that the format cannot hold."""
        from sensorium.record import export

        env = int(replay.env_ids[0]) if self.env is None else self.env
        if self.format == "euroc":
            body = _first_imu(replay, self.sensor)
            return export.write_euroc(
                follow(self.sensor),
                root,
                description=replay.description,
                body=body,
                env=env,
                start_ns=replay.start_ns,
            )
        if self.format == "kitti":
            return export.write_kitti(follow(self.sensor), root, env=env)
        if self.format == "tum":
            return self._export_tum(replay, root, follow, env)
        if self.format == "rosbag2":
            about = _selected(replay, self.sensor)
            envs = replay.env_ids.tolist() if self.env is None else [self.env]
            return export.write_rosbag2(follow(self.sensor), root, about, envs, start_ns=replay.start_ns)
        dt = replay.description.dt
        if self.format == "lerobot":
            return self._export_lerobot(replay, root, follow)
        is_bag = replay.description.engine == "rosbag2"  # whose messages may have equal time stamps
        notes = export.write_tables(follow(self.sensor), root, self.format, dt=dt, env=self.env, keep_all=is_bag)
        span = -inf if self.start is None else self.start, inf if self.end is None else self.end
        for name in () if self.sensor else replay.logs:
            values = (replace(each, name=f"log.{name}") for each in replay.log(name, *span))
            notes += export.write_tables(values, root, self.format, dt=dt, env=self.env, keep_all=True)
        marks = [
            {"time": mark.time, "tick": mark.tick, "env_ids": mark.env_ids.tolist(), "name": mark.name,
             "value": mark.value}
            for mark in replay.marks
        ]  # fmt: skip
        scene = _selected(replay, self.sensor).to_dict()
        start = {"start_ns": replay.start_ns}
        text = json.dumps({**scene, **start, "versions": replay.versions, "marks": marks}, indent=1)
        (root / "description.json").write_text(f"{text}\n", encoding="utf-8")
        return notes

    def _export_tum(self, replay: Replay, root: Path, follow: Callable[..., Iterator[Any]], env: int) -> list[str]:
        """Write one file per sensor that has poses.

        Raises:
            ArgumentError: no sensor has poses.
        """
        from sensorium.readings import STATES
        from sensorium.record.archive import stem_of
        from sensorium.record.export import write_tum

        failures: dict[str, ArgumentError] = {}
        sensors = replay.description.sensors
        names = self.sensor or tuple(name for name in sensors if sensors[name]["kind"] != STATES)
        for name in names:
            path = root / f"{stem_of(name)}.tum"
            try:
                write_tum(follow((name,)), path, sensor=name, env=env, start_ns=replay.start_ns)
            except ArgumentError as error:
                path.unlink()
                failures[name] = error
        if len(failures) == len(names):
            raise ArgumentError(f"{self.file}: no sensor has poses in this time span, expected at least one.")
        return [f"{name}: it has no poses" for name in failures]

    def _export_lerobot(self, replay: Replay, root: Path, follow: Callable[..., Iterator[Any]]) -> list[str]:
        """Write a frame per logged action, without actions per sample of the slowest sensor."""
        from sensorium.record.export import write_lerobot
        from sensorium.record.export.lerobot import ACTIONS, Vector, period_of

        about, is_bag = replay.description, replay.description.engine == "rosbag2"
        given = self.sensor or tuple(name for name in about.sensors if name not in self._unasked(replay))
        names = [name for name in given if replay.counts[name]]
        rates = {name: rate for name in names if (rate := about.sensors[name]["rate_hz"])}
        slowest = min(rates, key=lambda name: rates[name], default="")
        period = 1.0 / (rates[slowest] * about.dt) if slowest else 1.0
        for action in (name for name in ACTIONS if name in replay.logs):
            period = period_of([reading.tick for reading in replay.log(action)], about.dt) or period
        if self.fps is not None:
            if not 0.0 < self.fps * about.dt <= 1.0:
                raise UsageError.of("--fps", self.fps, f"a number above 0, and at most {1.0 / about.dt:g}")
            period = 1.0 / (self.fps * about.dt)
        named = {
            name: labels
            for name, each in {**about.sensors, **replay.log_descriptions}.items()
            for constant, labels in each.get("constants", {}).items() if constant in ("joint_names", "actuator_names")
        }  # fmt: skip
        return write_lerobot(
            (reading for reading in follow(given) if not is_bag or reading.valid[0]),
            root, dt=about.dt, period=max(period, 1.0), sensors=names,
            logs={name: replay.log(name) for name in replay.logs}, marks=replay.marks,
            first_tick=round(replay.start / about.dt), env=self.env,
            clock=slowest if is_bag and self.fps is None else "",  # messages of devices have no fixed period
            features=dict(map(Vector.parse, self.feature)), names=named, video=self.video,
        )  # fmt: skip

    def _unasked(self, replay: Replay) -> list[str]:
        """Return the sensors with true states, or with poses of frames, of which a robot has many, if not requested."""
        from sensorium.readings import STATES

        return [
            name for name, each in replay.description.sensors.items()
            if each["kind"] in ("tf_message", STATES) and not self.sensor
            and not any(name in text for text in self.feature)
        ]  # fmt: skip

    def _left_out(self, replay: Replay) -> list[str]:
        """Return one message for each part of the recording that the format does not hold."""
        found = []
        if self.format in HOLDS:
            env = int(replay.env_ids[0]) if self.env is None else self.env
            if others := [each for each in replay.env_ids.tolist() if each != env]:
                found.append(f"environments {listed(map(str, others), 8)}; choose one with --env")
            for name, about in replay.description.sensors.items():
                if len(about.get("mounts", ())) > 1 and name in (self.sensor or (name,)):
                    found.append(f"{name}: mounts after the first, {about['mounts'][0]}")
            found.append(f"values other than {HOLDS[self.format]}")
        if replay.start_ns and self.format in UNDATED:
            found.append(f"the date: times count from {replay.start_ns} ns; --format tum, euroc and rosbag2 add it")
        if self.format == "lerobot":
            found.append("the ground truth, and the times at which values arrived")
            if unasked := self._unasked(replay):
                found.append(
                    f"true states and poses of frames: {listed(unasked, 8)}; add some with --sensor or --feature"
                )
        if self.format not in LOGGED:
            parts = [*replay.logs, *(["marks"] if replay.marks else [])]
            if parts:
                found.append(f"{', '.join(parts)}; --format csv, npz and parquet hold them")
        if replay.attachment("world.npz") is not None:
            found.append("shapes of the world, and the rig file; they are attached to the recording")
        found += [f"{topic}: {why}" for topic, why in replay.unread.items()]
        return found

    @contextlib.contextmanager
    def _following(self, replay: Replay) -> Iterator[Callable[..., Iterator[Any]]]:
        """Yield a function that returns the readings of sensors (none: all), and shows how far they are written.

        For `rosbag2` they are stacks of readings where possible.
        """
        start = replay.start if self.start is None else self.start
        end = replay.end if self.end is None else self.end
        passes = len(self.sensor or replay.description.sensors) if self.format == "tum" else 1
        span, done, is_empty = max(end - start, 0.0), 0, True
        with progress("exporting", passes * span) as show_progress:
            many = self.format == "rosbag2" and replay.description.engine != "rosbag2"
            repeats = self.format in HOLDS and replay.description.engine == "rosbag2"
            stamps: dict[str, set[int]] = {}
            read: Callable[..., Iterator[Any]] = replay.stacks if many else replay.readings

            def follow(names: tuple[str, ...]) -> Iterator[Any]:
                nonlocal done, is_empty
                for reading in read(names or None, start, end):
                    is_empty = False
                    show_progress(done * span + reading.time - start)
                    if repeats and reading.valid[0]:
                        known, stamp = stamps.setdefault(reading.name, set()), int(reading.capture_tick[0])
                        if stamp in known:
                            replay.unread[reading.name] = "messages with the time stamp of the message before"
                            continue
                        known.add(stamp)
                    yield reading
                done += 1

            yield follow
            if is_empty and (self.start, self.end) != (None, None):
                raise ArgumentError(f"{self.file}: no reading is in this time span, expected at least one.")


@dataclass
class Calib:
    """Write the calibration of recorded cameras and IMUs, and the poses of all sensors relative to each other.

    DIR/camchain.yaml and DIR/imu0.yaml: cameras and noise of IMUs in the format of Kalibr. DIR/camera_info/NAME.yaml:
    intrinsics of each camera in the format of ROS. DIR/extrinsics.yaml: poses of all sensor frames. The end of the
    output lists conversions, and all data that the formats cannot hold.

    For example:
      sensorium calib run.mcap --to out/calib
    """

    file: Annotated[Positional[Path], arg(metavar="FILE.mcap")]
    """Recording, written by sensorium run --record or scene.record."""
    to: Annotated[Path, arg(metavar="DIR")]
    """Folder for the files; created if missing, existing files are replaced."""
    env: Annotated[int | None, unset("K", "the first")] = None
    """Environment whose intrinsics and poses are written."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.record.export import write_calibration
        from sensorium.record.staging import staged

        with _opened(self.file, self.env) as replay:
            env = int(replay.env_ids[0]) if self.env is None else self.env
            with UsageError.writing("--to", self.to), staged(self.to, source=self.file) as root:
                notes = write_calibration(replay.readings(), root, replay.description, env=env)
            _report(self.to, "calibration", notes, "note")
        return 0


@contextlib.contextmanager
def _opened(file: Path, env: int | None, sensors: tuple[str, ...] = ()) -> Iterator[Replay]:
    """Yield a recording after a check of the options.

    Raises:
        UsageError: the environment was not recorded.
        UnknownNameError: a sensor was not recorded.
    """
    check_recording(file)
    import sensorium

    with sensorium.replay(file) as replay:
        if env is not None:
            recorded_env(env, replay.env_ids.tolist())
        for name in sensors:
            if name not in replay.description.sensors:
                raise UnknownNameError("recorded sensor", name, replay.description.sensors)
        yield replay


def _report(to: Path, what: str, notes: Iterable[str], word: str = "not exported") -> None:
    """Print the written files, and notes."""
    console = stdout()
    console.print(f"wrote {to} ({what})", markup=False, soft_wrap=True)
    for text in notes:
        console.print(f"{word}: {text}", markup=False, soft_wrap=True)


def check_recording(file: Path) -> None:
    """Raise `UsageError` for an npz recording, which replay does not open."""
    if file.suffix.lower() == ".npz":
        fix = "An npz file opens in NumPy as it is; record with sensorium run --record FILE.mcap to convert later."
        raise UsageError.of("FILE.mcap", str(file), "an MCAP recording", fix)


def _first_imu(replay: Replay, names: tuple[str, ...]) -> str | None:
    """Return the first IMU with poses, whose frame is the body frame of EuRoC's data sets; None without one."""
    roles = {"angular_velocity", "specific_force"}
    imus = [
        name for name in names or replay.description.sensors
        if roles <= {each["role"] for each in replay.description.sensors[name]["fields"] if each["frame"] == "sensor"}
    ]  # fmt: skip
    newest = replay.at(replay.end, imus)
    return next((name for name in imus if name in newest and newest[name].pose is not None), None)


def _selected(replay: Replay, names: tuple[str, ...]) -> SceneDescription:
    """Return the description with some sensors; with all if none is named."""
    sensors = replay.description.sensors
    return replace(replay.description, sensors={name: sensors[name] for name in names or sensors})
