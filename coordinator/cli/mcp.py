"""`tenure mcp`: answers a program that speaks the Model Context Protocol, over standard input and output.

Each tool is a command that reads, and its answer is what the command prints: the words as text, and the JSON as
structured content. A failed tool has the line that the command would end with. Tools run on threads, so one that looks
for 30 s keeps no other waiting.

House rule: no tool changes anything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from coordinator.cli.cluster import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, Timeout, cluster
from coordinator.cli.doctor import doctor_lines, findings
from coordinator.cli.exit_codes import Ended, ExitCode, fail
from coordinator.cli.explain import explained, reader_of
from coordinator.client.client import Client
from coordinator.client.examination import wall_ms, watch_lag
from coordinator.client.groups import described_group, list_groups, listed_json
from coordinator.client.lag import group_lag_json
from coordinator.story.described import group_json
from coordinator.story.events import fields_of
from coordinator.story.lag_words import lag_lines

ABOUT = (
    "Answers about the consumer groups of a Kafka cluster: why a group rebalanced, whether it is stuck, its members, "
    "and its lag. Begin with doctor for a problem, with explain_group for a rebalance. Nothing can be changed. "
    "Advice names commands for a person to run. Tools here: `tenure explain` is explain_group, `tenure doctor` "
    "doctor, `tenure groups list` list_groups, `tenure groups describe` describe_group, with --lag-time lag."
)

EVENTS_MAX = 500
"""The newest events in an answer."""

LAG_SECONDS_MAX = 60
"""A program that asks waits for the answer."""

Answer = tuple[Any, str]
"""The JSON, and the words."""


def list_all_groups(client: Client) -> Answer:
    """List the groups of the cluster with their types and states."""
    groups = list_groups(client)
    words = [f"{group.group_id}: {group.state or 'state unknown'}, {group.group_type or 'classic'}" for group in groups]
    return {"groups": list(map(listed_json, groups))}, "\n".join(words) or "no groups"


def describe_group(client: Client, group: str) -> Answer:
    """Describe a group: state, members with their clients and hosts, and the topic partitions that each member has."""
    told = group_json(described_group(client, group))
    return told, json.dumps(told, ensure_ascii=False)


def explain_group(client: Client, group: str, last: int = 20) -> Answer:
    """Explain why a group rebalanced: its newest entries with causes, and what moved; whom it waits for at present."""
    told, lines = explained(client, group, last=last)
    return told, "\n".join(lines)


def doctor(client: Client, group: str = "") -> Answer:
    """Find what is wrong with a group, or with all groups if none is named, and what to do. It may take 30 seconds."""
    wanted, found, undecided = findings(client, group or None)
    words = "\n".join(doctor_lines(wanted, found, undecided, every=not group))
    return {"groups": len(wanted), "findings": list(map(fields_of, found))}, words


def lag(client: Client, group: str, seconds: int = 12) -> Answer:
    """Tell how far a group is behind: committed offsets, ends of logs, and lag in records and in time.

    It looks for some seconds, for the rates at which records come and are read, and whether the group catches up.
    """
    looked = described_group(client, group)
    lines, times = watch_lag(client, [looked], min(max(seconds, 0), LAG_SECONDS_MAX), wall_ms, time.sleep)
    known = times.of(group)
    told = group_lag_json(group, lines[group], known._replace(past={}))
    return told, "\n".join((*lag_lines(group, known), json.dumps(told, ensure_ascii=False)))


def events(client: Client, group: str = "", minutes: int = 60) -> Answer:
    """List the newest events of a group, or of all groups, in the last minutes; explain_group has them in words."""
    reader = reader_of(client, group or None, time.time_ns() // 1_000_000 - minutes * 60_000)
    found = sorted(reader.read(), key=lambda event: event.at_ms)
    told = {"events": list(map(fields_of, found[-EVENTS_MAX:])), "further_events": max(len(found) - EVENTS_MAX, 0)}
    return told, json.dumps(told, ensure_ascii=False)


TOOLS: dict[str, Callable[..., Answer]] = {
    "list_groups": list_all_groups,
    "describe_group": describe_group,
    "explain_group": explain_group,
    "doctor": doctor,
    "lag": lag,
    "events": events,
}


def command(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = None,
) -> None:
    """Serve tools that ask about groups to a client of the Model Context Protocol, over standard input and output."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import CallToolResult, TextContent, ToolAnnotations
    except ModuleNotFoundError:
        fail(ExitCode.USAGE, "the package mcp is missing: pip install 'tenure[mcp]'")

    def answered(ask: Callable[..., Answer], arguments: dict[str, Any]) -> CallToolResult:
        try:
            with cluster(bootstrap_server, timeout, command_config) as client:
                told, words = ask(client, **arguments)
        except Ended as ended:
            raise ToolError(ended.message) from None
        return CallToolResult(content=[TextContent(type="text", text=words)], structured_content=told)

    server = MCPServer("tenure", instructions=ABOUT, version=version("tenure"), log_level="ERROR")
    for name, ask in TOOLS.items():
        server.add_tool(
            _with_arguments(ask, answered),
            name,
            description=ask.__doc__,
            annotations=ToolAnnotations(read_only_hint=True),
            structured_output=False,
        )
    server.run()


def _with_arguments(ask: Callable[..., Answer], answered: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the arguments of `ask`, but for the client: the SDK makes a tool's schema of them."""
    from inspect import Signature, signature

    def tool(**arguments: Any) -> Any:
        return answered(ask, arguments)

    parameters = list(signature(ask, eval_str=True).parameters.values())[1:]
    tool.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return tool
