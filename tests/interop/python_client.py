"""The values of aiokafka and kafka-python, whose classes have the same names and fields.

House rule: it imports neither of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.interop.worker import ClientError, Consumed, Login, Record


def login_arguments(login: Login) -> dict[str, str]:
    """The arguments with which a client logs in, but for its certificates."""
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }


def consumed(found: Mapping[Any, Sequence[Any]]) -> list[Consumed]:
    """The records of a poll."""
    return [
        Consumed(each.partition, each.offset, Record(each.key, each.value, tuple(each.headers)))
        for messages in found.values()
        for each in messages
    ]


def high_watermarks(consumer: Any) -> Mapping[int, int | None]:
    """The watermarks of the last Fetch."""
    return {each.partition: consumer.highwater(each) for each in consumer.assignment()}


def client_error(error: Any) -> ClientError:
    """The error of a client."""
    return ClientError(getattr(error, "message", None) or type(error).__name__, str(error))


def numbers(partitions: Iterable[Any]) -> tuple[int, ...]:
    """The numbers of topic partitions."""
    return tuple(sorted(topic_partition.partition for topic_partition in partitions))
