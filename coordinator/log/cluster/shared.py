"""The entries that the nodes of a cluster share beside groups: a name and a value each. Any node may change them.

All keys begin with /CLUSTER/state/.

    entry/NAME   the value of an entry
    head         SEQUENCE:NODE/TAG, the last change
    by/ID        the head after the last change of that node

**A change** is a function that looks at the entries and says what to write. The transaction has one condition: the head
is still the one that the function's entries belong to. So the nodes make their changes one after the other, and each
knows all the changes before it. If another node was first, the function is asked anew with the newer entries.

If the answer is lost, the same transaction is sent again, until the store tells its outcome: either by/ID has this
change's tag, or the head is another one. A head never returns to a former value, so a try that comes late changes
nothing.

**Each node has a copy** of all entries, follows the changes in their order, and tells them on (`follow`). A node
answers its own change when its own copy has it. Every POLL_MS it compares its copy with the head in the store: a
watch at a member of the store that stands still says nothing, and gives no sign of it. If its copy is behind, or its
watch wants history that was compacted, the node reads all entries anew. The difference is what has changed.

A change that is too large for one transaction is made in several; another node may see it in parts.

House rule: what entries mean is decided elsewhere. No key is written without a condition on the head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from coordinator.log.cluster.keys import Keys, prefix_end
from coordinator.log.cluster.port import (
    Compacted,
    Compare,
    Delete,
    Event,
    Get,
    KeyValue,
    Lost,
    Page,
    Port,
    Put,
    Rejected,
    Target,
    Txn,
    TxnResult,
)
from coordinator.log.engine import EngineError, Unavailable

POLL_MS = 1_000
AGAIN_MS = 50
"""Pause before a call without an answer is made again."""
GIVE_UP_MS = 4_000
"""How long a change waits for an answer of the store: longer than an election takes."""
SILENT_MS, GIVE_UP_SOON_MS = 3_000, 500
"""If no answer came for the first of these times when a change is asked for, the change waits for the second
only. It may have waited behind another change already.
"""
PAGE_KEYS = 1_000
OPERATIONS_MAX = 128
BYTES_MAX = 1_000_000
"""Operations, and bytes of keys and values, in a transaction. etcd takes requests of 1.5 MiB."""

Writes = Mapping[str, bytes | None]
"""New values of entries by their names; None removes one."""
Decide = Callable[[Mapping[str, bytes]], Writes]
"""Says what to write, for these entries. It may be asked again, and then finds what it wrote in part."""
OnChange = Callable[[Writes], object]


class StateHead(NamedTuple):
    """The value of state/head."""

    sequence: int
    by: str

    def text(self) -> bytes:
        """The value."""
        return f"{self.sequence}:{self.by}".encode()


NO_CHANGE = StateHead(0, "")
"""Before the first change."""
UNREADABLE = StateHead(-1, "")
"""Of a head that another version wrote, and that this one can't read."""


def parse_state_head(value: bytes) -> StateHead:
    """Read a head. Raises ValueError."""
    sequence, by = value.decode().split(":", 1)
    return StateHead(int(sequence), by)


def _any_head(value: bytes) -> StateHead:
    """Read a head that any version may have written."""
    try:
        return parse_state_head(value)
    except ValueError:
        return UNREADABLE


class _Change:
    """A change that waits, or is under way.

    asked_ms: when it was asked for. waits_ms: how long it may wait for an answer. is_over: whether its caller
    has the outcome. why: why its last try failed.
    """

    def __init__(
        self, decide: Decide, done: Callable[[EngineError | None], None], asked_ms: int, waits_ms: int
    ) -> None:
        self.decide = decide
        self.asked_ms = asked_ms
        self.waits_ms = waits_ms
        self.is_over = False
        self.why = "no answer in time"
        self._done = done

    def tell(self, error: EngineError | None) -> None:
        """Give the caller the outcome. Further calls do nothing."""
        if not self.is_over:
            self.is_over = True
            self._done(error)


