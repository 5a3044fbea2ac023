"""The transactions of this server: the log of transactional ids, and the markers that end a transaction.

The log is opened when a client first asks for a coordinator of transactions, or at the start if it ever was: a server
without transactional producers pays nothing. It has a runtime and an engine of its own.

When the end of a transaction is durable, its coordinator asks for markers (`Markers`). Each partition gets one: those
of topics through the topics' logs, those of `__consumer_offsets` through the groups' runtime. A partition that can't
take its marker now is asked again later, for as long as it takes: only a deleted topic needs none. Kafka 4.3 gives up
on partitions that it finds without a leader, and an acknowledged commit may stay invisible for ever.

Nodes share the log (workers, or the nodes of a test): each owns some of its partitions. For a transaction, a node asks
another one through its `Link`. A question is a list, and its first item is its kind:

    "marker", and the fields of a `Marker`       has the node write it; the answer is whether it is written
    "add", and the fields of an `AddPartitions`  from `transactional_id` on; the answer has an error for each partition
    "ongoing"                                    the answer has the producer ids of open transactions
    "open"                                       has the node open the log

A marker that gets no answer is asked for again. A node answers nothing before its logs are open. The nodes of a cluster
have no such way, and refuse transactions.

House rule: no rule of transactions is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

from coordinator import pages
from coordinator.group.client import NOBODY
from coordinator.group.events import EndTransaction
from coordinator.group.partition import partition_for
from coordinator.group.transactions import marker
from coordinator.log.engine import Engine, EngineError, Unavailable
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.log.store import Store
from coordinator.log.topics.list import Topic
from coordinator.log.topics.log import Written
from coordinator.loop.clock import Clock
from coordinator.server.nodes.discovery import Discovery
from coordinator.server.nodes.topic_data import TopicData
from coordinator.server.relay import Link, unanswered
from coordinator.server.runtime.kinds import LogKind, transactional_ids
from coordinator.server.runtime.partition import ACTIVE, Partition
from coordinator.server.runtime.replies import Errand, Reply
from coordinator.server.runtime.runtime import Runtime
from coordinator.transaction.events import (
    AddPartitions,
    DescribeTransaction,
    InitProducerId,
    Markers,
    MarkersWritten,
    Outcome,
)
from coordinator.transaction.state import Status, TopicPartition
from schemas.errors import ErrorCode

RETRY_MS = 100
"""How long a marker waits before it is tried again."""

NO_OTHER_LOG = (
    "Transactions need a single server, with or without workers: a cluster on etcd (tenure.store) has none "
    f"({pages.TRANSACTIONS})."
)


def _nothing(_: object) -> None:
    """Take an answer that changes nothing: a start tries again what failed, and finds a log that was opened."""


class Marker(NamedTuple):
    """A marker for a partition. coordinator_epoch: of the partition of the transactional id."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int


