"""The page of a server with real clients, in a real browser: what a person sees of restarts and rebalances."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coordinator.story.lanes import Mark
from coordinator.text import time_text
from schemas.errors import ErrorCode
from tests.support.axe import violations
from tests.support.browser import Browser
from tests.support.heartbeats import Beating
from tests.support.heartbeats import settle as beating
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.seats import set_seats
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
    "document.querySelector('#drawing svg').getBoundingClientRect().width"
    " === document.querySelector('#drawing').clientWidth"
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

    In another group programs share seats; a third group was deleted, a fourth has a standby, a fifth has committed
    an offset of which the server has no record, and a sixth has records to read, some of an open transaction.
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
        committed = ConsumerGroupTopicPartitions("elsewhere", [TopicPartition("orders", 3, 7)])
        admin.alter_consumer_group_offsets([committed])["elsewhere"].result()
        transaction = open_transaction(server.bootstrap, admin)
        set_seats(server.port, "stands", 1)
        seated, standby = (Member(server.port, "stands", name, 5, instance=name) for name in ("seated", "standby"))
        settle(seated)
        standby.send_join()
        assert not standby.receive_join().error_code
        wait_until(lambda: '"deleted"' in json.dumps(read(f"{found}overview")), "a group is deleted", WITHIN_S)
        yield found
        transaction.abort_transaction()
        rolled.close()
        moved.close()
        hang_up()


def open_transaction(bootstrap: str, admin: AdminClient) -> Producer:
    """Let a group be 20 records behind in a topic, and 5 more that belong to an open transaction of this producer."""
    admin.create_topics([NewTopic("bills", 2, 1)])["bills"].result()
    stays = {"transactional.id": "biller", "transaction.timeout.ms": 900_000}
    open_one = Producer({"bootstrap.servers": bootstrap, **stays})
    open_one.init_transactions()
    open_one.begin_transaction()
    for producer, partition, count in ((Producer({"bootstrap.servers": bootstrap}), 0, 30), (open_one, 1, 5)):
        for _ in range(count):
            producer.produce("bills", b"bill", partition=partition)
        assert producer.flush(WITHIN_S) == 0
    committed = ConsumerGroupTopicPartitions("behind", [TopicPartition("bills", 0, 10), TopicPartition("bills", 1, 0)])
    admin.alter_consumer_group_offsets([committed])["behind"].result()
    return open_one


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
    timeline = read(f"{url}groups/{group}/events")["timeline"]
    restarts = [entry for entry in timeline if entry["type"] == "static_restart"]
    rebalances = [entry for entry in timeline if entry["type"] == "rebalance"]
    wanted = (3, 3) if group == "rolled" else (0, 3)
    return (len(restarts), len(rebalances)) == wanted and all(each["outcome"] for each in rebalances)


def shown(browser: Browser, url: str, group: str) -> None:
    """Open the page at a group and wait for its events; at "" wait for the list of groups."""
    browser.requests.clear()
    browser.errors.clear()
    browser.open_anew(f"{url}#group={group}" if group else url)
    what = "#entries li" if group else "#groups tbody tr"
    wait_until(lambda: browser.evaluate(f"document.querySelectorAll('{what}').length > 0"), what, WITHIN_S)


def row(browser: Browser, group: str) -> dict[str, str]:
    """Return the cells of a group's row in the list, by the name of the column."""
    cells: dict[str, str] = browser.evaluate(
        f"""Object.fromEntries([...document.querySelectorAll('#groups tbody tr')]
        .find((row) => row.cells[0].innerText === {json.dumps(group)})?.querySelectorAll('th, td')
        .values().map((cell) => [cell.dataset.label, cell.innerText]) ?? [])"""
    )
    return cells


def lanes(browser: Browser, kind: str) -> list[str]:
    """Return the members that have something of that kind on their lanes, in the order of the lanes."""
    found: list[str] = browser.evaluate(
        f"[...document.querySelectorAll('#drawing .{kind}')].map((each) => each.dataset.member)"
    )
    return sorted(found)


def test_a_roll_of_static_members_is_a_mark_on_each_lane(browser: Browser, url: str) -> None:
    """A roll of static members is three unbroken lanes with one restart each, and only the first rebalances."""
    shown(browser, url, "rolled")
    names = ["orders-0", "orders-1", "orders-2"]
    assert lanes(browser, "restart") == names
    assert lanes(browser, "seat") == names
    assert not lanes(browser, "restart.moves")
    assert len(browser.evaluate("[...document.querySelectorAll('#drawing .rebalance')].map(() => 1)")) == 3
    said = browser.text("#entries")
    assert said.count("and nothing moves") == 3
    assert "new member" in said
    assert browser.text("#summary").startswith("Stable; 3 members")


def test_a_dynamic_member_that_leaves_ends_its_lane(browser: Browser, url: str) -> None:
    """A dynamic member that leaves ends its lane, and every rebalance shows its cause in words."""
    shown(browser, url, "moved")
    assert len(lanes(browser, "seat")) == 2
    said = browser.texts("#entries li")
    rebalances = [each for each in said if "rebalance, generation" in each]  # a busy machine has an entry between two
    assert len(rebalances) == 3
    assert "leaves" in rebalances[0]
    assert "moved" in rebalances[0]


