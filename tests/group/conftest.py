"""A coordinator for each test: of the classic protocol (bench), of the consumer protocol (play)."""

from __future__ import annotations

import pytest

from tests.group.consumer.play import Play
from tests.group.harness import Bench


@pytest.fixture
def bench() -> Bench:
    """Return a coordinator with Kafka's settings."""
    return Bench()


@pytest.fixture
def play() -> Play:
    """Return a coordinator with topic t, of four partitions."""
    return Play()
