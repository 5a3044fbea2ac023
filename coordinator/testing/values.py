"""A group as a test sees it, as values: the group at one moment, and what happened to it.

House rule: nothing here asks the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from coordinator.client.errors import error_name
from coordinator.story import entries
from coordinator.story.described import CoordinatorNode, Group, Member, consumer_group_of, group_of
from coordinator.story.entries import REBALANCING, Entry
from coordinator.story.events import MemberFenced
from coordinator.story.words import held_up_lines, timed_lines, waiting_lines
from protocol.messages import ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from protocol.messages import DescribeGroupsResponse

DEAD = "Dead"

MEMBERS_SHOWN = 20
"""Members that an error names."""

OFFSETS_SHOWN = 20
"""Committed offsets that an error names."""

NODE = CoordinatorNode(0, "127.0.0.1", 0)

TopicPartition = tuple[str, int]


class NodeState(NamedTuple):
    """A node. address: HOST:PORT, as clients get it."""

    id: int
    address: str
    is_running: bool


class Look(NamedTuple):
    """A group at one moment. mark: the number of events so far, of all groups (`Group.mark`).

    described: by DescribeGroups, or, in the consumer protocol, by ConsumerGroupDescribe. generation: or epoch.
    """

    described: DescribeGroupsResponse.DescribedGroup | ConsumerGroupDescribeResponse.DescribedGroup
    generation: int
    committed: dict[TopicPartition, int]
    mark: int

    @property
    def state(self) -> str:
        """As Kafka names it; Dead if there is no such group; the error's name while the group can't be described."""
        return self.described.group_state or error_name(self.described.error_code)

    @property
    def _group(self) -> Group:
        if isinstance(self.described, ConsumerGroupDescribeResponse.DescribedGroup):
            return consumer_group_of(self.described, NODE)
        return group_of(self.described, NODE)

    @property
    def members(self) -> list[Member]:
        """In the order of instance ids and member ids."""
        return self._group.members

    @property
    def assignment(self) -> dict[str, dict[str, list[int]]]:
        """Member -> topic -> partitions, all ascending. A member is its instance id, or a dynamic member's id."""
        return {
            member.member_id if member.group_instance_id is None else member.group_instance_id: member.assignment or {}
            for member in self.members
        }

    @property
    def waiting(self) -> list[str]:
        """The members that the group waits for, in the words of `tenure explain`; none if it waits for nobody."""
        group = self._group
        if group.consumer is not None:
            awaits = self.state in REBALANCING
            return list(held_up_lines(self.state, group.consumer)) if awaits else []
        return [] if group.waiting is None else list(waiting_lines(self.state, group.waiting))

    @property
    def lines(self) -> list[str]:
        """State, generation, members and committed offsets."""
        if self.state == DEAD:
            return ["there is no such group: no member has joined, and no offset is committed"]
        members = self.members
        lines = [f"it is {self.state} in generation {self.generation}, members: {len(members)}"]
        shown = members[:MEMBERS_SHOWN]
        lines += [f"    {each.member_id} ({each.client_id}): {each.assignment or {}}" for each in shown]
        if members[len(shown) :]:
            lines.append(f"    and {len(members) - len(shown)} more; group.members has all of them")
        return [*lines, self._committed_text]

    @property
    def _committed_text(self) -> str:
        places = sorted(self.committed.items())
        told = [f"{topic}-{index} at {offset}" for (topic, index), offset in places[:OFFSETS_SHOWN]]
        more = f" and {len(places) - len(told)} more; group.committed has all of them" if places[len(told) :] else ""
        return f"committed: {', '.join(told) or 'nothing'}{more}"


@dataclass(frozen=True)
class Happened:
    """An event of a group; `str` has the words of `tenure explain`.

    at_ms: when it began, Unix time in ms. entry: all about it, as `tenure explain --output json` shows it.
    """

    at_ms: int
    entry: Entry = field(repr=False, compare=False)

    def __str__(self) -> str:
        return "\n".join(timed_lines(self.entry))


@dataclass(frozen=True)
class Rebalance(Happened):
    """A rebalance.

    cause: the kind of cause that started it, causes: of all causes (docs/run/events.md#a-cause). member_ids: the
    members that started it. outcome: completed, emptied, superseded, unloaded; None while it is under way.
    waited_for: the member id that it waited for longest, None for nobody.
    """

    cause: str
    causes: tuple[str, ...]
    member_ids: tuple[str, ...]
    outcome: str | None
    generation_before: int
    generation: int
    waited_for: str | None


@dataclass(frozen=True)
class Return(Happened):
    """The return of a static member: a restart, a rejoin or a takeover. rebalances: whether it costs a rebalance."""

    group_instance_id: str
    member_id: str
    old_member_id: str
    client_id: str
    rebalances: bool


@dataclass(frozen=True)
class Fencing(Happened):
    """A request that was refused, because another member has the seat. operation: the API, as in `join-group`.

    is_conflict: whether two programs use one instance id; otherwise a client met an earlier request of its own.
    """

    group_instance_id: str
    member_id: str
    current_member_id: str
    operation: str
    is_conflict: bool


def rebalances_of(told: Iterable[Entry]) -> list[Rebalance]:
    """The rebalances among these entries."""
    return [
        Rebalance(
            at_ms=entry.at_ms,
            entry=entry,
            cause=entry.causes[0].kind,
            causes=tuple(cause.kind for cause in entry.causes),
            member_ids=tuple(entry.causes[0].member_ids),
            outcome=entry.outcome,
            generation_before=entry.generation_before,
            generation=entry.generation,
            waited_for=entry.ended.waited_for.member_id if entry.ended and entry.ended.waited_for else None,
        )
        for entry in told
        if isinstance(entry, entries.Rebalance)
    ]


def returns_of(told: Iterable[Entry], kind: str) -> list[Return]:
    """The returns of a kind (coordinator.story.counts)."""
    return [
        Return(
            at_ms=entry.at_ms,
            entry=entry,
            group_instance_id=entry.event.group_instance_id,
            member_id=entry.event.member_id,
            old_member_id=entry.event.old_member_id,
            client_id=entry.event.client_id,
            rebalances=entry.event.rebalances,
        )
        for entry in told
        if isinstance(entry, entries.Return) and entry.type == kind
    ]


def fencings_of(told: Iterable[Entry]) -> list[Fencing]:
    """The fencings among these entries."""
    return [
        Fencing(
            at_ms=entry.at_ms,
            entry=entry,
            group_instance_id=event.group_instance_id,
            member_id=event.member_id,
            current_member_id=event.current_member_id,
            operation=event.operation,
            is_conflict=event.is_conflict,
        )
        for entry in told
        if isinstance(event := entry.event, MemberFenced)
    ]
