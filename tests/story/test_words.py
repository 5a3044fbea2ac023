"""Entries of a timeline in plain words; tests/cli/test_explain.py has whole timelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from coordinator.group.causes import CauseKind
from coordinator.story import described, events
from coordinator.story.counts import TAKEOVER
from coordinator.story.entries import Pending, Return
from coordinator.story.words import (
    AWAITED_SHOWN,
    MEMBERS_SHOWN,
    MOVES_SHOWN,
    cause_text,
    entry_lines,
    expects_lines,
    folded_lines,
    held_up_lines,
    is_cut,
    revoking_text,
    target_text,
    timed_lines,
    waiting_lines,
    with_client,
)
from tests.story.test_diagnosis import awaited, replaced
from tests.support.told import but, cause, cause_of, entries_of, told

ONE = {"client_id": "app-1", "client_host": "/10.0.0.1"}
TWO = {"client_id": "app-2", "client_host": "/10.0.0.2"}
FENCED = told(
    "member_fenced", group_instance_id="i-1", member_id="m-1", current_member_id="m-2", client=ONE, current_client=TWO,
    kind="conflict",
)  # fmt: skip
CHANGE = {"member_id": "m", "group_instance_id": "i", "gains": 2, "loses": 1, "partitions": 3}


def lines_of(*events: Any) -> list[str]:
    """The lines of the first entry that these events make."""
    return list(entry_lines(entries_of(*events)[0]))


def member(member_id: str) -> described.Member:
    """A member with an instance id."""
    return described.Member(member_id, "i", ONE["client_id"], ONE["client_host"], None)


def test_a_conflict_names_both_parties_and_a_client_of_its_own_does_not() -> None:
    """If a client is not known, the text says "unknown"."""
    assert lines_of(FENCED) == [
        "conflict: two programs are i-1: m-1 (app-1 at 10.0.0.1) is fenced by m-2 (app-2 at 10.0.0.2)"
    ]
    assert "came after it from the same client" in lines_of(but(FENCED, kind="self"))[0]
    assert "(unknown)" in lines_of(but(FENCED, client=None))[0]


def test_a_client_that_authenticated_is_named_with_its_principal() -> None:
    """Behind its host."""
    two = TWO | {"principal": "User:bob"}
    assert "is fenced by m-2 (app-2 at 10.0.0.2 as User:bob)" in lines_of(but(FENCED, current_client=two))[0]


def test_a_request_without_a_member_id_names_no_second_program() -> None:
    """The text says what the request had and who has the seat, with no empty name."""
    assert lines_of(but(FENCED, member_id="", kind="self", operation="offset-commit")) == [
        (
            "refused: a request had the instance id i-1 and no member id (offset-commit, app-1 at 10.0.0.1), "
            "and m-2 (app-2 at 10.0.0.2) has the seat"
        )
    ]


def test_a_static_restart_says_whether_it_cost_a_rebalance() -> None:
    """The restart's own line says it."""
    event = told("member_replaced", group_instance_id="i-1", member_id="m-2", state="Stable", **ONE)
    assert lines_of(event) == ["restart: static member i-1 is back as m-2 (app-1 at 10.0.0.1), and nothing moves"]
    assert lines_of(but(event, subscription_changed=True))[0].endswith(
        "(app-1 at 10.0.0.1) with another subscription, which counts from the next rebalance on, and nothing moves"
    )
    assert lines_of(but(event, rebalances=True))[0].endswith("and the group rebalances")
    assert lines_of(but(event, state="PreparingRebalance"))[0].endswith("while the group rebalances")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("joined", "it was used"),
        ("lapsed", "it lapsed unused"),
        ("forgotten", "it was forgotten, unused, when the coordinator started anew"),
        (None, "not used yet, lapses 1970-01-01 00:00:05.000Z"),
    ],
)
def test_a_member_id_that_was_given_out(outcome: str | None, words: str) -> None:
    """The line says whether the id was used."""
    entry = Pending(told("member_pending", member_id="m-1", lapses_ms=5_000, **ONE), outcome)
    assert list(entry_lines(entry)) == [f"member id given out: m-1 (app-1 at 10.0.0.1); {words}"]


