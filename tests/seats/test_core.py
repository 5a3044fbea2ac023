"""coordinator.seats.core: which seats are free for good, and the three steps that free one."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.seats.core import (
    Ask,
    Asked,
    Confirm,
    Confirmed,
    Holder,
    Kind,
    Leads,
    Leave,
    Left,
    PodGone,
    PodLost,
    PodSeen,
    PodsListed,
    Seats,
    SetGone,
    SetSeen,
    SetsListed,
    Step,
    Tell,
    Tick,
)
from coordinator.seats.pods import Pod, Seat, StatefulSet
from schemas.errors import ErrorCode

ADDRESS = "10.1.0.5"
SET = StatefulSet("s", "shop", "w", 0, 5, is_ending=False)
SEAT = Seat("orders", "w-4")
HOLDER = Holder("m-1", ADDRESS)


def pod(ordinal: int = 4, uid: str = "", *, found: StatefulSet = SET, seats: tuple[Seat, ...] = ()) -> Pod:
    """A pod that runs."""
    name = f"{found.name}-{ordinal}"
    return Pod(
        uid=uid or f"u-{found.uid}-{ordinal}",
        namespace=found.namespace,
        name=name,
        set_uid=found.uid,
        ordinal=ordinal,
        seats=seats or (Seat("orders", name),),
        problem="",
        addresses=frozenset({ADDRESS}),
        is_ending=False,
        has_node=True,
        has_ended=False,
    )


def ended(which: Pod) -> Pod:
    """The last form of a pod whose kubelet saw its containers end."""
    return which._replace(has_ended=True, is_ending=True)


class Play:
    """The core with a clock of the test."""

    def __init__(
        self, *pods: Pod, sets: tuple[StatefulSet, ...] = (SET,), frees: bool = True, any_host: bool = False
    ) -> None:
        self.core = Seats(frees=frees, any_host=any_host)
        self.now = 100.0
        assert self.take(SetsListed(sets), PodsListed(pods or (pod(),)), Leads(does=True)) == []

    def take(self, *events: object) -> list[object]:
        """The actions after these events."""
        return [action for event in events for action in self.core.handle(event, self.now)]  # type: ignore[arg-type]

    def told(self, *events: object) -> tuple[Kind, str]:
        """The only verdict that these events make, and nothing else happens."""
        (told,) = self.take(*events)
        assert isinstance(told, Tell)
        return told.verdict

    def ask(self, *events: object) -> Step:
        """The first step that these events begin; other seats stay as they are."""
        (ask,) = [each for each in self.take(*events) if not isinstance(each, Tell)]
        assert isinstance(ask, Ask)
        return ask.step

    def confirm(self, step: Step, holder: Holder = HOLDER) -> Step:
        """The second step, after the answer to the first."""
        (confirm,) = self.take(Asked(step, holder))
        assert confirm == Confirm(confirm.step, "shop", "w", "w-4")  # type: ignore[attr-defined]
        return confirm.step


@pytest.fixture
def play() -> Play:
    """Return a core that knows set w and its pod w-4."""
    return Play()


DOWN = SetSeen(SET._replace(replicas=3))
GONE = PodGone(ended(pod()))


def fresh(step: Step, *, replicas: int = 3, pod_exists: bool = False, **changes: Any) -> Confirmed:
    """The API server's answer to Confirm."""
    return Confirmed(step, changes.get("set", SET._replace(replicas=replicas)), pod_exists)


def test_a_seat_is_freed_in_three_steps(play: Play) -> None:
    """Ask for the member, confirm with the API server, remove the member by its id; then say so."""
    assert play.take(DOWN) == []  # the pod exists
    assert play.take(PodSeen(pod()._replace(is_ending=True))) == []
    step = play.confirm(play.ask(GONE))
    (leave,) = play.take(fresh(step))
    assert leave == Leave(step, "m-1")
    play.now += 1.5
    (told,) = play.take(Left(step, 0))
    assert isinstance(told, Tell)
    assert told.verdict == (Kind.FREED, "StatefulSet w wants ordinals 0 to 2, and pod w-4 has ended")
    assert (told.seat, told.waited_s, told.set) == (SEAT, 1.5, DOWN.set)
    assert play.take(DOWN, Tick()) == []


