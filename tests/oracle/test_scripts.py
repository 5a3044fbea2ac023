"""Every script on Tenure, and on Apache Kafka: both give the answers that are in the script.

    pytest tests/oracle/test_scripts.py -k scripts/static.txt                      on both
    pytest tests/oracle/test_scripts.py -k scripts/static.txt -m 'not oracle'      on Tenure alone, without Java
    ORACLE_RECORD=1 pytest tests/oracle/test_scripts.py -k scripts/static.txt -m oracle     writes Kafka's answers

The scripts of a file are played at the same time, so that they wait for their timeouts together. Each has a group and
topics of its own. Scripts for CONSUMER_NODES (conftest.py) are played on Kafka 4.4.0, the others on 3.9.1.
transcript.py lists the fields that may differ. The scripts with a restart share one kill of a server of their own.

House rule: what is excused in Tenure is an answer of Kafka 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from difflib import unified_diff
from typing import NamedTuple, Protocol

import pytest

from tests.oracle.conftest import CONSUMER_NODES, NODES, ONE_AFTER_THE_OTHER, SAME_NAME
from tests.oracle.player import Play, play, play_all, play_together
from tests.oracle.script import FOLDER, IS_RECORDING, OUTCOME, Case, Outcomes, cases, head_of, read, write
from tests.oracle.stage import HAPPENS_WITHIN_S, SHORT_BELOW_MS
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.tenure import Tenure

Node = Tenure | ApacheKafka
Start = Callable[[str], Node]


class New(Protocol):
    """Makes the server of a node, for a play that is so many times slower."""

    def __call__(self, node: str, slower: int = 1) -> Node: ...


Found = dict[Case, Outcomes]
"""What a server answered in each case."""
Expected = Callable[[Case], Outcomes]

SLOWER = (4, 16)
"""By how much the short timeouts of a script are longer at its next tries."""
DELAY = "group.initial.rebalance.delay.ms"
WITHIN_THE_DELAY = {
    "initial_delay",
    "initial_delay_of_an_emptied_group",
    "pending_members_of_an_empty_group",
    "restart_during_the_initial_delay",
}
"""Scripts in which a group's initial delay has to outlast a few steps."""

PASSES = re.compile(r"pass_time (\d+)$")
MAKES_A_MEMBER = re.compile(r"^(?:client|static|seat|short_session) |\w restarted ")
TIMEOUT = re.compile(r"(?:(?:session|rebalance)_timeout_ms=|short_session )([\d_]+)")

NO_GROUP_TO_COMMIT_TO = {"older_commits"}
"""In Kafka 4.4 a commit of v9 to a group that isn't there is GROUP_ID_NOT_FOUND. In Kafka 3.9 and here it is
ILLEGAL_GENERATION: one version of OffsetCommit serves the clients of both.
"""
WHILE_IT_REBALANCES = re.compile(r"(state='(?:Preparing|Completing)Rebalance'.*) member_assignment=b'[^']*'")
"""Kafka 4.4 describes the assignments of a classic group that rebalances. Kafka 3.9 leaves them out, and so do we."""

IN_TURN = {"configs", "offsets_log", "transaction_checks"}
"""Files whose scripts are played one after the other. Those of "configs" change the broker's settings, which all
scripts share, and those of "offsets_log" read a log that all of them write. When several producers write at once, Kafka
answers them all as it answers the first of them.
"""
TRANSACTIONS = "transactions"
ON_39_TOO = {TRANSACTIONS, "expiring", "offsets_log"}
"""The servers for transactions: the scripts are played on Kafka 4.4.0, and again on Kafka 3.9.1."""
ONLY_IN_44 = {
    "claims_within_a_transaction": "In 3.9 a producer whose transaction was aborted may not go on with its epoch.",
    "commits_without_a_group": "In 3.9 a generation without a group is UNKNOWN_MEMBER_ID.",
    "pending_offsets_keep_older_ones": "In 3.9 a committed offset expires although another one is pending.",
    "zombies_and_pending_offsets": "In 3.9 a fenced producer's commit removes what its successor has pending.",
}
"""Scripts of transactions whose answers differ in Kafka 3.9, and how."""
START_IN_39 = re.compile(r"(transaction_state='Empty' .*transaction_start_time_ms=)'a moment'")
"""In Kafka 3.9 an id without a transaction still has the start of the one before."""
UNKNOWN_VERSION = "is closed"
"""What Kafka 3.9 does at the first request of a version that it doesn't know; the rest of the script is left out."""


class Part(NamedTuple):
    """The scripts of a file that want the same server."""

    node: str
    file: str

    def __str__(self) -> str:
        return f"scripts/{self.file}.txt:{self.node}"


CASES = cases()
RESTARTS = [case for case in CASES if case.restarts]
PARTS = sorted({Part(case.node, case.file) for case in CASES if not case.restarts})


