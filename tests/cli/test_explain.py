"""`tenure explain`: scripted members cause rebalances one by one, and the command shows each with its cause.

The members do exactly what the test says (tests.support.scripted).

The servers' time is the test's: no test waits for a timeout of many seconds, and none comes too late for one.

House rule: each test has a group of its own.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli.explain import present_lines
from coordinator.client.client import Client
from coordinator.client.offsets_log import LIMITS
from coordinator.client.topics import LATEST, create_topic
from coordinator.group.causes import CauseKind
from coordinator.story.schema import EVENTS_TOPIC
from coordinator.testing import Tenure as InProcess
from coordinator.text import duration_text, short, time_text
from protocol.messages import DeleteRecordsRequest
from schemas.errors import ErrorCode
from tests.cli.conftest import Ran, at, make_app, run_app
from tests.story.test_diagnosis import group_of
from tests.support.heartbeats import AWAY, Beating
from tests.support.heartbeats import settle as settle_heartbeats
from tests.support.patience import WITHIN_S
from tests.support.requests import list_offsets_request
from tests.support.scripted import BESIDE, REBALANCE_MS, STAYS_MS, Member, hang_up, settle
from tests.support.seats import set_of_group, set_seats
from tests.support.tenure import Tenure, wait_until

LATE_MS, PENDING_MS, INITIAL_MS = 4_000, 10_000, 20_000
"""Times that the server waits for a member of the test, which must not be late itself on a busy machine."""


class Served(InProcess):
    """A server in this process, whose time the test moves."""

    @property
    def bootstrap(self) -> str:
        """As of `Tenure`."""
        return self.bootstrap_servers

    @property
    def port(self) -> int:
        """As of `Tenure`."""
        return self.addresses[0][1]


Server = Tenure | Served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on which an unused member id expires before its session ends."""
    settings = {
        "group.initial.rebalance.delay.ms": INITIAL_MS,
        "tenure.group.pending.timeout.ms": PENDING_MS,
    }
    with Served(settings=settings, data_dir=tmp_path_factory.mktemp("explain"), timeout=WITHIN_S) as served:
        yield served


def pass_ms(server: Server, passed_ms: int, unheard: Collection[tuple[str, str]] = ()) -> None:
    """Let time pass at once; that of a process passes by itself. unheard: members that send nothing meanwhile."""
    if isinstance(server, Served):
        server.advance(passed_ms / 1_000, unheard)


@pytest.fixture(autouse=True)
def hangs_up() -> Iterator[None]:
    """Close the members' connections after each test."""
    yield
    hang_up()


def until_rebalancing(member: Member) -> None:
    """Wait until the server tells a member of a rebalance: a later join then comes behind its cause."""
    told = ErrorCode.REBALANCE_IN_PROGRESS
    wait_until(lambda: member.heartbeat() == told, f"{member.name} is told to join", WITHIN_S)


def fresh_group() -> str:
    """An id that no other test has."""
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def group() -> str:
    """Return an id that no other test has."""
    return fresh_group()


def formed(server: Server, group: str, *names: str, version: int = 5, **says: Any) -> list[Member]:
    """A stable group of these members; the first leads."""
    return gathered(server, *(Member(server.port, group, name, version, **says) for name in names))


def gathered(server: Server, *members: Member) -> list[Member]:
    """These members, in their group's first generation: all join before the initial delay is over."""
    for member in members:
        member.send_join()
    pass_initial_delay(server, members[0].group, len(members))
    settle(*members)
    return list(members)


def pass_initial_delay(server: Server, group: str, count: int) -> None:
    """Let the initial delay pass once so many members have joined; each that joins in it makes it longer."""
    if isinstance(server, Served):
        joined = server.group(group)
        wait_until(lambda: len(joined.members) == count, f"{count} members join {group}", WITHIN_S)
        while joined.state == "PreparingRebalance":
            pass_ms(server, INITIAL_MS)


def run(server: Server, command: str, *arguments: str) -> Ran:
    """Run a command against the server."""
    return run_app(make_app(command), command, *arguments, *at(server.bootstrap))


def explained(server: Server, group: str, *arguments: str) -> dict[str, Any]:
    """The JSON output of explain."""
    ran = run(server, "explain", group, "--output", "json", *arguments)
    assert (ran.code, ran.err) == (0, "")
    told: dict[str, Any] = ran.json
    return told


def timeline(server: Server, group: str, *types: str) -> list[dict[str, Any]]:
    """The group's timeline but for unused member ids, once it has so many entries: those of these types."""

    def all_told() -> list[dict[str, Any]] | None:
        entries = [entry for entry in explained(server, group)["timeline"] if entry["type"] != "pending"]
        return entries if len(entries) >= len(types) else None

    found = wait_until(all_told, f"{len(types)} entries are told", WITHIN_S)
    assert [entry["type"] for entry in found] == [*types]
    return found


def rebalances(server: Server, group: str, count: int) -> list[dict[str, Any]]:
    """The group's rebalances, once there are so many and the last one has ended."""

    def all_told() -> list[dict[str, Any]] | None:
        entries = [entry for entry in explained(server, group)["timeline"] if entry["type"] == "rebalance"]
        return entries if len(entries) >= count and entries[-1]["outcome"] is not None else None

    found = wait_until(all_told, f"{count} rebalances are told", WITHIN_S)
    assert len(found) == count
    return found


