"""The help of every command, and the errors of its options, speak of what a user types, not of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from coordinator.cli.options import EXAMPLES, duration_ms
from tests.cli.conftest import make_app


def commands() -> Iterator[tuple[str, ...]]:
    """Every command with its subcommands, as words; () is `tenure` itself."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), get_command(make_app("")))]
    while waiting:
        words, command = waiting.pop()
        yield words
        waiting += [((*words, name), each) for name, each in getattr(command, "commands", {}).items()]


def leaves() -> Iterator[tuple[str, ...]]:
    """Every command that has none below it, but `serve`."""
    every = set(commands())
    return (words for words in every if words != ("serve",) and not any(each[:-1] == words for each in every if each))


@pytest.mark.parametrize("words", [words for words in commands() if words != ("serve",)], ids=" ".join)
def test_no_type_of_python_is_shown(words: tuple[str, ...]) -> None:
    """Each argument and option stands with a word for its value: GROUP, SECONDS, table|json."""
    shown = CliRunner().invoke(make_app(""), [*words, "--help"])
    assert shown.exit_code == 0
    assert not re.search(r"[<>{}]|[<>]=", shown.output), shown.output
    names = re.findall(r"^  (\S.*?)(?:  |$)", shown.output.partition("Arguments:\n")[2], re.MULTILINE)
    assert all(re.fullmatch(r"[A-Z_]+|-.*", name) for name in names), names


def test_every_command_is_looked_at() -> None:
    """The test above finds the commands below others too."""
    assert {(), ("groups", "list"), ("log", "dump"), ("members", "remove")} <= set(commands())


@pytest.mark.parametrize("words", sorted(EXAMPLES.keys() | {" ".join(words) for words in leaves()}))
def test_the_help_has_an_example_and_the_exit_codes(words: str) -> None:
    """Each command but `serve` has an example with options of its own, and the meaning of its exit codes."""
    shown = CliRunner().invoke(make_app(""), [*words.split(), "--help"]).output
    (example,) = re.findall(r"^Example: tenure (.*)$", shown, re.MULTILINE)
    assert example.startswith(words)
    assert set(re.findall("--[a-z-]+", example)) <= set(re.findall("--[a-z-]+", shown.partition("Example")[0]))
    assert "Exit codes: 0 done, 1 findings" in shown


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("groups list --timeout abc", "--timeout': 'abc' is not a number of seconds, 0.1 or more"),
        ("watch --timeout 0", "--timeout': '0' is not a number of seconds, 0.1 or more"),
        ("log verify . --output xml", "--output': 'xml' is none of table, json"),
        ("explain g --last 0", "--last': '0' is not a whole number, 1 or more"),
        ("doctor g --last 1.5", "--last': '1.5' is not a whole number, 1 or more"),
        ("log verify . --partitions x", "--partitions': 'x' is not a whole number, 1 or more"),
        ("groups wait g --members x", "--members': 'x' is not a whole number, 0 or more"),
        ("groups wait g --members -1", "--members': '-1' is not a whole number, 0 or more"),
        ("audit . --max-rebalances -1", "--max-rebalances': '-1' is not a whole number, 1 or more"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right(arguments: str, error: str) -> None:
    """The last line names the option, the value, and what it should be; exit code 2."""
    result = CliRunner().invoke(make_app(""), arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"Error: Invalid value for '{error}"


def test_a_duration_that_is_too_long_is_said_to_be() -> None:
    """The error calls only a duration too long that is one; any other text is no duration."""
    assert duration_ms("10000d") == 10_000 * 24 * 3_600_000
    assert duration_ms("0" * 5_000 + "90s") == 90_000
    for text in ("10001d", "99999999999d", "864000001s", "9" * 5_000 + "s"):
        with pytest.raises(typer.BadParameter, match="is too long: 10000d at most"):
            duration_ms(text)
    for text in ("1", "d", "1w", "-1d", "1.5h", "99999999999"):
        with pytest.raises(typer.BadParameter, match="is not a duration: 90s, 15m, 2h, 7d"):
            duration_ms(text)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("groups describe", "name the groups to describe, or give --all"),
        ("groups describe g --all", "--all and names exclude each other"),
        ("doctor", "name a group, `tenure doctor GROUP`, or give --all"),
        ("doctor g --all", "--all and names exclude each other"),
        ("members remove --group g", "name the members to remove with --instance-id, or give --all-absent"),
        ("members remove --group g --instance-id i --all-absent", "--all-absent and names exclude each other"),
        ("groups wait g --restarted i", "--restarted needs --from, and --from needs --restarted: give both"),
    ],
)
def test_options_that_lack_or_exclude_each_other_are_named(arguments: str, error: str) -> None:
    """One line says which one is missing, or that there is one too many; exit code 2."""
    result = CliRunner().invoke(make_app(""), arguments.split())
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"tenure: {error}\n")
