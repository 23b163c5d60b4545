"""Frames in the transforms of ROS 2 bags (``/tf`` and ``/tf_static``): their poses in the root of their tree."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.errors import ConfigError
from sensorium.pose import Pose
from sensorium.record.bag_messages import Unreadable, stamp_of

if TYPE_CHECKING:
    from sensorium.record.bag_files import Connection

TRANSFORMS = "tf2_msgs/msg/TFMessage"


@dataclass(slots=True)
class FrameLink:
    """Transforms of one frame in its parent.

    Attributes:
        parent: its parent.
        is_static: whether only a topic named `tf_static` has them, of which the last one holds at all times.
        connection: connection of the first one.
        first: its time of arrival, ticks, and the transform.
        stamps: time stamps, ns, int64, sorted by `FrameTree.connect`.
        poses: their positions, m, and quaternions wxyz, float64, seven numbers each.
        others: other parents that messages name.
    """

    parent: str
    is_static: bool
    connection: Connection
    first: tuple[int, Any]
    stamps: Any = field(default_factory=lambda: array("q"))
    poses: Any = field(default_factory=lambda: array("d"))
    others: set[str] = field(default_factory=set)


class FrameTree:
    """Tree of frames.

    Attributes:
        links: frame -> its transforms in its parent.
        followers: frame with transforms over time -> the frames that move with it, itself first; of a frame with a
            static transform in a root, itself alone.
        flaws: frame -> reason why it has no poses.
    """

    def __init__(self) -> None:
        self.links: dict[str, FrameLink] = {}
        self.followers: dict[str, list[str]] = {}
        self.flaws: dict[str, str] = {}

    def add(self, transform: Any, connection: Connection, tick: int, *, is_static: bool) -> None:
        """Take one transform of a message."""
        frame, parent = frame_of(transform), transform.header.frame_id.strip("/")
        link = self.links.get(frame)
        if link is None or (link.is_static and not is_static):
            link = self.links[frame] = FrameLink(parent, is_static, connection, (tick, transform))
        elif is_static and not link.is_static:
            return
        if parent != link.parent:
            link.others.add(parent)
        pos, quat = transform.transform.translation, transform.transform.rotation
        link.stamps.append(stamp_of(transform) or 0)
        link.poses.extend((pos.x, pos.y, pos.z, quat.w, quat.x, quat.y, quat.z))

    def connect(self) -> None:
        """Find the frames that move together, after the last transform was added."""
        for link in self.links.values():
            order = np.argsort(link.stamps, kind="stable")
            link.stamps, link.poses = np.array(link.stamps)[order], np.array(link.poses).reshape(-1, 7)[order]
        for frame in self.links:
            try:
                chain = list(self._chain(frame))
            except Unreadable as error:
                self.flaws[frame] = str(error)
                continue
            driver = next((each for each in chain if not self.links[each].is_static), frame)
            followers = self.followers.setdefault(driver, [])
            followers.insert(0 if driver == frame else len(followers), frame)

    def root(self, frame: str) -> str:
        """Return the frame in which poses of a frame are given."""
        *_, last = self._chain(frame)
        return self.links[last].parent

    def placed(self, frame: str, transform: Any) -> Any:
        """Return a transform with the pose of a frame in its root, at the time of a given transform.

        Between two transforms, the position is interpolated linearly and the orientation along the shortest arc. After
        the last one, it holds.

        Raises:
            Unreadable: the first transform of a frame in the chain is later, or a rotation has not the norm 1.
        """
        ns = stamp_of(transform) or 0
        pose = Pose()
        try:
            for each in self._chain(frame):
                pose = self._at(each, ns) @ pose
        except ConfigError as error:
            raise Unreadable(f"a transform is invalid: {error}") from None
        pos = SimpleNamespace(**dict(zip("xyz", pose.pos, strict=True)))
        quat = SimpleNamespace(**dict(zip("wxyz", pose.rot, strict=True)))
        return replace(transform, transform=SimpleNamespace(translation=pos, rotation=quat))

    def _chain(self, frame: str) -> Iterator[str]:
        """Yield a frame and those above it, without the root."""
        seen: list[str] = []
        while (link := self.links.get(frame)) is not None:
            if frame in seen:
                raise Unreadable(f"the frames {', '.join(seen)} form a ring")
            if link.others:
                parents = ", ".join(sorted({link.parent, *link.others}))
                raise Unreadable(f"the frame {frame} has several parents: {parents}")
            yield frame
            seen.append(frame)
            frame = link.parent

    def _at(self, frame: str, ns: int) -> Pose:
        """Return the pose of a frame in its parent at a time, ns."""
        link = self.links[frame]
        after = int(np.searchsorted(link.stamps, ns, "right"))
        if link.is_static or after == len(link.stamps):
            pose = link.poses[-1]
        elif after == 0:
            raise Unreadable(f"the first transform from {link.parent} to {frame} is later")
        else:
            (before, pose), (start, end) = link.poses[after - 1 : after + 1], link.stamps[after - 1 : after + 1]
            share = (ns - start) / (end - start)
            pose = np.concatenate([before[:3] + share * (pose[:3] - before[:3]), _slerp(before[3:], pose[3:], share)])
        return Pose(tuple(pose[:3].tolist()), tuple(pose[3:].tolist()))


def frame_of(transform: Any) -> str:
    """Return the name of the frame that a transform places, without a leading slash."""
    return str(transform.child_frame_id.strip("/"))


def _slerp(start: Any, end: Any, share: float) -> Any:
    """Return the orientation at a share of the shortest arc between two unit quaternions."""
    cos = float(start @ end)
    end = end if cos >= 0.0 else -end
    angle = np.arccos(min(abs(cos), 1.0))
    if angle < 1e-7:  # sin(angle) is rounded
        return start
    return (np.sin((1.0 - share) * angle) * start + np.sin(share * angle) * end) / np.sin(angle)
