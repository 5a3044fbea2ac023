"""All that a test can ask for over HTTP, as one table: each operation calls one function of `Tenure` or of its parts.

    on_group("expire", Group.expire, "Expire a member", member=MEMBER)

    @operation("POST", "/v1/clock/advance", ref("Clock"), seconds=JUMP, unheard=UNHEARD)
    def advance(desk, seconds, unheard=()): ...

`on_server`, `on_clock`, `on_group` and `on_crew` add a function of the kit; the answer is the state of that part behind
it. `operation` adds a function of its own, whose docstring is the summary in /openapi.json. A result is JSON, or plain
text if it is a `str`.

The arguments of a function are the parameters of its path and the fields of the request, which have schemas; an
argument without a default has to be there.

A function that waits for members or for a kill has the argument `guard`: it calls `guard` again and again, and an
exception of it ends the wait.

House rule: an operation adds nothing to the kit: waits, assertions and their texts are those of coordinator.testing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import count
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from coordinator.site.openapi import FLAG, TEXT, Schema, list_of, ref
from coordinator.story.words import timeline_json
from coordinator.testing import assertions
from coordinator.testing.faults import Fault
from coordinator.testing.group import Group
from coordinator.testing.http.shapes import (
    ASSIGNMENT,
    CAUSE,
    COUNT,
    FAULT,
    FAULTS_COUNT,
    FILL,
    JUMP,
    MEMBER,
    SECONDS,
    SINCE,
    TEXTS,
    TIMEOUT,
    TOPIC_PARTITIONS,
    UNHEARD,
    WAITS,
    clock_json,
    crew_json,
    fault_json,
    fault_of,
    look_json,
)
from coordinator.testing.members import MEMBERS_MAX, Members
from coordinator.testing.tenure import Tenure

CREWS_MAX = 256
"""Crews at the same time: each has a thread."""

Function = TypeVar("Function", bound=Callable[..., Any])

STATE, LOOK, CREW, CLOCK, FAULTS = ref("State"), ref("Look"), ref("Crew"), ref("Clock"), list_of(ref("Fault"))
GROUP, CREWS = "/v1/groups/{group_id}", "/v1/crews/{crew_id}"
NOTHING: Schema = {"type": "object", "properties": {}}
PARAMETERS: dict[str, Schema] = {"group_id": TEXT, "crew_id": COUNT, "fault_id": COUNT, "node_id": COUNT}
Guard = Callable[[], None]


class Desk:
    """The part of a control that the operations share. faults, crews: those that a test made, by the ids it got."""

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure
        self.faults: dict[int, Fault] = {}
        self.crews: dict[int, tuple[str, Members]] = {}
        self._ids = count(1)
        self._filling = Lock()

    def keep_faults(self, faults: Sequence[Fault]) -> Any:
        """Give new faults their ids; return them as JSON."""
        kept = {next(self._ids): fault for fault in faults}
        self.faults |= kept
        return [fault_json(number, fault) for number, fault in kept.items()]

    def fill(self, group_id: str, count: int, options: Mapping[str, Any]) -> Any:
        """Let members join; return them as JSON, with the id of their crew. Raises ValueError if they are too many."""
        with self._filling:
            there = sum(len(members) for _, members in list(self.crews.values()))
            if there + count > MEMBERS_MAX:
                raise ValueError(
                    f"count: {count} members beside {there} are more than {MEMBERS_MAX}; DELETE a crew first"
                )
            if len(self.crews) == CREWS_MAX:
                raise ValueError(f"there are {CREWS_MAX} crews already; DELETE one first")
            members = self.tenure.group(group_id).fill(count, **options)
            number = next(self._ids)
            self.crews[number] = (group_id, members)
        return crew_json(number, group_id, members)

    def fault(self, number: int) -> Fault:
        """The fault with this id. Raises LookupError."""
        found: Fault = _found(self.faults, number, "fault")
        return found

    def crew(self, number: int, index: int | None = None) -> Members:
        """The crew with this id, which has a member of this index. Raises LookupError."""
        members: Members = _found(self.crews, number, "crew")[1]
        if index is not None and index >= len(members):
            raise LookupError(f"crew {number} has no member {index}: it has {len(members)}, from 0 on")
        return members

    def crew_json(self, number: int) -> Any:
        """The crew with this id as JSON. Raises LookupError."""
        return crew_json(number, *_found(self.crews, number, "crew"))

    def look(self, group_id: str) -> Any:
        """A group as it is now, as JSON."""
        return look_json(group_id, self.tenure.look(group_id))


def _found(kept: Mapping[int, Any], number: int, kind: str) -> Any:
    if number not in kept:
        raise LookupError(f"there is no {kind} {number}; there are: {', '.join(map(str, kept)) or 'none'}")
    return kept[number]


class Operation(NamedTuple):
    """See the module. parameters: those of the path. needed: the fields that have to be there.

    waits: whether it waits for something that may not come.
    """

    method: str
    path: str
    answer: Schema
    fields: Mapping[str, Schema]
    parameters: Mapping[str, Schema]
    needed: Sequence[str]
    waits: bool
    summary: str
    run: Callable[..., Any]

    @property
    def has_body(self) -> bool:
        """Whether the fields are in the body, and not in the query."""
        return self.method == "POST"


OPERATIONS: list[Operation] = []


def operation(method: str, path: str, answer: Schema, **fields: Schema) -> Callable[[Function], Function]:
    """Add a function to the table."""

    def add(run: Function) -> Function:
        _add(method, path, answer, fields, run, run, (run.__doc__ or "").partition("\n")[0].removesuffix("."))
        return run

    return add


def _add(
    method: str,
    path: str,
    answer: Schema,
    fields: Mapping[str, Schema],
    run: Callable[..., Any],
    call: Callable[..., object],
    summary: str,
) -> None:
    """Add `run` to the table, which takes the arguments of `call`."""
    parameters = {name: PARAMETERS[name] for name in re.findall(r"{(\w+)}", path)}
    arguments = inspect.signature(call).parameters
    needed = [name for name in fields if name in arguments and arguments[name].default is inspect.Parameter.empty]
    OPERATIONS.append(Operation(method, path, answer, fields, parameters, needed, "guard" in arguments, summary, run))


def of_tenure(answer: Schema, told: Callable[[Desk], Any]) -> Callable[..., None]:
    """Makes a function that adds a function of `Tenure`. told: the answer behind it."""

    def add(path: str, call: Callable[..., object], summary: str, **fields: Schema) -> None:
        def run(desk: Desk, **given: Any) -> Any:
            call(desk.tenure, **given)
            return told(desk)

        _add("POST", f"/v1/{path}", answer, fields, run, call, summary)

    return add


def on_group(path: str, call: Callable[..., object], summary: str, **fields: Schema) -> None:
    """Add a function of a `Group`, or about one."""

    def run(desk: Desk, group_id: str, **given: Any) -> Any:
        call(desk.tenure.group(group_id), **given)
        return desk.look(group_id)

    _add("POST", f"{GROUP}/{path}", LOOK, fields, run, call, summary)


def on_crew(path: str, call: Callable[..., object], summary: str, **fields: Schema) -> None:
    """Add a function of `Members` about one of them."""

    def run(desk: Desk, crew_id: int, index: int, **given: Any) -> Any:
        call(desk.crew(crew_id, index), index, **given)
        return desk.crew_json(crew_id)

    _add("POST", f"{CREWS}/{path}", CREW, {"index": COUNT, **fields}, run, call, summary)


# The server.


@operation("GET", "/v1", STATE)
def state(desk: Desk) -> Any:
    """The server."""
    tenure = desk.tenure
    return {
        "version": version("tenure"),
        "is_running": tenure.is_running,
        "bootstrap_servers": tenure.bootstrap_servers,
        "nodes": [node._asdict() for node in tenure.nodes],
        "data_dir": None if tenure.data_dir is None else str(tenure.data_dir),
    }


@operation("POST", "/v1/reset", STATE)
def reset(desk: Desk) -> Any:
    """Make everything as new, at the same port: groups, topics, faults, time, history, counts of requests."""
    desk.faults.clear()
    desk.crews.clear()
    desk.tenure.reset()
    return state(desk)


@operation("POST", "/v1/end-test", STATE)
def end_test(desk: Desk) -> Any:
    """Take back what a test planned: faults, a frozen time, silenced and scripted members. All else stays."""
    desk.faults.clear()
    desk.crews.clear()
    desk.tenure.end_test()
    return state(desk)


on_server = of_tenure(STATE, state)
on_server("kill", Tenure.kill, "End the server as if its process were killed; needs a data folder")
on_server("start", Tenure.start, "Start the server after a kill")
on_server(
    "wait-until-killed",
    Tenure.wait_until_killed,
    "Wait until a planned fault has killed the server, or a node",
    timeout=TIMEOUT,
)
on_server(
    "nodes/{node_id}/kill",
    lambda tenure, node_id: tenure.kill_node(node_id),
    "End one of several nodes as if it were a process that is killed; the others take over",
)
on_server(
    "nodes/{node_id}/start",
    lambda tenure, node_id: tenure.start_node(node_id),
    "Start a node that was killed, at its port",
)


@operation("GET", "/v1/log", TEXT)
def log(desk: Desk) -> str:
    """The newest log lines."""
    return desk.tenure.log


@operation("GET", "/v1/topics", list_of(ref("Topic")))
def topics(desk: Desk) -> Any:
    """The topics, without internal ones."""
    return [{"name": name, "partitions": count} for name, count in desk.tenure.topics.items()]


@operation("POST", "/v1/topics", ref("Topic"), name=TEXT, partitions=TOPIC_PARTITIONS)
def create_topic(desk: Desk, name: str, partitions: int = 1) -> Any:
    """Create a topic."""
    desk.tenure.create_topic(name, partitions)
    return {"name": name, "partitions": partitions}


@operation("GET", "/v1/requests", ref("Requests"), api=TEXT, client_id=TEXT)
def requests(desk: Desk, api: str | None = None, client_id: str | None = None) -> Any:
    """The requests that clients sent, of an API and of a client if the query says so."""
    counts = desk.tenure.requests
    return {"count": counts.count(api, client_id), "by_client": counts.by_client}


@operation("DELETE", "/v1/requests", NOTHING)
def clear_requests(desk: Desk) -> Any:
    """Count requests from zero."""
    desk.tenure.requests.clear()
    return {}


# Groups. The routes of one group end in a word behind its id, except for the last one.


@operation("GET", "/v1/groups", list_of(LOOK))
def groups(desk: Desk) -> Any:
    """The groups that something happened to, and those that were asked for."""
    return [desk.look(group.group_id) for group in desk.tenure.groups]


@operation("GET", f"{GROUP}/timeline", list_of(ref("Entry")), since=SINCE, type=TEXT)
def timeline(desk: Desk, group_id: str, since: int = 0, type: str | None = None) -> Any:  # noqa: A002 - a field of JSON
    """The history of a group, from `since` on, only entries of a type if the query says so."""
    entries = desk.tenure.group(group_id).new_entries(since)
    return timeline_json(entry for entry in entries if type in {None, entry.type})


@operation("GET", f"{GROUP}/explain", TEXT, since=SINCE, last=COUNT)
def explain(desk: Desk, group_id: str, since: int = 0, last: int | None = None) -> str:
    """The history of a group as `tenure explain` prints it, the last so many entries if the query says so."""
    return desk.tenure.group(group_id).explain(since, last)


@operation("POST", f"{GROUP}/wait", LOOK, **WAITS, no_rebalance_since=SINCE)
def wait(desk: Desk, group_id: str, guard: Guard, no_rebalance_since: int | None = None, **wanted: Any) -> Any:
    """Wait until all of this is so; fail at once if a rebalance begins after `no_rebalance_since`."""
    group = desk.tenure.group(group_id)

    def check() -> None:
        guard()
        if no_rebalance_since is not None:
            assertions.assert_no_rebalance(group, no_rebalance_since)

    group.wait_until(guard=check, **wanted)
    return desk.look(group_id)


on_group("assert/at-rest", assertions.assert_at_rest, "Fail if a rebalance is under way. Its `mark` begins the others")
on_group("assert/no-rebalance", assertions.assert_no_rebalance, "Fail if a rebalance began", since=SINCE)
on_group(
    "assert/rebalances",
    assertions.assert_rebalances,
    "Fail if another number of rebalances began, or if one had another cause",
    since=SINCE,
    exactly=COUNT,
    at_least=COUNT,
    at_most=COUNT,
    cause=CAUSE,
)
on_group("assert/nothing-moved", assertions.assert_nothing_moved, "Fail if a topic partition moved", since=SINCE)
on_group(
    "assert/moved-at-most",
    assertions.assert_moved_at_most,
    "Fail if more topic partitions moved",
    since=SINCE,
    most=COUNT,
)
on_group(
    "assert/same-seats",
    assertions.assert_same_seats,
    "Fail if members or their topic partitions differ from `before`, the `assignment` of an earlier moment",
    before=ASSIGNMENT,
)
on_group("expire", Group.expire, "Expire a member", member=MEMBER)
on_group(
    "silence",
    Group.silence,
    "Count no request of a member, which gets its answers: it expires after its session timeout",
    member=MEMBER,
)
on_group("hear", Group.hear, "Count the requests of a silenced member again", member=MEMBER)


@operation("POST", f"{GROUP}/fill", CREW, **FILL)
def fill(desk: Desk, group_id: str, count: int, **options: Any) -> Any:
    """Let members without clients join; answers before they have joined."""
    return desk.fill(group_id, count, options)


@operation("GET", f"{GROUP}/coordinator", ref("Coordinator"))
def coordinator(desk: Desk, group_id: str) -> Any:
    """The node that coordinates a group, whether the group exists or not."""
    return {"group_id": group_id, "node": desk.tenure.coordinator_of(group_id)}


@operation("POST", f"{GROUP}/move", ref("Coordinator"), to=COUNT)
def move(desk: Desk, group_id: str, to: int) -> Any:
    """Make another node the coordinator of a group, and of all groups in the same partition."""
    desk.tenure.move(group_id, to)
    return coordinator(desk, group_id)


@operation("GET", GROUP, LOOK)
def look(desk: Desk, group_id: str) -> Any:
    """A group at this moment, whether it exists or not."""
    return desk.look(group_id)


# Members without clients, by their crew.


@operation("GET", "/v1/crews", list_of(CREW))
def crews(desk: Desk) -> Any:
    """All members without clients."""
    return [desk.crew_json(number) for number in list(desk.crews)]


@operation("GET", CREWS, CREW)
def crew(desk: Desk, crew_id: int) -> Any:
    """The members of one fill, as they see themselves."""
    return desk.crew_json(crew_id)


@operation("DELETE", CREWS, NOTHING)
def stop_crew(desk: Desk, crew_id: int) -> Any:
    """Let these members vanish without a LeaveGroup."""
    desk.crew(crew_id).stop()
    del desk.crews[crew_id]
    return {}


@operation("POST", f"{CREWS}/wait-until-seated", CREW, generation=COUNT, timeout=TIMEOUT)
def wait_until_seated(desk: Desk, crew_id: int, guard: Guard, generation: int = 0, timeout: float | None = None) -> Any:
    """Wait until all members have a seat in one generation, this one or a later one."""
    within_s = desk.tenure.timeout if timeout is None else timeout
    desk.crew(crew_id).wait_until_seated(generation, within_s=within_s, guard=guard)
    return desk.crew_json(crew_id)


on_crew("restart", Members.restart, "Restart a member; answers before it has joined")
on_crew("fall-silent", Members.fall_silent, "Let a member send nothing while its connection stays")
on_crew("speak-again", Members.speak_again, "Let a silent member go on")
on_crew("leave", Members.leave, "Let a member leave with a LeaveGroup")
on_crew("be-slow", Members.be_slow, "Let a member join each rebalance so much later", seconds=SECONDS)


# Time.


@operation("GET", "/v1/clock", CLOCK)
def clock(desk: Desk) -> Any:
    """The server's time."""
    return desk.tenure.do(lambda control: clock_json(control.clock))


