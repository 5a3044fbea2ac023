"""`tenure watch`: shows what happens to a group, or to all groups, as it happens.

A rebalance has a line when it begins, with its cause, and a line when it ends, with its outcome; each line has its own
time. If a rebalance is over before watch reads of it, watch prints both lines at once. Each other entry of the timeline
(coordinator.story.entries) has a line, as in `explain`. One poll may return events of several groups and nodes:
watch sorts their lines by time. JSON is one event of the topic per line, unchanged.

Watch runs until Ctrl-C; that is its ordinary end. While a server is away watch tries again. Standard error says once
that the server is away, as soon as the connection ends, and once that it is back; watch then reads the events that it
missed.

On a cluster that keeps no events, such as Apache Kafka, they are inferred from `__consumer_offsets`: a rebalance shows
when its assignments are written.

House rule: if something isn't known, the command says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Annotated, NamedTuple

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, cluster
from coordinator.cli.exit_codes import ExitCode, fail, warn
from coordinator.cli.explain import described, reader_of
from coordinator.cli.options import OutputForm, argument, option, seconds
from coordinator.cli.output import Output, json_text
from coordinator.client.client import Client
from coordinator.client.errors import ClientError, Unauthenticated
from coordinator.client.events import NoEvents, absent_line
from coordinator.client.offsets_log import GroupReader, OffsetsReader, cut_line
from coordinator.story.entries import Entry, Return, Timeline
from coordinator.story.events import (
    Cause,
    GroupDeleted,
    GroupLoaded,
    MemberFenced,
    MemberRevoking,
    RebalanceCause,
    RebalanceEnded,
    RebalanceEvent,
    RebalanceStarted,
    TargetAssigned,
    fields_of,
)
from coordinator.story.words import (
    cause_text,
    clients_of,
    counter_name,
    end_lines,
    marked_text,
    revoking_text,
    target_text,
    timed_lines,
)
from coordinator.text import duration_text, printable, several, time_text

WAIT_MS = 500
"""How long one poll of the topic may wait for events; at most half of the time that an answer may take."""

RETURNS_KEPT = 10_000
"""Returns of static members that may still turn out to be takeovers: some megabytes."""

PAUSE_S = 0.5
"""Pause between two tries while the server is away."""


def command(
    group_id: Annotated[str | None, argument("GROUP", "The group's id; default: all groups.")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
    timeout: Annotated[
        float | None,
        option(
            "--timeout",
            "SECONDS",
            "How long to wait for an answer, and at the start, how long to try before giving up; without it "
            "request.timeout.ms of the client properties, or 5.",
            seconds,
        ),
    ] = None,
) -> None:
    """Show what happens to groups as it happens, until Ctrl-C; if the server goes away, try again until it is back."""
    with cluster(bootstrap_server, timeout, command_config) as client:
        reader = reader_of(client, group_id)
        reader.begin_with(0)
        if group_id is not None and described(client, group_id) is None:
            warn(f"no such group yet: {group_id}")
        what = "all groups" if group_id is None else f"group {group_id}"
        warn(f"watching {what} of {bootstrap_server}, until Ctrl-C")
        shown = EventLines()
        try:
            for events in follow(client, reader):
                if output is Output.JSON:
                    lines = [json_text(fields_of(event)) for event in events]
                else:
                    lines = [printable(line) for line in shown.lines(events)]
                for line in lines:
                    print(line, flush=True)
        except KeyboardInterrupt:
            return
        except NoEvents as error:  # the server is back, but it keeps no events
            fail(ExitCode.REFUSED, str(error))


def follow(client: Client, reader: GroupReader) -> Iterator[list[RebalanceEvent]]:
    """Yield events as they come, without end; warn when the server is away, and when it is back."""
    client.try_once()
    wait_ms = min(WAIT_MS, int(client.timeout * 1000 / 2))
    problem: ClientError | None = None
    absent = reader.absent
    if isinstance(reader, OffsetsReader):
        reader.on_cut = lambda cut: warn(f"{time_text(time.time_ns() // 1_000_000)} {cut_line(cut)}")
    while True:
        started = time.monotonic()
        former = problem
        try:
            if problem is not None:
                reader.find_again()
            events, problem = reader.poll_each(wait_ms)
        except NoEvents:
            raise
        except ClientError as error:
            events, problem = [], error
        yield events
        if isinstance(problem, Unauthenticated):
            raise problem  # a server that is back wouldn't cure it
        now = time_text(time.time_ns() // 1_000_000)
        if reader.absent not in {absent, ()}:
            warn(f"{now} {absent_line(reader.absent, reader.topic, reader.absent_nodes)}")
        absent = reader.absent
        if problem is not None and former is None:
            warn(f"{now} the server is away, trying again until Ctrl-C: {problem}")
        elif problem is None and former is not None:
            warn(f"{now} the server is back")
        if problem is not None:
            time.sleep(PAUSE_S)
        elif time.monotonic() - started < wait_ms / 10_000:
            time.sleep(wait_ms / 10_000)


class Block(NamedTuple):
    """A line with its time (Unix time in ms), and the lines that belong below it."""

    at_ms: int
    lines: list[str]


class EventLines:
    """Turns events into lines; it prints each cause of a rebalance only once."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[int, int]] = {}
        """By group, the open rebalance: the generation that it ends, and the number of causes that were printed."""
        self._returns: dict[str, str] = {}
        """By former member id, the time of the newest returns of static members, as text."""

    def lines(self, events: Iterable[RebalanceEvent]) -> Iterator[str]:
        """The lines for the next events, in the order of their times."""
        # The sort is stable: lines with the same time stay in the order in which they came.
        for block in sorted((block for event in events for block in self._blocks(event)), key=attrgetter("at_ms")):
            yield from block.lines

    def _blocks(self, event: RebalanceEvent) -> Iterator[Block]:
        group = event.group
        prefix, at_ms, at = f"[{group}] ", event.at_ms, time_text(event.at_ms)
        match event:
            case RebalanceStarted():
                self._begun[event.group] = event.generation, 1
                yield _begins(event, at_ms, event.generation, event.cause)
            case RebalanceCause():
                if event.group in self._begun:
                    generation, causes = self._begun[event.group]
                    self._begun[event.group] = generation, causes + 1
                yield Block(at_ms, [f"{prefix}{at}  also: {marked_text(event.cause, event)}"])
            case TargetAssigned():
                yield Block(at_ms, [f"{prefix}{at}  {target_text(event)}"])
            case MemberRevoking():
                yield Block(at_ms, [f"{prefix}{at}  {revoking_text(event)}"])
            case RebalanceEnded() if event.preparing_ms is not None:
                generation, causes = self._begun.pop(event.group, (event.generation_before, 0))
                yield from _ended(prefix, event, causes if generation == event.generation_before else 0)
            case _:
                if isinstance(event, GroupDeleted | GroupLoaded):
                    self._begun.pop(event.group, None)
                entries = Timeline(group or "").add_all([event]).entries
                if not entries:  # it adds to the entry of another event
                    yield from (Block(at_ms, [f"{prefix}{at}  {line}"]) for line in event.lines())
                for entry in entries:
                    first, *more = timed_lines(entry)
                    yield Block(at_ms, [first if group is None else prefix + first, *more, *self._takeover(entry)])

    def _takeover(self, entry: Entry) -> Iterator[str]:
        """A line under a fencing that shows that a return, which was printed before, was a takeover."""
        if isinstance(entry, Return):
            self._returns[entry.event.old_member_id] = time_text(entry.at_ms)
            if len(self._returns) > RETURNS_KEPT:
                del self._returns[next(iter(self._returns))]
        elif isinstance(entry.event, MemberFenced) and entry.event.is_conflict:
            returned_at = self._returns.pop(entry.event.member_id, None)
            if returned_at is not None:
                yield f"    the return of {returned_at} was a takeover: the former program still runs"


