"""A group, as a test looks at it: its state now, its history, waits, and blocks that assert what happens inside.

    group = tenure.group("workers").wait_until_stable(members=3)
    with group.no_rebalance():
        ...

Each look is one moment of the group. Everything in it is durable: the server would still have it after a kill.

coordinator.story.counts says for every view which entry counts as a rebalance or a restart.

House rule: an error says what was there instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from threading import Event
from typing import Any, Protocol, Self, TypeVar, Unpack

from coordinator.story.counts import REJOIN, RESTART, TAKEOVER
from coordinator.story.described import Member
from coordinator.story.entries import Entry, entry_json
from coordinator.story.words import folded_lines
from coordinator.testing import assertions, hints
from coordinator.testing.control import Control
from coordinator.testing.history import History
from coordinator.testing.members import FillOptions, Members, fill
from coordinator.testing.requests import Requests
from coordinator.testing.values import (
    Fencing,
    Look,
    Rebalance,
    Return,
    TopicPartition,
    fencings_of,
    rebalances_of,
    returns_of,
)

Result = TypeVar("Result")

STABLE = "Stable"

PAUSE_S = 0.01
"""The pause between two looks of a wait: a look takes a tenth of a millisecond."""


class GroupHost(Protocol):
    """The part of its Tenure that a group needs."""

    timeout: float
    history: History

    @property
    def is_running(self) -> bool:
        """See Tenure."""

    def catch_up(self) -> None:
        """See Tenure."""

    def look(self, group_id: str) -> Look:
        """See Tenure."""

    @property
    def bootstrap_servers(self) -> str:
        """See Tenure."""

    @property
    def requests(self) -> Requests:
        """See Tenure."""

    @property
    def topics(self) -> dict[str, int]:
        """See Tenure."""

    def do(self, work: Callable[[Control], Result], group_id: str) -> Result:
        """See Tenure."""

    def keep(self, members: Members) -> None:
        """See Tenure."""


class Block(AbstractContextManager[None]):
    """A `with` block of a test: it takes something of the group, and hands it to `check` at the end.

    No generator makes it, so that a failure's trace ends in the test. If the test fails inside, nothing is checked.

    guards: a wait inside calls `check` too, so that it doesn't wait for its timeout when all is lost.
    """

    def __init__(
        self,
        group: Group,
        check: Callable[[Group, Any], None],
        *,
        take: Callable[[Group], Any],
        before: Callable[[Group], None] | None = None,
        guards: bool = False,
    ) -> None:
        self._group = group
        self._check = check
        self._take = take
        self._before = before
        self._guards = guards
        self._taken: Any = None

    def __enter__(self) -> None:
        __tracebackhide__ = True
        if self._before is not None:
            self._before(self._group)
        self._taken = self._take(self._group)
        if self._guards:
            self._group.guards.append(self.check)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        if self._guards:
            self._group.guards.remove(self.check)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise AssertionError if what must not happen has happened."""
        __tracebackhide__ = True
        self._check(self._group, self._taken)


class Rebalances(list[Rebalance]):
    """The rebalances of a group, in their order. Called, it is a block that asserts how many happen inside."""

    def __init__(self, group: Group, entries: list[Entry]) -> None:
        super().__init__(rebalances_of(entries))
        self._group = group

    def __call__(
        self, exactly: int | None = None, *, at_least: int = 0, at_most: int | None = None, cause: str | None = None
    ) -> Block:
        """See `assertions.assert_rebalances`."""
        __tracebackhide__ = True
        assertions.check_cause(cause)
        check = partial(assertions.assert_rebalances, exactly=exactly, at_least=at_least, at_most=at_most, cause=cause)
        return Block(self._group, check, take=Group.mark)


