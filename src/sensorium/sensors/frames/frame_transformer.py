"""Frame transformer: poses of body-fixed frames relative to another frame.

Axes: ``[env, target, ...]`` (``[env, mount, target, ...]`` for a plural source); ``_w`` world, ``_source`` the source
frame. Quaternions are (w, x, y, z) with w >= 0.

With p, q the pose of a body in the world and o, r a frame's offset on it, the frame is at p + R(q) o with the
orientation q r. For the source s and a target t, the transform T_s^-1 T_t of the target in the source frame is

    target_pos_source = R(q_s)^T (p_t - p_s)        target_quat_source = q_s^-1 q_t
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
import warp as wp
from pydantic import field_validator
from torch import Tensor

from sensorium.cfg import Cfg, OffsetCfg, bad, must, name_in
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.engines.base import FrameOnBody
from sensorium.errors import ConfigError, Fault, SelectionError, listed, shown
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg, Selector
from sensorium.sensors.core.base import SimpleSensor
from sensorium.spec import BODY_POSE, Field, Requirement
from sensorium.world.mount import Mounts, MountView, flag_state, is_finite3, is_finite4
from sensorium.world.select import find_names, resolve_frames


@dataclass(frozen=True, slots=True)
class FrameTransformerData:
    """Poses of the target frames and of the source frame, offsets included; unselected fields are None."""

    target_frame_names: list[str]
    """Names of the target frames, in the order of the target axis."""
    target_pos_source: Annotated[
        Tensor, Field("m", (1, 3), ("target", "xyz"), frame="sensor", role="point", parity="polar")
    ]
    """Positions of the targets in the source frame `[env, target, 3]`, m."""
    target_quat_source: Annotated[
        Tensor, Field("1", (1, 4), ("target", "wxyz"), frame="sensor", kind="rotation", role="pose")
    ]
    """Orientations of the targets in the source frame `[env, target, 4]`, unit quaternions (w, x, y, z), w >= 0."""
    target_pos_w: Annotated[Tensor, Field("m", (1, 3), ("target", "xyz"), frame="world", role="point", parity="polar")]
    """Positions of the targets in the world `[env, target, 3]`, m."""
    target_quat_w: Annotated[
        Tensor, Field("1", (1, 4), ("target", "wxyz"), frame="world", kind="rotation", role="pose")
    ]
    """Orientations of the targets in the world `[env, target, 4]`, unit quaternions (w, x, y, z), w >= 0."""
    source_pos_w: Annotated[Tensor, Field("m", (3,), frame="world", role="point", parity="polar")]
    """Position of the source frame in the world `[env, 3]`, m."""
    source_quat_w: Annotated[Tensor, Field("1", (4,), frame="world", kind="rotation", role="pose")]
    """Orientation of the source frame in the world `[env, 4]`, unit quaternion (w, x, y, z), w >= 0."""


FIELDS = ("target_pos_source", "target_quat_source", "target_pos_w", "target_quat_w", "source_pos_w", "source_quat_w")
TARGET_SELECTORS = ("prim_path", "body", "site", "geom", "camera", "joint", "link_name")


class FrameTransformerCfg(MountedSensorCfg[FrameTransformerData]):
    """Configuration of a frame transformer. Its mount is the source frame.

    A plural selector for the source gives a mount axis, ``[env, mount, target, ...]``: every target relative to every
    source. World poses of the targets are then the same for each source.

    Raises:
        ConfigError: no selector or several, two frames with the same name, ...
    """

    class FrameCfg(Cfg):
        """Target frames: one or more model elements, with a fixed offset on each. Give exactly one selector."""

        prim_path: str | None = None
        """Path, or pattern of paths, of prims: ``{ENV_REGEX_NS}/Robot/.*`` selects every body of `Robot`."""
        body: Selector = None
        """Name or full-match pattern of bodies; ``"world"`` means the world."""
        site: Selector = None
        """Name or pattern of sites."""
        geom: Selector = None
        """Name or pattern of geoms."""
        camera: Selector = None
        """Name or pattern of cameras."""
        joint: Selector = None
        """Name or pattern of joints: the joint anchor, in the axes of the joint's body."""
        link_name: Selector = None
        """Name or pattern of bodies, by their URDF term."""
        name: Annotated[str | None, must(bool, "a name, or None", "Give None to use the name of the element.")] = None
        """Name of the frame; None uses the last part of the element's name, or the full name if the last part is not
        unique."""
        offset: OffsetCfg = OffsetCfg()
        """Pose of the frame relative to the element's frame."""

        def __init__(self, /, **data: Any) -> None:
            given = [name for name in TARGET_SELECTORS if data.get(name) is not None]
            faults = []
            if len(given) != 1:
                got = ", ".join(f"{name}={data[name]!r}" for name in given) or "no selector"
                fix = "Keep one of them." if given else 'For the world, write body="world".'
                faults.append(Fault("frame", got, f"one of {', '.join(TARGET_SELECTORS)}", fix))
            _init(super().__init__, data, faults, f"FrameTransformerCfg.FrameCfg{name_in(data)}")

        @property
        def selector(self) -> tuple[str, Any]:
            """The given selector: its field name and value."""
            return next((name, getattr(self, name)) for name in TARGET_SELECTORS if getattr(self, name) is not None)

    target_frames: tuple[FrameCfg, ...]
    """Target frames, in this order; the matches of one pattern are in the order of the model."""
    fields: tuple[str, ...] | Literal["all"] = "all"
    """Computed fields; omitted fields are None and cost nothing."""
    leaf_names: bool = False
    """Whether frames without a name have the last part of the element's name even if it is not unique."""
    selectable: ClassVar[tuple[str, ...]] = FIELDS

    @classmethod
    def example(cls) -> Self:
        """Return a config for `sensorium.testing.tumbling_engine`."""
        targets = (cls.FrameCfg(site="site"), cls.FrameCfg(body="world", offset=OffsetCfg(pos=(0.0, 0.0, 1.0))))
        return cls(body="body", offset=OffsetCfg(pos=(0.1, 0.2, 0.3)), target_frames=targets)

    @field_validator("target_frames", mode="before")
    @classmethod
    def _frames(cls, value: Any) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise bad(
                "a list of at least one FrameCfg", 'Write target_frames=[FrameTransformerCfg.FrameCfg(body="...")].'
            )
        return value

    @field_validator("target_frames")
    @classmethod
    def _distinct(cls, value: tuple[FrameCfg, ...]) -> tuple[FrameCfg, ...]:
        names = [frame.name for frame in value if frame.name is not None]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise bad(
                f"frames with distinct names, not {names.count(twice[0])} named {twice[0]!r}", "Rename all but one."
            )
        return value