def test_a_gap_says_how_much_is_missing() -> None:
    """The line has the number of events, and the first and the last time."""
    (line,) = lines_of(told("events_dropped", events=1, first_ms=0, last_ms=1_000))
    assert line.startswith("gap: 1 event could not be kept between 1970-01-01 00:00:00.000Z and")
    (line,) = lines_of(told("events_dropped", events=2, first_ms=5, last_ms=5))
    assert line == "gap: 2 events could not be kept at 1970-01-01 00:00:00.005Z"


ID = "app-0a1b2c3d-1111-2222-3333-444455556666"


def caused(kind: str, **other: Any) -> dict[str, Any]:
    """A cause by the member ID."""
    return cause(kind, ID) | {"api_version": 5} | ONE | other


def test_a_fact_is_not_inferred() -> None:
    """Only the cause of a rejoin without the client's reason is inferred; other causes were observed."""
    inferred = {kind.value for kind in CauseKind if cause_text(cause_of(caused(kind.value))).endswith(" [inferred]")}
    assert inferred == {"member_rejoined", "leader_rejoined", "metadata_changed"}
    said = caused("leader_rejoined", source="client", reason="cached metadata has changed")
    assert cause_text(cause_of(said)) == (
        "leader app-0a1b2c3d joins again; client reason: cached metadata has changed (app-1 at 10.0.0.1)"
    )


def test_a_member_that_no_record_names_is_said_to_be_unknown() -> None:
    """A generation that was superseded before its assignment leaves no record of who joined."""
    line, *_ = lines_of(rebalanced(causes=[cause("member_joined")], inferred=True))
    assert line.endswith(": new member, the log doesn't say which [inferred from the log]")


def test_each_inferred_cause_of_a_rebalance_has_the_mark() -> None:
    """Not only the first cause. A cause that somebody told has no mark; a server's own causes are facts."""
    causes = [caused("member_left"), caused("member_expired"), caused("member_rejoined", told=True)]
    lines = lines_of(rebalanced(causes=causes, causes_in_order=False, inferred=True))
    assert [line.endswith(" [inferred from the log]") for line in lines[:3]] == [True, True, False]
    assert [line.partition(":")[0] for line in lines[1:3]] == ["also, perhaps first"] * 2
    assert not any("inferred" in line for line in lines_of(rebalanced(causes=causes[:2])))


def test_a_rebalance_that_the_server_did_not_outlive() -> None:
    """If the server stopped first, the line says so; if a gap took the end, it gives no reason."""
    begun = told("rebalance_started", cause=caused("member_left"))
    interrupted = "not completed, as far as records tell: the server ended first"
    for next_one, text in ((told("group_loaded"), interrupted), (begun, "no record tells how it ended")):
        assert lines_of(begun, next_one)[1] == text


def test_an_open_rebalance_of_the_consumer_protocol_says_how_far_it_is() -> None:
    """Its last target, and who must give up partitions since when."""
    begun = told("rebalance_started", group_type="consumer", cause=caused("member_left"))
    target = told("target_assigned", assignor="uniform", members=2)
    asked = told("member_revoking", at_ms=5, member_id="m", partitions=1, until_ms=1_000, **ONE)
    assert lines_of(begun, target, target, target, asked)[-2:] == [
        "target by uniform for 2 members: nothing changes (target 3 of this rebalance)",
        f"1970-01-01 00:00:00.005Z  {revoking_text(asked)}",
    ]


def test_several_members_of_a_cause_are_named_with_their_clients() -> None:
    """The text names a limited number of members, and the number of the others."""
    nobody = {"client_id": "", "client_host": ""}
    parties = [{"member_id": ID, "group_instance_id": None, **ONE}, {"member_id": "x", "group_instance_id": "i", **TWO}]
    several = caused("sync_timed_out", members=parties, member_ids=[ID, "x"], **nobody)
    assert (
        cause_text(cause_of(several)) == "no sync in time from app-0a1b2c3d (app-1 at 10.0.0.1), i (app-2 at 10.0.0.2)"
    )
    many = caused("sync_timed_out", members=parties[:1] * 9, member_ids=[ID] * 9, **nobody)
    assert cause_text(cause_of(many)).endswith("app-0a1b2c3d (app-1 at 10.0.0.1), 4 more")


