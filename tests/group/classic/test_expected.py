"""Expected members: the group holds joins for them, and every hold ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config import HELD, REFUSED
from coordinator.group.classic.expected import HOLD_MAX_MS, HOLD_MIN_MS, NAMED_MAX
from coordinator.group.client import Client
from coordinator.group.events import Resume
from coordinator.group.notes import ClientRefused, HoldEnded, RebalanceHeld
from coordinator.group.state import State
from schemas.errors import ErrorCode
from tests.group.harness import GROUP, REBALANCE_MS, SESSION_MS, Bench, Peer

NAMES = tuple(f"w-{number}" for number in range(4))
TIMEOUT_MS = 30_000


def expecting(*names: str, **own: Any) -> Bench:
    """A bench whose group expects these members."""
    bench = Bench()
    bench.configure(GROUP, **{"expected": names, "expected_timeout_ms": TIMEOUT_MS, **own})
    return bench


def beat(bench: Bench, *peers: Peer) -> list[int]:
    """The error codes of a heartbeat of each."""
    return [
        bench.heartbeat(member=peer.member_id, generation=peer.generation, instance=peer.says["instance"]).error
        for peer in peers
    ]


def settle(bench: Bench, *peers: Peer) -> None:
    """All join again, and sync: the group is Stable."""
    joins = [peer.join() for peer in peers]
    assert not any(join.waits for join in joins)
    bench.assign(*peers)


def test_a_start_is_one_rebalance_that_begins_when_the_last_member_is_there() -> None:
    """No initial delay comes on top; until then there is no member and no rebalance."""
    bench = expecting(*NAMES)
    peers = [bench.static(name) for name in NAMES]
    joins = [peer.join() for peer in peers[:-1]]
    bench.advance(TIMEOUT_MS - 1)
    assert all(join.waits for join in joins)
    assert (bench.rebalances, bench.state()) == (0, State.EMPTY.value)
    joins.append(peers[-1].join())
    assert [join.response.generation_id for join in joins] == [1] * 4
    bench.assign(*peers)
    assert bench.rebalances == 1
    assert [note.missing for note in bench.said(RebalanceHeld)] == [NAMES[1:]]
    assert bench.said(HoldEnded) == [HoldEnded(GROUP, 0, 4)]


def test_a_wait_ends_without_the_missing_members() -> None:
    """The group doesn't wait for them again: one that comes later causes a rebalance at once."""
    bench = expecting(*NAMES)
    early = [bench.static(name) for name in NAMES[:2]]
    for peer in early:
        peer.join()
    bench.advance(TIMEOUT_MS)
    bench.assign(*early)
    assert bench.said(HoldEnded) == [HoldEnded(GROUP, 0, 2, NAMES[2:], 2)]
    third = bench.static(NAMES[2])
    third.join()
    assert bench.rebalances == 2
    settle(bench, *early)
    assert [peer.generation for peer in (*early, third)] == [2, 2, 2]


def test_after_a_lapse_the_wait_starts_in_full() -> None:
    """A missing member could not reach the coordinator meanwhile."""
    bench = expecting(*NAMES[:2])
    first, second = (bench.static(name) for name in NAMES[:2])
    joins = [first.join()]
    bench.advance(TIMEOUT_MS - 1)
    bench.handle(Resume())
    bench.advance(TIMEOUT_MS - 1)
    assert joins[0].waits
    joins.append(second.join())
    assert [join.response.generation_id for join in joins] == [1] * 2
    assert bench.said(HoldEnded) == [HoldEnded(GROUP, 0, 2)]


def test_new_names_make_one_rebalance_when_all_are_there() -> None:
    """The members that are there go on meanwhile, with their generation and without an error."""
    bench = expecting(*NAMES[:2])
    old = [bench.static(name) for name in NAMES[:2]]
    bench.settle(*old)
    bench.configure(expected=NAMES, expected_timeout_ms=TIMEOUT_MS)
    new = [bench.static(name) for name in NAMES[2:]]
    assert new[0].join().waits
    assert beat(bench, *old) == [0, 0]
    new[1].join()
    assert beat(bench, *old) == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    settle(bench, *old, *[])
    bench.assign(*new)
    assert (bench.rebalances, {peer.generation for peer in (*old, *new)}) == (2, {2})


