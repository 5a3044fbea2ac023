"""The engine of the log: the interface through which the runtime stores and reads the groups' records.

The metadata log has `offsets.topic.num.partitions` partitions. At any time at most one owner writes to a partition. The
life of a partition, as its runtime sees it:

    acquire -> Ownership       the former owner is fenced before this is reported
    load    -> pages, done     reads the records of the log; after `done` the engine takes appends
    append  -> done            batches, each atomic, in the order of the calls; done says how many are durable
    release

**A failed append closes the partition.** The runtime makes an append from its state in memory. That state may contain
the records of an earlier append that failed, so the later append must not reach the log. After an Unavailable the
engine therefore refuses every further append of this ownership with Unavailable. It takes appends again once `load` has
read the durable records and the runtime has replayed them.

**Threads.** Each call returns at once. Calls may come from any thread, but only one at a time. Callbacks run on the
engine's own thread. They must not block and must not raise; they may call the engine. A receiver that passes outcomes
to an event loop should wake the loop at the first outcome, and collect further outcomes until the loop runs: this costs
one wake-up per batch.

**Order.** Within a partition, the outcomes of appends come in the order of the appends, and an append is durable only
after all appends before it. So `release` and `load` see every append that was called before them. The pages of a load
come in the order of the log, and before its `done`. The engine refuses an append that is called before that `done`.
Between partitions there is no order.

**Several nodes.** An ownership may move between nodes. The engine says so through `on_ownership`:

    None           no node owns the partition, and this node should acquire it
    NOBODY         no node owns it, and it isn't this node's turn
    another node   it owns the partition. If this node does, in the same epoch, it is a wish: the runtime lets what is
                   under way become durable, answers it, and releases the partition. In a higher epoch this node's
                   ownership is over.

An ownership may lapse: its node can't be sure for a while that no other node has the partition. `valid` is false then;
appends go on, because the store itself refuses those of a former owner. If it was still the owner, `valid` becomes
true again.

**Several logs.** An engine serves one log. Its name and a number identify a partition, also in the names of folders and
lock files.

**Lists.** The engine keeps the lists that are passed to `append` or `page`. The caller must not change them afterwards.

House rule: nothing in here knows files, networks or groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from protocol.records.batch import Record

NOBODY = -1
"""In place of a node id: no node owns the partition, and it isn't this node's turn to acquire it."""


class EngineError(Exception):
    """The engine could not do a call; the text gives the reason, for people."""


class Fenced(EngineError):
    """The ownership is over: it was released, or a newer one exists. Nothing was written and nothing will be."""

    @classmethod
    def of(cls, own: Ownership) -> Self:
        """The error for a call with an ownership that is over."""
        return cls(f"the ownership of partition {own.partition} at epoch {own.epoch} is over")


class Unavailable(EngineError):
    """The call failed now and may succeed later; the text gives the reason ("No space left on device").

    After this error an append is not in the log, with one exception: if a crash comes before the engine has removed the
    bytes of the append, it may be in the log. The client got an error and has to expect both cases, as after any
    request without a response.
    """


class Damaged(EngineError):
    """Stored bytes break the rules of the format. The partition is refused until a person has looked at it.

    file: path of the file. position: in bytes. reason: for people.
    """

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file} at byte {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class Ownership(Protocol):
    """The right to write to a partition, until its owner releases it or the engine gives out a newer one.

    epoch: int32; each owner of a partition has a higher epoch than the owner before. The first load may raise it.
    """

    @property
    def partition(self) -> int:
        """The partition of the metadata log, from 0."""

    @property
    def epoch(self) -> int:
        """The owner's epoch: higher than that of each former owner."""

    def valid(self) -> bool:
        """Whether this process still takes the ownership as valid. Any thread may call this; it costs little.

        A server may answer clients with data that it reads while this is true. After a lapse it may be true again.
        """

    @property
    def lapses(self) -> int:
        """How many lapses have ended. It grows before `valid` becomes true again."""


OnOwnership = Callable[[int, int | None, int], None]
"""Called with the partition, the node id of its owner (None or NOBODY: no owner), and the owner's epoch (-1: no owner
so far, or another node whose epoch this node doesn't know).
"""

Acquired = Callable[[Ownership | EngineError], None]
Page = Callable[[list[Record]], None]
Done = Callable[[EngineError | None], None]
Appended = Callable[[int, Fenced | Unavailable | None], None]
"""Called with the number of durable batches, counted from the first, and the error of the other batches (None: no
others).
"""


class Engine(Protocol):
    """See the module. One object serves one node."""

    def start(self, on_ownership: OnOwnership) -> None:
        """Begin; called once, before anything else.

        The engine calls `on_ownership` once for each partition with its present owner, and then at each change. Raises
        EngineError if this node can't work with the store at all.
        """

    def acquire(self, partition: int, done: Acquired) -> None:
        """Become the owner of `partition`. This ends an ownership of the partition that this engine gave out earlier.

        done: with the ownership; or Unavailable if another live owner can't be fenced, or the store can't be written;
        or Damaged if no higher epoch exists.
        """

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """Read the records of the log, oldest first, in pages of bounded size; then open the log for appends.

        The pages contain at least the last record of each key, unless that record is a tombstone. They may contain
        older records of the key too, in front of it.
        Records of an aborted transaction aren't there. Those of a transaction that is open come last, each page of them
        a `Batch` with the producer's id.
        A store that keeps only the last record of each key may bring the keys in their own order, and without times.
        done: None when all records were read and are durable, and the engine takes appends; otherwise Damaged,
        Unavailable or Fenced, and the caller drops the pages that it got. One ownership may be loaded several times.
        """

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """Write `batches`, at least one, in this order, behind all earlier appends.

        Each batch has at least one record; the engine writes all records of a batch or none. done: called once, when
        all batches are durable, or when an error is final for those behind the first ones. The module says what an
        error means for later appends.
        """

    def release(self, own: Ownership, done: Done) -> None:
        """Give the partition up, once all earlier appends are written. done: always None; no callback follows it.

        Then a node for which the engine wished the release gets the partition; without a wish it is free.
        """

    def close(self) -> None:
        """Write and report all appends, release all partitions and stop; return when that is done.

        Any process may open the store afterwards. No method may be called after this one.
        """