@pytest.mark.parametrize("version", BESIDE)
def test_four_rebalances_with_four_causes(group: str, server: Served, version: int) -> None:
    """Explain shows four causes in order: a leave, a silent member, a rejoining leader, a changed subscription.

    Each names its member. The server infers a cause unless the client sent a reason.
    """
    says_why = version == 9
    told_to = "group is already rebalancing" if says_why else None
    a, b, c, d = formed(server, group, "a", "b", "c", "d", version=version)

    c.leave("going home" if says_why else None)
    settle(a, b, d, reason=told_to)
    pass_ms(server, STAYS_MS, [(group, d.member_id)])
    until_rebalancing(a)
    settle(a, b, reason=told_to)
    a.send_join("cached metadata has changed" if says_why else None)
    until_rebalancing(b)
    settle(a, b, reason=told_to)
    b.topics = ["t", "u"]
    b.send_join()
    until_rebalancing(a)
    settle(a, b, reason=told_to)

    first, *four = rebalances(server, group, 5)
    assert (first["state"], first["members_before"], first["members_after"]) == ("Empty", 0, 4)
    assert [entry["cause"]["kind"] for entry in four] == [
        "member_left",
        "member_expired",
        "leader_rejoined",
        "metadata_changed",
    ]
    assert [entry["cause"]["member_ids"] for entry in four] == [[each.member_id] for each in (c, d, a, b)]
    assert [entry["cause"]["client_id"] for entry in four] == ["c", "d", "a", "b"]
    assert all(entry["causes"] == [entry["cause"]] for entry in four)
    sources = ["client", "inferred", "client", "inferred"] if says_why else ["inferred"] * 4
    assert [entry["cause"]["source"] for entry in four] == sources
    assert four[2]["cause"]["meaning"] == ("topic_metadata_change" if says_why else None)
    assert [(entry["members_before"], entry["members_after"]) for entry in four] == [(4, 3), (3, 2), (2, 2), (2, 2)]
    assert [(entry["generation_before"], entry["generation"]) for entry in four] == [(1, 2), (2, 3), (3, 4), (4, 5)]
    assert [entry["outcome"] for entry in four] == ["completed"] * 4
    kinds = ("moved_partitions", "assigned_partitions", "freed_partitions")
    assert [first[kind] for kind in kinds] == [0, 4, 0]
    assert [[entry[kind] for kind in kinds] for entry in four] == [[1, 0, 1], [0, 0, 1], [0] * 3, [0] * 3]
    assert explained(server, group, "--last", "4")["timeline"] == four


def test_two_causes_in_one_phase(group: str, server: Served) -> None:
    """Explain shows both causes; the first one triggered the rebalance."""
    a, b, c = formed(server, group, "a", "b", "c")
    c.leave()
    e = Member(server.port, group, "e", 5)
    e.send_join()
    settle(a, b, e)
    last = rebalances(server, group, 2)[-1]
    assert [cause["kind"] for cause in last["causes"]] == ["member_left", "member_joined"]
    assert last["cause"] == last["causes"][0]
    assert [cause["member_ids"] for cause in last["causes"]] == [[c.member_id], [e.member_id]]


@pytest.mark.parametrize(("names", "is_cut"), [("abc", False), ("abcd", True)])
def test_a_list_that_is_cut_says_where_it_is_whole(group: str, server: Served, names: str, is_cut: bool) -> None:
    """The last line names the option, if a line above it leaves out topic partitions or members."""
    formed(server, group, *names)
    (entry,) = rebalances(server, group, 1)
    last = run(server, "explain", group).out.splitlines()[-1]
    hint = "Some lists are cut. --output json has up to 100 members and 100 moves of each rebalance"
    assert (last == hint) == is_cut
    assert len(entry["moved"]) == len(names)


def test_who_has_not_rejoined_is_named_while_the_group_waits(group: str, server: Served) -> None:
    """Explain names each missing member with its ids, its client, since when, and the end of the wait; no others."""
    a = Member(server.port, group, "a", 5)
    b = Member(server.port, group, "client-of-b", 5, instance="seat-b")
    gathered(server, a, b)
    (formed_at,) = rebalances(server, group, 1)
    a.send_join()
    until_rebalancing(b)
    waiting = explained(server, group)["waiting"]
    assert waiting["members"] == [
        {
            "member_id": b.member_id,
            "group_instance_id": "seat-b",
            "client_id": "client-of-b",
            "client_host": HERE,
            "session_timeout_ms": STAYS_MS,
            "silent_ms": waiting["members"][0]["silent_ms"],
        }
    ]
    assert 0 <= waiting["members"][0]["silent_ms"] < STAYS_MS
    assert waiting["until_ms"] - waiting["since_ms"] == REBALANCE_MS
    assert waiting["since_ms"] >= formed_at["at_ms"] + formed_at["preparing_ms"]
    assert (waiting["is_held_open"], waiting["leader"], waiting["pending"]) == (False, None, [])
    text = run(server, "explain", group).out
    since, until = time_text(waiting["since_ms"]), time_text(waiting["until_ms"])
    line = (
        f"The group is PreparingRebalance now, since {since}; the rebalance timeout ends the wait {until} at the latest"
    )
    assert f"{line}\n" in text
    assert f"    it waits for {b.member_id}, instance id seat-b (client-of-b at 127.0.0.1) to join; silent for " in text
    assert f"it waits for {a.member_id}" not in text

    b.send_join()
    for member in (a, b):
        assert member.receive_join().error_code == ErrorCode.NONE
    b.send_sync({})
    waiting = wait_until(lambda: synced(server, group, a), "only the leader is waited for", WITHIN_S)
    assert waiting["leader"] == a.member_id
    text = run(server, "explain", group).out
    assert f"    it waits for the leader {a.member_id} (a at 127.0.0.1) to assign; silent for " in text
    assert f"it waits for {b.member_id}" not in text
    described = run(server, "groups", "describe", "--group", group, "--members", "--output", "json")
    again = described.json[0]["waiting"]
    again["members"][0]["silent_ms"] = waiting["members"][0]["silent_ms"]  # it grows
    assert again == waiting, "as over HTTP"


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_rebalance_of_which_the_server_says_nothing_is_a_line(state: str) -> None:
    """Apache Kafka keeps no event of a rebalance under way and names nobody: the state alone shows it."""
    group = group_of(state=state)
    assert present_lines(group) == [f"The group is {state} now; its server doesn't say whom it waits for"]
    assert present_lines(group_of()) == []


def synced(server: Server, group: str, leader: Member) -> dict[str, Any] | None:
    """The wait of the group, once it waits only for the leader."""
    waiting: dict[str, Any] | None = explained(server, group)["waiting"]
    alone = waiting is not None and [each["member_id"] for each in waiting["members"]] == [leader.member_id]
    return waiting if alone else None


