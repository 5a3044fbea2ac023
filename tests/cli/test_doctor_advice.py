"""The advice of `tenure doctor` works at the time when it is printed: each case follows it on a running server.

tests/story/test_group_diagnosis.py has the ends of all findings. Here are those whose advice somebody can follow by
a command, a setting, a topic or a program.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.story import diagnosis
from schemas.errors import ErrorCode
from tests.cli.conftest import Ran, at, make_app, run_app
from tests.support.heartbeats import AWAY, Beating
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

SHORT_MS = 2_000
"""A session that ends soon, and yet not between a join and its sync on a busy machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[Tenure]:
    """A server; each case has a group of its own on it."""
    settings = {
        "group.initial.rebalance.delay.ms": "300",
        "group.min.session.timeout.ms": "1",
        "group.consumer.assignment.interval.ms": "0",
        "tenure.topics": "t:4,u:1",
    }
    with Tenure(settings) as tenure:
        yield tenure
        hang_up()


class Case:
    """A group on the server, and what one does with it."""

    def __init__(self, server: Tenure) -> None:
        self.server = server
        self.group = f"group-{uuid.uuid4().hex[:8]}"

    def member(self, name: str, version: int = 9, **says: Any) -> Member:
        """A program with the classic protocol."""
        return Member(self.server.port, self.group, name, version, **says)

    def static(self, name: str, **says: Any) -> Member:
        """A program with an instance id."""
        return self.member(name, instance=name, **says)

    def beating(self, name: str, topics: list[str], **says: Any) -> Beating:
        """A program with the consumer protocol, which has joined unless it is refused."""
        made = Beating(self.server.port, self.group, name, topics, **says)
        made.join()
        return made

    def tenure(self, *arguments: str) -> Ran:
        """Run a command that has to succeed."""
        ran = run_app(make_app(arguments[0]), *arguments, *at(self.server.bootstrap))
        assert ran.code == 0, ran
        return ran

    def set(self, setting: str) -> None:
        """Set NAME=VALUE of the group."""
        self.tenure("groups", "settings", self.group, "--set", setting)

    def remove(self, instance_id: str) -> None:
        """Free a seat."""
        self.tenure("members", "remove", "--group", self.group, "--instance-id", instance_id)

    def advice(self, kind: str) -> str | None:
        """The advice of the group's finding of a kind; None without one."""
        ran = run_app(make_app("doctor"), "doctor", self.group, "--output", "json", *at(self.server.bootstrap))
        assert ran.code in {0, 1}, ran
        return next((each["advice"] for each in ran.json if each["kind"] == kind), None)

    def expire(self, other: Member) -> None:
        """The members that say nothing expire: the other one rejoins without them."""
        wait_until(lambda: other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a session ends", WITHIN_S)
        settle(other)

    def add(self, new: Member, other: Member) -> Member:
        """A member joins, and the other one rejoins once it is asked to."""
        new.send_join()
        wait_until(lambda: other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the other is asked", WITHIN_S)
        settle(other, new)
        return new


def client_without_reason(case: Case) -> Iterator[None]:
    """A newer client."""
    old = case.member("one", 5)
    settle(old)
    yield
    old.leave()
    settle(case.member("one"))


def dynamic_members_come_back(case: Case) -> Iterator[None]:
    """An instance id."""
    stays = case.member("stays")
    settle(stays)
    for _ in range(3):
        case.add(case.member("comes"), stays).leave()
        settle(stays)
    yield
    case.add(case.member("comes", instance="seat"), stays)


def expected_members_missing(case: Case) -> Iterator[None]:
    """The program is started."""
    a = case.static("a")
    settle(a)
    case.set("expected.instance.ids=a,b")
    yield
    case.add(case.static("b"), a)


def expected_members_missing_for_good(case: Case) -> Iterator[None]:
    """The names are taken off the setting."""
    settle(case.static("a"))
    case.set("expected.instance.ids=a,b")
    yield
    case.set("expected.instance.ids=a")


def instance_ids_gone(case: Case) -> Iterator[None]:
    """The program is started with the same name."""
    a, b = case.static("a"), case.static("b", session_ms=SHORT_MS)
    settle(a, b)
    case.expire(a)
    yield
    case.add(case.static("b"), a)


def instance_ids_gone_as_all_were_stopped(case: Case) -> Iterator[None]:
    """Nothing needs to be done: the finding goes when the last member does."""
    a, b = case.static("a"), case.static("b", session_ms=SHORT_MS)
    settle(a, b)
    case.expire(a)
    yield
    case.remove("a")


def member_away(case: Case) -> Iterator[None]:
    """The seat of a member that doesn't come back is freed."""
    a = case.beating("a", ["t"], instance="a")
    assert a.leave(AWAY) == 0
    yield
    case.remove("a")


def members_not_rejoined(case: Case) -> Iterator[None]:
    """It polls."""
    a, b = case.member("a"), case.member("b")
    settle(a, b)
    a.send_join()
    yield
    settle(a, b)


def no_standby(case: Case) -> Iterator[None]:
    """One more program is started."""
    case.set("target.group.size=1")
    settle(case.static("a"))
    yield
    case.static("b").send_join()


def pending_member(case: Case) -> Iterator[None]:
    """The client joins with the id that it got, here by leaving with it."""
    a = case.member("a")
    settle(a)
    unused = case.member("b")
    unused.member_id = unused.ask_for_id()
    a.send_join()
    yield
    unused.leave()


def seat_not_released(case: Case) -> Iterator[None]:
    """The seat is freed, and the successor has it."""
    case.beating("a", ["t"], instance="a")
    assert Beating(case.server.port, case.group, "b", ["t"], instance="a").join() == ErrorCode.UNRELEASED_INSTANCE_ID
    yield
    case.remove("a")
    assert case.beating("b", ["t"], instance="a").partitions


def seats_free(case: Case) -> Iterator[None]:
    """As many seats as there are members, as the advice says."""
    settle(case.static("a"))
    case.set("target.group.size=3")
    yield
    found = re.search(r"set target\.group\.size to (\d+)", case.advice("seats_free") or "")
    assert found
    case.set(f"target.group.size={found[1]}")


def session_timeout_too_short(case: Case) -> Iterator[None]:
    """A session that is longer by what the advice says; `ready` allows that restart, which is in time."""
    a, b = case.static("a"), case.static("b", session_ms=SHORT_MS)
    settle(a, b)
    case.expire(a)
    case.add(case.static("b"), a)
    yield
    found = re.search(r"raise session\.timeout\.ms by (\d+) s", case.advice("session_timeout_too_short") or "")
    assert found
    case.tenure("groups", "ready", case.group, "--restart", "b", "--absent-after", str(WITHIN_S))
    settle(case.static("b", session_ms=60_000 + int(found[1]) * 1_000))


def subscribed_but_absent(case: Case) -> Iterator[None]:
    """The topic is created."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    member = case.beating("a", [name])
    yield
    make_topics(case.server.bootstrap, {name: 1})
    wait_until(lambda: member.beat() == 0 and bool(member.partitions), "it has the topic", WITHIN_S)


CASES: tuple[Callable[[Case], Iterator[None]], ...] = (
    client_without_reason,
    dynamic_members_come_back,
    expected_members_missing,
    expected_members_missing_for_good,
    instance_ids_gone,
    instance_ids_gone_as_all_were_stopped,
    member_away,
    members_not_rejoined,
    no_standby,
    pending_member,
    seat_not_released,
    seats_free,
    session_timeout_too_short,
    subscribed_but_absent,
)


@pytest.mark.parametrize("follow", CASES, ids=lambda follow: follow.__name__)
def test_followed_advice_ends_the_finding(
    server: Tenure, monkeypatch: pytest.MonkeyPatch, follow: Callable[[Case], Iterator[None]]
) -> None:
    """The doctor finds it before; no command of the advice fails; and then the finding is gone."""
    monkeypatch.setattr(diagnosis, "GONE_MIN_MS", 0)
    case = Case(server)
    kind = re.sub("_(for_good|as_all_were_stopped)$", "", follow.__name__)
    steps = follow(case)
    next(steps)
    wait_until(lambda: case.advice(kind), f"{kind} is found", WITHIN_S)
    assert next(steps, None) is None
    wait_until(lambda: case.advice(kind) is None, f"{kind} is gone", WITHIN_S)
