"""A plan of faults as plain values and as text: which requests a fault is for, and what happens to them.

    JoinGroup group=workers nth=2 -> error NOT_COORDINATOR
    OffsetCommit client_id=worker-1 -> drop-response
    JoinGroup,SyncGroup group=workers times=3 -> delay 500
    * client_id=worker-1 times=* -> blackhole
    EndTxn transactional_id=copier -> kill

A line has the APIs (`*`: all of them), the conditions, and the action. A request has to meet all conditions. `nth` is
the number of the first matching request that gets the fault. `times` is the number of requests that get it (default 1,
`*`: all of them). Values are quoted as in a shell. A line that starts with # is a remark.

    error CODE          answered with this error; the coordinator never sees the request
    loading             answered as by a coordinator that reads its log
    delay MS            handled so many milliseconds later, on the server's clock
    drop-request        neither handled nor answered
    drop-response       handled, not answered
    disconnect          not handled; the connection closes
    disconnect-after    handled; the connection closes in place of the answer
    blackhole           as drop-request; with only a client id it starts at once, for all its connections
    kill                handled; in place of the answer all connections fall silent, and `Faults.on_kill` is called

A request without an answer holds up the later ones of its connection, because Kafka answers in order: the client waits
until its own request timeout.

House rule: pure. `str` of a plan is a text that `parse` turns into an equal plan.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypedDict, Unpack

from coordinator.config import INT32_MAX
from schemas.api import SERVED
from schemas.errors import ErrorCode

NAMING = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "TxnOffsetCommit",
)
"""The APIs whose requests name one group, and perhaps members of it."""

COORDINATED = (*NAMING, "DescribeGroups", "ConsumerGroupDescribe", "DeleteGroups")
"""The APIs that a client sends to the coordinator of a group."""

ARROW = "->"
ALL = "*"


class PlanError(ValueError):
    """A text that is no plan, or a fault that can't be: the message says why."""


class Action(Enum):
    """The fate of a request; see the module."""

    ERROR = "error"
    LOADING = "loading"
    DELAY = "delay"
    DROP_REQUEST = "drop-request"
    DROP_RESPONSE = "drop-response"
    DISCONNECT = "disconnect"
    DISCONNECT_AFTER = "disconnect-after"
    BLACKHOLE = "blackhole"
    KILL = "kill"


ARGUMENTS = {Action.ERROR: "the name of an error", Action.DELAY: "milliseconds"}
"""The actions that need an argument."""


@dataclass(slots=True, eq=False)
class Fault:
    """One fault: conditions, action, and how often it happened.

    apis: names of APIs, empty for all. group, member_id, transactional_id: the request names it. instance_id: the
    request names it, or names a member that has it. topic, partition: the request names a topic partition with both,
    or with the one that isn't None. client_id, version: of the request.
    nth: the first of the matching requests that gets the fault, from 1. times: how many get it, None for all.
    argument: of the action; an error's number, or milliseconds.
    seen, fired: how many requests matched, and how many got it.
    """

    action: Action
    argument: int = 0
    apis: tuple[str, ...] = ()
    group: str | None = None
    member_id: str | None = None
    instance_id: str | None = None
    transactional_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    version: int | None = None
    nth: int = 1
    times: int | None = 1
    seen: int = field(default=0, init=False)
    fired: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Raise PlanError if no request could meet the conditions."""
        unknown = [api for api in self.apis if api not in SERVED]
        if unknown:
            raise PlanError(f"there is no API {unknown[0]}")
        delay_ms = self.argument if self.action is Action.DELAY else None
        numbers = (
            ("partition", self.partition, 0),
            ("version", self.version, 0),
            ("nth", self.nth, 1),
            ("times", self.times, 1),
            ("delay", delay_ms, 0),
        )
        for name, value, least in numbers:
            if value is not None and not least <= value <= INT32_MAX:
                raise PlanError(f"{name}: {value} is not a number from {least} to {INT32_MAX}")
        if self.action is Action.ERROR and self.argument not in set(ErrorCode):
            raise PlanError(f"there is no error {self.argument}")

    @property
    def is_for_a_client_alone(self) -> bool:
        """Whether a client gets it with its first request, whatever that is."""
        return self.client_id is not None and not self.apis and self._conditions().keys() <= {"client_id", "times"}

    @property
    def is_spent(self) -> bool:
        """Whether it happens no more."""
        return self.fired == self.times

    def concerns(self, api: str) -> bool:
        """Whether requests of this API may meet the conditions."""
        return not self.apis or api in self.apis

    def __str__(self) -> str:
        words = [",".join(self.apis) or ALL]
        for name, value in self._conditions().items():
            words.append(f"{name}={value if value == ALL else shlex.quote(value)}")
        words += [ARROW, self.action.value]
        if self.action is Action.ERROR:
            words.append(ErrorCode(self.argument).name)
        elif self.action is Action.DELAY:
            words.append(str(self.argument))
        return " ".join(words)

    def _conditions(self) -> dict[str, str]:
        """The conditions that aren't defaults, as text."""
        found = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in CONDITIONS and value != each.default:
                found[each.name] = ALL if value is None else str(value)
        return found