class Group:
    """See the module. group_id: its id; there may be no such group yet. guards: checks that each wait makes."""

    def __init__(self, tenure: GroupHost, group_id: str) -> None:
        self.group_id = group_id
        self.guards: list[Callable[[], None]] = []
        self._tenure = tenure

    def __repr__(self) -> str:
        return f"Group({self.group_id!r})"

    # Now.

    def look(self) -> Look:
        """Everything about the group at one moment."""
        return self._tenure.look(self.group_id)

    @property
    def generation(self) -> int:
        """The number of its last generation; 0 before the first."""
        return self.look().generation

    @property
    def state(self) -> str:
        """See `Look.state`: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""
        return self.look().state

    @property
    def members(self) -> list[Member]:
        """Its members with member_id, group_instance_id, client_id, client_host and assignment (topic -> partitions).

        The assignments are there in the state Stable.
        """
        return self.look().members

    @property
    def assignment(self) -> dict[str, dict[str, list[int]]]:
        """See `Look.assignment`."""
        return self.look().assignment

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """Its committed offsets, by topic and partition."""
        return self.look().committed

    # Until now. These work after a stop too.

    @property
    def timeline(self) -> list[dict[str, Any]]:
        """Its history as `tenure explain --output json` shows it (coordinator.story.entries)."""
        return list(map(entry_json, self.new_entries(0)))

    @property
    def rebalances(self) -> Rebalances:
        """Its rebalances, the first generation's too; also `with group.rebalances(exactly=1, cause="member_left"):`."""
        return Rebalances(self, self.new_entries(0))

    @property
    def restarts(self) -> list[Return]:
        """The restarts of its static members; the first return after a start of the server is one of `rejoins`."""
        return returns_of(self.new_entries(0), RESTART)

    @property
    def rejoins(self) -> list[Return]:
        """The first returns after the group was loaded: the member restarted meanwhile, or only joined again."""
        return returns_of(self.new_entries(0), REJOIN)

    @property
    def takeovers(self) -> list[Return]:
        """Seats that a second program took; known when the first one is fenced."""
        return returns_of(self.new_entries(0), TAKEOVER)

    @property
    def fencings(self) -> list[Fencing]:
        """Its fencings."""
        return fencings_of(self.new_entries(0))

    def explain(self, since: int = 0, last: int | None = None) -> str:
        """Its timeline as `tenure explain` prints it. since: a `mark`. last: only so many lines of the newest."""
        self._tenure.catch_up()
        told = ["\n".join(lines) for lines in folded_lines(self._tenure.history.new_entries(self.group_id, since))]
        left_out = 0 if last is None else max(len(told) - last, 0)
        head = [f"... {left_out} earlier entries; explain() without `last` has them"] if left_out else []
        waiting = self.waiting
        return "\n".join([*head, *told[left_out:], *("\n    ".join(waiting) for _ in waiting[:1])])

    def mark(self) -> int:
        """This moment, for `explain` and for the functions of coordinator.testing.assertions."""
        return self.look().mark

    def new_entries(self, since: int) -> list[Entry]:
        """The entries of the timeline that began after a `mark`."""
        self._tenure.catch_up()
        return self._tenure.history.new_entries(self.group_id, since)

    def trails(self, since: int) -> dict[TopicPartition, list[str | None]] | None:
        """See `History.trails`. since: a `mark`."""
        self._tenure.catch_up()
        return self._tenure.history.trails(self.group_id, since)

    @property
    def waiting(self) -> list[str]:
        """See `Look.waiting`; none while the server doesn't run."""
        return self.look().waiting if self._tenure.is_running else []

    # Waits.

    def wait_until_stable(self, members: int | None = None, *, timeout: float | None = None) -> Self:
        """Wait until the group is Stable, with exactly so many members if `members` says so; returns the group.

        timeout: in seconds, by default that of Tenure. Raises AssertionError after it.
        """
        __tracebackhide__ = True
        return self.wait_until(state=STABLE, members=members, timeout=timeout)

    def wait_until(
        self,
        condition: Callable[[Group], object] | None = None,
        *,
        state: str | None = None,
        members: int | None = None,
        generation: int | None = None,
        rebalances: int | None = None,
        restarts: int | None = None,
        rejoins: int | None = None,
        takeovers: int | None = None,
        fencings: int | None = None,
        timeout: float | None = None,
        guard: Callable[[], None] | None = None,
    ) -> Self:
        """Wait until all of this is so at one look; returns the group.

        condition: any other condition; gets the group. state: by Kafka's name. members: exactly so many. generation,
        rebalances, restarts, rejoins, takeovers, fencings: so many or more; a kill and a start begin no new count, a
        reset does. restarts, rejoins, takeovers: of static members only. The first return of a member after a start of
        the server is a rejoin and no restart, unless its client says that it restarted.
        timeout: as of `wait_until_stable`. guard: called at each look; an exception of it ends the wait.
        Raises AssertionError after the timeout.
        """
        __tracebackhide__ = True
        within_s = self._tenure.timeout if timeout is None else timeout
        wanted: dict[str, Any] = {"state": state, "members": members, "generation": generation}
        wanted |= {"rebalances": rebalances, "restarts": restarts, "rejoins": rejoins, "takeovers": takeovers}
        wanted = {name: value for name, value in (wanted | {"fencings": fencings}).items() if value is not None}
        until = time.monotonic() + within_s
        pause = Event()
        while True:
            look = self.look()
            for check in [*self.guards, guard]:
                if check is not None:
                    check()
            found = {name: self._value(look, name) for name in wanted}
            is_so = all(
                found[name] == value if name in {"state", "members"} else found[name] >= value
                for name, value in wanted.items()
            )
            if is_so and (condition is None or condition(self)):
                return self
            if time.monotonic() >= until:
                raise AssertionError(self._missed(within_s, wanted, found, condition))
            pause.wait(PAUSE_S)

    def _value(self, look: Look, name: str) -> Any:
        """The value that a wait looks at."""
        if name in {"state", "generation"}:
            return getattr(look, name)
        return len(look.members) if name == "members" else len(getattr(self, name))

    def _missed(
        self,
        within_s: float,
        wanted: dict[str, Any],
        found: dict[str, Any],
        condition: Callable[[Group], object] | None,
    ) -> str:
        """The text of a wait that ended in vain."""
        waited = [f"{name}={value}" for name, value in wanted.items()] + ([_name(condition)] if condition else [])
        there = ", ".join(f"{name}={value}" for name, value in found.items())
        look = self.look()
        lines = [
            f"group {self.group_id} did not reach {', '.join(waited)} within {within_s:g} s"
            + (f"; it had {there}" if there else ""),
            *look.lines,
            *hints.of_returns(wanted),
            *self._hints(look),
            *self.explain(last=assertions.ENTRIES_SHOWN).splitlines(),
            *hints.of_loop(),
        ]
        return "\n".join(lines)

    def _hints(self, look: Look) -> list[str]:
        server = self._tenure
        topics = server.topics
        is_frozen = server.do(lambda control: control.clock.is_frozen, self.group_id)
        found = [*hints.of_time(is_frozen=is_frozen), *hints.of_topics(topics, server.requests.topics)]
        if look.members:
            return found
        others = [group_id for group_id in server.history.group_ids() if group_id != self.group_id]
        return [*found, *hints.of_server(server.bootstrap_servers, topics, others, server.requests.by_client)]

    # Members, named by instance id or member id. LookupError: the group has no such member.

    def expire(self, member: str) -> None:
        """Expire a member now. Raises ValueError if it waits in JoinGroup or SyncGroup: a session can't end there."""
        self._tenure.do(lambda control: control.sessions.expire(self.group_id, member), self.group_id)

    def silence(self, member: str) -> None:
        """Count no request of a member from now on: it expires one session timeout after the last that counted.

        Its client gets its answers all the same.
        """
        self._tenure.do(lambda control: control.sessions.silence(self.group_id, member), self.group_id)

    def hear(self, member: str) -> None:
        """Count the requests of a silenced member again."""
        self._tenure.do(lambda control: control.sessions.hear(self.group_id, member), self.group_id)

    def fill(
        self, count: int, *, static: bool = True, topics: Iterable[str] = (), **options: Unpack[FillOptions]
    ) -> Members:
        """Let `count` members without clients join; they stop with the server. See coordinator.testing.members.fill.

        Returns before they have joined.
        """
        bootstrap = self._tenure.bootstrap_servers
        members = fill(bootstrap, self.group_id, count, static=static, topics=topics, **options)
        self._tenure.keep(members)
        return members

    # Blocks.

    def no_rebalance(self) -> Block:
        """A block in which no rebalance may begin; see `assertions.assert_no_rebalance`.

        The group has to be at rest when the block begins: a rebalance under way would take in what the block causes.
        A wait inside fails as soon as a rebalance began.
        """
        return Block(
            self, assertions.assert_no_rebalance, take=Group.mark, before=assertions.assert_at_rest, guards=True
        )

    def nothing_moved(self) -> Block:
        """A block in which no topic partition may move; see `assertions.assert_nothing_moved`."""
        return Block(self, assertions.assert_nothing_moved, take=Group.mark)

    def moved_at_most(self, most: int) -> Block:
        """A block in which at most so many topic partitions may move; see `assertions.assert_moved_at_most`."""
        return Block(self, partial(assertions.assert_moved_at_most, most=most), take=Group.mark)

    def same_seats(self) -> Block:
        """A block after which each member has the seat that it had before; see `assertions.assert_same_seats`."""
        return Block(self, assertions.assert_same_seats, take=lambda group: group.assignment)


def _name(condition: Callable[[Group], object]) -> str:
    return getattr(condition, "__name__", "the condition").replace("<lambda>", "the condition")