def test_a_group_that_is_held_open_says_so() -> None:
    """The output says that the group waits, but for no particular member."""
    with Tenure({"group.initial.rebalance.delay.ms": "60000"}) as own:
        Member(own.port, "g", "a", 5).send_join()
        waiting = wait_until(lambda: explained(own, "g")["waiting"], "it waits", WITHIN_S)
        assert (waiting["is_held_open"], waiting["members"]) == (True, [])
        until = time_text(waiting["until_ms"])
        text = run(own, "explain", "g").out
        assert f"it is held open for whoever may come until {until} (group.initial.rebalance.delay.ms)\n" in text


def last_of(server: Server, group: str, count: int) -> dict[str, Any]:
    """The last of `count` rebalances."""
    return rebalances(server, group, count)[-1]


def who(cause: dict[str, Any]) -> tuple[Any, ...]:
    """The facts of a cause about its member: what it did, its ids, its client, and the request."""
    return (
        cause["kind"],
        cause["member_ids"],
        cause["group_instance_id"],
        cause["client_id"],
        cause["client_host"],
        cause["api_version"],
        cause["source"],
    )


HERE = "/127.0.0.1"


def test_a_follower_that_says_it_was_upgraded(group: str, server: Served) -> None:
    """The cause has the number that the member sent as its join reason (KIP-423)."""
    a, b = formed(server, group, "a", "b", version=9)
    b.send_join(join_reason=2)
    until_rebalancing(a)
    settle(a, b)
    cause = last_of(server, group, 2)["cause"]
    assert who(cause) == ("member_rejoined", [b.member_id], None, "b", HERE, 9, "client")
    assert cause["join_reason"] == 2


def test_a_restart_that_changes_the_selected_protocol(group: str, server: Served) -> None:
    """Explain shows a restart that rebalances, and the rebalance."""
    a, b = (Member(server.port, group, name, 5, instance=name, protocols=["range", "roundrobin"]) for name in "ab")
    gathered(server, a, b)
    again = Member(server.port, group, "b", 5, instance="b", protocols=["roundrobin"])
    again.send_join()
    until_rebalancing(a)
    settle(a, again)
    cause = last_of(server, group, 2)["cause"]
    assert who(cause) == ("protocol_changed", [again.member_id], "b", "b", HERE, 5, "inferred")
    (restart,) = [entry for entry in explained(server, group)["timeline"] if entry["type"] == "static_restart"]
    assert (restart["rebalances"], restart["member_id"], restart["old_member_id"]) == (
        True,
        again.member_id,
        b.member_id,
    )


def test_a_static_member_replaced_while_the_group_completes(group: str, server: Served) -> None:
    """The open rebalance ends without assignments, and the next one names the new member."""
    a, b = (Member(server.port, group, name, 5, instance=name) for name in "ab")
    for member in (a, b):
        member.send_join()
    pass_initial_delay(server, group, 2)
    for member in (a, b):
        assert member.receive_join().error_code == ErrorCode.NONE
    again = Member(server.port, group, "b", 5, instance="b")
    again.send_join()
    until_rebalancing(a)
    settle(a, again)
    first, second = rebalances(server, group, 2)
    assert (first["outcome"], second["outcome"]) == ("superseded", "completed")
    assert who(second["cause"]) == ("static_member_replaced", [again.member_id], "b", "b", HERE, 5, "inferred")
    assert second["state"] == "CompletingRebalance"


def test_a_member_that_an_operator_removes(group: str, server: Served) -> None:
    """The cause says that a command removed the member by its instance id."""
    a, b = (Member(server.port, group, name, 5, instance=name) for name in "ab")
    gathered(server, a, b)
    assert run(server, "members", "remove", "--group", group, "--instance-id", "b").code == 0
    settle(a)
    last = last_of(server, group, 2)
    assert who(last["cause"])[:5] == ("member_removed", [b.member_id], "b", "b", HERE)
    assert (last["members_before"], last["members_after"]) == (2, 1)
    assert [(move["from"], move["to"]) for move in last["moved"]] == [("b", None)]


def test_a_member_that_does_not_sync_in_time(group: str, server: Served) -> None:
    """The member joined, but it is removed at the end of the rebalance timeout."""
    a, b = (Member(server.port, group, name, 5, rebalance_ms=LATE_MS) for name in "ab")
    for member in (a, b):
        member.send_join()
    pass_initial_delay(server, group, 2)
    for member in (a, b):
        assert member.receive_join().error_code == ErrorCode.NONE
    a.send_sync({a.member_id: "a", b.member_id: "b"})
    a.connection.receive(WITHIN_S)
    pass_ms(server, LATE_MS)
    until_rebalancing(a)
    settle(a)
    last = last_of(server, group, 2)
    assert who(last["cause"]) == ("sync_timed_out", [b.member_id], None, "b", HERE, None, "inferred")


def test_members_that_do_not_sync_in_time(group: str, server: Served) -> None:
    """Explain shows each member with its name and its client, in JSON and in words."""
    a = Member(server.port, group, "a", 5, rebalance_ms=LATE_MS)
    b = Member(server.port, group, "client-of-b", 5, rebalance_ms=LATE_MS, instance="seat-b")
    c = Member(server.port, group, "c", 5, rebalance_ms=LATE_MS)
    a.send_join()
    wait_until(lambda: explained(server, group)["state"] == "PreparingRebalance", "the first leads", WITHIN_S)
    for member in (b, c):
        member.send_join()
    pass_initial_delay(server, group, 3)
    for member in (a, b, c):
        assert member.receive_join().error_code == ErrorCode.NONE
    a.send_sync({each.member_id: each.name for each in (a, b, c)})
    a.connection.receive(WITHIN_S)
    pass_ms(server, LATE_MS)
    until_rebalancing(a)
    settle(a)
    cause = last_of(server, group, 2)["cause"]
    assert cause["kind"] == "sync_timed_out"
    assert sorted(cause["member_ids"]) == sorted([b.member_id, c.member_id])
    assert sorted(cause["members"], key=lambda each: each["client_id"]) == [
        {"member_id": c.member_id, "group_instance_id": None, "client_id": "c", "client_host": HERE},
        {"member_id": b.member_id, "group_instance_id": "seat-b", "client_id": "client-of-b", "client_host": HERE},
    ]
    (line,) = [line for line in run(server, "explain", group).out.splitlines() if "no sync in time" in line]
    assert "seat-b (client-of-b at 127.0.0.1)" in line
    assert f"{short(c.member_id)} (c at 127.0.0.1)" in line
    assert "inferred" not in line


