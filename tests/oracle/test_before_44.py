"""Where Apache Kafka 4.3.1 answers otherwise than 4.4.0: the first answer of a script that differs.

test_scripts.py holds 4.4.0 and Tenure to the answers in the scripts, so all three servers are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.oracle.conftest import CONSUMER_NODES, ONE_AFTER_THE_OTHER, SAME_NAME
from tests.oracle.player import play_together
from tests.oracle.script import Case, Outcomes, cases
from tests.support.apache import VERSION_43, ApacheKafka

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("kafka_is_here")]


class Different(NamedTuple):
    """A command of a script, and words of its answer in 4.4.0 and in 4.3.1."""

    script: str
    command: str
    newer: str
    older: str


DIFFERENT = {
    "a vote makes another assignor win": Different(
        "vote_for_an_assignor", "a beat server_assignor='range'", "member_epoch=4", "member_epoch=3"
    ),
    "a static member returns with another vote": Different(
        "rack_and_names_of_a_returning_member", "c join", "member_epoch=3", "member_epoch=2"
    ),
    "two of three members vote for another assignor": Different(
        "kafka_20434_static_members_vote", "e join", "partitions=[3]", "partitions=[3, 4]"
    ),
    "a static member returns to a full group": Different(
        "return_to_a_full_group", "c,a join", "error_code=NONE", "error_code=GROUP_MAX_SIZE_REACHED"
    ),
    "a classic member's metadata can't be read": Different(
        "classic_joins_that_are_refused", "e join member_id='e'", "INCONSISTENT_GROUP_PROTOCOL", "UNKNOWN_SERVER_ERROR"
    ),
    "the last member leaves": Different(
        "kafka_20442_last_member_leaves", "a describe", "assignment_epoch=3", "assignment_epoch=2"
    ),
    "a static member changes its instance id": Different(
        "kafka_20747_instance_id_changes", "a beat instance_id='A'", "error_code=UNKNOWN_MEMBER_ID", "error_code=NONE"
    ),
    "a static member takes another seat": Different(
        "kafka_20747_instance_id_of_another_member", "c join", "error_code=NONE", "error_code=UNRELEASED_INSTANCE_ID"
    ),
}
"""What happens -> where it shows."""

CASES = {case.name: case for case in cases()}


@pytest.fixture(scope="module")
def played() -> dict[str, Outcomes]:
    """The answers of 4.3.1 in all of these scripts."""
    return dict(_played())


def _played() -> Iterator[tuple[str, Outcomes]]:
    own = [CASES[each.script] for each in DIFFERENT.values()]
    for node in sorted({case.node for case in own}):
        with ApacheKafka(CONSUMER_NODES[node] | SAME_NAME | ONE_AFTER_THE_OTHER, version=VERSION_43) as kafka:
            for each in play_together([case for case in own if case.node == node], kafka):
                yield each.case.name, each.outcomes()


@pytest.mark.parametrize("what", DIFFERENT)
def test_kafka_43_answers_otherwise(what: str, played: dict[str, Outcomes]) -> None:
    """The first answer that isn't 4.4's has the words of 4.3.1."""
    each = DIFFERENT[what]
    command, newer, older = first_difference(CASES[each.script], played[each.script])
    assert command == each.command
    assert each.newer in newer
    assert each.older in older


def first_difference(case: Case, found: Outcomes) -> tuple[str, str, str]:
    """A command, and the first of its answers that differs: the recorded one and the found one."""
    for command, *answers in zip(case.commands, case.answers, found, strict=True):
        for newer, older in zip(*answers, strict=True):
            if newer != older:
                return command, newer, older
    pytest.fail(f"{case} has the same answers")