def test_the_set_may_say_it_after_the_pod(play: Play) -> None:
    """The two watches have no order between them; the pod's end may also have been a restart that never ended."""
    assert play.told(GONE) == (Kind.KEEP, "StatefulSet w wants ordinals 0 to 4: its pod comes back")
    play.now += 3600
    play.ask(DOWN)


def test_ordinals_begin_where_the_set_says() -> None:
    """With ordinals.start 3, ordinal 2 is gone, and ordinal 4 isn't."""
    play = Play(pod(2), pod(4))
    play.take(SetSeen(SET._replace(start=3, replicas=2)))
    assert play.told(GONE)[0] is Kind.KEEP
    assert play.ask(PodGone(ended(pod(2)))).place.ordinal == 2


def test_a_scale_to_zero_frees_all_seats() -> None:
    """The set says so itself."""
    play = Play(pod(0), pod(1))
    play.take(SetSeen(SET._replace(replicas=0)))
    assert [play.ask(PodGone(ended(pod(ordinal)))).place.ordinal for ordinal in (1, 0)] == [1, 0]


@pytest.mark.parametrize("orphans", [False, True])
def test_a_set_that_is_deleted_keeps_its_seats(play: Play, orphans: bool) -> None:
    """Nobody says that it won't be made again. Its pods may live on without it, and die later."""
    if orphans:
        assert play.take(SetGone("s"), PodSeen(pod()._replace(set_uid="", ordinal=-1))) == []
        assert play.take(PodGone(ended(pod())._replace(set_uid="", ordinal=-1))) == []
    else:
        play.take(SetSeen(SET._replace(replicas=3, is_ending=True)))
        assert play.told(GONE) == (Kind.DOUBT, "its set is being deleted, and may be made again")
        assert play.told(SetGone("s")) == (Kind.DOUBT, "its set is gone, and may be made again")
    assert play.take(SetSeen(SET._replace(uid="s2", replicas=0))) == []


def test_a_set_adopts_an_orphan(play: Play) -> None:
    """From then on the pod's seat is one of that set."""
    adopted = SET._replace(uid="s2")
    theirs = pod(found=adopted, uid=pod().uid)
    play.take(SetGone("s"), PodSeen(pod()._replace(set_uid="", ordinal=-1)), SetSeen(adopted), PodSeen(theirs))
    play.take(SetSeen(adopted._replace(replicas=3)))
    assert play.ask(PodGone(ended(theirs))).place.set_uid == "s2"


def test_an_end_that_nobody_saw_is_a_doubt() -> None:
    """A pod that was forced out, one that a list lacks, one without annotations: its program may still run."""
    doubt = (Kind.DOUBT, "nobody saw the containers of pod w-4 end: they may still run")
    for event in (PodGone(pod()), PodsListed(()), PodLost(pod().uid)):
        play = Play()
        play.take(DOWN)
        assert play.told(event) == doubt
        assert play.take(DOWN, Tick()) == []  # said once


def test_a_pod_that_was_seen_to_end_is_free_when_its_deletion_was_missed(play: Play) -> None:
    """The phase of a pod that ended is final, so a list without the pod is enough to free its seat."""
    assert play.take(DOWN, PodSeen(ended(pod()))) == []
    play.ask(PodsListed(()))


def test_a_pod_that_never_ran_says_nothing() -> None:
    """The pod before it had the seat: what is known of its end counts."""
    pending = pod(uid="u-2")._replace(has_node=False, addresses=frozenset())
    for before, asks in ((GONE, True), (PodGone(pod()), False)):
        play = Play()
        play.take(before)
        assert play.told(PodSeen(pending), DOWN) == (Kind.KEEP, "its pod exists")
        actions = play.take(PodGone(pending))
        assert isinstance(actions[0], Ask) == asks
    assert Play(pending).take(DOWN, PodGone(pending)) == []  # the one before it is unknown


