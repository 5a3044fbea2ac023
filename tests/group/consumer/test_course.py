"""Rebalances of the consumer protocol: why they began, what moved, and who held them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coordinator.group import notes
from coordinator.group.causes import CauseKind
from coordinator.group.consumer.group import SETTLED, UNRELEASED
from coordinator.group.course import Outcome, Phase, Waited
from coordinator.group.events import Unload
from coordinator.story.making import moves
from tests.group.consumer.play import Play
from tests.group.consumer.test_static import seats

if TYPE_CHECKING:
    from coordinator.group.notes import Note

N = TypeVar("N", bound="Note")


def said(play: Play, kind: type[N]) -> list[N]:
    """The notes of a kind so far."""
    return [note for note in play.notes if isinstance(note, kind)]


def pair() -> Play:
    """a has four partitions; b joins, and a has not heard of it. The notes begin with b."""
    play = Play()
    play.join("a")
    play.notes.clear()
    play.join("b")
    return play


def test_the_first_member_is_a_rebalance_that_ends_at_once(play: Play) -> None:
    """A first subscription bumps the epoch: the note has its cause, the target, and what was given."""
    play.join("a")
    (started,) = said(play, notes.RebalanceStarted)
    assert (started.generation, started.state, started.group_type) == (1, "Empty", "consumer")
    assert (started.cause.kind, started.cause.member_ids, started.members) == (CauseKind.MEMBER_JOINED, ("a",), 1)
    (target,) = said(play, notes.TargetAssigned)
    assert (target.generation, target.assignor, target.gained_partitions, target.lost_partitions) == (
        2,
        "uniform",
        4,
        0,
    )
    assert target.changes == (notes.TargetChange("a", None, 4, 0, 4),)
    (ended,) = said(play, notes.RebalanceEnded)
    assert (ended.outcome, ended.generation_before, ended.generation) == (Outcome.COMPLETED, 1, 2)
    assert (ended.protocol_name, ended.group_type, ended.waited_for) == ("uniform", "consumer", None)
    assert moves(ended) == [("t", partition, None, "a") for partition in range(4)]


def test_who_must_give_up_partitions_holds_the_others_up() -> None:
    """The end names the member that took longest to give up its partitions, and how long it took."""
    play = pair()
    play.wait(500)
    a = play.group.members["a"]
    play.beat("a", a.epoch, {"t": [0, 1, 2, 3]})
    (asked,) = said(play, notes.MemberRevoking)
    assert (asked.member_id, asked.partitions) == ("a", 2)
    assert asked.until_ms == play.now().wall_ms + 10_000
    play.wait(3_000)
    kept = sorted(*play.group.members["a"].assigned.values())
    play.beat("a", a.epoch, {"t": kept})
    assert not said(play, notes.RebalanceEnded)
    play.wait(100)
    play.beat("b", play.group.members["b"].epoch, {})
    (ended,) = said(play, notes.RebalanceEnded)
    assert ended.waited_for == Waited("a", Phase.REVOKING, 3_000)
    assert (ended.preparing_ms, ended.completing_ms) == (0, 3_600)
    assert len(ended.causes) == 1
    moved = moves(ended)
    assert moved is not None
    assert [(move[2], move[3]) for move in moved] == [("a", "b")] * 2


def test_who_is_silent_holds_the_others_up() -> None:
    """A member of which no heartbeat comes since the target is waited for, too.

    With a heartbeat that has its target already it gives up the rest: from then on the others are waited for.
    """
    for late_ms, longest in (
        (0, Waited("a", Phase.ACKNOWLEDGING, 2_000)),
        (5_000, Waited("b", Phase.ACKNOWLEDGING, 5_000)),
    ):
        play = pair()
        play.wait(2_000)
        a = play.group.members["a"]
        play.beat("a", a.epoch, {"t": sorted(play.group.targets["a"][next(iter(a.assigned))])})
        play.wait(late_ms)
        play.beat("b", play.group.members["b"].epoch, {})
        (ended,) = said(play, notes.RebalanceEnded)
        assert ended.waited_for == longest


def test_who_comes_late_for_free_partitions_holds_the_others_up() -> None:
    """Others gave up in time, and the heartbeat that takes what they gave up comes late: that was waited for."""
    play = pair()
    play.wait(300)
    a = play.group.members["a"]
    play.beat("a", a.epoch, {"t": [0, 1, 2, 3]})
    play.wait(200)
    play.beat("a", a.epoch, {"t": sorted(*play.group.members["a"].assigned.values())})
    play.wait(5_000)
    play.beat("b", play.group.members["b"].epoch, {})
    (ended,) = said(play, notes.RebalanceEnded)
    assert ended.waited_for == Waited("b", Phase.ACKNOWLEDGING, 5_000)


def test_further_epochs_belong_to_the_same_rebalance() -> None:
    """While members are on their way, another epoch is a further cause; there is one end."""
    play = pair()
    play.join("c")
    assert len(said(play, notes.RebalanceStarted)) == 1
    (further,) = said(play, notes.RebalanceCause)
    assert (further.generation, further.cause.member_ids, further.group_type) == (3, ("c",), "consumer")
    play.leave("b")
    play.leave("c")
    play.beat("a", play.group.members["a"].epoch)
    (ended,) = said(play, notes.RebalanceEnded)
    kinds = [cause.kind.value for cause in ended.causes]
    assert kinds == ["member_joined", "member_joined", "member_left", "member_left"]
    assert (ended.generation_before, ended.generation, moves(ended)) == (2, 6, [])


def test_a_member_that_never_gives_up_is_named() -> None:
    """It is removed after its rebalance timeout: a cause of its own, and among those that were late."""
    play = pair()
    play.beat("a", play.group.members["a"].epoch, {"t": [0, 1, 2, 3]})
    play.wait(10_000)
    (dropped,) = said(play, notes.MembersDropped)
    assert dropped.member_ids == ("a",)
    play.beat("b", play.group.members["b"].epoch, {})
    (ended,) = said(play, notes.RebalanceEnded)
    assert [cause.kind for cause in ended.causes] == [CauseKind.MEMBER_JOINED, CauseKind.REVOCATION_TIMED_OUT]
    assert ended.late == ("a",)
    assert ended.waited_for == Waited("a", Phase.REVOKING, 10_000)


def test_the_last_member_that_goes_ends_the_rebalance(play: Play) -> None:
    """Nobody is left: the rebalance is over without an end that anybody reached."""
    play.join("a")
    play.notes.clear()
    play.leave("a")
    (ended,) = said(play, notes.RebalanceEnded)
    assert (ended.outcome, ended.completing_ms, ended.after) == (Outcome.EMPTIED, None, ())
    assert [seat.member_id for seat in ended.before] == ["a"]
    assert isinstance(play.notes[-1], notes.GroupEmptied)


def test_a_static_member_away_and_back_is_no_rebalance() -> None:
    """It keeps its seat: two notes, how long it was away, and no epoch."""
    play = seats()
    play.notes.clear()
    play.beat("m0", -2, instance_id="i0")
    assert len(play.notes) == 1
    play.beat("m0", -2, instance_id="i0")
    play.wait(1_500)
    play.join("n0", instance_id="i0")
    away, back = play.notes
    assert isinstance(away, notes.MemberAway)
    assert (away.member_id, away.group_instance_id) == ("m0", "i0")
    assert isinstance(back, notes.MemberReplaced)
    assert (back.away_ms, back.rebalances, back.state) == (1_500, False, "Stable")
    assert back.silent_ms == 1_500


def test_a_clock_that_was_set_back_makes_no_negative_absence() -> None:
    """A static member was away for no less than 0 ms, whatever happened to the clock on the wall meanwhile."""
    play = seats()
    play.beat("m0", -2, instance_id="i0")
    play.notes.clear()
    now = play.now()
    play.now = lambda: now._replace(wall_ms=now.wall_ms - 5_000)  # type: ignore[method-assign]
    play.join("n0", instance_id="i0")
    (back,) = said(play, notes.MemberReplaced)
    assert back.away_ms == 0


def test_a_return_with_another_subscription_is_one() -> None:
    """The note of the return says that a rebalance follows, and its cause names the topics."""
    play = seats()
    play.set_topics(u=1)
    play.notes.clear()
    play.beat("m0", -2, instance_id="i0")
    play.join("n0", ["u"], instance_id="i0")
    (back,) = said(play, notes.MemberReplaced)
    assert (back.rebalances, back.subscription_changed) == (True, False)
    (started,) = said(play, notes.RebalanceStarted)
    assert (started.cause.kind, started.cause.group_instance_id) == (CauseKind.SUBSCRIPTION_CHANGED, "i0")


def test_a_taken_seat_names_both_parties() -> None:
    """Who wants the seat of an active member is told, with the time since that member was heard of."""
    play = seats()
    play.wait(700)
    play.notes.clear()
    play.join("n0", instance_id="i0")
    (note,) = play.notes
    assert isinstance(note, notes.InstanceIdUnreleased)
    assert (note.member_id, note.current_member_id, note.group_instance_id) == ("n0", "m0", "i0")
    assert note.silent_ms == 700
    play.restart()
    play.notes.clear()
    play.join("n0", instance_id="i0")
    assert said(play, notes.InstanceIdUnreleased)[0].silent_ms is None


def test_a_heartbeat_that_changes_nothing_says_nothing() -> None:
    """Steady members make no notes."""
    play = seats()
    play.notes.clear()
    for member in list(play.group.members.values()):
        play.beat(member.member_id, member.epoch)
        play.beat(member.member_id, member.epoch, {"t": sorted(*member.assigned.values())})
    assert not play.notes


def test_an_open_rebalance_ends_with_its_partition() -> None:
    """An unload tells the end of a rebalance that was under way."""
    play = pair()
    ended, unloaded = play.coordinator.handle(Unload(), play.now()).notes
    assert isinstance(ended, notes.RebalanceEnded)
    assert ended.outcome is Outcome.UNLOADED
    assert isinstance(unloaded, notes.GroupUnloaded)


def test_a_deleted_topic_keeps_its_name() -> None:
    """What a topic's deletion freed is told with the name that the topic had."""
    play = Play({"t": 2, "u": 1})
    play.join("a", ["t", "u"])
    play.notes.clear()
    play.set_topics(u=0)
    epoch = play.group.members["a"].epoch
    play.beat("a", epoch, {"t": [0, 1], "u": [0]})
    play.beat("a", epoch, {"t": [0, 1]})
    (ended,) = said(play, notes.RebalanceEnded)
    assert moves(ended) == [("u", 0, "a", None)]