def test_restarts_that_no_healthy_member_makes_are_one_mark_that_says_so(browser: Browser, url: str) -> None:
    """Restarts of programs that share a seat are one mark, with their number, a problem's colour and advice."""
    shown(browser, url, "twins")
    assert lanes(browser, "suspect") == ["in-a-loop", "in-turns"]
    assert lanes(browser, "restart") == []
    assert browser.evaluate("[...document.querySelectorAll('svg .count')].map((e) => e.textContent)") == ["12", "12"]
    fencing, suspect = (
        browser.evaluate(f"getComputedStyle(document.querySelector('.key .{kind}')).fill")
        for kind in ("fencing", "suspect")
    )
    assert suspect == fencing == browser.evaluate("getComputedStyle(document.querySelector('#drawing .suspect')).fill")
    assert browser.evaluate("document.querySelector('#suspect').checkVisibility()")
    listed = browser.texts("#entries li.suspect")
    assert len(listed) == 2
    assert all("12 restarts until" in text for text in listed)
    assert browser.evaluate("document.querySelectorAll('#entries li.static_restart').length") == 0
    found = browser.text("#found")
    assert "one at 127.0.0.1 and two at 127.0.0.1 took the seat of in-turns from each other in turn" in found
    assert "in-a-loop restarts in a loop" in found
    counts = "2 rebalances begun, 0 static restarts, 24 suspect restarts"
    assert counts in browser.text("#summary")
    shown(browser, url, "")
    assert (row(browser, "twins")["Rebalances"], row(browser, "twins")["Restarts"]) == ("2", "24")
    assert browser.evaluate("document.querySelector('#groups .suspect').title") == "24 suspect restarts"
    shown(browser, url, "rolled")
    assert browser.evaluate("document.querySelectorAll('#found .error, #found .warning').length") == 0
    assert not browser.evaluate("document.querySelector('#suspect').checkVisibility()")


def test_marks_that_would_touch_are_one_with_their_number(browser: Browser, url: str) -> None:
    """Marks of one kind that would touch become one mark with their number; marks that are apart stay apart."""
    shown(browser, url, "rolled")
    mark = "({from_ms: at, until_ms: at, times: 1, kind, text: [kind]})"
    marks = f"[[0, 'a'], [5, 'b'], [10, 'a'], [20, 'a'], [60, 'a']].map(([at, kind]) => {mark})"
    made = browser.evaluate(
        f"import('/page_lanes.js').then(({{together}}) => together({marks}, (at) => at)"
        ".map((mark) => [mark.kind, mark.from_ms, mark.until_ms, mark.times]))"
    )
    assert made == [["a", 0, 20, 3], ["b", 5, 5, 1], ["a", 60, 60, 1]]


def test_a_group_that_was_deleted_is_listed_with_what_happened(browser: Browser, url: str) -> None:
    """The list has a deleted group as deleted, behind all existing groups, with its events."""
    shown(browser, url, "")
    assert browser.evaluate("[...document.querySelectorAll('#groups tbody tr')].at(-1).cells[0].innerText") == "gone"
    assert (row(browser, "gone")["State"], row(browser, "gone")["Rebalances"]) == ("deleted", "2")
    shown(browser, url, "gone")
    assert browser.text("#summary").startswith("deleted; 0 members; since ")


def test_the_page_loads_nothing_from_elsewhere_and_complains_of_nothing(browser: Browser, url: str) -> None:
    """The page loads nothing from other servers, logs no error, and its policy blocks nothing."""
    shown(browser, url, "rolled")
    assert browser.errors == []
    assert all(each.startswith((url, "data:,", "about:")) for each in browser.requests)


@pytest.mark.long
@pytest.mark.programs("npm")
@pytest.mark.parametrize("group", ["", "rolled", "twins"])
def test_the_page_has_no_violation(browser: Browser, url: str, group: str) -> None:
    """axe-core finds nothing in the list and in groups, at three widths, light and dark."""
    shown(browser, url, group)
    assert violations(browser) == []


@pytest.mark.long
@pytest.mark.programs("npm")
def test_lag_and_stuck_partitions_have_no_violation(browser: Browser, url: str) -> None:
    """Nor in graphs, partitions in view, findings, and a streams group with its tasks; nothing is too wide."""
    opened(browser, url, "behind")
    found = "{severity: 'warning', kind: 'partition_stuck', found: 'worker-1 at 10.0.0.1 is alive', advice: 'see it'}"
    told = f"{{...{json.dumps(read(f'{url}groups/rolled/events'))}, findings: [{found}, {found}]}}"
    member = (
        "{member_id: 'm', group_instance_id: null, client_id: 'app-1', client_host: '/10.0.0.1',"
        " assignment: {bills: [0]}, member_epoch: 3, target_assignment: {bills: [0]},"
        " tasks: {active: {0: [0]}, standby: {1: [0]}, warmup: {}}}"
    )
    answered(browser, "/groups/behind", f"{{state: 'Stable', group_type: 'streams', members: [{member}]}}")
    answered(browser, "/groups/behind/events", told)
    wait_until(lambda: "worker-1" in browser.text("#found"), "the finding is there", WITHIN_S)
    wait_until(lambda: "active 0: 0" in browser.text("#members"), "tasks are there", WITHIN_S)
    assert violations(browser) == []
    for width in (320, 768, 1280):
        browser.resize(width, 900, mobile=width == 320)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.resize(1280, 900)