def _init(init: Any, data: dict[str, Any], faults: list[Fault], title: str) -> None:
    """Run the base's `__init__`, and raise its faults together with the given ones."""
    try:
        init(**data)
    except ConfigError as error:
        raise ConfigError(title, [*faults, *error.faults]) from None
    if faults:
        raise ConfigError(title, faults)


class _Target(NamedTuple):
    """One target frame."""

    name: str
    frame: FrameOnBody
    offset: OffsetCfg


@wp.func
def _body_pose(mounts: wp.array[Mounts], env: int, mount: int):  # type: ignore[no-untyped-def]  # Warp infers it
    """Return position and orientation of the body that carries a frame."""
    pos = wp.vec3()
    quat = wp.vec4(1.0, 0.0, 0.0, 0.0)
    body = mounts[0].body[mount]
    if body >= 0:
        pos = mounts[0].body_pos[env, body]
        quat = mounts[0].body_quat[env, body]
    return pos, quat


@wp.func
def _upper(q: wp.vec4) -> wp.vec4:
    """Return the one with w >= 0 of the two quaternions of a rotation."""
    if q[0] < 0.0:
        return -q
    return q


@wp.struct
class FramesTask:
    """Data of one sensor for the kernel."""

    sources: wp.array[Mounts]
    targets: wp.array[Mounts]
    # Output; a first axis of length 0 marks an unselected field
    target_pos_source: wp.array3d[wp.vec3]
    target_quat_source: wp.array3d[wp.vec4]
    target_pos_w: wp.array3d[wp.vec3]
    target_quat_w: wp.array3d[wp.vec4]
    source_pos_w: wp.array2d[wp.vec3]
    source_quat_w: wp.array2d[wp.vec4]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _frames(rows: Rows, tasks: wp.array[FramesTask]) -> None:
    k, env, mount, target = masked_tid(rows)
    t = tasks[k]
    if mount >= t.sources[0].body.shape[0] or target >= t.targets[0].body.shape[0]:
        return
    p_s, turn_s = _body_pose(t.sources, env, mount)
    d_s = quat_rotate(turn_s, t.sources[0].offset_pos[env, mount])
    q_s = quat_multiply(turn_s, t.sources[0].offset_quat[env, mount])
    if target == 0:  # one thread writes the mount's outputs
        if t.source_pos_w.shape[0] > 0:
            t.source_pos_w[env, mount] = p_s + d_s
        if t.source_quat_w.shape[0] > 0:
            t.source_quat_w[env, mount] = _upper(q_s)
        is_good = is_finite3(p_s) and is_finite4(turn_s)
        for other in range(t.targets[0].body.shape[0]):
            p, q = _body_pose(t.targets, env, other)
            is_good = is_good and is_finite3(p) and is_finite4(q)
        flag_state(t.bad, t.any_bad, env, mount, is_good)
    p_t, turn_t = _body_pose(t.targets, env, target)
    d_t = quat_rotate(turn_t, t.targets[0].offset_pos[env, target])
    q_t = quat_multiply(turn_t, t.targets[0].offset_quat[env, target])
    if t.target_pos_source.shape[0] > 0:
        # origins of the bodies first: far from the world's origin, adding them to offsets would round off last digits
        t.target_pos_source[env, mount, target] = quat_rotate_inverse(q_s, (p_t - p_s) + (d_t - d_s))
    if t.target_quat_source.shape[0] > 0:
        back = wp.vec4(q_s[0], -q_s[1], -q_s[2], -q_s[3])
        t.target_quat_source[env, mount, target] = _upper(quat_multiply(back, q_t))
    if t.target_pos_w.shape[0] > 0:
        t.target_pos_w[env, mount, target] = p_t + d_t
    if t.target_quat_w.shape[0] > 0:
        t.target_quat_w[env, mount, target] = _upper(q_t)


