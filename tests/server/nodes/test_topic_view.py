"""The search for topics that a regular expression matches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Queue
from typing import Any
from uuid import uuid4

import pytest

from coordinator.group.client import Client
from coordinator.group.effects import Resolution
from coordinator.group.events import RegexResolved
from coordinator.log.topics.list import Topic
from coordinator.loop.clock import Arguments
from coordinator.server.nodes import topic_view
from coordinator.server.nodes.topic_view import REGEX_MAX, Searches, TopicView, match, problem, when_loaded
from coordinator.server.nodes.topics import Topics
from tests.support.patience import WITHIN_S


@pytest.mark.parametrize("regex", ["a{1", r"\Qabc", "]", "t.*", "(?i)orders", "x" * REGEX_MAX])
def test_these_can_be_read(regex: str) -> None:
    """Whatever RE2 reads."""
    assert problem(regex) is None


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*a", "missing argument to repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a**", "invalid nested repetition operator"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<n", "invalid named capture"),
        ("(?<!a)b", "invalid named capture"),
        (r"\Z", "invalid escape sequence"),
        ("[z-a]", "invalid character class range"),
        ("a\\", "trailing backslash at end of expression"),
        (")", "regexp/syntax: internal error"),
    ],
)
def test_mistakes_have_the_words_of_kafka(regex: str, words: str) -> None:
    """Apache Kafka 4.3.1 and 4.4.0 answer with these texts."""
    assert problem(regex) == f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {words}."


@pytest.mark.parametrize("regex", ["(", "(?=a)", r"(a)\1", "a++", r"a\Z", "a{1001}", r"\pL{60}", "x" * (REGEX_MAX + 1)])
def test_these_can_not(regex: str) -> None:
    """Lookaround, backreferences, possessive quantifiers and more than RE2 or we allow."""
    assert problem(regex)


def test_re2_is_loaded_on_a_thread_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import takes up to 80 ms, which the loop doesn't wait for; a later expression waits for no thread."""
    loaded: list[threading.Thread] = []
    both_wait = threading.Event()

    def load(_: str) -> None:
        both_wait.wait(WITHIN_S)
        loaded.append(threading.current_thread())

    monkeypatch.setattr(topic_view, "re2_problem", load)
    hopped: Queue[Callable[..., object]] = Queue()
    done: list[str] = []

    def hop(call: Callable[..., object], /, *_: object) -> None:
        hopped.put(call)

    monkeypatch.setattr(topic_view, "LOADED", threading.Event())
    for name in ("first", "second"):
        when_loaded(hop, partial(done.append, name))
    both_wait.set()
    for _ in range(2):
        hopped.get(timeout=WITHIN_S)()
    assert (threading.current_thread() in loaded, len(set(loaded)), done) == (False, 1, ["first", "second"])
    when_loaded(hop, lambda: done.append("third"))
    assert (len(loaded), done, hopped.empty()) == (2, ["first", "second", "third"], True)


def test_an_expression_is_answered_though_re2_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request goes on, and meets the same error where it is reported."""

    def missing(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(topic_view, "re2_problem", missing)
    monkeypatch.setattr(topic_view, "LOADED", threading.Event())
    hopped: Queue[Callable[..., object]] = Queue()

    def hop(call: Callable[..., object], /, *_: object) -> None:
        hopped.put(call)

    def done() -> None:
        """The rest of the request."""

    when_loaded(hop, done)
    assert hopped.get(timeout=WITHIN_S) is done


def test_a_whole_name_matches() -> None:
    """As in Kafka, a part of a name is not enough; an expression that can't be read matches nothing."""
    found = match(["t", "t.*", "("], ["t", "t1", "at"])
    assert found == {"t": {"t"}, "t.*": {"t", "t1"}, "(": set()}


def test_topics_that_a_client_may_not_see_are_left_out_in_steps() -> None:
    """Each topic is asked about once, whatever number of expressions match it, and the loop may pause behind each."""
    topics = Topics({name: Topic(name, uuid4(), 1) for name in ("a", "b", "c")}, lambda _change, _done: None)
    asked: list[str] = []
    hopped: Queue[tuple[Any, ...]] = Queue()
    found: list[RegexResolved] = []

    def may_see(_what: Resolution, name: str) -> bool:
        asked.append(name)
        return name != "b"

    def hop(function: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        hopped.put((function, *arguments))

    searches = Searches(TopicView(topics), lambda: 7, hop, lambda _steps: None, may_see)
    client = Client("", "/127.0.0.1", "User:alice", "", "PLAINTEXT")
    searches.search(Resolution("g", frozenset({"[ab]", ".*"}), client), found.append)
    work, steps = hopped.get(timeout=WITHIN_S)
    assert work == searches._work
    assert len(list(steps)) == 5  # three topics and two expressions
    assert sorted(asked) == ["a", "b", "c"]
    assert found == [RegexResolved("g", {"[ab]": frozenset("a"), ".*": frozenset("ac")}, 1, 7)]
    searches.close()
