"""Bags of rosbag2: an MCAP file with ROS 2 messages, and `metadata.yaml`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path

from sensorium.errors import ModelError
from sensorium.readings import Reading, SceneDescription
from sensorium.record.recorder import open_writer
from sensorium.record.stacks import Stack
from sensorium.record.staging import staged
from sensorium.spec import FieldSpec

BLOCK_BYTES = 500_000
"""Size of the readings that are converted at once, bytes."""
_HEAD = """\
rosbag2_bagfile_information:
  version: 9
  storage_identifier: mcap
  duration:
    nanoseconds: {duration}
  starting_time:
    nanoseconds_since_epoch: {start}
  message_count: {count}
  topics_with_message_count:
"""
_TOPIC = """\
    - topic_metadata:
        name: {name}
        type: {type}
        serialization_format: cdr
        offered_qos_profiles:
{qos}
        type_description_hash: {hash}
      message_count: {count}
"""
_TAIL = """\
  compression_format: ""
  compression_mode: ""
  relative_file_paths:
    - {file}
  files:
    - path: {file}
      starting_time:
        nanoseconds_since_epoch: {start}
      duration:
        nanoseconds: {duration}
      message_count: {count}
  custom_data: ~
  ros_distro: jazzy
"""


def write_rosbag2(
    readings: Iterable[Reading | Stack],
    folder: str | os.PathLike[str],
    description: SceneDescription,
    envs: Sequence[int],
    *,
    start_ns: int = 0,
) -> list[str]:
    """Write readings as standard ROS 2 messages, one per environment and sample.

    Args:
        readings: readings or stacks of readings of any sensors, each sensor's in the order of time.
        folder: the bag; created if missing.
        description: description of the scene, with the sensors of the readings.
        envs: environments to convert.
        start_ns: time at tick 0, ns, e.g. `Trajectory.start_ns`.

    Returns:
        One message for everything that no ROS 2 message holds.

    Raises:
        ModelError: the file could not be written.
        MissingDependencyError: the extra `record` is not installed.
    """
    with staged(folder) as root:
        return _write(readings, root, description, envs, start_ns)


def _write(
    readings: Iterable[Reading | Stack], root: Path, description: SceneDescription, envs: Sequence[int], start_ns: int
) -> list[str]:
    """Write a bag to an empty folder, and return notes."""
    path = root / f"{root.name or 'bag'}_0.mcap"
    writer = open_writer(path)
    try:
        from sensorium.record.ros2_track import Ros2Track

        every = iter(readings)
        first = [*islice(every, 1)]
        track = Ros2Track(writer, description, envs, time=first[0].time if first else 0.0, start_ns=start_ns)
        known = {
            name: tuple(FieldSpec.from_dict(each) for each in about["fields"])
            for name, about in description.sensors.items()
        }
        changed: dict[str, int] = {}
        pending: dict[str, list[Reading]] = {}
        size, newest = 0, 0.0

        def write(frame: int) -> None:
            for several in pending.values():
                track.add(Stack.of(several))
            pending.clear()
            track.write(frame)

        for frame, each in enumerate(chain(first, every)):
            if each.specs != known[each.name]:
                changed[each.name] = changed.get(each.name, 0) + (len(each) if isinstance(each, Stack) else 1)
                continue
            if size >= BLOCK_BYTES and each.time > newest:  # so that each time has one message of the clock
                write(frame)
                size = 0
            if isinstance(each, Stack):
                track.add(each)
                size += each.nbytes
                newest = max(newest, float(each.times[-1]))
            else:
                pending.setdefault(each.name, []).append(each)
                size += sum(array.nbytes for array in (*each.measured.values(), *each.truth.values()))
                newest = max(newest, each.time)
        write(0)
    finally:
        writer.close()
    if writer.error is not None:
        raise ModelError(f"bag {root.name!r}: it could not be written ({writer.error}). Free some space on the disk.")
    summary = writer.summary
    about = {"start": summary.start, "duration": summary.end - summary.start, "file": json.dumps(path.name)}
    text = _HEAD.format(**about, count=sum(summary.counts.values()))
    for number, channel in summary.channels.items():
        qos = channel.metadata["offered_qos_profiles"].rstrip()
        text += _TOPIC.format(
            name=channel.topic, type=summary.schemas[channel.schema_id].name, count=summary.counts.get(number, 0),
            qos="\n".join(f"          {line}" for line in qos.splitlines()), hash=channel.metadata["topic_type_hash"],
        )  # fmt: skip
    (root / "metadata.yaml").write_text(text + _TAIL.format(**about, count=sum(summary.counts.values())))
    notes = [
        f"{name}: {count} readings from before its config changed; the bag has one config per sensor"
        for name, count in changed.items()
    ]
    return notes + [
        f"{name}: no ROS 2 message holds the field{'s' if len(fields) > 1 else ''} {', '.join(fields)}"
        for name, fields in track.unmapped.items()
    ]
