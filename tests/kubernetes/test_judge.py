"""The judge of races names each wrong removal, whatever the program knows of its member ids, and no right one."""

from __future__ import annotations

import pytest

from tests.kubernetes.judge import Change, Ran, Removal, problems

ALIVE = float("inf")
GREW_AND_SHRANK = [Change(range(1), 0.0, 0.0), Change(range(3), 1.0, 1.1), Change(range(2), 5.0, 5.1)]
"""The set wants the ordinal 2 from 1 s to 5 s."""
PROGRAM = Ran("w-2", "last", 2, began=2.0, ended=6.0)
REMOVAL = Removal("w-2", "last", joined=2.1, at=7.0)


@pytest.mark.parametrize(
    ("programs", "removal"),
    [
        pytest.param([PROGRAM], REMOVAL, id="it has ended"),
        pytest.param([PROGRAM], REMOVAL._replace(member_id="first"), id="it joined twice, and has ended"),
        pytest.param([PROGRAM._replace(member_id="")], REMOVAL, id="it ended while it joined"),
        pytest.param(
            [PROGRAM, PROGRAM._replace(member_id="", began=6.3)],
            REMOVAL._replace(member_id="first", joined=6.2, at=6.4),
            id="a server that stood still took its JoinGroup after its end",
        ),
        pytest.param(
            [PROGRAM._replace(ended=ALIVE), PROGRAM._replace(member_id="", ended=6.0)],
            REMOVAL._replace(member_id="first"),
            id="the program of a lost node lives beside it",
        ),
        pytest.param(
            [PROGRAM, PROGRAM._replace(began=6.5, ended=ALIVE, member_id="new")],
            REMOVAL._replace(member_id="first", joined=None),
            id="a server that was killed lost the line about its JoinGroup",
        ),
    ],
)
def test_a_right_removal_is_no_problem(programs: list[Ran], removal: Removal) -> None:
    """The program that may have had the member has ended, and its pod isn't wanted."""
    assert problems(programs, GREW_AND_SHRANK, [removal]) == []


@pytest.mark.parametrize(
    ("programs", "removal", "problem"),
    [
        pytest.param(
            [PROGRAM._replace(ended=ALIVE)], REMOVAL, "a member that lives was removed", id="its last member id"
        ),
        pytest.param(
            [PROGRAM._replace(member_id="old", began=1.1, ended=1.9), PROGRAM._replace(ended=ALIVE)],
            REMOVAL._replace(member_id="first"),
            "a member that lives was removed",
            id="it lives, and joined again after the removal",
        ),
        pytest.param(
            [PROGRAM],
            REMOVAL._replace(member_id="first", joined=1.0),
            "first, of no program, was removed",
            id="the member joined before each program",
        ),
        pytest.param(
            [PROGRAM._replace(ended=3.0)],
            REMOVAL._replace(at=4.0),
            "a member was removed whose pod comes back",
            id="the set wants its pod",
        ),
    ],
)
def test_a_wrong_removal_is_a_problem(programs: list[Ran], removal: Removal, problem: str) -> None:
    """A member that lives, one of no program, and one whose pod the set wants."""
    assert problems(programs, GREW_AND_SHRANK, [removal]) == [f"w-2: {problem}"]
