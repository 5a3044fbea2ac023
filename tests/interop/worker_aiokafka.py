"""A consumer process on aiokafka.

Generation and member id are not public there, and neither is the metadata of a committed offset: the group coordinator
object behind the consumer has them.

House rule: worker.py's.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.interop.python_client import client_error, consumed, high_watermarks, login_arguments, numbers
from tests.interop.worker import (
    POLL_MS,
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

ASSIGNORS = {
    assignor.name: assignor
    for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
}

BY_INSTANCE = Path(__file__).parents[2] / "examples/same_seats/aiokafka_by_instance.py"


def _assignor(settings: Settings) -> Any:
    """The client's assignor, or the one of our examples."""
    if settings.assignor == "range-by-instance":
        return run_path(str(BY_INSTANCE))["by_instance"](settings.group_instance_id)
    return ASSIGNORS[settings.assignor]


def _login(login: Login | None) -> dict[str, Any]:
    """The arguments with which the client logs in."""
    if login is None:
        return {}
    return {**login_arguments(login), "ssl_context": ssl.create_default_context(cafile=login.ca)}


class AiokafkaConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka.AIOKafkaConsumer, and its listener."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._consumer: Any = None

    async def start(self) -> None:
        """Make the consumer here, because it needs a running loop."""
        settings = self._settings
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            group_instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            partition_assignment_strategy=(_assignor(settings),),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **_login(settings.login),
        )
        self._consumer.subscribe([settings.topic], listener=self)
        try:
            await self._consumer.start()
        except KafkaError as error:
            raise client_error(error) from None

    async def poll(self) -> Sequence[Consumed]:
        """One poll."""
        try:
            found = await self._consumer.getmany(timeout_ms=POLL_MS)
        except KafkaError as error:
            raise client_error(error) from None
        return consumed(found)

    def membership(self) -> Membership:
        """From the group coordinator behind the consumer."""
        coordinator = self._consumer._coordinator
        return Membership(coordinator.generation, coordinator.member_id, numbers(self._consumer.assignment()))

    def high_watermarks(self) -> Mapping[int, int | None]:
        """Return the watermarks of the last Fetch."""
        return high_watermarks(self._consumer)

    async def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit and wait."""
        wanted = {
            TopicPartition(self._settings.topic, partition): OffsetAndMetadata(offset, metadata)
            for partition, (offset, metadata) in offsets.items()
        }
        try:
            await self._consumer.commit(wanted)
        except KafkaError as error:
            raise client_error(error) from None

    async def read_committed(self, partitions: Iterable[int]) -> Mapping[int, tuple[int, str] | None]:
        """One request for all of them."""
        asked = [TopicPartition(self._settings.topic, partition) for partition in partitions]
        found = await self._consumer._coordinator.fetch_committed_offsets(asked)
        return {
            topic_partition.partition: (found[topic_partition].offset, found[topic_partition].metadata)
            if topic_partition in found
            else None
            for topic_partition in asked
        }

    async def produce(self, records: Sequence[Record], compression: str) -> None:
        """With idempotence."""
        async with AIOKafkaProducer(
            bootstrap_servers=self._settings.bootstrap,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=True,
        ) as producer:
            try:
                for sent in [
                    await producer.send(self._settings.topic, each.value, each.key, headers=list(each.headers))
                    for each in records
                ]:
                    await sent
            except KafkaError as error:
                raise client_error(error) from None

    async def close(self) -> None:
        """Stop."""
        await self._consumer.stop()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Report it."""
        self._reporter.emit("revoked", partitions=numbers(revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Report it."""
        self._reporter.emit("assigned", partitions=numbers(assigned))


if __name__ == "__main__":
    reports = Reporter()
    logging.getLogger("aiokafka").addHandler(NoticeHandler(reports))
    settings = settings_from_command_line()
    main(AiokafkaConsumer(settings, reports), reports, settings, "aiokafka", aiokafka.__version__)
