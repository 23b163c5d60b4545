"""Sensors that send later than in their tick: a sensor that delays a frame is named, and cannot block the end."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE, TickerDataSerializer, build, connect, running, serving, until

import sensorium as sn
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.stream import publisher, streamed
from sensorium.wire.attributes import SensorDefinition


class Keeper(sn.StreamedSensor):
    """Takes a capture of each frame and keeps it."""

    serializer = TickerDataSerializer

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_keeper")

    def tick(self, snapshot: Any) -> None:
        self.captures = [*getattr(self, "captures", []), self.stream.capture()]


class Worker(sn.StreamedSensor):
    """Blocks a thread in each frame until it is released."""

    serializer = TickerDataSerializer
    gate = threading.Event()
    begun = threading.Event()

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_worker")

    def work(self) -> Any:
        self.begun.set()
        self.gate.wait(PATIENCE)
        return np.zeros(2, np.int64)

    def tick(self, snapshot: Any) -> None:
        self.stream.send_async(self.work)


def test_sensor_delaying_a_frame_is_reported_once_to_waiting_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is a warning on the thread of the connection, which continues although warnings are errors here."""
    monkeypatch.setattr(publisher, "HELD_S", 0.2)
    with serving(lockstep=True) as server, connect(server.address) as client, connect(server.address) as other:
        client.spawn("sensor.other.test_keeper", name="keeper")
        with sn.client.FrameSync(client, ["gauge"]) as sync:
            first, last = client.step(), client.step()
            until(lambda: any("'keeper' has a capture" in note for note in client.notes))
            assert [text for text in server.slow_client_reports() if "'keeper'" in text and f"Frame {first} " in text]
            for capture in server.streamed.sensors["keeper"].captures:  # type: ignore[attr-defined]
                capture.drop()
            assert sync.get(last, timeout=PATIENCE)["gauge"].frame == last
        assert sum("keeper" in note for note in client.notes) == 1 and not other.notes


def test_endless_work_delays_server_close_for_a_bounded_time_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streamed, "PATIENCE", 0.3)
    Worker.gate.clear()
    Worker.begun.clear()
    server = sn.serve(build(columns=0), "tcp://127.0.0.1:0", lockstep=True)
    try:
        with running(server), connect(server.address) as client:
            client.spawn("sensor.other.test_worker", name="worker").listen(lambda data: None)
            client.step()
            assert Worker.begun.wait(PATIENCE)
            client.callbacks.errors.take()
        server.spawn("sensor.other.test_worker", name="mine")
        caplog.set_level(logging.WARNING, "sensorium.stream")
        server.close()
        assert [record for record in caplog.records if "'worker'" in record.getMessage()]
    finally:
        Worker.gate.set()
        server.close()
    until(lambda: not any(each.name.startswith("sensorium-streamed") for each in threading.enumerate()))
    assert not server.failures.take(), "what it sends after the end is nobody's fault"
