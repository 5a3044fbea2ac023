"""The page of a server with real clients, in a real browser: what a person sees of restarts and rebalances."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coordinator.timeline.words import time_text
from schemas.errors import ErrorCode
from tests.support.browser import Browser
from tests.support.heartbeats import Beating
from tests.support.heartbeats import settle as beating
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

SWAPS = 12

TEXT_SIZES = (
    "[...document.querySelectorAll('svg text')]"
    ".map((e) => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a)"
)
"""The size in pixels on the screen of each text of the drawing."""

SCROLLERS = (
    "[...document.querySelectorAll('body *')].filter((e) => e.scrollHeight > e.clientHeight && e.clientHeight > 0"
    " && ['auto', 'scroll'].includes(getComputedStyle(e).overflowY)).map((e) => e.tagName)"
)
"""The elements of the page that scroll vertically."""

WIDTHS = (
    "document.querySelector('svg').getBoundingClientRect().width === document.querySelector('#drawing').clientWidth"
)


class Group:
    """Consumers of one group in this process."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "group.id": group_id, "heartbeat.interval.ms": 100}
        self._settings |= {"session.timeout.ms": 30_000}
        self.consumers: dict[str, Consumer] = {}

    def start(self, name: str, *, static: bool = False) -> None:
        """Start a consumer and wait until all have partitions."""
        own = {"group.instance.id": name} if static else {"client.id": name}
        self.consumers[name] = Consumer({**self._settings, **own})
        self.consumers[name].subscribe(["orders"])
        self.settle()

    def stop(self, name: str) -> None:
        """Stop a consumer; a static one keeps its seat."""
        self.consumers.pop(name).close()

    def settle(self) -> None:
        """Poll until each consumer has partitions."""

        def all_have() -> bool:
            self.poll()
            return all(consumer.assignment() for consumer in self.consumers.values())

        wait_until(all_have, "every consumer has partitions", WITHIN_S)

    def poll(self) -> None:
        """Let each consumer poll once."""
        for consumer in self.consumers.values():
            consumer.poll(0.05)

    def close(self) -> None:
        """Stop all consumers."""
        for name in list(self.consumers):
            self.stop(name)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a server on which three static consumers were rolled, and one of two dynamic ones left.

    In another group programs share seats; a third group was deleted.
    """
    settings = {"group.initial.rebalance.delay.ms": 0}
    directory = tmp_path_factory.mktemp("page")
    with Tenure(settings, directory=directory, arguments=["--http", "127.0.0.1:0"]) as server:
        (line,) = wait_until(lambda: server.events("http_listening"), "HTTP is there", WITHIN_S)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("orders", 6, 1)])["orders"].result()
        rolled, moved = Group(server.bootstrap, "rolled"), Group(server.bootstrap, "moved")
        names = ["orders-0", "orders-1", "orders-2"]
        for name in names:
            rolled.start(name, static=True)
        for name in names:
            rolled.stop(name)
            rolled.start(name, static=True)
        moved.start("billing-0")
        moved.start("billing-1")
        moved.stop("billing-0")
        moved.settle()
        found: str = line["url"]
        for name, group in (("rolled", rolled), ("moved", moved)):
            wait_until(partial(has_all_events, found, name, group), f"the events of {name} are there", WITHIN_S)
        play_twins(server.port)
        one = Member(server.port, "gone", "one", 5)
        settle(one)
        one.leave()
        admin.delete_consumer_groups(["gone"])["gone"].result()
        wait_until(lambda: '"deleted"' in json.dumps(read(f"{found}overview")), "a group is deleted", WITHIN_S)
        yield found
        rolled.close()
        moved.close()
        hang_up()


def play_twins(port: int) -> None:
    """Let two programs take a seat in turn, and two others with one client id take another seat in turn."""
    seats = {
        "in-turns": [Member(port, "twins", name, 5, instance="in-turns") for name in ("one", "two")],
        "in-a-loop": [Member(port, "twins", "same", 5, instance="in-a-loop") for _ in range(2)],
    }
    (one, _), (other, _) = seats.values()
    settle(one)
    other.send_join()
    settle(one, other)
    for twins in seats.values():
        for number in range(SWAPS):
            twin = twins[1 - number % 2]
            twin.member_id = ""
            twin.send_join()
            assert not twin.receive_join().error_code


def read(url: str) -> Any:
    """Return the JSON of an address."""
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        return json.load(answer)


def has_all_events(url: str, group: str, members: Group) -> bool:
    """Return whether the group's last rebalance is over, and the events show all restarts.

    A member with partitions may have to give them up yet, and does so only while it polls.
    """
    members.poll()
    with urllib.request.urlopen(f"{url}groups/{group}/events", timeout=WITHIN_S) as answer:
        timeline: list[dict[str, Any]] = json.load(answer)["timeline"]
    restarts = [entry for entry in timeline if entry["type"] == "static_restart"]
    rebalances = [entry for entry in timeline if entry["type"] == "rebalance"]
    wanted = (3, 3) if group == "rolled" else (0, 3)
    return (len(restarts), len(rebalances)) == wanted and all(each["outcome"] for each in rebalances)


def shown(browser: Browser, url: str, group: str) -> None:
    """Open the page at a group and wait for its events; at "" wait for the list of groups."""
    browser.requests.clear()
    browser.errors.clear()
    browser.open("about:blank")
    browser.open(f"{url}#{group}")
    what = "#entries li" if group else "#groups li"
    wait_until(lambda: browser.evaluate(f"document.querySelectorAll('{what}').length > 0"), what, WITHIN_S)


def lanes(browser: Browser, kind: str) -> list[str]:
    """Return the members that have something of that kind on their lanes, in the order of the lanes."""
    found: list[str] = browser.evaluate(
        f"[...document.querySelectorAll('svg .{kind}')].map((each) => each.dataset.member)"
    )
    return sorted(found)


@pytest.mark.browser
def test_a_roll_of_static_members_is_a_mark_on_each_lane(browser: Browser, url: str) -> None:
    """A roll of static members is three unbroken lanes with one restart each, and only the first rebalances."""
    shown(browser, url, "rolled")
    names = ["orders-0", "orders-1", "orders-2"]
    assert lanes(browser, "restart") == names
    assert lanes(browser, "seat") == names
    assert not lanes(browser, "restart.moves")
    assert len(browser.evaluate("[...document.querySelectorAll('svg .rebalance')].map(() => 1)")) == 3
    said = browser.evaluate("document.querySelector('#entries').innerText")
    assert said.count("and nothing moves") == 3
    assert "new member" in said
    assert browser.evaluate("document.querySelector('#summary').innerText").startswith("Stable; 3 members")


@pytest.mark.browser
def test_a_dynamic_member_that_leaves_ends_its_lane(browser: Browser, url: str) -> None:
    """A dynamic member that leaves ends its lane, and every rebalance shows its cause in words."""
    shown(browser, url, "moved")
    assert len(lanes(browser, "seat")) == 2
    said = browser.evaluate("[...document.querySelectorAll('#entries li')].map((each) => each.innerText)")
    assert len(said) == 3
    assert "leaves" in said[0]
    assert "moved" in said[0]


@pytest.mark.browser
def test_restarts_that_no_healthy_member_makes_are_one_mark_that_says_so(browser: Browser, url: str) -> None:
    """Restarts of programs that share a seat are one mark, with their number, a problem's colour and advice."""
    shown(browser, url, "twins")
    assert lanes(browser, "suspect") == ["in-a-loop", "in-turns"]
    assert lanes(browser, "restart") == []
    assert browser.evaluate("[...document.querySelectorAll('svg .count')].map((e) => e.textContent)") == ["12", "12"]
    fencing, suspect = (
        browser.evaluate(f"getComputedStyle(document.querySelector('.key.{kind}'), '::before').backgroundColor")
        for kind in ("fencing", "suspect")
    )
    assert suspect == fencing == browser.evaluate("getComputedStyle(document.querySelector('svg .suspect')).fill")
    assert browser.evaluate("document.querySelector('#suspect').checkVisibility()")
    listed = browser.evaluate("[...document.querySelectorAll('#entries li.suspect')].map((e) => e.innerText)")
    assert len(listed) == 2
    assert all("12 restarts until" in text for text in listed)
    assert browser.evaluate("document.querySelectorAll('#entries li.static_restart').length") == 0
    found = browser.evaluate("document.querySelector('#found').innerText")
    assert "one at 127.0.0.1 and two at 127.0.0.1 took the seat of in-turns from each other in turn" in found
    assert "in-a-loop restarts in a loop" in found
    counts = "2 rebalances begun, 0 static restarts, 24 suspect restarts"
    assert counts in browser.evaluate("document.querySelector('#summary').innerText")
    (link,) = [name for name in browser.names("link") if name.startswith("twins")]
    assert counts in link
    shown(browser, url, "rolled")
    assert browser.evaluate("document.querySelector('#found').innerText") == ""
    assert not browser.evaluate("document.querySelector('#suspect').checkVisibility()")


