"""A consumer process on confluent-kafka (librdkafka).

The client has no public generation: it is in the bytes of consumer_group_metadata() (rdkafka's CGMDv2: an int32 in the
machine's byte order behind the magic, then group id and member id, each ended by a zero byte).

House rule: worker.py's.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.interop.worker import (
    POLL_MS,
    ClientError,
    Consumed,
    Membership,
    Record,
    Reporter,
    Settings,
    librdkafka_login,
    main,
    settings_from_command_line,
)
from tests.support.patience import WITHIN_S

METADATA_MAGIC = b"CGMDv2:"
OFFSET_INVALID = -1001
POLL_MESSAGES = 500
FATAL_CAUSES = (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID, KafkaError.GROUP_MAX_SIZE_REACHED)


class ConfluentConsumer:
    """confluent_kafka.Consumer."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        configuration: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap,
            "group.id": settings.group,
            "max.poll.interval.ms": settings.rebalance_timeout_ms,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            "error_cb": self._on_error,
            **librdkafka_login(settings.login),
        }
        if settings.protocol == "consumer":
            configuration["group.protocol"] = "consumer"
        else:
            configuration |= {
                "session.timeout.ms": settings.session_timeout_ms,
                "heartbeat.interval.ms": settings.heartbeat_interval_ms,
                "partition.assignment.strategy": settings.assignor,
            }
        if settings.group_instance_id is not None:
            configuration["group.instance.id"] = settings.group_instance_id
        self._consumer = confluent_kafka.Consumer(configuration)

    async def start(self) -> None:
        """Subscribe."""
        pattern = self._settings.pattern
        self._consumer.subscribe(
            [self._settings.topic if pattern is None else f"^{pattern}"],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    async def poll(self) -> Sequence[Consumed]:
        """One poll; a message that is an error counts as the client's error."""
        try:
            messages = self._consumer.consume(POLL_MESSAGES, POLL_MS / 1000)
        except KafkaException as error:
            raise _client_error(error.args[0]) from None
        found = []
        for message in messages:
            if (problem := message.error()) is not None:
                self._on_error(problem)
            else:
                partition: Any = message.partition()
                offset: Any = message.offset()
                headers: Any = tuple(message.headers() or ())
                found.append(Consumed(partition, offset, Record(message.key(), message.value(), headers)))
        return found

    def membership(self) -> Membership:
        """Generation and member id from the group metadata."""
        packed = bytes(self._consumer.consumer_group_metadata())
        assert packed.startswith(METADATA_MAGIC), packed
        (generation,) = struct.unpack_from("=i", packed, len(METADATA_MAGIC))
        _group, member_id, _rest = packed[len(METADATA_MAGIC) + 4 :].split(b"\0", 2)
        return Membership(generation, member_id.decode(), self._numbers(self._consumer.assignment()))

    def high_watermarks(self) -> Mapping[int, int | None]:
        """Return the high watermarks of the last Fetch."""
        found: dict[int, int | None] = {}
        for topic_partition in self._consumer.assignment():
            _low, high = self._consumer.get_watermark_offsets(topic_partition, cached=True)
            found[topic_partition.partition] = None if high == OFFSET_INVALID else high
        return found

    async def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Return the watermarks of the last Fetch."""
        wanted = [
            TopicPartition(self._settings.topic, partition, offset, metadata)
            for partition, (offset, metadata) in offsets.items()
        ]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            raise _client_error(error.args[0]) from None
        assert done is not None
        for topic_partition in done:
            if topic_partition.error is not None:
                raise _client_error(topic_partition.error)

    async def read_committed(self, partitions: Iterable[int]) -> Mapping[int, tuple[int, str] | None]:
        """Committed offsets of any partition of the topic."""
        asked = [TopicPartition(self._settings.topic, partition) for partition in partitions]
        return {
            found.partition: None if found.offset == OFFSET_INVALID else (found.offset, found.metadata or "")
            for found in self._committed(asked)
        }

    def _committed(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        """Ask again after NOT_COORDINATOR: librdkafka then looks for the new one, but says so; others ask again."""
        until = time.monotonic() + WITHIN_S
        while True:
            try:
                return self._consumer.committed(asked, timeout=WITHIN_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > until:
                    raise

    async def produce(self, records: Sequence[Record], compression: str) -> None:
        """With idempotence."""
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._settings.bootstrap,
                "enable.idempotence": True,
                "compression.type": compression,
                "log_level": 0,
            }
        )
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        for each in records:
            producer.produce(
                self._settings.topic, each.value, each.key, headers=list(each.headers), on_delivery=on_delivery
            )
        if (left := producer.flush(WITHIN_S)) > 0:
            raise ClientError("TIMED_OUT", f"{left} records are not acknowledged")
        if errors:
            raise _client_error(errors[0])

    async def close(self) -> None:
        """Close."""
        self._consumer.close()

    def _on_assign(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self._reporter.emit("assigned", partitions=self._numbers(partitions))

    def _on_revoke(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self._reporter.emit("revoked", partitions=self._numbers(partitions))

    def _on_lost(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self._reporter.emit("lost", partitions=self._numbers(partitions))

    def _numbers(self, partitions: Iterable[TopicPartition]) -> tuple[int, ...]:
        """Their numbers, of those of the topic."""
        return tuple(sorted(each.partition for each in partitions if each.topic == self._settings.topic))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise _client_error(error)
        self._reporter.emit("notice", text=f"{error.name()}: {error.str()}", logger="librdkafka")


def _client_error(error: KafkaError) -> ClientError:
    """The name of a fatal error's cause is only in its text."""
    if error.code() == KafkaError._FATAL:
        for cause in map(KafkaError, FATAL_CAUSES):
            if cause.str() in error.str():
                return ClientError(cause.name(), error.str(), fatal=True)
    return ClientError(error.name(), error.str(), fatal=error.fatal())


if __name__ == "__main__":
    reports = Reporter()
    settings = settings_from_command_line()
    main(
        ConfluentConsumer(settings, reports),
        reports,
        settings,
        "confluent-kafka",
        f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})",
    )
