"""Events over HTTP, and what is counted of them, of a server that is killed and started again."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import pytest

from coordinator.timeline.schema import EVENTS_TOPIC
from protocol.messages import DeleteGroupsRequest, OffsetCommitRequest
from schemas.errors import ErrorCode
from tests.server.http.test_openapi import asked
from tests.support.raw import Connection
from tests.support.scripted import WITHIN_S, Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "tenure.http": "127.0.0.1:0"}


@pytest.fixture
def server() -> Iterator[Tenure]:
    """With HTTP."""
    with Tenure(SETTINGS) as server:
        yield server
        hang_up()


def url_of(server: Tenure) -> str:
    """Where its HTTP is now."""
    found: str = server.events("http_listening")[-1]["url"]
    return found


@contextmanager
def stream(server: Tenure, last: str = "") -> Iterator[HTTPResponse]:
    """/events, from behind an id on."""
    headers = {"Last-Event-ID": last} if last else {}
    with urllib.request.urlopen(urllib.request.Request(f"{url_of(server)}events", headers=headers), timeout=30) as told:
        assert told.readline() == b": events follow\n"
        yield told


def message(told: HTTPResponse) -> dict[str, str]:
    """The next message, by field; comments are passed over, but for that there is none."""
    fields: dict[str, str] = {}
    while (line := told.readline().decode().rstrip("\n")) or not fields:
        assert line != ": nothing new", "it would come by now"
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
    return fields


def groups_in(told: HTTPResponse, count: int) -> list[str]:
    """The groups of the next `count` events."""
    return [json.loads(message(told)["data"])["group"] for _ in range(count)]


def test_a_listener_goes_on_where_it_was_after_the_server_was_killed(server: Tenure) -> None:
    """With what the former run told after its id and with all of the new one's; or with the id that it came with."""
    with stream(server) as told:
        begins = message(told)["id"]
        settle(Member(server.port, "one", "c", 5))
        first = message(told)
        assert json.loads(first["data"])["group"] == "one"
        settle(Member(server.port, "two", "c", 5))
        assert groups_in(told, 1) == ["two"]
    hang_up()
    server.kill()
    server.start()
    settle(Member(server.port, "three", "c", 5))
    for last, groups in (
        (first["id"], ["two", "one", "two", "three"]),
        (begins, ["one", "two", "one", "two", "three"]),
    ):
        with stream(server, last) as told:
            assert message(told) == {"id": last}
            assert sorted(groups_in(told, len(groups))) == sorted(groups)


def test_a_listener_with_an_id_of_nobody_is_told_of_a_gap(server: Tenure) -> None:
    """And gets all there is."""
    settle(Member(server.port, "one", "c", 5))
    with stream(server, "7-3") as told:
        assert list(message(told)) == ["id"]
        gap = message(told)
        assert gap["event"] == "gap"
        assert "may be missing" in json.loads(gap["data"])["text"]
        assert groups_in(told, 1) == ["one"]


def counted(server: Tenure, group: str) -> tuple[int, list[str | None]]:
    """The overview's rebalances, and the outcomes of those of the timeline."""
    (found,) = [each for each in asked(f"{url_of(server)}overview")[1] if each["group_id"] == group]
    timeline: list[dict[str, Any]] = asked(f"{url_of(server)}groups/{group}/events")[1]["timeline"]
    return found["rebalances"], [entry["outcome"] for entry in timeline if entry["type"] == "rebalance"]


def test_a_rebalance_counts_from_its_beginning_whatever_comes_of_it(server: Tenure) -> None:
    """One that is under way, and one that nobody saw the end of."""
    one = Member(server.port, "g", "one", 5)
    settle(one)
    Member(server.port, "g", "two", 5).send_join()
    wait_until(lambda: counted(server, "g") == (2, ["completed", None]), "it is counted while it lasts", WITHIN_S)
    hang_up()
    server.kill()
    server.start()
    wait_until(lambda: counted(server, "g") == (2, ["completed", "interrupted"]), "it stays counted", WITHIN_S)


def test_events_of_a_group_that_never_was(server: Tenure) -> None:
    """404 as the group itself; one that is deleted has its events, one that is there may have none yet.

    The overview has both that are or were, as who looks for one that is gone knows its name at best.
    """
    only = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=EVENTS_TOPIC, partitions=[only])]
    url = url_of(server)
    with Connection(server.port, "c") as connection:
        request = OffsetCommitRequest(group_id="quiet", generation_id_or_member_epoch=-1, topics=topics)
        answer: Any = connection.ask(request, 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert asked(f"{url}groups/quiet/events") == (
            200,
            {"group_id": "quiet", "timeline": [], "runs": [], "lanes": []},
        )
        member = Member(server.port, "gone", "c", 5)
        settle(member)
        member.leave()
        assert connection.ask(DeleteGroupsRequest(groups_names=["gone"]), 1).results[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    wait_until(lambda: "deleted" in types(server, "gone"), "it is told that the group is deleted", WITHIN_S)
    assert asked(f"{url}groups/gone")[0] == 404
    assert [group["group_id"] for group in asked(f"{url}groups")[1]] == ["quiet"]
    quiet, gone = asked(f"{url}overview")[1]
    assert (quiet["group_id"], quiet["state"], quiet["rebalances"]) == ("quiet", "Empty", 0)
    assert (gone["group_id"], gone["state"], gone["protocol_type"]) == ("gone", "deleted", "consumer")
    assert gone["rebalances"] == 2
    assert asked(f"{url}groups/never/events") == (404, {"error": "no such group"})


def types(server: Tenure, group: str) -> list[str]:
    """Of the entries of a group's timeline; none as long as nothing is known of it."""
    return [entry["type"] for entry in asked(f"{url_of(server)}groups/{group}/events")[1].get("timeline", [])]
