"""Admission: how many connections there may be, and how fast new ones may come.

Numbers close a connection at once: `max.connections`, `max.connections.per.ip` with its overrides, and
`listener.name.X.max.connections`.

Rates are measured over the window of quotas. Above `max.connection.creation.rate`, of the server or of a listener, the
listener lets one connection in after the other, each when its time has come; until then it is held, and nothing that it
sends is handled. Above the quota `connection_creation_rate` of its address a connection is never served: it is closed
when its wait is over, so that a client that connects again and again is slowed down.

House rule: whatever is held has a limit, and above it connections are closed at once.
Source: Kafka's ConnectionQuotas and Acceptor (SocketServer), release 3.9.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from coordinator.config import INT32_MAX
from coordinator.security.quotas import CONNECTIONS, DEFAULT, quotas_of
from coordinator.security.quotas_rates import Rate, Sensors, Window
from coordinator.server.clock import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coordinator.config import Config
    from coordinator.server.clock import Clock
    from coordinator.server.wire.connection import Connection

RATE = "max_connection_creation_rate"

SLOWED_MAX = 1_000
"""Connections that are kept until their address has waited, each for a sample of the window at most. Each takes a file.
"""


class _Line:
    """The connections that wait for their listener. is_counted: whether the first one has its place in time."""

    def __init__(self, window: Window) -> None:
        self.rate = Rate(window)
        self.held: deque[Connection] = deque()
        self.is_counted = False


class Admission:
    """Lets connections in. counted: called with "rate" or "ip" for each connection that had to wait."""

    def __init__(self, config: Config, clock: Clock, counted: Callable[[str], None]) -> None:
        self._config = config
        self._clock = clock
        self._counted = counted
        self._window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._rate = Rate(self._window)
        self._lines: dict[str, _Line] = {}
        self._per_ip: dict[str, int] = {}
        self._per_listener: dict[str, int] = {}
        self._rates_of_ips: dict[str, float] = {}
        self._ips: Sensors[Rate] = Sensors(partial(Rate, self._window))
        self._next: Alarm[str] = Alarm(clock, self._let_in)
        self._slowed: Alarm[Connection] = Alarm(clock, lambda connection: connection.abort())
        self._slow: set[Connection] = set()

    def reconfigure(self, config: Config) -> None:
        """Use other settings for connections that come."""
        self._config = config

    def put_into_effect(self, texts: Mapping[str, str]) -> None:
        """Use these quotas, as the list of topics keeps them."""
        self._rates_of_ips = {
            str(ip_address(entity.ip)) if entity.ip else DEFAULT: values[CONNECTIONS]
            for entity, values in quotas_of(texts).items()
            if entity.ip is not None and CONNECTIONS in values
        }

    # Numbers.

    def refusal(self, connection: Connection, open_count: int) -> str | None:
        """The reason that there are too many connections for this one; None if there are not."""
        config, ip, listener = self._config, connection.ip, connection.listener
        per_ip_max = dict(config.max_connections_per_ip_overrides).get(ip, config.max_connections_per_ip)
        listener_max = config.limit_of(listener, "max_connections")
        if open_count >= config.max_connections:
            return f"max.connections, {config.max_connections}, is reached"
        if self._per_listener.get(listener, 0) >= listener_max:
            return f"listener.name.{listener.lower()}.max.connections, {listener_max}, is reached"
        if self._per_ip.get(ip, 0) >= per_ip_max:
            return f"max.connections.per.ip, {per_ip_max}, is reached"
        line = self._lines.get(listener)
        if line is not None and len(line.held) >= config.socket_listen_backlog_size:
            return f"socket.listen.backlog.size, {config.socket_listen_backlog_size}, connections wait already"
        return None

    def added(self, connection: Connection) -> None:
        """A connection is open."""
        self._per_ip[connection.ip] = self._per_ip.get(connection.ip, 0) + 1
        self._per_listener[connection.listener] = self._per_listener.get(connection.listener, 0) + 1

    def removed(self, connection: Connection) -> None:
        """It has closed."""
        for counts, key in ((self._per_ip, connection.ip), (self._per_listener, connection.listener)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
        line = self._lines.get(connection.listener)
        if line is not None and connection in line.held:
            line.is_counted = line.is_counted and connection is not line.held[0]
            line.held.remove(connection)

    # Rates.

    def slow_down(self, connection: Connection) -> bool:
        """Keep a connection whose address is too fast until its wait is over, and close it then; False if it isn't.

        It counts in no number, as in Kafka, and not against the rate of its address either.
        """
        bound = self._rates_of_ips.get(connection.ip.partition("%")[0], self._rates_of_ips.get(DEFAULT))
        if bound is None:
            return False
        now_ms = self._clock.ms()
        rate = self._ips.get(connection.ip, bound, now_ms)
        rate.record(1, now_ms)
        wait_ms = min(rate.wait_ms(bound, now_ms), self._window.size_ms)
        if not wait_ms:
            return False
        rate.record(-1, now_ms)
        self._counted("ip")
        if len(self._slow) >= SLOWED_MAX:
            connection.abort()
        else:
            self._slow.add(connection)
            connection.mute(partial(self._is_gone, connection))
            self._slowed.arm(connection, now_ms + wait_ms)
        return True

    def _is_gone(self, connection: Connection) -> None:
        self._slow.discard(connection)
        self._slowed.cancel(connection)

    def let_in(self, connection: Connection) -> None:
        """Let a connection in, now or when its time has come."""
        config, listener = self._config, connection.listener
        line = self._lines.get(listener)
        is_free = config.max_connection_creation_rate == INT32_MAX == config.limit_of(listener, RATE)
        if line is None and is_free:
            return
        if line is None:
            line = self._lines[listener] = _Line(self._window)
        connection.begin_throttle()
        line.held.append(connection)
        if len(line.held) == 1:
            self._let_in(listener)

    def _let_in(self, listener: str) -> None:
        """Let those in that wait for a listener, up to one that has to wait longer."""
        line = self._lines[listener]
        while line.held:
            # The first one has waited already if it is counted.
            if not line.is_counted:
                now_ms = self._clock.ms()
                wait_ms = self._count(line, listener, now_ms)
                if wait_ms:
                    line.is_counted = True
                    self._counted("rate")
                    self._next.arm(listener, now_ms + wait_ms)
                    return
            elif listener in self._next:
                return
            line.is_counted = False
            line.held.popleft().end_throttle()

    def _count(self, line: _Line, listener: str, now_ms: int) -> int:
        """Count a connection; returns how long it has to wait."""
        limits = (
            (self._rate, self._config.max_connection_creation_rate),
            (line.rate, self._config.limit_of(listener, RATE)),
        )
        wait_ms = 0
        for rate, bound in limits:
            if bound == INT32_MAX:
                continue
            rate.record(1, now_ms)
            # Nothing is ever within a bound of 0: as in Kafka a connection then waits for a whole sample.
            rate_wait_ms = rate.wait_ms(bound, now_ms) if bound else self._window.size_ms
            wait_ms = max(wait_ms, min(rate_wait_ms, self._window.size_ms))
        return wait_ms

    def stop(self) -> None:
        """Let nobody in any more."""
        self._next.stop()
        self._slowed.stop()
        for connection in list(self._slow):
            connection.abort()