def test_a_seat_that_another_pod_names_is_a_doubt() -> None:
    """In another set, also while its pod is being made again; in the same set; or without any set."""
    other = SET._replace(uid="s2", namespace="shop2")
    twin = pod(found=other)
    bare = pod(uid="u-9")._replace(set_uid="", ordinal=-1)
    same = pod(0, seats=(SEAT,))
    for there in (twin, bare, same):
        play = Play(pod(), there, sets=(SET, other))
        play.take(DOWN)
        assert play.told(GONE) == (Kind.DOUBT, "another pod names the same seat")
    play = Play(pod(), twin, sets=(SET, other))
    play.take(PodGone(ended(twin)), DOWN)
    assert play.told(GONE)[0] is Kind.DOUBT
    play = Play(pod(), bare)
    play.take(DOWN, PodGone(bare))
    play.ask(GONE)


def test_a_member_of_another_address_keeps_the_seat() -> None:
    """A program elsewhere has taken the seat; behind a NAT the flag says that addresses don't count."""
    elsewhere = Holder("m-9", "192.0.2.7")
    play = Play()
    play.take(DOWN)
    why = "its member connected from 192.0.2.7, pod w-4 had 10.1.0.5"
    assert play.told(Asked(play.ask(GONE), elsewhere)) == (Kind.DOUBT, why)
    play = Play(any_host=True)
    play.take(DOWN)
    play.confirm(play.ask(GONE), elsewhere)


@pytest.mark.parametrize(
    ("address", "any_host", "asks"), [("10.1.0.5", False, False), ("10.1.0.6", True, False), ("10.1.0.6", False, True)]
)
def test_an_earlier_pod_that_may_still_run_is_a_doubt(address: str, any_host: bool, asks: bool) -> None:
    """Its program may have the seat, if the pod after it never took it; unless the member has a new address."""
    play = Play(any_host=any_host)
    again = pod(uid="u-2")._replace(addresses=frozenset({address}))
    play.take(PodGone(pod()), PodSeen(again), DOWN)
    actions = play.take(Asked(play.ask(PodGone(ended(again))), Holder("m-1", address)))
    assert [isinstance(action, Confirm) for action in actions] == [asks]


@pytest.mark.parametrize("forgets", [(), (SetGone("s"), SetSeen(SET)), (SetsListed(()), SetsListed((SET,)))])
def test_the_doubt_about_an_earlier_pod_stays_with_its_set(play: Play, forgets: tuple[object, ...]) -> None:
    """The doubt stays, though the set shrinks and grows meanwhile and no new pod takes the seat."""
    again = [pod(uid=f"u-{number}") for number in (2, 3)]
    play.take(PodGone(pod()), PodSeen(again[0]), DOWN)
    play.take(Asked(play.ask(PodGone(ended(again[0]))), HOLDER))
    play.take(SetSeen(SET), *forgets, PodSeen(again[1]), DOWN)
    actions = play.take(Asked(play.ask(PodGone(ended(again[1]))), HOLDER))
    assert [isinstance(action, Confirm) for action in actions] == [bool(forgets)]


@pytest.mark.parametrize("grew", [False, True])
def test_a_list_that_is_read_anew_makes_a_doubt_if_the_set_has_changed(play: Play, grew: bool) -> None:
    """Pods that nobody saw may have come and gone: one of them may run on under the address of the pod that ended."""
    down = SET._replace(replicas=3, generation=2)
    step = play.ask(SetSeen(down), GONE)
    assert play.take(PodsListed(())) == []
    confirmed = fresh(play.confirm(step), set=down._replace(generation=4 if grew else 2))
    (action,) = play.take(confirmed)
    if grew:
        why = "pods were listed anew, and its set has changed: others may have come and gone"
        assert isinstance(action, Tell)
        assert action.verdict == (Kind.DOUBT, why)
    else:
        assert action == Leave(confirmed.step, HOLDER.member_id)


def test_a_pod_that_a_list_has_first_takes_no_address_over(play: Play) -> None:
    """Another pod may have been between it and the one that ended, and its program may still run."""
    again = pod(uid="u-2")._replace(addresses=frozenset({"10.1.0.6"}))
    play.take(GONE, PodsListed((again,)), DOWN)
    why = "its member connected from 10.1.0.5, pod w-4 had 10.1.0.6"
    assert play.told(Asked(play.ask(PodGone(ended(again))), HOLDER)) == (Kind.DOUBT, why)


