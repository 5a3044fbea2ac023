"""`tenure groups`: list, describe and delete the groups of a cluster, Tenure's or Apache Kafka's.

The columns are those of Kafka's consumer-groups tool; epochs and targets are there if a group has them (KIP-848). JSON
is a list of groups: `group_id`, `state`, `protocol_type`, `protocol_name`, `coordinator`, `members` and, unless the
options ask for something else, `lag`, `topics` and `offsets`.

House rule: a command prints what it found even if something else is missing; the exit code reports the missing part.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster, refusal
from coordinator.cli.exit_codes import ExitCode, end, fail, warn
from coordinator.cli.options import Command, OutputForm, argument, commands, flag, names_or_all, number_or_none, option
from coordinator.cli.output import Output, assignment_text, print_json, print_table, show
from coordinator.client.client import Client
from coordinator.client.errors import OtherKind, Refused, error_name
from coordinator.client.examination import wall_ms, watch_lag
from coordinator.client.groups import delete_groups, describe_groups, described_group, list_groups, listed_json
from coordinator.client.lag import group_lag_json, line_json, line_time, offset_lines
from coordinator.client.transactions import blocking_transactions
from coordinator.story.described import SHARE, Group, Member, group_json
from coordinator.story.entries import REBALANCING
from coordinator.story.lag_time import GroupLag, LagTime, LagTimes
from coordinator.story.offsets import OffsetLine
from coordinator.story.schema import STREAMS
from coordinator.text import address_text, several
from schemas.errors import ErrorCode

STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
    "Dead",
    "Assigning",
    "Reconciling",
    "NotReady",
)
"""The states of a group; the last three exist only with Kafka's newer protocols (KIP-848, KIP-1071)."""
OF_CLIENTS = {"group_instance_id", "client_id", "client_host"}
"""Fields of a topic partition that JSON leaves out, because `members` has them."""

OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
STABLE_COLUMN = "STABLE-LAG"
LAG_TIME_COLUMNS = ("BEHIND", "IN/S", "OUT/S", "CATCH-UP")
MEMBER_COLUMNS = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
SEAT_COLUMNS = ("CURRENT-EPOCH", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED")
"""Only members of groups of the consumer protocol have these (KIP-848). UPGRADED: false for a classic client."""
TASK_COLUMNS = ("PROCESS", "ACTIVE-TASKS", "STANDBY-TASKS", "WARMUP-TASKS")
"""Only members of streams groups have these (KIP-1071): the tasks of each subtopology."""
STANDBY_COLUMN = "STANDBY"
"""Only groups with standbys have it (docs/run/seats.md). The last column, so that scripts find it behind any other."""
STATE_COLUMNS = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE")
EPOCH_COLUMNS = ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH")
"""Only groups of the newer protocols have these."""
TOPOLOGY_COLUMN = "TOPOLOGY-EPOCH"
"""Only streams groups have it."""

Named = Annotated[list[str] | None, option("--group", "GROUP", "A group id, as for Kafka's tool; may be repeated.")]

app = commands("List, describe, wait for, set and delete groups.")


@app.command("list", cls=Command)
def list_command(
    state: Annotated[
        list[str] | None, option("--state", "STATE", "Only groups in this state; may be repeated.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """List the groups of the cluster."""
    states = states_named(state or [])
    with cluster(bootstrap_server, timeout, command_config) as client:
        groups = list_groups(client, states)
    value = [listed_json(group) for group in groups]
    show(output, value, ("GROUP", "TYPE", "PROTOCOL", "STATE"), [tuple(each.values()) for each in value])


@app.command("describe", cls=Command)
def describe_command(
    group_ids: Annotated[list[str] | None, argument("GROUP", "Group ids.")] = None,
    named: Named = None,
    every: Annotated[bool, flag("--all", "Describe every group.")] = False,
    offsets: Annotated[bool, flag("--offsets", "Committed offsets and lag (the default).")] = False,
    members: Annotated[bool, flag("--members", "Members and their assignments.")] = False,
    state: Annotated[bool, flag("--state", "State and coordinator.")] = False,
    lag_time: Annotated[
        int | None,
        option(
            "--lag-time",
            "SECONDS",
            "Look for this time, and show lag in time: the age of the oldest record to read, the rates at which "
            "records come and are read, and when the group has read all. Clients commit every 5 s by default.",
            number_or_none,
        ),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Describe groups: their offsets, members or state."""
    group_ids = [*(group_ids or []), *(named or [])]
    names_or_all("name the groups to describe", is_named=bool(group_ids), are_all=every)
    if offsets + members + state > 1:
        fail(ExitCode.USAGE, "--offsets, --members and --state exclude each other")
    if lag_time is not None and (members or state):
        fail(ExitCode.USAGE, "--lag-time is about offsets: leave --members and --state out")
    times = LagTimes()
    with cluster(bootstrap_server, timeout, command_config) as client:
        groups, failures = _describe(client, group_ids)
        lines: Mapping[str, Sequence[OffsetLine]] = {}
        if lag_time is not None or (output is Output.JSON and not (members or state)):
            lines, times = watch_lag(client, groups, lag_time or 0, wall_ms, time.sleep)
        elif not (members or state):
            lines = offset_lines(client, groups)
        _warn_of_open_transactions(client, lines.values())
    if output is Output.JSON:
        print_json([_group_json(group, lines.get(group.group_id), times.of(group.group_id)) for group in groups])
    elif groups or not failures:
        for group in groups:
            _remark(group)
        if state:
            _print_states(groups)
        elif members:
            _print_members(groups)
        else:
            _print_offsets(groups, lines, None if lag_time is None else times)
    end(failures)


@app.command("delete", cls=Command)
def delete_command(
    group_ids: Annotated[list[str] | None, argument("GROUP", "Group ids.")] = None,
    named: Named = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = None,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    group_ids = [*(group_ids or []), *(named or [])]
    if not group_ids:
        fail(ExitCode.USAGE, "name the groups to delete")
    with cluster(bootstrap_server, timeout, command_config) as client:
        answers = delete_groups(client, group_ids)
    errors = {
        group_id: error_name(answer.error_code) if isinstance(answer, Refused) else None
        for group_id, answer in answers.items()
    }
    if output is Output.JSON:
        print_json([{"group_id": group_id, "error": error} for group_id, error in errors.items()])
    elif deleted := [group_id for group_id, error in errors.items() if error is None]:
        print_table(("GROUP", "RESULT"), [(group_id, "deleted") for group_id in deleted])
    end([group_failure(group_id, answer) for group_id, answer in answers.items() if isinstance(answer, Refused)])


def group_failure(group_id: str, refused: Refused) -> tuple[ExitCode, str]:
    """The exit code and the line for an error about a whole group."""
    if isinstance(refused, OtherKind):
        return ExitCode.OTHER_KIND, str(refused)
    if refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return ExitCode.NOT_FOUND, f"no such group: {group_id}"
    if refused.error_code == ErrorCode.NON_EMPTY_GROUP:
        return ExitCode.REFUSED, f"group {group_id} still has members, so it is not deleted: stop them first"
    return ExitCode.REFUSED, refusal(refused)


def group_of_consumers(client: Client, group_id: str) -> Group:
    """A group that may have static members, which share and streams groups have not; without it the command ends."""
    try:
        return described_group(client, group_id, besides=(SHARE, STREAMS))
    except Refused as refused:
        fail(*group_failure(group_id, refused))


def states_named(given: Sequence[str]) -> list[str]:
    """The states as Kafka writes them. The input may be in any case, and one option may hold several with commas."""
    by_name = {state.lower(): state for state in STATES}
    names = [name.strip() for text in given for name in text.split(",")]
    for name in names:
        if name.lower() not in by_name:
            fail(ExitCode.USAGE, f"--state: {name!r} is none of {', '.join(STATES)}")
    return [by_name[name.lower()] for name in names]


def _describe(client: Client, group_ids: Sequence[str] | None) -> tuple[list[Group], list[tuple[ExitCode, str]]]:
    """Describe these groups, or all groups for None; returns the described groups and the failures of the others."""
    every = group_ids is None or not group_ids
    if every:
        group_ids = [group.group_id for group in list_groups(client)]
    answers = describe_groups(client, group_ids or [])
    groups = [answer for answer in answers.values() if isinstance(answer, Group)]
    failures = [group_failure(group_id, answer) for group_id, answer in answers.items() if isinstance(answer, Refused)]
    if every:  # a group may disappear between the two requests
        failures = [failure for failure in failures if failure[0] is not ExitCode.NOT_FOUND]
    return groups, failures


def _remark(group: Group) -> None:
    """Warn about a state of the group that the table doesn't show."""
    if group.state in REBALANCING:
        warn(f"group {group.group_id} is rebalancing")
    elif not group.members:
        held = 0 if group.expects is None else group.expects.held
        warn(f"group {group.group_id} has no members" + (f"; {several(held, 'join')} held for others" if held else ""))


def _warn_of_open_transactions(client: Client, lines: Iterable[Sequence[OffsetLine]]) -> None:
    """Name transactions that hold back readers, where there is a lag; no server knows what a group's members read."""
    ends = {
        (line.topic, line.partition): line.log_end_offset
        for of_group in lines
        for line in of_group
        if line.topic is not None and line.partition is not None and line.log_end_offset and line.lag != 0
    }
    for (topic, index), holder in sorted(blocking_transactions(client, ends).items()):
        warn(
            f"{topic}-{index}: readers of committed records wait at {holder.start_offset}, for the transaction of "
            f"{holder.producer_text}"
        )


def _print_offsets(groups: Sequence[Group], lines: Mapping[str, Sequence[OffsetLine]], times: LagTimes | None) -> None:
    """Print the offsets of groups. times: their lag in time, to print too."""
    has_stable = any(line.stable_offset is not None for own in lines.values() for line in own)
    place = OFFSET_COLUMNS.index("LAG") + 1
    more = (*((STABLE_COLUMN,) if has_stable else ()), *(() if times is None else LAG_TIME_COLUMNS))
    rows = []
    for group in groups:
        known = None if times is None else times.of(group.group_id)
        for line in lines[group.group_id]:
            who = (
                (line.member.member_id, line.member.client_host, line.member.client_id) if line.member else (None,) * 3
            )
            offsets = (line.current_offset, line.log_end_offset, line.lag)
            stable = (line.stable_lag,) if has_stable else ()
            in_time = () if known is None else _lag_time_row(line_time(line, known))
            rows.append((group.group_id, line.topic, line.partition, *offsets, *stable, *in_time, *who))
    print_table((*OFFSET_COLUMNS[:place], *more, *OFFSET_COLUMNS[place:]), rows)


def _lag_time_row(known: LagTime | None) -> tuple[str | None, ...]:
    if known is None:
        return (None,) * len(LAG_TIME_COLUMNS)
    rates = (None, None) if known.rates is None else tuple(f"{each:.1f}" for each in known.rates)
    wait = None
    if known.is_wait_known:
        wait = "never" if known.catch_up_s is None else "keeps up" if known.keeps_up else f"{known.catch_up_s:.1f}s"
    return f"{'>' if known.is_least else ''}{known.behind_ms / 1000:.1f}s", *rates, wait


def _print_members(groups: Sequence[Group]) -> None:
    members = [(group, member) for group in groups for member in group.members]
    has_seats = any(member.seat is not None for _, member in members)
    has_tasks = any(member.streams is not None for _, member in members)
    has_standbys = any(member.is_standby for _, member in members)
    rows = [
        (
            *member_row(group.group_id, member),
            *(_seat_row(group, member) if has_seats else ()),
            *(_task_row(member) if has_tasks else ()),
            *((_truth(member.is_standby),) if has_standbys else ()),
        )
        for group, member in members
    ]
    further = ((has_seats, SEAT_COLUMNS), (has_tasks, TASK_COLUMNS), (has_standbys, (STANDBY_COLUMN,)))
    print_table((*MEMBER_COLUMNS, *(name for are_there, names in further if are_there for name in names)), rows)


def _seat_row(group: Group, member: Member) -> tuple[object, ...]:
    """The values of a member for SEAT_COLUMNS."""
    if member.seat is None or group.consumer is None:
        return (None,) * len(SEAT_COLUMNS)
    target = assignment_text(member.seat.target)
    return member.seat.epoch, group.consumer.target_epoch, target, _truth(not member.seat.is_classic)


def _task_row(member: Member) -> tuple[object, ...]:
    """The values of a member for TASK_COLUMNS."""
    if member.streams is None:
        return (None,) * len(TASK_COLUMNS)
    tasks = member.streams.tasks
    return member.streams.process_id, *map(assignment_text, (tasks.active, tasks.standby, tasks.warmup))


def _truth(value: object) -> str:
    """As in the tables of Kafka's tools."""
    return str(value).lower()


def member_row(group_id: str, member: Member) -> tuple[object, ...]:
    """The values of a member for MEMBER_COLUMNS."""
    return (
        group_id,
        member.member_id,
        member.group_instance_id,
        member.client_host,
        member.client_id,
        len(member.topic_partitions),
        assignment_text(member.assignment),
    )


def _print_states(groups: Sequence[Group]) -> None:
    has_epochs = any(group.consumer is not None for group in groups)
    has_topologies = any(group.topology is not None for group in groups)
    rows = []
    for group in groups:
        node = group.coordinator
        coordinator = f"{address_text(node.host, node.port)} ({node.node_id})"
        epochs: tuple[int | None, ...] = ()
        if has_epochs:
            consumer = group.consumer
            epochs = (None, None) if consumer is None else (consumer.group_epoch, consumer.target_epoch)
        if has_topologies:
            epochs = (*epochs, None if group.topology is None else group.topology.epoch)
        rows.append((group.group_id, coordinator, group.protocol_name, group.state, *epochs, len(group.members)))
    headings = (*STATE_COLUMNS, *(EPOCH_COLUMNS if has_epochs else ()), *([TOPOLOGY_COLUMN] if has_topologies else ()))
    print_table((*headings, "#MEMBERS"), rows)


def _group_json(group: Group, lines: Sequence[OffsetLine] | None, known: GroupLag) -> dict[str, Any]:
    """A group as JSON; with its lag and the offsets of its topic partitions unless `lines` is None."""
    value = group_json(group)
    if lines is not None:
        told = group_lag_json(group.group_id, lines, known)
        value["lag"] = {name: field for name, field in told.items() if name not in {"group_id", "past", "topics"}}
        value["topics"] = [
            {name: field for name, field in topic.items() if name not in {"past", "offsets"}}
            for topic in told["topics"]
        ]
        value["offsets"] = [
            {"topic": line.topic}
            | {name: field for name, field in line_json(line, known).items() if name not in OF_CLIENTS}
            for line in lines
            if line.topic is not None
        ]
    return value
