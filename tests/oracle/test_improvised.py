"""Random plays on Apache Kafka, played again on Tenure: the answers have to be the same.

ORACLE_SEEDS=N plays N of them, ORACLE_FIRST_SEED=S begins with another seed.
"""

from __future__ import annotations

import os

import pytest

from tests.oracle.improvised import improvise, replay
from tests.oracle.transcript import differences
from tests.support.apache import ApacheKafka
from tests.support.raw import Closed, NoAnswer
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle

FIRST_SEED = int(os.environ.get("ORACLE_FIRST_SEED", "1"))
SEED_COUNT = int(os.environ.get("ORACLE_SEEDS", "40"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEED_COUNT))
def test_improvised_plays_agree(seed: int, open_kafka: ApacheKafka, open_tenure: Tenure) -> None:
    """Tenure answers members' random requests as Apache Kafka does."""
    steps, expected = improvise(open_kafka, seed)
    said = "\n".join(map(str, steps))
    try:
        found = replay(open_tenure, seed, steps)
    except (NoAnswer, Closed) as error:
        pytest.fail(f"{error!r} on Tenure; the steps were:\n{said}")
    different = differences(expected.comparable(), found.comparable())
    assert not different, "\n".join([*map(str, different[:10]), "the steps were:", said])
