"""`tenure watch`: what happens to a group, or to all of them, as it happens.

It prints entries of the timeline (coordinator.client.timeline) when they begin or end, as `explain` has them; JSON is
one event of the topic per line, as it is. It goes on until it is interrupted, which is its ordinary end.

House rule: as explain's.
"""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from coordinator.cli.cluster import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT,
    BootstrapServer,
    OutputForm,
    Timeout,
    cluster,
)
from coordinator.cli.explain import reader_of, timed_lines
from coordinator.cli.output import Output
from coordinator.client.events import Event
from coordinator.client.timeline import Timeline
from coordinator.server.words import cause_text, time_text

WAIT_MS = 500
"""How long one look at the topic may wait for more."""


def command(
    group_id: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="The group's id; default: all groups.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    output: OutputForm = Output.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Tell what happens to groups as it happens, until Ctrl-C."""
    with cluster(bootstrap_server, timeout) as client:
        reader = reader_of(client)
        timelines: dict[str, Timeline] = {}
        for event in reader.read():
            _follow(timelines, event)
        try:
            while True:
                started = time.monotonic()
                for event in reader.poll(WAIT_MS):
                    lines = _follow(timelines, event)
                    if group_id is not None and event["group"] not in {None, group_id}:
                        continue
                    if output is Output.JSON:
                        print(json.dumps(event, ensure_ascii=False), flush=True)
                    else:
                        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
                if time.monotonic() - started < WAIT_MS / 10_000:
                    time.sleep(WAIT_MS / 10_000)
        except KeyboardInterrupt:
            return


def _follow(timelines: dict[str, Timeline], event: Event) -> list[str]:
    """Add an event to its group's timeline; what there is to print of it."""
    if event["group"] is None:
        gap = Timeline("")
        gap.add(event)
        return list(timed_lines(gap.entries[-1]))
    timeline = timelines.setdefault(event["group"], Timeline(event["group"]))
    before = len(timeline.entries)
    timeline.add(event)
    prefix = f"[{event['group']}] "
    match event["type"]:
        case "rebalance_started":
            at, cause = time_text(event["at_ms"]), cause_text(event["cause"])
            return [f"{prefix}{at}  rebalance begins, generation {event['generation']}: {cause}"]
        case "rebalance_cause":
            return [f"{prefix}{time_text(event['at_ms'])}  also: {cause_text(event['cause'])}"]
        case "rebalance_ended":
            entry = next(entry for entry in reversed(timeline.entries) if entry["type"] == "rebalance")
            first, *rest = timed_lines(entry)
            return [f"{prefix}{first}", *rest]
        case "pending_expired" if before:
            return [f"{prefix}{time_text(event['at_ms'])}  member id {event['member_id']} is taken back unused"]
    return [f"{prefix}{line}" for entry in timeline.entries[before:] for line in timed_lines(entry)]