def test_members_before_are_the_same_from_beginning_to_end(group: str, server: Served) -> None:
    """The members before include one that leaves, and not one that joins."""
    a, b = formed(server, group, "a", "b")
    b.leave()
    c = Member(server.port, group, "c", 5)
    c.send_join()

    def opened() -> dict[str, Any] | None:
        told: list[dict[str, Any]] = explained(server, group)["timeline"]
        return next((each for each in told if each["type"] == "rebalance" and each["generation_before"] == 1), None)

    assert wait_until(opened, "its beginning is told", WITHIN_S)["members_before"] == 2
    settle(a, c)
    assert last_of(server, group, 2)["members_before"] == 2


def test_a_group_that_empties_while_it_prepares(group: str, server: Served) -> None:
    """The group waited for members that never came back; the first member's initial delay is shown as such."""
    a, b = formed(server, group, "a", "b")
    b.leave()
    until_rebalancing(a)
    wait_until(lambda: explained(server, group)["state"] == "PreparingRebalance", "it waits", WITHIN_S)
    a.leave()
    first, last = rebalances(server, group, 2)
    assert (last["outcome"], last["waited_for"]["member_id"]) == ("emptied", a.member_id)
    text = run(server, "explain", group).out
    assert (
        f"nobody was left after {duration_text(last['preparing_ms'])}; waited longest for {short(a.member_id)}" in text
    )
    delay = duration_text(first["preparing_ms"])
    assert f"completed: {delay} initial delay (group.initial.rebalance.delay.ms), " in text
    assert "until all had joined" not in text


def test_a_twin_that_takes_a_seat_while_the_group_prepares(group: str, server: Served) -> None:
    """Explain shows the takeover before the conflict that it causes, and neither of them as a restart."""
    a, one = (Member(server.port, group, name, 5, instance=name) for name in ("a", "seat"))
    gathered(server, a, one)
    one.send_join() if one.joined and one.joined.leader == one.member_id else a.send_join()
    waits, other = (one, a) if one.waits else (a, one)
    until_rebalancing(other)
    twin = Member(server.port, group, "twin", 5, instance=waits.instance)
    twin.send_join()
    assert waits.receive_join().error_code == ErrorCode.FENCED_INSTANCE_ID
    settle(twin, other)
    *_, last = timeline(server, group, "rebalance", "rebalance", "takeover", "fencing")
    assert last["group_instance_id"] == waits.instance


def test_a_member_that_does_not_rejoin_in_time(group: str, server: Served) -> None:
    """The member is no cause, but explain shows that the group waited for it and that it was late."""
    a, b = (Member(server.port, group, name, 5, rebalance_ms=LATE_MS) for name in "ab")
    gathered(server, a, b)
    a.send_join()
    until_rebalancing(b)
    pass_ms(server, LATE_MS)
    settle(a)
    last = last_of(server, group, 2)
    assert who(last["cause"])[:2] == ("leader_rejoined", [a.member_id])
    assert last["late"] == [b.member_id]
    assert (last["waited_for"]["member_id"], last["waited_for"]["phase"]) == (b.member_id, "preparing")
    assert last["preparing_ms"] >= LATE_MS
    assert last["preparing_ms"] >= last["waited_for"]["ms"]


def test_a_group_that_is_loaded_with_too_many_members() -> None:
    """After a restart with a lower group.max.size, the cause names no member."""
    with Tenure({"group.initial.rebalance.delay.ms": "0"}) as own:
        (a,) = formed(own, "g", "a", rebalance_ms=LATE_MS)
        b = Member(own.port, "g", "b", 5, rebalance_ms=LATE_MS)
        b.send_join()
        until_rebalancing(a)
        settle(a, b)
        own.stop()
        own.settings["group.max.size"] = "1"
        own.start()
        again = Member(own.port, "g", "a", 5, rebalance_ms=LATE_MS)
        again.member_id = a.member_id
        again.send_join()
        settle(again)
        last = last_of(own, "g", 3)
        assert who(last["cause"]) == ("group_over_capacity", [], None, "", "", None, "inferred")
        assert (last["members_before"], last["members_after"]) == (2, 1)
        assert b.member_id not in {each["member_id"] for each in last["after"]}


def test_an_assignment_that_is_too_large() -> None:
    """If the leader's assignment is too large, that rebalance ends, and the next one names the assignment."""
    with Tenure({"group.initial.rebalance.delay.ms": "0", "message.max.bytes": "2500"}) as own:
        a = Member(own.port, "g", "a", 5)
        a.send_join()
        assert a.receive_join().error_code == ErrorCode.NONE
        a.send_sync({a.member_id: "a"}, bytes(3_000))
        assert a.connection.receive(WITHIN_S).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        settle(a)
        first, second = rebalances(own, "g", 2)
        assert (first["outcome"], second["outcome"]) == ("superseded", "completed")
        assert who(second["cause"]) == ("assignment_too_large", [a.member_id], None, "a", HERE, None, "inferred")


def test_a_group_that_gets_fewer_seats(group: str, server: Served) -> None:
    """The cause names no member: an operator changed target.group.size."""
    a, b = formed(server, group, "a", "b")
    set_seats(server.port, group, 1)
    until_rebalancing(a)
    a.send_join()
    b.send_join()
    settle(a)
    last = last_of(server, group, 2)
    assert who(last["cause"]) == ("target_size_changed", [], None, "", "", None, "inferred")


