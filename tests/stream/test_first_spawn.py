"""A client waits for its slow requests, and logs the cause of the delay; a stopped loop is named."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from nursery import Nursery
from streaming import PATIENCE, Gauge, GaugeCfg, GaugeData, build, connect, running, serving, until
from test_blueprints import LEAST, OURS

import sensorium as sn
from sensorium.compute import loading
from sensorium.errors import StreamError

TIMEOUT = 0.2
"""Time-out of the clients here, s."""


class Clock:
    """The module `time` for clients: their clock only advances in `work`, and progress reports are counted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reports: Counter[int] = Counter()

    def monotonic(self) -> float:
        if threading.current_thread().name == "sensorium-client":  # it reads the clock when a report arrives
            self.reports[threading.get_ident()] += 1
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def work(self, clients: int) -> None:
        """Work for three time-outs of so many clients, each of which gets reports between any two."""
        for _ in range(4):
            before = self.reports.copy()
            until(lambda: sum(count > before[each] + 1 for each, count in list(self.reports.items())) == clients)  # noqa: B023
            self.now += 0.9 * TIMEOUT


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("sensorium.client.session.time", made)
    return made


class SlowGaugeCfg(GaugeCfg):
    """A gauge that takes long to build."""


class SlowGauge(sn.SimpleSensor[SlowGaugeCfg, GaugeData]):
    requires = (sn.engines.BODY_POSE,)
    update_raw_data = Gauge.update_raw_data
    work: ClassVar[Callable[[], object]]

    def setup(self) -> None:
        type(self).work()


@pytest.mark.parametrize(("local", "compiles"), [(False, True), (True, False)])
def test_client_waits_for_a_long_request(
    local: bool, compiles: bool, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time-out does not expire while the server works; the client's log reports a compilation of kernels."""
    caplog.set_level(logging.WARNING, "sensorium.client")

    def build_slowly() -> None:
        if local:  # the client itself works
            clock.now += 3.0 * TIMEOUT
        else:
            with loading.lock:
                clock.work(1)

    monkeypatch.setattr(SlowGauge, "work", build_slowly, raising=False)
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0") as server:

        def use(client: sn.Client) -> None:
            client.blueprints  # noqa: B018 - asks the server as well
            client.timeout = TIMEOUT
            assert client.spawn("sensor.other.slow_gauge", name="slow").name == "slow"
            assert clock.now >= 3.0 * TIMEOUT

        if local:  # the loop is on this very thread
            with sn.local_client(server.scene, server=server) as client:
                use(client)
        else:
            with running(server), connect(server.address) as client:
                use(client)
    texts = [each.getMessage() for each in caplog.records if "waiting for the server" in each.getMessage()]
    assert len(texts) == compiles
    assert all("compiles kernels, on the first run only" in text for text in texts)


def test_other_clients_wait_for_a_long_request(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second client's request during the server's work for the first client is answered as well."""
    started = threading.Event()

    def build_slowly() -> None:
        started.set()
        clock.work(2)

    monkeypatch.setattr(SlowGauge, "work", build_slowly, raising=False)
    with serving(world={"columns": 0}) as server, connect(server.address) as first, connect(server.address) as second:
        spawning = threading.Thread(target=first.spawn, args=("sensor.other.slow_gauge",), kwargs={"name": "slow"})
        spawning.start()
        assert started.wait(PATIENCE)
        second.timeout = TIMEOUT
        second.reset()
        spawning.join(PATIENCE)
        assert "slow" in server.streams


def test_kernel_compilation_in_the_owners_step_is_reported(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """A request waits while the owner's step compiles, although the server is not polled meanwhile."""
    caplog.set_level(logging.WARNING, "sensorium.client")
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0") as server, connect(server.address) as client:
        client.timeout = TIMEOUT
        done: list[bool] = []

        def ask() -> None:
            client.reset()
            done.append(True)

        asking = threading.Thread(target=ask)
        with loading.lock:
            asking.start()
            clock.work(1)
        with running(server):
            asking.join(PATIENCE)
    assert done and "compiles kernels" in caplog.text


def test_blocked_loop_is_reported_in_time() -> None:
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0") as server, connect(server.address) as client:
        client.timeout = TIMEOUT
        with pytest.raises(StreamError, match=r"did not answer within 0\.2 s\. .*loop runs and calls server\.po"):
            client.reset()


# With an empty kernel cache -------------------------------------------------------------------------------------------

MODEL = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="20 20 .1"/>
    <geom name="wall" type="box" size=".1 3 3" pos="3 0 1"/>
    <body name="robot/base" pos="0 0 1">
      <freejoint/>
      <geom name="robot/hull" size=".1 .1 .1" type="box"/>
      <site name="robot/pad" size=".2"/>
      <body name="robot/arm" pos="0 0 .2">
        <joint name="robot/hinge" axis="0 1 0"/>
        <geom name="robot/link" type="capsule" size=".03 .1"/>
      </body>
    </body>
    <body name="cube" pos="1 0 1"><freejoint/><geom name="cube" type="box" size=".1 .1 .1"/></body>
  </worldbody>
</mujoco>
"""
CHILD = """
import json, sys, threading, warnings
warnings.simplefilter("ignore")
import sensorium as sn, sensorium.sensors
from sensorium.stream.blueprints import build_cfg
QUIET = ("collision_events", "event_camera")  # at rest, nothing happens
kind, values, attach = json.loads(sys.argv[1])
reserve = build_cfg(kind, values, attach_to=attach)
scene = sn.Scene(sn.MujocoEngine(sys.argv[2]), reserve=[reserve])
server = sn.serve(scene, "tcp://127.0.0.1:0")
over = threading.Event()
def loop():
    while not over.is_set():
        scene.step()
        server.poll(0.005)
thread = threading.Thread(target=loop)
thread.start()
try:
    with connect(server.address, timeout=float(sys.argv[3])) as client:
        client.timeout = 5.0
        blueprint = next(each for each in client.blueprints if each.definition.kind == kind)
        for name, value in values.items():
            blueprint.set_attribute(name, value)
        received = threading.Event()
        sensor = client.spawn(blueprint, attach_to=attach)
        sensor.listen(lambda data: received.set())
        print("received", kind in QUIET or received.wait())
finally:
    over.set()
    thread.join()
    server.close()
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", OURS)
def test_the_first_spawn_of_a_kind_works_with_an_empty_cache(tmp_path: Path, kind: str, nursery: Nursery) -> None:
    """All options have their defaults, also the time-out of the spawn, and every kernel has to be compiled."""
    (tmp_path / "model.xml").write_text(MODEL)
    attach = None if kind in ("builtin", "touch") else "robot/base"
    values = {**LEAST.get(kind, {}), **({"site": "robot/pad"} if kind == "touch" else {})}
    asked = json.dumps([kind, values, attach])
    program = nursery.program(
        CHILD, asked, str(tmp_path / "model.xml"), str(PATIENCE), bare=True, WARP_CACHE_PATH=str(tmp_path / "cache")
    )
    assert program.wait(20.0 * PATIENCE) == 0, program.err
    assert program.out.splitlines()[-1] == "received True"
    assert any((tmp_path / "cache").rglob("*.o")) or any((tmp_path / "cache").rglob("*.ptx"))