class Shared:
    """See the module. All methods are for the engine's thread.

    fresh_tag: makes texts that never repeat.
    entries: by name. revision: of `entries`; 0 as long as they aren't known. rereads: how often a copy was behind.
    """

    def __init__(self, port: Port, keys: Keys, node_id: int, fresh_tag: Callable[[], str]) -> None:
        self.entries: dict[str, bytes] = {}
        self.revision = 0
        self.rereads = 0
        self._on_change: OnChange = lambda _writes: None
        self._port = port
        self._prefix = keys.state
        self._entry = keys.state + b"entry/"
        self._head_key = keys.state + b"head"
        self._mark_key = keys.state + b"by/%d" % node_id
        self._node_id = node_id
        self._fresh_tag = fresh_tag
        self._head = NO_CHANGE
        self._changes: deque[_Change] = deque()
        # When the store last answered a transaction of a change; and when it last answered one, or a poll.
        self._answered_ms = 0
        self._heard_ms = port.now_ms()
        self._is_writing = False
        self._is_reading = False
        self._unwatch: Callable[[], None] | None = None
        # Calls that wait until the copy has a revision.
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._ended = False

    def start(self) -> None:
        """Begin to follow."""
        self._read()
        self._port.later(POLL_MS, self._poll)

    def end(self) -> None:
        """Follow no more, and end all changes."""
        self._ended = True
        if self._unwatch is not None:
            self._unwatch()
        changes, self._changes = self._changes, deque()
        for change in changes:
            change.tell(Unavailable("the node ends"))

    def follow(self, on_change: OnChange) -> Mapping[str, bytes]:
        """The entries now; `on_change` gets all later changes, oldest first."""
        self._on_change = on_change
        return dict(self.entries)

    # Changes.

    def change(self, decide: Decide, done: Callable[[EngineError | None], None]) -> None:
        """Make a change. done: called when this copy has it, or with an error: then it may be made all the same."""
        if self._ended:
            done(Unavailable("the node ends"))
            return
        now_ms = self._port.now_ms()
        change = _Change(decide, done, now_ms, GIVE_UP_SOON_MS if now_ms - self._heard_ms >= SILENT_MS else GIVE_UP_MS)
        self._changes.append(change)
        self._give_up(change)
        self._next()

    def _give_up(self, change: _Change) -> None:
        """End a change once the store has answered no change for so long; until then, look again later."""
        silent_ms = self._port.now_ms() - max(change.asked_ms, self._answered_ms)
        if silent_ms >= change.waits_ms:
            change.tell(Unavailable(f"{self._port.store} doesn't answer: {change.why}"))
        elif not change.is_over:
            self._port.later(change.waits_ms - silent_ms, partial(self._give_up, change))

    def _next(self) -> None:
        """Begin the oldest change, if none is under way."""
        if self._changes and not self._is_writing:
            self._is_writing = True
            self._when_at(1, self._write)

    def _write(self) -> None:
        """Write the next part of the change under way, by the entries as they are now."""
        if not self._changes:
            self._is_writing = False
            return
        change = self._changes[0]
        if change.is_over:
            self._over(None)
            return
        if self._head == UNREADABLE:
            name = self._head_key.decode()
            self._over(Unavailable(f"{name} has a value that this version can't read: nothing is written"))
            return
        try:
            writes = change.decide(self.entries)
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not hold up all later changes
            self._over(Unavailable(repr(error)))
            return
        part = dict(islice(writes.items(), _fitting(writes)))
        if not part:
            self._over(None)
            return
        head = StateHead(self._head.sequence + 1, f"{self._node_id}/{self._fresh_tag()}")
        condition = (
            Compare(self._head_key, Target.CREATE_REVISION, 0)
            if self._head == NO_CHANGE
            else Compare(self._head_key, Target.VALUE, self._head.text())
        )
        operations: list[Put | Delete] = []
        for name, value in part.items():
            key = self._entry + entry_bytes(name)
            operations.append(Delete(key) if value is None else Put(key, value))
        text = head.text()
        txn = Txn(
            [condition],
            [Put(self._head_key, text), Put(self._mark_key, text), *operations],
            [Get(self._head_key), Get(self._mark_key)],
        )
        self._send(txn, head, part, is_last=len(part) == len(writes))

    def _send(self, txn: Txn, head: StateHead, part: Writes, *, is_last: bool) -> None:
        self._port.txn(txn, partial(self._told, txn, head, part, is_last=is_last))

    def _told(
        self, txn: Txn, head: StateHead, part: Writes, outcome: TxnResult | Lost | Rejected, *, is_last: bool
    ) -> None:
        if not isinstance(outcome, Lost):
            self._answered_ms = self._heard_ms = self._port.now_ms()
        go_on = partial(self._over, None) if is_last else self._write
        if not self._changes:
            self._is_writing = False
        elif isinstance(outcome, Rejected):
            self._over(Unavailable(f"{self._port.store} refuses to write: {outcome.reason}"))
        elif isinstance(outcome, Lost):
            self._changes[0].why = outcome.reason
            if self._changes[0].is_over:
                self._over(None)
            else:
                self._port.later(AGAIN_MS, partial(self._send, txn, head, part, is_last=is_last))
        elif outcome.succeeded:
            # The copy was as the condition says, so it has all changes before this one.
            if outcome.revision > self.revision:
                self.revision, self._head = outcome.revision, head
                self._apply(part)
            go_on()
        else:
            found = outcome.gets[1]
            was_done = found is not None and found.value == head.text()
            self._when_at(outcome.revision, go_on if was_done else self._write)
            self._read()

    def _over(self, error: EngineError | None) -> None:
        self._is_writing = False
        if self._changes:
            self._changes.popleft().tell(error)
            self._next()

    # The copy.

    def _when_at(self, revision: int, call: Callable[[], None]) -> None:
        """Call when the copy has at least this revision."""
        if self.revision >= revision:
            call()
        else:
            self._waiting.append((revision, call))

    def _moved_on(self) -> None:
        ready = [call for revision, call in self._waiting if revision <= self.revision]
        self._waiting = [each for each in self._waiting if each[0] > self.revision]
        for call in ready:
            call()

    def _poll(self) -> None:
        """Look whether the copy is behind."""
        if self._ended:
            return
        self._port.later(POLL_MS, self._poll)

        def told(outcome: TxnResult | Lost | Rejected) -> None:
            if isinstance(outcome, TxnResult):
                self._heard_ms = self._port.now_ms()
                (head,) = outcome.gets
                if head is not None and head.mod_revision > self.revision:
                    self.rereads += 1
                    self._read()

        self._port.txn(Txn([], [Get(self._head_key)]), told)

    def _read(self) -> None:
        """Read all keys, unless that is under way."""
        if not self._is_reading and not self._ended:
            self._is_reading = True
            self._read_page([], self._prefix, 0, PAGE_KEYS)

    def _read_page(self, found: list[KeyValue], start: bytes, revision: int, limit: int) -> None:
        def told(outcome: Page | Compacted | Lost | Rejected) -> None:
            if self._ended:
                return
            if not isinstance(outcome, Page):
                # A refusal: the page was too large for gRPC.
                smaller = max(limit // 4, 1) if isinstance(outcome, Rejected) else limit
                self._port.later(AGAIN_MS, partial(self._read_page, [], self._prefix, 0, smaller))
                return
            kvs = [*found, *outcome.kvs]
            if outcome.more:
                self._read_page(kvs, outcome.kvs[-1].key + b"\0", revision or outcome.revision, limit)
            else:
                self._is_reading = False
                self._take_all(kvs, revision or outcome.revision)

        self._port.range(start, prefix_end(self._prefix), told, limit=limit, revision=revision)

    def _take_all(self, kvs: list[KeyValue], revision: int) -> None:
        """Take what was read, if it is newer than the copy."""
        if revision > self.revision:
            self.revision = revision
            self._head = next((_any_head(kv.value) for kv in kvs if kv.key == self._head_key), NO_CHANGE)
            entries = {self._name(kv.key): kv.value for kv in kvs if kv.key.startswith(self._entry)}
            writes: dict[str, bytes | None] = dict.fromkeys(self.entries.keys() - entries.keys())
            writes |= {name: value for name, value in entries.items() if self.entries.get(name) != value}
            if writes:
                self._apply(writes)
        if self._unwatch is None:
            self._unwatch = self._port.watch(self._prefix, self.revision + 1, self._take, self._watch_ended)
        self._moved_on()
        if self._waiting:  # for a revision after this reading began
            self._read()

    def _take(self, events: list[Event], _revision: int) -> None:
        """Take changes from the watch. Its own revision doesn't count: the watch of a late member runs ahead of it."""
        if self._ended:
            return
        writes: dict[str, bytes | None] = {}
        revision = self.revision
        for kv, is_delete in events:
            if kv.mod_revision <= self.revision:
                continue
            revision = kv.mod_revision
            if kv.key == self._head_key:
                self._head = NO_CHANGE if is_delete else _any_head(kv.value)
            elif kv.key.startswith(self._entry):
                writes[self._name(kv.key)] = None if is_delete else kv.value
        self.revision = revision
        if writes:
            self._apply(writes)
        self._moved_on()

    def _watch_ended(self, _why: Lost | Compacted) -> None:
        self._unwatch = None
        self._read()

    def _apply(self, writes: Writes) -> None:
        for name, value in writes.items():
            if value is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = value
        self._on_change(writes)

    def _name(self, key: bytes) -> str:
        return entry_name(key[len(self._entry) :])


def entry_name(key: bytes) -> str:
    """The name of an entry, from the last part of its key. Surrogates stand for bytes that are no text."""
    return key.decode(errors="surrogateescape")


def entry_bytes(name: str) -> bytes:
    """The last part of the key of an entry."""
    return name.encode(errors="surrogateescape")


def _fitting(writes: Writes) -> int:
    """How many of these fit into one transaction, from the first; at least one."""
    size = 0
    for number, (name, value) in enumerate(writes.items()):
        size += len(entry_bytes(name)) + len(value or b"")
        if number and (number + 2 >= OPERATIONS_MAX or size > BYTES_MAX):
            return number
    return len(writes)
