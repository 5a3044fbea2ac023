"""`tenure audit`: exit codes, what it prints and where it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coordinator.audit import audit as audit_module
from coordinator.audit.audit import AuditResult, Options
from coordinator.audit.check.limits import LIMIT_OPTIONS, Limits
from tests.audit.scenes import Scene, clean, static_members
from tests.cli.conftest import make_app
from tests.support.ports import refusing_port


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    result = CliRunner().invoke(make_app("audit"), ["audit", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_clean_log_is_done(tmp_path: Path) -> None:
    """A clean log gives exit code 0 and a report."""
    code, output, errors = run(clean().write(tmp_path))
    assert (code, errors) == (0, "")
    assert "nothing found" in output


def test_findings_are_a_negative_answer(tmp_path: Path) -> None:
    """Findings give exit code 1, and the audit writes all files to the folder that --out names."""
    folder = Scene().group(static_members(a=1), 1).commit(5).commit(4).write(tmp_path / "log")
    code, output, errors = run(folder, "--out", tmp_path / "out")
    assert (code, errors) == (1, "")
    assert "commit_back" in output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "findings.parquet", "report.html", "summary.json", "tables",
    ]  # fmt: skip
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["findings"] == {"commit_back": 1}


def test_compaction_is_checked_against_what_was_before(tmp_path: Path) -> None:
    """The audit compares the log with an earlier one (--before)."""
    before = Scene().commit(5).commit(7, partition=1)
    after = Scene()
    after.batches = before.batches[:1]
    code, output, _errors = run(after.write(tmp_path / "after"), "--before", before.write(tmp_path / "before"))
    assert code == 1
    assert "compaction_lost_key" in output


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_out_that_is_a_file_is_named_as_one(tmp_path: Path, name: str) -> None:
    """The line comes before the log is read, and names the file, not one that the audit would write below it."""
    (tmp_path / "file").touch()
    code, output, errors = run(clean().write(tmp_path / "log"), "--out", tmp_path / name)
    assert (code, output) == (2, "")
    assert errors == f"tenure: --out: {tmp_path / 'file'} is a file, and the audit needs a folder\n"


@pytest.mark.parametrize("name", [".", "nowhere", "file"])
def test_nothing_to_read_is_refused(tmp_path: Path, name: str) -> None:
    """A path without a log gives exit code 2 and one line that names it."""
    (tmp_path / "file").touch()
    code, output, errors = run(tmp_path / name)
    assert (code, output) == (2, "")
    assert str(tmp_path / name) in errors
    assert len(errors.splitlines()) == 1


def test_a_data_folder_without_groups_is_named_as_one(tmp_path: Path) -> None:
    """A server made the folder, and no group wrote to it: the line says so, in place of a missing file."""
    (tmp_path / "meta.properties").write_text("tenure.offsets.topic.num.partitions=50\n")
    code, output, errors = run(tmp_path)
    assert (code, output) == (2, "")
    assert errors == f"tenure: no group yet: a server made this data folder, and no group wrote to it: {tmp_path}\n"


def test_limits_are_options(tmp_path: Path) -> None:
    """The limits of the brokers that wrote the log are options."""
    folder = Scene().commit(5).write(tmp_path)
    assert run(folder, "--partitions", "1")[0] == 0
    assert run(folder, "--partitions", "7")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "--follow", "--out", "x", "--before", "y"],
        ["data", "--follow", "--out", "x", "--delete-retention-ms", "1"],
        ["--bootstrap-server", "127.0.0.1:1", "--before", "y"],
        ["data", "--command-config", "client.properties"],
        ["--bootstrap-server", "127.0.0.1:1", "--partitions", "4"],
        ["data", "--master", "local[1]"],
        ["data", "--delete-retention-ms", "1"],
    ],
)
def test_option_that_changes_nothing_is_refused(arguments: list[str]) -> None:
    """The command refuses an option without effect, even with its default value: the user expects an effect."""
    code, output, errors = run(*arguments)
    assert (code, output) == (2, "")
    assert arguments[-2] in errors


def test_every_limit_is_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of each limit's option reaches the audit."""
    seen: list[Options] = []

    def audited(_path: Path, _out: Path | None, options: Options, _progress: object) -> AuditResult:
        seen.append(options)
        return AuditResult("")

    monkeypatch.setattr(audit_module, "audit", audited)
    flags = [word for number, option in enumerate(LIMIT_OPTIONS.values(), 3) for word in (option.flag, str(number))]
    (tmp_path / "__consumer_offsets-0").mkdir()
    assert run(tmp_path, "--before", tmp_path, *flags)[0] == 0
    assert [options.limits for options in seen] == [Limits(3, 4, 5, 6 * 60_000, Limits().offsets_check_ms, 7)]


@pytest.mark.parametrize(
    "arguments", [[], ["data", "--bootstrap-server", "127.0.0.1:1"], ["data", "--follow"], ["--follow", "--out", "x"]]
)
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    """The command needs a folder or a cluster, not both; a stream needs a folder to read and one to write to."""
    code, output, errors = run(*arguments)
    assert (code, output) == (2, "")
    assert "DATA_DIR" in errors


def test_a_cluster_that_does_not_answer_is_exit_code_5() -> None:
    """The command asks the cluster as every command does, before it needs Spark."""
    with refusing_port() as port:
        address = f"127.0.0.1:{port}"
        code, out, error = run("--bootstrap-server", address)
        assert (code, out) == (5, "")
        assert error.startswith(f"tenure: {address}: Connection refused: no server is there; start `tenure serve`, ")


@pytest.mark.parametrize(
    ("package", "option", "needs", "target"),
    [
        ("pyarrow", [], "the audit needs pyarrow: `pip install 'tenure[audit]'`", "install-audit"),
        ("pyspark", ["--spark"], "the audit on Spark needs pyspark: `pip install 'tenure[spark]'`", "install"),
    ],
)
def test_missing_package_is_named(tmp_path: Path, package: str, option: list[str], needs: str, target: str) -> None:
    """Without an extra the command says what to install."""
    done = run_main(f"sys.modules['{package}'] = None", "audit", str(clean().write(tmp_path)), *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tenure: {needs} installs it, and so does `make {target}` in a clone\n"


@pytest.mark.parametrize("arguments", [["--help"], ["log", "--help"]], ids=" ".join)
def test_other_commands_do_not_import_them(arguments: list[str]) -> None:
    """The other commands import neither pyarrow nor pyspark, which are heavy, and which may be absent."""
    at_the_end = "print({'pyarrow', 'pyspark'} & sys.modules.keys(), file=sys.stderr)"
    done = run_main(f"import atexit; atexit.register(lambda: {at_the_end})", *arguments)
    assert (done.returncode, done.stderr) == (0, "set()\n")


def run_main(before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process, after a statement."""
    program = f"import sys; {before}; from coordinator.cli.main import main; main(sys.argv[1:])"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