@pytest.mark.browser
def test_marks_that_would_touch_are_one_with_their_number(browser: Browser, url: str) -> None:
    """Marks of one kind that would touch become one mark with their number; marks that are apart stay apart."""
    shown(browser, url, "rolled")
    mark = "({from_ms: at, until_ms: at, times: 1, kind, text: [kind]})"
    marks = f"[[0, 'a'], [5, 'b'], [10, 'a'], [20, 'a'], [60, 'a']].map(([at, kind]) => {mark})"
    made = browser.evaluate(
        f"together({marks}, (at) => at).map((mark) => [mark.kind, mark.from_ms, mark.until_ms, mark.times])"
    )
    assert made == [["a", 0, 20, 3], ["b", 5, 5, 1], ["a", 60, 60, 1]]


@pytest.mark.browser
def test_a_group_that_was_deleted_is_listed_with_what_happened(browser: Browser, url: str) -> None:
    """The list has a deleted group as deleted, behind all existing groups, with its events."""
    shown(browser, url, "gone")
    name = browser.names("link")[-1]
    assert name.startswith("gone deleted · last hour: 2 rebalances begun")
    assert browser.evaluate("document.querySelector('#summary').innerText").startswith("deleted; 0 members; since ")


@pytest.mark.browser
def test_the_page_loads_nothing_from_elsewhere_and_complains_of_nothing(browser: Browser, url: str) -> None:
    """The page loads nothing from other servers, logs no error, and its policy blocks nothing."""
    shown(browser, url, "rolled")
    assert browser.errors == []
    assert all(each.startswith((url, "data:,", "about:")) for each in browser.requests)