def rebalanced(**other: Any) -> Any:
    """A rebalance that ended."""
    said: dict[str, Any] = {
        "generation": 2, "generation_before": 1, "causes": [caused("member_left")],
        "state": "Stable", "outcome": "completed", "preparing_ms": 3_000, "completing_ms": 20,
        "members_before": 2, "members_after": 1,
        "moved_partitions": 0, "assigned_partitions": 0, "freed_partitions": 1,
        "moved": [{"topic": "t", "partition": 0, "from": ID, "to": None}],
    }  # fmt: skip
    return told("rebalance_ended", **said | other)


def test_a_first_assignment_moves_nothing() -> None:
    """Topic partitions that had no member are assigned, those that have none now are left, the others move."""
    first = [{"topic": "t", "partition": index, "from": None, "to": ID} for index in range(4)]
    numbers = {"moved_partitions": 0, "assigned_partitions": 4, "freed_partitions": 0}
    assert lines_of(rebalanced(**numbers, moved=first, members_before=0))[2] == (
        "members 0 -> 1, 4 topic partitions assigned "
        "(t-0 -> app-0a1b2c3d, t-1 -> app-0a1b2c3d, t-2 -> app-0a1b2c3d, ...)"
    )
    moved = [{"topic": "t", "partition": 0, "from": "a", "to": "b"}]
    some = [*moved, *first[1:2], {"topic": "t", "partition": 9, "from": ID, "to": None}]
    numbers = {"moved_partitions": 1, "assigned_partitions": 1, "freed_partitions": 1}
    assert lines_of(rebalanced(**numbers, moved=some))[2] == (
        "members 2 -> 1, 1 topic partition moved (t-0 a -> b), 1 topic partition assigned (t-1 -> app-0a1b2c3d), "
        "1 topic partition left without a member (t-9 of app-0a1b2c3d)"
    )
    numbers = {"moved_partitions": 0, "assigned_partitions": 0, "freed_partitions": 0}
    assert lines_of(rebalanced(**numbers, moved=[]))[2] == "members 2 -> 1, 0 topic partitions moved"


def test_a_rejoin_after_an_outage_is_no_restart() -> None:
    """The words say that the server can't know, and the type of the entry is another one."""
    event = told(
        "member_replaced", after_load=True, group_instance_id="i", member_id=ID, old_member_id="i-1", state="Stable",
        **ONE,
    )  # fmt: skip
    assert [entry.type for entry in entries_of(event)] == ["static_rejoin"]
    assert lines_of(event) == [
        "rejoin after an outage: static member i is back as app-0a1b2c3d (app-1 at 10.0.0.1), and nothing moves",
        "nobody had heard of it since the group was loaded: it restarted meanwhile, or only joined again",
    ]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, "completed: 3.0 s until all had joined, 20 ms until all was assigned"),
        ({"late": ["b"]}, "completed: 3.0 s until the rebalance timeout, 20 ms until all was assigned"),
        (
            {"state": "Empty"},
            "completed: 3.0 s initial delay (group.initial.rebalance.delay.ms), 20 ms until all was assigned",
        ),
        (
            {"state": "Empty", "outcome": "emptied", "completing_ms": None},
            "nobody was left after 3.0 s initial delay (group.initial.rebalance.delay.ms)",
        ),
        ({"outcome": "emptied", "completing_ms": None}, "nobody was left after 3.0 s"),
        ({"outcome": "emptied", "completing_ms": None, "preparing_ms": 0}, "nobody was left"),
        (
            {"outcome": "superseded"},
            "not completed: the next one started first: 3.0 s until all had joined, 20 ms without assignments",
        ),
        ({"outcome": "unloaded", "completing_ms": None}, "not completed: the partition went away after 3.0 s"),
    ],
)
def test_how_long_a_rebalance_took_and_for_what(other: dict[str, Any], words: str) -> None:
    """The text tells the initial delay from a wait for members, and does not say that all joined an emptied group."""
    assert lines_of(rebalanced(**other))[1] == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"members": 1, "write_failed": True},
            "a write failed: the group is again as its log has it, with 1 member in generation 15",
        ),
        ({"members": 2}, "the coordinator started anew: the group was loaded with 2 members in generation 15"),
        ({"members": 2, "in_cluster": True}, "node 1 loaded the group, with 2 members in generation 15"),
        (
            {"members": 1, "write_failed": True, "in_cluster": True},
            "a write failed: the group is again as its log has it, with 1 member in generation 15",
        ),
        (
            {"state": "Dead", "write_failed": True},
            "a write failed: the group is gone, because its log has nothing of it",
        ),
    ],
)
def test_a_load_says_why(said: dict[str, Any], words: str) -> None:
    """The reason is a new start of the coordinator, or a failed write."""
    assert lines_of(told("group_loaded", generation=15, **said)) == [words]


