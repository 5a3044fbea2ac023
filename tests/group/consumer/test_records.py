"""A large group is read in steps."""

from __future__ import annotations

from coordinator.group.consumer.group import MemberState
from coordinator.group.consumer.records import MADE_AT_ONCE
from coordinator.group.replay import DECODED_AT_ONCE, Replay
from tests.group.consumer.play import Play


def test_states_of_members_have_kafkas_numbers() -> None:
    """Kafka reads and writes these in the record of a member's partitions."""
    assert {state.name: state.value for state in MemberState} == {
        "STABLE": 0,
        "UNREVOKED": 1,
        "UNRELEASED": 2,
        "UNKNOWN": 127,
    }


def test_a_group_of_many_members_is_made_in_steps() -> None:
    """The caller may pause behind some records, and behind some members; the group comes last, as it was."""
    play = Play({"t": 1})
    for number in range(4 * MADE_AT_ONCE):
        play.join(f"m{number:03}", topics=[])
    replay = Replay()
    replay.add(play.log)
    *steps, group = replay.groups_in_steps()
    assert set(steps) == {None}
    records = len({record.key for record in play.log})
    assert len(steps) >= records // DECODED_AT_ONCE - 1 + 4
    assert group is not None
    assert group.members == play.group.members