@pytest.mark.browser
def test_the_page_can_be_used_by_keys_and_by_ear(browser: Browser, url: str) -> None:
    """Groups are links with their state; Enter opens one; the drawing describes itself in words."""
    shown(browser, url, "rolled")
    (billing,) = [name for name in browser.names("link") if name.startswith("moved")]
    assert "Stable" in billing
    assert "last hour: 3 rebalances begun, 0 static restarts" in billing
    assert any("3 lanes, 3 rebalances begun, 3 static restarts" in name for name in browser.names("image"))
    browser.evaluate("document.querySelector('#groups a').focus()")
    browser.press("Enter")
    wait_until(lambda: browser.evaluate("document.title") == "moved · Tenure", "the group is opened", WITHIN_S)


@pytest.mark.browser
def test_times_are_those_of_the_command_line(browser: Browser, url: str) -> None:
    """All times are UTC as on the command line, wherever the person is."""
    browser.live_in("Asia/Kolkata")
    shown(browser, url, "rolled")
    with urllib.request.urlopen(f"{url}groups/rolled/events", timeout=WITHIN_S) as answer:
        times = [time_text(entry["at_ms"]) for entry in json.load(answer)["timeline"]]
    assert (
        browser.evaluate("[...document.querySelectorAll('#entries time')].map((each) => each.innerText)") == times[::-1]
    )
    first = browser.evaluate("document.querySelector('svg text.time').textContent")
    assert first == times[0][11:19] + "Z"
    summary = browser.evaluate("document.querySelector('#summary').innerText")
    counts = "3 rebalances begun, 3 static restarts, 0 fencings"
    assert summary == f"Stable; 3 members; since {times[0]}: {counts}"
    browser.live_in("UTC")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_on_a_telephone(browser: Browser, url: str, scheme: str) -> None:
    """On a telephone nothing is wider than the window, no text of the drawing is small, and only the page scrolls."""
    browser.resize(390, 300, mobile=True)
    browser.prefer(scheme)
    for group in ("rolled", ""):
        shown(browser, url, group)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
        assert browser.evaluate(SCROLLERS) == []
        assert browser.evaluate("document.querySelector('#groups').checkVisibility()") == (not group)
        assert browser.evaluate("document.querySelector('#group').checkVisibility()") == bool(group)
        sizes = browser.evaluate(TEXT_SIZES)
        assert (min(sizes) >= 11) if group else not sizes
    browser.resize(1280, 900)


