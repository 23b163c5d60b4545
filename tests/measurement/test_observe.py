"""`observe` is called at every physics tick: in torch or recorded, at samples and between them, read or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
import synthetic as syn
import torch
import warp as wp
from selection import gate
from torch import Tensor

import sensorium as sn
from sensorium import registry
from sensorium.measurement import stage_cfg
from sensorium.testing import check_sensor

DT = 0.01
ENVS = 3
RATES: list[dict[str, Any]] = [{}, {"rate_hz": 30.0}, {"update_period": 0.05}, {"evaluate": "wanted", "rate_hz": 50.0}]


@pytest.fixture(autouse=True)
def _own_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test define sensors that are removed after it."""
    monkeypatch.setattr(registry._pairs, "data", registry.registered())


@dataclass(frozen=True, slots=True)
class SeenData:
    """The observed tick count since the reset, and the sum of a height over these ticks."""

    ticks: Annotated[Tensor, sn.Field("1")]
    total: Annotated[Tensor, sn.Field("m")]


@wp.kernel
def add_up(
    rows: sn.Rows, pos: wp.array2d[wp.vec3], ticks: wp.array2d[wp.float32], total: wp.array2d[wp.float32]
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0):
        ticks[env, mount] = ticks[env, mount] + 1.0
        total[env, mount] = total[env, mount] + pos[env, mount][2]


def seen_class(how: str) -> type[Any]:
    """Return the config of a sensor that accumulates in `observe`: in torch, recorded, or with `compute`."""

    class SeenCfg(sn.MountedSensorCfg[SeenData]):
        pass

    class Parts:
        def setup(self: Any) -> None:
            self.ticks, self.total = (self.new_state(name, (self.mount.count,)) for name in ("ticks", "total"))

    class Torch:
        def observe(self: Any) -> None:
            self.ticks.add_(1.0)
            self.total.add_(self.mount.pos_w[..., 2])

    class Recorded:
        @sn.recorded
        def observe(self: Any) -> None:
            pos = wp.from_torch(self.mount.pos_w, dtype=wp.vec3)
            self.compute_on.launch(add_up, (self.mount.count,), [pos], [self.ticks, self.total])

    class Raw:
        def update_raw_data(self: Any, raw: sn.Record) -> None:
            raw.ticks, raw.total = self.ticks, self.total

    class Compute:
        def compute(self: Any, truth: sn.Record, measured: sn.Record) -> None:
            for record in (truth, measured):
                record.ticks, record.total = self.ticks, self.total

    looks: Any = Recorded if how == "recorded" else Torch
    if how == "compute":

        class Full(Parts, looks, Compute, sn.Sensor[SeenCfg, SeenData]):
            requires = (sn.engines.BODY_POSE,)

    else:

        class Simple(Parts, looks, Raw, sn.SimpleSensor[SeenCfg, SeenData]):
            requires = (sn.engines.BODY_POSE,)

    return SeenCfg


def world(*configs: Any) -> sn.Scene:
    return sn.Scene(sn.TensorEngine(ENVS, dt=DT), configs)


def height(tick: int) -> Tensor:
    """Return the body's position at a tick, in each environment: small whole numbers, whose sums are exact."""
    return torch.arange(ENVS) + 1.0 + tick % 7


def move(scene: sn.Scene, tick: int) -> None:
    scene.engine.body_pos_w[:, 0, 2] = height(tick)
    scene.update()


@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("how", ["torch", "recorded", "compute"])
def test_every_tick_is_observed_once_whether_read_or_not(how: str, rate: Mapping[str, Any]) -> None:
    """States cover every tick so far, and the reading is that of its sample. A reset restarts both."""
    scene = world(seen_class(how)(name="seen", body="body", **rate))
    sensor = scene["seen"]
    ticks, total = torch.ones(ENVS), torch.zeros(ENVS)  # the capture at the start, at height 0
    for tick in range(1, 40):
        move(scene, tick)
        ticks, total = ticks + 1.0, total + height(tick)
        if tick in (17, 20):  # at a tick that was a sample for some of the rates, and between samples
            scene.reset([1])
            ticks[1], total[1] = 1.0, height(tick)[1]
        assert sensor.ticks[:, 0].equal(ticks) and sensor.total[:, 0].equal(total), tick
        if tick % 8 == 0 and rate.get("evaluate") != "wanted":
            at = sensor.capture_tick
            assert sensor.data.ticks.equal(ticks - (tick - at).float())
    assert sensor.info.evaluation != "lazy"


@pytest.mark.parametrize("how", ["torch", "recorded"])
def test_edits_do_not_repeat_observation_of_a_tick(how: str) -> None:
    """`update(ticks=0)` after an edit keeps the observed state, and the next tick reads the new state."""
    scene = world(seen_class(how)(name="seen", body="body"))
    for tick in range(1, 4):
        move(scene, tick)
    held = syn.snapshot(scene["seen"])
    for _ in range(3):
        scene.engine.body_pos_w[:] += 1.0
        scene.update(ticks=0)
        syn.same(syn.snapshot(scene["seen"]), held)
    move(scene, 4)
    assert scene["seen"].data.ticks.tolist() == [5.0] * ENVS
    assert scene["seen"].data.total.equal(sum(height(tick) for tick in range(1, 5)) + torch.zeros(ENVS))


@pytest.mark.parametrize("how", gate(["torch", "recorded", "compute"], {"recorded", "compute"}))
def test_observing_sensor_passes_all_rules(how: str) -> None:
    check_sensor(seen_class(how)(body="body", rate_hz=200.0))


def test_a_stage_in_torch_observes_every_tick(request: pytest.FixtureRequest) -> None:
    """The sum over all ticks since the reset is exact at each sample."""
    kinds = dict(stage_cfg.STAGE_KINDS)
    request.addfinalizer(lambda: (stage_cfg.STAGE_KINDS.clear(), stage_cfg.STAGE_KINDS.update(kinds)))

    class TickSum(sn.stages.StageCfg):
        place: ClassVar[stage_cfg.Place] = "post"
        observes: ClassVar[bool] = True

        def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
            return {f"sum_{field}": (count,) for field, count in columns.items()}

        def observe(self, truth: sn.Record, state: Mapping[str, Tensor], key: Any) -> None:
            for field in key.columns:
                state[f"sum_{field}"].add_(truth[field].flatten(1))

        def apply(self, slot: sn.Record, truth: sn.Record, state: Mapping[str, Tensor], key: Any) -> None:
            self.observe(truth, state, key)
            for field in key.columns:
                slot[field].flatten(1).copy_(state[f"sum_{field}"])

    scene = world(sn.BodyStateCfg(name="state", body="body", fields=("pos_w",), rate_hz=30.0, stages=(TickSum(),)))
    total = torch.zeros(ENVS)
    for tick in range(1, 40):
        move(scene, tick)
        total += height(tick)
        if bool(scene["state"].capture_tick[0] == tick):
            assert scene["state"].data.pos_w[:, 2].equal(total), tick
