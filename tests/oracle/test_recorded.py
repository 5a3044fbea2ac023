"""Every script on Tenure alone, against the answers of Apache Kafka that are recorded: needs no Java.

House rule: nothing is excused here that isn't excused in test_apache.py.
"""

from __future__ import annotations

from typing import cast

import pytest

from tests.oracle.conftest import NODES, PLAYED_AT_ONCE, RESTART_SCRIPTS, SAME_NAME, play_restarts
from tests.oracle.recorded import Recorded, answers
from tests.oracle.stage import Script, play
from tests.support.tenure import Tenure

SLOWER = (4, 16)
"""By how much the short timeouts of a script are longer at its next tries."""


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Kafka's recorded answers."""
    return Recorded()


@pytest.fixture(scope="module")
def restarted() -> dict[str, list[str]]:
    """Return Tenure's answers in each restart script."""
    with Tenure({**NODES["open"], **SAME_NAME}) as tenure:
        played = play_restarts(tenure)
    return {name: answers(lines) for name, lines in played.items()}


@pytest.mark.parametrize("script", PLAYED_AT_ONCE, ids=str)
def test_answers_as_recorded(script: Script, recorded: Recorded, request: pytest.FixtureRequest) -> None:
    """A script's answers are those that Apache Kafka gave.

    On a busy machine a short timeout may be over before the steps that it has to outlast. Such a script is played once
    more, on a new server and with longer timeouts.
    """
    transcript = play(script, cast("Tenure", request.getfixturevalue(f"{script.node}_tenure")))
    for slower in SLOWER:
        if not transcript.is_timed or answers(transcript.comparable()) == recorded.answers_to(script):
            break
        with Tenure({**NODES[script.node], **SAME_NAME}) as anew:
            transcript = play(script, anew, slower)
    assert answers(transcript.comparable()) == recorded.answers_to(script)


@pytest.mark.parametrize("script", RESTART_SCRIPTS, ids=str)
def test_remembers_as_recorded(script: Script, recorded: Recorded, restarted: dict[str, list[str]]) -> None:
    """The same, with the server killed and started again in the middle."""
    assert restarted[script.name] == recorded.answers_to(script)