def test_a_load_by_another_node_names_both() -> None:
    """The node that had the group, and the one that has it."""
    first, second = (told("group_loaded", generation=15, members=2, node=node) for node in (0, 2))
    assert [next(entry_lines(entry)) for entry in entries_of(first, second)][1] == (
        "node 2 became the coordinator in place of node 0: it loaded the group with 2 members in generation 15"
    )


def test_what_moved_has_short_names() -> None:
    """Member ids are shortened in the text; the JSON has them whole."""
    assert lines_of(rebalanced())[-1] == (
        "members 2 -> 1, 1 topic partition left without a member (t-0 of app-0a1b2c3d)"
    )
    waited = {"member_id": ID, "phase": "preparing", "ms": 5}
    assert "waited longest for app-0a1b2c3d to join, 5 ms" in lines_of(rebalanced(waited_for=waited))[1]


def test_members_of_one_client_id_are_told_apart() -> None:
    """The client id comes first, then the part of the member id that differs."""
    clients = {ID: "app", "5R/N6mFR7qeZIZukAgUIAg": "app", "named-by-a-person": "app"}
    assert [with_client(each, clients) for each in (*clients, "m")] == [
        "app-0a1b2c3d", "app (5R/N6mFR)", "app (named-by-a-person)", "m",
    ]  # fmt: skip


def test_a_return_that_only_the_log_tells_may_be_a_takeover() -> None:
    """The log has the new member id, and nothing of the program that had the seat: both causes are named."""
    event = told(
        "member_replaced", group_instance_id="i", member_id=ID, old_member_id="m", state="Stable", inferred=True, **ONE
    )
    (line,) = lines_of(event)
    assert line == (
        "return: static member i is back as app-0a1b2c3d (app-1 at 10.0.0.1), and nothing moves; unknown why: it "
        "restarted, or a second program took its seat [inferred from the log]"
    )


def test_a_takeover_says_from_whom() -> None:
    """The old member is still running."""
    event = told("member_replaced", group_instance_id="i-1", member_id=ID, old_member_id="m", state="Stable", **ONE)
    (line,) = entry_lines(Return(event, TAKEOVER))
    assert line.startswith(
        "takeover: app-0a1b2c3d (app-1 at 10.0.0.1) takes the seat of i-1 from m, which is still there"
    )


def test_whom_a_group_waits_for_is_told_up_to_a_number() -> None:
    """Each member has a line of its own, which says whether it is the leader."""
    one, pending = member(ID), events.Pending("p", **TWO, lapses_ms=1_000)
    waiting = described.Waiting(0, 5_000, False, None, [awaited(one)] * 25, [pending] * 25)
    head, *lines = waiting_lines("PreparingRebalance", waiting)
    assert head == (
        "The group is PreparingRebalance now, since 1970-01-01 00:00:00.000Z; "
        "the rebalance timeout ends the wait 1970-01-01 00:00:05.000Z at the latest"
    )
    assert lines[0] == f"it waits for {ID}, instance id i (app-1 at 10.0.0.1) to join"
    assert (lines[20], lines[-1]) == ("and for 5 further members", "and for 5 further member ids")
    assert len(lines) == 2 * 21
    synced = structs.replace(waiting, members=[awaited(one), awaited(member("m"))], pending=[], leader=ID)
    _, leader, other = waiting_lines("CompletingRebalance", synced)
    silent = structs.replace(waiting, members=[awaited(replace(one, silent_ms=8_200, session_timeout_ms=10_000))])
    assert list(waiting_lines("PreparingRebalance", silent))[1].endswith(
        " to join; silent for 8.2 s, its session ends in 1.8 s"
    )
    assert leader == f"it waits for the leader {ID}, instance id i (app-1 at 10.0.0.1) to assign"
    assert other == "it waits for m, instance id i (app-1 at 10.0.0.1) to sync"