def test_a_pod_that_never_joined_ends_with_the_seat_of_the_one_before_it(play: Play) -> None:
    """The member is the earlier pod's, from its address; that one ended whole too."""
    again = pod(uid="u-2")._replace(addresses=frozenset({"10.1.0.6"}))
    play.take(GONE, PodSeen(again), DOWN)
    (action,) = play.take(Asked(play.ask(PodGone(ended(again))), HOLDER))
    assert isinstance(action, Confirm)


def test_addresses_of_a_pod_are_remembered(play: Play) -> None:
    """The last form of a pod may have none."""
    play.take(DOWN)
    (action,) = play.take(Asked(play.ask(PodGone(ended(pod())._replace(addresses=frozenset()))), HOLDER))
    assert isinstance(action, Confirm)


def test_a_seat_without_member_needs_no_removal() -> None:
    """The member left, its session ended, or somebody else removed it."""
    gone = (Kind.GONE, "no member of the group has it")
    play = Play()
    play.take(DOWN)
    assert play.told(Asked(play.ask(GONE), None)) == gone
    play = Play()
    play.take(DOWN)
    step = play.confirm(play.ask(GONE))
    play.take(fresh(step))
    assert play.told(Left(step, ErrorCode.UNKNOWN_MEMBER_ID)) == gone


def test_a_set_that_grew_meanwhile_keeps_the_seat() -> None:
    """The API server knows more than the watches: a larger set, another set, a new pod. The next look is later."""
    again = SET._replace(uid="s2", replicas=3)
    news: dict[str, Any]
    for news in ({"replicas": 5}, {"pod_exists": True}, {"set": None}, {"set": again}):
        play = Play()
        play.take(DOWN)
        step = play.confirm(play.ask(GONE))
        assert play.take(fresh(step, **news)) == []
        assert play.core.next_at == play.now + 1
        play.now += 1
        play.ask(Tick())


@pytest.mark.parametrize("event", [SetSeen(SET), PodSeen(pod(uid="u-2")), SetGone("s"), Leads(does=False)], ids=str)
def test_news_between_two_steps_stop_the_removal(event: object) -> None:
    """All that the watches say before the last step counts."""
    for steps in (1, 2):
        play = Play()
        play.take(DOWN)
        step = play.ask(GONE)
        if steps == 2:
            step = play.confirm(step)
        play.take(event)
        answer = Asked(step, HOLDER) if steps == 1 else fresh(step)
        assert [action for action in play.take(answer) if not isinstance(action, Tell)] == []


def test_a_late_answer_to_an_earlier_step_does_not_count(play: Play) -> None:
    """A confirmation from before the pod's last life says nothing about the member that is there today."""
    play.take(DOWN)
    first = play.confirm(play.ask(GONE))
    play.take(SetSeen(SET), PodSeen(pod(uid="u-2")), DOWN)
    second = play.confirm(play.ask(PodGone(ended(pod(uid="u-2")))), Holder("m-2", ADDRESS))
    assert play.take(fresh(first)) == []
    assert play.take(fresh(second)) == [Leave(second, "m-2")]


def test_a_member_that_came_back_is_fenced_out_of_the_removal(play: Play) -> None:
    """The group refuses the removal, and the seat stays."""
    play.take(DOWN)
    step = play.confirm(play.ask(GONE))
    play.take(fresh(step), SetSeen(SET), PodSeen(pod(uid="u-2")))
    assert play.told(Left(step, ErrorCode.FENCED_INSTANCE_ID)) == (Kind.KEEP, "another member took it meanwhile")