@pytest.mark.browser
def test_a_drawing_has_the_width_that_there_is(browser: Browser, url: str) -> None:
    """A drawing has the width of the window, also after a change, and its text keeps its size."""
    shown(browser, url, "rolled")
    for width in (1280, 390, 800):
        browser.resize(width, 900)
        wait_until(lambda: browser.evaluate(WIDTHS), "the drawing fills its frame", WITHIN_S)
        assert set(browser.evaluate(TEXT_SIZES)) == {12}
    browser.resize(1280, 900)


@pytest.mark.browser
def test_an_address_that_was_typed_wrong_is_a_group_that_is_not_there(browser: Browser, url: str) -> None:
    """A per cent sign in the address that encodes nothing stands for itself."""
    browser.errors.clear()
    browser.open("about:blank")
    browser.open(f"{url}#100%")
    wait_until(
        lambda: browser.evaluate("document.querySelector('#summary').innerText") == "no such group",
        "it is said",
        WITHIN_S,
    )
    assert browser.evaluate("document.querySelector('#name').innerText") == "100%"
    assert any(name.startswith("rolled") for name in browser.names("link"))


@pytest.mark.browser
def test_the_page_is_live(browser: Browser, url: str) -> None:
    """An open page shows new events without a reload; hostile names stay text."""
    shown(browser, url, "rolled")
    name = "<img src=x onerror=alert(1)>"
    bootstrap = browser.evaluate("fetch('/groups/rolled').then((a) => a.json()).then((g) => g.coordinator)")
    group = Group(f"{bootstrap['host']}:{bootstrap['port']}", name)
    group.start("one")
    wait_until(
        lambda: any(each.startswith(name) for each in browser.names("link")), "the new group is in the list", WITHIN_S
    )
    assert browser.evaluate("document.querySelector('img')") is None
    group.close()


