"""Random plays: a few members send random requests to Kafka, and the same requests are then played on another server.

`improvise` plays on Apache Kafka. Before each step it knows which members wait and the group's state, and chooses by
its seed. The steps that it returns name "its own member id" in place of an id that Kafka gave, so that `replay` can
play them on another server. Both make a transcript, and the two must be equal.

The plays leave out requests whose result Kafka decides by chance or by the clock, or doesn't answer: the leave of a
leader if more than one member remains (any of them leads), the leave of the last member while ids are pending (a timer
of 0 ms ends that rebalance), a request for a member that waits on another connection, and the leave of a member whose
sync waits.

House rule: nothing here times out; every timeout is a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, cast

from protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetFetchRequest,
)
from schemas.errors import ErrorCode
from tests.oracle.stage import LEAVE_VERSION, Client, Server, Stage, protocol_list
from tests.oracle.transcript import MEMBER_ID, Transcript

TOPIC = "improvised"
STEP_COUNT = 80
HELPFUL = 0.5
"""The share of steps in which a member does what the group waits for; the others are random."""
NOBODY = "nobody-00000000-0000-0000-0000-000000000000"
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",), ("range", "roundrobin", "sticky"))
# Member, JoinGroup version, instance id: two pairs of twins, dynamic members of three ages.
CAST = (
    ("a", 9, "I"),
    ("b", 5, "J"),
    ("c", 9, "I"),
    ("d", 5, "J"),
    ("e", 9, None),
    ("f", 4, None),
    ("g", 2, None),
)


class Step(NamedTuple):
    """One member's step: a request and its unusual fields, or "receive"."""

    member: str
    action: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.member} {self.action} " + " ".join(f"{name}={value}" for name, value in self.arguments.items())


@dataclass
class Company:
    """The members on a stage, with what each one waits for."""

    stage: Stage
    members: dict[str, Client]
    waiting: dict[str, str] = field(default_factory=dict)

    @classmethod
    def on(cls, stage: Stage) -> Company:
        """All members, connected."""
        return cls(stage, {name: stage.client(name, version=age, instance=instance) for name, age, instance in CAST})

    def do(self, step: Step) -> Any:
        """Do a step; the answer, if it is one of receiving."""
        member = self.members[step.member]
        if step.action == "receive":
            action = self.waiting.pop(step.member)
            return member.joined() if action == "join" else member.receive()
        self.waiting[step.member] = step.action
        getattr(self, f"_{step.action}")(member, **step.arguments)
        return None

    def _join(
        self, member: Client, *, identity: str, instance: str | None, protocols: tuple[str, ...], note: str
    ) -> None:
        member.send_join(
            member_id=self._id(member, identity),
            group_instance_id=instance,
            protocols=protocol_list(dict.fromkeys(protocols, note.encode())),
        )

    def _sync(self, member: Client, *, identity: str, instance: str | None, late: int, assigned: str) -> None:
        assignments = {self.members[name]: name.encode() for name in assigned}
        member.send_sync(
            assignments,
            member_id=self._id(member, identity),
            group_instance_id=instance,
            generation_id=member.generation - late,
        )

    def _heartbeat(self, member: Client, *, identity: str, instance: str | None, late: int) -> None:
        member.send_heartbeat(
            member_id=self._id(member, identity), group_instance_id=instance, generation_id=member.generation - late
        )

    def _commit(
        self, member: Client, *, identity: str, instance: str | None, generation: int | None, offset: int
    ) -> None:
        member.send_commit(
            TOPIC,
            offset,
            member_id=self._id(member, identity),
            group_instance_id=instance,
            generation_id_or_member_epoch=member.generation if generation is None else generation,
        )

    def _leave(self, member: Client, *, named: tuple[tuple[str, str | None], ...]) -> None:
        member.send_leave(*((self._id(member, identity), instance) for identity, instance in named))

    def _describe(self, member: Client) -> None:
        member.send(DescribeGroupsRequest(groups=[member.group]), 5)

    def _fetch(self, member: Client) -> None:
        member.send(OffsetFetchRequest(group_id=member.group, topics=None), 7)

    def _delete(self, member: Client) -> None:
        member.send(DeleteGroupsRequest(groups_names=[member.group]), 2)

    def _id(self, member: Client, identity: str) -> str:
        match identity:
            case "own":
                return member.member_id
            case "none":
                return ""
            case "nobody":
                return NOBODY
        return self.members[identity].member_id


