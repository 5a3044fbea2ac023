"""Every script of the consumer protocol (KIP-848) on Tenure, against the recorded answers of Apache Kafka 4.3.1.

House rule: what is excused here is an answer of Kafka 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.oracle.conftest import CONSUMER_NODES, CONSUMER_SCRIPTS, SAME_NAME
from tests.oracle.recorded import Recorded, answers
from tests.oracle.stage import Script, play
from tests.oracle.test_recorded import SLOWER
from tests.support.tenure import Tenure

NO_GROUP_TO_COMMIT_TO = {"older_commits"}
"""In Kafka 4.3 a commit of v9 to a group that isn't there is GROUP_ID_NOT_FOUND. In Kafka 3.9 and here it is
ILLEGAL_GENERATION: one version of OffsetCommit serves the clients of both.
"""
WHILE_IT_REBALANCES = re.compile(r"(state='(?:Preparing|Completing)Rebalance'.*) member_assignment=b'[^']*'")
"""Kafka 4.3 describes the assignments of a classic group that rebalances. Kafka 3.9 leaves them out, and so do we."""


def answers_of_both(recorded: Recorded, script: Script) -> list[str]:
    """Kafka 4.3's answers; in two places, for classic groups, those of Kafka 3.9."""
    lines = [WHILE_IT_REBALANCES.sub(r"\1", line) for line in recorded.answers_to(script) or []]
    if script.name in NO_GROUP_TO_COMMIT_TO:
        lines = [line.replace("GROUP_ID_NOT_FOUND", "ILLEGAL_GENERATION") for line in lines]
    return lines


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Kafka's recorded answers."""
    return Recorded()


@pytest.fixture(scope="module")
def tenure(request: pytest.FixtureRequest) -> Iterator[Tenure]:
    """A server with the settings of one node."""
    with Tenure({**CONSUMER_NODES[request.param], **SAME_NAME}) as server:
        yield server


@pytest.mark.parametrize(
    ("tenure", "script"), [(script.node, script) for script in CONSUMER_SCRIPTS], indirect=["tenure"], ids=str
)
def test_answers_as_recorded(tenure: Tenure, script: Script, recorded: Recorded) -> None:
    """A script's answers are those that Apache Kafka gave; short timeouts are longer at the next tries."""
    expected = answers_of_both(recorded, script)
    transcript = play(script, tenure)
    for slower in SLOWER:
        if not transcript.is_timed or answers(transcript.comparable()) == expected:
            break
        with Tenure({**CONSUMER_NODES[script.node], **SAME_NAME}) as anew:
            transcript = play(script, anew, slower)
    assert answers(transcript.comparable()) == expected