def test_a_standby_that_takes_a_seat_has_a_line(group: str, server: Served) -> None:
    """The line names both members and says why; no rebalance is told."""
    a, b = formed(server, group, "a", "b")
    set_seats(server.port, group, 2)
    c = Member(server.port, group, "c", 5)
    c.send_join()
    assert c.receive_join().generation_id == 0
    b.leave()
    taken = wait_until(
        lambda: next((each for each in explained(server, group)["timeline"] if each["type"] == "seat_taken"), None),
        "seat taken",
        WITHIN_S,
    )
    assert (taken["old_member_id"], taken["kind"], taken["leads"]) == (b.member_id, "member_left", False)
    assert "seat taken: standby c" in run(server, "explain", group).out
    assert len(rebalances(server, group, 1)) == 1
    assert a.heartbeat() == ErrorCode.NONE


def test_a_hold_is_told_while_it_lasts_and_when_it_is_over(group: str, server: Served) -> None:
    """Explain names the missing member, then how many joins came in; one rebalance follows."""
    set_of_group(server.port, group, {"expected.instance.ids": "first,second"})
    first = Member(server.port, group, "first", 5, instance="first")
    first.send_join()

    def hold() -> dict[str, Any] | None:
        ran = run(server, "explain", group, "--output", "json")
        told = ran.json["timeline"] if ran.code == 0 else []
        return next((each for each in told if each["type"] == "held"), None)

    held = wait_until(hold, "a hold", WITHIN_S)
    assert (held["missing"], held["outcome"]) == (["second"], None)
    assert "joins are held for 1 expected member (second) until " in run(server, "explain", group).out
    second = Member(server.port, group, "second", 5, instance="second")
    second.send_join()
    settle(first, second)
    rebalances(server, group, 1)
    held = wait_until(hold, "a hold", WITHIN_S)
    assert (held["outcome"], held["joins"], held["still_missing"]) == ("arrived", 2, [])


def test_every_cause_has_its_test() -> None:
    """This file tests each kind of cause on a real server, so a new kind needs a test here."""
    page = Path(__file__).read_text()
    assert [kind.value for kind in CauseKind if f'"{kind.value}"' not in page] == []


def test_an_abandoned_member_id_is_named_while_the_group_waits(group: str, server: Served) -> None:
    """Explain shows when the member id expires, which may be configured to be before its session timeout."""
    a, b = formed(server, group, "a", "b")
    ghost = Member(server.port, group, "ghost", 5)
    abandoned = ghost.ask_for_id()
    ghost.send_join()
    until_rebalancing(a)
    a.send_join()
    b.send_join()

    def waiting() -> dict[str, Any] | None:
        told: dict[str, Any] | None = explained(server, group)["waiting"]
        return told if told is not None and told["pending"] else None

    told = wait_until(waiting, "it is named", WITHIN_S)
    (pending,) = told["pending"]
    assert (told["members"], pending["member_id"], pending["client_id"]) == ([], abandoned, "ghost")
    text = run(server, "explain", group).out
    assert f"it waits for {abandoned} (ghost at 127.0.0.1), a member id that nobody has used" in text
    pass_ms(server, PENDING_MS)
    settle(a, b, ghost)
    last = rebalances(server, group, 2)[-1]
    assert last["lapsed"] == [abandoned]
    assert last["waited_for"]["member_id"] == abandoned
    assert last["preparing_ms"] <= STAYS_MS / 2
    assert explained(server, group)["waiting"] is None


@pytest.mark.parametrize("place", ["a seat", "a standby's"])
def test_two_programs_with_one_instance_id(group: str, server: Served, place: str) -> None:
    """Explain shows one conflict with both clients; the first join was a takeover, not a restart, and moved nothing."""
    if place == "a seat":
        (one,) = formed(server, group, "one", instance="seat")
    else:
        set_seats(server.port, group, 1)
        formed(server, group, "holder")
        one = Member(server.port, group, "one", 5, instance="seat")
        one.send_join()
        assert one.receive_join().error_code == ErrorCode.NONE
    other = Member(server.port, group, "other", 5, instance="seat")
    other.send_join()
    assert other.receive_join().error_code == ErrorCode.NONE
    assert one.heartbeat() == one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    _formed, taken, fencing = timeline(server, group, "rebalance", "takeover", "fencing")
    assert not taken["rebalances"]
    assert (taken["old_member_id"], taken["member_id"]) == (one.member_id, other.member_id)
    assert f"{short(other.member_id)} (other at 127.0.0.1) takes the seat of seat" in run(server, "explain", group).out
    assert (fencing["kind"], fencing["group_instance_id"]) == ("conflict", "seat")
    assert fencing["client"] == {"client_id": "one", "client_host": "/127.0.0.1"}
    assert fencing["current_client"] == {"client_id": "other", "client_host": "/127.0.0.1"}
    examined = run(server, "doctor", group)
    assert examined.code == 1
    assert "two programs had the instance id seat" in examined.out
    assert "(one at 127.0.0.1) was fenced by" in examined.out


def test_a_refused_join_is_told(group: str, server: Served) -> None:
    """Explain says which client was refused, with which error, and why, also where the group never was."""
    one = Member(server.port, group, "one", 5, instance="seat", session_ms=1_000)
    one.send_join()
    assert one.receive_join().error_code == ErrorCode.INVALID_SESSION_TIMEOUT

    def told() -> str | None:
        ran = run(server, "explain", group)
        return ran.out if ran.code == 0 else None

    assert wait_until(told, "the refusal is told", WITHIN_S).split("  ", 1)[1] == (
        "refused: a client with the instance id seat (one at 127.0.0.1) got INVALID_SESSION_TIMEOUT: its session "
        "timeout, 1000 ms, is not between group.min.session.timeout.ms=6000 and group.max.session.timeout.ms=1800000\n"
        "    this lasts until its client has other settings\n"
    )
    (entry,) = explained(server, group)["timeline"]
    assert (entry["type"], entry["error"], entry["group_instance_id"]) == ("refused", "INVALID_SESSION_TIMEOUT", "seat")
    assert entry["client"] == {"client_id": "one", "client_host": "/127.0.0.1"}


