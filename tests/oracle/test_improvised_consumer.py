"""Random plays of the consumer protocol on Apache Kafka 4.4.0 and on Tenure: the answers have to be the same.

ORACLE_SEEDS=N plays N of them, ORACLE_FIRST_SEED=S begins with another seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.oracle.conftest import CONSUMER_NODES, ONE_AFTER_THE_OTHER, SAME_NAME
from tests.oracle.improvised_consumer import Duet
from tests.oracle.test_improvised import FIRST_SEED
from tests.oracle.transcript import differences
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.raw import Closed, NoAnswer
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle

SEED_COUNT = int(os.environ.get("ORACLE_SEEDS", "16"))


@pytest.fixture(scope="module")
def kafka(kafka_is_here: None) -> Iterator[ApacheKafka]:
    """A node of Kafka 4.4.0."""
    settings = {**CONSUMER_NODES["consumer"], **SAME_NAME, **ONE_AFTER_THE_OTHER}
    with ApacheKafka(settings, version=VERSION_44) as node:
        yield node


@pytest.fixture(scope="module")
def tenure() -> Iterator[Tenure]:
    """A server with the same settings."""
    with Tenure({**CONSUMER_NODES["consumer"], **SAME_NAME}) as server:
        yield server


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEED_COUNT))
def test_improvised_plays_agree(seed: int, kafka: ApacheKafka, tenure: Tenure) -> None:
    """Tenure answers random requests of the consumer protocol as Apache Kafka does."""
    duet = Duet(kafka, tenure, seed)
    try:
        expected, found = duet.play()
    except (NoAnswer, Closed) as error:
        pytest.fail("\n".join([repr(error), "the steps were:", *duet.said]))
    different = differences(expected.comparable(), found.comparable())
    assert not different, "\n".join([*map(str, different[:10]), "the steps were:", *duet.said])
