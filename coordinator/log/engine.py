"""The engine of the log: what the runtime needs from whatever keeps the groups, and nothing of how it is done.

The metadata log is `offsets.topic.num.partitions` partitions of records. At any time at most one owner writes to a
partition. The life of a partition, as its runtime sees it:

    acquire -> Ownership       the former owner is fenced before this is reported
    load    -> pages, done     the records that are there; from now on appends are taken
    append  -> done            batches, each atomic, in the order of the calls; done says how many are durable
    release

**A failed append closes the partition.** Appends are made from a state in memory, and one that was made on top of a
lost one must not reach the log. So after an Unavailable each further append with this ownership is refused with
Unavailable too, until `load` has read the durable records anew and the runtime has replayed them.

**Threads.** Each call returns at once and may come from one thread at a time. Callbacks come on the engine's own
thread, must not block and must not raise; they may call the engine. A receiver that hops to a loop should hop when the
first outcome arrives and collect the others until the hop has been made: that is once per batch.

**Order.** Of one partition: the outcomes of appends come in the order of the appends, and an append is durable only
after all before it; so `release` and `load` see what was appended before them. The pages of a load come in the order of
the log, and before its `done`; an append that is made before that `done` is refused. Between partitions there is no
order.

**What is whose.** An engine takes the lists that are handed to `append` or `page` over: whoever handed them in doesn't
change them any more.

House rule: nothing in here knows files, networks or groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from protocol.records.batch import Record


class EngineError(Exception):
    """Why the engine could not do what it was asked to; the text is for people."""


class Fenced(EngineError):
    """The ownership is over: it was released, or a newer one exists. Nothing was written and nothing will be."""


class Unavailable(EngineError):
    """It can't be done now, and may work later; the text says why ("No space left on device").

    Of an append: it is not in the log, unless a crash comes before the engine has cleaned up behind it; whoever asked
    was told that it failed and has to expect either, as with any request whose answer is lost.
    """


class Damaged(EngineError):
    """What is stored breaks the rules of the format: the partition is refused until a person has looked at it.

    file: path of the file. position: in bytes. reason: for people.
    """

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file} at byte {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class Ownership(Protocol):
    """The right to write to a partition, until it is released or another one is given out.

    epoch: int32; each owner of a partition has a higher one than the owner before. The first load may raise it.
    """

    @property
    def partition(self) -> int:
        """Of the metadata log, from 0."""

    @property
    def epoch(self) -> int:
        """Higher than that of each former owner."""

    def valid(self) -> bool:
        """Whether it still holds, as far as is known here; may be asked on any thread, and costs nothing.

        What is read while it holds may be shown to clients. False is final.
        """


OnOwnership = Callable[[int, int | None, int], None]
"""(partition, node id of its owner or None, epoch of the owner: -1 if there was none so far, or another node's isn't
known here)."""

Acquired = Callable[[Ownership | EngineError], None]
Page = Callable[[list[Record]], None]
Done = Callable[[EngineError | None], None]
Appended = Callable[[int, Fenced | Unavailable | None], None]
"""(batches that are durable, from the first on; what became of the others, None if there are none)."""


class Engine(Protocol):
    """See the module. One object serves one node."""

    def start(self, on_ownership: OnOwnership) -> None:
        """Begin; called once, before anything else.

        `on_ownership` gets each partition once, as it is now, and then each change. Raises EngineError if this node
        can't work with the store at all.
        """

    def acquire(self, partition: int, done: Acquired) -> None:
        """Become the owner of `partition`. An ownership that this engine has already given out for it is over then.

        done: with the ownership; Unavailable where another owner lives that can't be fenced, or the store can't be
        written; Damaged where there is no higher epoch any more.
        """

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """Read what is in the log, oldest record first, in pages of bounded size; open it for appends.

        At least the last record of each key comes, if it is no tombstone; whatever else comes is older than that.
        done: None once all is there, durable, and appends are taken; Damaged, Unavailable or Fenced otherwise, with
        the pages so far to be forgotten. May be called again at any time, on the same ownership.
        """

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """Write `batches`, at least one, in this order, behind everything appended before.

        Each has at least one record, and all of its records are written or none. done: called once, when all of them
        are durable or those behind the first ones never will be. See the module for what follows an error.
        """

    def release(self, own: Ownership, done: Done) -> None:
        """Give the partition up, once what was appended before is written. done: always None; nothing follows it."""

    def close(self) -> None:
        """Write what was appended, report it, release everything and stop; returns when that is done.

        The store may be opened again afterwards, by anyone. Nothing may be called behind it.
        """
