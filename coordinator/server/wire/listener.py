"""Listening sockets, and all connections that came through them.

`admission` says which connections are turned away right after the accept, and which have to wait. One sweep closes all
connections that were silent for connections.max.idle.ms. A request under way keeps its connection open, however long it
waits.

House rule: a client that is turned away, or closed for a fault, costs one log line at most. A limit that is hit many
times in a row costs one line. Lines that are too many in a short time are left out, and counted.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from coordinator.config import EVERYWHERE, Config, Listener
from coordinator.group.client import Client
from coordinator.loop.clock import Alarm, Clock
from coordinator.loop.lines import Lines, Sparing
from coordinator.loop.pace import Pace
from coordinator.loop.unsent import Unsent
from coordinator.server.telemetry.measures import Measures
from coordinator.server.wire.admission import Admission
from coordinator.server.wire.connection import Connection, Dispatch
from coordinator.server.wire.handshakes import Handshakes
from coordinator.server.wire.intake import Intake
from coordinator.server.wire.tls import Plain, TlsTransport

if TYPE_CHECKING:
    from coordinator.server.wire.authentication import Door

SWEEPS_PER_IDLE_TIME = 10
"""Sweeps per connections.max.idle.ms. A connection may live longer than that time, by one sweep.

A connection counts sweeps, so that it needn't look at the clock when bytes come.
"""


class Connections:
    """All connections of the server.

    dispatch: answers a frame, see api.Api. soon: has the loop call back.
    open_max: how many open connections the process's limit on files allows.
    door: where clients of listeners with SASL authenticate; None if there is no such listener.

    handshakes: those of TLS that are under way. Their connections count as all others do.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        lines: Lines,
        dispatch: Dispatch,
        soon: Callable[[Callable[[], None]], object],
        pace: Pace,
        measures: Measures,
        open_max: int,
    ) -> None:
        self._idle_max_ms = config.connections_max_idle_ms
        self.admission = Admission(config, clock, measures.delayed, self._shed)
        self.intake: Intake[Connection] = Intake(config, clock, self._give_up)
        self.unsent: Unsent[Connection] = Unsent(clock, self._give_up)
        self._open_max = open_max
        self._lines = lines
        self._closed = Sparing(lines, clock)
        self._refused = Sparing(lines, clock)
        self._clock = clock
        self.dispatch = dispatch
        self.soon = soon
        self.pace = pace
        self.frame_size_max = config.socket_request_max_bytes
        self.door: Door | None = None
        self._open: set[Connection] = set()
        self._full = False
        self._alarm: Alarm[str] = Alarm(clock, self._sweep)
        self._throttled: Alarm[Connection] = Alarm(clock, Connection.end_throttle)
        self._on_empty: Callable[[], None] | None = None
        self.handshakes = Handshakes(clock, lines, pace, soon)
        if self._idle_max_ms >= 0:
            self._arm()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def has(self, client: Client) -> bool:
        """Whether the connection of `client` is open."""
        return any(connection.knows(client) for connection in self._open)

    def connect(
        self, listener: str, secure: Callable[[Plain], TlsTransport] | None = None
    ) -> Connection | TlsTransport:
        """A fresh connection for the listener of that name. secure: puts TLS under it."""
        connection = Connection(self, listener, None if self.door is None else self.door.open(listener))
        return connection if secure is None else secure(connection)

    def add(self, connection: Connection) -> bool:
        """Add a connection; False if there are too many."""
        if len(self._open) >= self._open_max:
            refusal = f"this process may have no more files open than it needs for {self._open_max} (ulimit -n)"
        elif self.admission.rates_of_ips and self.admission.slow_down(connection):
            return True
        else:
            refusal = self.admission.refusal(connection) or ""
        if refusal:
            text = f"Turning away {connection.peer}, and whoever else comes: {refusal}"
            self._say_full("connection_refused", connection, text, refusal)
            return False
        self._open.add(connection)
        fullness = self.admission.let_in(connection)
        if fullness is None:
            self._full = False
        else:
            text = f"{connection.peer}, and whoever else comes, has to wait: {fullness}"
            self._say_full("connection_waits", connection, text, fullness)
        return True

    def _say_full(self, event: str, connection: Connection, text: str, reason: str) -> None:
        if not self._full:
            self._full = True
            self._refused.warn(event, text, peer=connection.peer, reason=reason)

    def _shed(self, excess: list[Connection]) -> None:
        """Close the connections that are too many, because the number fell or one of brokers came."""
        for each in excess:
            each.abort()
        text = f"Closing {len(excess)} of the most silent connections: max.connections is exceeded"
        self._closed.warn("connections_shed", text, connections=len(excess))

    def remove(self, connection: Connection) -> None:
        """A connection has closed. Nothing happens if it was turned away."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        self._throttled.cancel(connection)
        self.intake.release(connection)
        if connection.guard is not None:
            connection.guard.end()
        self.admission.removed(connection)
        if self._on_empty is not None and not self._open:
            self._on_empty()

    def end_throttle_in(self, connection: Connection, wait_ms: int) -> None:
        """Call the connection's `end_throttle` after a wait."""
        self._throttled.arm(connection, self._clock.ms() + wait_ms)

    def _give_up(self, connection: Connection, reason: str) -> None:
        self.closing(connection, reason, ours=False)
        connection.abort()

    def closing(self, connection: Connection, reason: str, *, ours: bool) -> None:
        """A connection closes because of what it received: log why."""
        if ours:
            text = f"Closing the connection of {connection.peer} after a mistake of ours: {reason}"
            self._lines.error("connection_failed", text, peer=connection.peer, reason=reason)
        else:
            text = f"Closing the connection of {connection.peer}: {reason}"
            self._closed.warn("connection_closed", text, peer=connection.peer, reason=reason)

    def forget(self) -> None:
        """Drop what connections answer by themselves: dispatch has to decide about each request once more."""
        for connection in self._open:
            connection.may_short_cut = False
            connection.commit = connection.beat = None

    # Idle connections.

    def _arm(self) -> None:
        pause_ms = max(self._idle_max_ms // SWEEPS_PER_IDLE_TIME, 1)
        self._alarm.arm("sweep", self._clock.ms() + pause_ms)

    def _sweep(self, _: str) -> None:
        for connection in list(self._open):
            connection.silent_sweeps += 1
            if connection.silent_sweeps > SWEEPS_PER_IDLE_TIME and not connection.waits:
                connection.abort()  # a client that takes nothing of its answers would keep them for ever
        self._arm()

    # The end.

    def stop(self) -> None:
        """Handle no further request. Answers still go out."""
        self._alarm.stop()
        self._throttled.stop()
        self.admission.stop()
        self.intake.stop()
        self.unsent.stop()
        if self.door is not None:
            self.door.alarm.stop()
        self.handshakes.stop()
        for connection in self._open:
            connection.stop()

    def close(self, on_empty: Callable[[], None]) -> None:
        """Close all connections after their last write. Calls `on_empty` when none is left."""
        self._on_empty = on_empty
        for connection in list(self._open):
            connection.close()
        if not self._open:
            on_empty()

    def abort(self) -> None:
        """Close all at once."""
        for connection in list(self._open):
            connection.abort()


def bind(listener: Listener) -> socket.socket:
    """A bound socket; without a host it takes IPv4 and IPv6, where both exist. Raises OSError."""
    host, port = listener.host, listener.port
    is_dual = False
    if host in EVERYWHERE and host != "0.0.0.0":  # noqa: S104 - that one stays what it says
        host, is_dual = "", socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual else socket.AF_INET
    else:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=is_dual)
    except OSError as error:
        raise OSError(
            error.errno, os.strerror(error.errno or 0)
        ) from error  # Python's text repeats the address as a tuple
