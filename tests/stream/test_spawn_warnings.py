"""Server warnings during a spawn are reported to the client that spawns."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import pytest
from streaming import PATIENCE, TickerDataSerializer, build, connect, running, serving, until

import sensorium as sn
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.errors import SensoriumWarning, StreamError
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire.attributes import ActorDescription, SensorDefinition
from sensorium.wire.world import Snapshot


class FogWarning(SensoriumWarning):
    """A category that only the server can resolve."""


class Lookout(StreamedSensor):
    """Gives two warnings when built, and others later."""

    serializer = TickerDataSerializer

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_lookout")

    def set(self, description: ActorDescription) -> None:
        super().set(description)
        warnings.warn("it is dark", SensoriumWarning, stacklevel=1)
        warnings.warn("it is foggy", FogWarning, stacklevel=1)

    def tick(self, snapshot: Snapshot) -> None:
        warnings.warn("nobody asked", SensoriumWarning, stacklevel=1)


REPORTED = [
    (SensoriumWarning, "spawning 'lookout', the server warned: SensoriumWarning: it is dark"),
    (UserWarning, "spawning 'lookout', the server warned: FogWarning: it is foggy"),
]
LATER = (SensoriumWarning, "nobody asked")
"""Warnings in each frame, on the server only."""


@contextlib.contextmanager
def connected(transport: str) -> Iterator[sn.Client]:
    if transport == "in-process":
        with build().local_client(timeout=PATIENCE) as client:
            yield client
        return
    with serving(lockstep=True) as server, connect(server.address) as client:
        yield client


@pytest.mark.parametrize("transport", ["in-process", "socket"])
def test_spawn_warnings_are_sent_with_each_answer(transport: str) -> None:
    """They are Python warnings attributed to the caller and notes of the client; the server shows them as usual."""
    with connected(transport) as client:
        client.blueprints  # noqa: B018 - what that warns of is another matter
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default")
                sensor = client.spawn("sensor.other.test_lookout", name="lookout")
                client.step()
            reported = [(each.category, str(each.message)) for each in caught if each.filename == __file__]
            assert reported == [(SensoriumWarning, "it is dark"), (FogWarning, "it is foggy"), *REPORTED, LATER]
            assert len(caught) == len(reported) and client.notes[-2:] == [text for _, text in REPORTED]
            sensor.destroy()
        assert len(client.notes) == 4
        client.spawn("sensor.other.test_ticker")
        assert len(client.notes) == 4


@pytest.mark.parametrize("transport", ["in-process", "socket"])
def test_spawn_fails_if_its_warning_is_an_error(transport: str) -> None:
    """This holds for warnings that are errors on the server or only in the client."""
    with connected(transport) as client:
        with pytest.raises(StreamError, match="it is dark") as refused:
            client.spawn("sensor.other.test_lookout", name="lookout")
        assert getattr(refused.value, "kind", "") == "SensoriumWarning"
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("ignore")
            warnings.filterwarnings("default", "it is dark")
            warnings.filterwarnings("error", "spawning")
            with pytest.raises(SensoriumWarning, match="spawning 'lookout', the server warned"):
                client.spawn("sensor.other.test_lookout", name="lookout")
        until(lambda: "lookout" not in client.streams)
        assert "lookout" not in client.sensors and not client.errors


def test_warnings_of_respawned_sensors_are_notes() -> None:
    """After a server restart no caller waits for an answer, so they become notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        first = sn.serve(build(), "tcp://127.0.0.1:0", lockstep=True)
        with sn.connect(first.address, timeout=PATIENCE) as client:
            with running(first):
                client.spawn("sensor.other.test_lookout", name="lookout")
            first.close()
            with sn.serve(build(), first.address, lockstep=True) as second, running(second):
                until(lambda: len(client.notes) == 4)
    again = [text.replace("'lookout'", "'lookout' again") for _, text in REPORTED]
    assert client.notes[2:] == again
    assert [str(each.message) for each in caught if each.category is SensoriumWarning][-2:] == again
