"""One Spark session for all tests of a run: it takes longer to start than they take.

House rule: two cores, a small heap, nothing but the loopback.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from coordinator.audit.spark.session import make_session

LEFT_OPEN = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""pyspark leaves the sockets, through which results come, to the garbage collector."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What Spark left open is collected while that is ignored, and not in the middle of another test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """A session of this machine."""
    made = make_session("local[2]")
    yield made
    made.stop()
