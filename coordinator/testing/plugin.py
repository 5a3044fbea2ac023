"""The plugin for pytest: fixtures, a marker, ini options, and the timelines of groups in the report of a failed test.

    tenure            a server for each test
    tenure_session    one server for all tests of a process; with pytest-xdist each worker has its own
    tenure_factory    a function that makes further servers, with the arguments of Tenure

    @pytest.mark.tenure(topics={"orders": 12}, settings={"group.max.size": 5})    for `tenure`
    tenure_topics, tenure_settings                                                 ini options, for all of them

House rule: a test run that uses no fixture of these imports no server, and nothing else of Tenure.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coordinator.testing.tenure import Tenure

    Make = Callable[..., Tenure]

ENTRIES_SHOWN = 50
"""Lines of a timeline in the report of a failed test, the newest."""

GROUPS_SHOWN = 20
"""Groups with a timeline in the report of a failed test, those with the newest events: a suite may make hundreds."""

SECTION = "Tenure: group {group} ({server})"
FURTHER = "Tenure: further groups ({server})"
FAULTS = "Tenure: faults ({server})"
"""Titles of sections in the report."""

EXAMPLES = {"topics": '{"orders": 12}', "settings": '{"group.max.size": 5}'}
"""The form of the marker's arguments, for an error."""

OF_TEST = pytest.StashKey[list[tuple["Tenure", int]]]()
"""The servers that a test uses, each with the number of its events before the test."""


class FaultNeverFired(pytest.PytestWarning):
    """A test planned a fault, and no request met it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini options."""
    parser.addini("tenure_topics", "topics of each Tenure server, one NAME=PARTITIONS per line", "linelist")
    parser.addini("tenure_settings", "settings of each Tenure server, one NAME=VALUE per line", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", "tenure(topics={}, settings={}): topics and settings of the fixture `tenure`")


@pytest.fixture
def tenure(request: pytest.FixtureRequest, tenure_factory: Make) -> Tenure:
    """A running server for this test, with the topics and settings of its markers; the nearest marker wins."""
    topics: dict[str, int] = {}
    settings: dict[str, object] = {}
    for mark in reversed(list(request.node.iter_markers("tenure"))):
        unknown = ", ".join([*map(repr, mark.args), *sorted(mark.kwargs.keys() - {"topics", "settings"})])
        if unknown:
            raise pytest.UsageError(f"the marker tenure takes topics= and settings=, not {unknown}")
        for name, wanted in mark.kwargs.items():
            if not isinstance(wanted, dict):
                raise pytest.UsageError(f"the marker tenure takes {name}={EXAMPLES[name]}, not {wanted!r}")
        topics |= mark.kwargs.get("topics", {})
        settings |= mark.kwargs.get("settings", {})
    return tenure_factory(topics, settings)


@pytest.fixture
def tenure_factory(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes running servers for this test: `tenure_factory(topics={"orders": 12}, data_dir=tmp_path)`."""
    used = _used(request.node)
    with ExitStack() as stack:

        def make(
            topics: dict[str, int] | None = None, settings: dict[str, object] | None = None, **more: Any
        ) -> Tenure:
            made = stack.enter_context(_made(request.config, topics or {}, settings or {}, more))
            stack.callback(_warn_of_faults, made)
            used.append((made, 0))
            return made

        yield make


@pytest.fixture(scope="session")
def _tenure_of_session(request: pytest.FixtureRequest) -> Iterator[Tenure]:
    with _made(request.config, {}, {}, {}) as made:
        yield made


@pytest.fixture
def tenure_session(request: pytest.FixtureRequest, _tenure_of_session: Tenure) -> Iterator[Tenure]:
    """The server that all tests of this process share; its groups, topics and time stay from test to test."""
    if _tenure_of_session.is_running:
        _tenure_of_session.flush()
    _used(request.node).append((_tenure_of_session, len(_tenure_of_session.history)))
    yield _tenure_of_session
    _warn_of_faults(_tenure_of_session)
    _tenure_of_session.end_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the timeline of each group that a failed test touched, as `tenure explain` prints it."""
    report = yield
    if report.failed and call.when != "teardown":
        for made, since in item.stash.get(OF_TEST, []):
            report.sections += _sections(made, since)
    return report


def _used(item: pytest.Item) -> list[tuple[Tenure, int]]:
    return item.stash.setdefault(OF_TEST, [])


def _made(config: pytest.Config, topics: dict[str, int], settings: dict[str, object], more: dict[str, Any]) -> Tenure:
    from coordinator.testing.tenure import Tenure  # noqa: PLC0415 - see the module

    all_topics = {name: int(count) for name, count in _pairs(config, "tenure_topics")} | topics
    return Tenure(all_topics, {**dict(_pairs(config, "tenure_settings")), **settings}, **more)


def _pairs(config: pytest.Config, option: str) -> Iterable[tuple[str, str]]:
    """The lines of an ini option."""
    for line in config.getini(option):
        name, equals, value = line.partition("=")
        if not equals or (option == "tenure_topics" and not value.strip().isdecimal()):
            form = "NAME=PARTITIONS" if option == "tenure_topics" else "NAME=VALUE"
            raise pytest.UsageError(f"{option}: {line!r} is not {form}")
        yield name.strip(), value.strip()


def _warn_of_faults(made: Tenure) -> None:
    """Tell at the end of a test which of its faults never happened: it didn't test what it says."""
    for fault in made.faults.never_fired:
        warnings.warn(f"this planned fault never fired: {fault}", FaultNeverFired, stacklevel=1)


def _sections(made: Tenure, since: int) -> Iterator[tuple[str, str]]:
    """A section for the planned faults, and one for each of the newest groups with events since the test began."""
    told = "".join(f"fired {fault.fired}: {fault}\n" for fault in made.faults)
    if told:
        yield FAULTS.format(server=made.bootstrap_servers), told
    if made.is_running:
        made.flush()
    groups = made.history.group_ids(since)
    if len(groups) > GROUPS_SHOWN:
        left_out = f"{len(groups) - GROUPS_SHOWN} of {len(groups)} groups have no timeline here: the oldest ones\n"
        yield FURTHER.format(server=made.bootstrap_servers), left_out
    for group_id in made.history.newest_groups(since, GROUPS_SHOWN):
        group = made.group(group_id)
        text = group.explain(since, last=ENTRIES_SHOWN) or group.explain(last=ENTRIES_SHOWN)
        yield SECTION.format(group=group_id, server=made.bootstrap_servers), text
