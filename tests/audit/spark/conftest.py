"""One Spark session serves all tests of a run, because its start takes longer than the tests.

House rule: two cores, a small heap, and only the loopback address.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT_OPEN = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""pyspark leaves the sockets that bring results to the garbage collector."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect Spark's unclosed sockets here, where the warning is ignored, and not in the middle of another test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def session(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return the session of this process, with Kafka's connector if a test of this run needs it."""
    from coordinator.audit.spark.session import make_session  # noqa: PLC0415  where pyspark isn't installed, no test asks

    tests = request.session.items
    made = make_session("local[2]", kafka=any("connected" in getattr(each, "fixturenames", ()) for each in tests))
    yield made
    made.stop()


@pytest.fixture(scope="session")
def connected(session: SparkSession) -> SparkSession:
    """Return a session with Kafka's connector."""
    return session
