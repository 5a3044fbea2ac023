"""The scripted histories: what happens to a group, step by step.

A script gets a Stage and plays one story on it. `SCRIPTS` names each with the protocols and clients that can play it.

House rule: a script does what users and operators do. The server says how the group answers.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

from tests.observe.stage import Member, Stage


class Script(NamedTuple):
    """A history by its name. protocol, client: of its consumers."""

    name: str
    play: Callable[[Stage], None]
    protocol: str
    client: str


def joins_and_leaves(stage: Stage) -> None:
    """Three come one by one, and go one by one; then one comes back."""
    stage.topic()
    members = []
    for number in range(1, 4):
        members.append(stage.start(f"m{number}"))
        stage.settle(number)
    stage.pause(3)
    for number, member in enumerate(members, 1):
        member.close()
        stage.settle(3 - number)
        stage.pause(3)
    stage.start("m4")
    stage.settle(1)
    stage.pause(3)


def expiries(stage: Stage) -> None:
    """Two of three are killed, one after the other; then the last one."""
    stage.topic()
    members = [stage.start(f"m{number}") for number in range(3)]
    stage.settle(3)
    stage.pause(3)
    for left in (2, 1, 0):
        members[left].kill()
        stage.settle(left)
        stage.pause(3)


def frozen(stage: Stage) -> None:
    """A member hangs until its session ends, and goes on."""
    stage.topic()
    stage.start("m1")
    member = stage.start("m2")
    stage.settle(2)
    stage.pause(3)
    member.signal(signal.SIGSTOP)
    stage.settle(1)
    member.signal(signal.SIGCONT)
    stage.settle(2)
    stage.pause(3)


def slow_polls(stage: Stage) -> None:
    """A member doesn't poll for longer than max.poll.interval.ms, and polls again."""
    stage.topic()
    stage.start("m1")
    slow = stage.start("m2", max_poll_ms=6_000)
    stage.settle(2)
    stage.pause(3)
    slow.tell("sleep", s=9.0)
    stage.settle(1)
    stage.settle(2)
    stage.pause(3)


def subscriptions(stage: Stage) -> None:
    """A follower and the leader subscribe to more topics, and to fewer; one unsubscribes and comes back."""
    first, second = stage.topic(), stage.topic(2)
    one = stage.start("m1")
    stage.settle(1)
    two = stage.start("m2")
    mark = stage.settle(2)
    stage.pause(3)
    for member, topics in ((two, [first, second]), (one, [first, second]), (two, [second]), (one, [first])):
        member.tell("subscribe", topics=topics)
        mark = stage.changed(mark, 2)
        stage.pause(3)
        mark = stage.settle(2)
    two.tell("subscribe", topics=[])
    stage.settle(1)
    stage.pause(3)
    two.tell("subscribe", topics=[second])
    stage.settle(2)
    stage.pause(3)


def added_partitions(stage: Stage) -> None:
    """A topic grows twice, once while one member is there."""
    topic = stage.topic(2)
    stage.start("m1")
    mark = stage.settle(1)
    stage.pause(3)
    stage.grow(topic, 4)
    stage.changed(mark, 1)
    stage.pause(3)
    stage.start("m2")
    stage.settle(2)
    stage.pause(3)
    mark = stage.settle(2)
    stage.grow(topic, 8)
    stage.changed(mark, 2)
    stage.pause(3)


def deleted_topic(stage: Stage) -> None:
    """One of two topics is deleted."""
    first, second = stage.topic(), stage.topic()
    for number in range(2):
        stage.start(f"m{number}", topics=[first, second])
    mark = stage.settle(2)
    stage.pause(3)
    mark = stage.settle(2)
    stage.delete_topic(second)
    stage.changed(mark, 2)
    stage.pause(3)


def leaves_then_killed(stage: Stage, first: Member, second: Member) -> None:
    """Of three members, one leaves and another is killed."""
    first.close()
    stage.settle(2)
    stage.pause(3)
    second.kill()
    stage.settle(1)
    stage.pause(3)


