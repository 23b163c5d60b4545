"""Cost of sensors: bytes by configuration, and no work if nothing is due or read."""

from __future__ import annotations

import synthetic as syn

import sensorium as sn
from sensorium.compute import program

COLUMNS, ENVS = 16384, 8
PAYLOAD = COLUMNS * ENVS * 4


def nbytes(**knobs: object) -> int:
    scene = syn.world([syn.WideCfg(name="w", columns=COLUMNS, **knobs)], ENVS)
    scene["w"].read()
    assert scene["w"].info.nbytes == scene["w"].nbytes
    return scene["w"].nbytes


def test_clean_sensor_allocates_no_second_branch() -> None:
    """A clean sensor takes at most 2.2 times its payload: its measured data are its truth."""
    assert nbytes() <= 1.01 * PAYLOAD <= 2.2 * PAYLOAD
    scene = syn.world([syn.WideCfg(name="w", columns=COLUMNS)], ENVS)
    assert scene["w"].data.x.data_ptr() == scene["w"].ground_truth.x.data_ptr()


def test_each_knob_adds_only_its_own_memory() -> None:
    """Noise costs one record, a setting one row for all envs, a drawn one a row per env, a walk too, a ring its
    depth.
    """
    row, rest = PAYLOAD / ENVS, 0.01 * PAYLOAD
    assert nbytes(noise=0.1) <= 2 * PAYLOAD + row + rest
    assert nbytes(noise=0.1, bias=0.1, resolution=0.1) <= 2 * PAYLOAD + 3 * row + rest
    assert nbytes(noise=sn.Uniform(0.0, 0.1)) <= 3 * PAYLOAD + rest
    assert nbytes(random_walk=0.1) <= 3 * PAYLOAD + row + rest
    assert nbytes(history_length=5) <= (1 + 5) * PAYLOAD + rest
    assert nbytes(delay=0.02) <= (1 + 4 + 1) * PAYLOAD + rest  # two in flight, the shown one, its replacement


def test_history_memory_is_per_sensor() -> None:
    """A deep history of one sensor adds nothing to another sensor of the same class."""
    alone = syn.world([syn.WideCfg(name="w", columns=COLUMNS)], ENVS)["w"].nbytes
    scene = syn.world([syn.WideCfg(name="w", columns=COLUMNS), syn.WideCfg(name="deep", columns=8, history_length=50)])
    assert scene["w"].nbytes * ENVS // 4 <= alone
    assert scene["deep"].buffers.ring.depth == 50 and scene["w"].buffers.ring is None


def test_no_work_on_ticks_without_due_sensor(monkeypatch: object) -> None:
    """A 16k-column sensor at 1 Hz does no work while it is not due, and an unread lazy sensor does none either."""
    scene = syn.world([syn.WideCfg(name="slow", rate_hz=1.0, noise=0.1, delay=0.05, history_length=2),
                       syn.WideCfg(name="lazy", noise=0.1), syn.WideCfg(name="seen", noise=0.1)], 2)  # fmt: skip
    scene["seen"].read()
    runs: list[object] = []
    run = program.Segment.run
    monkeypatch.setattr(program.Segment, "run", lambda self: (runs.append(self), run(self))[1])
    calls = syn.Wide.calls
    for _ in range(99):
        scene.update()
    assert not runs and syn.Wide.calls == calls
    scene.update()
    assert runs and syn.Wide.calls == calls + 1
    runs.clear()
    scene["lazy"].read()
    assert syn.Wide.calls == calls + 3  # the two lazy sensors that were ever read run together