def settings_of(node: str, slower: int = 1) -> dict[str, str]:
    """The settings of a node, for a play that is so many times slower."""
    settings = {**NODES, **CONSUMER_NODES}[node]
    return SAME_NAME | settings | {DELAY: str(int(settings[DELAY]) * slower)}


def new_tenure(node: str, slower: int = 1) -> Tenure:
    """A Tenure, not yet started, with the settings of a node."""
    return Tenure(settings_of(node, slower))


def new_kafka(node: str, slower: int = 1) -> ApacheKafka:
    """The same of Apache Kafka."""
    version = VERSION_44 if node in CONSUMER_NODES else VERSION
    return ApacheKafka(settings_of(node, slower) | ONE_AFTER_THE_OTHER, version=version)


def new_kafka_39(node: str, slower: int = 1) -> ApacheKafka:
    """The same of Apache Kafka 3.9, with the settings for Kafka 4.4."""
    return ApacheKafka(settings_of(node, slower) | ONE_AFTER_THE_OTHER)


@pytest.fixture(scope="module")
def tenure() -> Iterator[Start]:
    """Start the Tenure of a node; it runs until another one is wanted."""
    yield from one_at_a_time(new_tenure)


@pytest.fixture(scope="module")
def kafka(kafka_is_here: None) -> Iterator[Start]:
    """The same for Apache Kafka."""
    yield from one_at_a_time(new_kafka)


@pytest.fixture(scope="module")
def kafka_39(kafka_is_here: None) -> Iterator[Start]:
    """The same for Apache Kafka 3.9 and transactions."""
    yield from one_at_a_time(new_kafka_39)


@pytest.fixture(scope="module")
def restarted_tenure() -> dict[str, Outcomes]:
    """The answers of Tenure in all scripts with a restart."""
    with new_tenure("open") as server:
        return play_restarts(server)


@pytest.fixture(scope="module")
def restarted_kafka(kafka_is_here: None) -> dict[str, Outcomes]:
    """The answers of Apache Kafka in them."""
    with new_kafka("open") as server:
        return play_restarts(server)


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_tenure_answers_as_recorded(part: Part, tenure: Start) -> None:
    """Tenure's answers are those that Apache Kafka gave."""
    found = patiently(part, tenure(part.node), new_tenure, answers_of_39)
    assert_no_difference(found, answers_of_39)


@pytest.mark.parametrize("case", RESTARTS, ids=str)
def test_tenure_remembers_as_recorded(case: Case, restarted_tenure: dict[str, Outcomes]) -> None:
    """The same, with the server killed and started again in the middle."""
    assert_no_difference({case: restarted_tenure[case.name]}, recorded)


@pytest.mark.oracle
@pytest.mark.parametrize("part", PARTS, ids=str)
def test_kafka_answers_as_recorded(part: Part, kafka: Start) -> None:
    """Kafka's answers are the recorded ones."""
    found = patiently(part, kafka(part.node), new_kafka, recorded)
    assert_no_difference(found, known_answers(found))


@pytest.mark.oracle
@pytest.mark.parametrize("part", [part for part in PARTS if part.node in ON_39_TOO], ids=str)
def test_kafka_39_answers_alike(part: Part, kafka_39: Start) -> None:
    """Kafka 3.9 gives the same answers about transactions, up to the first request that it doesn't know."""
    played = patiently(part, kafka_39(part.node), new_kafka_39, recorded, as_in_44)
    found = {case: outcomes for case, outcomes in played.items() if case.script.name not in ONLY_IN_44}
    assert 2 * sum(not is_cut(outcomes) for outcomes in found.values()) >= len(found)
    assert_no_difference({case: as_in_44(case, outcomes) for case, outcomes in found.items()}, recorded)


@pytest.mark.oracle
@pytest.mark.parametrize("case", RESTARTS, ids=str)
def test_kafka_remembers_as_recorded(case: Case, restarted_kafka: dict[str, Outcomes]) -> None:
    """The same, with the server killed and started again in the middle."""
    found = {case: restarted_kafka[case.name]}
    assert_no_difference(found, known_answers(found))


@pytest.mark.parametrize("file", sorted({case.file for case in CASES}))
def test_file_has_the_form_in_which_it_is_written(file: str) -> None:
    """Answers that are recorded anew change only the lines that differ."""
    path = FOLDER / f"{file}.txt"
    assert write(head_of(file), read(path)) == path.read_text()


def test_the_static_rules_are_asked_well_enough() -> None:
    """At least 60 exchanges go over the static members alone."""
    answers = [answer for case in CASES if case.file == "static" for below in case.answers for answer in below]
    assert sum(" < " in answer for answer in answers) >= 60


