"""Random members, versions, losses, restarts and steps of time, checked after every event.

Hypothesis plays members that join, sync, send heartbeats, commit, leave, fall silent, restart under their instance id,
use old ids and lose answers. Time jumps; the coordinator is killed and comes back from its log. The bench
(`tests.group.harness`) and `World` check what must hold after every event. A failing run prints its steps: they become
a scenario in tests/group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from coordinator.group import records
from coordinator.group.state import State
from protocol.messages import GroupMetadataKey, decode
from tests.group.harness import Bench, Call, Protocols, subscription
from tests.group.invariants import replay_differences
from tests.support.length import at_most

if TYPE_CHECKING:
    from coordinator.group.effects import Effects
    from coordinator.group.group import Group
    from protocol.messages import JoinGroupResponse

GROUPS = ("g", "h")
PROTOCOLS: tuple[Protocols, ...] = (
    [("range", subscription("t"))],
    [("range", subscription("u"))],
    [("range", subscription("t")), ("roundrobin", subscription("t"))],
    [("roundrobin", subscription("t")), ("range", subscription("t"))],
    [("roundrobin", b"no subscription")],
)
SETTLED = (State.STABLE, State.EMPTY)
STATIC_JOIN_SINCE = 5
SKIP_ASSIGNMENT_SINCE = 9
LEAVE_MANY_SINCE = 3
A_REBALANCE_MS = 60_000
"""The longest rebalance timeout of a member."""
A_LONG_TIME_MS = 4 * 60 * 60 * 1_000
"""Longer than any sequence of timeouts."""


class World(Bench):
    """A bench that also watches the log: synced generations never fall, and a restart brings back the live groups.

    synced: group id -> its last generation on disk, of groups that weren't deleted.
    """

    def __init__(self, **settings: Any) -> None:
        self.synced: dict[str, int] = {}
        super().__init__(**settings)

    def _carry_out(self, effects: Effects) -> None:
        for record in effects.records:
            if int.from_bytes(record.key[:2]) == records.GROUP_KEY_VERSION:
                group_id = decode(GroupMetadataKey, record.key, records.GROUP_KEY_VERSION, 2).group
                self._watch(group_id, record.value)
        super()._carry_out(effects)

    def _watch(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            # A group that only had offsets has a tombstone too.
            self.synced.pop(group_id, None)
            return
        generation = records.decode_group(group_id, value).generation
        assert generation >= self.synced.get(group_id, 0), f"{group_id} falls back to generation {generation}"
        self.synced[group_id] = generation

    def restart(self, **settings: Any) -> None:
        """Crash, and compare the loaded groups with the live ones from before."""
        before = dict(self.coordinator.groups)
        super().restart(**settings)
        after = self.coordinator.groups
        assert after.keys() <= before.keys(), "a group returns"
        for group_id, live in before.items():
            self._compare(live, after.get(group_id))

    def _compare(self, live: Group, replayed: Group | None) -> None:
        assert live.offsets == (replayed.offsets if replayed is not None else {})
        if live.group_id not in self.synced:
            assert replayed is None or replayed.generation == 0
            return
        assert replayed is not None, f"{live} is lost"
        assert replayed.generation == self.synced[live.group_id]
        if live.state in SETTLED and live.generation == replayed.generation:
            assert replay_differences(live) == []
            seats = [(member.member_id, member.assignment) for member in replayed.members.values()]
            assert seats == [(member.member_id, member.assignment) for member in live.members.values()]


@dataclass
class Actor:
    """A client, with the ids and the generation that it knows."""

    name: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    joined: Call[JoinGroupResponse] | None = None

    def learn(self) -> Actor:
        """Read the answer to the last JoinGroup, if it has come."""
        if self.joined is not None and not self.joined.waits and not self.joined.lost:
            answer = self.joined.response
            if answer.member_id:
                self.member_id, self.generation = answer.member_id, answer.generation_id
        return self


class Simulation(RuleBasedStateMachine):
    """Each rule is an act of a client, an operator or time, or a crash."""

    world: World
    actors: list[Actor]

    @initialize(
        delay_ms=st.sampled_from([0, 3_000]), size=st.sampled_from([2, 100]), limit=st.sampled_from([500, 1_048_588])
    )
    def begin(self, delay_ms: int, size: int, limit: int) -> None:
        """Draw the settings once. Four clients share three instance ids."""
        self.world = World(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=size,
            message_max_bytes=limit,
            offsets_retention_ms=60_000,
        )
        self.actors = [Actor(f"c{n}", f"i{n % 3}" if n < 4 else None) for n in range(7)]

    @rule(
        who=st.integers(0, 6),
        group=st.sampled_from(GROUPS),
        version=st.integers(0, 9),
        known=st.booleans(),
        protocols=st.sampled_from(PROTOCOLS),
        session_ms=st.sampled_from([6_000, 30_000]),
        rebalance_ms=st.sampled_from([1_000, 20_000, A_REBALANCE_MS]),
    )
    def join(
        self,
        *,
        who: int,
        group: str,
        version: int,
        known: bool,
        protocols: Protocols,
        session_ms: int,
        rebalance_ms: int,
    ) -> None:
        """Join anew, or with the known member id; an old version has no instance id."""
        actor = self.actors[who].learn()
        actor.joined = self.world.join(
            group=group,
            member=actor.member_id if known else "",
            instance=actor.instance_id if version >= STATIC_JOIN_SINCE else None,
            version=version,
            protocols=protocols,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
        )

    @rule(group=st.sampled_from(GROUPS), which=st.integers(0, 2), version=st.integers(5, 9))
    def static_member_restarts(self, group: str, which: int, version: int) -> None:
        """A static member restarts with its protocols; in Stable the generation stays, and a leader skips assigning."""
        live = self.world.coordinator.groups.get(group)
        if live is None or f"i{which}" not in live.static_members:
            return
        member = live.members[live.static_members[f"i{which}"]]
        stable = live.state is State.STABLE and version >= SKIP_ASSIGNMENT_SINCE
        generation, leads = live.generation, live.leader == member.member_id
        joined = self.world.join(group=group, instance=f"i{which}", version=version, protocols=member.protocols)
        if stable and not joined.waits and not joined.response.error_code:
            assert joined.response.generation_id == generation
            assert joined.response.skip_assignment == leads

    @rule(who=st.integers(0, 6), group=st.sampled_from(GROUPS), named=st.booleans(), size=st.sampled_from([0, 10, 400]))
    def sync(self, *, who: int, group: str, named: bool, size: int) -> None:
        """Sync with assignments for each present member; only the leader's count."""
        actor = self.actors[who].learn()
        live = self.world.coordinator.groups.get(group)
        self.world.sync(
            group=group,
            generation=actor.generation,
            member=actor.member_id,
            instance=actor.instance_id if named else None,
            assignments=dict.fromkeys(live.members, bytes(size)) if live is not None else {},
        )

    @rule(who=st.integers(0, 6), group=st.sampled_from(GROUPS), named=st.booleans())
    def heartbeat(self, *, who: int, group: str, named: bool) -> None:
        """Send a heartbeat."""
        actor = self.actors[who].learn()
        self.world.heartbeat(
            group=group,
            generation=actor.generation,
            member=actor.member_id,
            instance=actor.instance_id if named else None,
        )

    @rule(
        who=st.lists(st.integers(0, 6), min_size=1, max_size=3),
        group=st.sampled_from(GROUPS),
        version=st.integers(0, 5),
        by_id=st.booleans(),
        by_name=st.booleans(),
    )
    def leave(self, *, who: list[int], group: str, version: int, by_id: bool, by_name: bool) -> None:
        """A member leaves, or an operator removes it; several at once from v3 on."""
        actors = [self.actors[n].learn() for n in who]
        if version < LEAVE_MANY_SINCE:
            self.world.leave(group=group, member=actors[0].member_id, version=version)
            return
        members = [(each.member_id if by_id else "", each.instance_id if by_name else None) for each in actors]
        self.world.leave(group=group, members=members, version=version)

    @rule(
        who=st.integers(0, 6),
        group=st.sampled_from(GROUPS),
        member=st.booleans(),
        topic=st.sampled_from("tu"),
        retention_ms=st.sampled_from([-1, 5_000]),
    )
    def commit(self, *, who: int, group: str, member: bool, topic: str, retention_ms: int) -> None:
        """Commit as a member, or without a member id."""
        actor = self.actors[who].learn()
        self.world.commit(
            group=group,
            generation=actor.generation if member else -1,
            member=actor.member_id if member else "",
            version=4,
            offsets={(topic, who): self.world.now_ms},
            retention_ms=retention_ms,
        )

    @rule(group=st.sampled_from(GROUPS))
    def everybody_does_right(self, group: str) -> None:
        """Every member rejoins and syncs until the group is Stable, because random steps hardly ever reach Stable."""
        live = self.world.coordinator.groups.get(group)
        if live is None:
            return
        for member in list(live.members.values()):
            if live.state is State.PREPARING_REBALANCE and member.awaiting_join is None:
                self.world.join(
                    group=group,
                    member=member.member_id,
                    instance=member.group_instance_id,
                    version=9,
                    protocols=member.protocols,
                    session_ms=member.session_timeout_ms,
                    rebalance_ms=member.rebalance_timeout_ms,
                )
        if live.initial_delay is not None or live.pending:
            self.world.advance(A_REBALANCE_MS)
        if live.state is State.COMPLETING_REBALANCE:
            assignments = {member_id: member_id.encode() for member_id in live.members}
            for member_id in assignments:
                self.world.sync(group=group, member=member_id, generation=live.generation, assignments=assignments)

    @rule(group=st.sampled_from(GROUPS))
    def look(self, group: str) -> None:
        """A request that only reads changes nothing and is answered at once."""
        written, said = len(self.world.records), len(self.world.notes)
        asked: list[Call[Any]] = [
            self.world.fetch(group=group, topics=None),
            self.world.describe(group=group),
            self.world.list_groups(),
        ]
        assert not any(call.waits for call in asked)
        assert (len(self.world.records), len(self.world.notes)) == (written, said)

    @rule(group=st.sampled_from(GROUPS), topic=st.sampled_from("tu"), partition=st.integers(0, 6))
    def delete_offsets(self, group: str, topic: str, partition: int) -> None:
        """An operator deletes an offset."""
        self.world.delete_offsets(group=group, topics={topic: [partition]})

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        """An operator deletes a group."""
        self.world.delete(group=group)

    @rule()
    def remove_expired(self) -> None:
        """The broker removes expired offsets."""
        self.world.remove_expired()

    @rule(ms=st.sampled_from([1, 500, 1_000, 3_000, 6_000, 20_000, 61_000, 301_000]))
    def time_passes(self, ms: int) -> None:
        """Time passes without any request."""
        self.world.advance(ms)

    @rule()
    def coordinator_restarts(self) -> None:
        """The coordinator is killed and comes back from its log."""
        self.world.restart()

    @rule(who=st.integers(0, 6))
    def client_forgets(self, who: int) -> None:
        """A client restarts without its member id, or its answer is lost."""
        actor = self.actors[who]
        actor.member_id, actor.generation, actor.joined = "", -1, None

    def teardown(self) -> None:
        """After a long silence no request waits and no group has a member."""
        if not hasattr(self, "world"):
            return
        self.world.advance(A_LONG_TIME_MS)
        assert not any(call.waits for call in self.world.calls.values()), "some wait for ever"
        assert not any(group.members for group in self.world.coordinator.groups.values()), "silent members stay"
        self.world.restart()
        self.world.unload()


TestSimulation = Simulation.TestCase
TestSimulation.settings = at_most(300)
