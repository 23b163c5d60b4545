"""Synthetic sensors and worlds whose true values are known functions of tick and env.

`world(...)` is a scene on a `TensorEngine` whose only body has position `signal(tick, env)` and a yaw of 0.01 * (tick +
env). `advance(scene)` writes that state and reports to the scene that a tick has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import warp as wp
from torch import Tensor

import sensorium as sn
from sensorium import Field, Record, SimpleSensor, SimpleSensorCfg, Timeline
from sensorium.compute import Rows
from sensorium.measurement.stage_cfg import Place
from sensorium.stages import StageCfg

# World ----------------------------------------------------------------------------------------------------------------


def signal(tick: int, envs: int | torch.Tensor) -> Tensor:
    """Return the position of the body, float32 [env, 3]; every value is a binary fraction and therefore exact."""
    env = torch.arange(envs) if isinstance(envs, int) else envs
    base = (tick + 64.0 * env).to(torch.float32)
    return torch.stack([base, 0.25 * base + 1.0, -0.5 * base], dim=-1)


def yaw(tick: int, envs: int) -> Tensor:
    """Return the orientation of the body, float32 [env, 4] wxyz."""
    half = 0.005 * (tick + torch.arange(envs, dtype=torch.float64))
    return torch.stack([half.cos(), 0 * half, 0 * half, half.sin()], dim=-1).to(torch.float32)


def write(scene: sn.Scene, tick: int, envs: Iterable[int] | None = None) -> None:
    """Write the state of a tick into the engine, for some or all envs."""
    rows = slice(None) if envs is None else list(envs)
    scene.engine.body_pos_w[rows, 0] = signal(tick, scene.num_envs)[rows]
    scene.engine.body_quat_w[rows, 0] = yaw(tick, scene.num_envs)[rows]


def world(
    cfgs: Iterable[Any] = (),
    num_envs: int = 4,
    dt: float = 0.01,
    tick: int = 0,
    provides: Sequence[Any] = ("pose", "velocity", "gravity"),
    shapes: Sequence[sn.engines.Shape] | None = None,
    at: Sequence[float] | None = None,
    **kwargs: Any,
) -> sn.Scene:
    """Build a scene at tick 0 whose body has the state of `tick`, or rests at a position."""
    engine = sn.TensorEngine(num_envs, dt, provides=provides, shapes=shapes)
    engine.body_pos_w[:, 0] = signal(tick, num_envs) if at is None else torch.tensor(at)
    engine.body_quat_w[:, 0] = yaw(tick, num_envs)
    return sn.Scene(engine, cfgs, reserve=[sn.engines.BODY_POSE], **kwargs)


def advance(scene: sn.Scene, ticks: int = 1, **kwargs: Any) -> None:
    """Advance the scene tick by tick."""
    for _ in range(ticks):
        write(scene, scene.tick + 1)
        scene.update(**kwargs)


def reset(scene: sn.Scene, envs: Any = None, tick: int = 1000) -> None:
    """Reset envs to the state of another tick."""
    rows = slice(None) if envs is None else envs
    pos, quat = signal(tick, scene.num_envs)[rows], yaw(tick, scene.num_envs)[rows]
    scene.reset(envs, body_pos_w=pos[:, None], body_quat_w=quat[:, None])


def snapshot(sensor: Any) -> dict[str, np.ndarray]:
    """Return all values that a reader of a sensor sees, as NumPy copies."""
    out: dict[str, np.ndarray] = {}
    views = {"data": sensor.data, "truth": sensor.ground_truth}
    if sensor.cfg.history_length:
        views["history"] = sensor.history
        out["history_valid"] = sensor.history_valid.numpy().copy()
    for what, view in views.items():
        for spec in sensor.specs:
            value = view if sensor.single else getattr(view, spec.name)
            out[f"{what}.{spec.name}"] = value.detach().clone().numpy()
    for name in ("valid", "capture_tick", "age", "frame", "is_new"):
        out[name] = getattr(sensor, name).detach().clone().numpy()
    return out


def bits(array: np.ndarray) -> bytes:
    """Return the memory of an array, so that bits can be compared as bytes."""
    return np.ascontiguousarray(array).tobytes()


def same(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray], rows: Any = slice(None), but: str = "") -> None:
    """Assert that two snapshots are bit-identical in some rows, except for fields whose name contains `but`."""
    assert a.keys() == b.keys()
    for name in a:
        if not but or but not in name:
            assert bits(a[name][rows]) == bits(b[name][rows]), f"{name}: {a[name][rows]} != {b[name][rows]}"


# Plain sensors --------------------------------------------------------------------------------------------------------

ALL_FIELDS = ("vec", "speed", "quat", "label", "flag", "byte")


@dataclass(frozen=True, slots=True)
class ProbeData:
    vec: Annotated[Tensor, Field("m", (3,), frame="world", role="point")]
    speed: Annotated[Tensor, Field("m/s")]
    quat: Annotated[Tensor, Field("1", (4,), kind="rotation")]
    label: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    flag: Annotated[Tensor, Field("1", dtype="bool", kind="flag")]
    byte: Annotated[Tensor, Field("1", dtype="uint8", kind="id")]


class ProbeCfg(SimpleSensorCfg[ProbeData]):
    """Reads the body: position, a scalar, the orientation, an integer, a bool and a byte."""

    fields: tuple[str, ...] = ("vec",)
    """Names of the computed fields."""
    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {"speed": ("speed", "m")}


def fill(raw: Record, engine: Any) -> None:
    """Write the true values, from the state of the engine."""
    pos = engine.array("body_pos_w")[:, 0]
    values = {
        "vec": pos,
        "speed": 2.0 * pos[:, 0],
        "quat": engine.array("body_quat_w")[:, 0],
        "label": pos[:, 0].to(torch.int32) - 7,
        "flag": pos[:, 0].to(torch.int64) % 3 == 0,
        "byte": pos[:, 0].to(torch.int64) % 251,
    }
    for name, view in raw.items():
        view.copy_(values[name])


class Probe(SimpleSensor[ProbeCfg, ProbeData]):
    """A sensor with a torch hook."""

    requires = (sn.engines.BODY_POSE,)
    calls = 0

    def fields(self) -> Mapping[str, Field]:
        declared = super().fields()
        return {name: declared[name] for name in ALL_FIELDS if name in self.cfg.fields}

    def update_raw_data(self, raw: Record) -> None:
        type(self).calls += 1
        fill(raw, self.engine)


class KernelProbeCfg(SimpleSensorCfg[ProbeData]):
    """Equivalent to `ProbeCfg` with all fields, computed by a recorded kernel."""


@wp.kernel(enable_backward=False)
def _probe(
    rows: Rows,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    vec_out: wp.array[wp.vec3],
    speed_out: wp.array[wp.float32],
    quat_out: wp.array[wp.vec4],
    label_out: wp.array[wp.int32],
    flag_out: wp.array[wp.bool],
    byte_out: wp.array[wp.uint8],
):
    i, _one = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    p = pos_in[env, 0]
    vec_out[env] = p
    speed_out[env] = 2.0 * p[0]
    quat_out[env] = quat_in[env, 0]
    label_out[env] = int(p[0]) - 7
    flag_out[env] = int(p[0]) % 3 == 0
    byte_out[env] = wp.uint8(int(p[0]) % 251)


class KernelProbe(SimpleSensor[KernelProbeCfg, ProbeData]):
    """A sensor with a recorded Warp kernel."""

    requires = (sn.engines.BODY_POSE,)

    @sn.recorded
    def update_raw_data(self, raw: Record) -> None:
        state = [wp.from_torch(self.engine.array(f"body_{what}_w"), dtype=kind)
                 for what, kind in (("pos", wp.vec3), ("quat", wp.vec4))]  # fmt: skip
        self.compute_on.launch(_probe, (1,), state, [getattr(raw.warp, name) for name in ALL_FIELDS])


# Sensors with hooks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContractData:
    x: Annotated[Tensor, Field("1", (8,))]


class ContractCfg(SimpleSensorCfg[ContractData]):
    """Eight components, one per combination of physics, transform (measured only) and hardware imperfection."""

    alpha: float = 0.0
    """Weight of the previous value in the recurrence of both branches."""


PHYSICS = torch.tensor([(k >> 0) & 1 for k in range(8)], dtype=torch.float32)
ELEMENT = 2.0 * torch.tensor([(k >> 1) & 1 for k in range(8)], dtype=torch.float32)
HARDWARE = 4.0 * torch.tensor([(k >> 2) & 1 for k in range(8)], dtype=torch.float32)


class Contract(SimpleSensor[ContractCfg, ContractData]):
    requires = (sn.engines.BODY_POSE,)
    lookback = 1

    def update_raw_data(self, raw: Record) -> None:
        raw.x.copy_(self.engine.array("body_pos_w")[:, 0, :1].expand(-1, 8))

    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        slot.x += PHYSICS

    def apply_transform(self, data: Record, timeline: Timeline, *, is_measured: bool) -> None:
        if is_measured:
            data.x += ELEMENT
        before = timeline.previous("x", now=data.x)
        data.x.copy_((1.0 - self.cfg.alpha) * data.x + self.cfg.alpha * before)

    def apply_hardware_imperfections(self, slot: Record) -> None:
        self.standard_chain(slot)
        slot.x += HARDWARE


@dataclass(frozen=True, slots=True)
class CastData:
    level: Annotated[Tensor, Field("1", (2,), dtype="uint8", kind="id")]
    on: Annotated[Tensor, Field("1", dtype="bool", kind="flag")]
    count: Annotated[Tensor, Field("1")]


class CastCfg(SimpleSensorCfg[CastData]):
    """Float values inside; a uint8, a bool and a count of the samples so far outside."""


class Cast(SimpleSensor[CastCfg, CastData]):
    requires = (sn.engines.BODY_POSE,)

    def intermediate_fields(self) -> Mapping[str, Field]:
        return {"raw": Field("m", (2,))}

    def update_raw_data(self, raw: Record) -> None:
        raw.raw.copy_(self.engine.array("body_pos_w")[:, 0, :2])

    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Mapping[str, Tensor]:
        level = (data.raw.to(torch.int64) % 256).to(torch.uint8)
        return {"level": level, "on": level[:, 0] % 2 == 0, "count": timeline.at(0).count + 1.0}


@dataclass(frozen=True, slots=True)
class SumData:
    total: Annotated[Tensor, Field("m")]
    offset: Annotated[Tensor, Field("m")]


class SumCfg(SimpleSensorCfg[SumData]):
    """Sums its samples in its state; the reset hook sets a second state."""


class Sum(SimpleSensor[SumCfg, SumData]):
    """Updates its states with torch."""

    requires = (sn.engines.BODY_POSE,)

    def _allocate(self) -> None:
        super()._allocate()
        self._total, self._offset = self.new_state("total"), self.new_state("offset", (2,))

    def reset_state(self, env_mask: Tensor) -> None:
        self._offset[env_mask > 0] = torch.tensor([3.0, 4.0])

    def update_raw_data(self, raw: Record) -> None:
        self._total += self.engine.array("body_pos_w")[:, 0, 0]
        raw.total.copy_(self._total)
        raw.offset.copy_(self._offset.sum(dim=1))


class KernelSumCfg(SimpleSensorCfg[SumData]):
    """Equivalent to `SumCfg`, computed by a recorded kernel."""


@wp.kernel(enable_backward=False)
def _sum(
    rows: Rows,
    pos_in: wp.array2d[wp.vec3],
    total: wp.array[wp.float32],
    offset_in: wp.array2d[wp.float32],
    total_out: wp.array[wp.float32],
    offset_out: wp.array[wp.float32],
):
    i, _one = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    total[env] = total[env] + pos_in[env, 0][0]
    total_out[env] = total[env]
    offset_out[env] = offset_in[env, 0] + offset_in[env, 1]


class KernelSum(SimpleSensor[KernelSumCfg, SumData]):
    requires = (sn.engines.BODY_POSE,)

    def _allocate(self) -> None:
        super()._allocate()
        self._total, self._offset = self.new_state("total"), self.new_state("offset", (2,))

    def reset_state(self, env_mask: Tensor) -> None:
        self._offset[env_mask > 0] = torch.tensor([3.0, 4.0])

    @sn.recorded
    def update_raw_data(self, raw: Record) -> None:
        pos = wp.from_torch(self.engine.array("body_pos_w"), dtype=wp.vec3)
        states = [wp.from_torch(self._total), wp.from_torch(self._offset)]
        self.compute_on.launch(_sum, (1,), [pos, *states], [raw.warp.total, raw.warp.offset])


@dataclass(frozen=True, slots=True)
class EmaData:
    x: Annotated[Tensor, Field("m", (3,))]


class EmaCfg(SimpleSensorCfg[EmaData]):
    """An exponential moving average over `timeline.at(1)`, computed by a recorded kernel on both branches."""


@wp.kernel(enable_backward=False)
def _copy(rows: Rows, pos_in: wp.array2d[wp.vec3], out: wp.array[wp.vec3]):
    i, _one = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0):
        out[env] = pos_in[env, 0]


@wp.kernel(enable_backward=False)
def _ema(rows: Rows, before: wp.array[wp.vec3], now: wp.array[wp.vec3]):
    i, _one = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0):
        now[env] = 0.5 * now[env] + 0.5 * before[env]


class Ema(SimpleSensor[EmaCfg, EmaData]):
    requires = (sn.engines.BODY_POSE,)
    lookback = 1

    @sn.recorded
    def update_raw_data(self, raw: Record) -> None:
        pos = wp.from_torch(self.engine.array("body_pos_w"), dtype=wp.vec3)
        self.compute_on.launch(_copy, (1,), [pos], [raw.warp.x])

    @sn.recorded
    def apply_transform(self, data: Record, timeline: Timeline, *, is_measured: bool) -> None:
        self.compute_on.launch(_ema, (1,), [timeline.at(1).warp.x], [data.warp.x])


class LagCfg(SimpleSensorCfg[EmaData]):
    """A moving average of the phenomenon itself, computed with torch in the physics hook from `timeline.at(1)`."""


class Lag(SimpleSensor[LagCfg, EmaData]):
    requires = (sn.engines.BODY_POSE,)
    lookback = 1

    def update_raw_data(self, raw: Record) -> None:
        raw.x.copy_(self.engine.array("body_pos_w")[:, 0])

    def apply_physics_imperfections(self, slot: Record, timeline: Timeline) -> None:
        slot.x.copy_(0.5 * slot.x + 0.5 * timeline.at(1).x)


@dataclass(frozen=True, slots=True)
class ScalarData:
    value: Annotated[Tensor, Field("m")]


class ScalarCfg(SimpleSensorCfg[ScalarData]):
    """A scalar: the first coordinate of the body."""


class Scalar(SimpleSensor[ScalarCfg, ScalarData]):
    requires = (sn.engines.BODY_POSE,)
    single = True

    def update_raw_data(self, raw: Record) -> None:
        raw.value.copy_(self.engine.array("body_pos_w")[:, 0, 0])


@dataclass(frozen=True, slots=True)
class WideData:
    x: Annotated[Tensor, Field("m", (1,))]


class WideCfg(SimpleSensorCfg[WideData]):
    """Many columns, all equal to the tick."""

    columns: int = 16384
    """How many."""


class Wide(SimpleSensor[WideCfg, WideData]):
    calls = 0

    def fields(self) -> Mapping[str, Field]:
        return {"x": Field("m", (self.cfg.columns,))}

    def update_raw_data(self, raw: Record) -> None:
        type(self).calls += 1
        raw.x.fill_(float(self.clock.tick))


# Stages ---------------------------------------------------------------------------------------------------------------

LOG: list[str] = []
"""Applied `Note` stages, in order."""


class _Note(StageCfg):
    """Appends its position to `LOG`, adds `amount`, and counts its samples per env in a state."""

    amount: float = 0.0
    """Amount to add."""
    by_count: bool = False
    """Whether it adds `amount` times the number of samples of this episode."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        return {"count": ()}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, Tensor], key: Any) -> None:
        LOG.append(self.place)
        state["count"] += 1.0
        for field in key.columns:
            times = state["count"] if self.by_count else torch.ones_like(state["count"])
            slot[field].add_((self.amount * times).reshape(-1, *(1,) * (slot[field].dim() - 1)))


