"""Subscription table: the streams of a server, its clients, and their subscriptions. It contains no sockets."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from sensorium.stream.delivery import Delivery
from sensorium.stream.outboxes import Outboxes
from sensorium.stream.subscriptions import Counts, Key, Session, Subscription, Topic
from sensorium.wire import messages as msg

MOST_SUBSCRIPTIONS = 1024
"""Maximum number of subscriptions of one client."""


class SubscriptionTable(Outboxes):
    """Streams, clients and subscriptions. All methods may be called by any thread.

    Args:
        wake: function that makes the socket's thread send the contents of the outboxes.
        options: arguments of `Delivery`.
    """

    def __init__(self, wake: Callable[[], None], **options: Any) -> None:
        super().__init__(wake)
        self.topics: dict[int, Topic] = {}
        self.fresh: deque[Subscription] = deque()
        """Subscriptions that started since the last frame; they also receive its data."""
        self.delivery = Delivery(self, self.end, **options)

    @property
    def counts(self) -> Counts:
        """Current numbers of sessions, subscriptions and resources."""
        with self.lock:
            sessions = list(self.sessions.values())
            return Counts(
                len(sessions),
                sum(len(session.subscriptions) for session in sessions),
                len(self.topics),
                self.delivery.segments,
                sum(sum(session.held.values()) for session in sessions),
            )

    # Topics -----------------------------------------------------------------------------------------------------------

    def add_topic(self, topic: Topic) -> None:
        """Add a topic and notify all clients."""
        with self.lock:
            self.topics[topic.info.id] = topic
            self.send_to_all(msg.Added(topic.info.to_dict()))

    def remove_topic(self, number: int, reason: str) -> None:
        """Remove a topic: its subscriptions end with that reason."""
        with self.lock:
            topic = self.topics.pop(number, None)
            if topic is None:
                return  # the table was closed in the meantime
            for subscription in list(topic.subscriptions):
                self.end(subscription, reason)
            self.delivery.retire(topic)
            self.send_to_all(msg.Removed(number, reason))

    # Sessions ---------------------------------------------------------------------------------------------------------

    def remove_session(self, session: Session) -> None:
        """Remove a client: its subscriptions end, its slots are freed."""
        with self.lock:
            if self.sessions.get(session.route) is session:
                del self.sessions[session.route]
            for subscription in list(session.subscriptions.values()):
                self._drop(subscription)
            self.delivery.forget(session)
            self.clear(session)
            self.has_room.notify_all()

    # Subscriptions ----------------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, terms: msg.Subscribe) -> None:
        """Start a subscription; a second one of a client with the same number replaces the first.

        Raises:
            ValueError: the request is invalid; the message names the reason.
        """
        with self.lock:
            topic = self.topics.get(terms.stream)
            if topic is None:
                self.send(session, msg.Eos(terms.subscription, f"the stream {terms.stream} does not exist"))
                return
            total = topic.info.num_envs
            first, count = terms.first_env, terms.num_envs or total - terms.first_env
            if terms.every < 1 or terms.window < 1 or terms.queue < 1 or not 0.0 <= terms.max_rate < float("inf"):
                raise ValueError(f"SUBSCRIBE with every={terms.every}, window={terms.window}, queue={terms.queue}")
            asked, reason = f"envs {first} to {first + count} were requested, and the stream has", ""
            if not (0 <= first and 0 < count and first + count <= total):
                reason = f"{asked} {total}"
            elif topic.env is not None and not first <= topic.env < first + count:
                reason = f"{asked} only env {topic.env}"
            if reason:
                self.send(session, msg.Eos(terms.subscription, reason))
                return
            if topic.env is not None:
                first, count = topic.env, 1
            old = session.subscriptions.get(terms.subscription)
            if old is not None:
                self._drop(old)
            if len(session.subscriptions) >= MOST_SUBSCRIPTIONS:
                raise ValueError(f"more than {MOST_SUBSCRIPTIONS} subscriptions of one client")
            subscription = Subscription(
                session,
                terms.subscription,
                topic,
                terms.lossless or topic.info.events,
                terms.every,
                1.0 / terms.max_rate if terms.max_rate else 0.0,
                (first, count, terms.truth),
                min(terms.window, 65536),
                min(terms.queue, 65536) if terms.lossless or topic.info.events else 1,
                min(terms.window, 65536),
            )
            session.subscriptions[terms.subscription] = subscription
            topic.subscriptions = [*topic.subscriptions, subscription]
            self.fresh.append(subscription)
            self.send(session, msg.Subscribed(terms.subscription, topic.seq))

    def unsubscribe(self, session: Session, number: int) -> None:
        """End a subscription on request of the client."""
        with self.lock:
            subscription = session.subscriptions.get(number)
            if subscription is not None:
                self.end(subscription, "stopped")

    def end(self, subscription: Subscription, reason: str) -> None:
        """End a subscription and notify its client of the reason."""
        with self.lock:
            if not subscription.ended:
                self._drop(subscription)
                self.send(subscription.session, msg.Eos(subscription.number, reason))

    def _drop(self, subscription: Subscription) -> None:
        subscription.ended = True
        with contextlib.suppress(ValueError):
            self.fresh.remove(subscription)
        self.delivery.abandon(subscription)
        topic, session = subscription.topic, subscription.session
        topic.subscriptions = [each for each in topic.subscriptions if each is not subscription]
        if session.subscriptions.get(subscription.number) is subscription:
            del session.subscriptions[subscription.number]
        self.has_room.notify_all()

    def wanted(
        self, topic: Topic, among: Iterable[Subscription], *, is_new: bool = True
    ) -> dict[Key, list[Subscription]]:
        """Count a sample of a topic, and return its receivers, grouped by requested content.

        Args:
            topic: the topic.
            among: its subscriptions that the sample concerns.
            is_new: whether the sample is new; False for the last sample, which new subscriptions receive.
        """
        out: dict[Key, list[Subscription]] = {}
        now = -1.0
        with self.lock:  # worker threads also send
            topic.seq += is_new
        for subscription in among:
            subscription.samples += 1
            if subscription.every > 1 and subscription.samples % subscription.every != 1:
                continue
            if subscription.interval:
                now = time.monotonic() if now < 0.0 else now
                if now < subscription.next_time:
                    continue
                is_late = now - subscription.next_time >= subscription.interval
                subscription.next_time = (now if is_late else subscription.next_time) + subscription.interval
            out.setdefault(subscription.key, []).append(subscription)
        return out

    def close(self) -> None:
        """Release all memory."""
        with self.lock:
            for session in list(self.sessions.values()):
                self.remove_session(session)
            self.delivery.close()
            self.topics.clear()
