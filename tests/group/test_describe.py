"""DescribeGroups, ListGroups and DeleteGroups, as an administrator uses them."""

from __future__ import annotations

from coordinator.group.client import Client
from coordinator.group.notes import GroupDeleted
from protocol.messages import DescribeGroupsResponse, encode
from protocol.primitives import STRING_SIZE_MAX
from schemas.errors import ErrorCode
from tests.group.classic.standbys import take_seat, with_standby
from tests.group.harness import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Bench


def test_the_longest_group_id_fits_into_an_answer() -> None:
    """The message about an absent group names the group only if the message fits into a string."""
    for length in (STRING_SIZE_MAX - len("Group  not found."), STRING_SIZE_MAX - len("Group  not found.") + 1):
        shown = Bench().describe(group="é" * (length // 2) + "x" * (length % 2), version=6)
        assert shown.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert len((shown.response.error_message or "").encode()) <= STRING_SIZE_MAX
        encode(shown.response, 6)


def test_delete_takes_the_offsets_with_it(bench: Bench) -> None:
    """Group and offsets get tombstones, and a restart brings none of them back."""
    peer = bench.static("a")
    bench.settle(peer)
    peer.commit(1)
    assert bench.delete().error is ErrorCode.NON_EMPTY_GROUP
    peer.leave()
    assert bench.delete().error is ErrorCode.NONE
    assert bench.delete().error is ErrorCode.GROUP_ID_NOT_FOUND
    (note,) = bench.said(GroupDeleted)
    assert (note.offsets, note.expired) == (1, False)
    bench.restart()
    assert bench.coordinator.groups == {}


# DescribeGroups with Tenure's own fields: how long members were silent, and which members a group waits for.


def test_members_show_their_silence(bench: Bench) -> None:
    """Session timeout and silence of each member, if they are asked for; who waits for an answer isn't silent."""
    a, b = bench.seated("a", "b")
    bench.advance(400)
    b.heartbeat()
    bench.advance(100)

    def told() -> list[tuple[int, int]]:
        members = bench.describe(waiting=True).response.members
        return [(each.session_timeout_ms, each.silent_ms) for each in members]

    assert told() == [(SESSION_MS, 500), (SESSION_MS, 100)]
    assert [each.silent_ms for each in bench.describe().response.members] == [-1, -1], "nobody asked"
    bench.restart()
    assert told() == [(SESSION_MS, 0)] * 2, "from the load on"
    bench.advance(100)
    bench.static("c").enter()
    bench.advance(100)
    assert told() == [(SESSION_MS, 200), (SESSION_MS, 200), (SESSION_MS, 0)]
    assert a.member_id


def test_members_show_their_software(bench: Bench) -> None:
    """The library that joined last, if it is asked for; the log doesn't have it."""
    bench.seated("a", client=Client("a", "/127.0.0.1", software="apache-kafka-java 3.9.1"))
    bench.static("a", client=Client("a", "/127.0.0.1", software="apache-kafka-java 4.4.0")).enter()

    def told(*, waiting: bool = True) -> list[str]:
        return [each.client_software for each in bench.describe(waiting=waiting).response.members]

    assert (told(), told(waiting=False)) == (["apache-kafka-java 4.4.0"], [""])
    bench.restart()
    assert told() == [""]


def test_standbys_show_for_how_long_they_wait() -> None:
    """A standby shows since when it waits for a seat; a member doesn't, nor does a standby that got a seat."""
    bench, (_, b, c) = with_standby("a", "b", "c")
    bench.advance(700)

    def told() -> list[int]:
        return [each.standby_ms for each in bench.describe(waiting=True).response.members]

    assert told() == [-1, -1, 700]
    assert [each.standby_ms for each in bench.describe().response.members] == [-1, -1, -1], "nobody asked"
    b.leave()
    take_seat(c)
    assert told() == [-1, -1]


def waiting(bench: Bench) -> DescribeGroupsResponse.GroupWaiting:
    """The answer's field about the wait."""
    return bench.describe(waiting=True).response.waiting


def names(told: DescribeGroupsResponse.GroupWaiting) -> list[str]:
    """The ids of the members that the group waits for."""
    return [member.member_id for member in told.members]


def test_who_is_waited_for_is_named_with_the_client_that_has_its_seat_now(bench: Bench) -> None:
    """The wait names the current client; the description of the member keeps the first client."""
    a, b = bench.static("a"), bench.static("b")
    bench.settle(a, b)
    b.restart(client=Client("new-pod", "/127.0.0.2"))
    a.join()
    (awaited,) = waiting(bench).members
    assert (awaited.member_id, awaited.client_id, awaited.client_host) == (b.member_id, "new-pod", "/127.0.0.2")
    described = {member.member_id: member for member in bench.describe(waiting=True).response.members}[b.member_id]
    assert (described.client_id, described.client_host) == ("b", "/127.0.0.1")


def test_nobody_asks_nobody_is_told(bench: Bench) -> None:
    """The field is Tenure's own; the answer has it only if the request asks for it."""
    a, _b = bench.seated("a", "b")
    a.join()
    assert bench.describe().response.waiting == DescribeGroupsResponse.GroupWaiting()


def test_who_has_not_joined_is_waited_for(bench: Bench) -> None:
    """The group waits until the rebalance timeout for members that have not joined, and for unused member ids."""
    a, b, c = bench.seated("a", "b", "c")
    assert waiting(bench) == DescribeGroupsResponse.GroupWaiting(), "a stable group waits for nobody"
    bench.advance(500)
    ghost = bench.dynamic("ghost").join().response.member_id
    c.leave()
    bench.advance(1_000)
    a.join()
    told = waiting(bench)
    assert (told.since_ms, told.until_ms) == (bench.now.wall_ms - 1_000, bench.now.wall_ms - 1_000 + REBALANCE_MS)
    assert (told.is_held_open, told.leader, names(told)) == (False, "", [b.member_id])
    ((member_id, client_id, client_host, lapses_ms),) = [
        (each.member_id, each.client_id, each.client_host, each.lapses_ms) for each in told.pending
    ]
    assert (member_id, client_id, client_host) == (ghost, "ghost", "/127.0.0.1")
    assert lapses_ms == bench.now.wall_ms - 1_000 + SESSION_MS


def test_who_has_not_synced_is_waited_for(bench: Bench) -> None:
    """Only the leader is missing; the group waits for it until the rebalance timeout."""
    a, b = bench.seated("a", "b")
    bench.advance(2_000)
    a.join()
    bench.advance(300)
    b.join()
    b.sync()
    bench.advance(1_000)
    told = waiting(bench)
    assert (told.since_ms, told.until_ms) == (bench.now.wall_ms - 1_000, bench.now.wall_ms - 1_000 + REBALANCE_MS)
    assert (told.leader, names(told), told.pending) == (a.member_id, [a.member_id], [])


def test_a_group_that_is_held_open_waits_for_nobody_in_particular(bench: Bench) -> None:
    """The wait ends with the initial delay, and each new member makes the delay longer."""
    began_ms = bench.now.wall_ms
    bench.static("a").enter()
    bench.advance(INITIAL_DELAY_MS - 1)
    bench.static("b").enter()
    bench.dynamic("ghost").join()
    told = waiting(bench)
    assert (told.is_held_open, told.until_ms) == (True, began_ms + INITIAL_DELAY_MS)
    assert (told.leader, names(told), told.pending) == ("", [], [])
    bench.advance(1)
    assert waiting(bench).until_ms == began_ms + 2 * INITIAL_DELAY_MS


def test_a_group_of_which_nobody_rejoined_waits_once_more(bench: Bench) -> None:
    """The group waits for another rebalance timeout."""
    a, b = bench.seated("a", "b", session_ms=3 * REBALANCE_MS)
    began_ms = bench.now.wall_ms
    a.leave()
    bench.advance(REBALANCE_MS)
    told = waiting(bench)
    assert (told.since_ms, told.until_ms) == (began_ms, began_ms + 2 * REBALANCE_MS)
    assert names(told) == [b.member_id]
