"""Every script on Apache Kafka and on Tenure: the answers have to be the same in every field.

transcript.py lists the fields that may differ. The restart scripts share one kill of servers of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import pytest

from protocol.messages import API_KEYS, ApiVersionsRequest, ApiVersionsResponse
from tests.oracle.conftest import NODES, ONE_AFTER_THE_OTHER, PLAYED_AT_ONCE, RESTART_SCRIPTS, SAME_NAME, play_restarts
from tests.oracle.recorded import IS_RECORDING, Recorded, answers
from tests.oracle.stage import SCRIPTS, Script, at_once, play
from tests.oracle.transcript import Line, differences
from tests.support.apache import ApacheKafka
from tests.support.raw import Connection
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle

Played = dict[str, tuple[list[Line], list[Line]]]


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    """Kafka's recorded answers; written anew at the end if that is wanted."""
    files = Recorded()
    yield files
    if IS_RECORDING:
        files.write()


@pytest.fixture(scope="module")
def restarted(kafka_is_here: None) -> Played:
    """All restart scripts on both servers."""
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka({**NODES["open"], **SAME_NAME, **ONE_AFTER_THE_OTHER}))
        tenure = stack.enter_context(Tenure({**NODES["open"], **SAME_NAME}))

        expected, found = at_once(lambda: play_restarts(kafka), lambda: play_restarts(tenure))
    return {name: (expected[name], found[name]) for name in expected}


@pytest.mark.parametrize("script", PLAYED_AT_ONCE, ids=str)
def test_answers_as_apache_kafka_does(script: Script, recorded: Recorded, request: pytest.FixtureRequest) -> None:
    """A script on both servers: the same answers, and Kafka's are those that are recorded."""
    kafka = cast("ApacheKafka", request.getfixturevalue(f"{script.node}_kafka"))
    tenure = cast("Tenure", request.getfixturevalue(f"{script.node}_tenure"))
    expected, found = at_once(lambda: play(script, kafka), lambda: play(script, tenure))
    assert not _problems(script, expected.comparable(), found.comparable(), recorded)


@pytest.mark.parametrize("script", RESTART_SCRIPTS, ids=str)
def test_remembers_what_apache_kafka_remembers(script: Script, recorded: Recorded, restarted: Played) -> None:
    """The same, with both servers killed and started again in the middle."""
    expected, found = restarted[script.name]
    assert not _problems(script, expected, found, recorded)


def test_the_static_rules_are_asked_well_enough(recorded: Recorded) -> None:
    """At least 60 exchanges go over the static members alone."""
    scripts = [script for script in SCRIPTS.values() if script.module == "static"]
    lines = [line for script in scripts for line in recorded.answers_to(script) or []]
    assert sum(" < " in line for line in lines) >= 60


def test_api_versions_are_within_apache_kafkas(open_kafka: ApacheKafka, open_tenure: Tenure) -> None:
    """Every API has Kafka's oldest version and none that Kafka 3.9 lacks, but for those of Kafka 4 (KIP-848, 1043)."""
    kafka, tenure = _api_versions(open_kafka.port), _api_versions(open_tenure.port)
    newer = {
        API_KEYS["OffsetCommit"]: 10,
        API_KEYS["OffsetFetch"]: 10,
        API_KEYS["DescribeGroups"]: 6,
        API_KEYS["ConsumerGroupHeartbeat"]: 1,
        API_KEYS["ConsumerGroupDescribe"]: 1,
        API_KEYS["ListConfigResources"]: 1,
    }
    for key, (first, last) in tenure.items():
        if key == API_KEYS["Fetch"]:
            assert first == 4  # older ones answer in message formats of before Kafka 0.11
        else:
            assert first == kafka[key][0], key
        assert last <= newer.get(key, kafka[key][1]), key


def _problems(script: Script, expected: list[Line], found: list[Line], recorded: Recorded) -> list[str]:
    """Where Tenure differs from Kafka, and whether Kafka differs from its recorded answers (recorded.py)."""
    if IS_RECORDING:
        recorded.put(script, expected)
    problems = [str(each) for each in differences(expected, found)]
    if answers(expected) != recorded.answers_to(script):
        problems.append("Kafka answers otherwise than recorded")
    return problems


def _api_versions(port: int) -> dict[int, tuple[int, int]]:
    with Connection(port) as connection:
        answer = cast("ApiVersionsResponse", connection.ask(ApiVersionsRequest(), 0))
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