def test_a_member_that_wants_no_more_partitions_held_nobody_up() -> None:
    """It waited for others, who had given up nothing yet."""
    play = Play({"t": 4, "u": 1}, group_consumer_assignment_interval_ms=20_000)
    play.join("a")
    play.wait(20_000)
    play.beat("a", 2)
    play.join("b")
    assert play.group.members["b"].state is UNRELEASED
    play.wait(1_000)
    play.beat("b", 3, topics=["u"])
    assert play.group.members["b"].state is SETTLED
    assert play.group.course is not None
    assert play.group.course.longest is None


def test_a_member_that_is_asked_for_more_has_given_up_nothing() -> None:
    """The group waits on for all of it, and the others can take nothing yet."""
    play = Play({"t": 4, "u": 1})
    play.join("a", ["t", "u"])
    play.join("b", ["t"])
    owned = {"t": [0, 1, 2, 3], "u": [0]}
    play.beat("a", 2, owned)
    play.wait(1_000)
    play.beat("a", 2, owned, topics=["t"])
    assert [note.partitions for note in said(play, notes.MemberRevoking)] == [2, 3]
    course = play.group.course
    assert course is not None
    assert (course.freed_ms, course.longest) == (0, None)
    play.wait(1_500)
    play.beat("a", 2, {"t": sorted(*play.group.members["a"].assigned.values())})
    assert (course.freed_ms, course.longest) == (play.now().wall_ms, Waited("a", Phase.REVOKING, 2_500))