def test_the_page_can_be_used_by_keys_and_by_ear(browser: Browser, url: str) -> None:
    """Groups are links with their state; Enter opens one; the drawing describes itself in words."""
    shown(browser, url, "")
    assert "moved" in browser.names("link")
    assert [row(browser, "moved")[name] for name in ("State", "Rebalances", "Restarts")] == ["Stable", "3", "0"]
    browser.evaluate("[...document.querySelectorAll('#groups a')].find((a) => a.innerText === 'moved').focus()")
    browser.press("Enter")
    wait_until(lambda: browser.evaluate("document.title") == "moved · Tenure", "the group is opened", WITHIN_S)
    assert browser.evaluate("document.activeElement.id") == "group"
    shown(browser, url, "rolled")
    assert any("3 lanes, 3 rebalances begun, 3 static restarts" in name for name in browser.names("image"))
    seats = browser.evaluate("[...document.querySelectorAll('#lanes-table tbody tr')].map((e) => e.textContent)")
    assert [each[:8] for each in seats] == ["orders-0", "orders-1", "orders-2"]
    assert all("and nothing moves" in each for each in seats)
    names = {name for role in ("button", "textbox", "searchbox") for name in browser.names(role)}
    assert names >= {"Earlier", "Later", "Zoom in", "Zoom out", "from", "to"}
    assert all(names)


def test_times_are_those_of_the_command_line(browser: Browser, url: str) -> None:
    """All times are UTC as on the command line, wherever the person is."""
    browser.live_in("Asia/Kolkata")
    shown(browser, url, "rolled")
    times = [time_text(entry["at_ms"]) for entry in read(f"{url}groups/rolled/events")["timeline"]]
    assert browser.texts("#entries time") == times[::-1]
    assert browser.evaluate("document.querySelector('#from').value") == times[0]
    assert all(
        text.endswith("Z")
        for text in browser.evaluate("[...document.querySelectorAll('svg .time')].map((e) => e.textContent)")
    )
    summary = browser.text("#summary")
    counts = "3 rebalances begun, 3 static restarts, 0 fencings"
    assert summary == f"Stable; 3 members; since {times[0]}: {counts}"
    browser.live_in("UTC")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_on_a_telephone(browser: Browser, url: str, scheme: str) -> None:
    """On a telephone nothing is wider than the window, no text of the drawing is small, and only the page scrolls."""
    browser.resize(360, 300, mobile=True)
    browser.prefer(scheme)
    for group in ("rolled", "twins", ""):
        shown(browser, url, group)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 360
        assert browser.evaluate(SCROLLERS) == []
        assert browser.evaluate("document.querySelector('#all').checkVisibility()") == (not group)
        assert browser.evaluate("document.querySelector('#group').checkVisibility()") == bool(group)
        sizes = browser.evaluate(TEXT_SIZES)
        assert (min(sizes) >= 11) if group else not sizes
    browser.resize(1280, 900)


def test_a_drawing_has_the_width_that_there_is(browser: Browser, url: str) -> None:
    """A drawing has the width of the window, also after a change, and its text keeps its size."""
    shown(browser, url, "rolled")
    for width in (1280, 390, 800):
        browser.resize(width, 900)
        wait_until(lambda: browser.evaluate(WIDTHS), "the drawing fills its frame", WITHIN_S)
        assert set(browser.evaluate(TEXT_SIZES)) == {12}
    browser.resize(1280, 900)


def test_an_address_that_was_typed_wrong_is_a_group_that_is_not_there(browser: Browser, url: str) -> None:
    """A per cent sign in the address that encodes nothing stands for itself."""
    browser.errors.clear()
    browser.open_anew(f"{url}#100%")
    wait_until(lambda: browser.text("#summary") == "no such group", "it is said", WITHIN_S)
    assert browser.text("#name") == "100%"
    assert "All groups" in browser.names("link")


def test_the_page_is_live(browser: Browser, url: str) -> None:
    """An open page shows new events without a reload; hostile names stay text."""
    shown(browser, url, "")
    name = "<img src=x onerror=alert(1)>"
    bootstrap = browser.evaluate("fetch('/groups/rolled').then((a) => a.json()).then((g) => g.coordinator)")
    group = Group(f"{bootstrap['host']}:{bootstrap['port']}", name)
    group.start("one")
    wait_until(
        lambda: any(each.startswith(name) for each in browser.names("link")), "the new group is in the list", WITHIN_S
    )
    assert browser.evaluate("document.querySelector('img')") is None
    group.close()


def test_the_page_names_whom_a_group_waits_for(browser: Browser, url: str) -> None:
    """The page removes a member from the waiting list when it is there, although no event says so yet."""
    port = read(f"{url}groups/rolled")["coordinator"]["port"]
    try:
        one, two, three = (Member(port, "waits", name, 5, instance=f"seat-{name}") for name in ("one", "two", "three"))
        settle(one)
        two.send_join()
        settle(one, two)
        three.send_join()
        shown(browser, url, "waits")

        def waits_for(*names: str) -> bool:
            said = browser.text("#waiting")
            return all((f"instance id seat-{name}" in said) == (name in names) for name in ("one", "two", "three"))

        wait_until(partial(waits_for, "one", "two"), "both are named", WITHIN_S)
        two.send_join()
        wait_until(partial(waits_for, "one"), "one is left", WITHIN_S)
        settle(one, two, three)
        wait_until(partial(waits_for), "nobody is waited for", WITHIN_S)
        assert waits_for()
    finally:
        hang_up()


