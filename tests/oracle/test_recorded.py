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
    """A script's answers are those that Apache Kafka gave."""
    tenure = cast("Tenure", request.getfixturevalue(f"{script.node}_tenure"))
    assert answers(play(script, tenure).comparable()) == recorded.answers_to(script)


@pytest.mark.parametrize("script", RESTART_SCRIPTS, ids=str)
def test_remembers_as_recorded(script: Script, recorded: Recorded, restarted: dict[str, list[str]]) -> None:
    """The same, with the server killed and started again in the middle."""
    assert restarted[script.name] == recorded.answers_to(script)
