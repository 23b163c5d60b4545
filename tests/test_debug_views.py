"""Scenes with `debug=True`: kept views of `.data` and `.ground_truth` are overwritten once they are out of date."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import synthetic as syn
import torch

import sensorium as sn


def rig() -> list[Any]:
    """Return lazy, eager, slow, delayed and remembering sensors."""
    return [
        syn.ProbeCfg(name="lazy", fields=syn.ALL_FIELDS),
        syn.ProbeCfg(name="noisy", fields=("vec", "quat"), noise={"vec": 0.5, "quat": 0.01}, random_walk={"vec": 0.1}),
        syn.ProbeCfg(name="late", fields=("vec", "label", "flag"), delay=0.03, jitter=0.02, loss=0.2, history_length=3),
        syn.ScalarCfg(name="slow", update_period=0.03, history_length=2, noise=1.0),
        syn.ContractCfg(name="remembers", alpha=0.5),
        syn.CastCfg(name="cast"),
    ]


def spoiled(value: torch.Tensor) -> bool:
    """Return whether a tensor shows that it is out of date."""
    if value.is_floating_point():
        return bool(value.isnan().all())
    return bool((value == (255 if value.dtype == torch.uint8 else torch.iinfo(value.dtype).min)).all())


ENDS: dict[str, Callable[[sn.Scene], object]] = {
    "step": lambda scene: syn.advance(scene),
    "update of a tick": lambda scene: scene.update(),
    "update without time": lambda scene: scene.update(ticks=0),
    "reset": lambda scene: syn.reset(scene),
    "reset of one env": lambda scene: syn.reset(scene, [1]),
    "load_state": lambda scene: scene.load_state(scene.state()),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", ["lazy", "noisy", "late"])
def test_outdated_view_is_filled_with_nan(name: str, end: str) -> None:
    """Both branches, views of views and every sensor are overwritten; until then a view keeps its values."""
    scene = syn.world(rig(), debug=True)
    syn.advance(scene, 2)
    data, truth = scene[name].data, scene[name].ground_truth
    row = data.vec[1, :2]
    before = row.clone(), truth.vec.clone()
    scene["slow"].data, scene[name].data, scene[name].valid  # further reads change nothing
    assert torch.equal(row, before[0]) and torch.equal(truth.vec, before[1])
    ENDS[end](scene)
    assert spoiled(data.vec) and spoiled(truth.vec) and spoiled(row)
    assert torch.isfinite(scene[name].data.vec).all()


def test_outdated_single_tensor_is_filled_with_nan() -> None:
    scene = syn.world(rig(), debug=True)
    kept = scene["slow"].data
    syn.advance(scene)
    assert spoiled(kept)


def test_integers_bytes_and_flags() -> None:
    """Integers get their least value, bytes 255, and flags are inverted."""
    scene = syn.world(rig(), debug=True)
    data = scene["lazy"].data
    flag = data.flag.clone()
    syn.advance(scene)
    assert spoiled(data.label) and data.label.dtype == torch.int32
    assert spoiled(data.byte) and torch.equal(data.flag, ~flag)


def test_reset_of_one_sensor_overwrites_its_own_views() -> None:
    scene = syn.world(rig(), debug=True)
    mine, other = scene["lazy"].data.vec, scene["noisy"].data.vec
    before = other.clone()
    scene["lazy"].reset([0])
    assert spoiled(mine) and torch.equal(other, before)


def test_copies_and_observations_are_kept() -> None:
    scene = syn.world(rig(), debug=True)
    syn.advance(scene)
    look = scene.observer("lazy.vec", "late.vec")
    late = scene["late"]
    kept = [late.read().vec, late.read([1, 2]).vec, late.read_ground_truth().vec, late.history.vec, look()]
    before = [each.clone() for each in kept]
    syn.advance(scene, 3)
    assert all(torch.equal(a, b) for a, b in zip(kept, before, strict=True))


def test_without_debug_views_are_kept() -> None:
    """Views are live: a kept view shows the next sample at the same address."""
    scene = syn.world([syn.ProbeCfg(name="p")])
    kept = scene["p"].data.vec
    syn.advance(scene)
    assert scene["p"].data.vec is kept and torch.equal(kept, syn.signal(1, 4))


def test_debug_readings_equal_normal_ones() -> None:
    """With delays, history, memory, lazy sensors and resets, readings equal those without debug bit for bit."""
    scene, plain = syn.world(rig(), debug=True), syn.world(rig())
    for tick in range(20):
        for each in (scene, plain):
            syn.advance(each)
            if tick in (7, 8, 15):
                syn.reset(each, [0, 2])
        for name in scene:
            if (tick + len(name)) % 3:  # not every sensor at each tick
                syn.same(syn.snapshot(scene[name]), syn.snapshot(plain[name]))


def test_a_write_into_a_view_is_named_at_the_next_step() -> None:
    """A write is reported once per sensor, branch and field. Reads and writes into copies are not; NaN equals NaN."""
    scene = syn.world(rig(), debug=True)
    syn.advance(scene)
    for name in scene:
        read = scene[name].read()
        (read if isinstance(read, torch.Tensor) else read.vec if hasattr(read, "vec") else torch.zeros(1)).fill_(3.0)
        syn.snapshot(scene[name])
    syn.advance(scene)
    scene["late"].data.vec[2, 1] += 1.0
    scene["lazy"].ground_truth.flag[0] ^= True
    scene["slow"].data.numpy()[3] = float("nan")
    message = r"written into.*: 'lazy': ground_truth\.flag, 'late': data\.vec, 'slow': data\..*read\(\)"
    for end in (syn.advance, syn.reset):
        with pytest.warns(sn.SensoriumWarning, match=message if end is syn.advance else "'noisy': data.vec"):
            end(scene)
        end(scene)
        scene["noisy"].data.vec.fill_(0.0)
    with pytest.warns(sn.SensoriumWarning, match="'noisy': data.vec"):
        scene["noisy"].reset([1])


def test_write_into_a_view_does_not_reach_the_sensor() -> None:
    scene, plain = syn.world(rig(), debug=True), syn.world(rig())
    for k in range(3):
        for each in (scene, plain):
            with pytest.warns(sn.SensoriumWarning, match="remembers") if k and each is scene else nullcontext():
                syn.advance(each)
        scene["remembers"].data.x.fill_(1e6)
        syn.same(
            {"history": scene["remembers"].read_ground_truth().x.numpy()},
            {"history": plain["remembers"].read_ground_truth().x.numpy()},
        )


def test_views_of_a_retired_sensor_keep_their_values() -> None:
    """Later steps neither move nor overwrite the views; the sensor itself raises."""
    scene = syn.world([syn.ProbeCfg(name="p")], debug=True)
    data, sensor = scene["p"].data, scene["p"]
    before = data.vec.clone()
    scene.reconfigure("p", bias={"vec": 1.0})
    syn.advance(scene)
    assert torch.equal(data.vec, before)
    with pytest.raises(sn.StaleError):
        sensor.data  # noqa: B018


def test_memory_does_not_grow() -> None:
    """A scene holds at most one copy per read sensor, however often it is read, and none after the step."""
    scene = syn.world(rig(), debug=True)
    for _ in range(5):
        syn.advance(scene)
        assert not any(scene[name]._lent for name in scene)
        views = [scene["lazy"].data for _ in range(10)]
        assert all(view is views[0] for view in views)
        assert {name: len(scene[name]._lent or {}) for name in scene} == {name: int(name == "lazy") for name in scene}


def test_view_can_be_an_argument_of_step_or_reset() -> None:
    """A view is overwritten after its last use: a reset writes the state that the view showed."""
    engine = sn.TensorEngine(2, 0.01)
    engine.body_pos_w[:, 0] = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", body="body", fields=("pos_w",))], debug=True)
    view = scene["imu"].data.pos_w
    scene.reset(body_pos_w=view[:, None])
    assert scene["imu"].data.pos_w.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert spoiled(view)
