"""When a deployment may restart a member: each reason against it, and what a server doesn't tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator.group.consumer.group import AWAY
from coordinator.story.counts import ABSENT_MS
from coordinator.story.described import ConsumerSeat, Expects, Member
from coordinator.story.diagnosis import RESTART_MAX_MS
from coordinator.story.entries import Entry, Timeline
from coordinator.story.readiness import Verdict, Wanted, absent, verdict
from tests.story.test_diagnosis import NOW_MS, group_of, started
from tests.story.test_diagnosis import member as bare
from tests.support.told import event


def member(instance: str, silent_ms: int = 0, session_timeout_ms: int = 45_000) -> Member:
    """A static member whose server tells its session."""
    return replace(bare(instance), session_timeout_ms=session_timeout_ms, silent_ms=silent_ms)


def restart(instance: str, took_ms: int | None, at_ms: int = NOW_MS, **fields: Any) -> Any:
    """The event of a restart that was in time."""
    return event(
        "member_replaced",
        at_ms,
        member_id=f"{instance}-2",
        old_member_id=f"{instance}-1",
        group_instance_id=instance,
        state="Stable",
        client_id="c",
        client_host="/h",
        rebalances=False,
        subscription_changed=False,
        api_version=9,
        silent_ms=took_ms,
        **fields,
    )


def deleted(at_ms: int) -> Any:
    """The event of a group that was deleted."""
    return event("group_deleted", at_ms, offsets=None)


def entries(*events: Any) -> list[Entry]:
    """The entries of a timeline."""
    return Timeline("g").add_all(events).entries


def judged(*members: Member, events: Any = (), state: str = "Stable", **wanted: Any) -> Verdict:
    """The verdict on a group with these members and events."""
    told = None if events is None else entries(*events)
    return verdict(group_of(*members, state=state), told, Wanted(**wanted), NOW_MS)


def test_a_whole_group_is_ready() -> None:
    """All members are there and restarts were shorter than the session timeout: the line has both numbers."""
    found = judged(member("a"), member("b"), events=[restart("b", 3_100)], instance_id="a")
    assert found == Verdict(
        True, "group g is Stable, 2 members, a may be away for 45.0 s, restarts took up to 3.1 s", []
    )
    assert judged(member("a")).reason.endswith("each may be away for 45.0 s, no restart is known")


def test_a_group_that_rebalances_is_not_ready() -> None:
    """Only a Stable group answers the restart of a static member at once."""
    assert judged(member("a"), state="PreparingRebalance") == Verdict(False, "group g is PreparingRebalance", [])
    waiting = replace(group_of(state="Empty"), expects=Expects(["b"], 2, NOW_MS))
    assert verdict(waiting, [], Wanted(), NOW_MS).reason == "group g is Empty, and 2 joins are held"


def test_a_group_without_static_members_is_not_ready() -> None:
    """Each restart there is a rebalance. One static member is enough, because a deployment may restart only that."""
    dynamic = replace(member("a"), group_instance_id=None)
    reason = "no member of group g has an instance id, so each restart moves partitions"
    assert judged(dynamic, dynamic) == Verdict(False, reason, [])
    assert judged(dynamic, member("b"), instance_id="b").is_ready


def test_another_member_that_is_away() -> None:
    """A silent member counts, unless it is the one to restart. The option says for how long it has to be silent."""
    away = member("b", ABSENT_MS)
    assert judged(member("a"), away, instance_id="a").reason == "b (silent for 10.0 s) is away"
    assert judged(member("a"), away).reason == "b (silent for 10.0 s) is away"
    assert judged(member("a"), away, instance_id="b").is_ready
    assert judged(member("a"), away, absent_ms=ABSENT_MS + 1).is_ready
    assert judged(away, member("c", 20_000)).reason == "b (silent for 10.0 s), c (silent for 20.0 s) are away"


def test_a_member_with_a_short_session_is_away_before_its_session_ends() -> None:
    """Two thirds of it are a silence that counts, for `members remove --all-absent` too, unless an option says more."""
    silent, dead = member("b", 3_999, session_timeout_ms=6_000), member("b", 4_000, session_timeout_ms=6_000)
    assert judged(member("a", 4_000), silent, instance_id="a").is_ready
    assert judged(member("a", 4_000), dead, instance_id="a").reason == "b (silent for 4.0 s) is away"
    assert absent([member("a", 4_000), silent, dead]) == [dead]
    assert absent([member("a", 4_000), dead], 5_000) == []


def test_a_member_that_said_it_is_away() -> None:
    """In the consumer protocol a static member says that it leaves for a while; other servers tell that too."""
    away = replace(bare("b"), seat=ConsumerSeat(AWAY, {}, None, is_classic=False))
    assert absent([bare("a"), away], ABSENT_MS) == [away]
    assert judged(bare("a"), away, events=None).reason == "b is away"


def test_members_that_are_expected_and_missing() -> None:
    """A group whose settings name members that are not there is not ready."""
    group = replace(group_of(member("a")), expects=Expects(["b", "c"], 0, None))
    assert verdict(group, [], Wanted("a"), NOW_MS).reason == "b, c are expected and missing"


def test_other_numbers_of_members() -> None:
    """A deployment knows how many there have to be."""
    assert judged(member("a"), members=2).reason == "group g has 1 member, not 2"
    assert judged(member("a"), member("b"), members=2).is_ready


def test_a_session_timeout_below_restarts() -> None:
    """A restart that takes as long as the session timeout loses the seat. A rejoin after a load is no restart."""
    slow = restart("b", 6_000)
    found = judged(member("a", session_timeout_ms=6_000), member("b"), events=[restart("b", 9), slow], instance_id="a")
    assert found.reason == (
        "the session timeout of a is 6.0 s, and a restart of b at 1970-01-01 02:46:40.000Z took 6.0 s"
    )
    assert judged(member("a", session_timeout_ms=6_001), events=[slow]).is_ready
    assert judged(member("a", session_timeout_ms=5_000), member("b"), events=[slow], instance_id="b").is_ready
    for harmless in (restart("b", 6_000, after_load=True), restart("b", None)):
        assert judged(member("a", session_timeout_ms=5_000), events=[harmless]).is_ready


def test_a_restart_that_lost_its_seat() -> None:
    """A member that expired and came back stops restarts of others until its seat has restarted in time."""
    late = [started(1_000, "member_expired", "b"), started(3_000, "member_joined", "b")]
    text = (
        "b expired before it came back at 1970-01-01 00:00:03.000Z: its session timeout was shorter than its restart: "
    )
    for instance_id in ("a", None):
        found = judged(member("a"), member("b"), events=late, instance_id=instance_id)
        assert (found.is_ready, found.reason) == (
            False,
            f"{text}first restart b with a longer one (tenure doctor says more)",
        )
    assert judged(member("a"), member("b"), events=[*late, restart("b", 9, 4_000)], instance_id="a").is_ready
    assert judged(member("a"), member("b"), events=[*late, deleted(4_000)], instance_id="a").is_ready
    assert judged(member("a"), events=late, instance_id="a").is_ready, "b was removed: nobody can restart it"


def test_the_restart_that_mends_a_session_timeout() -> None:
    """A member that expired may restart with a longer session timeout, also if others are as it is."""
    late = [
        started(at_ms, kind, name)
        for name, at_ms, kind in (
            ("a", 1_000, "member_expired"),
            ("a", 2_000, "member_joined"),
            ("b", 3_000, "member_expired"),
            ("b", 4_000, "member_joined"),
        )
    ]
    for name in "ab":
        found = judged(member("a"), member("b"), member("c"), events=late, instance_id=name)
        assert found.is_ready
        assert f"no restart is known; {name} expired before it came back at " in found.reason
        assert found.reason.endswith(": restart it with a longer one")
    found = judged(member("a"), member("b"), member("c"), events=late, instance_id="c")
    assert "b expired before" in found.reason


def test_a_member_that_expired_a_short_time_ago() -> None:
    """It is no member any more, but may be a restart that takes too long; unless the number of members is said."""
    gone = [started(NOW_MS - 5_000, "member_expired", name) for name in "cb"]
    found = judged(member("a"), events=gone, instance_id="a")
    assert not found.is_ready
    assert found.reason == (
        "b, c expired, at 1970-01-01 02:46:35.000Z, and didn't come back (if the group shall go on with 1 member, say "
        "so with --members)"
    )
    assert judged(member("a"), events=gone, members=1).is_ready
    assert judged(member("a"), events=[*gone, started(NOW_MS - 4_000, "member_removed", "b")]).reason.startswith("c ")
    assert judged(member("a"), events=[started(NOW_MS - RESTART_MAX_MS, "member_expired", "b")]).is_ready
    assert judged(member("a"), events=[*gone, deleted(NOW_MS)]).is_ready
    assert judged(*map(member, "abc"), events=gone).is_ready, "they are back, and no event tells that yet"


def test_what_a_server_does_not_tell() -> None:
    """Apache Kafka tells state and members: they decide, and the verdict names the rest."""
    found = judged(bare("a"), bare("b"), events=None, instance_id="a", members=2)
    assert found == Verdict(
        True,
        "group g is Stable, 2 members",
        ["which members are silent", "session timeouts", "which members expired", "how long restarts took"],
    )
    assert not judged(bare("a"), events=None, members=2).is_ready


def test_standbys_are_no_members() -> None:
    """The number of members leaves them out, and their session timeouts don't count."""
    spare = replace(member("s", session_timeout_ms=3), standby_ms=0)
    found = judged(member("a"), member("b"), spare, members=2)
    assert found.is_ready
    assert found.reason.startswith("group g is Stable, 2 members and 1 standby, each may be away for 45.0 s")
    assert judged(member("a"), spare, members=2).reason == "group g has 1 member, not 2"
    assert judged(member("a"), replace(spare, silent_ms=ABSENT_MS)).reason == "s (silent for 10.0 s) is away"
    assert judged(member("a"), spare, instance_id="s").reason.endswith("s may be away for 3 ms, no restart is known")


def test_a_seat_that_is_free() -> None:
    """A group with fewer members than seats is not whole, though nobody is away."""
    group = replace(group_of(member("a"), member("b")), target_size=3)
    assert verdict(group, [], Wanted(), NOW_MS) == Verdict(False, "only 2 of the 3 seats of group g are taken", [])
    assert verdict(replace(group, target_size=2), [], Wanted(), NOW_MS).is_ready
