"""A program for a process that has only numpy, pyzmq, msgspec and sensorium; it prints the received data as JSON.

Args: address of the server, whether to read shared memory (1 or 0), number of steps.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn


def bits(array: Any) -> str:
    """Return a hash of the bits of an array as text."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


def main(address: str, shared: bool, steps: int) -> dict[str, Any]:
    """Use every feature of a light client."""
    arrived: dict[str, Any] = {"imu": {}, "sheet": {}, "near": [], "crossed": [], "bundles": {}}
    ended = threading.Event()
    with sn.connect(address, shared_memory=shared, timeout=120.0) as client:
        blueprint = client.blueprints.filter("sensor.other.*").find("sensor.other.safe_distance")
        blueprint.set_attribute("safe_distance_front", "1.0")
        guard = client.spawn(blueprint, transform=sn.Pose(), attach_to="robot/base")
        guard.listen(lambda event: arrived["near"].append([event.frame, event.first_env, [*event]]))
        lane = {"points": [[1.0, -2.0], [1.0, 2.0]], "type": "broken"}
        invasion = client.spawn("lane_invasion", attach_to="robot/base", lanes=[lane])
        assert isinstance(invasion, sn.client.LaneInvasion)

        def crossed(event: Any) -> None:
            marking = event.crossed_lane_markings[0]
            arrived["crossed"].append([event.tick, event.env, event.actor.name, marking.type, *event.corners])

        invasion.listen(crossed)

        def take(data: Any) -> None:
            name, field = ("imu", "lin_acc_b") if data.sensor == "imu" else ("sheet", "cells")
            true = None if not data.truth else bits(data.truth[field])
            arrived[name][data.frame] = [data.tick, bits(data[field]), true, data.first_env]

        client.sensors["imu"].listen(take, policy="lossless", truth=True)
        client.sensors["sheet"].listen(take, policy="lossless", envs=1)
        client.on_tick(lambda snapshot: ended.set() if snapshot.tick == steps else None)
        with sn.client.FrameSync(client, ["imu", "sheet"]) as sync:
            for _ in range(steps):
                frame = client.step()
                bundle = sync.get(frame, timeout=120.0)
                arrived["bundles"][frame] = {
                    name: None if data is None else data.frame for name, data in bundle.items()
                }
        ended.wait(120.0)
        for handle in (guard, client.sensors["imu"], client.sensors["sheet"]):
            wait_until_taken(client, handle, frame)
        arrived["bodies"] = [body.name for body in client.bodies.values()]
        arrived["segments"] = int("memfd:sensorium" in Path("/proc/self/maps").read_text())
        pose = sn.Pose((1.0, 2.0, 3.0), (0.0, 0.0, 0.0, 1.0))
        arrived["pose"] = (pose @ pose.inverse()).to_array().tolist()
        invasion.destroy()
        client.destroy(guard)
        assert not client.errors
    arrived["heavy"] = sorted({name.partition(".")[0] for name in sys.modules} & set(HEAVY))
    return arrived


def wait_until_taken(client: Any, sensor: Any, frame: int) -> None:
    """Wait until a listener has received its data of a frame."""
    pause = threading.Event()
    for _ in range(24_000):
        if sensor.stats.frame >= frame:
            return
        pause.wait(0.005)
    raise TimeoutError(f"no data of frame {frame} of {sensor!r}, {client!r}")


HEAVY = ("torch", "warp", "mujoco", "pydantic", "rich", "tyro", "matplotlib", "scipy", "tomli_w")

if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2] == "1", int(sys.argv[3]))))
