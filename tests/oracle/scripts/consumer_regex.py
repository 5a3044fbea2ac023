"""Subscriptions by regular expression in the consumer protocol (KIP-848).

A regex is resolved beside the heartbeats, and no other of the same group within 10 s after the last resolution: scripts
wait for the epoch that a resolution makes, and have one regex or wait once.
"""

from __future__ import annotations

from tests.oracle.consumer import delete_topic, described, seat, settle, until, until_epoch
from tests.oracle.stage import Stage, script

ONE, THREE = "consumer-1", "consumer-3"


@script("consumer")
def regex_is_resolved_behind_the_first_answer(stage: Stage) -> None:
    """The first answer assigns nothing and bumps nothing; the resolution bumps without a heartbeat."""
    stage.known_topic("regex-a-1", 1)
    stage.known_topic("regex-a-2", 2)
    a = seat(stage, "a", regex="regex-a-.*")
    a.join()
    until_epoch(stage, 2)
    a.describe()
    a.beat()
    a.confirm()
    a.describe()
    a.describe(version=0)


@script("consumer")
def regex_that_is_known_is_used_at_once(stage: Stage) -> None:
    """A second member with the same regex gets its topics with its first answer."""
    stage.known_topic("regex-b-1", 4)
    a, b = seat(stage, "a", regex="regex-b-.*"), seat(stage, "b", regex="regex-b-.*")
    a.join()
    until_epoch(stage, 2)
    a.beat()
    a.confirm()
    b.join()
    settle(a, b)
    b.describe()


@script("consumer")
def regex_names_whole_topics(stage: Stage) -> None:
    """Part of a name doesn't match; a regex that matches nothing is resolved to nothing."""
    stage.known_topic("regex-c-1", 1)
    a = seat(stage, "a", regex="regex-c")
    b = seat(stage, "b", topics=[stage.known_topic(ONE, 1)], regex="egex-c-1", group=f"{stage.group}.b")
    c = seat(stage, "c", regex="regex-c-[0-9]", group=f"{stage.group}.c")
    for member in (a, b, c):
        member.join()
    until(stage, lambda group: group.group_epoch == 2, c.client.group)
    c.beat()
    a.beat()
    b.beat()
    a.describe(stage.group, b.client.group, c.client.group)


@script("consumer")
def sole_regex_replaced(stage: Stage) -> None:
    """A sole regex that is replaced needs no wait, only a second heartbeat; its topics are lost at once."""
    stage.known_topic("regex-d-1", 1)
    stage.known_topic("regex-d-x", 1)
    a = seat(stage, "a", regex="regex-d-1")
    a.join()
    until_epoch(stage, 2)
    a.beat()
    a.confirm()
    a.beat(subscribed_topic_regex="regex-d-x")
    a.describe()

    def is_resolved() -> bool:
        a.beat_aside()
        return described(stage).group_epoch == 3

    stage.until_true(is_resolved)
    a.beat(owns={"regex-d-1": [0]})
    settle(a)
    a.describe()


@script("consumer")
def names_and_a_regex_add_up(stage: Stage) -> None:
    """Names don't replace a regex, nor the other way round, until one is sent empty."""
    stage.known_topic("regex-e-1", 1)
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic], regex="regex-e-.*")
    a.join()
    until_epoch(stage, 3)
    a.beat()
    a.confirm()
    a.describe()
    a.beat(subscribed_topic_names=[topic])
    a.beat(subscribed_topic_regex="regex-e-.*")
    a.describe()
    a.beat(subscribed_topic_regex="")
    a.confirm()
    a.describe()
    a.beat(subscribed_topic_names=[])
    a.confirm()
    a.describe()


@script("consumer")
def bad_regexes(stage: Stage) -> None:
    """RE2's syntax: what it refuses is INVALID_REGULAR_EXPRESSION, and creates no group."""
    a = seat(stage, "a", topics=None)
    for regex in ("(", "a(?=b)", "(?<!a)b", r"(a)\1", "a++", r"a\Z", "a{1001}", "[", "*", "a**", "(?P<n>a", "\\"):
        a.join(subscribed_topic_regex=regex)
    a.describe()


@script("consumer")
def regexes_that_look_bad(stage: Stage) -> None:
    """RE2 takes these."""
    a = seat(stage, "a", topics=None)
    regexes = ("a{1", r"\Qabc", "]", "(?i)abc", "a{1000}", "(?P<n>a)", r"\pL", "a|", "", "^abc$", "a*?")
    for number, regex in enumerate(regexes):
        seat(stage, f"b{number}", member_id="b", group=f"{stage.group}.{number}", regex=regex).join()
    a.describe()


@script("consumer")
def bad_regex_changes_nothing(stage: Stage) -> None:
    """A member that sends one goes on as it was; a static seat isn't taken over by one."""
    topic = stage.known_topic(THREE, 3)
    a = seat(stage, "a", topics=[topic], instance="A")
    a.join()
    a.beat(subscribed_topic_regex="(")
    a.beat(subscribed_topic_regex="(", member_epoch=9)
    a.describe()
    a.leave(-2)
    b = seat(stage, "b", topics=[topic], regex="(", instance="A")
    b.join()
    a.describe()


@script("consumer")
def new_topic_of_a_regex(stage: Stage) -> None:
    """A topic that matches is found at the next resolution, 10 s after the last one."""
    stage.known_topic("regex-f-1", 1)
    a = seat(stage, "a", regex="regex-f-.*")
    a.join()
    until_epoch(stage, 2)
    a.beat()
    a.confirm()
    name = stage.known_topic("regex-f-2", 1)
    a.until_epoch(3)
    a.full()
    a.describe()
    delete_topic(stage, name)


@script("consumer")
def another_regex_of_the_same_group(stage: Stage) -> None:
    """It waits up to 10 s after the last resolution."""
    stage.known_topic("regex-g-1", 1)
    stage.known_topic("regex-g-2", 1)
    a, b = seat(stage, "a", regex="regex-g-1"), seat(stage, "b", regex="regex-g-2")
    a.join()
    until_epoch(stage, 2)
    a.beat()
    b.join()
    b.beat()
    b.describe()
    b.until_epoch(3)
    b.full()
    b.describe()


@script("consumer")
def member_with_a_regex_leaves(stage: Stage) -> None:
    """The last member with a regex takes it along: a later one starts again."""
    stage.known_topic("regex-h-1", 2)
    a, b = seat(stage, "a", regex="regex-h-.*"), seat(stage, "b", topics=[stage.known_topic(ONE, 1)])
    b.join()
    a.join()
    until_epoch(stage, 3)
    a.beat()
    a.confirm()
    a.leave()
    b.describe()
    b.beat()
    a.join()
    until_epoch(stage, 5)
    a.describe()
