"""Expected members in groups of the consumer protocol: refused, removed, or described as missing; nothing waits."""

from __future__ import annotations

from typing import Any

from coordinator.config import HELD, REFUSED
from coordinator.group.causes import CauseKind
from coordinator.group.events import DescribeConsumerGroup, GroupSettingsChanged
from coordinator.group.notes import ClientRefused, MemberLeft
from schemas.errors import ErrorCode
from tests.group.consumer.play import CLIENT, GROUP, Play
from tests.group.consumer.test_static import seats

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def expect(play: Play, *names: str, dropped: tuple[str, ...] = (), **own: Any) -> None:
    """Set the expected members of the group."""
    play.coordinator.group_configs = {GROUP: play.config.group_settings._replace(expected=names, **own)}
    play.handle(GroupSettingsChanged(GROUP, dropped))


def missing(play: Play) -> list[str]:
    """The expected members that are missing, by the group's description."""
    head = play.handle(DescribeConsumerGroup("r", GROUP, CLIENT, waiting=True)).head
    return list(head.expects.missing)


def refused(play: Play) -> list[str | None]:
    """The instance ids of clients that the group refused."""
    return [note.group_instance_id for note in play.notes if isinstance(note, ClientRefused)]


def test_members_that_are_not_expected_are_refused(play: Play) -> None:
    """Before the group exists too; the log names them. Members, and seats, go on."""
    expect(play, "i0", unexpected=REFUSED)
    assert play.join("x").error_code == FULL
    assert play.join("y", instance_id="i1").error_code == FULL
    assert not play.log
    assert play.join("m0", instance_id="i0").error_code == 0
    assert play.join("z").error_code == FULL
    assert refused(play) == [None, "i1", None]
    assert play.beat("m0", play.group.generation, {"t": [0, 1, 2, 3]}).error_code == 0
    assert play.beat("m0", -2, instance_id="i0").error_code == 0
    assert play.join("n0", instance_id="i0").error_code == 0


def test_members_of_the_classic_protocol_are_refused_too(play: Play) -> None:
    """Before they get a member id, in every version."""
    play.join("m0", instance_id="i0")
    expect(play, "i0", unexpected=REFUSED)
    for version in (3, 9):
        assert play.classic_join("", version=version).error_code == FULL
    assert play.classic_join("", instance_id="x").error_code == FULL
    assert refused(play) == [None, None, "x"]


def test_a_member_of_a_classic_group_may_change_the_protocol() -> None:
    """Its seat is its own. A new member of the other protocol is refused, and the group stays classic."""
    play = Play(group_consumer_migration_policy="bidirectional")
    play.classic_group(("a", "i0", {"t": [0, 1, 2, 3]}))
    expect(play, "i1", unexpected=REFUSED)
    assert play.join("x").error_code == FULL
    assert refused(play) == [None]
    assert play.join("m0", instance_id="i0").error_code == 0


def test_names_that_are_taken_off_go_with_one_epoch() -> None:
    """Also one that is away. Their next heartbeats say so; the others get the partitions."""
    play = seats(3)
    epoch = play.group.generation
    play.beat("m1", -2, instance_id="i1")
    expect(play, "i0", dropped=("i1", "i2", "never"))
    assert list(play.group.members) == ["m0"]
    assert play.group.generation == epoch + 1
    assert play.beat("m2", epoch, {}, instance_id="i2").error_code == UNKNOWN
    left = [note for note in play.notes if isinstance(note, MemberLeft)]
    assert [(note.member_id, note.reason) for note in left] == [
        (name, "not in expected.instance.ids") for name in ("m1", "m2")
    ]
    assert play.group.course is not None
    (cause,) = play.group.course.causes
    assert (cause.kind, cause.member_ids) == (CauseKind.MEMBER_REMOVED, ("m1", "m2"))
    play.beat("m0", epoch, {"t": [0, 1]})
    assert sorted(play.held()["m0"]["t"]) == list(range(6))


def test_a_change_without_members_to_remove_changes_nothing() -> None:
    """No record, no epoch."""
    play = seats(2)
    before = len(play.log), play.group.generation
    expect(play, "i0", "i1", "i2", dropped=("gone",))
    assert (len(play.log), play.group.generation) == before


def test_a_description_names_the_missing_and_nobody_waits(play: Play) -> None:
    """`held` holds nothing here: another member joins at once."""
    expect(play, "i0", "i1", unexpected=HELD)
    assert play.join("m0", instance_id="i0").error_code == 0
    assert play.join("x").error_code == 0
    assert missing(play) == ["i1"]
    play.join("m1", instance_id="i1")
    assert missing(play) == []
