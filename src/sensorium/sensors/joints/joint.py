"""Joint position, velocity and effort, with a model of the encoder that measures them.

Axes: ``[env, joint]`` (no joint axis for a singular selector). Hinges in rad, rad/s and N m, slides in m, m/s and N.

An encoder reads the angle of its shaft. With q the joint's position and N the gear between joint and encoder:

    o = min(max(o, q - b), q + b)                                        lost motion: the play operator, width 2 b
    m = o + (A1 sin(N o + p1) + A2 sin(2 N o + p2)) / N                  eccentric and tilted code disc
    position = LSB * round((m + noise + bias) / LSB)                     counts, LSB = 2 pi / (counts N)

The play operator is that of hysteresis theory (Brokate & Sprekels, Hysteresis and Phase Transitions, 1996). A drive
that has no tachometer derives the velocity from the counts, see `JointSensorCfg.velocity_mode`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import COLUMN_KNOBS, Float, bad
from sensorium.compute import Rows, episode_words, is_first, kernel, recorded, tick_captured
from sensorium.errors import ConfigError, listed, nearest
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.stages.hysteresis import play
from sensorium.random import word_to_uniform
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.core.prefixed import JointSensorKnobs
from sensorium.sensors.inertial.imu import NO_SAMPLE_BEFORE
from sensorium.spec import JOINT_EFFORT, JOINT_STATE, Field, Requirement
from sensorium.world.joints import JointsCfg, PerJoint, ScalarJoints, resolve_joints
from sensorium.world.select import Named

TURN = 2.0 * math.pi
_TURN = wp.constant(TURN)


@dataclass(frozen=True, slots=True)
class JointSensorData:
    """One sample of joints; fields that the config does not name are None."""

    position: Annotated[Tensor, Field("rad")]
    """Position `[env, joint]`, rad (slide: m)."""
    velocity: Annotated[Tensor, Field("rad/s")]
    """Velocity `[env, joint]`, rad/s (slide: m/s)."""
    effort: Annotated[Tensor, Field("N m")]
    """What the actuators exert at the joint, through their gears `[env, joint]`, N m (slide: N)."""
    joint_names: tuple[str, ...]
    """Full names of the joints, in the order of the joint axis."""


FIELDS = ("position", "velocity", "effort")


class JointSensorCfg(JointsCfg[JointSensorData], JointSensorKnobs):
    """Configuration of joint sensors. Knobs: per field (``noise={"position": 1e-3}``) or by prefix (`position_noise`).

    At slides their units are m, m/s and N.
    Every number per joint is one for all or a tuple in joint order.
    """

    fields: tuple[str, ...] | Literal["all"] = ("position", "velocity")
    """What is computed: any of position, velocity and effort; effort needs an engine that gives JOINT_EFFORT."""

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {
        "position": ("position", "rad"),
        "velocity": ("velocity", "rad/s"),
        "effort": ("effort", "N m"),
    }

    counts_per_turn: PerJoint | None = None
    """Counts of the encoder per turn of its shaft (quadrature: four times its lines), instead of `position_resolution`:
    LSB = 2 pi / (counts gear)."""
    bits: int | None = None
    """The same as ``counts_per_turn = 2**bits``."""
    gear: PerJoint | None = None
    """Turns of the encoder per turn of the joint, for an encoder on the motor's side (slide: rad per m, and needed
    there for everything that turns). None is 1."""
    eccentricity: tuple[Float, Float] | None = None
    """Amplitudes (A1, A2), rad at the encoder's shaft, of the errors once and twice per turn of it."""
    eccentricity_phase: tuple[Float, Float] | None = None
    """Their phases (p1, p2), rad; None draws them per env and joint at reset."""
    backlash: PerJoint | None = None
    """Width 2 b of the lost motion between joint and encoder, rad at the joint (slide: m)."""
    velocity_mode: Literal["direct", "difference", "period"] = "direct"
    """Where the measured velocity comes from; the true one is always the engine's.

    ``direct``: the engine's velocity, with the knobs of velocity. ``difference``: difference of the measured position
    over the time that passed, in quanta of LSB / period; the first sample after a reset is 0 and not valid.
    ``period``: counts over the time between the last edges (1/T method), resolved within a sample as by a fast timer;
    without an edge it is at most LSB over the time since the last one. It is 0 until two edges were seen."""

    @field_validator("fields")
    @classmethod
    def _known(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        for name in () if isinstance(value, str) else value:
            if name not in FIELDS:
                raise bad(f"fields among {', '.join(FIELDS)}", nearest(name, FIELDS).strip())
        if not value:
            raise bad("at least one field")
        return value

    @field_validator("counts_per_turn", "bits", "eccentricity", "backlash")
    @classmethod
    def _of_the_encoder(cls, value: Any, info: ValidationInfo) -> Any:
        selected = info.data.get("fields", FIELDS)
        if value is not None and selected != "all" and "position" not in selected:
            raise bad("the position among `fields`", "An encoder measures the position.")
        return value

    @field_validator("counts_per_turn", "bits")
    @classmethod
    def _counts(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None:
            return None
        if info.field_name == "bits":
            if not 1 <= value <= 30:
                raise bad("1 to 30 bits")
            if info.data.get("counts_per_turn") is not None:
                raise bad("no bits beside counts_per_turn", "Keep one of the two.")
        elif min(value if isinstance(value, tuple) else (value,)) <= 0.0:
            raise bad("a number of counts above 0, or one per joint")
        if _given("resolution", info.data, "position"):
            raise bad(f"no {info.field_name} beside a resolution of the position", "Keep one of the two.")
        return value

    @field_validator("gear", "backlash")
    @classmethod
    def _positive(cls, value: Any, info: ValidationInfo) -> Any:
        least = min(value if isinstance(value, tuple) else (value,)) if value is not None else 1.0
        if info.field_name == "gear" and least <= 0.0:
            raise bad("a ratio above 0, or one per joint")
        if least < 0.0:
            raise bad("a width >= 0, or one per joint")
        for name in ("counts_per_turn", "gear"):
            other = info.data.get(name)
            if isinstance(value, tuple) and isinstance(other, tuple) and len(value) != len(other):
                raise bad(f"as many numbers as {name}, {len(other)}", "Each has one number per joint.")
        return value

    @field_validator("eccentricity")
    @classmethod
    def _eccentricity(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not (min(value) >= 0.0 and value[0] + 2.0 * value[1] < 1.0):
            raise bad("two amplitudes >= 0 with A1 + 2 A2 < 1 rad", "With more the reading would run backwards.")
        return value

    @field_validator("eccentricity_phase")
    @classmethod
    def _phase(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("eccentricity") is None:
            raise bad("no phases without eccentricity")
        if value is not None and not all(map(math.isfinite, value)):
            raise bad("two finite angles, rad")
        return value

    @field_validator("velocity_mode")
    @classmethod
    def _mode(cls, value: str, info: ValidationInfo) -> str:
        data = info.data
        selected = FIELDS if data.get("fields") == "all" else data.get("fields", FIELDS)
        if value == "direct" or "velocity" not in selected:
            return value
        if "position" not in selected:
            raise bad("'direct', or the position among `fields`", "This velocity follows from the measured position.")
        for knob in COLUMN_KNOBS:
            if _given(knob, data, "velocity"):
                fix = f"This velocity follows from the measured position: write position_{knob}."
                raise bad(f"'direct', or no {knob} of the velocity", fix)
        counts = data.get("counts_per_turn") is not None or data.get("bits") is not None
        if value == "period" and not (counts or _given("resolution", data, "position")):
            raise bad("'difference', or counts_per_turn, bits or a resolution of the position", "1/T counts edges.")
        return value

    @property
    def selected(self) -> tuple[str, ...]:
        """The fields that are computed, in the order of `JointSensorData`."""
        return FIELDS if self.fields == "all" else tuple(name for name in FIELDS if name in self.fields)

    @classmethod
    def knob_prefixes(cls) -> dict[str, str]:
        """Return the prefixes of the fields, and that of `encoder_resolution`."""
        return {**super().knob_prefixes(), "encoder": "position"}

    @property
    def encoder_resolution(self) -> float | tuple[float, ...] | None:
        """The quantum at the joint that `counts_per_turn` or `bits` and `gear` give, rad (slide: m); None without."""
        counts = self.counts_per_turn if self.bits is None else float(2**self.bits)
        if counts is None:
            return None
        rows = [value if isinstance(value, tuple) else (value,) for value in (counts, self.gear or 1.0)]
        length = max(len(row) for row in rows)
        quanta = [TURN / (n * gear) for n, gear in zip(*(row * (length // len(row)) for row in rows), strict=True)]
        return quanta[0] if length == 1 else tuple(quanta)

    @property
    def derives_velocity(self) -> bool:
        """Whether the measured velocity follows from the measured position."""
        return self.velocity_mode != "direct" and "velocity" in self.selected

    @property
    def has_mechanics(self) -> bool:
        """Whether the encoder's shaft does not follow the joint exactly."""
        return self.eccentricity is not None or self.backlash is not None


def _given(knob: str, data: Mapping[str, Any], field: str) -> bool:
    """Whether a knob of a field is given, in any of the ways."""
    value = data.get(knob)
    of_field = isinstance(value, Mapping) and field in value
    selected = data.get("fields")
    alone = value is not None and not isinstance(value, Mapping) and selected == (field,)
    return of_field or alone or data.get(f"{field}_{knob}") is not None


@wp.func
def draw_phases(rows: Rows, env: int, joint: int, key0: wp.uint32, key1: wp.uint32) -> wp.vec2:
    """Return two phases in [0, 2 pi) that belong to one joint of one env in one episode."""
    words = episode_words(rows, env, wp.uint32(joint), key0, key1)
    return wp.vec2(word_to_uniform(words[0]) * _TURN, word_to_uniform(words[1]) * _TURN)


@wp.struct
class JointTask:
    """One sensor, for the kernel that reads the engine."""

    columns: wp.array[wp.int32]
    # Engine [env, joint of the model]; length 0 where a field is not selected
    joint_pos: wp.array2d[wp.float32]
    joint_vel: wp.array2d[wp.float32]
    joint_effort: wp.array2d[wp.float32]
    # Truth [env, joint], then the measured branch of what the encoder does not touch (length 0 without mechanics)
    position: wp.array2d[wp.float32]
    velocity: wp.array2d[wp.float32]
    effort: wp.array2d[wp.float32]
    velocity_slot: wp.array2d[wp.float32]
    effort_slot: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _joints(rows: Rows, tasks: wp.array[JointTask]) -> None:
    k, i = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    t = tasks[k]
    flag = wp.uint8(0)
    for joint in range(t.columns.shape[0]):
        column = t.columns[joint]
        total = wp.float32(0.0)
        if t.joint_pos.shape[0] > 0:
            t.position[env, joint] = t.joint_pos[env, column]
            total = total + t.joint_pos[env, column]
        if t.joint_vel.shape[0] > 0:
            t.velocity[env, joint] = t.joint_vel[env, column]
            total = total + t.joint_vel[env, column]
            if t.velocity_slot.shape[0] > 0:
                t.velocity_slot[env, joint] = t.joint_vel[env, column]
        if t.joint_effort.shape[0] > 0:
            t.effort[env, joint] = t.joint_effort[env, column]
            total = total + t.joint_effort[env, column]
            if t.effort_slot.shape[0] > 0:
                t.effort_slot[env, joint] = t.joint_effort[env, column]
        if not wp.isfinite(total):
            flag = wp.uint8(1)
    t.bad[env, 0] = flag
    if flag != wp.uint8(0):
        t.any_bad[0] = 1


@kernel
def _encoder(
    rows: Rows,
    key0: wp.uint32,
    key1: wp.uint32,
    given_phase: int,
    phase: wp.vec2,
    first_order: float,
    second_order: float,
    half_play_in: wp.array[wp.float32],
    gear_in: wp.array[wp.float32],
    pos_in: wp.array2d[wp.float32],
    shaft: wp.array2d[wp.float32],  # what the play lets through [env, joint]; length 0 without backlash
    pos_out: wp.array2d[wp.float32],
) -> None:
    i, joint = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    m = pos_in[env, joint]
    if not wp.isfinite(m):
        pos_out[env, joint] = m  # flagged; the shaft stays where it was
        return
    o = m
    if shaft.shape[0] > 0:
        if not is_first(rows, env):
            o = play(shaft[env, joint], m, half_play_in[joint])
        shaft[env, joint] = o
    if first_order > 0.0 or second_order > 0.0:
        p = phase
        if given_phase == 0:
            p = draw_phases(rows, env, joint, key0, key1)
        angle = gear_in[joint] * o
        error = first_order * wp.sin(angle + p[0])
        if second_order > 0.0:
            error = error + second_order * wp.sin(2.0 * angle + p[1])
        o = o + error / gear_in[joint]
    pos_out[env, joint] = o


READING, TICK, SPEED, INPUT, EDGE, AGE = 0, 1, 2, 3, 4, 5
"""Columns of the counter's state: last reading, its tick (bits of an int32), last velocity; for the period method also
what was quantised to the reading, the position of the last edge, and the time since then (s, -1 before the first)."""


@wp.func
def _share(edge: float, start: float, stop: float) -> float:
    """Return at which share of a straight way from start to stop the edge is crossed, in [0, 1]."""
    way = stop - start
    if way == 0.0:
        return 1.0
    return float(wp.clamp((edge - start) / way, 0.0, 1.0))


@wp.func
def _period_speed(
    start: float, stop: float, before: float, now: float, step: float, interval: float, memory: wp.array[wp.float32]
) -> float:
    """Return counts over the time between edges; `before` and `now` are counts, `start` and `stop` what was counted."""
    moved = now - before
    age = memory[wp.static(AGE)]
    if moved == 0.0:
        if age < 0.0:
            return 0.0
        memory[wp.static(AGE)] = age + interval
        most = step / (age + interval)
        return float(wp.clamp(memory[wp.static(SPEED)], -most, most))
    way = wp.sign(moved)
    edge = (now - 0.5 * way) * step
    share = _share(edge, start, stop)
    speed = wp.float32(0.0)
    if age >= 0.0:
        # at constant speed last edges are never closer than half a sample: less is a glitch
        gap = wp.max(age + share * interval, 0.5 * interval)
        speed = (edge - memory[wp.static(EDGE)]) / gap
    elif wp.abs(moved) > 1.5:
        first = (before + 0.5 * way) * step
        gap = wp.max((share - _share(first, start, stop)) * interval, 0.25 * interval)
        speed = (edge - first) / gap
    memory[wp.static(EDGE)] = edge
    memory[wp.static(AGE)] = (1.0 - share) * interval
    return float(speed)


@kernel
def _velocity(
    rows: Rows,
    dt: float,
    by_period: int,
    # Per env and joint; length 0 where there is none
    step_in: wp.array2d[wp.float32],
    bias_in: wp.array2d[wp.float32],
    walk_in: wp.array2d[wp.float32],
    input_in: wp.array2d[wp.float32],
    reading_in: wp.array2d[wp.float32],
    state: wp.array3d[wp.float32],
    velocity_out: wp.array2d[wp.float32],
    bad_out: wp.array2d[wp.uint8],
) -> None:
    i, joint = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    memory = state[env, joint]
    reading = reading_in[env, joint]
    if not wp.isfinite(reading):
        velocity_out[env, joint] = reading  # flagged; the counter stays as it was
        return
    counted = input_in[env, joint]
    if bias_in.shape[0] > 0:
        counted = counted + bias_in[env, joint]
    if walk_in.shape[0] > 0:
        counted = counted + walk_in[env, joint]
    tick = tick_captured(rows)
    elapsed = tick - wp.cast(memory[wp.static(TICK)], wp.int32)
    velocity = memory[wp.static(SPEED)]
    if is_first(rows, env):
        velocity = wp.float32(0.0)
        if by_period != 0:
            memory[wp.static(AGE)] = wp.float32(-1.0)
        elif joint == 0 and bad_out[env, 0] == wp.uint8(0):
            bad_out[env, 0] = wp.static(wp.uint8(NO_SAMPLE_BEFORE))
    elif elapsed > 0:
        interval = float(elapsed) * dt
        before = memory[wp.static(READING)]
        step = wp.float32(0.0)
        if step_in.shape[0] > 0:
            step = step_in[env, joint]
        if step <= 0.0:
            velocity = (reading - before) / interval
        else:
            k0 = wp.rint(before / step)
            k1 = wp.rint(reading / step)
            if by_period == 0:
                velocity = (k1 - k0) * step / interval
            else:
                velocity = _period_speed(memory[wp.static(INPUT)], counted, k0, k1, step, interval, memory)
    memory[wp.static(READING)] = reading
    if by_period != 0:
        memory[wp.static(INPUT)] = counted
    memory[wp.static(TICK)] = wp.cast(tick, wp.float32)
    memory[wp.static(SPEED)] = velocity
    velocity_out[env, joint] = velocity


class JointSensor(SimpleSensor[JointSensorCfg, JointSensorData]):
    """Position, velocity and effort of one or several hinges and slides, as their encoders report them."""

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: JointSensorCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return only what the selected fields need."""
        if set(cfg.selected) & {"position", "velocity"}:
            yield JOINT_STATE
        if "effort" in cfg.selected:
            yield JOINT_EFFORT

    @cached_property
    def joints(self) -> ScalarJoints:
        """The joints that the config selects."""
        joints = resolve_joints(self.cfg, self.engine)
        turning = [name for name in ("counts_per_turn", "bits", "eccentricity") if getattr(self.cfg, name) is not None]
        if turning and any(joints.slides) and self.cfg.gear is None:
            slides = [name for name, slide in zip(joints.names, joints.slides, strict=True) if slide]
            raise ConfigError.single(
                f"{type(self.cfg).__name__}({self.name!r})", turning[0], getattr(self.cfg, turning[0]),
                f"a gear (rad per m) as well, since {listed(slides)} slide", "Or give position_resolution in m.",
            )  # fmt: skip
        for name in ("counts_per_turn", "gear", "backlash"):
            joints.numbers(self.cfg, name, getattr(self.cfg, name) or 1.0)
        return joints

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Full names of the joints, in the order of the joint axis."""
        return self.joints.names

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the joint axis and the units of these joints."""
        declared = {name: field for name, field in super().fields().items() if name in self.cfg.selected}
        if self.cfg.derives_velocity:
            declared["velocity"] = dataclasses.replace(declared["velocity"], kind="derived")
        return self.joints.fields(declared)

    def _body_at_fault(self, env: int, mount: int) -> str:
        """Return the first joint whose state is not finite."""
        values = torch.stack([self._view2(self.buffers.truth, name)[env] for name in self.cfg.selected])
        joint = int(values.isfinite().all(dim=0).int().argmin())
        return f"of joint {self.joint_names[joint]}"

    def setup(self) -> None:
        """Make the memory of the encoder and of its counter."""
        self._columns = torch.tensor(self.joints.columns, dtype=torch.int32, device=self.device)
        if "velocity" in self.cfg.selected:
            self.notes["velocity"] = self.cfg.velocity_mode
        self.buffers.body_at_fault = self._body_at_fault
        self._nothing = torch.zeros((0, 1), dtype=torch.float32, device=self.device)
        if self.cfg.has_mechanics:
            has_play = self.cfg.backlash is not None
            self._shaft = self.new_state("shaft", (self.joints.count,)) if has_play else self._nothing
        if self.cfg.derives_velocity:
            self._counter = self.new_state(
                "counter", (self.joints.count, 6 if self.cfg.velocity_mode == "period" else 3)
            )
            self._step, self._bias = self._table("resolution"), self._table("bias")

    def _table(self, knob: str) -> Tensor:
        """Return a knob of the position as `[env, joint]` at an address that never moves; without it, length 0."""
        table = self.buffers.knobs.tables.get((knob, "position"))
        if table is None:
            return self._nothing
        table.give_rows()
        return table.values

    def _view2(self, record: Record, name: str) -> Tensor:
        """Return a field as `[env, joint]`, also for a singular selector; length 0 where it is not selected."""
        if name not in record:
            return self._nothing
        return record[name].view(self.num_envs, -1)

    def _read(self, raw: Record, slot: Record | None) -> None:
        """Launch the reading of the engine, which all joint sensors of one rate share."""
        t, names = JointTask(), {"position": "joint_pos", "velocity": "joint_vel", "effort": "joint_effort"}
        t.columns = wp.from_torch(self._columns, dtype=wp.int32)
        for name in self.cfg.selected:
            setattr(t, names[name], wp.from_torch(self.engine.array(names[name])))
            setattr(t, name, wp.from_torch(self._view2(raw, name)))
            if slot is not None and name != "position":
                setattr(t, f"{name}_slot", wp.from_torch(self._view2(slot, name)))
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_joints, (), t)

    @recorded
    @used_if(lambda self: not self.cfg.has_mechanics)
    def update_raw_data(self, raw: Record) -> None:
        """Read the engine in one launch."""
        self._read(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.has_mechanics)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Read the engine, and turn the encoder's shaft."""
        cfg, joints = self.cfg, self.joints
        self._read(raw, slot)
        first, second = cfg.eccentricity or (0.0, 0.0)
        half_play = [0.5 * width for width in joints.numbers(cfg, "backlash", cfg.backlash or 0.0)]
        gear = joints.numbers(cfg, "gear", cfg.gear or 1.0)
        per_joint = [wp.array(row, dtype=wp.float32, device=self.compute_on.wp_device) for row in (half_play, gear)]
        self.compute_on.launch(
            _encoder,
            (joints.count,),
            [
                *(wp.uint32(word) for word in self.stream("eccentricity")),
                int(cfg.eccentricity_phase is not None),
                wp.vec2(*(cfg.eccentricity_phase or (0.0, 0.0))),
                first,
                second,
                *per_joint,
                wp.from_torch(self._view2(raw, "position")),
            ],
            [wp.from_torch(self._shaft), wp.from_torch(self._view2(slot, "position"))],
        )

    @recorded
    @used_if(lambda self: self.cfg.derives_velocity)
    def derive_measured(self, slot: Record) -> None:
        """Derive the measured velocity from the measured position."""
        walk = self.buffers.walks.get("position", self._nothing)
        tables = (self._step, self._bias, walk, self._view2(self.buffers.slot, "position"))
        self.compute_on.launch(
            _velocity,
            (self.joints.count,),
            [
                self.clock.dt,
                int(self.cfg.velocity_mode == "period"),
                *(wp.from_torch(table) for table in tables),
                wp.from_torch(self._view2(slot, "position")),
            ],
            [
                wp.from_torch(self._counter),
                wp.from_torch(self._view2(slot, "velocity")),
                self.buffers.bad_wp,
            ],
        )