def test_names_that_are_taken_off_go_at_once_with_one_rebalance() -> None:
    """The coordinator no longer knows their member ids; the others rebalance once."""
    bench = expecting(*NAMES)
    peers = [bench.static(name) for name in NAMES]
    bench.settle(*peers)
    bench.configure(expected=NAMES[:2], expected_timeout_ms=TIMEOUT_MS)
    assert bench.rebalances == 2
    assert beat(bench, *peers[2:]) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    for peer in peers[:2]:
        peer.join()
    bench.assign(*peers[:2])
    assert set(bench.member_ids()) == set(NAMES[:2])
    assert bench.rebalances == 2


def test_a_group_that_expects_nobody_any_more_removes_nobody() -> None:
    """Held joins come in."""
    bench = expecting(*NAMES)
    peer = bench.static(NAMES[0])
    join = peer.join()
    bench.configure()
    bench.advance(3_000)
    assert join.response.generation_id == 1
    assert bench.said(HoldEnded) == [HoldEnded(GROUP, 0, 1)]
    bench.assign(peer)
    bench.configure(expected=NAMES)
    bench.configure()
    assert set(bench.member_ids()) == {NAMES[0]}


def test_a_lost_member_is_not_waited_for_twice() -> None:
    """Its session timeout was the wait: the others rebalance at once. When it comes back, its join waits for nobody."""
    bench = expecting(*NAMES[:2])
    a, b = (bench.static(name) for name in NAMES[:2])
    bench.settle(a, b)
    bench.advance(SESSION_MS // 2)
    beat(bench, a)
    bench.advance(SESSION_MS // 2)
    assert bench.state() == State.PREPARING_REBALANCE.value
    settle(bench, a)
    b.restart()
    assert bench.state() == State.PREPARING_REBALANCE.value
    assert bench.said(RebalanceHeld)[1:] == []


def test_a_held_client_that_asks_again_has_one_place() -> None:
    """The earlier join is fenced, as in a rebalance (KAFKA-8500)."""
    bench = expecting(*NAMES[:2])
    peer, twin = bench.static(NAMES[0]), bench.static(NAMES[0])
    first = peer.join()
    second = twin.join()
    assert (first.error, second.waits) == (ErrorCode.FENCED_INSTANCE_ID, True)
    bench.static(NAMES[1]).join()
    assert second.response.generation_id == 1


def test_a_client_is_asked_to_come_again_when_its_rebalance_timeout_is_over() -> None:
    """A client that doesn't come is missing again. One that comes keeps its place, however long the wait is."""
    bench = expecting(*NAMES[:3], expected_timeout_ms=10 * HOLD_MAX_MS)
    alive, dead = bench.static(NAMES[0]), bench.static(NAMES[1])
    joins = [peer.join() for peer in (alive, dead)]
    bench.advance(REBALANCE_MS)
    assert [join.error for join in joins] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    again = alive.join()
    last = bench.static(NAMES[2]).join()
    assert (again.waits, last.waits) == (True, True)
    late = dead.join()
    assert [join.response.generation_id for join in (again, last, late)] == [1] * 3


@pytest.mark.parametrize(("rebalance_ms", "held_ms"), [(10, HOLD_MIN_MS), (3 * HOLD_MAX_MS, HOLD_MAX_MS)])
def test_a_join_is_held_for_no_shorter_and_no_longer_than_the_limits(rebalance_ms: int, held_ms: int) -> None:
    """A client with a tiny rebalance timeout doesn't ask all the time; one with a long one asks before it gives up."""
    bench = expecting(*NAMES[:2], expected_timeout_ms=10 * HOLD_MAX_MS)
    held = bench.static(NAMES[0], rebalance_ms=rebalance_ms).join()
    bench.advance(held_ms - 1)
    assert held.waits
    bench.advance(1)
    assert held.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_group_holds_so_many_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It turns the next one away."""
    monkeypatch.setattr("coordinator.group.classic.expected.HELD_MAX", 2)
    bench = expecting(*NAMES)
    joins = [bench.static(name).join() for name in NAMES[:3]]
    assert [join.waits for join in joins] == [True, True, False]
    assert joins[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_without_a_timeout_nothing_is_held() -> None:
    """expected.instance.ids.timeout.ms=0."""
    bench = expecting(*NAMES[:2], expected_timeout_ms=0)
    bench.settle(bench.static(NAMES[0]))
    assert bench.said(RebalanceHeld) == []


def given_up(*, expected: tuple[str, ...] = NAMES[:2]) -> tuple[Bench, Peer]:
    """A group that has given up all expected members but the first."""
    bench = expecting(*expected)
    a = bench.static(expected[0])
    a.join()
    bench.advance(TIMEOUT_MS)
    bench.assign(a)
    return bench, a


def test_a_member_that_was_given_up_is_waited_for_after_it_was_there() -> None:
    """It came late, and left: the next new member waits for it."""
    bench, a = given_up()
    b = bench.static(NAMES[1])
    b.join()
    settle(bench, a)
    bench.assign(b)
    b.leave()
    settle(bench, a)
    assert bench.static("x").join().waits
    assert bench.said(RebalanceHeld)[-1].missing == (NAMES[1],)
    assert beat(bench, a) == [0]


def test_an_empty_group_gives_nobody_up() -> None:
    """A start after a full stop waits for all."""
    bench, a = given_up()
    a.leave()
    assert a.restart().waits
    assert [note.missing for note in bench.said(RebalanceHeld)] == [(NAMES[1],)] * 2


def test_a_name_that_is_set_again_is_waited_for_again() -> None:
    """An operator took it off the list in between."""
    bench, a = given_up()
    bench.configure(expected=NAMES[:1], expected_timeout_ms=TIMEOUT_MS)
    bench.configure(expected=NAMES[:2], expected_timeout_ms=TIMEOUT_MS)
    assert bench.static("x").join().waits
    assert [note.missing for note in bench.said(RebalanceHeld)] == [(NAMES[1],)] * 2
    assert beat(bench, a) == [0]


def test_other_names_change_whom_a_wait_is_for() -> None:
    """The wait is for the new names, without those that were given up."""
    bench, a = given_up()
    bench.configure(expected=(*NAMES[:2], "new"), expected_timeout_ms=TIMEOUT_MS)
    assert bench.static("x").join().waits
    bench.configure(expected=(*NAMES[:2], "newer"), expected_timeout_ms=TIMEOUT_MS)
    assert beat(bench, a) == [0]
    bench.static("newer").join()
    settle(bench, a)
    assert set(bench.member_ids()) == {a.name, "x", "newer"}
    assert [note.missing for note in bench.said(RebalanceHeld)] == [(NAMES[1],), ("new",)]


def test_joins_that_become_unexpected_are_refused() -> None:
    """An operator sets `refused` while they are held."""
    bench = expecting(*NAMES[:2])
    named, other = bench.static(NAMES[0]).join(), bench.static("x").join()
    bench.configure(expected=NAMES[:2], expected_timeout_ms=TIMEOUT_MS, unexpected=REFUSED)
    assert (named.waits, other.error) == (True, ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_a_note_names_some_of_many_missing_members() -> None:
    """A log line stays readable; the count has them all."""
    bench = expecting(*(f"w-{number:03}" for number in range(NAMED_MAX + 2)))
    bench.static("w-000").join()
    (held,) = bench.said(RebalanceHeld)
    assert (len(held.missing), held.missing[0], held.missing_count) == (NAMED_MAX, "w-001", NAMED_MAX + 1)


def test_allowed_members_are_held_with_the_others() -> None:
    """So are dynamic members, in every version. One that asks again with its member id keeps its place."""
    bench = expecting(*NAMES[:2])
    dynamic = bench.dynamic("d")
    first = dynamic.enter()
    old = bench.dynamic("o", version=3).join()
    assert (first.waits, old.waits) == (True, True)
    again = dynamic.join()
    assert (first.error, again.waits) == (ErrorCode.NOT_COORDINATOR, True)
    for name in NAMES[:2]:
        bench.static(name).join()
    assert [join.response.generation_id for join in (again, old)] == [1, 1]
    assert bench.rebalances == 1


def test_others_are_held_until_every_expected_member_is_there() -> None:
    """Also after the wait for the expected ones is over. They begin no wait, and come in with the last expected one."""
    bench = expecting(*NAMES[:2], unexpected=HELD)
    spare, a = bench.static("spare"), bench.static(NAMES[0])
    waiting = spare.join()
    assert bench.said(RebalanceHeld) == []
    a.join()
    bench.advance(TIMEOUT_MS)
    bench.assign(a)
    for _ in range(3):
        bench.advance(SESSION_MS // 2)
        assert beat(bench, a) == [0]
    assert waiting.waits
    b = bench.static(NAMES[1])
    b.join()
    settle(bench, a)
    bench.assign(b, spare)
    assert bench.rebalances == 2
    assert set(bench.member_ids()) == {*NAMES[:2], "spare"}


def test_a_standby_is_there() -> None:
    """It is not missing. A name that is taken off gives its seat to a standby, without a rebalance."""
    bench = expecting(*NAMES[:3], target_size=2)
    a, b, c = (bench.static(name) for name in NAMES[:3])
    joins = [peer.join() for peer in (a, b, c)]
    assert [join.response.generation_id for join in joins] == [1, 1, 0]
    bench.assign(a, b)
    assert list(bench.group().standbys) == [c.member_id]
    assert bench.describe(waiting=True).response.expects.missing == []
    bench.configure(expected=NAMES[:1] + NAMES[2:3], target_size=2)
    assert set(bench.member_ids()) == {NAMES[0], NAMES[2]}
    assert (bench.rebalances, bench.group().generation) == (1, 1)


def test_a_standby_whose_name_is_taken_off_goes() -> None:
    """Nobody else notices."""
    bench = expecting(*NAMES[:3], target_size=2)
    a, b, c = (bench.static(name) for name in NAMES[:3])
    for peer in (a, b, c):
        peer.join()
    bench.assign(a, b)
    bench.configure(expected=NAMES[:2], target_size=2)
    assert not bench.group().standbys
    assert (bench.rebalances, beat(bench, a, b)) == (1, [0, 0])


def test_a_description_names_the_missing() -> None:
    """While the group holds joins for them, and after that; but only if the request asks what the group waits for."""
    bench = expecting(*NAMES[:3])
    a = bench.static(NAMES[0])
    a.join()
    told = bench.describe(waiting=True).response.expects
    assert (told.missing, told.held, told.until_ms) == ([*NAMES[1:3]], 1, bench.now.wall_ms + TIMEOUT_MS)
    bench.advance(TIMEOUT_MS)
    told = bench.describe(waiting=True).response.expects
    assert (told.missing, told.held, told.until_ms) == ([*NAMES[1:3]], 0, -1)
    assert bench.describe().response.expects.missing == []


def test_others_are_refused() -> None:
    """The group refuses static and dynamic ones before they get a member id. It lets a member restart in its seat."""
    bench = expecting(*NAMES[:1], unexpected=REFUSED)
    assert bench.static("spare").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.dynamic("d").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.dynamic("o", version=0).join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [note.group_instance_id for note in bench.said(ClientRefused)] == ["spare", None, None]
    peer = bench.static(NAMES[0])
    bench.settle(peer)
    assert peer.restart().response.generation_id == 1


def test_held_joins_of_a_group_that_goes_are_answered() -> None:
    """A deletion answers them, and so does an unload of the partition. The expiry of offsets leaves it alone."""
    bench = expecting(*NAMES)
    join = bench.static(NAMES[0]).join()
    bench.remove_expired()
    assert join.waits
    assert bench.delete().response.error_code == ErrorCode.NONE
    assert join.error is ErrorCode.NOT_COORDINATOR
    again = bench.static(NAMES[0]).join()
    bench.unload()
    assert again.error is ErrorCode.NOT_COORDINATOR


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    """When all come in at once, the group turns the last one away. It also refuses another protocol type."""
    bench = expecting(*NAMES[:2])
    bench.coordinator.config = bench.config = type(bench.config)(group_max_size=3)
    first = bench.static(NAMES[0]).join()
    allowed = [bench.static(f"x-{number}").join() for number in range(2)]
    bench.static(NAMES[1]).join()
    assert first.response.generation_id == 1
    assert allowed[0].response.generation_id == 1
    assert sum(join.error is ErrorCode.GROUP_MAX_SIZE_REACHED for join in bench.calls.values()) == 1
    other = expecting(*NAMES[:2])
    one = other.static(NAMES[0]).join()
    two = other.static(NAMES[1], protocol_type="connect").join()
    assert (one.response.generation_id, two.error) == (1, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_without_settings_nothing_is_held(bench: Bench) -> None:
    """The settings of another group don't count."""
    bench.configure("other", expected=NAMES)
    bench.settle(bench.static(NAMES[0]))
    assert bench.group().arrivals is None


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_a_start_is_one_rebalance_whatever_the_initial_delay_is(delay_ms: int) -> None:
    """32 members come in by one turn."""
    bench = Bench(group_initial_rebalance_delay_ms=delay_ms)
    names = [f"w-{number}" for number in range(32)]
    bench.configure(expected=tuple(names))
    peers = [bench.static(name) for name in names]
    for peer in peers:
        peer.join()
    bench.assign(*peers)
    assert (bench.rebalances, bench.group().generation, len(bench.group().members)) == (1, 1, 32)


Steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from([*NAMES, "x", "y"])),
        st.tuples(st.just("dynamic"), st.sampled_from(["d", "e"])),
        st.tuples(
            st.just("expect"),
            st.integers(0, len(NAMES)),
            st.sampled_from(["allowed", HELD, REFUSED]),
            st.integers(0, 3),
        ),
        st.tuples(st.just("wait"), st.sampled_from([1, 1_000, SESSION_MS, TIMEOUT_MS, REBALANCE_MS])),
        st.tuples(st.just("crash")),
        st.tuples(st.just("sync")),
        st.tuples(st.just("leave"), st.sampled_from([*NAMES, "x"])),
    ),
    max_size=40,
)


