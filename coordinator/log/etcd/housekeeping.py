"""Keeps etcd's file small, and knows how full it is.

etcd keeps every version of every key until a client has it forget them. The owner of partition 0 does: every TICK_MS it
notes the newest revision, and lets etcd forget what is older than the one noted KEPT_MS ago. A watch or a load that
wants older history reads its keys again.

When etcd's file reaches its quota, etcd refuses to write. So the node compares the part of the file that is in use with
the quota: above WARNED_SHARE it reports that, and above FULL_SHARE the server should take no new groups. Commits of
groups that exist go on; they replace values.

House rule: a lost or refused call is left to the next tick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from coordinator.log.cluster.port import Get, Lost, Port, Rejected, Status, Txn, TxnResult

TICK_MS = 30_000
KEPT_MS = 60_000
"""Longer than a watch lags behind in practice, and than a load takes (seconds). A slower one reads anew."""

WARNED_SHARE, FULL_SHARE = 0.6, 0.8

QUOTA = 2 * 1024 * 1024 * 1024
"""etcd's default of --quota-backend-bytes."""


class Housekeeping:
    """See the module.

    quota: of etcd's file, in bytes. is_keeper: whether this node compacts. log: takes facts for the operator.
    used, size: bytes of the file in use, and of the whole file, at the last tick. alarms: that etcd has raised.
    """

    def __init__(
        self,
        port: Port,
        key: bytes,
        is_keeper: Callable[[], bool],
        log: Callable[[str, dict[str, object]], None],
        quota: int,
    ) -> None:
        self.quota = quota
        self.used = 0
        self.size = 0
        self.alarms: tuple[str, ...] = ()
        self._port = port
        self._key = key
        self._is_keeper = is_keeper
        self._log = log
        self._noted: deque[tuple[int, int]] = deque()
        self._state = ""
        self._ended = False

    @property
    def share(self) -> float:
        """The part of the quota that is in use. Any thread may ask."""
        return self.used / self.quota

    @property
    def is_full(self) -> bool:
        """Whether no new groups should be taken. Any thread may ask."""
        return self.share >= FULL_SHARE or "NOSPACE" in self.alarms

    def start(self) -> None:
        """Look now, and at each tick."""
        if not self._ended:
            self._port.later(TICK_MS, self.start)
            self._port.status(self._status_known)
            self._port.txn(Txn([], [Get(self._key)]), self._revision_known)

    def end(self) -> None:
        """Look no more."""
        self._ended = True

    def _revision_known(self, outcome: TxnResult | Lost | Rejected) -> None:
        if not isinstance(outcome, TxnResult) or self._ended:
            return
        now_ms = self._port.now_ms()
        self._noted.append((now_ms, outcome.revision))
        old = 0
        while self._noted and self._noted[0][0] <= now_ms - KEPT_MS:
            old = self._noted.popleft()[1]
        if old and self._is_keeper():
            self._port.compact(old, lambda _outcome: None)

    def _status_known(self, status: Status | Lost | Rejected) -> None:
        if not isinstance(status, Status) or self._ended:
            return
        self.used, self.size = status.db_in_use, status.db_size
        self.alarms = tuple(status.alarms)
        state = "full" if self.is_full else "warned" if self.share >= WARNED_SHARE else "fine"
        if state != (self._state or "fine"):
            fields = {"used": self.used, "size": self.size, "quota": self.quota, "alarms": list(self.alarms)}
            self._log(f"store_{state}", fields)
        self._state = state