def _note(where: Place) -> type[_Note]:
    name = f"Note{where.capitalize()}"
    return type(name, (_Note,), {"place": where, "__module__": __name__, "__annotations__": {"place": ClassVar[Place]}})


NOTES: dict[str, Any] = {
    place: _note(place) for place in ("physics", "scale", "noise", "bias", "saturation", "dropout", "post")
}


@wp.kernel(enable_backward=False)
def _ramp(rows: Rows, count: wp.array2d[wp.float32], values: wp.array2d[wp.float32]):
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    count[env, column] = count[env, column] + 1.0
    values[env, column] = values[env, column] + count[env, column]


class Ramp(StageCfg):
    """A recorded stage with the default reset that adds the number of samples of this episode."""

    place: ClassVar[Place] = "bias"
    is_recorded: ClassVar[bool] = True

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        return {f"count_{field}": (count,) for field, count in columns.items()}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, Tensor], key: Any) -> None:
        for field, columns in key.columns.items():
            values = wp.from_torch(slot[field].view(slot[field].shape[0], -1), dtype=wp.float32)
            key.compute.launch(_ramp, (columns,), [wp.from_torch(state[f"count_{field}"])], [values])


# All features together ------------------------------------------------------------------------------------------------


def menagerie() -> list[Any]:
    """Return a config for every stateful feature: knobs, walks, stages, rings, post-processing, states."""
    gauss = sn.stages.GaussMarkov(fields=("vec",), density=0.1, tau=0.5, turn_on=1.0)
    scale = sn.stages.ScaleError(fields=("vec",), scale=sn.Normal(0.0, 0.05), cross_axis=sn.Uniform(-0.1, 0.1))
    knobs = {
        "noise": {"vec": sn.Uniform(0.1, 0.2), "quat": 0.01},
        "bias": {"vec": sn.Normal(0.0, 1.0), "quat": (0.0, 0.01, 0.0)},
        "random_walk": {"vec": (0.1, 0.2, 0.3), "quat": 0.001},
        "resolution": {"vec": 0.001},
    }
    return [
        ProbeCfg(name="clean"),
        ProbeCfg(name="noisy", noise=0.5),
        ProbeCfg(name="torch", fields=ALL_FIELDS, **knobs, history_length=3, delay=0.02),
        KernelProbeCfg(name="kernel", **knobs, delay=0.03, jitter=0.02, history_length=2),
        KernelProbeCfg(
            name="stages", **knobs, stages=(gauss, scale, sn.stages.Saturation(fields=("vec",), high=100.0))
        ),
        KernelProbeCfg(name="lossy", noise={"vec": 0.1}, delay=0.02, loss=0.4, rate_hz=30.0),
        KernelProbeCfg(name="bursts", delay=sn.Uniform(0.0, 0.03), loss=sn.GilbertElliott(0.3, 0.4)),
        ProbeCfg(name="plugin", stages=(NOTES["bias"](amount=0.5, by_count=True),), history_length=2),
        KernelProbeCfg(name="ramp", stages=(Ramp(fields=("vec",)),), delay=0.01),
        ContractCfg(name="contract", alpha=0.5, noise=0.1, history_length=2),
        EmaCfg(name="ema", noise=0.1, delay=0.02),
        LagCfg(name="lag", noise=0.1),
        CastCfg(name="cast", noise=0.3, delay=0.01, history_length=3),
        SumCfg(name="sum", random_walk=0.1),
        KernelSumCfg(name="kernel_sum", history_length=2),
        ScalarCfg(name="scalar", bias=sn.Choice((1.0, 2.0, 3.0)), noise=0.1, update_period=0.03),
    ]
