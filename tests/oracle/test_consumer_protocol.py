"""Every script of the consumer protocol (KIP-848) on Apache Kafka 4.3.1: its answers are those that are recorded.

The nodes are those of CONSUMER_NODES (conftest.py), one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle.conftest import CONSUMER_NODES, CONSUMER_SCRIPTS, ONE_AFTER_THE_OTHER, SAME_NAME
from tests.oracle.recorded import IS_RECORDING, Recorded, answers
from tests.oracle.stage import Script, play
from tests.oracle.test_recorded import SLOWER
from tests.support.apache import VERSION_43, ApacheKafka


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    """Kafka's recorded answers; written anew at the end if that is wanted."""
    files = Recorded()
    yield files
    if IS_RECORDING:
        files.write()


def new_node(name: str) -> ApacheKafka:
    """A node of Kafka 4.3.1, not yet started, with the settings of one of CONSUMER_NODES."""
    return ApacheKafka({**CONSUMER_NODES[name], **SAME_NAME, **ONE_AFTER_THE_OTHER}, version=VERSION_43)


@pytest.fixture(scope="module")
def kafka(kafka_is_here: None, request: pytest.FixtureRequest) -> Iterator[ApacheKafka]:
    """A node of Kafka 4.3.1."""
    with new_node(request.param) as node:
        yield node


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("kafka", "script"), [(script.node, script) for script in CONSUMER_SCRIPTS], indirect=["kafka"], ids=str
)
def test_kafka_answers_as_recorded(kafka: ApacheKafka, script: Script, recorded: Recorded) -> None:
    """Kafka's answers to a script are the recorded ones, with which Tenure is compared.

    On a busy machine a short timeout may be over too early. Such a script is played again, with longer timeouts.
    """
    transcript = play(script, kafka)
    if IS_RECORDING:
        recorded.put(script, transcript.comparable())
    for slower in SLOWER:
        if not transcript.is_timed or answers(transcript.comparable()) == recorded.answers_to(script):
            break
        with new_node(script.node) as anew:
            transcript = play(script, anew, slower)
    assert answers(transcript.comparable()) == recorded.answers_to(script)
