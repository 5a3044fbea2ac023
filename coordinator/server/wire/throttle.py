"""Throttling: which requests count against a quota, and how long a client is muted for it.

`Throttle` has the quotas in effect and what was counted. Without any quota dispatch asks `is_active` and nothing else.
Otherwise a request whose client has one gets a `Meter`, which its call takes along: it measures the CPU time that the
request takes, and before the answer is encoded `weigh` counts time and bytes, and puts the wait into the answer. The
answer goes out at once; the connection handles no request until the wait is over.

Time is a share of one thread, 100 % a second: this program has one loop. Kafka measures the time of its threads.

House rule: the arithmetic is in security.quotas_rates; what a connection does with a wait is in `connection`.
Source: Kafka's KafkaApis, RequestHandlerHelper, ClientRequestQuotaManager, release 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

from coordinator.config import Config
from coordinator.security.quotas import FETCHED, KEYS, MUTATIONS, PRODUCED, TIME, Limit, Limits, quotas_of
from coordinator.security.quotas_rates import Rate, Sampling, Sensors, Tokens
from coordinator.server.telemetry.measures import Measures
from protocol.messages import API_KEYS, FetchResponse, Message

PRODUCE, FETCH = API_KEYS["Produce"], API_KEYS["Fetch"]

EXEMPT = frozenset({17, 36})
"""SaslHandshake and SaslAuthenticate: a client that logs in has no user yet."""

STRICT_SINCE = {API_KEYS["CreateTopics"]: 6, API_KEYS["DeleteTopics"]: 5, API_KEYS["CreatePartitions"]: 3}
"""The APIs that count as mutations, and the first version whose client knows THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

COUNTED = {PRODUCE: (TIME, PRODUCED), FETCH: (TIME, FETCHED)} | dict.fromkeys(STRICT_SINCE, (TIME, MUTATIONS))
"""The keys that requests count under; of every other API it is their time alone."""

PERCENT_OF_NS = 100 / 1e9

NAME_START = "User:"