class Conditions(TypedDict, total=False):
    """The conditions of a fault, as arguments; see `Fault`."""

    group: str
    member_id: str
    instance_id: str
    transactional_id: str
    topic: str
    partition: int
    client_id: str
    version: int
    nth: int
    times: int | None


CONDITIONS = tuple(Conditions.__annotations__)
NUMBERS = ("partition", "version", "nth", "times")


# The faults by their names.


def error(code: ErrorCode, *apis: str, **conditions: Unpack[Conditions]) -> Fault:
    """Requests are answered with an error."""
    return Fault(Action.ERROR, int(code), apis, **conditions)


def delay(ms: int, *apis: str, **conditions: Unpack[Conditions]) -> Fault:
    """Requests are handled later."""
    return Fault(Action.DELAY, ms, apis, **conditions)


def drop_request(*apis: str, **conditions: Unpack[Conditions]) -> Fault:
    """Requests are neither handled nor answered."""
    return Fault(Action.DROP_REQUEST, 0, apis, **conditions)


def drop_response(*apis: str, **conditions: Unpack[Conditions]) -> Fault:
    """Requests are handled and not answered."""
    return Fault(Action.DROP_RESPONSE, 0, apis, **conditions)


def disconnect(*apis: str, **conditions: Unpack[Conditions]) -> Fault:
    """Connections close before the request is handled."""
    return Fault(Action.DISCONNECT, 0, apis, **conditions)


def disconnect_after(*apis: str, **conditions: Unpack[Conditions]) -> Fault:
    """Connections close when the request has been handled, in place of the answer."""
    return Fault(Action.DISCONNECT_AFTER, 0, apis, **conditions)


def kill(*apis: str, **conditions: Unpack[Conditions]) -> Fault:
    """The coordinator dies between the record of a request and its answer."""
    return Fault(Action.KILL, 0, apis, **conditions)


def blackhole(client_id: str) -> Fault:
    """Nothing that a client sends is handled, and nothing is answered, until the fault is removed."""
    return Fault(Action.BLACKHOLE, client_id=client_id, times=None)


def loading(group: str, times: int | None = None) -> Fault:
    """The coordinator of a group reads its log: COORDINATOR_LOAD_IN_PROGRESS, and what Kafka answers in its place."""
    return Fault(Action.LOADING, 0, COORDINATED, group=group, times=times)


def not_available(group: str, times: int | None = None) -> Fault:
    """A group has no coordinator: COORDINATOR_NOT_AVAILABLE, from FindCoordinator too."""
    code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Fault(Action.ERROR, code, ("FindCoordinator", *COORDINATED), group=group, times=times)


def move(group: str, times: int | None = 1) -> Fault:
    """Another node is the coordinator of a group: NOT_COORDINATOR."""
    return Fault(Action.ERROR, int(ErrorCode.NOT_COORDINATOR), COORDINATED, group=group, times=times)