def test_the_page_shows_groups_of_the_consumer_protocol(browser: Browser, url: str) -> None:
    """Lanes, epochs and targets, and who must give up partitions, until it has done so; a refused twin is a mark."""
    port = read(f"{url}groups/rolled")["coordinator"]["port"]
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
            phases = [each["phase"] for each in read(f"{url}groups/beats")["held_up_by"]]
            if "revoking" not in phases:  # a further heartbeat would give the partitions up
                assert one.beat(owns=True) == 0
            return phases == ["revoking"]

        wait_until(is_asked, "one must give up partitions", WITHIN_S)
        shown(browser, url, "beats")

        gives_up = "instance id seat-one (one at 127.0.0.1) to give up 3"
        wait_until(lambda: gives_up in browser.text("#waiting"), "it says so", WITHIN_S)
        assert browser.text("#summary").startswith("Reconciling, epoch 3; 2 mem")
        heads = browser.texts("#members thead th")
        assert heads[-2:] == ["Target", "Epoch"]
        first = browser.evaluate("[...document.querySelector('#members tbody tr').cells].map((each) => each.innerText)")
        assert (first[-3], first[-2].partition(": ")[0]) == ("orders: 0-5", "orders")
        beating(one, two)
        wait_until(lambda: not browser.text("#waiting"), "nobody is waited for", WITHIN_S)
        wait_until(lambda: lanes(browser, "seat") == ["seat-one", "seat-two"], "both have a lane", WITHIN_S)
        assert lanes(browser, "fencing") == ["seat-one"]

        def is_told() -> bool:
            said = browser.text("#entries")
            return "rebalance, epoch 2 -> 3: new member two" in said and "seat-one to give up partitions" in said

        wait_until(is_told, "the page tells why, and who was waited for", WITHIN_S)
    finally:
        hang_up()


def test_the_list_begins_with_what_is_wrong(browser: Browser, url: str) -> None:
    """The doctor's findings have their advice and lead to their groups, which come first in the list."""
    shown(browser, url, "")
    wait_until(lambda: "took the seat of in-turns" in browser.text("#findings"), "the findings are there", WITHIN_S)
    assert "give each a group.instance.id of its own" in browser.text("#findings")
    assert browser.evaluate("document.querySelector('#findings li a').getAttribute('href')") == "#group=twins"
    assert row(browser, "twins")["Doctor"] == "error"
    assert browser.evaluate("document.querySelector('#groups tbody tr').cells[0].innerText") == "twins"
    assert browser.text("#hour").startswith("Last hour: ")
    assert "24 suspect restarts" in browser.text("#hour")


def test_the_list_is_searched_sorted_and_filtered_by_keys(browser: Browser, url: str) -> None:
    """A slash goes to the search; a head sorts, one way and the other; a state filters. The address keeps all of it."""
    shown(browser, url, "")
    names = "[...document.querySelectorAll('#groups tbody tr')].map((row) => row.cells[0].innerText)"
    browser.press("/")
    browser.type("OLLE")
    assert browser.evaluate(names) == ["rolled"]
    browser.evaluate("document.querySelector('#filter').select()")
    browser.type("no such name")
    assert browser.evaluate(names) == []
    assert "no group has such a name" in browser.text("#groups .pages")
    browser.evaluate("document.querySelector('#filter').select()")
    browser.type("o")
    heads = "[...document.querySelectorAll('#groups thead th')].find((head) => head.innerText.startsWith('Group'))"
    browser.evaluate(f"{heads}.querySelector('button').focus()")
    found = []
    for direction in ("ascending", "descending"):
        browser.press("Enter")
        assert browser.evaluate(f"{heads}.getAttribute('aria-sort')") == direction
        found.append(browser.evaluate(names))
    assert found[0] == sorted(found[0]) == found[1][::-1]
    assert {"rolled", "moved", "gone"} <= set(found[0])
    browser.evaluate("document.querySelector('#states [data-state=deleted]').focus()")
    browser.press("Enter")
    assert browser.evaluate(names) == ["gone"]
    assert browser.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert browser.evaluate("location.hash") == "#search=o&state=deleted&sort=-group"
    browser.open_anew(f"{url}#search=o&state=deleted&sort=-group")
    wait_until(lambda: browser.evaluate(names) == ["gone"], "the address brings it back", WITHIN_S)


