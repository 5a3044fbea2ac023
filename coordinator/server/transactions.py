"""The transactions of this server: the log of transactional ids, and the markers that end a transaction.

The log is opened by the first request that needs it, or at the start if it was ever used: a server without
transactional producers pays nothing. It has a runtime and an engine of its own.

When the end of a transaction is durable, its coordinator asks for markers (`Markers`). Each partition gets one: those
of topics through the topics' logs, those of `__consumer_offsets` through the groups' runtime. A partition that can't
take its marker now is asked again later, for as long as it takes: only a deleted topic needs none. Kafka 4.3 gives up
on partitions that it finds without a leader, and an acknowledged commit may stay invisible for ever.

Workers and the nodes of a cluster have no way to each other for markers, so they refuse transactions.

House rule: no rule of transactions is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from coordinator import pages
from coordinator.group.events import EndTransaction
from coordinator.group.partition import partition_for
from coordinator.group.transactions import marker
from coordinator.log.engine import EngineError
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.log.topics.log import Written
from coordinator.server.runtime.kinds import TransactionalIds
from coordinator.server.runtime.partition import ACTIVE
from coordinator.server.runtime.replies import Errand
from coordinator.transaction.events import DescribeTransaction, InitProducerId, MarkersWritten
from coordinator.transaction.refuse import refuse
from coordinator.transaction.state import Status, TopicPartition
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.log.engine import Engine
    from coordinator.log.store import Store
    from coordinator.server.clock import Clock
    from coordinator.server.nodes.discovery import Discovery
    from coordinator.server.nodes.topic_data import TopicData
    from coordinator.server.runtime.kinds import LogKind
    from coordinator.server.runtime.partition import Partition
    from coordinator.server.runtime.runtime import Runtime
    from coordinator.transaction.events import Markers, Outcome

RETRY_MS = 100
"""How long a marker waits before it is tried again."""

NO_OTHER_LOG = (
    "Transactions need a single server: neither workers (tenure.workers) nor the nodes of a cluster (tenure.store) "
    f"serve them ({pages.TRANSACTIONS})."
)


def _nothing(_: object) -> None:
    """If the marker can't be written, the next start tries it again."""


class Transactions:
    """See the module. make_runtime: makes the runtime of a log from its engine and its kind.

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
    ) -> None:
        self.refusal = NO_OTHER_LOG if store.other is None or store.cluster is not None else ""
        self._other = store.other
        self._make_runtime = make_runtime
        self._groups = groups
        self._data = data
        self._discovery = discovery
        self._clock = clock
        self._kind = TransactionalIds(self._write)
        self._engine: Engine | None = None
        self._runtime: Runtime | None = None
        self.ended: Counter[Outcome] = Counter()

    def start(self) -> None:
        """Open the log if it was ever used: transactions may be open in it. Raises EngineError."""
        if self._other is not None and self._other.exists(TRANSACTIONS_TOPIC):
            self._opened()

    def _opened(self) -> Runtime:
        """The runtime of the log. Raises EngineError."""
        if self._runtime is None:
            assert self._other is not None
            count = self._kind.partition_count(self._groups.config)
            engine = self._other.engine(TRANSACTIONS_TOPIC, count)
            runtime = self._make_runtime(engine, self._kind)
            runtime.start()
            self._engine, self._runtime = engine, runtime
        return self._runtime

    def abort_left(self) -> None:
        """Abort what no transactional id here has open, once all ids and groups are loaded.

        A broker's folder that was taken over has such pending offsets. Nobody else would ever end them, and consumers
        that ask for stable offsets would wait for ever.
        """
        if any(each.standing is not ACTIVE for each in self.partitions()):
            return
        ids = [known for partition in self.partitions() for known in partition.coordinator.groups.values()]
        known_open = {each.producer_id for each in ids if each.status is Status.ONGOING or each.status.is_ending}
        for partition in list(self._groups.served()):
            for producer_id in partition.coordinator.pending_producers() - known_open:
                event = EndTransaction(Errand(_nothing), producer_id, 0, is_commit=False, coordinator_epoch=0)
                partition.submit(None, event)

    def submit(self, transactional_id: str, event: Any) -> None:
        """Hand a request about a transactional id to its partition. `event.request` is a Reply.

        Only InitProducerId opens the log: in one that was never used, there is no id.
        """
        if self._runtime is None and not isinstance(event, InitProducerId):
            is_asked = isinstance(event, DescribeTransaction)
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_asked else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            event.request.deliver(refuse(event, error))
            return
        try:
            runtime = self._opened()
        except EngineError:
            event.request.deliver(refuse(event, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            runtime.submit(transactional_id, event)

    def partitions(self) -> Sequence[Partition]:
        """The partitions of the log; none if it was never used."""
        return () if self._runtime is None else self._runtime.partitions

    def wall_ms(self) -> int:
        """The clock's time, Unix time in ms."""
        return self._clock.wall_ms()

    def partition_of_group(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that a group's offsets lie in."""
        return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, len(self._groups.partitions)))

    # Markers.

    def _write(self, index: int, asked: Markers) -> None:
        """Write the markers of a transaction. index: of its coordinator's partition."""
        self.ended[asked.outcome] += 1
        self._write_some(index, asked, asked.partitions)

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
        assert self._runtime is not None
        own = self._runtime.partitions[index].ownership
        epoch = 0 if own is None else own.epoch
        name, number = where
        if name == OFFSETS_TOPIC:
            answer = Errand(lambda error: done(error is ErrorCode.NONE))
            event = EndTransaction(answer, asked.producer_id, asked.epoch, asked.is_commit, epoch)
            self._groups.partitions[number].submit(None, event)
            return
        topic = self._discovery.topic(name)
        if topic is None or number >= topic.partition_count:
            done(True)
            return
        batch = marker(
            asked.producer_id,
            asked.epoch,
            is_commit=asked.is_commit,
            coordinator_epoch=epoch,
            wall_ms=self._clock.wall_ms(),
        )
        partition = self._data.topic_partition(topic, number)
        self._data.append_marker(partition, batch, lambda outcome: done(isinstance(outcome, Written)))

    def _written(self, index: int, asked: Markers, failed: list[TopicPartition]) -> None:
        """Some markers are written, and the others are tried again."""
        runtime = self._runtime
        if runtime is None or runtime.is_ending:
            return
        partition = runtime.partitions[index]
        if failed:
            at_ms = self._clock.ms() + RETRY_MS
            self._clock.call_at(at_ms, partial(self._write_some, index, asked, failed))
        elif partition.standing is ACTIVE:  # else its next load asks for the markers again
            event = MarkersWritten(asked.transactional_id, asked.producer_id, asked.epoch)
            partition.handle(asked.transactional_id, event)

    # The end.

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back, perhaps at once, when no append is under way and no answer is deferred."""
        if self._runtime is None:
            callback()
        else:
            self._runtime.when_idle(callback)

    def wind_down(self) -> None:
        """As the runtime's."""
        if self._runtime is not None:
            self._runtime.wind_down()

    def close(self) -> None:
        """Close the log. This waits for the disk."""
        if self._engine is not None:
            self._engine.close()