@operation("POST", "/v1/clock/advance", CLOCK, seconds=JUMP, unheard=UNHEARD)
def advance(desk: Desk, seconds: float, unheard: Sequence[Mapping[str, str]] = ()) -> Any:
    """Let the time jump ahead; members whose clients are alive stay."""
    desk.tenure.advance(seconds, [(each["group"], each["member"]) for each in unheard])
    return clock(desk)


on_clock = of_tenure(CLOCK, clock)
on_clock("clock/freeze", Tenure.freeze, "Let the time stand still, but for jumps")
on_clock("clock/thaw", Tenure.thaw, "Let the time go on")


# Faults.


@operation("GET", "/v1/faults", FAULTS, never_fired=FLAG)
def faults(desk: Desk, never_fired: bool = False) -> Any:  # noqa: FBT001, FBT002 - a field of a query
    """The planned faults, only those that no request met if the query says so."""
    return [
        fault_json(number, fault) for number, fault in list(desk.faults.items()) if not (never_fired and fault.fired)
    ]


@operation("POST", "/v1/faults", FAULTS, **FAULT)
def add_faults(desk: Desk, text: str | None = None, **fields: Any) -> Any:
    """Plan faults."""
    if text is not None and fields:
        raise ValueError(f"'text' stands in place of all other fields, such as {next(iter(fields))!r}")
    return desk.keep_faults(desk.tenure.faults.add(fault_of(fields) if text is None else text))


@operation("POST", "/v1/faults/random", FAULTS, seed=COUNT, count=FAULTS_COUNT, clients=TEXTS)
def add_random_faults(desk: Desk, seed: int | None = None, count: int = 10, clients: Sequence[str] = ()) -> Any:
    """Plan faults that clients should survive, the same for the same seed; their texts replay them."""
    return desk.keep_faults(desk.tenure.faults.add_random(seed, count, clients))


@operation("DELETE", "/v1/faults", NOTHING)
def clear_faults(desk: Desk) -> Any:
    """Take all faults out of the plan."""
    desk.tenure.faults.clear()
    desk.faults.clear()
    return {}


@operation("DELETE", "/v1/faults/{fault_id}", NOTHING)
def remove_fault(desk: Desk, fault_id: int) -> Any:
    """Take a fault out of the plan."""
    desk.tenure.faults.remove(desk.fault(fault_id))
    del desk.faults[fault_id]
    return {}
