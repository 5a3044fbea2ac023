"""Takes the place of the conftest.py of aiokafka's tests, which starts a server in Docker: this one has a server.

SUITE_SERVER is its HOST:PORT, SUITE_RELEASE the release of Apache Kafka that the tests take it for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a class of tests its loop and the server's address; the tests read them from their class."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    request.cls.loop = loop
    request.cls.hosts = [os.environ["SUITE_SERVER"]]
    request.cls.kafka_version = os.environ["SUITE_RELEASE"]
    yield
    asyncio.set_event_loop(None)
    loop.close()