@pytest.mark.browser
def test_the_page_names_whom_a_group_waits_for(browser: Browser, url: str) -> None:
    """The page removes a member from the waiting list when it is there, although no event says so yet."""
    with urllib.request.urlopen(f"{url}groups/rolled", timeout=WITHIN_S) as answer:
        port = json.load(answer)["coordinator"]["port"]
    try:
        one, two, three = (Member(port, "waits", name, 5, instance=f"seat-{name}") for name in ("one", "two", "three"))
        settle(one)
        two.send_join()
        settle(one, two)
        three.send_join()
        shown(browser, url, "waits")

        def waits_for(*names: str) -> bool:
            said: str = browser.evaluate("document.querySelector('#waiting').innerText")
            return all((f"instance id seat-{name}" in said) == (name in names) for name in ("one", "two", "three"))

        wait_until(partial(waits_for, "one", "two"), "both are named", WITHIN_S)
        two.send_join()
        wait_until(partial(waits_for, "one"), "one is left", WITHIN_S)
        settle(one, two, three)
        wait_until(partial(waits_for), "nobody is waited for", WITHIN_S)
    finally:
        hang_up()


@pytest.mark.browser
def test_the_page_shows_groups_of_the_consumer_protocol(browser: Browser, url: str) -> None:
    """Lanes, epochs and targets, and who must give up partitions, until it has done so; a refused twin is a mark."""
    with urllib.request.urlopen(f"{url}groups/rolled", timeout=WITHIN_S) as answer:
        port = json.load(answer)["coordinator"]["port"]
    one, two, twin = (
        Beating(port, "beats", name, ["orders"], instance=f"seat-{seat}")
        for name, seat in (("one", "one"), ("two", "two"), ("twin", "one"))
    )
    try:
        assert one.join() == 0
        assert twin.join() == ErrorCode.UNRELEASED_INSTANCE_ID
        assert two.join() == 0

        def is_asked() -> bool:
            assert two.beat() == 0
            assert one.beat(owns=True) == 0
            held = read(f"{url}groups/beats")["held_up_by"]
            return [each["phase"] for each in held] == ["revoking"]

        wait_until(is_asked, "one must give up partitions", WITHIN_S)
        shown(browser, url, "beats")

        def waits_for() -> str:
            said: str = browser.evaluate("document.querySelector('#waiting').innerText")
            return said

        wait_until(
            lambda: "instance id seat-one (one at 127.0.0.1) to give up 3" in waits_for(), "it says so", WITHIN_S
        )
        assert browser.evaluate("document.querySelector('#summary').innerText").startswith(
            "Reconciling, epoch 3; 2 mem"
        )
        heads = browser.evaluate("[...document.querySelectorAll('#members th')].map((each) => each.innerText)")
        assert heads[-2:] == ["Target", "Epoch"]
        rows = browser.evaluate("[...document.querySelectorAll('#members tr')].map((each) => each.innerText)")
        assert "orders: 0, 1, 2, 3, 4, 5\torders: " in rows[1]
        beating(one, two)
        wait_until(lambda: not waits_for(), "nobody is waited for", WITHIN_S)
        wait_until(lambda: lanes(browser, "seat") == ["seat-one", "seat-two"], "both have a lane", WITHIN_S)
        assert lanes(browser, "fencing") == ["seat-one"]

        def is_told() -> bool:
            said: str = browser.evaluate("document.querySelector('#entries').innerText")
            return "rebalance, epoch 2 -> 3: new member two" in said and "seat-one to give up partitions" in said

        wait_until(is_told, "the page tells why, and who was waited for", WITHIN_S)
    finally:
        hang_up()


def test_the_page_is_served_with_a_policy(url: str) -> None:
    """The policy lets the page run its own script and nothing else."""
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_events_are_streamed(url: str) -> None:
    """Events come as server-sent events, each with an id, from behind the last id of the listener."""
    request = urllib.request.Request(f"{url}events?group=rolled")
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.readline() == b": events follow\n"


def test_the_files_of_the_page_are_installed() -> None:
    """The package data names the files of the page."""
    root = Path(__file__).parents[3]
    text = (root / "pyproject.toml").read_text()
    for file in (root / "coordinator" / "server" / "http").glob("page.*"):
        assert f'"{file.name}"' in text.split('"coordinator.server.http" = ')[1].splitlines()[0]
