"""`tenure`: its commands exist, and each is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from coordinator.cli.main import COMMANDS, SECTIONS, main
from protocol.records.batch import encode_batch
from tests.cli.conftest import make_app
from tests.cli.log.conftest import group_of, write_segment
from tests.support.tenure import tenure_command


def test_the_help_names_every_command() -> None:
    """Without a command, the help shows all commands under what they are for, with a whole sentence each."""
    shown = CliRunner().invoke(make_app(""), ["--help"])
    assert shown.exit_code == 0
    assert re.findall(r"^  ([a-z]+) +[A-Z].*\.$", shown.output, re.MULTILINE) == list(chain(*SECTIONS.values()))
    assert sorted(chain(*SECTIONS.values())) == sorted(["serve", *COMMANDS])


def test_the_page_of_commands_has_each_one() -> None:
    """A command, or the word that begins several, is in the first column of docs/run/commands.md; no other is there."""
    names = {"serve"}
    for first in COMMANDS:
        command = get_command(make_app(first)).commands[first]  # type: ignore[attr-defined]
        names |= {f"{first} {second}" for second in getattr(command, "commands", ())} or {first}
    page = (Path(__file__).parents[2] / "docs/run/commands.md").read_text(encoding="utf-8")
    cells = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    found = set(re.findall(r"tenure ([a-z]+(?: [a-z]+)?)", cells))
    assert {name for name in names if not {name, name.split()[0]} & found} == set()
    assert {name for name in found if not any(name in {each, each.split()[0]} for each in names)} == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_found(command: str) -> None:
    """Each command is found by its name, and has help."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0


def test_a_command_is_imported_when_it_is_named() -> None:
    """Only the module of the named command is imported."""
    first, *others = COMMANDS.values()
    name = next(iter(COMMANDS))
    code = f"import sys; from coordinator.cli.main import make_app; make_app({name!r}); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert first in modules
    assert not [module for module in (*others, "coordinator.cli.serve") if module in modules]


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints one line and ends with exit code 0."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"tenure {version('tenure')}\n"


def test_a_command_that_does_not_exist_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command gives exit code 2, and the error names it."""
    with pytest.raises(SystemExit) as ended:
        main(["no-such-command"])
    assert ended.value.code == 2
    assert "no-such-command" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [b"explain", b"\xff"],
        [b"doctor", b"\xff"],
        [b"watch", b"\xff"],
        [b"groups", b"describe", b"\xff"],
        [b"members", b"remove", b"g", b"--instance-id", b"\xff"],
        [b"serve", b"--set", b"\xff"],
    ],
)
def test_an_argument_that_is_no_text_is_wrong_usage(arguments: list[bytes], capsys: pytest.CaptureFixture[str]) -> None:
    """Every command refuses bytes that are no text: one line shows them, exit code 2, before it does anything."""
    with pytest.raises(SystemExit) as ended:
        main([argument.decode(errors="surrogateescape") for argument in arguments])
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", "tenure: an argument is not UTF-8: b'\\xff'\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_lacks_a_character_shows_its_number(encoding: str, tmp_path: Path) -> None:
    """A name goes to the output as far as its encoding can express it; escapes stand for the rest."""
    write_segment(tmp_path, 0, [encode_batch([group_of("gr\ufffd\xfce")], 0, 1)])
    dumped = subprocess.run(
        [*tenure_command(), "log", "dump", str(tmp_path)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    shown = "gr\ufffd\xfce".encode(encoding, "backslashreplace")
    assert (dumped.returncode, shown in dumped.stdout, dumped.stderr) == (0, True, b"")


def test_help_of_serve_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """`tenure serve --help` shows the options of `serve`."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("--listen", "--data-dir", "--config", "--set"))
