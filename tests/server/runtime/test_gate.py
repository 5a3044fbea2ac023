"""Records come before log lines, and log lines before answers; many answers go out in several turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group import notes
from coordinator.group.client import Now
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects, Response
from coordinator.group.events import DescribeGroup, Event
from coordinator.loop.lines import Lines
from coordinator.server.runtime.gate import ANSWERED_AT_ONCE, Gate, Held
from coordinator.server.runtime.replies import Reply
from coordinator.server.wire.call import Call
from protocol.messages import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    Message,
)
from schemas.errors import ErrorCode
from tests.server.harness import (
    ManualClock,
    Peer,
    Serving,
    heartbeat_request,
    join_request,
    serving,
    sync_request,
)
from tests.server.runtime.calls import commit_request
from tests.support.memory import ManualEngine

GROUPS = st.sampled_from(["a", "b", None])


def test_a_response_waits_for_the_records_of_its_own_call() -> None:
    """The gate holds the response from the append's start until the append is durable."""
    gate: Gate[str] = Gate()
    assert not gate.behind("a")
    number = gate.appended("a")
    assert gate.behind("a")
    gate.hold(gate.behind("a"), "answer")
    assert gate.busy
    assert gate.durable(number) == ["answer"]
    assert not gate.behind("a")
    assert not gate.busy


def test_a_later_response_of_the_group_waits_for_the_last_append() -> None:
    """A read after two writes is released with the second, not with the first."""
    gate: Gate[str] = Gate()
    first, second = gate.appended("a"), gate.appended("a")
    gate.hold(gate.behind("a"), "read")
    assert gate.durable(first) == []
    assert gate.durable(second) == ["read"]


def test_other_groups_do_not_wait() -> None:
    """A group's append holds no response of another group."""
    gate: Gate[str] = Gate()
    gate.appended("a")
    assert not gate.behind("b")


def test_what_concerns_all_groups_waits_for_all_and_all_wait_for_it() -> None:
    """An append for all groups holds every response; a response about all groups waits for every append."""
    gate: Gate[str] = Gate()
    first = gate.appended("a")
    gate.hold(gate.behind(None), "list")
    barrier = gate.appended()
    gate.hold(gate.behind("b"), "read of b")
    assert gate.durable(first) == ["list"]
    assert gate.behind("b")
    assert gate.durable(barrier) == ["read of b"]
    assert not gate.behind(None)


@given(
    st.lists(st.tuples(st.sampled_from(["append", "respond", "durable"]), st.lists(GROUPS, min_size=1)), max_size=60)
)
def test_no_response_overtakes_a_record(steps: list[tuple[str, list[str | None]]]) -> None:
    """In any order of calls, a response is released exactly when every earlier append of its group is durable."""
    gate: Gate[int] = Gate()
    under_way: list[tuple[int, set[str | None]]] = []
    waiting: dict[int, set[int]] = {}
    for token, (step, groups) in enumerate(steps):
        group = groups[0]
        if step == "append":
            written: set[str | None] = {None} if None in groups else set(groups)
            under_way.append((gate.appended(*(each for each in written if each is not None)), written))
        elif step == "respond":
            behind = {number for number, others in under_way if group is None or not others.isdisjoint({None, group})}
            assert gate.behind(group) == max(behind, default=0)
            if behind:
                gate.hold(gate.behind(group), token)
                waiting[token] = behind
        elif under_way:
            number, _ = under_way.pop(0)
            for behind in waiting.values():
                behind.discard(number)
            free = [token for token, behind in waiting.items() if not behind]
            assert sorted(gate.durable(number)) == free
            for token_free in free:
                del waiting[token_free]
    for number, _ in under_way:
        for token_free in gate.durable(number):
            del waiting[token_free]
    assert not waiting


