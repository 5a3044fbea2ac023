"""The topics as groups of the consumer protocol see them, and the search for those that a regular expression matches.

A search takes time in proportion to topics and the length of the expression (RE2 never backtracks). It runs on a thread
of its own, so that nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from threading import Event
from typing import Any
from uuid import UUID

from coordinator.group.effects import Resolution
from coordinator.group.events import RegexResolved
from coordinator.group.topics import TopicImage
from coordinator.log.topics.list import Topic
from coordinator.loop.clock import Hop
from coordinator.server.nodes.topics import Topics

REGEX_MAX = 1_000
"""The longest regular expression, in characters. RE2 reads it on the loop's thread, and classes of Unicode are large:
the worst that was found takes 50 ms, and 2 s with 10,000 characters.
"""

MEMORY_MAX = 1 << 20
"""Bytes for a regular expression that RE2 has read. With eight times as many, its default, \\pL{1000} takes 0.2 s."""

PROBLEMS_KEPT = 128
"""Regular expressions whose problem is known: a client that is refused asks again and again."""

WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator: (?<": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "invalid escape sequence": "invalid escape sequence",
    "invalid character class range": "invalid character class range",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}
"""How a text of RE2 begins, and the text of Kafka's RE2/J for the same mistake."""

LOADED = Event()
"""Set when RE2 is loaded. A module that is being imported is in sys.modules already."""

LOADER = ThreadPoolExecutor(1, "load-re2")
"""However many clients ask before RE2 is loaded, one thread loads it."""


class TopicView:
    """The server's topics in the form of `group.topics.Topics`.

    version: grows with each change. created_version: the version at the last creation.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.version = 1
        self.created_version = 1

    def find(self, names: Iterable[str]) -> list[TopicImage]:
        """The topics of these names."""
        return [_image(topic) for topic in self._topics.find(names)]

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of this id."""
        topic = self._topics.get_by_id(topic_id)
        return None if topic is None else _image(topic)

    def names(self) -> Collection[str]:
        """The names of all topics."""
        return [topic.name for topic in self._topics]

    def changed(self, *, created: bool) -> None:
        """Topics changed."""
        self.version += 1
        if created:
            self.created_version = self.version


def _image(topic: Topic) -> TopicImage:
    return TopicImage(topic.topic_id, topic.name, topic.partition_count)


class Searches:
    """Searches for topics, one after the other.

    wall_ms: the time. hop: has the loop's thread call a function. work: does steps there, in as many turns as they
    take. may_see: whether topics may be shown to a client.
    """

    def __init__(
        self,
        view: TopicView,
        wall_ms: Callable[[], int],
        hop: Hop,
        work: Callable[[Iterator[None]], None],
        may_see: Callable[[Resolution, str], bool],
    ) -> None:
        self._view = view
        self._wall_ms = wall_ms
        self._hop = hop
        self._work = work
        self._may_see = may_see
        self._thread: ThreadPoolExecutor | None = None

    def search(self, what: Resolution, done: Callable[[RegexResolved], None]) -> None:
        """Find the topics; `done` gets them, on the loop's thread."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "topics-by-regex")
        began_ms, version = self._wall_ms(), self._view.version
        names = list(self._view.names())

        def found(future: Future[dict[str, frozenset[str]]]) -> None:
            if not future.cancelled():
                self._hop(self._work, told(future.result()))

        def told(matches: dict[str, frozenset[str]]) -> Iterator[None]:
            seen: set[str] = set()
            for name in frozenset().union(*matches.values()):
                if self._may_see(what, name):
                    seen.add(name)
                yield
            for regex, matched in matches.items():
                matches[regex] = matched & seen
                yield
            done(RegexResolved(what.group_id, matches, version, began_ms))

        self._thread.submit(match, what.regexes, names).add_done_callback(found)

    def close(self) -> None:
        """End the thread; a search that runs is not waited for."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def match(regexes: Collection[str], names: Collection[str]) -> dict[str, frozenset[str]]:
    """The names that each regular expression matches as a whole. One that can't be read matches none."""
    found: dict[str, frozenset[str]] = {}
    for regex in regexes:
        matches = matcher(regex)
        found[regex] = frozenset() if matches is None else frozenset(filter(matches, names))
    return found


def matcher(regex: str) -> Callable[[str], Any] | None:
    """A function that tells whether a regular expression matches a text as a whole; None if it can't be read."""
    import re2  # noqa: PLC0415 - only a regular expression of a client needs it

    try:
        return re2.compile(regex, _options()).fullmatch  # type: ignore[no-any-return]
    except re2.error:
        return None


def problem(regex: str) -> str | None:
    """The mistake in a regular expression; None if it can be read."""
    if len(regex) > REGEX_MAX:
        return f"the regular expression has more than {REGEX_MAX} characters"
    return re2_problem(regex)


def when_loaded(hop: Hop, done: Callable[[], None]) -> None:
    """Call `done` on the loop's thread once RE2 is there. Its import takes up to 80 ms: a thread does it, once."""
    if LOADED.is_set():
        done()
        return

    def load() -> None:
        try:
            re2_problem("")
        finally:  # what prevents the import meets `done` too, and there it is reported
            LOADED.set()
            with suppress(RuntimeError):  # the loop has ended
                hop(done)

    LOADER.submit(load)


@lru_cache(PROBLEMS_KEPT)
def re2_problem(regex: str) -> str | None:
    """The mistake that RE2 finds, in the words of Kafka's RE2/J."""
    import re2  # noqa: PLC0415 - as above

    try:
        re2.compile(regex, _options())
    except re2.error as error:
        text = error.args[0] if error.args else ""
        found = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        words = next((kafkas for ours, kafkas in WORDS.items() if found.startswith(ours)), found)
        return f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {words}."
    return None


def _options() -> object:
    """Errors are the client's, so none is printed."""
    import re2  # noqa: PLC0415 - as above

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    return options