class FrameTransformer(SimpleSensor[FrameTransformerCfg, FrameTransformerData]):
    """Poses of target frames in the world and in a source frame.

    A plural source selector is allowed and gives a mount axis before the target axis.

    Raises:
        SelectionError: a selector matches nothing or an element without a frame, or two frames have the same name.
    """

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE,)
    checks_state: ClassVar[bool] = True

    @cached_property
    def _targets(self) -> list[_Target]:
        """The target frames in the order of the target axis."""
        title = self.cfg.title
        # given name, field, element, frame, offset
        found: list[tuple[str | None, str, str, FrameOnBody, OffsetCfg]] = []
        for number, cfg in enumerate(self.cfg.target_frames):
            selector, value = cfg.selector
            field = f"target_frames.{number}.{selector}"
            elements, frames = resolve_frames(selector, value, self.engine, config=title, field=field)
            if cfg.name is not None and len(elements) > 1:
                fix = f"It matches {listed(elements)}. Set name to None, or select one element."
                raise SelectionError(title, [Fault(field, shown(value), f"one element for the name {cfg.name!r}", fix)])
            for element, frame in zip(elements, frames, strict=True):
                found.append((cfg.name, field, element, frame, cfg.offset))
        short = [given or element.split("/")[-1] for given, _, element, _, _ in found]
        full = [given or (element if short.count(leaf) > 1 and not self.cfg.leaf_names else leaf)
                for leaf, (given, _, element, _, _) in zip(short, found, strict=True)]  # fmt: skip
        pairs = zip(full, found, strict=True)
        keys = [(name, element if self.cfg.leaf_names else "") for name, (_, _, element, *_) in pairs]
        for name, key, (_, field, *_) in zip(full, keys, found, strict=True):
            if keys.count(key) > 1:
                fix = "Give all but one of them a distinct name: FrameCfg(name=...)."
                expected = f"frames with distinct names, not {full.count(name)} named {name!r}"
                raise SelectionError(title, [Fault(field, repr(name), expected, fix)])
        return [_Target(name, *rest[3:]) for name, rest in zip(full, found, strict=True)]

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, for the number of targets found."""
        count = len(self._targets)
        return {name: replace(each, shape=(count, *each.shape[1:])) if name.startswith("target_") else each
                for name, each in super().fields().items()}  # fmt: skip

    def setup(self) -> None:
        """Create the view of the target frames."""
        targets, self.target_frame_names = self._targets, self.body_names
        frames, shape = [target.frame for target in targets], (self.num_envs, len(targets))
        offsets = [target.offset for target in targets]
        flags = lambda: torch.zeros(shape, dtype=torch.uint8, device=self.device)  # noqa: E731 - flags of the kernel
        self.targets = MountView(
            self.engine, self.compute_on, self.clock, self.target_frame_names, frames, offsets, flags
        )
        """View of the target frames, as `mount` is the view of the source."""
        pairs = zip(self.targets.names, self.targets.body_names, strict=True)
        self.notes["targets"] = ", ".join(f"{name} on {body}" for name, body in pairs)
        self.buffers.body_at_fault = self._body_at_fault

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute every selected field of all targets in one launch, shared by all sensors of this kind and rate."""
        t = FramesTask()
        t.sources, t.targets = self.mount.warp_state(), self.targets.warp_state()
        for name in self.cfg.selected:
            setattr(t, name, getattr(raw.warp, name))
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_frames, (self.mount.count, self.targets.count), t)

    def _body_at_fault(self, env: int, mount: int) -> str:
        """Return the name of the first body among source and targets whose pose is not finite."""
        pos, quat = self.engine.array("body_pos_w")[env], self.engine.array("body_quat_w")[env]
        ill = ~(pos.isfinite().all(dim=-1) & quat.isfinite().all(dim=-1)).cpu()
        rows = [int(self.mount.body[mount]), *self.targets.body.tolist()]
        names = [self.mount.body_names[mount], *self.targets.body_names]
        return next((name for row, name in zip(rows, names, strict=True) if row >= 0 and bool(ill[row])), names[0])

    @property
    def num_bodies(self) -> int:
        """Number of target frames."""
        return len(self._targets)

    @property
    def body_names(self) -> list[str]:
        """Names of the target frames, in the order of the target axis."""
        return [target.name for target in self._targets]

    @property
    def target_names(self) -> list[str]:
        """`body_names`."""
        return self.body_names

    def find_bodies(self, name_keys: str | Sequence[str], preserve_order: bool = False) -> tuple[list[int], list[str]]:
        """Return indices on the target axis, and names, of the matching target frames.

        Args:
            name_keys: a name or full-match pattern, or several.
            preserve_order: return them in the order of `name_keys`, not in that of the target axis.

        Raises:
            SelectionError: a key matches nothing.
        """
        config = self.cfg.title
        return find_names(name_keys, self.body_names, preserve_order, config=config, what="target frame")

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        return super().nbytes + self.targets.nbytes