def test_a_range_of_time_is_in_the_address(browser: Browser, url: str) -> None:
    """Keys zoom and move; list and picture show what is in the range; a link shows it again; Home shows all."""
    shown(browser, url, "rolled")
    entries = read(f"{url}groups/rolled/events")["timeline"]
    listed = "document.querySelectorAll('#entries li').length"
    assert browser.evaluate(listed) == len(entries) == 6
    at_ms = entries[-1]["at_ms"]
    browser.open_anew(f"{url}#group=rolled&from={at_ms - 5}&to={at_ms + 5}")
    wait_until(lambda: browser.evaluate(listed) == 1, "one entry is in the range", WITHIN_S)
    assert len(lanes(browser, "restart")) == 1
    assert lanes(browser, "seat") == ["orders-0", "orders-1", "orders-2"]
    assert browser.text("#entries-count").startswith("1 of 6 entries")
    browser.evaluate("document.querySelector('#drawing').focus()")
    browser.press("-")
    assert browser.evaluate("location.hash") == f"#group=rolled&from={iso(at_ms - 10)}&to={iso(at_ms + 10)}"
    browser.press("ArrowRight")
    assert browser.evaluate("location.hash") == f"#group=rolled&from={iso(at_ms - 5)}&to={iso(at_ms + 15)}"
    assert browser.text("#range-said") == "20 ms"
    browser.press("Home")
    assert browser.evaluate("location.hash") == "#group=rolled"
    assert browser.evaluate(listed) == 6
    assert browser.text("#range-said") == "all that is in memory"


def iso(at_ms: int) -> str:
    """Return a time as an address has it."""
    return time_text(at_ms).replace(" ", "T")


def test_a_range_may_be_open(browser: Browser, url: str) -> None:
    """A link with one end shows all before or after it; one whose end is beyond all that happened shows everything."""
    shown(browser, url, "rolled")
    times = [entry["at_ms"] for entry in read(f"{url}groups/rolled/events")["timeline"]]
    listed = "document.querySelectorAll('#entries li').length"
    for ends, count in (
        (f"from={times[-1]}", 1),
        (f"to={times[0]}", 6),
        (f"to={times[0] + 1}", 1),
        ("from=2100-01-01", 6),
    ):
        browser.evaluate(f"location.hash = '#group=rolled&{ends}'")
        wait_until(lambda count=count: browser.evaluate(listed) == count, ends, WITHIN_S)  # type: ignore[misc]
        assert f"#group=rolled&{ends}" == browser.evaluate("location.hash"), "the address stays as it was given"


def test_the_time_of_an_entry_is_shown_in_the_picture(browser: Browser, url: str) -> None:
    """A person who chooses it far below sees the picture, of this time; the way back shows all again."""
    browser.resize(800, 400)
    shown(browser, url, "rolled")
    browser.evaluate("[...document.querySelectorAll('#entries a')].at(-1).focus()")
    assert browser.evaluate("document.querySelector('#drawing').getBoundingClientRect().bottom") < 0
    browser.press("Enter")
    wait_until(lambda: browser.evaluate("location.hash.includes('from=')"), "the range is in the address", WITHIN_S)
    wait_until(lambda: browser.text("#range-said") != "all that is in memory", "the range is shown", WITHIN_S)
    box = browser.evaluate(
        "(({top, bottom}) => [top, bottom])(document.querySelector('#drawing').getBoundingClientRect())"
    )
    assert 0 <= box[0] < box[1] <= 400
    at_ms = read(f"{url}groups/rolled/events")["timeline"][0]["at_ms"]
    assert browser.evaluate("location.hash").startswith(f"#group=rolled&from={iso(at_ms - 1_000)}&to=")
    browser.evaluate("history.back()")
    wait_until(lambda: browser.text("#range-said") == "all that is in memory", "all is shown", WITHIN_S)
    browser.resize(1280, 900)


def test_a_range_can_be_typed(browser: Browser, url: str) -> None:
    """A time without a zone is UTC; a text that is no time stays, is marked and changes nothing."""
    shown(browser, url, "rolled")
    for field, text in (("from", "2026-01-02 03:04"), ("to", "2026-01-02 03:05:00.5")):
        browser.evaluate(f"document.querySelector('#{field}').select()")
        browser.type(text)
        browser.press("Tab")
    expected = "#group=rolled&from=2026-01-02T03:04:00.000Z&to=2026-01-02T03:05:00.500Z"
    assert browser.evaluate("location.hash") == expected
    browser.evaluate("document.querySelector('#to').select()")
    browser.type("tomorrow")
    browser.press("Tab")
    browser.evaluate("import('/page_lanes.js').then(({draw}) => draw())")  # as each further look does
    assert browser.evaluate("document.querySelector('#to').getAttribute('aria-invalid')") == "true"
    assert browser.evaluate("document.querySelector('#to').value") == "tomorrow"
    assert browser.evaluate("location.hash") == expected
    assert "Older events are not in memory" in browser.text("#older")
    browser.evaluate("document.querySelector('#range [data-does=all]').click()")
    assert browser.evaluate("document.querySelector('#to').getAttribute('aria-invalid')") is None


def test_a_link_waits_for_its_group(browser: Browser, url: str) -> None:
    """A link to a group that isn't there says so, and shows group and range as soon as there are events of them."""
    port = read(f"{url}groups/rolled")["coordinator"]["port"]
    browser.open_anew(f"{url}#group=later&from=2020-01-01&to=2040-01-01")
    wait_until(lambda: browser.text("#summary") == "no such group", "it is said", WITHIN_S)
    assert "as soon as there is one" in browser.text("#note")
    one = Member(port, "later", "one", 5)
    settle(one)
    wait_until(
        lambda: browser.evaluate("document.querySelectorAll('#entries li').length") == 1, "it is there", WITHIN_S
    )
    assert browser.evaluate("location.hash") == "#group=later&from=2020-01-01&to=2040-01-01"
    assert browser.evaluate("document.querySelector('#from').value") == "2020-01-01 00:00:00.000Z"
    assert browser.text("#note") == ""
    one.leave()


