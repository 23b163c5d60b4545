"""An interrupt at any line of the recorder, or of a step, loses no earlier row and reaches the caller."""

from __future__ import annotations

import functools
import itertools
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from mcap_scenes import assert_all_same, assert_same, following

import sensorium as sn
from sensorium.errors import ScheduleError
from sensorium.readings import Reading
from sensorium.record import mcap_writer, recorder, rows

MODEL = """
<mujoco>
  <worldbody>
    <body name="base"><freejoint/><geom size="0.1"/></body>
  </worldbody>
</mujoco>
"""
Line = tuple[CodeType, int]


class Interrupts:
    """Calls functions, and raises KeyboardInterrupt at a line of the recorder or of an engine's step."""

    def __init__(self) -> None:
        self.lines: dict[Line, None] = {}
        """Lines that were executed."""
        self.at: Line | None = None

    def __call__(self, function: Callable[[], object]) -> bool:
        """Call a function; return whether it was interrupted."""
        sys.settrace(self._trace)
        try:
            function()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        line = code, frame.f_lineno
        if event == "call":
            return self._trace if _is_interrupted(code) else None
        if event == "line" and not _is_lock(line):
            self.lines[line] = None
            if self.at == line:
                self.at = None
                raise KeyboardInterrupt
        return self._trace


@functools.cache
def _is_interrupted(code: CodeType) -> bool:
    """Return whether a function belongs to the recorder, or is a step. Python drops errors of `_keep`, a finalizer."""
    return (Path(code.co_filename).parent.name == "record" or code.co_name == "step") and code.co_name != "_keep"


@functools.cache
def _is_lock(line: Line) -> bool:
    """Return whether a lock is taken; it is released within one instruction, which no signal interrupts."""
    return linecache.getline(line[0].co_filename, line[1]).lstrip().startswith("with ")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> sn.Scene:
    """Return a scene; pages and chunks of its recordings are small, and the readings of one sensor count as large."""
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 3000)
    monkeypatch.setattr(mcap_writer, "CHUNK_SECONDS", 1e6)  # the lines of a step do not depend on how long it takes
    monkeypatch.setattr(rows, "MAX_ROWS", 3)
    monkeypatch.setattr(recorder, "LARGEST", 600)
    sensors = [
        sn.ImuCfg(name="imu", body="base", gyro_noise=0.01, fields=("ang_vel_b",)),
        sn.BodyStateCfg(name="state", body="base"),
        sn.ImuCfg(name="late", body="base", delay=0.004, fields=("ang_vel_b",)),
    ]
    return sn.Scene(sn.MujocoEngine(MODEL, 3), sensors)


def test_an_interrupt_at_any_line_loses_no_earlier_row(made: sn.Scene, tmp_path: Path) -> None:
    """It reaches the caller, and the recording continues; only readings of the interrupted frame may be missing."""
    number, interrupts, frames = itertools.count(), Interrupts(), []

    def advance() -> None:
        made.step()
        if (place := next(number) % 4) == 2:
            recording.mark("task")
        elif place == 3:
            made.reset([1])

    def run() -> bool:
        """Advance with interrupts, and note what a listener got."""
        live.clear()
        try:
            was_interrupted = interrupts(advance)
        except ScheduleError:  # the last step was interrupted
            was_interrupted = interrupts(made.reset)
        frames.append((was_interrupted, [*live]))
        return was_interrupted

    with following(made) as live, made.record(tmp_path / "run.mcap") as recording:
        frames.append((False, [*live]))
        for _ in range(12):
            run()
        lines = [*interrupts.lines]
        hit = 0
        for interrupts.at in lines:  # some are only executed in the first frame
            hit += any(run() for _ in range(5))
        interrupts.at = None
        run()

    def key(reading: Reading) -> Any:
        return reading.name, reading.tick, reading.captures.tolist()

    readings = [*sn.replay(tmp_path / "run.mcap")]
    for was_interrupted, expected in frames:
        for each in expected:
            if not was_interrupted or key(readings[0]) == key(each):
                assert_same(each, readings.pop(0))
    assert not readings and hit > 130


def test_an_interrupt_at_any_line_of_close_leaves_a_complete_file(made: sn.Scene, tmp_path: Path) -> None:
    interrupts, lines = Interrupts(), []

    def record() -> None:
        with following(made) as live:
            recording = made.record(tmp_path / "run.mcap")
            for _ in range(5):
                made.step()
        if interrupts(recording.close):
            recording.close()
        with sn.replay(tmp_path / "run.mcap") as replay:
            assert_all_same(live, replay)
            assert replay.is_complete

    record()
    lines = [*interrupts.lines]
    for interrupts.at in lines:
        record()
        assert interrupts.at is None
    assert len(lines) > 15


def test_an_interrupt_of_a_step_ends_the_recording_with_all_earlier_rows(
    made: sn.Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing does not replace the interrupt by an error about the state of the scene."""
    step = made.engine.step

    def interrupted(ctrl: Any, ticks: int) -> None:
        step(ctrl, ticks)
        raise KeyboardInterrupt

    with following(made) as live, pytest.raises(KeyboardInterrupt), made.record(tmp_path / "run.mcap"):
        made.step()
        monkeypatch.setattr(made.engine, "step", interrupted)
        made.step()
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert_all_same(live, replay)
        assert replay.is_complete