def _begins(event: RebalanceStarted | RebalanceEnded, at_ms: int, generation: int, cause: Cause) -> Block:
    name, text = counter_name(event.group_type), marked_text(cause, event)
    return Block(at_ms, [f"[{event.group}] {time_text(at_ms)}  rebalance begins, {name} {generation}: {text}"])


def _ended(prefix: str, event: RebalanceEnded, causes_shown: int) -> Iterator[Block]:
    """The lines for the end of a rebalance, after those for its beginning if none of its causes was printed."""
    before, after = event.generation_before, event.generation
    name = counter_name(event.group_type)
    if not causes_shown:
        yield _begins(event, event.began_ms, before, event.causes[0])
    (entry,) = Timeline(event.group).add_all([event]).entries
    outcome, *more = end_lines(event, clients_of(entry))
    generations = f"{name} {before}" + (f" -> {after}" if after != before else "")
    took = duration_text(event.at_ms - event.began_ms)
    lines = [f"{prefix}{time_text(event.at_ms)}  rebalance ended after {took}, {generations}: {outcome}"]
    lines += [f"    also: {cause_text(cause)}" for cause in event.causes[max(causes_shown, 1) :]]
    if event.further_causes:
        lines.append(f"    and {several(event.further_causes, 'further cause')}")
    yield Block(event.at_ms, lines + [f"    {line}" for line in more])
