"""All views of the same life of a group have the same numbers: explain, watch, doctor, the page, and the audit."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator.audit.audit import AuditResult
from coordinator.audit.show.page import page
from coordinator.cli.watch import EventLines
from coordinator.client.client import Client
from coordinator.client.events import EventReader
from coordinator.story.counts import REJOIN, RESTART, TAKEOVER
from coordinator.story.schema import EVENTS_TOPIC
from tests.audit.audited import audited
from tests.audit.outage import GROUP, QUIET, SETTINGS, WANTED, live
from tests.cli.conftest import make_app, run_app
from tests.support.patience import WITHIN_S
from tests.support.scripted import hang_up
from tests.support.tenure import Tenure, wait_until

GROUPS = [GROUP, QUIET]


class Seen(NamedTuple):
    """The answers of the views while the server ran, and its data folder afterwards."""

    explained: dict[str, Any]
    explained_lines: dict[str, str]
    watched: dict[str, list[str]]
    doctored: str
    page_list: dict[str, Any]
    page_entries: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Live, ask every view, and end the server."""
    folder = tmp_path_factory.mktemp("outage")
    with Tenure(SETTINGS, directory=folder) as server:
        live(server)

        def command(name: str, *arguments: str) -> str:
            return run_app(make_app(name), name, *arguments, "--bootstrap-server", server.bootstrap).out

        def explained(group: str) -> Any:
            return json.loads(command("explain", group, "--output", "json"))["timeline"]

        def ended() -> bool:
            rebalances = [each for each in explained(GROUP) if each["type"] == "rebalance"]
            return len(rebalances) >= WANTED[GROUP]["rebalance"] and rebalances[-1]["outcome"] == "completed"

        wait_until(ended, "the last rebalance is told", WITHIN_S)
        url = server.events("http_listening")[-1]["url"]

        def asked(path: str) -> Any:
            with urllib.request.urlopen(url + path, timeout=WITHIN_S) as answer:
                return json.load(answer)

        with Client(server.bootstrap) as client:
            events = EventReader(client).read()
        shown = EventLines()
        watched = [line for event in events for line in shown.lines([event])]
        of_group = {group: [line for line in watched if line.startswith(f"[{group}] ")] for group in GROUPS}
        of_group[GROUP] += [line for line in watched if "was a takeover" in line]
        found = Seen(
            {group: explained(group) for group in GROUPS},
            {group: command("explain", group) for group in GROUPS},
            of_group,
            command("doctor", "--all"),
            {each["group_id"]: each for each in asked("overview")},
            {group: asked(f"groups/{group}/events")["timeline"] for group in GROUPS},
            server.data_dir,
        )
        hang_up()
        server.stop()
        yield found


def by_type(entries: list[dict[str, Any]]) -> dict[str, int]:
    """The numbers of WANTED, from entries."""
    counted = Counter(entry["type"] for entry in entries)
    return {name: counted[name] for name in WANTED[GROUP]}


def numbers(result: AuditResult, group: str) -> dict[str, int]:
    """The numbers of WANTED, from a story."""
    (story,) = [story for story in result.stories if story.group == group]
    assert not story.at_least
    assert not story.returns
    returns = {RESTART: story.static_restarts, REJOIN: story.static_rejoins, TAKEOVER: story.takeovers}
    return {"rebalance": story.rebalances, **{name: counted.total() for name, counted in returns.items()}}


@pytest.mark.parametrize("group", GROUPS)
def test_all_views_count_alike(seen: Seen, group: str) -> None:
    """Every view has the numbers of what happened, in JSON and in lines."""
    wanted = WANTED[group]
    assert by_type(seen.explained[group]) == wanted
    assert by_type(seen.page_entries[group]) == wanted
    in_list = seen.page_list[group]
    assert wanted == {
        "rebalance": in_list["rebalances"], "static_restart": in_list["static_restarts"],
        "static_rejoin": in_list["static_rejoins"], "takeover": in_list["takeovers"],
    }  # fmt: skip
    assert in_list["suspect_restarts"] == 0
    assert numbers(audited(seen.folder), group) == wanted
    lines = seen.explained_lines[group].splitlines()
    starts = {
        "rebalance": "rebalance, generation", "static_restart": "restart: ",
        "static_rejoin": "rejoin after an outage: ", "takeover": "takeover: ",
    }  # fmt: skip
    assert wanted == {
        name: len([line for line in lines if re.match(f"[0-9][^ ]* [^ ]*Z  {text}", line)])
        for name, text in starts.items()
    }
    # Watch tells a return as it comes, and says so when it turns out to be a takeover.
    watched = Counter(name for line in seen.watched[group] for name, text in WATCHED.items() if text in line)
    watched["static_restart"] -= watched["takeover"]
    assert {name: watched[name] for name in wanted} == wanted


WATCHED = {
    "rebalance": "Z  rebalance begins, ", "static_restart": "Z  restart: ",
    "static_rejoin": "Z  rejoin after an outage: ", "takeover": " was a takeover: ",
}  # fmt: skip


def test_the_doctor_has_the_same_numbers(seen: Seen) -> None:
    """Its rebalances are those of the other views; a takeover is one error; a rejoin is no loop of restarts."""
    assert f" of {WANTED[GROUP]['rebalance']} rebalances in the last " in seen.doctored
    assert seen.doctored.count("two programs had the instance id") == WANTED[GROUP]["takeover"]
    assert "in a loop" not in seen.doctored


def test_the_audit_says_what_the_doctor_says(seen: Seen) -> None:
    """A conflict has the same severity and the same text in both, with its true number of fencings."""
    (found,) = [each for each in audited(seen.folder).findings if each.check == "instance_contested"]
    detail = json.loads(found.detail)
    assert (found.severity, detail["fencings"]) == ("error", 1)
    assert f"{GROUP}: error: {detail['found']} (last at " in seen.doctored


def test_the_log_alone_says_at_least(seen: Seen, tmp_path: Path) -> None:
    """Without events the log has no rebalance that got no generation, and no kind of a return; the audit says so."""
    folder = shutil.copytree(seen.folder, tmp_path / "log")
    for events in folder.glob(f"{EVENTS_TOPIC}-*"):
        shutil.rmtree(events)
    result = audited(folder)
    stories = {story.group: story for story in result.stories}
    wanted = WANTED[GROUP]
    assert all(story.at_least for story in stories.values())
    assert stories[QUIET].rebalances == WANTED[QUIET]["rebalance"]
    assert stories[GROUP].rebalances == wanted["rebalance"] - 1
    assert stories[GROUP].return_count == sum(wanted.values()) - wanted["rebalance"]
    assert (stories[GROUP].static_restarts, stories[GROUP].static_rejoins, stories[GROUP].takeovers) == ({}, {}, {})
    text = page(result)
    assert f"At least {wanted['rebalance'] - 1} rebalances" in text
    assert "at least 4 returns (restarts, takeovers or rejoins: the log doesn&#x27;t say which)" in text