@given(Steps)
def test_every_hold_ends(steps: list[tuple[object, ...]]) -> None:
    """Whatever clients and operators do, no join of an expected member waits longer than any wait in a group may take.

    The bench checks after each step that no seat has two holders, that each request waits somewhere or has its answer,
    that replay equals live, and that a timer runs for each wait.
    """
    bench = Bench()
    bench.configure(expected=NAMES, expected_timeout_ms=TIMEOUT_MS)
    peers = {name: bench.static(name) for name in (*NAMES, "x", "y")}
    peers |= {name: bench.dynamic(name) for name in ("d", "e")}
    for step in steps:
        match step:
            case ("join" | "dynamic", str(name)):
                peer = peers[name]
                peer.member_id = peer.member_id if name in ("d", "e") else ""
                peer.enter()
            case ("expect", int(count), str(unexpected), int(size)):
                own: dict[str, Any] = {
                    "expected": NAMES[:count],
                    "expected_timeout_ms": TIMEOUT_MS,
                    "unexpected": unexpected,
                    "target_size": size,
                }
                bench.configure(GROUP, **own if count else {})
            case ("wait", int(ms)):
                bench.advance(ms)
            case ("crash",):
                bench.restart()
            case ("sync",):
                for peer in sorted(peers.values(), key=lambda each: not each.leads):
                    if peer.member_id and peer.generation >= 0:
                        peer.sync(assignments={})
            case ("leave", str(name)):
                bench.leave(members=[("", name)])
    bench.advance(HOLD_MAX_MS)
    group = bench.coordinator.groups.get(GROUP)
    arrivals = group.arrivals if group is not None else None
    assert arrivals is None or (arrivals.awaited, arrivals.held) == (None, {})


def test_a_client_host_is_noted_with_a_refusal() -> None:
    """So an operator finds the program that asks in vain."""
    bench = expecting("a", unexpected=REFUSED)
    bench.join(instance="b", client=Client("app", "/10.0.0.1"))
    (note,) = bench.said(ClientRefused)
    assert (note.group_instance_id, note.client) == ("b", Client("app", "/10.0.0.1"))
