"""A copy of all keys with a prefix, which follows their changes.

It reads them, then watches. Every POLL_MS it reads them again: a watch at a member of the store that stands still says
nothing, and gives no sign of it. The state with the higher revision counts. So the copy is at most about POLL_MS old,
as long as the store answers.

House rule: for few keys; all are read at each poll.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.log.cluster.keys import prefix_end
from coordinator.log.cluster.port import Compacted, Event, KeyValue, Lost, Page, Port, Rejected

POLL_MS = 1_000
KEYS_MAX = 100_000
"""More keys than that are not expected under a prefix."""


class Follower:
    """See the module.

    on_change: called after each change of `keys`, and first when they are known.
    keys: by name. revision: of `keys`; 0 as long as they aren't known.
    """

    def __init__(self, port: Port, prefix: bytes, on_change: Callable[[], None]) -> None:
        self.keys: dict[bytes, KeyValue] = {}
        self.revision = 0
        self._port = port
        self._prefix = prefix
        self._on_change = on_change
        self._unwatch: Callable[[], None] | None = None
        self._ended = False

    def start(self) -> None:
        """Begin to follow: read the keys, now and at each poll."""
        if not self._ended:
            self._port.later(POLL_MS, self.start)
            self.read()

    def end(self) -> None:
        """Follow no more."""
        self._ended = True
        if self._unwatch is not None:
            self._unwatch()

    def read(self) -> None:
        """Read the keys now, without waiting for the next poll."""
        self._port.range(self._prefix, prefix_end(self._prefix), self._read, limit=KEYS_MAX)

    def forget(self, key: bytes) -> None:
        """A key is gone, as this node knows by its own doing; the watch says so later."""
        if self.keys.pop(key, None) is not None:
            self._on_change()

    def _read(self, page: Page | Compacted | Lost | Rejected) -> None:
        if self._ended or not isinstance(page, Page):
            return
        if page.revision > self.revision:
            is_first = not self.revision
            before, self.keys = self.keys, {kv.key: kv for kv in page.kvs}
            self.revision = page.revision
            if is_first or before != self.keys:
                self._on_change()
        if self._unwatch is None:
            self._unwatch = self._port.watch(self._prefix, self.revision + 1, self._take, self._watch_ended)

    def _take(self, events: list[Event], _revision: int) -> None:
        # The revision of an answer may be beyond its last event, with more events up to it to come.
        news = [event for event in events if event.kv.mod_revision > self.revision]
        if self._ended or not news:
            return
        for kv, is_delete in news:
            if is_delete:
                self.keys.pop(kv.key, None)
            else:
                self.keys[kv.key] = kv
        self.revision = news[-1].kv.mod_revision
        self._on_change()

    def _watch_ended(self, _why: Lost | Compacted) -> None:
        self._unwatch = None
        if not self._ended:
            self.read()
