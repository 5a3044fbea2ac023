"""Style as tests: rules that a reader relies on and no linter checks.

Each test walks the tree on disk, tracked or not, so that a slip shows before its commit. The tables on top list
exceptions, each with its reason. A test fails if a table has an entry that is not needed, so the tables only shrink.

House rule: a finding names file and line and says what to do.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from coordinator import pages
from coordinator.cli.main import make_app
from coordinator.config import Config, Setting, settings
from coordinator.group import state
from coordinator.loop.lines import Level
from coordinator.server.telemetry.log_reports import REPORTS
from coordinator.server.telemetry.note_lines import LEVELS
from coordinator.story.schema import event_name

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.tidy


ROOT = Path(__file__).parent.parent
ROOMS = (
    ".ci",
    "benchmarks",
    "coordinator",
    "docker",
    "docs",
    "examples",
    "protocol",
    "requirements",
    "schemas",
    "tests",
)
PACKAGES = ("coordinator", "protocol", "schemas")
PURE = ("coordinator/group", "coordinator/story", "protocol", "schemas")
THIS = Path(__file__).relative_to(ROOT).as_posix()

WITHOUT_TESTS_OF_THEIR_OWN: dict[str, str] = {
    "coordinator/cli/kubernetes.py": "tests/cli/test_seats.py and tests/cli/test_seat.py try it",
    "coordinator/group/any_group.py": "plain values",
    "coordinator/group/client.py": "plain values",
    "coordinator/group/consumer/classic_members.py": "tests/group/consumer/test_migration.py tries all of it",
    "coordinator/group/consumer/downgrade.py": "tests/group/consumer/test_migration.py tries all of it",
    "coordinator/group/consumer/expire.py": "plays in tests/group/consumer try all of it",
    "coordinator/group/consumer/group.py": "plays in tests/group/consumer try all of it",
    "coordinator/group/consumer/leave.py": "plays in tests/group/consumer try all of it",
    "coordinator/group/consumer/sessions.py": "plays in tests/group/consumer try all of it",
    "coordinator/group/consumer/step.py": "plays in tests/group/consumer try all of it",
    "coordinator/group/consumer/upgrade.py": "tests/group/consumer/test_migration.py tries all of it",
    "coordinator/group/effects.py": "plain values",
    "coordinator/group/pending.py": "tests/group/test_transactions.py tries all of it",
    "coordinator/group/replay.py": "tested with the records that it reads, in test_records.py",
    "coordinator/group/rules.py": "an interface and tables",
    "coordinator/log/etcd/messages.py": "a table",
    "coordinator/log/cluster/port.py": "an interface and plain values",
    "coordinator/log/topics/partition.py": "plain values",
    "coordinator/server/requests/fetch.py": "tests/server/requests/test_records.py tries all of it",
    "coordinator/server/requests/many.py": "tests/server/requests/test_large_groups.py tries all of it",
    "coordinator/server/requests/produce.py": "tests/server/requests/test_records.py tries all of it",
    "coordinator/server/runtime/replies.py": "interfaces alone",
    "coordinator/server/scrape.py": "tests/site/test_site.py and tests/server/test_transactions.py try it",
    "coordinator/pages.py": "plain values",
    "coordinator/seats/group_lease.py": "tests/seats/test_run.py tries all of it",
    "coordinator/story/inference/knowledge.py": "plain values",
    "coordinator/story/offsets.py": "plain values; tests/client/test_lag.py tries them",
    "coordinator/story/schema.py": "constants and plain values",
    "coordinator/story/inference/seen.py": "the tests of classic.py and observed.py try all of it",
    "coordinator/story/inference/told.py": "the tests of observed.py try all of it",
}
"""Modules that need no tests/.../test_*.py, and the reason."""

LARGE = 300
LARGE_CLASSES: dict[str, str] = {
    "client/offsets_log.py OffsetsReader": "one state, that of its partitions: leaders, cuts and reads each move it",
    "config.py Config": "all settings, one field each",
    "group/coordinator.py Coordinator": "an entry for each event; the rules are in other modules",
    "group/group.py Group": "all fields of a group of the classic protocol, and the counts that go with them",
    "log/cluster/claims.py Claims": "each decision looks at all of its state; the calls to the store are core's",
    "log/cluster/core.py Core": "claim, load, append and release, which wait for each other",
    "log/embedded/journal.py Journal": "two files that take turns; a failure anywhere ends both",
    "log/segments/partition.py PartitionLog": "the files of one log, with and without a journal in front of them",
    "log/topics/log.py TopicLog": "the files of one log, as producers, retention and compaction change them",
    "server/app.py Server": "puts all parts together, and takes them apart in order",
    "server/nodes/topic_data.py TopicData": "the loop's one door to the thread of the topics' logs",
    "server/runtime/partition.py Partition": "one standing, that each request, append, load and hand-over may change",
    "server/runtime/runtime.py Runtime": "the windows of appends, and what all partitions share",
    "server/supervisor.py Supervisor": "one thread and one select over processes, signals and channels",
    "server/wire/connection.py Connection": "one connection, without a call more than it needs for each read",
    "site/site.py Site": "a method for each route; the answers are made in other modules",
    "story/inference/consumer.py Consumer": "a group of the consumer protocol, a method for each kind of record",
    "story/inference/observed.py Observed": "all groups of a partition, whatever their protocol is by now",
    "testing/tenure.py Tenure": "the door of the test kit: most methods hand on to a part",
    "transaction/coordinator.py Coordinator": "an entry for each event of transactions",
}
"""Classes of coordinator/ with more than LARGE lines, and the reason that they are one thing."""

MAY_SLEEP: dict[str, str] = {
    "tests/observe/consumer.py": "it doesn't poll for a while, as busy programs do",
    "tests/seats/leased.py": "it hurts processes at random moments",
    "tests/seats/leased_worker.py": "a program that works, and is no test",
    "tests/support/cluster_probe.py": "its members pause between requests, as clients do",
    "tests/support/tenure.py": "waits for other processes, which hand over no event",
}
"""Test files that may call a function named sleep, and the reason."""

MAY_SKIP: dict[str, str] = {
    "tests/audit/conftest.py": "the modules on Spark can't be imported where `make test` alone installed the packages",
    "tests/conftest.py": "tests of pages ask for a Chromium, and tests of etcd for an etcd, and say so",
    "tests/gauge/test_work.py": "the table is of one version of Python: others make other calls",
    "tests/interop/conftest.py": "the oracle half asks for Apache Kafka: `make test-oracle` says so first",
    "tests/kubernetes/conftest.py": "the control plane takes long to build: `make kubernetes`",
    "tests/oracle/conftest.py": "as tests/interop",
    "tests/suites/conftest.py": "a suite whose tools or tests are missing says so: `make test-suites`",
}
"""Test files that may skip, and the reason."""


@functools.cache
def files() -> tuple[str, ...]:
    """Every text file of the project, relative to its root, in order."""
    # In a linked worktree .git is a file, which names a folder of its machine.
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    for room in ROOMS:
        found += [path for path in (ROOT / room).rglob("*") if path.is_file()]
    names = (path.relative_to(ROOT).as_posix() for path in found)
    return tuple(
        sorted(name for name in names if not re.search(r"__pycache__|\.pyc$|\.png$|\.webp$|\.bin$|\.gz$|\.so$", name))
    )


def python_files(*rooms: str) -> list[str]:
    """The Python files below these folders."""
    return [name for name in files() if name.endswith(".py") and name.startswith(tuple(f"{room}/" for room in rooms))]


@functools.cache
def text(name: str) -> str:
    """The content of a file."""
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def tree(name: str) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(text(name), name)


def lines_with(pattern: str, *names: str) -> list[str]:
    """The lines that match a regular expression, as "file:line: the line"."""
    wanted = re.compile(pattern)
    return [
        f"{name}:{number}: {line.strip()}"
        for name in names
        for number, line in enumerate(text(name).splitlines(), 1)
        if wanted.search(line)
    ]


def as_lines(found: list[str]) -> str:
    """Findings, one per line."""
    return "\n".join(["", *found])


def called_name(call: ast.Call) -> str:
    """The name `c` for both `c()` and `a.b.c()`; empty for any other call."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def imports(name: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports; the full name of `from a import b` is a.b."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_each_module_has_a_test_file_where_its_path_says() -> None:
    """coordinator/x/y.py is tested in tests/x/test_y.py, protocol/y.py in tests/protocol/test_y.py."""
    missing = []
    for name in python_files("coordinator", "protocol"):
        path = Path(name)
        if path.stem.startswith("__"):
            continue
        folder = Path(*path.parts[1:-1]) if path.parts[0] == "coordinator" else path.parent
        mirror = Path("tests") / folder / f"test_{path.stem}.py"
        if not (ROOT / mirror).exists():
            missing.append((name, mirror.as_posix()))
    found = [f"{name}: {mirror}" for name, mirror in missing if name not in WITHOUT_TESTS_OF_THEIR_OWN]
    assert not found, as_lines(found)
    assert sorted(WITHOUT_TESTS_OF_THEIR_OWN) == sorted(name for name, _ in missing)


