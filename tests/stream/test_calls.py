"""The number of calls per frame, from the kernel that computed it to the callback of its listener."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest
from streaming import PATIENCE, until

import sensorium as sn

COURT = """<mujoco><worldbody>
  <body name="robot/base" pos="0 0 1"><freejoint/><geom size="0.1"/></body>
  <geom type="box" pos="5 0 1" size="1 3 3"/>
</worldbody></mujoco>"""
MAX_CALLS = 15
HANDOVERS = ("put", "_give", "take")
"""Functions at which a frame leaves a thread: into an outbox, into the socket, into the queue of a listener."""


def chain(frame: FrameType | None) -> list[str]:
    """Return the streaming functions on the stack, outermost first."""
    names: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("sensorium.stream", "sensorium.client", "sensorium.wire")):
            names.append(f"{module.rpartition('.')[2]}.{frame.f_code.co_name}")
        frame = frame.f_back
    return names[::-1]


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_lidar_frame_takes_few_calls_from_kernel_to_callback(shared_memory: bool) -> None:
    """The calls of each thread are those on its stack at the handover; the callback itself counts as a call."""
    scene = sn.Scene(sn.MujocoEngine(COURT), [sn.preset("vlp16", name="lidar", body="robot/base")])
    chains: dict[str, list[str]] = {}
    got: list[Any] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_name not in HANDOVERS:
            return
        found = chain(frame)
        if found and found[-1] in ("outboxes.put", "sockets._give", "callbacks.put"):
            is_data = found[-1] != "outboxes.put" or frame.f_locals["record"].kind != 1
            if is_data:
                chains[found[-1]] = found

    def listener(data: Any) -> None:
        chains["callback"] = [*chain(sys._getframe(1)), "listener"]
        got.append(data.frame)

    threading.setprofile(profile)  # for threads started from here on
    try:
        with sn.serve(scene, "tcp://127.0.0.1:0", shared_memory=shared_memory) as server:
            with sn.connect(server.address, shared_memory=shared_memory) as client:
                client.sensors["lidar"].listen(listener, policy="lossless")
                until(lambda: server.counts.subscriptions == 1, "the subscription", PATIENCE)
                server.poll()
                sys.setprofile(profile)
                scene.step(substeps=100)  # 0.2 s: two samples
                sys.setprofile(None)
                until(lambda: got and got[-1] > 0, "the frame", PATIENCE)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert set(chains) == {"outboxes.put", "sockets._give", "callbacks.put", "callback"}
    calls = [name for each in chains.values() for name in each]
    assert len(calls) <= MAX_CALLS, chains
