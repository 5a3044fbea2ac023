"""`tenure groups settings` against a server of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.cli.group_settings import app
from tests.cli.conftest import Ran, at, run_app
from tests.support.tenure import Tenure


@pytest.fixture(scope="module")
def server() -> Iterator[Tenure]:
    """One server for all tests."""
    with Tenure({}) as tenure:
        yield tenure


def settings(server: Tenure, group: str, *arguments: str) -> Ran:
    """Run the command."""
    return run_app(app, "settings", group, *arguments, *at(server.bootstrap))


def test_settings_are_set_shown_and_removed(server: Tenure) -> None:
    """Before the group exists. The output is the state after the change."""
    assert settings(server, "g") == (0, "", "tenure: group g has no settings of its own\n")
    ran = settings(server, "g", "--set", "target.group.size=5", "--set", "expected.instance.ids=worker-[0..4]")
    assert (ran.code, ran.err) == (0, "")
    assert ran.rows == [
        {"GROUP": "g", "SETTING": "expected.instance.ids", "VALUE": "worker-[0..4]"},
        {"GROUP": "g", "SETTING": "target.group.size", "VALUE": "5"},
    ]
    ran = settings(server, "g", "--unset", "target.group.size", "--output", "json")
    assert ran.json == {"group_id": "g", "settings": {"expected.instance.ids": "worker-[0..4]"}}


def test_the_server_says_what_is_wrong(server: Tenure) -> None:
    """Then nothing changes, also not the other settings of the command."""
    ran = settings(server, "h", "--set", "target.group.size=5", "--set", "unexpected.instance.ids=none")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("tenure: settings of group 'h': ")
    assert "unexpected.instance.ids" in ran.err
    assert ran.err.endswith(": INVALID_CONFIG\n")
    assert settings(server, "h", "--output", "json").json == {"group_id": "h", "settings": {}}


@pytest.mark.parametrize(("name", "hint"), [("target.grup.size", ", perhaps target.group.size"), ("foo", "")])
@pytest.mark.parametrize("change", ["--unset={}", "--set={}=5"])
def test_a_name_that_no_group_has_is_refused(server: Tenure, change: str, name: str, hint: str) -> None:
    """A setting whose removal is mistyped would stay in force. Exit code 2; the other changes don't happen either."""
    ran = settings(server, "i", change.format(name), "--set", "target.group.size=5")
    assert ran == (2, "", f"tenure: a group has no setting {name!r}{hint}\n")
    assert settings(server, "i", "--output", "json").json == {"group_id": "i", "settings": {}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "target.group.size"], "--set: 'target.group.size' is not NAME=VALUE"),
        (["--set", "=5"], "--set: '=5' is not NAME=VALUE"),
        (["--set", "a=5", "--set", "a=6"], "a is named twice"),
        (["--set", "a=5", "--unset", "a"], "a is named twice"),
    ],
)
def test_wrong_usage(server: Tenure, arguments: list[str], said: str) -> None:
    """Exit code 2, and no server is asked."""
    assert settings(server, "g", *arguments) == (2, "", f"tenure: {said}\n")
