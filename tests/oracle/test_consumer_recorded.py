"""Every script of the consumer protocol (KIP-848) on Tenure, against the recorded answers of Apache Kafka 4.3.1.

House rule: nothing is excused here that isn't excused in test_consumer_protocol.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle.conftest import CONSUMER_NODES, CONSUMER_SCRIPTS, SAME_NAME
from tests.oracle.recorded import Recorded, answers
from tests.oracle.stage import Script, play
from tests.oracle.test_recorded import SLOWER
from tests.support.tenure import Tenure

WITH_BOTH_PROTOCOLS = {"reads_subscriptions_of_every_version", "commits_of_classic_members_in_a_consumer_group"}
PLAYED = [
    script
    for script in CONSUMER_SCRIPTS
    if script.module != "consumer_migration" and script.name not in WITH_BOTH_PROTOCOLS
]
"""Groups with members of both protocols are not served yet."""

AS_KAFKA_3_9 = {"older_commits"}
"""A commit of v9 to a group that isn't there: GROUP_ID_NOT_FOUND in Kafka 4.3, ILLEGAL_GENERATION in 3.9 and here,
where one version of OffsetCommit serves the clients of both.
"""


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
    ("tenure", "script"), [(script.node, script) for script in PLAYED], indirect=["tenure"], ids=str
)
def test_answers_as_recorded(tenure: Tenure, script: Script, recorded: Recorded) -> None:
    """A script's answers are those that Apache Kafka gave; short timeouts are longer at the next tries."""
    expected = recorded.answers_to(script)
    if script.name in AS_KAFKA_3_9:
        expected = [line.replace("GROUP_ID_NOT_FOUND", "ILLEGAL_GENERATION") for line in expected or []]
    transcript = play(script, tenure)
    for slower in SLOWER:
        if not transcript.is_timed or answers(transcript.comparable()) == expected:
            break
        with Tenure({**CONSUMER_NODES[script.node], **SAME_NAME}) as anew:
            transcript = play(script, anew, slower)
    assert answers(transcript.comparable()) == expected