def test_a_deletion_names_who_asked_for_it() -> None:
    """The line names the administrator's client; without one in the record it names no client."""
    assert lines_of(told("group_deleted", client=ONE)) == ["the group was deleted by app-1 at 10.0.0.1"]
    assert lines_of(told("group_deleted")) == ["the group was deleted"]


def test_a_group_that_changes_its_protocol_is_told() -> None:
    """An upgrade and a downgrade, with the members that went along."""
    up, down = (lines_of(told("group_converted", kind=kind, members=1)) for kind in ("consumer", "classic"))
    assert up == [
        "upgrade: the group has the consumer protocol, from epoch 3 on; 1 member of the classic protocol stays"
    ]
    assert down == ["downgrade: the group has the classic protocol again, from generation 3 on, with 1 member"]


def test_a_static_member_of_the_consumer_protocol_says_how_long_it_was_away() -> None:
    """Its return moves nothing, and has the time since it left."""
    back = told("member_replaced", member_id="b", group_instance_id="i", state="Stable", away_ms=2_300, **ONE)
    assert lines_of(back) == [
        "restart: static member i is back as b (app-1 at 10.0.0.1) after 2.3 s, and nothing moves"
    ]


def test_an_epoch_that_topics_cause_names_them() -> None:
    """What happened to each topic, and how many others there are."""
    changes = [{"topic": name, "change": name} for name in ("created", "grown", "deleted", "added", "removed")]
    assert cause_text(cause_of(cause("topics_changed", topics=changes, further_topics=2))) == (
        "topics that the group subscribes to changed: created (created), grown (more partitions), deleted (deleted), "
        "added (new), removed (gone), 2 more"
    )
    joined = cause("member_joined", "m", topics=changes[:1])
    assert cause_text(cause_of(joined)) == "new member m, and topics changed: created (created)"


def test_who_holds_up_a_group_of_the_consumer_protocol_is_told_up_to_a_number() -> None:
    """Each has what it must do, since when, and when it is removed; a group without a target waits for anybody."""
    held = [described.HeldUp(*member("m").named, phase, 2, 0, 1_000) for phase in ("revoking", "acknowledging", "away")]
    state = described.ConsumerState(3, 3, since_ms=0, awaited=held)
    who, first = "m, instance id i (app-1 at 10.0.0.1)", "1970-01-01 00:00:00.000Z"
    until = "1970-01-01 00:00:01.000Z"
    assert list(held_up_lines("Reconciling", state)) == [
        f"The group is Reconciling now, since {first}: not all members have their part of the target of epoch 3",
        f"it waits for {who} to give up 2 topic partitions, since {first}; the member is removed {until} if it doesn't",
        f"it waits for a heartbeat of {who}, since {first}; the member's session ends {until} without one",
        f"{who} is away, since {first}; it keeps its seat with 2 topic partitions until {until}",
    ]
    many = state._replace(awaited=[structs.replace(held[0], since_ms=None)] * (AWAITED_SHOWN + 1))
    assert list(held_up_lines("Reconciling", many))[-1] == "and for 1 further member"
    assert ", since" not in list(held_up_lines("Reconciling", many))[1]
    early = described.ConsumerState(4, 3)
    assert list(held_up_lines("Assigning", early)) == [
        "The group is Assigning now: epoch 4 has no target yet; a heartbeat of any member makes it",
        "its server doesn't say whom it waits for",
    ]


def test_a_target_and_a_revocation_in_words() -> None:
    """What each member gains and loses, for some of them, and who must give up how much until when."""
    changes = [CHANGE] * (MEMBERS_SHOWN + 1)
    target = told("target_assigned", assignor="uniform", members=9, changes=changes, further_changes=4)
    assert (
        target_text(target) == f"target by uniform for 9 members: {', '.join(['i +2 -1'] * MEMBERS_SHOWN)} and 5 more"
    )
    assert target_text(but(target, changes=[], further_changes=0)).endswith("for 9 members: nothing changes")
    asked = told("member_revoking", member_id="m", partitions=1, until_ms=1_000, **ONE)
    assert revoking_text(asked) == (
        "m (app-1 at 10.0.0.1) must give up 1 topic partition until 1970-01-01 00:00:01.000Z"
    )


