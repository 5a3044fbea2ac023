"""The gate: no response overtakes the records of its call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.server.runtime.gate import Gate

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