# Text.


def parse(text: str) -> list[Fault]:
    """The faults of a text. Raises PlanError, which names the line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(_parse_fault(shlex.split(line)))
            except ValueError as error:
                raise PlanError(f"line {number}, {line.strip()!r}: {error}") from None
    return found


def _parse_fault(words: list[str]) -> Fault:
    if ARROW not in words[1:-1]:
        raise PlanError(f"a fault is APIs, conditions, {ARROW}, an action")
    at = words.index(ARROW)
    apis, *conditions = words[:at]
    name, *arguments = words[at + 1 :]
    try:
        action = Action(name)
    except ValueError:
        raise PlanError(f"there is no action {name}") from None
    if len(arguments) != (action in ARGUMENTS):
        raise PlanError(f"{name} takes {ARGUMENTS.get(action, 'no argument')}")
    values: dict[str, Any] = {}
    for word in conditions:
        condition, equals, value = word.partition("=")
        if not equals or condition not in CONDITIONS or condition in values:
            raise PlanError(f"{word} is no condition, or one too many: {', '.join(CONDITIONS)}")
        values[condition] = _number(condition, value) if condition in NUMBERS else value
    argument = 0
    if action is Action.ERROR:
        if arguments[0] not in ErrorCode.__members__:
            raise PlanError(f"there is no error {arguments[0]}")
        argument = int(ErrorCode[arguments[0]])
    elif action is Action.DELAY:
        argument = int(arguments[0])
    named = () if apis == ALL else tuple(apis.split(","))
    return Fault(action, argument, named, **values)


def _number(condition: str, value: str) -> int | None:
    if condition == "times" and value == ALL:
        return None
    return int(value)


def written(faults: Iterable[Fault]) -> str:
    """A plan as text, a line for each fault."""
    return "".join(f"{fault}\n" for fault in faults)


# Chance.

SURVIVABLE = {
    "JoinGroup": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    "SyncGroup": ("REBALANCE_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    "Heartbeat": ("REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "NOT_COORDINATOR"),
    "OffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    "OffsetFetch": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    "FindCoordinator": ("COORDINATOR_NOT_AVAILABLE",),
}
"""Errors after which every client goes on by itself."""

RANDOM_ACTIONS = (
    Action.ERROR,
    Action.ERROR,
    Action.DELAY,
    Action.DROP_RESPONSE,
    Action.DISCONNECT,
    Action.DISCONNECT_AFTER,
)
"""Actions of a random plan. A dropped request looks to a client like a dropped response."""

BEATS_MAX, OTHERS_MAX = 8, 2
"""The highest `nth` of a random plan: for heartbeats, which every short test has many of, and for other requests."""
RANDOM_TIMES_MAX = 3
RANDOM_DELAY_MAX_MS = 500


def random_plan(seed: int, count: int = 10, clients: Collection[str] = ()) -> list[Fault]:
    """Faults that clients should survive; the same for the same arguments. clients: client ids; each fault is for one.

    Without `clients` a fault is for all. `written` gives the text to replay it.
    """
    chance = random.Random(seed)  # noqa: S311 - a test's chance is no secret
    ids = sorted(clients)
    plan = []
    for _ in range(count):
        api = chance.choice(list(SURVIVABLE))
        action = chance.choice(RANDOM_ACTIONS)
        argument = 0
        if action is Action.ERROR:
            argument = int(ErrorCode[chance.choice(SURVIVABLE[api])])
        elif action is Action.DELAY:
            argument = chance.randint(1, RANDOM_DELAY_MAX_MS)
        nth = chance.randint(1, BEATS_MAX if api == "Heartbeat" else OTHERS_MAX)
        times = chance.randint(1, RANDOM_TIMES_MAX)
        client_id = chance.choice(ids) if ids else None
        plan.append(Fault(action, argument, (api,), client_id=client_id, nth=nth, times=times))
    return plan
