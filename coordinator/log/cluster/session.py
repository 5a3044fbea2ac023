"""The lease of a node: it keeps the node's keys alive, and says until when the node may answer clients.

The node asks for a longer life every quarter of the lease's time. Each answer counts from the moment at which the node
asked, less a tenth: so the node stops answering before another node may take its place, however long its process
or its machine stood still.

A lease that is gone takes the node's keys with it. The session says so, and gets a new lease.

House rule: no partition and no group is known here.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.log.cluster.port import NOT_FOUND, Lost, Port, Rejected

ASKS_PER_LIFE = 4
MARGIN = 10
"""The local deadline is one part in so many before the lease's end."""
PAUSE_MS = 50
"""Between two tries, when the store doesn't answer."""


class Session:
    """See the module.

    ttl_ms: the lease's time. on_lease: called with each new lease. on_lost: called when a lease is gone.
    lease: its id, 0 for none. deadline_ms: see `valid`. lapses: see engine.Ownership.
    """

    def __init__(self, port: Port, ttl_ms: int, on_lease: Callable[[], None], on_lost: Callable[[], None]) -> None:
        self.lease = 0
        self.deadline_ms = 0
        self.lapses = 0
        self._port = port
        self._ttl_ms = ttl_ms
        self._on_lease = on_lease
        self._on_lost = on_lost
        self._ended = False
        self._kept_ms = port.now_ms()

    def valid(self) -> bool:
        """Whether no other node can have taken this one's place. Any thread may call this."""
        return self._port.now_ms() < self.deadline_ms

    @property
    def age_ms(self) -> int:
        """How long ago the store was asked to keep the lease, and did; or since the start, if it never did."""
        return self._port.now_ms() - self._kept_ms

    def start(self) -> None:
        """Get a lease."""
        if self._ended:
            return
        asked_ms = self._port.now_ms()

        def told(outcome: int | Lost | Rejected) -> None:
            if not isinstance(outcome, int):
                self._port.later(PAUSE_MS, self.start)
                return
            if self._ended:
                self._port.revoke(outcome, lambda _outcome: None)
                return
            self.lease = outcome
            self._prolong(asked_ms)
            self._on_lease()

        # Rounded up: a shorter lease would end before the local deadline.
        self._port.grant(-(-self._ttl_ms // 1000), told)

    def end(self, done: Callable[[], None]) -> None:
        """Give the lease back, if the store answers."""
        self._ended = True
        self.deadline_ms = 0
        lease, self.lease = self.lease, 0
        if lease:
            self._port.revoke(lease, lambda _outcome: done())
        else:
            done()

    def _prolong(self, asked_ms: int) -> None:
        if self._port.now_ms() >= self.deadline_ms:
            self.lapses += 1  # before the new deadline, so that a thread that sees that one sees the lapse too
        self._kept_ms = asked_ms
        self.deadline_ms = asked_ms + self._ttl_ms - self._ttl_ms // MARGIN
        due_ms = asked_ms + self._ttl_ms // ASKS_PER_LIFE
        self._port.later(max(due_ms - self._port.now_ms(), 0), self._ask)

    def _ask(self) -> None:
        if self._ended:
            return
        lease, asked_ms = self.lease, self._port.now_ms()

        def told(outcome: int | Lost | Rejected) -> None:
            if self._ended:
                return
            if outcome == 0 or (isinstance(outcome, Rejected) and outcome.code == NOT_FOUND):
                self.lease = self.deadline_ms = 0
                self._on_lost()
                self.start()
            elif isinstance(outcome, int):
                self._prolong(asked_ms)
            else:
                self._port.later(PAUSE_MS, self._ask)

        self._port.keep_alive(lease, told)
