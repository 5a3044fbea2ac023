"""The interface to the store that the nodes of a cluster share: keys with values, transactions, leases, watches.

A call returns at once; its `done` comes later, once, on the engine's thread. A call is one try of limited length, and
nothing here tries again by itself. So the caller has to know what a lost answer (`Lost`) means: the store may have
carried the call out, may do so later, or never.

`log.etcd.client` talks to etcd; tests and the simulation have a model of etcd behind the same interface.

House rule: what a store can do beyond this, the engine doesn't need. Keys and values are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar


class Target(Enum):
    """The part of a key that a comparison looks at. A missing key has the revisions 0, and no value equals its."""

    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VALUE = "value"


class Compare(NamedTuple):
    """A condition of a transaction: what `target` names equals `value`."""

    key: bytes
    target: Target
    value: int | bytes


class Put(NamedTuple):
    """Write a key. lease: the key goes when this lease ends; 0 for none."""

    key: bytes
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Delete a key; none is no fault."""

    key: bytes


class Get(NamedTuple):
    """Read a key."""

    key: bytes


class Txn(NamedTuple):
    """If all comparisons hold, all of `success` is done, at one revision; otherwise all of `failure`.

    No key may be written twice in it.
    """

    compares: Sequence[Compare]
    success: Sequence[Put | Delete | Get]
    failure: Sequence[Get] = ()


class KeyValue(NamedTuple):
    """A key that exists. In an event about a deletion only `key` and `mod_revision` count."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class TxnResult(NamedTuple):
    """The outcome of a transaction. gets: of the branch that was taken, one for each Get, in their order."""

    succeeded: bool
    revision: int
    gets: list[KeyValue | None]


class Page(NamedTuple):
    """A part of a range, in the order of keys. revision: at which it was read. more: whether keys are left."""

    revision: int
    kvs: list[KeyValue]
    more: bool


class Event(NamedTuple):
    """A change of a key."""

    kv: KeyValue
    is_delete: bool


class Status(NamedTuple):
    """The state of a member, as it says. db_size, db_in_use: bytes of its file. alarms: "NOSPACE", "CORRUPT"."""

    version: str
    db_size: int
    db_in_use: int
    alarms: Sequence[str] = ()


class Lost(NamedTuple):
    """No answer came. The store may have carried the call out, may do so later, or never."""

    reason: str


class Rejected(NamedTuple):
    """The store reports an error. code: of gRPC. reason: the store's words.

    Mostly it hasn't carried the call out. But it has if its space ran out with this very call, or if its answer was too
    large. The keys decide (writer.py).
    """

    reason: str
    code: int


NOT_FOUND = 5
"""The code of `Rejected` if there is no such lease."""


@dataclass(frozen=True)
class Compacted:
    """A watch, or a range at a revision, wants history that is gone."""


Result = TypeVar("Result")
Done = Callable[[Result | Lost | Rejected], None]
OnEvents = Callable[[list[Event], int], None]
"""Called with changes, oldest first, and the revision that the watch has reached; a revision is never split."""
OnEnd = Callable[[Lost | Compacted], None]


class Port(Protocol):
    """See the module. All methods belong to the engine's thread, and so do all callbacks. store: the store's name."""

    store: str

    def now_ms(self) -> int:
        """Milliseconds of a clock that never goes back, and that counts while the machine sleeps."""

    def later(self, delay_ms: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after a delay. Returns a function that prevents it."""

    def txn(self, txn: Txn, done: Done[TxnResult]) -> None:
        """Carry out a transaction."""

    def range(
        self,
        start: bytes,
        end: bytes,
        done: Done[Page | Compacted],
        *,
        limit: int,
        revision: int = 0,
        keys_only: bool = False,
    ) -> None:
        """Read keys from `start` to before `end`, linearizably. revision: 0 for the newest."""

    def grant(self, ttl_s: int, done: Done[int]) -> None:
        """Make a lease; `done` gets its id."""

    def keep_alive(self, lease: int, done: Done[int]) -> None:
        """Let a lease live for its whole time again; `done` gets that time in seconds, 0 if the lease is gone."""

    def revoke(self, lease: int, done: Done[None]) -> None:
        """End a lease and delete its keys."""

    def watch(self, prefix: bytes, from_revision: int, on_events: OnEvents, on_end: OnEnd) -> Callable[[], None]:
        """Follow all keys with a prefix, with the changes of `from_revision` first. Returns a function that ends it.

        on_end: the watch is over, not by that function.
        """

    def compact(self, revision: int, done: Done[None]) -> None:
        """Forget the history before a revision."""

    def status(self, done: Done[Status]) -> None:
        """Ask a member for its state."""
