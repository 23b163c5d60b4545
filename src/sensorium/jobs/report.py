"""stub"""

from dataclasses import dataclass
from typing import Any

from sensorium.jobs.store import Store


@dataclass
class Status:
    job: Any
    done: int
    total: int
    missing: str
    sensors: dict
    episodes: int
    dropped: int
    simulated_s: float
    wall_s: float


def status(out):
    store = Store(out)
    job = store.job()
    s = Status(job, 0, job.num_shards, "", {}, 0, 0, 0.0, 0.0)
    for _, r in store.receipts():
        s.done += 1
        s.episodes += r["episodes"]
        s.dropped += r["dropped"]
        s.simulated_s += r["simulated_s"]
        s.wall_s += r["wall_s"]
        for f in r["files"].values():
            a, b = s.sensors.get(f["sensor"], (0, 0))
            s.sensors[f["sensor"]] = a + f["rows"], b + f["bytes"]
    return s


def verify(out, rerun=0, progress=None):
    return []
