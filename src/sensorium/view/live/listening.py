"""The subscriptions of a page: the newest data of a server for one environment."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from sensorium.client.client import Client
from sensorium.errors import SensoriumError
from sensorium.readings import Reading

RATE = 20.0
"""Maximum number of updates per second."""
RETRY_S = 1.0
"""Time after which a subscription that the server ended begins again, s."""

MAX_READINGS = 2000
"""Maximum number of readings that wait for the page, of a stream of which every sample is needed."""

Wish = tuple[int, bool, bool]
"""Environment, whether every sample is needed, and whether the ground truth is."""


class Listening:
    """Subscriptions to the streams of a server. All methods are called on the page's thread.

    Args:
        client: connection to the server.
    """

    def __init__(self, client: Client) -> None:
        self._client, self._lock = client, threading.Lock()
        self._subscriptions: dict[str, tuple[Wish, Any]] = {}
        self._ended: dict[str, float] = {}
        self._arrived: dict[str, deque[Reading]] = {}

    def follow(self, streams: Collection[str], env: int, lossless: Collection[str], truth: Collection[str]) -> None:
        """Subscribe to streams of one environment, or change the subscriptions to them.

        Args:
            streams: names of the streams.
            env: the environment.
            lossless: streams of which every sample is needed.
            truth: streams of which the ground truth is needed.
        """
        wanted = {name: (env, name in lossless, name in truth) for name in streams}
        for name, (wish, subscription) in list(self._subscriptions.items()):
            if wanted.get(name) != wish:
                del self._subscriptions[name]
                subscription.stop()
                with self._lock:
                    self._arrived.pop(name, None)
        now = time.monotonic()
        for name, wish in wanted.items():
            if name in self._subscriptions or now - self._ended.get(name, -RETRY_S) < RETRY_S:
                continue
            options: dict[str, Any] = {"policy": "lossless"} if wish[1] else {"policy": "latest", "max_rate": RATE}
            try:
                subscription = self._client.subscribe(
                    name, partial(self._take, wish), on_end=partial(self._end, name, wish), truth=wish[2],
                    envs=slice(env, env + 1), **options,
                )  # fmt: skip
            except SensoriumError:  # the stream was just removed
                self._ended[name] = now
            else:
                self._subscriptions[name] = wish, subscription

    def renew(self) -> None:
        """End the subscriptions with a maximum rate: new ones get the newest samples, which the rate may omit."""
        for name, (wish, subscription) in list(self._subscriptions.items()):
            if not wish[1]:
                del self._subscriptions[name]
                subscription.stop()

    def stop(self) -> None:
        """End all subscriptions."""
        self.follow((), 0, (), ())

    def take_all(self) -> Mapping[str, deque[Reading]]:
        """Return the readings that arrived since the last call: all or only the newest of each stream."""
        with self._lock:
            arrived, self._arrived = self._arrived, {}
        return arrived

    def _take(self, wish: Wish, data: Any) -> None:
        """Keep a reading; called on a thread of the client."""
        if not isinstance(data, Reading):  # of a type without fields, which has at least a pose
            tick, valid = np.full(len(data.env_ids), data.tick), np.ones(len(data.env_ids), bool)
            meta = {"capture_tick": tick, "valid": valid}
            data = Reading(data.name, data.info.kind, (), data.env_ids, data.tick, data.time, {}, {}, meta,
                           _pose=data.pose, _dt=self._client.dt)  # fmt: skip
        with self._lock:
            self._arrived.setdefault(data.name, deque(maxlen=MAX_READINGS if wish[1] else 1)).append(data)

    def _end(self, name: str, wish: Wish, reason: str) -> None:
        """Note that the server ended a subscription, e.g. of a sensor that was replaced."""
        self._ended[name] = time.monotonic()
        if self._subscriptions.get(name, (None,))[0] == wish:
            self._subscriptions.pop(name, None)
