"""Kafka's own assignors of release 4.4.0 get the same groups as ours: range must agree, uniform must be as good.

Kafka's "uniform" depends on the order of a hash map, so the partitions themselves can't be compared. Compared are how
unequal the members' shares are, and how many owned partitions move: ours are never worse.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from coordinator.group.consumer.assignors import Assignment, Subscriber
from tests.group.consumer.assignors.groups import check, moved, owning, size, targets_of, topic
from tests.support.apache import JVM_FLAGS, VERSION_44, jars

pytestmark = pytest.mark.oracle

PROGRAM_WITHIN_S = 180.0
"""How long Java may take to compile and run the program on a busy machine."""

GROUPS = 400

Group = tuple[dict[str, Subscriber], dict[UUID, int]]
Targets = dict[str, Assignment]


def kafkas(name: str, groups: list[Group]) -> list[Targets]:
    """The targets of Kafka's own classes: see Assignors.java."""
    commands: list[str] = []
    for members, partitions in groups:
        commands += (f"topic {topic_id.int} {count}" for topic_id, count in partitions.items())
        for member, each in members.items():
            wanted = ",".join(str(topic_id.int) for topic_id in each.topics) or "-"
            owned = ",".join(f"{key.int}:{number}" for key, numbers in each.owned.items() for number in numbers) or "-"
            commands.append(f"member {member} {each.instance_id or '-'} {wanted} {owned}")
        commands.append(f"assign {name}")
    program = Path(__file__).with_name("Assignors.java")
    done = subprocess.run(
        ["java", *JVM_FLAGS, "-cp", f"{jars(VERSION_44)}/*", str(program)],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        timeout=PROGRAM_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [read(line) for line in done.stdout.splitlines()]
    return [
        {member: answer.get(member, {}) for member in members}
        for (members, _), answer in zip(groups, answers, strict=True)
    ]


def read(line: str) -> Targets:
    """An answer of the program."""
    words = line.split()
    targets: Targets = {}
    for member, listed in zip(words[::2], words[1::2], strict=True):
        mine: dict[UUID, set[int]] = {}
        for each in listed.split(",") if listed != "-" else ():
            number, partition = each.split(":")
            mine.setdefault(UUID(int=int(number)), set()).add(int(partition))
        targets[member] = {topic_id: frozenset(numbers) for topic_id, numbers in mine.items()}
    return targets


def fresh(chance: Random, *, alike: bool) -> Group:
    """A group in which nobody owns anything. alike: all subscribe to the same topics."""
    topics = [topic(number) for number in range(chance.randint(1, 6))]
    partitions = {topic_id: chance.randint(1, 12) for topic_id in topics}
    common = chance.sample(topics, chance.randint(1, len(topics)))
    members: dict[str, Subscriber] = {}
    for number in range(chance.randint(1, 9)):
        wanted = common if alike else chance.sample(topics, chance.randint(0, len(topics)))
        instance_id = f"i{chance.randint(0, 10**6)}" if chance.random() < 0.4 else None
        members[f"m{chance.randint(0, 10**6)}-{number}"] = Subscriber(instance_id, frozenset(wanted), {})
    return members, partitions


def changed(chance: Random, group: Group, *, alike: bool) -> Group:
    """A group after some joined or left, a topic grew, came or went, or a subscription changed."""
    members, partitions = dict(group[0]), dict(group[1])
    for _ in range(chance.randint(0, 2)):
        if len(members) > 1:
            del members[chance.choice(sorted(members))]
    for number in range(chance.randint(0, 2)):
        model = members[chance.choice(sorted(members))]
        members[f"n{chance.randint(0, 10**6)}-{number}"] = model._replace(instance_id=None, owned={})
    grown = chance.choice(sorted(partitions))
    partitions[grown] += chance.randint(0, 5)
    if chance.random() < 0.2 and len(partitions) > 1:
        gone = chance.choice(sorted(partitions))
        del partitions[gone]
    if alike:
        topics = frozenset(chance.sample(sorted(partitions), chance.randint(1, len(partitions))))
        other = (
            topics if chance.random() < 0.3 else frozenset(next(iter(members.values())).topics) & frozenset(partitions)
        )
        return {name: each._replace(topics=other) for name, each in members.items()}, partitions
    for name in sorted(members):
        wanted = frozenset(members[name].topics) & frozenset(partitions)
        if chance.random() < 0.2:
            wanted = frozenset(chance.sample(sorted(partitions), chance.randint(0, len(partitions))))
        members[name] = members[name]._replace(topics=wanted)
    return members, partitions


def scattered(chance: Random, group: Group) -> Group:
    """A group that owns its topics' partitions, or others, at random."""
    members, partitions = group
    mine: dict[str, dict[UUID, set[int]]] = {name: {} for name in members}
    for topic_id, count in partitions.items():
        for number in range(count):
            if chance.random() < 0.8:
                mine[chance.choice(sorted(members))].setdefault(topic_id, set()).add(number)
    return {
        name: each._replace(owned={key: frozenset(numbers) for key, numbers in mine[name].items()})
        for name, each in members.items()
    }, partitions


def unequal(targets: Targets) -> int:
    """The sum of the squares of the members' sizes: the less, the more equal."""
    return sum(size(target) ** 2 for target in targets.values())


def judge(group: Group, ours: Targets, theirs: Targets) -> tuple[int, int]:
    """How much more unequal ours are, and how many more partitions move; negative where ours are better."""
    check(*group, ours)
    check(*group, theirs)
    return unequal(ours) - unequal(theirs), moved(group[0], ours) - moved(group[0], theirs)


def lineage(name: str, chance: Random, *, alike: bool) -> list[Group]:
    """Fresh groups, groups that own what Kafka gave them and then changed, and groups that own at random."""
    first = [fresh(chance, alike=alike) for _ in range(GROUPS // 4)]
    given = kafkas(name, first)
    second = [
        changed(chance, (owning(members, targets), partitions), alike=alike)
        for (members, partitions), targets in zip(first, given, strict=True)
        for _ in range(2)
    ]
    return [*first, *second, *(scattered(chance, group) for group in first)]


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "mixed"])
def test_range_is_kafkas(kafka_is_here: None, alike: bool) -> None:
    """Every member of every group gets the very partitions that it gets from Kafka."""
    groups = lineage("range", Random(848), alike=alike)
    for group, theirs in zip(groups, kafkas("range", groups), strict=True):
        assert targets_of("range", *group) == theirs


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "mixed"])
def test_uniform_is_as_good_as_kafkas(kafka_is_here: None, alike: bool) -> None:
    """Shares are as equal as Kafka's or more so, and of two as equal ones ours moves no more partitions."""
    groups = lineage("uniform", Random(848), alike=alike)
    worse = []
    for group, theirs in zip(groups, kafkas("uniform", groups), strict=True):
        verdict = judge(group, targets_of("uniform", *group), theirs)
        if verdict > (0, 0):
            worse.append((verdict, group))
    assert not worse