class Throttle:
    """The quotas in effect. ms: the time. busy_ns: CPU time of the loop's thread. measures: counts waits.

    is_active: whether any user or client id has a quota.
    """

    def __init__(self, config: Config, ms: Callable[[], int], busy_ns: Callable[[], int], measures: Measures) -> None:
        self.ms = ms
        self.busy_ns = busy_ns
        self.measures = measures
        self.window = Sampling(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutations = Sampling(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        rate = partial(Rate, self.window)
        self.rates: dict[str, Sensors[Rate]] = {key: Sensors(rate) for key in (PRODUCED, FETCHED, TIME)}
        self.tokens: Sensors[Tokens] = Sensors(partial(Tokens, mutations))
        self.is_active = False
        self._limits: dict[str, Limits] = {}

    def put_into_effect(self, texts: Mapping[str, str]) -> None:
        """Use these quotas, as the list of topics keeps them."""
        quotas = quotas_of(texts)
        self._limits = {key: Limits(quotas, key) for key, known in KEYS.items() if not known.is_of_ip}
        self.is_active = any(self._limits.values())

    def counts_time_of(self, principal: str) -> bool:
        """Whether each request of a user has to pass dispatch, because its time may count."""
        return self.is_active and self._limits[TIME].may_concern(principal.removeprefix(NAME_START))

    def meter(self, principal: str, client_id: str | None, api_key: int, size: int) -> Meter | None:
        """The meter of a request; None if no quota is for its client. size: of its body, in bytes."""
        if api_key in EXEMPT:
            return None
        user, id_ = principal.removeprefix(NAME_START), client_id or ""
        found = {key: self._limits[key].of(user, id_) for key in COUNTED.get(api_key, (TIME,))}
        mine = {key: limit for key, limit in found.items() if limit is not None}
        return Meter(self, mine, principal, api_key, size) if mine else None


class Meter:
    """The time that one request takes, and how long its client waits for that.

    limits: the quotas of its client, by key. fetched: bytes that a Fetch has read. mute: mutes the connection for so
    many ms.
    """

    __slots__ = ("_api_key", "_began_ns", "_is_weighed", "_limits", "_principal", "_size", "_spent_ns", "_throttle",
                 "_until_ms", "fetched", "mute")  # fmt: skip

    def __init__(
        self, throttle: Throttle, limits: Mapping[str, Limit], principal: str, api_key: int, size: int
    ) -> None:
        self._throttle = throttle
        self._limits = limits
        self._principal = principal
        self._api_key = api_key
        self._size = size
        self._spent_ns = 0
        self._began_ns: int | None = None
        self._is_weighed = False
        self._until_ms = 0
        self.fetched = 0
        self.mute: Callable[[int], None] = _nobody

    # Time.

    def begin(self) -> bool:
        """The request has the thread; returns False if it had it already."""
        if self._began_ns is not None:
            return False
        self._began_ns = self._throttle.busy_ns()
        return True

    def end(self) -> None:
        """The request gives the thread back. What it took behind its answer counts, but it doesn't wait for that."""
        self._take_time()
        self._began_ns = None
        if self._is_weighed:
            self._count_time(self._throttle.ms())

    def _take_time(self) -> None:
        if self._began_ns is not None:
            now_ns = self._throttle.busy_ns()
            self._spent_ns += now_ns - self._began_ns
            self._began_ns = now_ns

    # What counts.

    def fetch_bytes_max(self) -> int | None:
        """The most bytes that can be fetched without a wait that is certain; None if there is no such limit."""
        limit = self._limits.get(FETCHED)
        if limit is None:
            return None
        window = self._throttle.window
        return int(limit.bound * (window.samples - 1) * window.size_ms / 1000)

    def may_change(self, partitions: int, version: int) -> bool:
        """Count partitions that are created or deleted; False if the request of this version has to be refused."""
        limit = self._limits.get(MUTATIONS)
        if limit is None:
            return True
        now_ms = self._throttle.ms()
        tokens = self._throttle.tokens.get(limit.shared_by, limit.bound, now_ms)
        is_strict = version >= STRICT_SINCE[self._api_key]
        wait_ms = tokens.wait_ms(limit.bound, now_ms) if is_strict else 0
        if not wait_ms:
            tokens.take(partitions, limit.bound, now_ms)
            if is_strict:
                return True
            wait_ms = tokens.wait_ms(limit.bound, now_ms)
        self._until_ms = now_ms + wait_ms
        return not is_strict

    def weigh(self, body: Message) -> Message:
        """Count a request that is being answered; returns the answer to send, which has the wait."""
        now_ms = self._throttle.ms()
        self._is_weighed = True
        waits = {
            TIME: self._count_time(now_ms),
            MUTATIONS: max(self._until_ms - now_ms, 0),
            PRODUCED: self._count(PRODUCED, self._size, now_ms),
            FETCHED: self._count(FETCHED, self.fetched, now_ms),
        }
        wait_ms = self._wait(waits)
        if not wait_ms:
            return body
        if self._api_key == FETCH:
            # As Kafka: nothing goes out, so nothing counts; the client asks again when its wait is over.
            self._count(FETCHED, -self.fetched, now_ms)
            return FetchResponse(throttle_time_ms=wait_ms, responses=[])
        throttled: Any = copy(body)  # answers may share a body
        if hasattr(throttled, "throttle_time_ms"):
            throttled.throttle_time_ms = wait_ms
        return throttled  # type: ignore[no-any-return]

    def weigh_nothing(self) -> None:
        """Count a Produce that wants no answer: its bytes, not its time, as in Kafka."""
        self._wait({PRODUCED: self._count(PRODUCED, self._size, self._throttle.ms())})

    def _wait(self, waits: Mapping[str, int]) -> int:
        """Mute the client for the longest wait, and count it."""
        key = max(waits, key=lambda key: waits[key])
        if waits[key]:
            self._throttle.measures.throttled(key, self._principal, waits[key])
            self.mute(waits[key])
        return waits[key]

    def _count_time(self, now_ms: int) -> int:
        self._take_time()
        spent_ns, self._spent_ns = self._spent_ns, 0
        # Kafka: a client never waits longer than one sample for time that it took.
        return min(self._count(TIME, spent_ns * PERCENT_OF_NS, now_ms), self._throttle.window.size_ms)

    def _count(self, key: str, value: float, now_ms: int) -> int:
        """Count a value; returns how long the client has to wait."""
        limit = self._limits.get(key)
        if limit is None:
            return 0
        rate = self._throttle.rates[key].get(limit.shared_by, limit.bound, now_ms)
        rate.record(value, now_ms)
        return rate.wait_ms(limit.bound, now_ms)


def _nobody(_: int) -> None:
    """There is no connection to mute."""