def test_a_client_without_its_member_id_is_no_second_program(group: str, server: Served) -> None:
    """Explain says what the refused request lacked, and the doctor finds no conflict."""
    (one,) = formed(server, group, "one", version=9, instance="seat")
    lost = Member(server.port, group, "one", 9, instance="seat")
    assert lost.heartbeat() == ErrorCode.FENCED_INSTANCE_ID

    def told() -> str | None:
        text = run(server, "explain", group).out
        return text if "refused" in text else None

    text = wait_until(told, "the refusal is told", WITHIN_S)
    assert (
        "refused: a request had the instance id seat and no member id (heartbeat, one at 127.0.0.1), "
        f"and {short(one.member_id)} (one at 127.0.0.1) has the seat\n"
    ) in text
    examined = run(server, "doctor", group)
    assert (examined.code, examined.out) == (0, "1 group looked at: nothing found\n")


def test_a_seat_that_is_taken_in_turn(group: str, server: Served) -> None:
    """If nobody is fenced, the takeovers are one line of `explain`, all in its JSON, and an error of the doctor."""
    gathered(server, Member(server.port, group, "x", 5, instance="seat"))
    for turn in range(6):
        taken = Member(server.port, group, "yx"[turn % 2], 5, instance="seat")
        taken.send_join()
        assert taken.receive_join().error_code == ErrorCode.NONE
    _formed, *restarts = timeline(server, group, "rebalance", *["static_restart"] * 6)
    _rebalance, *_more, line = run(server, "explain", group).out.splitlines()
    first, last = (time_text(restarts[place]["at_ms"]) for place in (0, -1))
    assert line == (
        f"{first}  6 restarts until {last}: x at 127.0.0.1 and y at 127.0.0.1 take the seat of seat from each other in "
        f"turn, {short(restarts[-1]['member_id'])} at last "
        "(y at 127.0.0.1: 3; x at 127.0.0.1: 3), none with a rebalance"
    )
    assert run(server, "explain", group, "--last", "1").out == line + "\n", "what is one line is one entry"
    assert explained(server, group, "--last", "1")["timeline"] == restarts
    assert run(server, "doctor", group, "--last", "1").out == run(server, "doctor", group).out
    examined = run(server, "doctor", group)
    assert examined.code == 1
    assert "error: x at 127.0.0.1 and y at 127.0.0.1 took the seat of seat from each other in turn" in examined.out


def test_a_restart_is_no_conflict(group: str, server: Served) -> None:
    """A restart is neither a conflict nor a rebalance, and the doctor has no finding."""
    (one,) = formed(server, group, "one", version=9, instance="seat")
    one.connection.close()
    again = Member(server.port, group, "one", 9, instance="seat")
    again.send_join()
    assert again.receive_join().error_code == ErrorCode.NONE
    _formed, restart = timeline(server, group, "rebalance", "static_restart")
    assert not restart["rebalances"]
    examined = run(server, "doctor", group)
    assert (examined.code, examined.out) == (0, "1 group looked at: nothing found\n")


def test_a_restart_with_another_subscription(group: str, server: Served) -> None:
    """Explain says that the restart changed the subscription and moved nothing, as in Kafka (KAFKA-12759)."""
    (one,) = formed(server, group, "one", version=9, instance="seat")
    one.connection.close()
    again = Member(server.port, group, "one", 9, instance="seat")
    again.topics = ["t", "u"]
    again.send_join()
    assert again.receive_join().error_code == ErrorCode.NONE
    text = "(one at 127.0.0.1) with another subscription, which counts from the next rebalance on, and nothing moves\n"
    wait_until(lambda: run(server, "explain", group).out.endswith(text), "the restart is told", WITHIN_S)
    assert explained(server, group, "--last", "1")["timeline"][0]["subscription_changed"]


def test_the_timeline_as_text(group: str, server: Served) -> None:
    """Each entry has a line, with its details below; the newest is at the bottom."""
    a, b = formed(server, group, "a", "b")
    b.leave()
    settle(a)
    rebalances(server, group, 2)
    lines = run(server, "explain", group).out.splitlines()
    heads = [line for line in lines if "rebalance, generation" in line]
    assert "rebalance, generation 0 -> 1: new member a-" in heads[0]
    assert heads[1].endswith(f"rebalance, generation 1 -> 2: member {short(b.member_id)} leaves (b at 127.0.0.1)")
    assert "    members 2 -> 1, 1 topic partition left without a member" in lines[-1]
    assert len(run(server, "explain", group, "--last", "1").out.splitlines()) < len(lines)


def test_events_outlive_the_server(server: Served) -> None:
    """A server that ends writes its waiting events first."""
    with Tenure({"group.initial.rebalance.delay.ms": "0"}) as own:
        (a,) = formed(own, "g", "a")
        a.connection.close()
        own.stop()
        own.start()
        _formed, loaded = timeline(own, "g", "rebalance", "loaded")
        assert (loaded["members"], loaded["generation"], loaded["state"]) == (1, 1, "Stable")
        line = "the coordinator started anew: the group was loaded with 1 member in generation 1\n"
        assert line in run(own, "explain", "g").out
    assert server.is_running


def test_a_group_that_nobody_knows(server: Served) -> None:
    """An unknown group is exit code 3, as in every command."""
    ran = run(server, "explain", "nobody-made-this-group")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "tenure: no such group, and no events of one: nobody-made-this-group\n"


def test_a_server_without_events() -> None:
    """The timeline is inferred from the groups' log, as on Apache Kafka; a line says what that doesn't tell."""
    with Tenure({"tenure.events.enable": "false", "group.initial.rebalance.delay.ms": "0"}) as own:
        assert run(own, "explain", "g").code == 3
        formed(own, "g", "a")
        ran = run(own, "explain", "g")
        assert (ran.code, ran.err) == (0, f"tenure: {LIMITS}\n")
        first, second, third = ran.out.splitlines()
        assert "rebalance, generation 0 -> 1: new member " in first
        assert first.endswith(" [inferred from the log]")
        assert second.startswith("    completed: ")
        assert third.startswith("    members 0 -> 1")
        told = run(own, "explain", "g", "--output", "json").json
        assert (told["inferred"], told["timeline"][0]["preparing_ms"]) == (True, None)