class Transactions:
    """See the module.

    make_runtime: makes the runtime of a log from its engine and its kind. peers: None if there is no other node.
    runtime: of the log; None as long as it isn't open.
    refusal: why this server serves no transactions; "" if it does. ended: transactions since the start, by outcome; an
    abort that is found in the log counts as one by its producer.
    """

    def __init__(
        self,
        store: Store,
        make_runtime: Callable[[Engine, LogKind], Runtime],
        groups: Runtime,
        data: TopicData,
        discovery: Discovery,
        clock: Clock,
        peers: Link | None = None,
    ) -> None:
        self.refusal = NO_OTHER_LOG if store.other is None else ""
        self._other = store.other
        self._make_runtime = make_runtime
        self._groups = groups
        self._data = data
        self._discovery = discovery
        self._clock = clock
        self._peers = peers
        self._node_id = groups.config.node_id
        self._kind = transactional_ids(self._write)
        self._partition_count = self._kind.partition_count(groups.config)
        self._engine: Engine | None = None
        self.runtime: Runtime | None = None
        self.ended: Counter[Outcome] = Counter()

    def start(self) -> None:
        """Open the log if it ever was open, and answer other nodes. Raises EngineError."""
        self.open_if_known()
        if self._peers is not None:
            self._peers.on_asked = self._asked

    def open_if_known(self) -> None:
        """Open the log if it ever was open: transactions may be open in it. Raises EngineError."""
        if self._other is not None and self._other.exists(TRANSACTIONS_TOPIC):
            self._opened()

    def _opened(self) -> Runtime:
        """The runtime of the log, which all nodes show as a topic from then on. Raises EngineError.

        A server that ends opens no log: its engines share a thread, which ends with the groups' engine.
        """
        if self.runtime is None:
            if self._groups.is_ending:
                raise Unavailable("the server ends")
            assert self._other is not None
            engine = self._other.engine(TRANSACTIONS_TOPIC, self._partition_count)
            runtime = self._make_runtime(engine, self._kind)
            runtime.start()
            self._engine, self.runtime = engine, runtime
            if not self._discovery.shows_ids:
                self._discovery.shows_ids = True
                for node_id in self._discovery.node_ids:
                    if node_id != self._node_id:
                        self._ask(node_id, ["open"], _nothing)
            topic = self._discovery.ids
            assert topic is not None
            runtime.on_durable = self._data.on_written(topic)
        return self.runtime

    def open(self) -> None:
        """Open the log at all nodes, so that clients see it as a topic; if it can't be opened, the next use says so."""
        with suppress(EngineError):
            self._opened()

    def abort_left(self) -> None:
        """Abort what no transactional id has open, once all ids and groups are loaded.

        A broker's folder that was taken over has such pending offsets. Nobody else would ever end them, and consumers
        that ask for stable offsets would wait for ever.
        """
        if any(each.standing is not ACTIVE for each in self.partitions()):
            return
        owners = () if self._other is None else map(self._other.owners, range(self._partition_count))
        others = sorted(set(owners) - {self._node_id})
        pending = [each.coordinator.pending_producers() for each in self._groups.served()]
        self._abort_unknown(set().union(*pending) - self._open_here(), others)

    def _open_here(self) -> set[int]:
        """The producer ids of the open transactions of this node."""
        ids = [known for partition in self.partitions() for known in partition.coordinator.groups.values()]
        return {each.producer_id for each in ids if each.status is Status.ONGOING or each.status.is_ending}

    def _abort_unknown(self, unknown: set[int], nodes: Sequence[int]) -> None:
        """Abort what these producers have pending here, unless one of `nodes` has their transaction.

        A transaction may end, and the next one of its producer begin, while nodes are asked. So only offsets count
        that are pending when the answer comes: the next transaction's come later.
        """
        if self._groups.is_ending:
            return
        pending = [(each, each.coordinator.pending_producers() & unknown) for each in self._groups.served()]
        unknown = set().union(*(some for _, some in pending))
        if unknown and nodes:
            self._ask(nodes[0], ["ongoing"], partial(self._abort_others, unknown, nodes))
            return
        for partition, some in pending:
            for producer_id in some:
                event = EndTransaction(Errand(_nothing), producer_id, 0, is_commit=False, coordinator_epoch=0)
                partition.submit(None, event)

    def _abort_others(self, unknown: set[int], nodes: Sequence[int], answer: list[int] | None) -> None:
        """As `_abort_unknown`, once the first node has answered. If it can't, its partitions may move: begin anew."""
        if answer is None:
            self._clock.call_at(self._clock.ms() + RETRY_MS, self.abort_left)
        else:
            self._abort_unknown(unknown - set(answer), nodes[1:])

    def submit(self, transactional_id: str, event: Any) -> None:
        """Hand a request about a transactional id to its partition. `event.request` is a Reply.

        Only InitProducerId opens the log: in one that was never open, there is no id.
        """
        if self._owner(transactional_id) != self._node_id:
            event.request.deliver(event.refused(ErrorCode.NOT_COORDINATOR))
            return
        if self.runtime is None and not isinstance(event, InitProducerId):
            is_asked = isinstance(event, DescribeTransaction)
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_asked else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            event.request.deliver(event.refused(error))
            return
        try:
            runtime = self._opened()
        except EngineError:
            event.request.deliver(event.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            runtime.submit(transactional_id, event)

    def _owner(self, transactional_id: str) -> int:
        """The node of a transactional id. A single server need not find out."""
        return self._node_id if self._peers is None else self._discovery.owner_of_id(transactional_id)

    def submit_anywhere(self, transactional_id: str, event: AddPartitions) -> None:
        """As `submit`, even if another node has the transactional id."""
        owner = self._owner(transactional_id)
        if owner == self._node_id:
            self.submit(transactional_id, event)
            return
        partitions, reply = list(event.partitions), event.request
        assert isinstance(reply, Reply)

        def answered(errors: list[int] | None) -> None:
            if errors is None:
                reply.deliver(event.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                reply.deliver(dict(zip(partitions, map(ErrorCode, errors), strict=True)))

        ids = transactional_id, event.producer_id, event.epoch
        self._ask(owner, ["add", *ids, partitions, event.only_verify, event.waits, event.version], answered)

    def partitions(self) -> Sequence[Partition]:
        """The partitions of the log that this node owns; none if it was never open."""
        if self.runtime is None or self._other is None:
            return ()
        owners = self._other.owners
        return [each for each in self.runtime.partitions if owners(each.index) == self._node_id]

    def partition_of_group(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that a group's offsets lie in."""
        return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, len(self._groups.partitions)))

    # Other nodes.

    def _ask(self, node_id: int, question: list[Any], done: Callable[[Any], None]) -> None:
        assert self._peers is not None
        self._peers.ask(node_id, question, done)

    def _asked(self, question: list[Any], answer: Callable[[Any], None]) -> None:
        """Answer another node."""
        what, *fields = question
        if what == "marker":
            self._settle(Marker(*fields), answer)
        elif what == "add":
            transactional_id, producer_id, epoch, pairs, *rest = fields
            partitions = list(starmap(TopicPartition, pairs))
            errand = Errand(lambda found: answer([found[each] for each in partitions]))
            event = AddPartitions(errand, NOBODY, transactional_id, producer_id, epoch, partitions, *rest)
            self.submit(transactional_id, event)
        elif what == "open":
            self._discovery.shows_ids = True
            self.open()
            answer(None)
        else:
            assert what == "ongoing"
            is_known = all(each.standing is ACTIVE for each in self.partitions())
            answer(sorted(self._open_here()) if is_known else None)

    # Markers.

    def _write(self, index: int, asked: Markers) -> None:
        """Write the markers of a transaction. index: of its coordinator's partition."""
        self.ended[asked.outcome] += 1
        self._write_some(index, asked, asked.partitions)

    def _try_again(self, index: int, asked: Markers, partitions: Collection[TopicPartition]) -> None:
        """Write the markers that failed, unless a load has asked anew: a late one would settle the next transaction."""
        assert self.runtime is not None
        if not self.runtime.is_ending and self.runtime.partitions[index].coordinator.awaits(asked):
            self._write_some(index, asked, partitions)

    def _write_some(self, index: int, asked: Markers, partitions: Collection[TopicPartition]) -> None:
        left = set(partitions)
        failed: list[TopicPartition] = []

        def done(partition: TopicPartition, is_written: bool) -> None:  # noqa: FBT001 - a callback
            left.discard(partition)
            if not is_written:
                failed.append(partition)
            if not left:
                self._written(index, asked, failed)

        if not partitions:
            self._written(index, asked, failed)
        for each in list(partitions):
            self._write_one(index, asked, each, partial(done, each))

    def _write_one(self, index: int, asked: Markers, where: TopicPartition, done: Callable[[bool], None]) -> None:
        assert self.runtime is not None
        own = self.runtime.partitions[index].ownership
        one = Marker(*where, asked.producer_id, asked.epoch, asked.is_commit, 0 if own is None else own.epoch)
        topic = self._topic(where)
        if topic is None:
            done(True)
            return
        leader = self._discovery.leader(topic, where.partition)
        if leader == self._node_id:
            self._settle(one, done)
        else:
            self._ask(leader, ["marker", *one], lambda is_written: done(bool(is_written)))

    def _topic(self, where: TopicPartition | Marker) -> Topic | None:
        """The topic of a partition; None if it is deleted."""
        topic = self._discovery.topic(where.topic)
        return topic if topic is not None and where.partition < topic.partition_count else None

    def _settle(self, one: Marker, done: Callable[[bool], None]) -> None:
        """Write a marker into a partition of this node."""
        if one.topic == OFFSETS_TOPIC:
            answer = Errand(lambda error: done(error is ErrorCode.NONE))
            event = EndTransaction(answer, one.producer_id, one.epoch, one.is_commit, one.coordinator_epoch)
            self._groups.partitions[one.partition].submit(None, event)
            return
        topic = self._topic(one)
        if topic is None:  # deleted since the question
            done(True)
            return
        batch = marker(
            one.producer_id,
            one.epoch,
            is_commit=one.is_commit,
            coordinator_epoch=one.coordinator_epoch,
            wall_ms=self._clock.wall_ms(),
        )
        partition = self._data.topic_partition(topic, one.partition)
        self._data.append_marker(partition, batch, lambda outcome: done(isinstance(outcome, Written)))

    def _written(self, index: int, asked: Markers, failed: list[TopicPartition]) -> None:
        """Some markers are written, and the others are tried again."""
        runtime = self.runtime
        if runtime is None or runtime.is_ending:
            return
        partition = runtime.partitions[index]
        if failed:
            at_ms = self._clock.ms() + RETRY_MS
            self._clock.call_at(at_ms, partial(self._try_again, index, asked, failed))
        elif partition.standing is ACTIVE:  # else its next load asks for the markers again
            partition.handle(asked.transactional_id, MarkersWritten(asked))

    # The end.

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when no append is under way and no answer is deferred."""
        if self.runtime is None:
            callback()
        else:
            self.runtime.when_idle(callback)

    def wind_down(self) -> None:
        """As the runtime's."""
        if self._peers is not None:
            self._peers.on_asked = unanswered
        if self.runtime is not None:
            self.runtime.wind_down()

    def close(self) -> None:
        """Close the log. This waits for the disk."""
        if self._engine is not None:
            self._engine.close()