def test_each_large_class_is_one_thing() -> None:
    """A class of more than LARGE lines has a reason; a class that has become small has none."""
    sizes: dict[str, int] = {}
    for name in python_files("coordinator"):
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef) and node.end_lineno is not None:
                sizes[f"{name.removeprefix('coordinator/')} {node.name}"] = node.end_lineno - node.lineno + 1
    found = [f"{name}: {size} lines" for name, size in sizes.items() if size > LARGE and name not in LARGE_CLASSES]
    found += [f"{name}: {sizes.get(name)} lines" for name in LARGE_CLASSES if sizes.get(name, 0) <= LARGE * 9 // 10]
    assert not found, as_lines(found)


def test_nothing_is_left_to_do() -> None:
    """Open work is an issue, not a note in the code."""
    found = lines_with(r"\b(TODO|FIXME|XXX)\b", *(name for name in files() if name != THIS))
    assert not found, as_lines(found)


def test_no_path_of_one_machine() -> None:
    """No file contains a path of one machine, so the tree works wherever it is cloned."""
    names = (name for name in files() if name != THIS)
    found = lines_with(r"(^|[^A-Za-z0-9_.])/(work|root|home|Users|opt|farm)/", *names)
    assert not found, as_lines(found)


def test_no_address_of_a_package_registry() -> None:
    """The tree names packages, versions and hashes; the registry's address is a setting of each machine."""
    hosts = r"files\.pythonhosted\.org|pypi\.org/simple|index-url[ =]http|find-links[ =]|repo1?\.maven\.(org|apache)"
    found = lines_with(hosts, *(name for name in files() if name != THIS))
    assert not found, as_lines(found)


def test_locks_pin_every_package_by_hash() -> None:
    """Each requirement is one exact version with hashes; the lock for running includes the build backend."""
    ours = [f"requirements/{name}.txt" for name in ("run", "etcd", "kubernetes", "dev", "audit", "spark", "docs")]
    for name in (*ours, "tests/suites/faststream.txt", "tests/suites/quixstreams.txt"):
        joined = text(name).replace("\\\n", " ")
        requirements = [line for line in joined.splitlines() if line and not line.lstrip().startswith("#")]
        assert requirements
        assert [line for line in requirements if not re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:", line)] == []
    assert "setuptools==" in text("requirements/run.txt")


def test_core_and_codec_never_wait_and_touch_nothing() -> None:
    """The core and the codec have no coroutine, file, output, or `hash` of text or bytes, which differs per process."""
    forbidden = {"open", "print", "input", "hash", "breakpoint"}
    waits = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
    found = []
    for name in python_files(*PURE):
        for node in ast.walk(tree(name)):
            if isinstance(node, waits) or (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in forbidden
            ):
                found.append(f"{name}:{node.lineno}")
    assert not found, as_lines(found)


def test_codec_and_core_know_uuid_as_a_type_only() -> None:
    """The codec reads and writes ids and the core keeps them. Neither makes one; a random id comes with an event."""
    found = [
        f"{name}:{line}: {module}"
        for name in python_files("protocol", "schemas", "coordinator/group")
        for line, module in imports(name)
        if module.startswith("uuid") and module != "uuid.UUID"
    ]
    assert not found, as_lines(found)


def test_core_catches_no_assertion() -> None:
    """No `except` in the core is wide enough for AssertionError, so a bug shows at once."""
    found = []
    for name in python_files(*PURE):
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "everything"
                if re.search(r"\b(everything|BaseException|Exception|AssertionError)\b", caught):
                    found.append(f"{name}:{node.lineno}: catches {caught}")
    assert not found, as_lines(found)


def test_tests_never_sleep() -> None:
    """A test moves the clock forward itself, or waits for an event."""
    found = sorted(
        {
            name
            for name in python_files("tests")
            for node in ast.walk(tree(name))
            if isinstance(node, ast.Call) and called_name(node) == "sleep"
        }
    )
    assert found == sorted(MAY_SLEEP)


def test_no_loop_that_waits_moves_a_clock() -> None:
    """A slow disk makes such a loop long, and virtual time runs away; Serving.advance stands still meanwhile."""
    found = [
        f"{name}:{loop.lineno}"
        for name in python_files("tests")
        for loop in ast.walk(tree(name))
        if isinstance(loop, ast.While)
        and any(isinstance(node, ast.Await) for node in ast.walk(loop))
        and re.search(r"clock\.advance\(", ast.unparse(loop))
    ]
    assert not found, as_lines(found)


def test_each_test_says_what_must_hold() -> None:
    """Every test, in a class or not, has a docstring."""
    found = [
        f"{name}:{node.lineno}: {node.name}"
        for name in python_files("tests")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and ast.get_docstring(node) is None
    ]
    assert not found, as_lines(found)


def test_docstrings_of_the_program_begin_with_a_noun_or_a_verb() -> None:
    """A sentence that begins with Who or What hides its subject; help texts and OpenAPI take docstrings as they are."""
    found = [
        f"{name}:{getattr(node, 'lineno', 1)}: {said.splitlines()[0]}"
        for name in python_files("coordinator", "protocol", "schemas")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (said := ast.get_docstring(node))
        and re.match(r"(What|Who)(ever|m|se)?\b", said)
    ]
    assert not found, as_lines(found)


def test_no_test_is_skipped_silently() -> None:
    """A test that cannot run here has a marker and a Makefile target; only the files of MAY_SKIP skip inside."""
    names = (name for name in python_files("tests") if name != THIS)
    found = lines_with(r"pytest\.(skip|xfail|importorskip)\(|mark\.(skip|xfail)", *names)
    assert sorted({line.split(":")[0] for line in found}) == sorted(MAY_SKIP)


def test_each_dependency_is_used_and_has_its_reason() -> None:
    """The code imports each run-time dependency of pyproject.toml; dependencies.md has a row for each package."""
    project = tomllib.loads(text("pyproject.toml"))
    extras = itertools.chain(*project["project"]["optional-dependencies"].values())
    named = [re.match(r"[\w-]+", line) for line in [*project["project"]["dependencies"], *extras]]
    run = {match[0] for match in named if match}
    imported = {module.split(".")[0] for name in python_files(*PACKAGES) for _, module in imports(name)}
    others = {"pyjwt": "jwt", "google-re2": "re2", "grpcio": "grpc", "protobuf": "google"}
    modules = {name: others.get(name, name.replace("-", "_")) for name in run}
    assert {name for name, module in modules.items() if module not in imported} == set()
    explained = set(re.findall(r"^\| `([\w-]+)`", text("docs/contribute/dependencies.md"), re.MULTILINE))
    assert explained == run.union(*project["dependency-groups"].values(), {"setuptools"})


@functools.cache
def anchors(page: str) -> set[str]:
    """The anchors that a code host, and the site, make of a page's headings."""
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    shown = (re.sub(r"\]\([^)]*\)|[`*[]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in shown}


def dead(page: str, path: str, anchor: str) -> bool:
    """Whether a link from a page leads nowhere: to no file or folder, or to no heading of a document."""
    target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
    if not anchor:
        return not target.exists()
    return not target.is_file() or anchor not in anchors(target.relative_to(ROOT).as_posix())


def test_links_between_documents_lead_somewhere() -> None:
    """A relative link in a document names a file or folder that exists, and a heading that the document has."""
    found = [
        f"{name}: {path}{anchor}"
        for name in files()
        if name.endswith(".md")
        for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]+)?", text(name))
        if dead(name, path, anchor.removeprefix("#"))
    ]
    assert not found, as_lines(found)


def test_messages_name_pages_that_exist() -> None:
    """coordinator/pages.py has each address of a page that the product prints, and each leads somewhere."""
    addresses = re.findall(r"\"docs/([^\"#]+)#?([^\"]*)\"", text("coordinator/pages.py"))
    assert len(addresses) == len([name for name in vars(pages) if name.isupper()])
    assert [address for address in addresses if dead("docs/README.md", *address)] == []
    found = []
    for name in python_files(*PACKAGES):
        docstrings = {id(node.value) for node in ast.walk(tree(name)) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree(name)):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
                continue
            if "docs/" in node.value and name != "coordinator/pages.py":
                found.append(f"{name}:{node.lineno}: move the address to coordinator/pages.py")
    assert not found, as_lines(found)


def test_paths_of_pages_in_comments_exist() -> None:
    """Each docs/x/y.md that a comment, a docstring or a program names is there."""
    found = [
        f"{name}: {page}"
        for name in files()
        if not name.endswith(".md")
        for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", text(name))
        if not (ROOT / page).exists() and name != THIS
    ]
    assert not found, as_lines(found)


def test_index_and_site_lead_to_each_page() -> None:
    """docs/README.md has each page below docs/ once, in the order of the site."""
    below = [name.removeprefix("docs/") for name in files() if re.fullmatch(r"docs/.*\.md", name)]
    listed = re.findall(r"\]\((?!\.\.)([\w/.-]+\.md)", text("docs/README.md"))
    in_site = re.findall(r"^ +- ([\w/.-]+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    assert sorted(["README.md", *listed]) == sorted(below)
    assert in_site == ["README.md", *listed]


def test_each_line_that_warns_has_a_row_where_to_look() -> None:
    """docs/where-to-look.md has the event of each log line at WARN or ERROR, and each finding of the doctor."""
    loud = {name for name, report in REPORTS.items() if report.level is not Level.INFO}
    loud |= {event_name(note.__name__) for note in LEVELS}
    for name in python_files("coordinator/server", "coordinator/site", "coordinator/observe"):
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Call) and called_name(node) in {"warn", "error", "say"} and node.args:
                event = ast.unparse(node.args[0]).strip("'")
                loud |= {event} if re.fullmatch(r"[a-z]+(_[a-z]+)+", event) else set()
    findings = r"^\| `([a-z_]+)` \| (?:notice|warning|error)"
    for page in ("explain-watch-doctor", "stuck"):
        loud |= set(re.findall(findings, text(f"docs/ask-why/{page}.md"), re.MULTILINE))
    assert len(loud) > 90
    assert sorted(loud - set(re.findall(r"`([a-z_]+)`", text("docs/where-to-look.md")))) == []


def test_no_page_is_longer_than_200_lines() -> None:
    """A document has at most 200 lines: a longer one is two pages, or too long. The changelog grows."""
    found = [
        f"{name}: {count} lines" for name in files() if name.endswith(".md") and (count := text(name).count("\n")) > 200
    ]
    assert not found, as_lines(found)


def test_tests_named_in_documents_exist() -> None:
    """A test that a document names as `tests/kip/test_x.py::test_name` is in that file."""
    found = []
    for name in files():
        if name.endswith(".md"):
            for file, test in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text(name)):
                if not (ROOT / file).exists() or not re.search(rf"def {test}\b", text(file)):
                    found.append(f"{name}: {file}::{test}")
    assert not found, as_lines(found)


WRITTEN = {
    "README.md": ("data/meta.properties",),
    "docs/ask-why/audit.md": ("found/index.html", "tenure.zip"),
    "docs/run/cluster-operations.md": ("snapshot.db",),
    "docs/start/leaders-and-shards.md": ("counter.db",),
    "docs/run/cluster.md": ("build/try/1/meta.properties",),
    "docs/run/disk-trouble.md": ("backup/__consumer_offsets-41/x.log", "damaged/__consumer_offsets-41/x.log", "mended"),
    "docs/secure/logins.md": ("alice.scram",),
    "docs/secure/ten-minutes.md": ("secure/ca-key.pem", "secure/data/meta.properties"),
    "examples/junit/pom.xml": ("examples/junit/target/classes",),
    "examples/node/package.json": ("examples/node/node_modules/kafkajs/index.js",),
}
"""The files that the commands of a page, or of an example, write into a clone."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return an empty clone, with what this project ignores."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text(text(".gitignore"))
    return tmp_path


@pytest.mark.parametrize("page", WRITTEN)
def test_git_ignores_all_that_documents_and_examples_write(page: str, clone: Path) -> None:
    """No command of a page leaves something behind that `git add` would take, a key above all."""
    written = WRITTEN[page]
    done = subprocess.run(["git", "check-ignore", *written], cwd=clone, capture_output=True, text=True, check=False)
    assert done.stdout.split() == list(written)
    if page.endswith(".md"):
        assert all(re.split("[/.]", path)[0] in text(page) for path in written)


def test_git_ignores_the_folder_of_keys_whatever_its_name_is(tmp_path: Path) -> None:
    """The script of the security guide makes a folder that no `git add` takes, in any repository."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run([sys.executable, ROOT / "examples/security/make.py", tmp_path / "keys"], check=True)
    assert (tmp_path / "keys/ca-key.pem").exists()
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == ""


def commands_in_documents(program: str) -> Iterator[tuple[str, list[str]]]:
    """Document and words of each command of a program, at the start of a code block's line or in `backticks`."""
    for name in files():
        if not name.endswith(".md"):
            continue
        blocks = re.findall(r"^```\w*\n(.*?)^```", text(name), re.MULTILINE | re.DOTALL)
        commands = [line for block in blocks for line in block.splitlines()]
        commands += re.findall(r"`([^`\n]+)`", text(name))
        for command in commands:
            line = command.strip().removeprefix("$ ").removeprefix(".venv/bin/")
            if line.startswith(f"{program} "):
                yield name, shlex.split(line, comments=True)[1:]


def test_make_targets_in_documents_exist() -> None:
    """Each `make x` in a document is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    found = [
        f"{name}: make {words[0]}"
        for name, words in commands_in_documents("make")
        if words[0].islower() and words[0] not in targets
    ]
    assert not found, as_lines(found)


@functools.cache
def help_of(*command: str) -> str | None:
    """The output of `tenure COMMAND --help`; None if there is no such command."""
    if command[:1] == ("serve",):  # its options are read without the library of the others
        arguments = [sys.executable, "-m", "coordinator.cli.main", *command, "--help"]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None
    ran = CliRunner().invoke(make_app(command[0] if command else ""), [*command, "--help"])
    return ran.output if ran.exit_code == 0 else None


def test_tenure_commands_in_documents_exist() -> None:
    """Each `tenure x y --z` in a document is a command that has this option."""
    found = []
    for name, words in commands_in_documents("tenure"):
        start = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
        options = {word for word in words[start:] if word.startswith("--") and word != "--"}
        for command in itertools.product(*(word.split("|") for word in words[:start])):
            usage = help_of(*command)
            if usage is None or not options <= set(re.findall(r"--[a-z-]+", usage)):
                found.append(f"{name}: tenure {' '.join(words)}")
    assert not found, as_lines(found)


def written(setting: Setting) -> str:
    """Return a default as a person would write it."""
    value = setting.value_of(Config())
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_places_for_a_change_exist() -> None:
    """The tables of places and of changes name files and folders that exist, and tables that one of the files has."""
    page = text("docs/contribute/architecture.md")
    tables = re.findall(
        r"^\| (?:thing \| place|change \| files) \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page, re.MULTILINE
    )
    assert len(tables) == 2
    wrong = []
    for row in "".join(tables).splitlines():
        words = re.findall(r"`([^`]+)`", row.removeprefix("| ").partition(" |")[2])
        found = {word: next(filter(Path.exists, (ROOT / word, ROOT / "coordinator" / word)), None) for word in words}
        files = [path.read_text() for path in found.values() if path is not None and path.is_file()]
        for word, path in found.items():
            is_path = word.endswith(("/", ".py", ".pyi", ".js"))
            is_table = re.fullmatch("[A-Z_]+", word)
            if (is_path and path is None) or (is_table and not any(re.search(rf"\b{word}\b", file) for file in files)):
                wrong.append(f"{row[:40]}: {word}")
    assert not wrong, as_lines(wrong)


def test_settings_page_has_every_setting() -> None:
    """docs/run/settings.md has the table of coordinator/config.py: name, default and meaning, in order of name."""
    rows = re.findall(r"^\| `([^`]+)` \|(?: `([^`]*)`)? \| (.*) \|$", text("docs/run/settings.md"), re.MULTILINE)
    assert rows == [(name, written(setting), setting.doc) for name, setting in sorted(settings().items())]


def diagram() -> str:
    """Return the table of states as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {state.State.EMPTY.value}"]
    for before in state.State:
        for after in state.State:
            reasons = [step.why for step in state.TRANSITIONS if (step.before, step.after) == (before, after)]
            if reasons:
                lines.append(f"    {before.value} --> {after.value}: {', or '.join(reasons)}")
    lines.append(f"    {state.State.DEAD.value} --> [*]")
    return "\n".join(lines) + "\n"


def test_picture_of_the_states_is_made_from_the_table() -> None:
    """The diagram in docs/contribute/architecture.md is that of coordinator/group/state.py, each step once."""
    page = text("docs/contribute/architecture.md")
    pictures = re.findall(r"^```mermaid\n(stateDiagram.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert pictures == [diagram()]
    arrows = [line for line in diagram().splitlines() if "-->" in line and "[*]" not in line]
    assert len(arrows) == len({(step.before, step.after) for step in state.TRANSITIONS})


def test_diagram_lines_are_what_mermaid_can_read() -> None:
    """In a state diagram of Mermaid a label ends at a semicolon and has one colon before it."""
    found = [line for line in diagram().splitlines() if ";" in line or line.count(":") > 1]
    assert not found, as_lines(found)


def test_no_module_takes_a_field_of_an_event_or_entry_by_its_name() -> None:
    """mypy knows attributes only."""
    for name in python_files("coordinator"):
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                held = node.value
                of = held.attr if isinstance(held, ast.Attribute) else held.id if isinstance(held, ast.Name) else ""
                assert of not in {"entry", "event"}, f"{name}:{node.lineno}"