def test_what_happened_since(group: str, heartbeats: Tenure) -> None:
    """With --since 1h all events show, with a duration of zero only the state; a duration needs a unit."""
    formed(heartbeats, group, "a")
    (formed_at,) = rebalances(heartbeats, group, 1)
    assert formed_at in explained(heartbeats, group, "--since", "1h")["timeline"]
    told = explained(heartbeats, group, "--since", "0s")
    assert ([entry for entry in told["timeline"] if entry["type"] == "rebalance"], told["state"]) == ([], "Stable")
    assert "client_without_reason" in run(heartbeats, "doctor", group, "--since", "1h", "--output", "json").out
    assert run(heartbeats, "doctor", group, "--since", "0s").out == "1 group looked at: nothing found\n"
    assert run(heartbeats, "explain", group, "--since", "an hour").code == 2
    before_ms = time.time_ns() // 1_000_000
    told = explained(heartbeats, group, "--since", "0s")
    assert told["timeline"] == []
    assert before_ms <= told["since_ms"] <= time.time_ns() // 1_000_000
    silent = run(heartbeats, "explain", group, "--since", "0s").out
    assert silent.startswith(f"No events of group {group}, which is Stable, since 20")
    assert silent.endswith("Z (without --since: in all kept events)\n")
    assert explained(heartbeats, group)["since_ms"] is None
    nowhere = run(heartbeats, "explain", "nobody-made-this-group", "--since", "1h")
    assert nowhere.code == 3
    assert "no events of one, since 20" in nowhere.err


def test_what_a_client_calls_itself_begins_no_line(group: str, server: Served) -> None:
    """Explain and the doctor escape a client's name, so that it can neither begin a line nor steer a terminal."""
    (a,) = formed(server, group, "x\n\x1b[2J", version=5)
    rebalances(server, group, 1)
    b = Member(server.port, group, "b", 5)
    b.send_join()
    until_rebalancing(a)
    for told in (run(server, "explain", group).out, run(server, "doctor", group).out):
        assert "\\n\\x1b[2J at 127.0.0.1)" in told
        assert all(line.isprintable() for line in told.splitlines())


def test_a_past_whose_beginning_is_gone() -> None:
    """After retention removed the oldest events, explain shows the others, read from either end."""
    with Tenure(
        {"group.initial.rebalance.delay.ms": "0"}
    ) as server:  # no other group may add events behind the last one
        group = fresh_group()
        (a,) = formed(server, group, "a")
        rebalances(server, group, 1)
        settle(a)
        rebalances(server, group, 2)
        answer = a.connection.ask(list_offsets_request({(EVENTS_TOPIC, 0): LATEST}), 7)
        end = answer.topics[0].partitions[0].offset
        gone = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=end - 1)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=EVENTS_TOPIC, partitions=[gone])
        deleted = a.connection.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=int(WITHIN_S * 1_000)), 2)
        assert deleted.topics[0].partitions[0].error_code == ErrorCode.NONE
        (left,) = explained(server, group)["timeline"]
        assert (left["generation_before"], left["outcome"]) == (1, "completed")
        assert explained(server, group, "--last", "5")["timeline"] == [left]


def test_json_is_one_document(group: str, server: Served) -> None:
    """The document has the state, the number of unreadable records, and the wait."""
    formed(server, group, "a")
    rebalances(server, group, 1)
    told = json.loads(run(server, "explain", group, "--output", "json").out)
    assert (told["group_id"], told["state"], told["waiting"], told["passed_over"]) == (group, "Stable", None, 0)


