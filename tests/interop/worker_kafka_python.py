"""A consumer process on kafka-python.

Its polls are longer than the others': when a join of its own completes between two polls, it forgets that and joins
again (the task that the first poll left behind counts as no task once it is done), which is a rebalance more. Longer
polls make that rare; nothing but the client can make it never.

House rule: worker.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from tests.interop.python_client import client_error, consumed, high_watermarks, login_arguments, numbers
from tests.interop.worker import (
    Consumed,
    Login,
    Membership,
    NoticeHandler,
    Record,
    Reporter,
    Settings,
    main,
    settings_from_command_line,
)
from tests.support.patience import WITHIN_S

POLL_MS = 500

ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}


def _login(login: Login | None) -> dict[str, str]:
    """The arguments with which the client logs in."""
    return {} if login is None else {**login_arguments(login), "ssl_cafile": login.ca}


class KafkaPythonConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """kafka.KafkaConsumer, and its listener."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._consumer = KafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            group_instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.rebalance_timeout_ms,
            partition_assignment_strategy=[ASSIGNORS[settings.assignor]],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            reconnect_backoff_max_ms=500,
            **_login(settings.login),
        )

    async def start(self) -> None:
        """Subscribe."""
        self._consumer.subscribe([self._settings.topic], listener=self)

    async def poll(self) -> Sequence[Consumed]:
        """Poll once. Without a server it may raise an error that the client calls retriable: the next poll goes on."""
        try:
            found = self._consumer.poll(timeout_ms=POLL_MS)
        except KafkaError as error:
            if not error.retriable:
                raise client_error(error) from None
            self._reporter.emit("notice", text=f"poll raised {error!r}", logger="kafka")
            return []
        return consumed(found)

    def membership(self) -> Membership:
        """From the group metadata."""
        metadata = self._consumer.group_metadata()
        return Membership(metadata.generation_id, metadata.member_id, numbers(self._consumer.assignment()))

    def high_watermarks(self) -> Mapping[int, int | None]:
        """Return the watermarks of the last Fetch."""
        return high_watermarks(self._consumer)

    async def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit synchronously."""
        wanted = {
            TopicPartition(self._settings.topic, partition): OffsetAndMetadata(offset, metadata, -1)
            for partition, (offset, metadata) in offsets.items()
        }
        try:
            self._consumer.commit(wanted)
        except KafkaError as error:
            raise client_error(error) from None

    async def read_committed(self, partitions: Iterable[int]) -> Mapping[int, tuple[int, str] | None]:
        """A request for each."""
        found: dict[int, tuple[int, str] | None] = {}
        for partition in partitions:
            committed = self._consumer.committed(TopicPartition(self._settings.topic, partition), metadata=True)
            found[partition] = None if committed is None else (committed.offset, committed.metadata)
        return found

    async def produce(self, records: Sequence[Record], compression: str) -> None:
        """Produce with the default settings, which are idempotent."""
        producer = KafkaProducer(
            bootstrap_servers=self._settings.bootstrap, compression_type=None if compression == "none" else compression
        )
        try:
            for sent in [
                producer.send(self._settings.topic, each.value, each.key, headers=list(each.headers))
                for each in records
            ]:
                sent.get(WITHIN_S)
        except KafkaError as error:
            raise client_error(error) from None
        finally:
            producer.close()

    async def close(self) -> None:
        """Close."""
        self._consumer.close()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Report it."""
        self._reporter.emit("revoked", partitions=numbers(revoked))

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Report it."""
        self._reporter.emit("assigned", partitions=numbers(assigned))

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        """Report it."""
        self._reporter.emit("lost", partitions=numbers(lost))


if __name__ == "__main__":
    reports = Reporter()
    logging.getLogger("kafka").addHandler(NoticeHandler(reports))
    settings = settings_from_command_line()
    main(KafkaPythonConsumer(settings, reports), reports, settings, "kafka-python", kafka.__version__)
