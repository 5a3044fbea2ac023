"""Events over HTTP, and the counts made of them, over a kill and a restart of the server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import pytest

from coordinator.site.overview import Churn
from coordinator.site.site import ALIVE_S
from coordinator.story.events import fields_of
from coordinator.story.schema import EVENTS_TOPIC
from protocol.messages import DeleteGroupsRequest
from schemas.errors import ErrorCode
from tests.site.test_openapi import asked
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import commit_request
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "tenure.http": "127.0.0.1:0"}


@pytest.fixture
def server() -> Iterator[Tenure]:
    """Yield a server with HTTP."""
    with Tenure(SETTINGS) as server:
        yield server
        hang_up()


def url_of(server: Tenure) -> str:
    """Return the server's current HTTP address."""
    found: str = server.events("http_listening")[-1]["url"]
    return found


@contextmanager
def stream(server: Tenure, last: str = "") -> Iterator[HTTPResponse]:
    """Open /events behind an id."""
    headers = {"Last-Event-ID": last} if last else {}
    with urllib.request.urlopen(
        urllib.request.Request(f"{url_of(server)}events", headers=headers), timeout=WITHIN_S
    ) as response:
        assert response.readline() == b": events follow\n"
        yield response


def message(response: HTTPResponse) -> dict[str, str]:
    """Return the next message by field; a message of comments alone doesn't count."""
    fields: dict[str, str] = {}
    quiet_s = 0.0
    while (line := response.readline().decode().rstrip("\n")) or not fields:
        quiet_s += ALIVE_S * (line == ": nothing new")
        assert quiet_s < WITHIN_S, "it would come by now"
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
    return fields


def event(response: HTTPResponse) -> dict[str, str]:
    """Return the next event but those of a beginning, which has one only if it lasts, as on a busy machine."""
    while json.loads((found := message(response))["data"])["type"] in {"member_pending", "rebalance_started"}:
        pass
    return found


def groups_in(response: HTTPResponse, count: int) -> list[str]:
    """Return the groups of the next `count` events."""
    return [json.loads(event(response)["data"])["group"] for _ in range(count)]


def test_a_listener_goes_on_where_it_was_after_the_server_was_killed(server: Tenure) -> None:
    """A listener gets the former run's events behind its id and then all events of the new run."""
    with stream(server) as response:
        begins = message(response)["id"]
        settle(Member(server.port, "one", "c", 5))
        first = event(response)
        assert json.loads(first["data"])["group"] == "one"
        settle(Member(server.port, "two", "c", 5))
        assert groups_in(response, 1) == ["two"]
    hang_up()
    server.kill()
    server.start()
    settle(Member(server.port, "three", "c", 5))
    for last, groups in (
        (first["id"], ["two", "one", "two", "three"]),
        (begins, ["one", "two", "one", "two", "three"]),
    ):
        with stream(server, last) as response:
            assert message(response) == {"id": last}
            assert sorted(groups_in(response, len(groups))) == sorted(groups)


def test_a_listener_with_an_unknown_id_gets_a_gap(server: Tenure) -> None:
    """A listener with an unknown id gets a gap and then all kept events."""
    settle(Member(server.port, "one", "c", 5))
    with stream(server, "7-3") as response:
        assert list(message(response)) == ["id"]
        gap = message(response)
        assert gap["event"] == "gap"
        assert "may be missing" in json.loads(gap["data"])["text"]
        assert groups_in(response, 1) == ["one"]


def counted(server: Tenure, group: str) -> tuple[int, list[str | None]]:
    """Return the overview's number of rebalances, and the outcomes of the timeline's rebalances."""
    (found,) = [each for each in asked(f"{url_of(server)}overview")[1] if each["group_id"] == group]
    timeline: list[dict[str, Any]] = asked(f"{url_of(server)}groups/{group}/events")[1]["timeline"]
    return found["rebalances"], [entry["outcome"] for entry in timeline if entry["type"] == "rebalance"]


def test_a_rebalance_counts_from_its_beginning_whatever_comes_of_it(server: Tenure) -> None:
    """A rebalance counts from its beginning, also if it is under way or its end was never recorded."""
    one = Member(server.port, "g", "one", 5)
    settle(one)
    Member(server.port, "g", "two", 5).send_join()
    wait_until(lambda: counted(server, "g") == (2, ["completed", None]), "it is counted while it lasts", WITHIN_S)
    hang_up()
    server.kill()
    server.start()
    wait_until(lambda: counted(server, "g") == (2, ["completed", "interrupted"]), "it stays counted", WITHIN_S)
    assert counted(server, "g") == (2, ["completed", "interrupted"])


def test_events_of_a_group_that_never_was(server: Tenure) -> None:
    """The events of an unknown group are 404; a deleted group has its events, an existing one may have none.

    The overview lists both, because a person who looks for a deleted group knows at best its name.
    """
    url = url_of(server)
    with Connection(server.port, "c") as connection:
        answer: Any = connection.ask(commit_request("quiet", {(EVENTS_TOPIC, 0): 1}), 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert asked(f"{url}groups/quiet/events") == (
            200,
            {
                "group_id": "quiet",
                "timeline": [],
                "counts": fields_of(Churn()),
                "findings": [],
                "runs": [],
                "lanes": [],
            },
        )
        member = Member(server.port, "gone", "c", 5)
        settle(member)
        member.leave()
        assert connection.ask(DeleteGroupsRequest(groups_names=["gone"]), 1).results[0].error_code == ErrorCode.NONE
    wait_until(lambda: "deleted" in types(server, "gone"), "the timeline has the deletion", WITHIN_S)
    assert asked(f"{url}groups/gone")[0] == 404
    assert [group["group_id"] for group in asked(f"{url}groups")[1]] == ["quiet"]
    quiet, gone = asked(f"{url}overview")[1]
    assert (quiet["group_id"], quiet["state"], quiet["rebalances"]) == ("quiet", "Empty", 0)
    assert (gone["group_id"], gone["state"], gone["protocol_type"]) == ("gone", "deleted", "consumer")
    assert gone["rebalances"] == 2
    assert asked(f"{url}groups/never/events") == (404, {"error": "no such group"})


def types(server: Tenure, group: str) -> list[str]:
    """Return the types of a group's timeline entries; none while the group is unknown."""
    return [entry["type"] for entry in asked(f"{url_of(server)}groups/{group}/events")[1].get("timeline", [])]