@pytest.fixture(scope="module")
def heartbeats() -> Iterator[Tenure]:
    """A server with topics, on which each epoch of the consumer protocol has its target at once."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.session.timeout.ms": "6000",
        "tenure.topics": "orders:4,bills:2",
    }
    with Tenure(settings) as tenure:
        yield tenure


def test_the_consumer_protocol_tells_its_causes_and_who_was_waited_for(group: str, heartbeats: Tenure) -> None:
    """A member joins, another one gives up partitions late, subscribes to something else, leaves."""
    a = Beating(heartbeats.port, group, "a", ["orders"], instance="i-a")
    b = Beating(heartbeats.port, group, "b", ["orders"])
    assert a.join() == 0
    rebalances(heartbeats, group, 1)
    assert b.join() == 0
    assert a.beat(owns=True) == 0  # it is asked to give up two partitions
    wait_until(lambda: bool(explained(heartbeats, group)["timeline"][-1].get("revoking")), "revocation", WITHIN_S)
    now = explained(heartbeats, group)
    assert (now["state"], now["group_epoch"], now["assignment_epoch"]) == ("Reconciling", 3, 3)
    (held,) = now["held_up_by"]
    assert (held["group_instance_id"], held["phase"], held["partitions"]) == ("i-a", "revoking", 2)
    told = run(heartbeats, "explain", group).out
    assert f"it waits for {a.member_id}, instance id i-a (a at 127.0.0.1) to give up 2 topic partitions, since " in told
    assert "under way" in told
    assert "i-a (a at 127.0.0.1) must give up 2 topic partitions until " in told
    settle_heartbeats(a, b)
    first, second = rebalances(heartbeats, group, 2)
    assert (first["group_type"], first["state"], first["outcome"], first["protocol_name"]) == (
        "consumer",
        "Empty",
        "completed",
        "uniform",
    )
    assert who(first["cause"]) == ("member_joined", [a.member_id], "i-a", "a", HERE, None, "inferred")
    assert (second["moved_partitions"], second["members_before"], second["members_after"]) == (2, 1, 2)
    assert (second["waited_for"]["phase"], second["waited_for"]["group_instance_id"]) == ("revoking", "i-a")
    assert b.subscribe(["orders", "bills"]) == 0
    settle_heartbeats(a, b)
    third = rebalances(heartbeats, group, 3)[-1]
    assert who(third["cause"])[0] == "subscription_changed"
    assert third["cause"]["topics"] == [{"topic": "bills", "change": "added"}]
    told = run(heartbeats, "explain", group).out
    assert "rebalance, epoch 2 -> 3: new member b" in told
    assert "waited longest for i-a to give up partitions" in told
    assert "subscribes to other topics: bills (new)" in told
    assert b.leave() == 0
    settle_heartbeats(a)
    assert who(rebalances(heartbeats, group, 4)[-1]["cause"])[0] == "member_left"


def test_an_upgrade_tells_that_its_target_left_partitions_out(group: str, heartbeats: Tenure) -> None:
    """A classic leader assigned nothing of a topic: the consumer protocol fills the gap, and says so."""
    classic = Member(heartbeats.port, group, "a", 5, instance="i-a")
    classic.topics = ["orders"]
    settle(classic)  # with a partition of another topic
    back = Beating(heartbeats.port, group, "a", ["orders"], instance="i-a")
    assert back.join() == 0
    settle_heartbeats(back)
    assert sorted(*back.partitions.values()) == [0, 1, 2, 3]

    def causes() -> list[str]:
        return [each["cause"]["kind"] for each in explained(heartbeats, group)["timeline"] if each.get("cause")]

    wait_until(lambda: "target_incomplete" in causes(), "explain has the cause", WITHIN_S)


def test_the_consumer_protocol_tells_of_a_vote_that_another_assignor_wins_by(group: str, heartbeats: Tenure) -> None:
    """The vote of one member is a rebalance by that member."""
    a = Beating(heartbeats.port, group, "a", ["orders"])
    assert a.join() == 0
    settle_heartbeats(a)
    assert a.ask(a.epoch, server_assignor="range").error_code == 0
    cause = rebalances(heartbeats, group, 2)[-1]["cause"]
    assert who(cause)[:2] == ("assignor_changed", [a.member_id])
    assert "votes, and another assignor wins" in run(heartbeats, "explain", group).out


def test_the_consumer_protocol_tells_of_topics_and_of_members_that_give_nothing_up(heartbeats: Tenure) -> None:
    """A regular expression is resolved, a topic is created, and a member is removed with its partitions."""
    group, topic = fresh_group(), fresh_group()
    a = Beating(heartbeats.port, group, "a", ["bills", topic], regex="ord.*", timeout_ms=1_000)
    assert a.join() == 0
    wait_until(lambda: a.beat(owns=True) == 0 and len(a.partitions) == 2, "the topics are found", WITHIN_S)
    with Client(f"127.0.0.1:{heartbeats.port}") as client:
        create_topic(client, topic, 2)
    wait_until(lambda: a.beat(owns=True) == 0 and len(a.partitions) == 3, "the new topic is found", WITHIN_S)
    causes = [entry["cause"] for entry in rebalances(heartbeats, group, 3)]
    assert [cause["kind"] for cause in causes] == ["member_joined", "regex_resolved", "topics_changed"]
    assert [cause.get("topics") for cause in causes] == [
        None,
        [{"topic": "orders", "change": "added"}],
        [{"topic": topic, "change": "created"}],
    ]
    b = Beating(heartbeats.port, group, "b", ["bills"])
    assert b.join() == 0
    assert a.beat(owns=True) == 0  # it is asked, and says that it owns all
    wait_until(lambda: b.beat(owns=True) == 0 and a.beat() == ErrorCode.UNKNOWN_MEMBER_ID, "a is removed", WITHIN_S)
    settle_heartbeats(b)
    last = rebalances(heartbeats, group, 4)[-1]
    assert [cause["kind"] for cause in last["causes"]] == ["member_joined", "revocation_timed_out"]
    assert last["late"] == [a.member_id]
    told = run(heartbeats, "explain", group).out
    assert f"removed, as their partitions were not given up in time: {short(a.member_id)}" in told
    assert f"topics that the group subscribes to changed: {topic} (created)" in told


def test_a_static_member_away_and_its_twin_are_told(group: str, heartbeats: Tenure) -> None:
    """A restart moves nothing and makes no rebalance; a program that wants the seat meanwhile is refused."""
    a = Beating(heartbeats.port, group, "a", ["orders"], instance="i-a")
    assert a.join() == 0
    twin = Beating(heartbeats.port, group, "twin", ["orders"], instance="i-a")
    assert twin.join() == ErrorCode.UNRELEASED_INSTANCE_ID
    assert a.leave(AWAY) == 0
    back = Beating(heartbeats.port, group, "a", ["orders"], instance="i-a")
    assert back.join() == 0
    _first, refused, restart = timeline(heartbeats, group, "rebalance", "unreleased", "static_restart")
    assert (refused["client"]["client_id"], refused["current_client"]["client_id"]) == ("twin", "a")
    assert restart["away_ms"] >= 0
    told = run(heartbeats, "explain", group).out
    assert "twin at 127.0.0.1) wants the seat of i-a, which a-" in told
    assert "restart: static member i-a is back as a-" in told
    assert "and nothing moves" in told


def test_doctor_finds_twins_of_the_consumer_protocol(group: str, heartbeats: Tenure) -> None:
    """A program wants the seat of another one that runs on."""
    a = Beating(heartbeats.port, group, "a", ["orders"], instance="i-a")
    assert a.join() == 0

    def is_conflict() -> bool:
        twin = Beating(heartbeats.port, group, "twin", ["orders"], instance="i-a")
        assert twin.join() == ErrorCode.UNRELEASED_INSTANCE_ID
        found = run(heartbeats, "doctor", group, "--output", "json").json
        assert a.beat() == 0
        return "instance_id_conflict" in {finding["kind"] for finding in found}

    wait_until(is_conflict, "doctor finds the conflict", WITHIN_S)
    assert run(heartbeats, "doctor", group).code == 1


def test_doctor_looks_at_groups_of_the_consumer_protocol(group: str, heartbeats: Tenure) -> None:
    """A topic that isn't there, and an expression that matches nothing."""
    a = Beating(heartbeats.port, group, "a", ["missing"], regex="nothing.*")
    assert a.join() == 0

    def kinds() -> bool:
        found = {finding["kind"] for finding in run(heartbeats, "doctor", group, "--output", "json").json}
        return {"subscribed_but_absent", "regex_without_topics"} <= found

    wait_until(kinds, "doctor finds both", WITHIN_S)
    told = run(heartbeats, "doctor", "--all").out
    assert f"{group}: warning: there is no topic missing, to which {a.member_id} (a at 127.0.0.1) subscribe" in told