def test_a_failure_is_tried_again_later_each_time(play: Play) -> None:
    """Said once, after 1 s, 2 s and so on up to a minute, from the first step."""
    play.take(DOWN)
    step = play.ask(GONE)
    assert play.told(Asked(step, None, "no answer")) == (Kind.DOUBT, "trying again: no answer")
    pauses = []
    for _ in range(8):
        assert play.core.next_at is not None
        assert play.take(Tick()) == []
        pauses.append(play.core.next_at - play.now)
        play.now = play.core.next_at
        assert play.take(Asked(play.ask(Tick()), None, "no answer")) == []
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_unanswered_removal_is_tried_again() -> None:
    """Nobody knows whether it was carried out. If the ordinal has a new pod meanwhile, it isn't tried again."""
    for returns in (False, True):
        play = Play()
        play.take(DOWN)
        step = play.confirm(play.ask(GONE))
        play.take(fresh(step))
        if returns:
            assert play.take(SetSeen(SET), PodSeen(pod(uid="u-2")), Left(step, 0, "lost")) == []
            assert play.core.next_at is None
        else:
            assert play.told(Left(step, 0, "lost")) == (Kind.DOUBT, "trying again: lost")
            play.now += 1
            assert play.told(Asked(play.ask(Tick()), None))[0] is Kind.GONE


def test_another_answer_of_the_group_is_a_doubt(play: Play) -> None:
    """The line names it."""
    play.take(DOWN)
    step = play.confirm(play.ask(GONE))
    play.take(fresh(step))
    assert play.told(Left(step, ErrorCode.UNKNOWN_SERVER_ERROR))[1] == "the group answered UNKNOWN_SERVER_ERROR"


def test_a_dry_run_says_once_what_it_would_free() -> None:
    """All steps but the last; and again after the ordinal has had another pod."""
    play = Play(frees=False)
    play.take(DOWN)
    assert play.told(fresh(play.confirm(play.ask(GONE))))[0] is Kind.FREE
    assert play.take(Tick(), DOWN) == []
    play.take(SetSeen(SET), PodSeen(pod(uid="u-2")), DOWN)
    assert play.told(fresh(play.confirm(play.ask(PodGone(ended(pod(uid="u-2")))))))[0] is Kind.FREE


def test_only_the_leader_acts_but_all_know(play: Play) -> None:
    """A controller that gets the lease later frees what ended before."""
    assert play.take(Leads(does=False), DOWN, GONE) == []
    play.ask(Leads(does=True))


def test_nothing_is_decided_before_both_lists() -> None:
    """Without the sets, each pod would look like one of a set that is gone."""
    core = Seats(frees=True)
    events = (Leads(does=True), PodsListed((pod(),)), GONE)
    assert [action for event in events for action in core.handle(event, 0.0)] == []
    assert not core.is_ready
    assert isinstance(core.handle(SetsListed((DOWN.set,)), 0.0)[0], Ask)
    assert core.is_ready


def test_annotations_that_cannot_be_read_are_told_once() -> None:
    """About the pod, for it names no seat."""
    wrong = pod()._replace(seats=(), problem="no value of variable ID")
    play = Play(pod(0))
    (told,) = play.take(PodSeen(wrong), PodSeen(wrong))
    assert told == Tell(wrong, SET, None, (Kind.DOUBT, "no value of variable ID"))  # type: ignore[arg-type]


def test_a_new_annotation_leaves_the_old_seat_until_the_set_shrinks() -> None:
    """A rolling update changes the group: the ordinal's seat in the old group goes with the ordinal."""
    other = Seat("returns", "w-4")
    play = Play()
    play.take(GONE, PodSeen(pod(uid="u-2", seats=(other,))), DOWN)
    asks = play.take(PodGone(ended(pod(uid="u-2", seats=(other,)))))
    assert [ask.step.seat for ask in asks if isinstance(ask, Ask)] == [SEAT, other]


def test_nothing_stays_in_memory() -> None:
    """After a set has come, shrunk and gone, the core is as before."""
    play = Play(pod(0))
    before = (play.core.pods, dict(play.core._claims), dict(play.core._ended), dict(play.core._at))
    play.take(PodSeen(pod()), DOWN)
    step = play.confirm(play.ask(GONE))
    play.take(fresh(step), Left(step, 0))
    other = SET._replace(uid="s2", name="v")
    play.take(SetSeen(other), PodSeen(pod(found=other)), SetGone("s2"), PodGone(pod(found=other)))
    assert (play.core.pods, play.core._claims, play.core._ended, play.core._at) == before
