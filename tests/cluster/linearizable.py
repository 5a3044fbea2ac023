"""A checker of histories: is there an order of all requests that explains each answer?

Each committed offset is a register, and so is each member's generation. A history is linearizable if each request can
be given one moment between its start and its end, so that every read finds what the last write before it wrote. This
finds, without a rule for each: a stale read, a lost acknowledgement, a write that takes effect after its time.

The search is that of Wing and Gong, made in the order of time, as Lowe's and the program porcupine do: at each end of
a request a set has all states in which the register may be, each with the open requests that are done in it already.
If the set becomes empty, the request that has just ended can't be explained. Registers are independent of each other,
so each is checked for itself.

An answer that never came, or an error, leaves open whether a write was done. It may take effect until another node
said yes to a request that was sent later: by then the former node is fenced. Without such a yes it has no end.

Why not a package: PyPI has no checker (2026-11). porcupine itself is well kept, but it is a Go library: each run would
build a program, and give a model in Go for what is one comparison here. `test_linearizable` compares this search with
one that tries all orders.

House rule: pure. The search knows registers alone; `registers` alone knows what the requests of a probe mean.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from tests.support.cluster_history import Asked, by_group

UNKNOWN = -2
"""The value of a write whose outcome nobody heard, if the coordinator chooses it (a generation)."""

BEFORE = -1
"""The value of a register before its first write: no committed offset."""

STATES_MAX = 100_000
"""More states of one register than any history of a probe has; beyond, the check would not end in useful time."""


class Operation(NamedTuple):
    """A request about one register.

    end: the last moment at which it may take effect; inf if there is none. is_sure: it was done. asked: the request
    behind it.
    """

    is_write: bool
    value: int
    start: float
    end: float
    is_sure: bool = True
    asked: Asked | None = None


class Violation(NamedTuple):
    """No order explains this operation. could_be: the values that the register could have at its end without it."""

    register: str
    operation: Operation
    could_be: list[int]

    def __str__(self) -> str:
        what = "write" if self.operation.is_write else "read"
        return (
            f"{self.register}: a {what} of {self.operation.value} where {self.could_be} is possible: {self.operation}"
        )


State = tuple[int, frozenset[int]]
"""A register's value, and the open operations that are done."""


def violations(history: Iterable[Asked]) -> list[Violation]:
    """The first violation of each register of a probe's history."""
    found = []
    for name, operations in registers(history).items():
        violation = check(name, operations)
        if violation is not None:
            found.append(violation)
    return found


def check(register: str, operations: Sequence[Operation], first: int = BEFORE) -> Violation | None:
    """The first operation of a register that no order explains; None if there is an order. first: its first value."""
    read = {each.value for each in operations if not each.is_write}
    # A write that may not have been done, and that nobody has seen, explains nothing.
    needed = [each for each in operations if each.is_sure or each.value in read or each.value == UNKNOWN]
    # At one moment requests begin before others end: they overlap.
    moments = [(each.start, 0, number) for number, each in enumerate(needed)]
    moments += [(each.end, 1, number) for number, each in enumerate(needed) if each.end < inf]
    is_open: set[int] = set()
    states: set[State] = {(first, frozenset())}
    for _, is_end, number in sorted(moments):
        if not is_end:
            is_open.add(number)
            states = {_with_reads(state, needed, {number}) for state in states}
            continue
        after = _ended(number, needed, is_open, states)
        if not needed[number].is_sure:
            after |= {state for state in states if number not in state[1]}
        if not after:
            return Violation(register, needed[number], sorted({value for value, _ in states}))
        is_open.discard(number)
        states = after
    return None


def _ended(number: int, operations: Sequence[Operation], is_open: set[int], states: set[State]) -> set[State]:
    """The states in which an operation that ends now is done."""
    after: set[State] = set()
    seen = set(states)
    todo = list(states)
    while todo:
        value, done = todo.pop()
        if number in done:
            after.add((value, done - {number}))
            continue
        for each in _candidates(number, operations, is_open - done):
            operation = operations[each]
            now = _apply(operation, value)
            if now is None:
                continue
            state = _with_reads((now, done | {each}), operations, is_open)
            if state not in seen:
                assert len(seen) < STATES_MAX
                seen.add(state)
                todo.append(state)
    return after


def _candidates(number: int, operations: Sequence[Operation], others: set[int]) -> list[int]:
    """The open operations that may come next, without those that would explain nothing more than others do.

    number: the operation that ends. A write that may not have been done waits for a read that shows it, or for its own
    end. Of several with one value, the one that ends first serves as well as any other.
    """
    wanted = {operations[each].value for each in others if not operations[each].is_write}
    found = []
    doubtful: dict[int, int] = {}
    for each in sorted(others):
        operation = operations[each]
        if operation.is_sure or each == number:
            found.append(each)
        elif operation.value in wanted or (operation.value == UNKNOWN and wanted):
            first = doubtful.setdefault(operation.value, each)
            if operation.end < operations[first].end:
                doubtful[operation.value] = each
    return found + list(doubtful.values())


def _with_reads(state: State, operations: Sequence[Operation], is_open: set[int]) -> State:
    """The same, with all reads done that can be: it never helps a read to wait."""
    value, done = state
    if value == UNKNOWN:
        return state
    more = [each for each in is_open - done if not operations[each].is_write and operations[each].value == value]
    return (value, done.union(more)) if more else state


def _apply(operation: Operation, value: int) -> int | None:
    """The register's value after an operation; None if it can't come now."""
    if operation.is_write:
        return operation.value
    if value in (UNKNOWN, operation.value):
        return operation.value
    return None


# The requests of a probe, by what they ask for.


def registers(history: Iterable[Asked]) -> dict[str, list[Operation]]:
    """The operations on each register: GROUP for its committed offset, GROUP/MEMBER for a member's generation."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for group, requests in by_group(history).items():
        ends = _Ends(requests)
        for each in requests:
            name, value = group, each.value
            if each.kind in {"join", "heartbeat"}:
                name, value = f"{group}/{each.member}", each.value if each.is_yes else UNKNOWN
            is_write = each.kind in {"commit", "join"}
            # An anchor's commits are of another topic partition; a read without a value says nothing.
            is_known = (
                each.kind == "join"
                or (each.kind == "commit" and each.member >= 0)
                or (each.kind == "fetch" and each.is_yes)
                or (each.kind == "heartbeat" and value >= 0)
            )
            if is_known:
                found[name].append(Operation(is_write, value, each.sent, ends.of(each), each.is_yes, each))
    return found


class _Ends:
    """The last moments at which requests of a group may take effect."""

    def __init__(self, requests: Sequence[Asked]) -> None:
        yeses = sorted((each for each in requests if each.is_yes), key=lambda each: each.sent)
        # Of each node: when other nodes were sent what they said yes to, and the first such answer from there on.
        self._others: dict[int, tuple[list[float], list[float]]] = {}
        for node in {each.node for each in requests}:
            others = [each for each in yeses if each.node != node]
            first = list(accumulate((each.got or inf for each in reversed(others)), min, initial=inf))
            self._others[node] = [each.sent for each in others], first[::-1]

    def of(self, asked: Asked) -> float:
        """The end of an operation."""
        if asked.is_yes:
            assert asked.got is not None
            return asked.got
        sent, first = self._others[asked.node]
        return first[bisect_right(sent, asked.sent)]