async def test_no_answer_before_its_record_is_durable() -> None:
    """SyncGroup and a later read wait until the group's record is durable; requests for other groups don't wait."""
    engine = ManualEngine(4, 1)
    async with serving(engine=engine) as server:
        peer, reader, other = [await server.peer() for _ in range(3)]
        joined = await peer.join("g", instance="i")
        engine.hold = True
        await peer.send(sync_request("g", joined, "i"), 5)
        await server.barrier()
        await reader.send(DescribeGroupsRequest(groups=["g"]), 4)
        await other.send(ListGroupsRequest(), 4)
        await server.barrier()
        assert peer.is_silent()
        assert reader.is_silent()
        assert other.is_silent()
        elsewhere = await server.peer()
        assert (await elsewhere.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert (await elsewhere.ask(DescribeGroupsRequest(groups=["h"]), 4)).groups[0].group_state == "Dead"
        engine.flush()
        assert (await peer.receive()).error_code == ErrorCode.NONE
        assert (await reader.receive()).groups[0].group_state == "Stable"
        assert [group.group_id for group in (await other.receive()).groups] == ["g"]


def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps of the server from now on: "lines" for each write of log lines, "answer" for each answer."""
    done: list[str] = []
    put, deliver = Lines.put, Call.deliver

    def put_and_tell(lines: Lines, texts: Sequence[str]) -> None:
        done.append("lines")
        put(lines, texts)

    def deliver_and_tell(call: Call, body: Message) -> None:
        done.append("answer")
        deliver(call, body)

    monkeypatch.setattr(Lines, "put", put_and_tell)
    monkeypatch.setattr(Call, "deliver", deliver_and_tell)
    return done


async def test_lines_of_a_turn_are_one_write_before_its_answers(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups form in one turn of the loop: one write has the lines of both, then both are answered."""
    peers = [await server.peer() for _ in range(2)]
    done = steps(monkeypatch)
    for number, peer in enumerate(peers):
        peer.socket.send(peer.frame(join_request(f"g-{number}", instance="i"), 5))
    for peer in peers:
        assert (await peer.receive()).error_code == ErrorCode.NONE
    assert done == ["lines", "answer", "answer"]
    assert len(server.events("generation_started")) == 2


async def test_an_answer_that_waited_for_the_log_comes_behind_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the records become durable within the turn of the join, the join's line comes before its answer."""
    engine = ManualEngine(4, 1)
    async with serving("offsets.topic.num.partitions=4", engine=engine) as server:
        await server.loaded()
        committing, joining = await server.peer(), await server.peer()
        engine.hold = True
        await committing.send(commit_request("g", 1), 7)
        await server.barrier()
        handle = Coordinator.handle

        def handle_and_flush(coordinator: Coordinator, event: Event, now: Now) -> Effects:
            effects = handle(coordinator, event, now)
            engine.flush()
            return effects

        monkeypatch.setattr(Coordinator, "handle", handle_and_flush)
        done = steps(monkeypatch)
        assert (await joining.join("g", version=4)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert done == ["lines", "answer", "answer"]


async def test_a_mistake_about_notes_costs_no_answer(server: Serving) -> None:
    """The loop reports it; the others that take notes get them all the same."""
    loop, reported = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    delivery, peer = server.server.runtime.delivery, await server.peer()

    def take(noted: Sequence[notes.Noted]) -> None:
        raise ValueError(f"{len(noted)} too many")

    delivery._take_notes = [take, *delivery._take_notes]
    assert (await peer.join("g", instance="i")).error_code == ErrorCode.NONE
    assert server.events("generation_started")
    await server.until(lambda: "1 too many" in reported)
    assert not delivery.busy


class Hurried(ManualClock):
    """A clock that advances 1 ms at each look, so that the server defers all that it can defer."""

    def ms(self) -> int:
        """Advance by 1 ms and return the time."""
        self._ms += 1
        return super().ms()


async def crowd(server: Serving, members: int) -> tuple[list[Peer], JoinGroupRequest]:
    """A group whose members wait in JoinGroup for the first one, and the request with which that one rejoins."""
    peers = [await server.peer() for _ in range(members)]
    first = await peers[0].join("g", instance="0")
    for number, peer in enumerate(peers[1:], 1):
        await peer.send(join_request("g", instance=str(number)), 5)
        await server.barrier()
    return peers, join_request("g", first.member_id, instance="0")


async def test_many_answers_to_one_request_all_come() -> None:
    """However short the turns are, each member and a later request are answered; a stop waits for the answers."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        peers, last = await crowd(server, 12)
        await peers[0].send(last, 5)
        joined = [await peer.receive() for peer in peers]
        assert {answer.generation_id for answer in joined} == {2}
        for number in reversed(range(12)):
            await peers[number].send(sync_request("g", joined[number], str(number)), 3)
        assert {(await peer.receive()).error_code for peer in peers} == {ErrorCode.NONE}


class Listed(Reply):
    """A reply that adds its answer to a list."""

    def __init__(self, answers: list[object]) -> None:
        self._answers = answers

    def deliver(self, body: object) -> None:
        """Add the answer."""
        self._answers.append(body)


async def test_answers_to_many_requests_of_a_turn_take_turns_before_others_are_heard() -> None:
    """The answers of one turn go out ANSWERED_AT_ONCE at a time, and all of them before other deferred work."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        runtime = server.server.runtime
        partition, happened = runtime.partition_of("g"), list[object]()
        for number in range(3 * ANSWERED_AT_ONCE):
            reply = Listed(happened)
            partition._unanswered[reply] = DescribeGroup(reply, 5, "g")
            runtime.delivery.at_end_of_turn(Held(partition, 0, [], [Response(reply, number)]))
        while runtime._pace.has_time():
            pass
        runtime._pace.later(lambda: happened.append("another is heard"))
        runtime.delivery._end_turn()
        assert happened == list(range(ANSWERED_AT_ONCE))
        assert runtime.busy
        await server.until(lambda: "another is heard" in happened)
        assert happened == [*range(3 * ANSWERED_AT_ONCE), "another is heard"]
        assert not runtime.busy


async def test_many_outcomes_of_the_log_are_all_taken() -> None:
    """Appends of many groups that become durable together are all answered, in however many turns."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        peers = [await server.peer() for _ in range(12)]
        for number, peer in enumerate(peers):
            await peer.send(commit_request(f"g{number}", 1), 7)
        answers = [await peer.receive() for peer in peers]
        assert {answer.topics[0].partitions[0].error_code for answer in answers} == {ErrorCode.NONE}


async def test_an_answer_that_was_put_off_does_not_outlive_its_partition() -> None:
    """If the partition is unloaded first, a member gets COORDINATOR_NOT_AVAILABLE instead of the deferred answer."""
    async with serving(clock=Hurried()) as server:
        await server.loaded()
        peers, last = await crowd(server, 6)
        runtime = server.server.runtime
        pace = runtime._pace
        while pace._until_ms is not None:
            turned = asyncio.Event()
            asyncio.get_running_loop().call_soon(turned.set)
            await turned.wait()
        turns: list[Callable[[], None]] = []
        soon, pace._soon = pace._soon, turns.append
        await peers[0].send(last, 5)
        assert (await peers[0].receive()).error_code == ErrorCode.NONE
        assert runtime.busy
        runtime.partition_of("g").unload()
        pace._soon = soon
        turns.pop()()
        errors = [(await peer.receive()).error_code for peer in peers[1:]]
        assert set(errors) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        await server.until(lambda: not runtime.busy)