def test_a_script_that_is_played_more_slowly_is_the_same() -> None:
    """The time that it lets pass grows with the timeouts beside it, and the longest ends before a wait for it does."""
    commands = [command for case in CASES for command in case.commands]
    passed = [int(match[1]) for command in commands if (match := PASSES.match(command))]
    timeouts = [int(ms) for command in commands if MAKES_A_MEMBER.search(command) for ms in TIMEOUT.findall(command)]
    short = [ms for ms in timeouts if ms < SHORT_BELOW_MS]
    assert max(passed) < SHORT_BELOW_MS
    assert max(short) * max(SLOWER) / 1000 < HAPPENS_WITHIN_S


def one_at_a_time(new: Start) -> Iterator[Start]:
    """Yield a function that starts the server of a node, and stops the one before."""
    running: dict[str, Node] = {}
    with ExitStack() as stack:

        def start(node: str) -> Node:
            if node not in running:
                running.clear()
                stack.close()
                running[node] = new(node)
                stack.enter_context(running[node])
            return running[node]

        yield start


def patiently(
    part: Part,
    server: Node,
    new: New,
    expected: Expected,
    compared: Callable[[Case, Outcomes], Outcomes] = lambda _, outcomes: outcomes,
) -> Found:
    """The answers in the scripts of a part, which wait for their timeouts together.

    On a busy machine a short timeout may be over before the steps that it has to outlast. Such a script is played once
    more, on a new server, with longer timeouts and a longer initial delay. compared: the answers in the form that is
    compared, by default as they are.
    """
    played = play_part(part, server)
    found = {each.case: each.outcomes() for each in played}
    for slower in SLOWER:
        again = [
            each.case
            for each in played
            if (each.stage.transcript.is_timed or each.case.script.name in WITHIN_THE_DELAY)
            and compared(each.case, found[each.case]) != expected(each.case)
        ]
        if not again:
            break
        with new(part.node, slower) as anew:
            played = play_together(again, anew, slower)
        found |= {each.case: each.outcomes() for each in played}
    return found


def play_part(part: Part, server: Node) -> list[Play]:
    """Play the scripts of a part, together if they may."""
    own = [case for case in CASES if Part(case.node, case.file) == part and not case.restarts]
    return [play(case, server) for case in own] if part.file in IN_TURN else play_together(own, server)


def is_cut(outcomes: Outcomes) -> bool:
    """Whether the server closed a connection."""
    return any(line.endswith(UNKNOWN_VERSION) for below in outcomes for line in below)


def as_in_44(case: Case, outcomes: Outcomes) -> Outcomes:
    """Kafka 3.9's answers, with those of Kafka 4.4 from the first request on that Kafka 3.9 doesn't know."""
    known = [[START_IN_39.sub(r"\1-1", line) for line in below] for below in outcomes]
    until = next((place for place, below in enumerate(known) if is_cut([below])), len(known))
    return known[:until] + case.answers[until:]


def play_restarts(server: Node) -> dict[str, Outcomes]:
    """Play all scripts with a restart on an open server, which comes back with the limits for the last ones."""
    played: list[Play] = []
    for node in ("open", "limited"):

        def restart(node: str = node) -> None:
            server.kill()
            server.settings.update(NODES[node])
            server.start()

        played += play_all([case for case in RESTARTS if case.node == node], server, restart)
    return {each.case.name: each.outcomes() for each in played}


def answers_of_39(case: Case) -> Outcomes:
    """The recorded answers; in two places, for classic groups, Kafka 3.9's in place of Kafka 4.4's."""
    if case.node not in CONSUMER_NODES:
        return case.answers
    found = [[WHILE_IT_REBALANCES.sub(r"\1", answer) for answer in below] for below in case.answers]
    if case.name in NO_GROUP_TO_COMMIT_TO:
        found = [[answer.replace("GROUP_ID_NOT_FOUND", "ILLEGAL_GENERATION") for answer in below] for below in found]
    return found


def recorded(case: Case) -> Outcomes:
    """The answers in the file."""
    return case.answers


def known_answers(found: Found) -> Expected:
    """The answers in the file; if they are recorded anew, those that Kafka has just given."""
    if not IS_RECORDING:
        return recorded
    for case, outcomes in found.items():
        case.record(outcomes)
    return found.__getitem__


def assert_no_difference(found: Found, expected: Expected) -> None:
    """All answers are the expected ones; if not, the error has the lines of the scripts that differ."""
    lines = [line for case in found for line in differences(case, expected(case), found[case])]
    assert not lines, "\n".join(lines)


def differences(case: Case, expected: Outcomes, found: Outcomes) -> list[str]:
    """The lines of a script that differ, below its name."""
    texts = [
        [
            line
            for command, below in zip(case.commands, outcomes, strict=True)
            for line in (command, *(OUTCOME + answer for answer in below))
        ]
        for outcomes in (expected, found)
    ]
    return [str(case), *unified_diff(texts[0], texts[1], lineterm="")] if expected != found else []
