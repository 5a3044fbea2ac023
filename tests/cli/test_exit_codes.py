"""How commands end: exit codes and the line on standard error."""

from __future__ import annotations

import pytest

from coordinator.cli.exit_codes import ExitCode, end, fail, warn


def test_exit_codes_are_what_scripts_know() -> None:
    """The numbers are an interface and stay the same."""
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "FINDINGS": 1,
        "USAGE": 2,
        "NOT_FOUND": 3,
        "REFUSED": 4,
        "UNREACHABLE": 5,
        "OTHER_KIND": 6,
    }


def test_failure_is_one_line_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error has one line, whatever the message holds; standard output is empty."""
    with pytest.raises(SystemExit) as left:
        fail(ExitCode.REFUSED, "group 'g':\nNON_EMPTY_GROUP")
    assert left.value.code == 4
    assert capsys.readouterr() == ("", "tenure: group 'g': NON_EMPTY_GROUP\n")


def test_text_of_a_server_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A message may have the words of a server that is not the one that the user means."""
    warn("größe: \x1b]0;title\x07 \x9b2J \u202e")
    assert capsys.readouterr().err == "tenure: größe: \\x1b]0;title\\x07 \\x9b2J \\u202e\n"


def test_warning_doesnt_end_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning is one line too, and the command goes on."""
    warn("group g is rebalancing")
    assert capsys.readouterr().err == "tenure: group g is rebalancing\n"


def test_several_failures_end_with_the_highest_code_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The highest exit code wins, so refused outranks not found; without failures the command goes on."""
    end([])
    with pytest.raises(SystemExit) as left:
        end([(ExitCode.NOT_FOUND, "no such group: a"), (ExitCode.REFUSED, "b: NON_EMPTY_GROUP")])
    assert left.value.code == 4
    assert capsys.readouterr().err == "tenure: no such group: a; b: NON_EMPTY_GROUP\n"
