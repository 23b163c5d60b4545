"""Replacements for classes and calls of the contract documents that do not exist here by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import torch
import warp as wp
from scipy.spatial.transform import Rotation
from torch import Tensor

import sensorium as sn
from sensorium import registry
from sensorium.geometry.transforms import quat_rotate
from sensorium.testing import tumbling_engine


@pytest.fixture(autouse=True)
def _own_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test define sensors that are forgotten after it."""
    monkeypatch.setattr(registry._pairs, "data", registry.registered())


@dataclass(frozen=True, slots=True)
class TravelData:
    travel: Annotated[Tensor, sn.Field("m")]


def test_state_attribute_is_saved_and_reset_with_the_sensor() -> None:
    """`new_state` is per config, zero at the start and in reset envs, and restored with the scene."""

    class TravelCfg(sn.MountedSensorCfg[TravelData]):
        pass

    class Travel(sn.SimpleSensor[TravelCfg, TravelData]):
        requires = (sn.engines.BODY_POSE, sn.engines.BODY_VELOCITY)

        def setup(self) -> None:
            self.total = self.new_state("total", (self.mount.count,))

        def update_raw_data(self, raw: sn.Record) -> None:
            self.total += self.clock.dt * self.mount.lin_vel_w.norm(dim=-1)
            raw.travel.copy_(self.total)

    scene = sn.Scene(tumbling_engine(3), [TravelCfg(name="a", body="body"), TravelCfg(name="b", body="body")])
    a, b = scene["a"], scene["b"]
    assert a.total.shape == (3, 1) and a.total.dtype == torch.float32
    assert a.total.data_ptr() != b.total.data_ptr()
    expected = a.total.double()
    for _ in range(5):
        scene.step()
        expected += a.clock.dt * scene.engine.body_lin_vel_w[:, :1].double().norm(dim=-1)
    torch.testing.assert_close(a.data.travel.double(), expected[:, 0], rtol=1e-5, atol=1e-6)
    saved, kept = scene.state(), a.read().travel
    scene.reset([1])
    first = a.clock.dt * scene.engine.body_lin_vel_w[1, 0].norm()
    assert a.data.travel[1] == first and a.data.travel[[0, 2]].equal(kept[[0, 2]])
    scene.step()
    scene.load_state(saved)
    assert a.data.travel.equal(kept) and a.total[:, 0].equal(kept)


def test_hooks_read_the_engines_state() -> None:
    """Hooks have access to the engine; it provides the arrays in `requires`, and reading other arrays is an error."""

    class HeightCfg(sn.SensorCfg[TravelData]):
        array: str = "body_pos_w"

    class Height(sn.Sensor[HeightCfg, TravelData]):
        requires = (sn.engines.BODY_POSE,)

        def compute(self, truth: sn.Record, measured: sn.Record) -> None:
            for record in (truth, measured):
                for _, view in record.items():
                    view.copy_(self.engine.array(self.cfg.array)[:, 0, 2])

    scene = sn.Scene(tumbling_engine(3), [HeightCfg(name="x")])
    scene.step()
    assert scene["x"].engine is scene.engine
    assert scene["x"].data.travel.equal(scene.engine.body_pos_w[:, 0, 2])
    with pytest.raises(sn.SensoriumError, match="without requiring BODY_ACCELERATION"):
        sn.Scene(tumbling_engine(3), [HeightCfg(name="x", array="body_lin_acc_w")])


@wp.kernel
def _turn(quat: wp.array[wp.vec4], vector: wp.array[wp.vec3], out: wp.array[wp.vec3]) -> None:
    i = wp.tid()
    out[i] = quat_rotate(quat[i], vector[i])


def test_kernels_rotate_vectors_by_quaternions() -> None:
    """`quat_rotate` in a kernel agrees with SciPy for quaternions (w, x, y, z)."""
    rng = np.random.default_rng(0)
    turns, vectors = Rotation.random(50, rng=rng), rng.normal(size=(50, 3))
    quats = turns.as_quat(scalar_first=True).astype(np.float32)
    out = wp.zeros(50, dtype=wp.vec3, device="cpu")
    given: list[Any] = [
        wp.array(quats, dtype=wp.vec4, device="cpu"), wp.array(vectors.astype(np.float32), dtype=wp.vec3, device="cpu")
    ]  # fmt: skip
    wp.launch(_turn, 50, given, [out], device="cpu")
    np.testing.assert_allclose(out.numpy(), turns.apply(vectors), atol=1e-5)