def leader_changes(stage: Stage) -> None:
    """The leader leaves; the next one is killed."""
    stage.topic()
    members = []
    for number in range(3):
        members.append(stage.start(f"m{number}"))
        stage.settle(number + 1)
    stage.pause(3)
    leaves_then_killed(stage, members[0], members[1])


def static_restarts(stage: Stage) -> None:
    """Static members restart: by close, by kill, the leader too, and two at once."""
    stage.topic()
    members = {}
    for name in ("s1", "s2", "s3"):
        members[name] = stage.start(name, instance_id=name, session_ms=8_000)
        mark = stage.settle(len(members))
    for names, how in ((["s2"], "close"), (["s1"], "close"), (["s3"], "kill"), (["s1", "s2"], "kill")):
        stage.pause(3)
        for name in names:
            getattr(members[name], how)()
        if how == "kill" and stage.protocol == "consumer":
            stage.settle(3 - len(names))  # before the session ends, the seat is refused
        for name in names:
            members[name] = stage.start(name, instance_id=name, session_ms=8_000)
        mark = stage.changed(mark, 3)
    stage.pause(3)


def static_expiry(stage: Stage) -> None:
    """A static member stays away for longer than its session, once by close and once by kill; each comes back."""
    stage.topic()
    members = {name: stage.start(name, instance_id=name) for name in ("s1", "s2", "s3")}
    stage.settle(3)
    stage.pause(3)
    for name, how in (("s2", "close"), ("s1", "kill")):
        getattr(members[name], how)()
        stage.settle(2)
        stage.pause(3)
        members[name] = stage.start(name, instance_id=name)
        stage.settle(3)
        stage.pause(3)


def static_new_subscription(stage: Stage) -> None:
    """A static member restarts with other topics."""
    first, second = stage.topic(), stage.topic()
    members = {name: stage.start(name, instance_id=name, session_ms=8_000) for name in ("s1", "s2")}
    mark = stage.settle(2)
    stage.pause(3)
    members["s2"].close()
    stage.start("s2", instance_id="s2", topics=[first, second], session_ms=8_000)
    mark = stage.changed(mark, 2)
    stage.pause(3)


def twins(stage: Stage) -> None:
    """A second program takes an instance id that is in use."""
    stage.topic()
    for name in ("s1", "s2"):
        stage.start(name, instance_id=name)
    mark = stage.settle(2)
    stage.pause(3)
    stage.start("s1", instance_id="s1")
    if stage.protocol == "classic":
        stage.changed(mark, 2)
    stage.pause(3)
    stage.settle(2)


def removals(stage: Stage) -> None:
    """An operator removes a static member that is gone, then one that lives."""
    stage.topic()
    members = {
        name: stage.start(name, instance_id=name, session_ms=30_000, max_poll_ms=30_000) for name in ("s1", "s2", "s3")
    }
    stage.settle(3)
    stage.pause(3)
    members["s2"].kill()
    stage.pause(1)
    stage.remove("s2")
    stage.settle(2)
    stage.pause(3)
    stage.remove("s3")
    stage.pause(3)
    stage.until("a state", lambda group: group.state in {"Stable", "Empty"})


def rolling_deploy(stage: Stage) -> None:
    """Each of three members closes, and a new one takes its place."""
    stage.topic(6)
    members = [stage.start(f"m{number}") for number in range(3)]
    stage.settle(3)
    stage.pause(3)
    for number, member in enumerate(members):
        member.close()
        members[number] = stage.start(f"m{number}")
        stage.pause(3)
        stage.settle(3)
    stage.pause(3)


def rolling_kill(stage: Stage) -> None:
    """Each of three dynamic members is killed, and a new one starts at once."""
    stage.topic(6)
    members = [stage.start(f"m{number}") for number in range(3)]
    mark = stage.settle(3)
    stage.pause(3)
    for number, member in enumerate(members):
        member.kill()
        members[number] = stage.start(f"m{number}")
        mark = stage.changed(mark, 3)
        stage.pause(3)


def rolling_static(stage: Stage) -> None:
    """Each of three static members closes and comes back."""
    stage.topic(6)
    members = {name: stage.start(name, instance_id=name, session_ms=8_000) for name in ("s1", "s2", "s3")}
    mark = stage.settle(3)
    stage.pause(3)
    for name, member in members.items():
        member.close()
        stage.start(name, instance_id=name, session_ms=8_000)
        mark = stage.changed(mark, 3)
        stage.pause(3)


