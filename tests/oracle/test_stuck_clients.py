"""Stalls of clients in Java and Go on Apache Kafka: named by an observer in time, with their owners, until mended.

The observer has its own waits, unlike that of test_stuck.py.

House rule: every member is a real client in a process of its own.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import at, make_app, run_app
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.interop.java.process import WAIT_S
from tests.interop.java.tools import Tools
from tests.interop.test_java_streams import INSTANCES, PARTITIONS, Application
from tests.observe.test_observer import observing
from tests.oracle.test_other_kinds import STAYS
from tests.oracle.test_stuck import SETTINGS, Scene
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.polled import polled
from tests.support.tenure import wait_until
from tests.support.topics import make_topics

pytestmark = [pytest.mark.oracle, pytest.mark.nightly]

WITHIN_MS = 30_000
STAYS_MS = 60_000
"""The session of members that freeze for a while."""


@pytest.fixture(scope="module")
def node_of(kafka_is_here: None) -> Iterator[Callable[[str], ApacheKafka]]:
    """A node of a version; tests share it."""
    settings = {VERSION: SETTINGS, VERSION_44: {**SETTINGS, **STAYS}}
    with ExitStack() as stack:
        yield cache(lambda version: stack.enter_context(ApacheKafka(settings[version], version=version)))


@pytest.fixture
def kafka(node_of: Callable[[str], ApacheKafka]) -> ApacheKafka:
    """A node of Kafka 4.4.0."""
    return node_of(VERSION_44)


class Watched:
    """An observer of a cluster, and the findings that it tells. `pytest -s` shows how soon."""

    def __init__(self, kafka: ApacheKafka, folder: Path, stack: ExitStack) -> None:
        self._file = folder / "events.jsonl"
        self._file.touch()
        stack.enter_context(observing(kafka.bootstrap, folder, "--events", str(self._file)))

    def _event(self, kind: str, group: str, finding: str, since_ms: int) -> dict[str, Any] | None:
        for line in self._file.read_text().splitlines():
            event = json.loads(line)
            told = event["type"], event["group"], event.get("kind")
            if told == (kind, group, finding) and event["at_ms"] >= since_ms:
                return dict(event)
        return None

    def named(self, group: str, finding: str, since_ms: int) -> str:
        """The words of a finding that began after a time, within WITHIN_MS of it."""
        event = wait_until(lambda: self._event("finding_began", group, finding, since_ms), finding, 2 * WITHIN_S)
        took_ms = event["at_ms"] - since_ms
        print(f"{finding}: {took_ms / 1_000:.1f} s: {event['found']}")
        assert took_ms <= WITHIN_MS
        return str(event["found"])

    def until_ended(self, group: str, finding: str, since_ms: int) -> None:
        """Wait for its end."""
        wait_until(lambda: self._event("finding_ended", group, finding, since_ms), f"no {finding}", 2 * WITHIN_S)


def now_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000


def commit(member: ConsumerProcess, fleet: Fleet, offset: int) -> None:
    """Let a member commit an offset of both partitions."""
    before = len(member.named("committed"))
    member.tell("commit", offsets={"0": [offset, ""], "1": [offset, ""]})
    fleet.wait("a commit", lambda: len(member.named("committed")) > before)


def last_stable_ms(kafka: ApacheKafka, group: str) -> int:
    """Wait until the group rebalances; the time of the last look before it. A JVM starts slowly on a busy machine."""
    stable_ms = [now_ms()]

    def rebalances() -> bool:
        at_ms = now_ms()
        is_stable = described(kafka, group)["state"] == "Stable"
        if is_stable:
            stable_ms.append(at_ms)
        return not is_stable

    wait_until(rebalances, "a rebalance", WAIT_S)
    return stable_ms[-1]


@pytest.mark.parametrize(
    ("version", "client", "protocol"),
    [
        (VERSION_44, "kafka-clients-4", "consumer"),
        (VERSION_44, "kafka-clients-3", "classic"),
        pytest.param(VERSION_44, "franz-go", "classic", marks=pytest.mark.toolchain),
        (VERSION, "kafka-clients-4", "classic"),
        (VERSION, "kafka-clients-3", "classic"),
        pytest.param(VERSION, "franz-go", "classic", marks=pytest.mark.toolchain),
    ],
)
def test_four_stalls_of_a_client(
    node_of: Callable[[str], ApacheKafka], version: str, client: str, protocol: str, tmp_path: Path
) -> None:
    """A program is named that gets through no record, leaves, has no partition, or freezes in a rebalance."""
    kafka = node_of(version)
    with ExitStack() as stack:
        scenes = {name: Scene(kafka) for name in ("poison", "leaves", "spare", "frozen")}
        fleets = {}
        for name, scene in scenes.items():
            stack.callback(scene.end)
            fleets[name] = stack.enter_context(Fleet(kafka.bootstrap, scene.topic, 2))

        def start(name: str, instance_id: str | None = None, **more: Any) -> ConsumerProcess:
            return fleets[name].start(
                client, scenes[name].group, group_instance_id=instance_id, protocol=protocol, **more
            )

        watched = Watched(kafka, tmp_path, stack)
        leaves, spares = start("leaves"), [start("spare") for _ in range(2)]
        long = {"session_timeout_ms": STAYS_MS, "rebalance_timeout_ms": STAYS_MS}
        frozen = start("frozen", "frozen", **long)
        for name, members in {"leaves": [leaves], "spare": spares, "frozen": [frozen]}.items():
            fleets[name].wait_until_shared(members)
        # It begins last: a pause before a member's first commit counts as one that it may make again.
        poison = start("poison", "poisoned")
        fleets["poison"].wait_until_shared([poison])
        commit(poison, fleets["poison"], 1)
        since = {"partition_stuck": now_ms()}

        commit(leaves, fleets["leaves"], 1)
        leaves.tell("close")
        leaves.join()
        since["silent_group"] = now_ms()
        frozen.send_signal(signal.SIGSTOP)
        stack.callback(frozen.send_signal, signal.SIGCONT)
        newcomer = start("frozen", "newcomer", **long)
        since["rebalancing"] = last_stable_ms(kafka, scenes["frozen"].group)
        spares.append(start("spare"))
        fleets["spare"].wait("a third member", lambda: spares[-1].membership.generation > 0)
        since["member_ready_but_idle"] = now_ms()
        groups = {
            "silent_group": scenes["leaves"].group,
            "partition_stuck": scenes["poison"].group,
            "rebalancing": scenes["frozen"].group,
            "member_ready_but_idle": scenes["spare"].group,
        }
        found = {kind: watched.named(group, kind, since[kind]) for kind, group in groups.items()}
        topic = scenes["poison"].topic
        assert found["partition_stuck"].startswith("poisoned (")
        assert f"of {topic}-0 at 1, {topic}-1 at 1:" in found["partition_stuck"]
        client_id = "kgo" if client == "franz-go" else f"consumer-{scenes['leaves'].group}-1"
        assert f"the last members: {client_id} at 127.0.0.1" in found["silent_group"]
        (idle,) = [each for each in spares if f"{each.membership.member_id} (" in found["member_ready_but_idle"]]
        assert idle.membership.partitions == ()
        # Kafka's answers name nobody for whom a classic group waits.
        whom = "not at its target: frozen (" if protocol == "consumer" else "does not say whom it waits for"
        assert whom in found["rebalancing"]

        ended_ms = now_ms()
        commit(poison, fleets["poison"], 5)
        frozen.send_signal(signal.SIGCONT)
        fleets["leaves"].wait_until_shared([start("leaves")])
        idle.tell("close")
        fleets["frozen"].wait_until_shared([frozen, newcomer])
        for kind, group in groups.items():
            watched.until_ended(group, kind, ended_ms)


def described(kafka: ApacheKafka, group: str) -> dict[str, Any]:
    """A group as our own command describes it; empty while there is none."""
    ran = run_app(make_app("groups"), "groups", "describe", group, "--output", "json", *at(kafka.bootstrap))
    return dict(ran.json[0]) if ran.code == 0 else {}


def test_a_program_of_kafka_streams_freezes_and_then_all_leave(kafka: ApacheKafka, tmp_path: Path) -> None:
    """The frozen program is named, with partitions of its tasks. When nobody is left, the last ones are named."""
    group = Application(kafka, tmp_path, release=VERSION_44, is_streams_group=True)
    make_topics(kafka.bootstrap, dict.fromkeys((group.lines, group.results), PARTITIONS))
    with ExitStack() as stack:
        stack.callback(group.end)
        stack.enter_context(polled(lambda: group.write(1), 0.2))
        watched = Watched(kafka, tmp_path, stack)
        group.start("one")
        others = {each["member_id"] for each in described(kafka, group.name)["members"]}
        group.start("two")

        def client_of_two() -> str | None:
            told = described(kafka, group.name)["members"]
            has_tasks = [each for each in told if each["tasks"]["active"] and each["member_id"] not in others]
            return has_tasks[0]["client_id"] if has_tasks else None

        client_id = wait_until(client_of_two, "tasks of the second program", WAIT_S)
        group.send_signal("two", signal.SIGSTOP)
        stack.callback(group.send_signal, "two", signal.SIGCONT)
        since_ms = now_ms()
        assert f" ({client_id} at 127.0.0.1) is in the group" in watched.named(group.name, "partition_stuck", since_ms)
        since_ms = now_ms()
        group.send_signal("two", signal.SIGCONT)
        watched.until_ended(group.name, "partition_stuck", since_ms)
        for name in INSTANCES:
            group.close(name)
        since_ms = now_ms()
        assert " records wait: " in watched.named(group.name, "silent_group", since_ms)


def test_a_share_consumer_that_freezes(kafka: ApacheKafka, tmp_path: Path) -> None:
    """A consumer that is there and acknowledges nothing is named until it goes on."""
    with ExitStack() as stack:
        scene = Scene(kafka)
        stack.callback(scene.end)
        earliest = ("groups", "settings", scene.group, "--set", "share.auto.offset.reset=earliest")
        assert run_app(make_app("groups"), *earliest, *at(kafka.bootstrap)).code == 0
        watched = Watched(kafka, tmp_path, stack)
        tools = Tools(VERSION_44)

        def consume() -> None:
            with suppress(ValueError):  # no answer, when the JVM is killed in the end
                where = ("--bootstrap-server", kafka.bootstrap, "--topic", scene.topic, "--group", scene.group)
                tools.run("console-share-consumer", *where)

        thread = threading.Thread(target=consume)
        stack.callback(thread.join)
        stack.enter_context(tools)
        thread.start()

        def is_at_work() -> bool:
            return any(each["current_offset"] for each in described(kafka, scene.group).get("offsets", ()))

        wait_until(is_at_work, "acknowledged records", WAIT_S)
        tools.send_signal(signal.SIGSTOP)
        since_ms = now_ms()
        found = watched.named(scene.group, "partition_stuck", since_ms)
        [member] = described(kafka, scene.group)["members"]
        assert f": {member['member_id']} ({member['client_id']} at 127.0.0.1); " in found
        assert found.startswith("members are there, but nobody has acknowledged the next record since ")
        since_ms = now_ms()
        tools.send_signal(signal.SIGCONT)
        watched.until_ended(scene.group, "partition_stuck", since_ms)
