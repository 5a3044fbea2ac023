"""A plugin for FastStream's tests: a broker or an admin client without an address gets that of the server under test.

These tests rely on FastStream's default, localhost:9092; SUITE_SERVER is the HOST:PORT that takes its place.
"""

from __future__ import annotations

import os
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from faststream import confluent, kafka
from faststream.confluent.fastapi import KafkaRouter as ConfluentRouter
from faststream.kafka.fastapi import KafkaRouter

DEFAULT = "localhost"


def _set_default(made: Any) -> None:
    """Replace DEFAULT among the default values of a class's arguments."""
    init = made.__init__
    server = os.environ["SUITE_SERVER"]
    named = init.__kwdefaults__ or {}
    placed = init.__defaults__ or ()
    assert DEFAULT in (*named.values(), *placed), made
    init.__kwdefaults__ = {name: server if value == DEFAULT else value for name, value in named.items()}
    init.__defaults__ = tuple(server if value == DEFAULT else value for value in placed)


for each in (kafka.KafkaBroker, KafkaRouter, confluent.KafkaBroker, ConfluentRouter, AIOKafkaAdminClient):
    _set_default(each)
