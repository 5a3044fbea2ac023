"""Unmodified clients that log in by SASL and join a group: what each needs, and how it says that it was refused.

    python -m tests.interop.sasl_clients CLIENT BOOTSTRAP MECHANISM SECRET GROUP

prints the outcome in its last line. SECRET: a password, or the token of OAUTHBEARER.

House rule: each client runs in a process of its own, with its own defaults, and imports no other.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.support.patience import WITHIN_S
from tests.support.preloaded import run

JOINED = "joined"
TOPIC = "orders"
USER = "alice"


def confluent(bootstrap: str, mechanism: str, secret: str, group: str) -> str:
    """confluent-kafka: JOINED, or its first error about authentication."""
    from confluent_kafka import Consumer, KafkaError  # noqa: PLC0415 - see the house rule

    errors: list[str] = []

    def failed(error: Any) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            errors.append(error.str())

    login: dict[str, Any] = {"sasl.username": USER, "sasl.password": secret}
    if mechanism == "OAUTHBEARER":
        login = {"oauth_cb": lambda _: (secret, time.time() + 3_000)}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "allow.auto.create.topics": True,
            "topic.metadata.refresh.interval.ms": 500,
            "error_cb": failed,
            "log_level": 0,
            **login,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        end_s = time.monotonic() + WITHIN_S
        while time.monotonic() < end_s:
            consumer.poll(0.1)
            if consumer.assignment():
                return JOINED
            if errors:
                return re.sub(r"^.*?bootstrap: |\(after .*", "", errors[0])
    finally:
        consumer.close()
    return "nothing"


POLL_MS = 2_000
"""kafka-python forgets a join in which a poll ends."""


def kafka_python(bootstrap: str, mechanism: str, secret: str, group: str) -> str:
    """kafka-python: JOINED, or its exception."""
    from kafka import KafkaConsumer  # noqa: PLC0415 - see the house rule
    from kafka.errors import KafkaError as PythonKafkaError  # noqa: PLC0415 - see the house rule
    from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415 - see the house rule

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return secret

    login: dict[str, Any] = {"sasl_plain_username": USER, "sasl_plain_password": secret}
    if mechanism == "OAUTHBEARER":
        login = {"sasl_oauth_token_provider": Tokens()}
    try:
        consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id=group,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            **login,
        )
        try:
            end_s = time.monotonic() + WITHIN_S
            while time.monotonic() < end_s:
                consumer.poll(POLL_MS)
                if consumer.assignment():
                    return JOINED
        finally:
            consumer.close()
    except PythonKafkaError as error:
        return type(error).__name__
    return "nothing"


def aiokafka(bootstrap: str, mechanism: str, secret: str, group: str) -> str:
    """aiokafka: JOINED, or its exception."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - see the house rule
    from aiokafka.abc import AbstractTokenProvider  # noqa: PLC0415 - see the house rule
    from aiokafka.errors import KafkaError as AioKafkaError  # noqa: PLC0415 - see the house rule

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return secret

    async def join() -> str:
        login: dict[str, Any] = {"sasl_plain_username": USER, "sasl_plain_password": secret}
        if mechanism == "OAUTHBEARER":
            login = {"sasl_oauth_token_provider": Tokens()}
        consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id=group,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            **login,
        )
        try:
            await consumer.start()
            end_s = time.monotonic() + WITHIN_S
            while time.monotonic() < end_s:
                await consumer.getmany(timeout_ms=100)
                if consumer.assignment():
                    return JOINED
        except AioKafkaError as error:
            return type(error).__name__
        finally:
            await consumer.stop()
        return "nothing"

    return asyncio.run(join())


CLIENTS: dict[str, Callable[[str, str, str, str], str]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def outcome(client: str, bootstrap: str, mechanism: str, secret: str, group: str) -> str:
    """A client's words, in a process of its own."""
    command = [sys.executable, "-m", "tests.interop.sasl_clients", client, bootstrap, mechanism, secret, group]
    done = run(command)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    print(CLIENTS[sys.argv[1]](*sys.argv[2:]))