def test_a_short_life_is_readable_after_a_day(browser: Browser, url: str) -> None:
    """The picture ends soon after the last event, unless the group lives on or lived for longer than it is quiet."""
    shown(browser, url, "rolled")
    day = 86_400_000

    def fits(times: list[int], now_ms: int) -> list[int]:
        ends: list[int] = browser.evaluate(f"import('/page_time.js').then(({{fitting}}) => fitting({times}, {now_ms}))")
        return ends

    assert fits([0, 30_000], day) == [0, 33_000]
    assert fits([0, 30_000], 40_000) == [0, 40_000]
    assert fits([day], 3 * day) == [day, day + 1_000]
    alive = browser.evaluate(f"import('/page_time.js').then(({{fitting}}) => fitting([0, 30_000], {day}, true))")
    assert alive == [0, day], "somebody has a seat"
    ticks = browser.evaluate("import('/page_time.js').then(({ticks}) => ticks(0, 33_000, 8))")
    assert [text for _, text in ticks] == [f"00:00:{second:02}Z" for second in range(0, 35, 5)]


def test_a_standby_is_drawn_as_waiting(browser: Browser, url: str) -> None:
    """A standby has a dashed bar and no taken seat, in the picture, in the table beside it and among the members."""
    shown(browser, url, "stands")
    assert lanes(browser, "seat") == ["seated"]
    assert lanes(browser, "standby") == ["standby"]
    assert browser.evaluate("document.querySelector('#standby').checkVisibility()")
    assert "standby for" in browser.text("#members")
    assert browser.text("#summary").startswith("Stable; 1 member, 1 standby; since ")
    cells = "[...document.querySelectorAll('#lanes-table tbody tr')].map((e) => [...e.cells].map((c) => c.textContent))"
    assert browser.evaluate(cells)[1] == ["standby", "standby", "-", "-"]
    assert "Standbys\n1" in browser.text("#facts")


def test_lag_is_shown_and_said_to_be_unknown(browser: Browser, url: str) -> None:
    """A topic whose records are elsewhere has no lag, and the page says why; the partitions are a table."""
    browser.open_anew(f"{url}#group=elsewhere")
    topics = "document.querySelectorAll('#lag > .wide > table > tbody > tr:not(.under)').length"
    wait_until(lambda: browser.evaluate(topics) == 1, "lag", WITHIN_S)
    assert "unknown" in browser.text("#lag")
    assert "beyond the end of the log" in browser.text("#lag-note")
    wait_until(lambda: "Lag\nunknown" in browser.text("#facts"), "so does the head", WITHIN_S)
    browser.evaluate("document.querySelector('#lag summary').focus()")
    browser.press("Enter")
    assert browser.text("#lag .offsets tbody").split() == ["3", "nobody", "-", "7", "0", "unknown", "-", "-"]
    shown(browser, url, "")
    wait_until(lambda: row(browser, "elsewhere")["Lag"] == "unknown", "the list says so too", WITHIN_S)


def opened(browser: Browser, url: str, group: str) -> None:
    """Open a group with its graph of lag, and the partitions of its first topic."""
    browser.open_anew(f"{url}#group={group}")
    graph = "document.querySelector('#lag svg.graph') !== null"
    wait_until(lambda: browser.evaluate(graph), "the graph is there", WITHIN_S)

    def is_open() -> bool:
        browser.evaluate("document.querySelector('#lag summary').focus()")
        browser.press("Enter")
        return bool(browser.evaluate("document.querySelector('#lag details').open"))

    wait_until(is_open, "the partitions are in view", WITHIN_S)


def test_lag_is_shown_in_time_and_for_both_kinds_of_readers(browser: Browser, url: str) -> None:
    """The page shows the oldest record's age, the catch-up, a graph, and the lag without open transactions."""
    opened(browser, url, "behind")
    wait_until(lambda: "never" in browser.text("#facts"), "a second look", WITHIN_S)
    facts = browser.text("#facts")
    assert "25 (20 if read_committed)" in facts
    assert "Catches up in\nnever" in facts
    [topic] = read(f"{url}lag?group=behind")["topics"]
    held, free = topic["offsets"][1], topic["offsets"][0]
    assert (held["lag"], held["stable_lag"], held["last_stable_offset"]) == (5, 0, 0)
    assert (free["lag"], free["stable_lag"], free["last_stable_offset"]) == (20, 20, None)
    assert 0 < topic["behind_ms"] < 2_000 * WITHIN_S
    assert [each["lag"] for each in topic["past"]][-1] == 25
    assert any("Lag of bills in" in name and "25 at last" in name for name in browser.names("image"))
    assert "5 (0 if read_committed)" in browser.text("#lag .offsets tbody")
    assert browser.evaluate("document.activeElement.tagName") == "SUMMARY"  # also after the table was drawn anew