def test_a_static_member_that_went_away_while_it_was_asked_is_asked_no_more() -> None:
    """Its partitions are free at once. If it stays away, the group waits for it as for any other that is away."""
    play = Play()
    play.join("a", instance_id="seat")
    play.join("b")
    play.beat("a", 2, {"t": [0, 1, 2, 3]}, instance_id="seat")
    play.wait(1_000)
    play.beat("a", -2, instance_id="seat")
    course = play.group.course
    assert course is not None
    assert (course.freed_ms, course.longest) == (play.now().wall_ms, Waited("a", Phase.REVOKING, 1_000, "seat"))
    freed_ms = course.freed_ms
    play.wait(500)
    play.join("c", instance_id="seat")
    assert course.freed_ms == freed_ms
    assert course.longest == Waited("c", Phase.ACKNOWLEDGING, 1_500, "seat")


def test_a_member_that_only_gets_partitions_frees_none() -> None:
    """The others wait since a member gave some up, not since a member took more."""
    play = Play({"t": 4, "u": 1})
    play.join("a", ["t"])
    play.join("b", ["u"])
    play.beat("a", 2, {"t": [0, 1, 2, 3]})
    play.join("c", ["t"])
    play.set_topics(u=2)
    play.wait(300)
    play.beat("c", play.group.members["c"].epoch, {})
    play.wait(200)
    play.beat("a", play.group.members["a"].epoch, {"t": sorted(*play.group.targets["a"].values())})
    course = play.group.course
    assert course is not None
    freed_ms = course.freed_ms
    assert freed_ms == play.now().wall_ms
    play.wait(400)
    play.beat("b", play.group.members["b"].epoch, {"u": [0]})
    assert play.group.members["b"].state is SETTLED
    assert course.freed_ms == freed_ms