def test_the_missing_members_are_named() -> None:
    """With the joins that are held for them, until when; or that nobody waits for them."""
    held = described.Expects(["w-1", "w-2"], 1, 5_000)
    (line,) = expects_lines(held)
    assert line.startswith("2 expected members missing: w-1, w-2; 1 join held for them until 1970-01-01")
    (line,) = expects_lines(structs.replace(held, until_ms=None, held=0))
    assert line == "2 expected members missing: w-1, w-2; the group does not wait for them"
    (line,) = expects_lines(structs.replace(held, until_ms=None, missing=[]))
    assert line == "No expected member is missing; 1 join of members that are not expected held"
    (line,) = expects_lines(structs.replace(held, missing=[f"w-{number}" for number in range(30)]))
    assert "further members" in line


def test_joins_that_wait_for_expected_members() -> None:
    """Whom they wait for, until when; how long they waited, and who did not come."""
    begin = told("rebalance_held", missing=["a", "b"], missing_count=30, until_wall_ms=9_000)
    named, anew = "30 expected members (a, b and 28 more)", "the coordinator started anew, or the group went"
    assert lines_of(begin) == [f"joins are held for {named} until 1970-01-01 00:00:09.000Z at the latest"]
    ends = [
        told("hold_ended", at_ms=3_200, joins=4),
        told("hold_ended", at_ms=3_200, joins=1, missing=["b"], missing_count=1),
        told("group_deleted", at_ms=3_200),
    ]
    texts = [lines_of(begin, end)[0] for end in ends]
    assert texts == [
        f"joins were held for {named}; after 3.2 s 4 joins came in, and no expected member is missing",
        f"joins were held for {named}; after 3.2 s 1 join came in without 1 expected member (b)",
        f"joins were held for {named}; their end is not told: after 3.2 s {anew}",
    ]
    assert lines_of(ends[1]) == ["joins were held for expected members; 1 join came in without 1 expected member (b)"]


def test_an_entry_whose_lines_leave_something_out_is_known() -> None:
    """More moves or members than the lines have room for; an entry without any is whole."""
    many = ["m"] * (MEMBERS_SHOWN + 1)
    begun = told("rebalance_started")
    whole = rebalanced(moved_partitions=MOVES_SHOWN, assigned_partitions=None, late=many[1:])
    assert not any(map(is_cut, entries_of(told("group_deleted"), whole)))
    for cut in (
        [rebalanced(assigned_partitions=MOVES_SHOWN + 1)],
        [rebalanced(late=many)],
        [told("rebalance_started", cause=cause("member_left", *many))],
        [begun, told("target_assigned", changes=[CHANGE] * (MEMBERS_SHOWN + 1))],
        [begun, *[told("member_revoking")] * (AWAITED_SHOWN + 1)],
    ):
        assert is_cut(entries_of(*cut)[0])


@pytest.mark.parametrize("kind", CauseKind)
def test_each_kind_has_words_where_it_is_one_of_several(kind: CauseKind) -> None:
    """A log that allows several kinds of causes is told in words, whichever they are."""
    assert cause_text(cause_of(cause("unknown", possible=[kind.value, "member_joined"]))).startswith("unknown: ")


def test_seats_that_changed_name_their_setting() -> None:
    """An operator finds what to look at."""
    assert cause_text(cause_of(cause("target_size_changed"))).startswith("target.group.size changed")


def test_restarts_in_one_line_name_the_programs_that_take_turns() -> None:
    """Else the line would tell of one program that restarts. The line begins with the time of the first restart."""
    for clients, said in (
        ("xx", "static member i is back as i-"),
        ("xy", "x at h and y at h take the seat of i from "),
    ):
        entries = entries_of(*(replaced(3_000 * number, clients[number % 2]) for number in range(5)))
        ((line,),) = folded_lines(entries)
        assert line.startswith("1970-01-01 00:00:00.000Z  5 restarts until 1970-01-01 00:00:12.000Z: " + said)
        assert list(folded_lines(entries[:1])) == [timed_lines(entries[0])]