def storm(stage: Stage) -> None:
    """Eight come at once, four are killed at once, four leave at once."""
    stage.topic(8)
    members = [stage.start(f"m{number}") for number in range(8)]
    stage.settle(8)
    stage.pause(3)
    for member in members[::2]:
        member.kill()
    stage.settle(4)
    stage.pause(3)
    for member in members[1::2]:
        member.tell("close")
    stage.settle(0)
    stage.pause(3)


def scale_down(stage: Stage) -> None:
    """Two of four leave at once while a new one comes."""
    stage.topic(8)
    members = [stage.start(f"m{number}") for number in range(4)]
    stage.settle(4)
    stage.pause(3)
    for member in members[:2]:
        member.tell("close")
    stage.start("m9")
    stage.pause(3)
    stage.settle(3)
    stage.pause(3)


def cooperative(stage: Stage) -> None:
    """Cooperative members come one by one; one leaves, one is killed."""
    stage.topic(6)
    members = []
    for number in range(3):
        members.append(stage.start(f"m{number}", assignor="cooperative-sticky"))
        stage.settle(number + 1)
        stage.pause(3)
        stage.settle(number + 1)
    leaves_then_killed(stage, members[1], members[0])


def silent(stage: Stage) -> None:
    """Members that never commit: one leaves, one is killed."""
    stage.topic()
    members = [stage.start(f"m{number}", commit_ms=0) for number in range(3)]
    stage.settle(3)
    stage.pause(3)
    members[0].close()
    stage.settle(2)
    stage.pause(3)
    members[1].kill()
    stage.settle(1)
    stage.pause(3)


def pattern(stage: Stage) -> None:
    """Members subscribe to a regular expression; then a topic is made that it matches."""
    stage.topic()
    wanted = [f"^{stage.group}-.*"]
    for number in range(2):
        stage.start(f"m{number}", topics=wanted)
        stage.settle(number + 1)
    stage.pause(3)
    mark = stage.settle(2)
    stage.topic(2)
    stage.changed(mark, 2)
    stage.pause(3)


def held_partitions(stage: Stage) -> None:
    """A member has to give up partitions, and takes longer than its max.poll.interval.ms; then it comes back."""
    stage.topic()
    slow = stage.start("m1", max_poll_ms=6_000)
    mark = stage.settle(1)
    stage.pause(3)
    slow.tell("hold", s=9.0)
    other = stage.start("m2")
    stage.changed(mark, 1)
    stage.settle(2)
    stage.pause(3)
    other.close()
    stage.settle(1)
    stage.pause(3)


CLASSIC = (
    joins_and_leaves, expiries, frozen, slow_polls, subscriptions, added_partitions, deleted_topic, leader_changes,
    static_restarts, static_expiry, static_new_subscription, twins, removals, rolling_deploy, rolling_kill,
    rolling_static, storm, scale_down, cooperative, silent, pattern,
)  # fmt: skip
CONSUMER = (
    joins_and_leaves, expiries, frozen, slow_polls, subscriptions, added_partitions, deleted_topic, leader_changes,
    static_restarts, static_expiry, static_new_subscription, twins, removals, rolling_deploy, rolling_kill,
    rolling_static, storm, scale_down, silent, pattern, held_partitions,
)  # fmt: skip
OTHERS = {
    "aiokafka": (joins_and_leaves, expiries, added_partitions, static_restarts, rolling_deploy),
    "kafka-python": (joins_and_leaves, expiries, static_restarts, cooperative),
    "kafka-clients-3": (joins_and_leaves, expiries, static_restarts, rolling_deploy, cooperative),
}

SCRIPTS = (
    *(Script(each.__name__, each, "classic", "confluent") for each in CLASSIC),
    *(Script(f"{each.__name__}.{client}", each, "classic", client) for client, them in OTHERS.items() for each in them),
    *(Script(f"{each.__name__}.consumer", each, "consumer", "confluent") for each in CONSUMER),
)