def answered(browser: Browser, path: str, answer: str) -> None:
    """Let the page get this answer (JavaScript) for a path, in place of the server's."""
    browser.evaluate(
        f"{{ const real = window.fetch; window.fetch = (path, more) => path.startsWith({json.dumps(path)})"
        f" ? (window.asked = [...window.asked ?? [], path], Promise.resolve(new Response(JSON.stringify({answer}))))"
        " : real(path, more); }"
    )


def answered_ten_thousand(browser: Browser, name: str) -> None:
    """Let the page get 10,000 groups, each with its number behind the name and as its rebalances; no lags."""
    group = (
        f"{{group_id: `{name}-${{number}}`, group_type: 'classic', protocol_type: 'consumer', state: 'Stable',"
        " rebalances: number, static_restarts: 0, suspect_restarts: 0, static_rejoins: 0, takeovers: 0,"
        " static_returns: 0, node_id: 1, last_event_ms: number}"
    )
    answered(browser, "/overview", f"Array.from({{length: 10_000}}, (_, number) => ({group}))")
    answered(browser, "/lags", "[]")


def test_ten_thousand_groups_are_a_page_of_rows_and_few_questions(browser: Browser, url: str) -> None:
    """The list draws fifty rows, asks for the lag of these alone, and finds and sorts all groups at once."""
    shown(browser, url, "rolled")
    answered_ten_thousand(browser, "team.service")
    browser.evaluate("location.hash = '#sort=-rebalances'")
    rows = "[...document.querySelectorAll('#groups tbody tr')].map((row) => row.cells[0].innerText)"
    wait_until(
        lambda: browser.evaluate(rows) == [f"team.service-{number}" for number in range(9_999, 9_949, -1)],
        "the first page",
        WITHIN_S,
    )
    assert browser.text("#groups .pages [role=status]") == "1 to 50 of 10,000 groups"
    wait_until(lambda: browser.evaluate("asked.some((path) => path.startsWith('/lags'))"), "lags", WITHIN_S)
    lags = browser.evaluate(
        "asked.filter((path) => path.startsWith('/lags')).map((path) => path.split('group=').length - 1)"
    )
    assert sum(lags) == 50
    browser.evaluate("[...document.querySelectorAll('#groups button')].find((e) => e.innerText === 'Next').focus()")
    browser.press("Enter")
    assert browser.evaluate(rows)[0] == "team.service-9949"
    took_ms = browser.evaluate(
        "(() => { const began = performance.now(); const field = document.querySelector('#filter');"
        " field.value = '-77'; field.dispatchEvent(new Event('input')); return performance.now() - began; })()"
    )
    assert browser.evaluate(rows)[0] == "team.service-7799"
    assert took_ms < WITHIN_S * 1_000


def test_ten_thousand_groups_can_be_sorted_by_lag(browser: Browser, url: str) -> None:
    """The server is asked for the sums of all groups only then; the list says how many are known."""
    shown(browser, url, "rolled")
    sums = (
        "(lag) => ({group_id: `g-${lag}`, members: 9 - lag, standbys: 0, topics: 1, lag,"
        " without_end: 0, beyond_end: 0})"
    )
    told = f"{{groups: 10_000, is_complete: window.complete, sums: [3, 1, 2].map({sums})}}"
    answered_ten_thousand(browser, "g")
    answered(browser, "/sums", told)
    browser.evaluate("window.complete = false; location.hash = '#'")
    rows = "[...document.querySelectorAll('#groups tbody tr')].slice(0, 4).map((row) => row.cells[0].innerText)"
    wait_until(lambda: browser.evaluate("asked.some((path) => path.startsWith('/lags'))"), "the list", WITHIN_S)
    assert not browser.evaluate("asked.some((path) => path.startsWith('/sums'))")
    for head, first in (("Lag", "g-3"), ("Members", "g-1")):
        heads = f"[...document.querySelectorAll('#groups thead button')].find((e) => e.innerText === '{head}')"
        browser.evaluate(f"{heads}.focus()")
        browser.press("Enter")
        wait_until(lambda first=first: browser.evaluate(rows)[0] == first, head, WITHIN_S)  # type: ignore[misc]
    assert browser.evaluate(rows) == ["g-1", "g-2", "g-3", "g-0"]
    assert browser.text("#summed") == "Sorted by what is known of 3 of 10,000 groups so far."
    browser.evaluate("window.complete = true")
    wait_until(lambda: browser.text("#summed") == "", "all is known", WITHIN_S)


def test_many_events_are_few_questions(browser: Browser, url: str) -> None:
    """A page that shows a group isn't asked for by events of others, and many events of all are few questions."""
    shown(browser, url, "rolled")
    browser.requests.clear()
    port = read(f"{url}groups/rolled")["coordinator"]["port"]
    one = Member(port, "busy", "one", 5)
    for _ in range(30):
        settle(one)
    shown(browser, url, "")
    wait_until(lambda: row(browser, "busy").get("Rebalances") == "30", "the list has all", WITHIN_S)
    browser.requests.clear()
    for _ in range(30):
        settle(one)
    wait_until(lambda: row(browser, "busy").get("Rebalances") == "60", "the list has all", WITHIN_S)
    assert 0 < sum(each.endswith("/overview") for each in browser.requests) <= 30 / 3
    one.leave()