class _Improviser:
    """Chooses the steps of one play."""

    def __init__(self, server: Server, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(server, f"improvised-{seed}")
        self.company = Company.on(self.stage)
        self.steps: list[Step] = []
        self.pending: set[str] = set()
        self.leader = ""
        self.identities: dict[str, str] = {}

    def play(self) -> None:
        self.stage.topic(TOPIC, 1)
        while len(self.steps) < STEP_COUNT:
            free = [name for name in self.company.members if name not in self.company.waiting]
            if not free:
                break
            group = self.stage.describe()
            step = self._helpful(group, free) if self.random.random() < HELPFUL else None
            step = step or self._choose(self.random.choice(free))
            if step is not None:
                was_empty = group.group_state in {"Empty", "Dead"}
                self._do(step)
                if was_empty and step.action == "join":
                    # The first generation after Empty begins by a timer, even if its delay is none.
                    self.stage.until(lambda group: group.group_state != "PreparingRebalance")
                self._receive_all()

    def _do(self, step: Step) -> None:
        self.steps.append(step)
        if step.action != "receive":
            self.identities[step.member] = step.arguments.get("identity", "none")
        answer = self.company.do(step)
        if isinstance(answer, JoinGroupResponse):
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.pending.add(answer.member_id)
            elif answer.error_code == ErrorCode.NONE:
                self.pending.discard(answer.member_id)
                self.leader = answer.leader
        elif isinstance(answer, LeaveGroupResponse):
            self.pending.difference_update(member.member_id for member in answer.members)

    def _receive_all(self) -> None:
        for _ in range(2):
            self.stage.barrier()
        for name in list(self.company.waiting):
            if not self.company.members[name].connection.is_silent():
                self._do(Step(name, "receive", {}))

    def _helpful(self, group: DescribeGroupsResponse.DescribedGroup, free: list[str]) -> Step | None:
        """Return what a good client would do next, so that the group makes progress: rejoin, or sync."""
        members = {member.member_id for member in group.members}
        free = [name for name in free if not self._waits_elsewhere(name, "own")]
        known = {name: self.company.members[name].member_id for name in free}
        if group.group_state == "CompletingRebalance":
            for name in sorted(free, key=lambda name: known[name] != self.leader):
                if known[name] in members and self.company.members[name].protocol_name is not None:
                    assigned = "abcdefg" if known[name] == self.leader else ""
                    return self._as_itself(name, "sync", late=0, assigned=assigned)
        else:
            owed = members | self.pending if group.group_state == "PreparingRebalance" else self.pending
            for name in free:
                if known[name] in owed:
                    return self._as_itself(name, "join", protocols=PROTOCOLS[1], note="")
        return None

    def _as_itself(self, name: str, action: str, **arguments: Any) -> Step:
        return Step(name, action, {"identity": "own", "instance": self.company.members[name].instance, **arguments})

    def _choose(self, name: str) -> Step | None:
        choices: list[tuple[int, Callable[[str], Step | None]]] = [
            (8, self._join),
            (6, self._sync),
            (3, self._heartbeat),
            (2, self._leave),
            (2, self._commit),
            (1, lambda name: Step(name, "describe", {})),
            (1, lambda name: Step(name, "fetch", {})),
            (1, self._delete),
        ]
        weights, makers = zip(*choices, strict=True)
        (make,) = self.random.choices(makers, weights)
        return cast("Step | None", make(name))

    def _join(self, name: str) -> Step | None:
        member = self.company.members[name]
        usual = "own" if member.member_id and self.random.random() < 0.7 else "none"
        identity = self._sometimes(usual, ["nobody", *self._others(name)])
        if self._waits_elsewhere(name, identity):
            return None
        arguments = {
            "identity": identity,
            "instance": self._instance(member),
            "protocols": self._sometimes(PROTOCOLS[1], list(PROTOCOLS)),
            "note": self._sometimes("", ["x", "y"]),
        }
        return Step(name, "join", arguments)

    def _sync(self, name: str) -> Step | None:
        member = self.company.members[name]
        identity = self._sometimes("own", ["none", "nobody", *self._others(name)])
        if self._waits_elsewhere(name, identity) or member.protocol_name is None:
            return None
        assigned = "".join(sorted(self.random.sample("abcdefg", self.random.randint(3, 7))))
        arguments = {
            "identity": identity,
            "instance": self._instance(member),
            "late": self._sometimes(0, [1, -1]),
            "assigned": assigned if self.leader == member.member_id else "",
        }
        return Step(name, "sync", arguments)

    def _heartbeat(self, name: str) -> Step:
        arguments = {
            "identity": self._sometimes("own", ["none", "nobody", *self._others(name)]),
            "instance": self._instance(self.company.members[name]),
            "late": self._sometimes(0, [1, -1]),
        }
        return Step(name, "heartbeat", arguments)

    def _commit(self, name: str) -> Step:
        arguments = {
            "identity": self._sometimes("own", ["none", "nobody", *self._others(name)]),
            "instance": self._instance(self.company.members[name]),
            "generation": self._sometimes(None, [-1, 0]),
            "offset": len(self.steps),
        }
        return Step(name, "commit", arguments)

    def _leave(self, name: str) -> Step | None:
        member = self.company.members[name]
        if LEAVE_VERSION[member.version] < 3:
            named: tuple[tuple[str, str | None], ...] = (("own", None),)
        else:
            entries = [("own", None), ("own", member.instance), ("none", "I"), ("none", "J"), ("nobody", "I")]
            entries += [(other, None) for other in self._others(name)] + [("none", None), ("own", "K")]
            named = tuple(self.random.sample(entries, self.random.choice((1, 1, 1, 2))))
        return Step(name, "leave", {"named": named}) if self._may_leave(name, named) else None

    def _delete(self, name: str) -> Step | None:
        # A group that is deleted while ids are pending forgets them: then they are none.
        return Step(name, "delete", {}) if not self.pending else None

    def _may_leave(self, name: str, named: tuple[tuple[str, str | None], ...]) -> bool:
        described = self.stage.describe().members
        by_instance = {member.group_instance_id: member.member_id for member in described if member.group_instance_id}
        ids = {member.member_id for member in described}
        gone: set[str] = set()
        for identity, instance in named:
            member_id = self._id_of(name, identity)
            gone.add(member_id or by_instance.get(instance or "", ""))
        gone &= ids
        if not gone:
            return True
        sync_waits = {self._id_in_flight(other) for other, what in self.company.waiting.items() if what == "sync"}
        # They leave one after the other: while the leader does, the others are still there.
        leader_leaves_several = len(ids) > 2 and any(_seat(member_id) == _seat(self.leader) for member_id in gone)
        last_leaves = gone == ids
        return not gone & sync_waits and not leader_leaves_several and not (last_leaves and self.pending)

    def _waits_elsewhere(self, name: str, identity: str) -> bool:
        member_id = self._id_of(name, identity)
        return bool(member_id) and member_id in {self._id_in_flight(other) for other in self.company.waiting}

    def _id_in_flight(self, name: str) -> str:
        """The member id in the request for whose answer this one waits."""
        return self._id_of(name, self.identities.get(name, "none"))

    def _id_of(self, name: str, identity: str) -> str:
        if identity in self.company.members or identity == "own":
            return self.company.members[name if identity == "own" else identity].member_id
        return ""

    def _instance(self, member: Client) -> str | None:
        if member.version < 5:
            return None
        return cast("str | None", self._sometimes(member.instance, [None, "I", "J", "K"]))

    def _others(self, name: str) -> list[str]:
        return [other for other, client in self.company.members.items() if other != name and client.member_id]

    def _sometimes(self, usual: Any, unusual: list[Any]) -> Any:
        return self.random.choice(unusual) if unusual and self.random.random() < 0.15 else usual


def improvise(server: Server, seed: int) -> tuple[list[Step], Transcript]:
    """Play by chance: the steps, and what happened."""
    improviser = _Improviser(server, seed)
    try:
        improviser.play()
    finally:
        improviser.stage.close()
    return improviser.steps, improviser.stage.transcript


def replay(server: Server, seed: int, steps: list[Step]) -> Transcript:
    """Play the same steps on another server; the members that wait at the end must be the same."""
    stage = Stage(server, f"improvised-{seed}")
    try:
        stage.topic(TOPIC, 1)
        company = Company.on(stage)
        for step in steps:
            company.do(step)
        stage.barrier()
        for name in company.waiting:
            if not company.members[name].connection.is_silent():
                stage.transcript.add(name, "has an answer")
    finally:
        stage.close()
    return stage.transcript


def _seat(member_id: str) -> str:
    """Return the name of a seat: the instance id of a static member, the member id of a dynamic one."""
    match = MEMBER_ID.match(member_id)
    return match["prefix"] if match and match["prefix"] in {"I", "J", "K"} else member_id
