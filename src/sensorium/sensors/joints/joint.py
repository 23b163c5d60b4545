"""Joint position, velocity and effort, with a model of the encoder that measures them.

Axes: ``[env, joint]`` (no joint axis for a singular selector). Hinges in rad, rad/s and N m, slides in m, m/s and N.

An encoder reads the angle of its shaft. With q the joint's position and N the gear ratio between joint and encoder:

    o = min(max(o, q - b), q + b)                                        lost motion: the play operator, width 2 b
    m = o + (A1 sin(N o + p1) + A2 sin(2 N o + p2)) / N                  eccentric and tilted code disc
    position = LSB * round((m + noise + bias) / LSB)                     counts, LSB = 2 pi / (counts N)

The play operator is that of hysteresis theory (Brokate & Sprekels, Hysteresis and Phase Transitions, 1996). A drive
without a tachometer derives the velocity from the counts, see `JointSensorCfg.velocity_mode`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import COLUMN_KNOBS, Float, bad, in_unit, is_finite, must
from sensorium.compute import recorded
from sensorium.errors import ConfigError, listed
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.core.prefixed import JointSensorKnobs
from sensorium.sensors.joints import joint_kernels as kernels
from sensorium.sensors.joints.scalar import JointsCfg, ScalarJointSensor
from sensorium.spec import JOINT_EFFORT, JOINT_STATE, Field, Requirement
from sensorium.world.joints import PerJoint, ScalarJoints, per_joint
from sensorium.world.select import Named


@dataclass(frozen=True, slots=True)
class JointSensorData:
    """One sample of joints; fields that the config does not select are None."""

    position: Annotated[Tensor, Field("rad|m")]
    """Position `[env, joint]`, rad (slide: m)."""
    velocity: Annotated[Tensor, Field("rad/s|m/s")]
    """Velocity `[env, joint]`, rad/s (slide: m/s)."""
    effort: Annotated[Tensor, Field("N m|N")]
    """Effort of the actuators at the joint, through their gears `[env, joint]`, N m (slide: N)."""
    joint_names: tuple[str, ...]
    """Full names of the joints, in the order of the joint axis."""


FIELDS = ("position", "velocity", "effort")


class JointSensorCfg(JointsCfg[JointSensorData], JointSensorKnobs):
    """Configuration of joint sensors. Knobs: per field (``noise={"position": 1e-3}``) or by prefix (`position_noise`).

    At slides the units of the knobs are m, m/s and N.
    A number per joint is one number for all joints or a tuple in joint order.
    """

    fields: tuple[str, ...] | Literal["all"] = ("position", "velocity")
    """Computed fields: any of position, velocity and effort; effort requires an engine with JOINT_EFFORT."""
    selectable: ClassVar[tuple[str, ...]] = FIELDS

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {
        "position": ("position", "rad"),
        "velocity": ("velocity", "rad/s"),
        "effort": ("effort", "N m"),
    }

    counts_per_turn: Annotated[
        PerJoint | None, must(lambda n: min(per_joint(n)) > 0.0, "a number of counts above 0, or one per joint")
    ] = None
    """Counts of the encoder per turn of its shaft (quadrature: four times its lines); an alternative to
    `position_resolution`. LSB = 2 pi / (counts gear)."""
    bits: Annotated[int | None, must(lambda bits: 1 <= bits <= 30, "1 to 30 bits")] = None
    """Resolution of the encoder in bits; the same as ``counts_per_turn = 2**bits``."""
    gear: Annotated[PerJoint | None, must(lambda n: min(per_joint(n)) > 0.0, "a ratio above 0, or one per joint")] = (
        None
    )
    """Turns of the encoder per turn of the joint, for an encoder on the motor side. For slides, rad per m, required by
    all options of the rotating encoder. None means 1."""
    eccentricity: Annotated[
        tuple[Float, Float] | None,
        must(
            lambda pair: min(pair) >= 0.0 and pair[0] + 2.0 * pair[1] < 1.0,
            "two amplitudes >= 0 with A1 + 2 A2 < 1 rad",
            "Give smaller amplitudes, since larger ones would make the reading run backwards.",
        ),
        in_unit("rad"),
    ] = None
    """Amplitudes (A1, A2), rad at the encoder's shaft, of the errors with one and two periods per turn of the shaft."""
    eccentricity_phase: Annotated[
        tuple[Float, Float] | None, must(is_finite, "two finite angles, rad"), in_unit("rad")
    ] = None
    """Phases (p1, p2) of these errors, rad; None draws them per env and joint at reset."""
    backlash: Annotated[
        PerJoint | None, must(lambda b: min(per_joint(b)) >= 0.0, "a width >= 0, or one per joint"), in_unit("rad")
    ] = None
    """Width 2 b of the lost motion between joint and encoder, rad at the joint (slide: m)."""
    velocity_mode: Literal["direct", "difference", "period"] = "direct"
    """Source of the measured velocity; the true velocity is always the engine's.

    ``direct``: the engine's velocity, with the knobs of velocity. ``difference``: difference of the measured position
    over the elapsed time, in quanta of LSB / period; the first sample after a reset is 0 and not valid. ``period``:
    counts over the time between the last edges (1/T method), resolved within a sample as by a fast timer. Without a new
    edge it is at most LSB over the time since the last edge. It is 0 until two edges were seen."""

    @field_validator("counts_per_turn", "bits", "eccentricity", "backlash")
    @classmethod
    def _of_the_encoder(cls, value: Any, info: ValidationInfo) -> Any:
        selected = info.data.get("fields", FIELDS)
        if value is not None and selected != "all" and "position" not in selected:
            raise bad("position in `fields`", "Add position to fields, since an encoder measures the position.")
        return value

    @field_validator("counts_per_turn", "bits")
    @classmethod
    def _counts(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.field_name == "bits" and info.data.get("counts_per_turn") is not None:
            raise bad("either bits or counts_per_turn", "Keep one of the two.")
        if value is not None and _given("resolution", info.data, "position"):
            raise bad(f"either {info.field_name} or a resolution of the position", "Keep one of the two.")
        return value

    @field_validator("gear", "backlash")
    @classmethod
    def _as_many(cls, value: Any, info: ValidationInfo) -> Any:
        for name in ("counts_per_turn", "gear"):
            other = info.data.get(name)
            if isinstance(value, tuple) and isinstance(other, tuple) and len(value) != len(other):
                raise bad(f"as many numbers as {name}, {len(other)}", "Give one number per joint for each.")
        return value

    @field_validator("eccentricity_phase")
    @classmethod
    def _phase(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("eccentricity") is None:
            raise bad("phases only with eccentricity")
        return value

    @field_validator("velocity_mode")
    @classmethod
    def _mode(cls, value: str, info: ValidationInfo) -> str:
        data = info.data
        selected = FIELDS if data.get("fields") == "all" else data.get("fields", FIELDS)
        if value == "direct" or "velocity" not in selected:
            return value
        if "position" not in selected:
            raise bad(
                "'direct', or position in `fields`", "Add position to fields, since this velocity is derived from it."
            )
        for knob in COLUMN_KNOBS:
            if _given(knob, data, "velocity"):
                fix = f"Give position_{knob} instead, since this velocity is derived from the measured position."
                raise bad(f"'direct', or no {knob} of the velocity", fix)
        counts = data.get("counts_per_turn") is not None or data.get("bits") is not None
        if value == "period" and not (counts or _given("resolution", data, "position")):
            raise bad(
                "'difference', or counts_per_turn, bits or a resolution of the position",
                "The 1/T method counts edges of a quantised position.",
            )
        return value

    @classmethod
    def knob_prefixes(cls) -> dict[str, str]:
        """Return the prefixes of the fields, and that of `encoder_resolution`."""
        return {**super().knob_prefixes(), "encoder": "position"}

    @property
    def encoder_resolution(self) -> float | tuple[float, ...] | None:
        """Quantum at the joint from `counts_per_turn` or `bits` and `gear`, rad (slide: m); None without counts."""
        counts = self.counts_per_turn if self.bits is None else float(2**self.bits)
        if counts is None:
            return None
        rows = [per_joint(value) for value in (counts, self.gear or 1.0)]
        length = max(len(row) for row in rows)
        quanta = [
            2.0 * math.pi / (n * gear) for n, gear in zip(*(row * (length // len(row)) for row in rows), strict=True)
        ]
        return quanta[0] if length == 1 else tuple(quanta)

    @property
    def derives_velocity(self) -> bool:
        """Whether the measured velocity is derived from the measured position."""
        return self.velocity_mode != "direct" and "velocity" in self.selected

    @property
    def has_mechanics(self) -> bool:
        """Whether the encoder's shaft deviates from the joint."""
        return self.eccentricity is not None or self.backlash is not None


def _given(knob: str, data: Mapping[str, Any], field: str) -> bool:
    """Return whether a knob of a field is given in any of the possible forms."""
    value = data.get(knob)
    of_field = isinstance(value, Mapping) and field in value
    selected = data.get("fields")
    alone = value is not None and not isinstance(value, Mapping) and selected == (field,)
    return of_field or alone or data.get(f"{field}_{knob}") is not None


class JointSensor(ScalarJointSensor[JointSensorCfg, JointSensorData]):
    """Position, velocity and effort of one or several hinges and slides, as their encoders report them."""

    @classmethod
    def needs(cls, cfg: JointSensorCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the requirements of the selected fields only."""
        if set(cfg.selected) & {"position", "velocity"}:
            yield JOINT_STATE
        if "effort" in cfg.selected:
            yield JOINT_EFFORT

    @cached_property
    def joints(self) -> ScalarJoints:
        """The selected joints."""
        joints = super().joints
        turning = [name for name in ("counts_per_turn", "bits", "eccentricity") if getattr(self.cfg, name) is not None]
        if turning and any(joints.slides) and self.cfg.gear is None:
            slides = [name for name, slide in zip(joints.names, joints.slides, strict=True) if slide]
            raise ConfigError.single(
                self.cfg.title, turning[0], getattr(self.cfg, turning[0]),
                f"a gear (rad per m) as well, since {listed(slides)} slide", "Give gear, or position_resolution in m.",
            )  # fmt: skip
        for name in ("counts_per_turn", "gear", "backlash"):
            joints.numbers(self.cfg, name, getattr(self.cfg, name) or 1.0)
        return joints

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the joint axis and the units of these joints."""
        fields = dict(super().fields())
        if self.cfg.derives_velocity:
            fields["velocity"] = replace(fields["velocity"], kind="derived")
        return fields

    def setup(self) -> None:
        """Allocate the memory of the encoder and its counter."""
        super().setup()
        cfg, count = self.cfg, self.joints.count
        if "velocity" in cfg.selected:
            self.notes["velocity"] = cfg.velocity_mode
        if cfg.backlash is not None:
            self._shaft = self.new_state("shaft", (count,))
        if cfg.derives_velocity:
            self._counter = self.new_state("counter", (count, 6 if cfg.velocity_mode == "period" else 3))
            self._tables = {knob: self._table(knob) for knob in ("resolution", "bias")}

    def _table(self, knob: str) -> Tensor | None:
        """Return a knob of the position as `[env, joint]` at a fixed address; None without the knob."""
        table = self.buffers.knobs.tables.get((knob, "position"))
        if table is None:
            return None
        table.give_rows()
        return table.values

    def _read(self, raw: Record, slot: Record | None) -> None:
        """Launch the kernel that reads the engine, shared by all joint sensors of one rate."""
        t, names = kernels.JointTask(), {"position": "joint_pos", "velocity": "joint_vel", "effort": "joint_effort"}
        t.columns = self._columns
        for name in self.cfg.selected:
            setattr(t, names[name], wp.from_torch(self.engine.array(names[name])))
            setattr(t, name, wp.from_torch(self._rows(raw, name)))
            if slot is not None and name != "position":
                setattr(t, f"{name}_slot", wp.from_torch(self._rows(slot, name)))
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(kernels.read_joints, (), t)

    @recorded
    @used_if(lambda self: not self.cfg.has_mechanics)
    def update_raw_data(self, raw: Record) -> None:
        """Read the engine in one launch."""
        self._read(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.has_mechanics)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Read the engine and compute the angles of the encoder shafts."""
        cfg, t = self.cfg, kernels.EncoderTask()
        self._read(raw, slot)
        t.key0, t.key1 = self.stream("eccentricity")
        t.given_phase = int(cfg.eccentricity_phase is not None)
        t.phase = wp.vec2(*(cfg.eccentricity_phase or (0.0, 0.0)))
        t.first_order, t.second_order = cfg.eccentricity or (0.0, 0.0)
        numbers = self.joints.numbers
        t.half_play = self._per_joint([0.5 * width for width in numbers(cfg, "backlash", cfg.backlash or 0.0)])
        t.gear = self._per_joint(numbers(cfg, "gear", cfg.gear or 1.0))
        t.position, t.position_slot = (wp.from_torch(self._rows(each, "position")) for each in (raw, slot))
        if cfg.backlash is not None:
            t.shaft = wp.from_torch(self._shaft)
        self.compute_on.launch_task(kernels.turn_encoder, (self.joints.count,), t)

    @recorded
    @used_if(lambda self: self.cfg.derives_velocity)
    def derive_measured(self, slot: Record) -> None:
        """Derive the measured velocity from the measured position."""
        t = kernels.VelocityTask()
        t.dt, t.by_period = self.clock.dt, int(self.cfg.velocity_mode == "period")
        for name, table in (*self._tables.items(), ("walk", self.buffers.walks.get("position"))):
            if table is not None:
                setattr(t, name, wp.from_torch(table))
        t.counted = wp.from_torch(self._rows(self.buffers.slot, "position"))
        t.reading, t.velocity = (wp.from_torch(self._rows(slot, name)) for name in ("position", "velocity"))
        t.state, t.bad = wp.from_torch(self._counter), self.buffers.bad_wp
        self.compute_on.launch_task(kernels.derive_velocity, (self.joints.count,), t)