def test_an_inferred_entry_is_marked(browser: Browser, url: str) -> None:
    """An observer infers events; the picture and the list mark them, and the page says what the mark means."""
    shown(browser, url, "rolled")
    assert not browser.evaluate("document.querySelector('#inferred').checkVisibility()")
    rebalance = (
        "{type: 'rebalance', at_ms: 1e12, ended_ms: 1e12 + 500, outcome: 'completed', inferred: true,"
        " text: ['rebalance, for one of two reasons']}"
    )
    lane = "{name: 'm-1', standby_since_ms: null, spans: [{from_ms: 1e12, until_ms: null}], marks: []}"
    answered(browser, "/groups/seen/events", f"{{timeline: [{rebalance}], runs: [], lanes: [{lane}], findings: []}}")
    browser.evaluate("location.hash = '#group=seen'")
    wait_until(lambda: "one of two reasons" in browser.text("#entries"), "the entry is there", WITHIN_S)
    assert (
        browser.evaluate("document.querySelectorAll('#entries li.inferred, #drawing .rebalance.inferred').length") == 2
    )
    assert "inferred from the log" in browser.text("#entries-section")


def test_nodes_are_shown_where_there_are_several(browser: Browser, url: str) -> None:
    """The list shows who has which partitions, and those that nobody has; one node alone is no cluster."""
    shown(browser, url, "")
    assert not browser.evaluate("document.querySelector('#nodes-section').checkVisibility()")
    node = "({node_id: id, host: '127.0.0.1', port: 9000 + id, partitions})"
    nodes = f"[[1, [0, 1, 2, 7]], [2, []]].map(([id, partitions]) => {node})"
    told = f"{{nodes: {nodes}, partitions_without_node: [3, 4]}}"
    answered(browser, "/nodes", told)
    browser.evaluate(f"import('/page_list.js').then(({{showNodes}}) => showNodes({told}))")
    rows = "[...document.querySelectorAll('#nodes tbody tr')].map((each) => each.innerText.split('\\t'))"
    expected = [["1", "4", "0-2, 7"], ["2", "0", "none"], ["nobody", "2", "3, 4"]]

    def has_all() -> bool:  # an answer of the server that was under way may stand there first
        return [[each[0], *each[3:]] for each in browser.evaluate(rows)] == expected

    wait_until(has_all, "all nodes, and the partitions that nobody has", WITHIN_S)
    assert browser.text("#nodes .suspect") == "nobody"


def test_thousands_of_groups_of_a_node_are_written_as_elsewhere(browser: Browser, url: str) -> None:
    """The number of groups that a node coordinates has a comma, as all large numbers of the page do."""
    shown(browser, url, "rolled")
    answered_ten_thousand(browser, "g")
    node = "({node_id: id, host: '127.0.0.1', port: 9000 + id, partitions: [id]})"
    answered(browser, "/nodes", f"{{nodes: [1, 2].map((id) => {node}), partitions_without_node: [0]}}")
    browser.evaluate("location.hash = ''")
    counts = "[...document.querySelectorAll('#nodes tbody tr')].map((each) => each.cells[2].innerText)"
    wait_until(lambda: browser.evaluate(counts) == ["10,000", "0", "-"], "the number of groups", WITHIN_S)
    assert browser.evaluate(counts) == ["10,000", "0", "-"]


def test_the_printed_page_has_states_and_headings(browser: Browser, url: str) -> None:
    """On paper a reader sees how many groups there are in each state, and what each column is; both are buttons."""
    shown(browser, url, "")
    browser.show_on("print")
    states, heads = browser.text("#states"), browser.text("#groups thead")
    browser.show_on("screen")
    assert "all groups" in states
    assert "Rebalances" in heads


def test_a_time_that_no_calendar_has_is_a_number(browser: Browser, url: str) -> None:
    """The time of one record, however wrong, stops no list and no timeline."""
    shown(browser, url, "")
    wrong = "4000000000000000000"
    told = browser.evaluate(f"import('/page_dom.js').then(({{utc}}) => [utc({wrong}), utc(0)])")
    assert told == ["4000000000000000000", "1970-01-01 00:00:00.000Z"]
    entry = f"{{type: 'gap', at_ms: {wrong}, ended_ms: null, text: ['far ahead']}}"
    answered(browser, "/groups/wrong/events", f"{{timeline: [{entry}], runs: [], lanes: [], findings: []}}")
    browser.evaluate("location.hash = '#group=wrong'")
    wait_until(lambda: "far ahead" in browser.text("#entries"), "the entry is there", WITHIN_S)


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


def test_every_kind_of_mark_has_a_form(url: str) -> None:
    """The page has a form for each kind of mark that the lanes of a group may have."""
    (kinds,) = get_type_hints(Mark, include_extras=True)["kind"].__metadata__
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        forms = set(re.findall(r'id="mark-(\w+)"', answer.read().decode()))
    assert forms == set(kinds.extra_json_schema["enum"])


def test_the_files_of_the_page_are_installed() -> None:
    """The package data names the files of the page."""
    root = Path(__file__).parents[2]
    text = (root / "pyproject.toml").read_text()
    for file in (root / "coordinator" / "site").glob("*.*"):
        assert file.suffix == ".py" or f'"{file.name}"' in text.split('"coordinator.site" = ')[1].splitlines()[0]
