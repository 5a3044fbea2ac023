"""Admission: how many connections there may be, and how fast new ones may come.

Above `max.connections.per.ip`, or its overrides, a connection is closed at once. Above `max.connections`, or
`listener.name.X.max.connections`, it is held until another one closes. If `max.connections` falls, those that were
silent for longest are closed. The listener of brokers (`inter.broker.listener.name`) is excepted from `max.connections`
if there is another listener: through it an administrator gets in, and the others make room. It has as many places of
its own.

Rates are measured over the window of quotas. Above `max.connection.creation.rate`, of the server or of a listener, the
listener lets one connection in after the other, each when its time has come; until then it is held. Above the quota
`connection_creation_rate` of its address a connection is never served: it is closed when its wait is over, so that a
client that connects again and again is slowed down.

Nothing that a held connection sends is handled. It takes a file, so a listener holds `socket.listen.backlog.size` of
them; Kafka leaves as many to the kernel.

House rule: whatever is held has a limit, and above it connections are closed at once.
Source: Kafka's ConnectionQuotas and Acceptor (SocketServer), release 3.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address

from coordinator.config import INT32_MAX, Config
from coordinator.loop.clock import Alarm, Clock
from coordinator.security.quotas import CONNECTIONS, DEFAULT, quotas_of
from coordinator.security.quotas_rates import Rate, Sampling, Sensors
from coordinator.server.wire.connection import Connection

RATE = "max_connection_creation_rate"

SLOWED_MAX = 1_000
"""Connections that are kept until their address has waited, each for a sample of the window at most. Each takes a file.
"""


class _Line:
    """The connections that wait for their listener. is_counted: whether the first one has its place in time."""

    def __init__(self, window: Sampling) -> None:
        self.rate = Rate(window)
        self.held: deque[Connection] = deque()
        self.is_counted = False


class Admission:
    """Lets connections in.

    counted: called with the limit ("rate", "ip", "max") for each connection that had to wait. shed: called with the
    connections that are too many. rates_of_ips: how many connections a second an address may make, where that has a
    bound.
    """

    def __init__(
        self, config: Config, clock: Clock, counted: Callable[[str], None], shed: Callable[[list[Connection]], None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._counted = counted
        self._shed = shed
        self._limits: dict[str, tuple[int, int]] = {}
        self._window = Sampling(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._rate = Rate(self._window)
        self._lines: dict[str, _Line] = {}
        self._inside: dict[Connection, None] = {}
        self._per_ip: dict[str, int] = {}
        self._per_listener: dict[str, int] = {}
        self.rates_of_ips: dict[str, float] = {}
        self._ips: Sensors[Rate] = Sensors(partial(Rate, self._window))
        self._next: Alarm[str] = Alarm(clock, self._let_in)
        self._slowed: Alarm[Connection] = Alarm(clock, lambda connection: connection.abort())
        self._slow: set[Connection] = set()
        self._is_stopped = False

    def reconfigure(self, config: Config) -> None:
        """Use other settings."""
        self._config = config
        self._limits.clear()
        self._let_all_in()
        self._shed_excess()

    def put_into_effect(self, texts: Mapping[str, str]) -> None:
        """Use these quotas, as the list of topics keeps them."""
        self.rates_of_ips = {
            str(ip_address(entity.ip)) if entity.ip else DEFAULT: values[CONNECTIONS]
            for entity, values in quotas_of(texts).items()
            if entity.ip is not None and CONNECTIONS in values
        }

    # Numbers.

    def refusal(self, connection: Connection) -> str | None:
        """The reason to close this connection at once; None if there is none."""
        config, ip, listener = self._config, connection.ip, connection.listener
        per_ip_max = dict(config.max_connections_per_ip_overrides).get(ip, config.max_connections_per_ip)
        if self._per_ip.get(ip, 0) >= per_ip_max:
            return f"max.connections.per.ip, {per_ip_max}, is reached"
        line = self._lines.get(listener)
        if line is not None and len(line.held) >= config.socket_listen_backlog_size:
            return f"socket.listen.backlog.size, {config.socket_listen_backlog_size}, connections wait already"
        return None

    def fullness(self, listener: str) -> str | None:
        """The number that leaves no place for another connection of a listener; None if there is a place."""
        config, (listener_max, _) = self._config, self._limits.get(listener) or self._limits_of(listener)
        if len(self._inside) >= config.max_connections and not config.is_of_brokers(listener):
            return f"max.connections, {config.max_connections}, is reached"
        if self._per_listener.get(listener, 0) >= listener_max:
            return f"listener.name.{listener.lower()}.max.connections, {listener_max}, is reached"
        return None

    def _limits_of(self, listener: str) -> tuple[int, int]:
        """How many connections a listener may have, and how fast new ones may come; kept in `_limits`."""
        limit_of = self._config.limit_of
        limits = self._limits[listener] = limit_of(listener, "max_connections"), limit_of(listener, RATE)
        return limits

    def _shed_excess(self) -> None:
        """Close the connections that are more than max.connections: as in Kafka, the most silent."""
        count = len(self._inside) - self._config.max_connections
        if count <= 0:
            return
        others = [each for each in self._inside if not self._config.is_of_brokers(each.listener)]
        excess = sorted(others, key=lambda each: -each.silent_sweeps)[:count]  # of those alike, the oldest
        if excess:
            self._shed(excess)

    def removed(self, connection: Connection) -> None:
        """A connection that was to be let in has closed."""
        _count_down(self._per_ip, connection.ip)
        if connection in self._inside:
            del self._inside[connection]
            _count_down(self._per_listener, connection.listener)
        else:
            line = self._lines[connection.listener]
            line.is_counted = line.is_counted and connection is not line.held[0]
            line.held.remove(connection)
        self._let_all_in()

    # Rates.

    def slow_down(self, connection: Connection) -> bool:
        """Keep a connection whose address is too fast until its wait is over, and close it then; False if it isn't.

        It counts in no number, as in Kafka, and not against the rate of its address either.
        """
        bound = self.rates_of_ips.get(connection.ip.partition("%")[0], self.rates_of_ips.get(DEFAULT))
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

    def let_in(self, connection: Connection) -> str | None:
        """Let a connection in, now or when there is a place and its time has come.

        Returns the number that leaves no place for it; None if it was let in, or waits for its time only.
        """
        listener = connection.listener
        self._per_ip[connection.ip] = self._per_ip.get(connection.ip, 0) + 1
        line = self._lines.get(listener)
        _, rate_max = self._limits.get(listener) or self._limits_of(listener)
        has_rate = not self._config.max_connection_creation_rate == INT32_MAX == rate_max
        if line is None and not has_rate and self.fullness(listener) is None:
            self._enter(connection)
            return None
        if line is None:
            line = self._lines[listener] = _Line(self._window)
        connection.begin_throttle()
        line.held.append(connection)
        self._let_in(listener)
        fullness = self.fullness(listener) if connection.is_held else None
        if fullness is not None:
            self._counted("max")
        return fullness

    def _enter(self, connection: Connection) -> None:
        self._inside[connection] = None
        self._per_listener[connection.listener] = self._per_listener.get(connection.listener, 0) + 1
        if connection.guard is not None:
            connection.guard.begin(connection)
        if len(self._inside) > self._config.max_connections:
            self._shed_excess()

    def _let_all_in(self) -> None:
        """There may be a place for those that wait."""
        for listener in self._lines:
            self._let_in(listener)

    def _let_in(self, listener: str) -> None:
        """Let those in that wait for a listener, up to one that has to wait longer."""
        line = self._lines[listener]
        while line.held and listener not in self._next and not self._is_stopped:
            # The first one has waited for its time already if it is counted.
            if not line.is_counted:
                line.is_counted = True
                now_ms = self._clock.ms()
                wait_ms = self._count(line, listener, now_ms)
                if wait_ms:
                    self._counted("rate")
                    self._next.arm(listener, now_ms + wait_ms)
                    return
            if self.fullness(listener) is not None:
                return
            line.is_counted = False
            connection = line.held.popleft()
            self._enter(connection)
            connection.end_throttle()

    def _count(self, line: _Line, listener: str, now_ms: int) -> int:
        """Count a connection; returns how long it has to wait."""
        config = self._config
        of_server = INT32_MAX if config.is_of_brokers(listener) else config.max_connection_creation_rate
        limits = ((self._rate, of_server), (line.rate, self._limits_of(listener)[1]))
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
        self._is_stopped = True
        self._next.stop()
        self._slowed.stop()
        for connection in list(self._slow):
            connection.abort()


def _count_down(counts: dict[str, int], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
