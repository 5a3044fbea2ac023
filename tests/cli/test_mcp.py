"""`tenure mcp` with the SDK's own client, over standard input and output."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import pytest

from coordinator.cli.exit_codes import ExitCode
from coordinator.cli.mcp import ABOUT, TOOLS
from tests.cli.conftest import MakeGroup, at, make_app, run_app
from tests.support.tenure import tenure_command

pytestmark = pytest.mark.early


def asked(bootstrap: str, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The tools of a server that asks this cluster, and the results of these calls."""
    # To import it takes a second, for which the collection of all tests would wait.
    from mcp import Client, StdioServerParameters  # noqa: PLC0415
    from mcp.client.stdio import stdio_client  # noqa: PLC0415

    async def ask() -> tuple[list[Any], list[Any]]:
        program, *words = tenure_command()
        server = StdioServerParameters(command=program, args=[*words, "mcp", *at(bootstrap)])
        async with Client(stdio_client(server, errlog=sys.__stderr__ or sys.stderr)) as client:
            return (await client.list_tools()).tools, [await client.call_tool(name, each) for name, each in calls]

    return asyncio.run(ask())


def test_tools_answer_as_the_commands_do(bootstrap: str, make_group: MakeGroup) -> None:
    """All tools only read. Their words and their JSON are those of the commands."""
    name = make_group(["one", "two"])
    tools, answers = asked(
        bootstrap,
        ("list_groups", {}),
        ("describe_group", {"group": name}),
        ("explain_group", {"group": name}),
        ("doctor", {"group": name}),
        ("lag", {"group": name}),
        ("events", {"group": name, "minutes": 5}),
    )

    def run(*words: str) -> Any:
        return run_app(make_app(words[0]), *words, *at(bootstrap))

    assert [tool.name for tool in tools] == [
        "list_groups",
        "describe_group",
        "explain_group",
        "doctor",
        "lag",
        "events",
    ]
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert not any(answer.is_error for answer in answers)
    listed, described, explained, doctor, lag, events = (answer.structured_content for answer in answers)
    assert name in {group["group_id"] for group in listed["groups"]}
    [group] = run("groups", "describe", name, "--output", "json").json
    assert described == {key: value for key, value in group.items() if key not in {"lag", "topics", "offsets"}}
    assert explained == run("explain", name, "--output", "json").json
    assert answers[2].content[0].text + "\n" == run("explain", name).out
    assert [each["kind"] for each in doctor["findings"]] == [
        each["kind"] for each in run("doctor", name, "--output", "json").json
    ]
    assert answers[3].content[0].text.endswith(run("doctor", name).out.splitlines()[-1])
    assert lag["partitions"] == len(group["offsets"])
    assert "rebalance_ended" in {event["type"] for event in events["events"]}


def test_commands_that_the_instructions_name_are_tools() -> None:
    """Advice names commands: a program that has tools alone finds the tool for each."""
    assert {"explain_group", "doctor", "list_groups", "describe_group", "lag"} <= TOOLS.keys()
    for command, tool in (("explain", "explain_group"), ("groups list", "list_groups"), ("doctor", "doctor")):
        assert re.search(rf"`tenure {command}` (is )?{tool}\b", ABOUT)


def test_a_failed_tool_says_why(bootstrap: str) -> None:
    """The answer is the line with which the command ends, and the next question is answered."""
    _, (absent, listed) = asked(bootstrap, ("explain_group", {"group": "none"}), ("list_groups", {}))
    assert absent.is_error
    assert absent.content[0].text == "Error executing tool explain_group: no such group, and no events of one: none"
    assert not listed.is_error


def test_without_the_package_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK is an extra."""
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    ran = run_app(make_app("mcp"), "mcp")
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert "pip install 'tenure[mcp]'" in ran.err
