"""The tables of clauses agree with code and tests: names exist, and every test of a clause is there.

House rule: these tests read the pages as they are, tables with names in backticks.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KIP_TESTS = Path(__file__).parent
PAGES = (*sorted(KIP_TESTS.glob("*.md")), ROOT / "docs/contribute/kip.md", ROOT / "docs/contribute/known-bugs.md")
PAGE = "".join(page.read_text(encoding="utf-8") for page in PAGES)
"""All of them, one behind the other."""
SCRIPTS = ROOT / "tests/oracle/scripts"
SETTINGS = {
    "group.consumer.migration.policy",
    "group.initial.rebalance.delay.ms",
    "group.instance.id",
    "group.max.size",
    "require_stable",
}
"""Names on the pages that look like code and are settings."""


def names_of(path: Path) -> set[str]:
    """The names of the tests in a file."""
    return set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def sections() -> dict[str, str]:
    """The pages' sections about a test file: path -> text."""
    found: dict[str, str] = {}
    for text in re.split(r"^## ", PAGE, flags=re.MULTILINE):
        named = re.match(r".*\(`(tests/kip/\w+\.py)`\)", text)
        if named:
            found[named[1]] = found.get(named[1], "") + text
    return found


def test_every_test_of_a_clause_is_in_the_table() -> None:
    """Each test file of a KIP has a section, which names each of its tests."""
    missing = {}
    for path in sorted(KIP_TESTS.glob("test_kip_*.py")):
        name = path.relative_to(ROOT).as_posix()
        named = set(re.findall(r"`(test_\w+)`", sections().get(name, "")))
        missing[name] = names_of(path) - named
    assert {name: tests for name, tests in missing.items() if tests} == {}


def test_every_test_in_the_table_exists() -> None:
    """A test in a section is in the section's file, a test with a path in that file, any other in tests/kip."""
    absent = [
        f"{name}::{test}"
        for name, text in sections().items()
        for test in re.findall(r"`(test_\w+)`", text)
        if test not in names_of(ROOT / name)
    ]
    absent += [
        f"{name}::{test}"
        for name, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
        if test not in names_of(ROOT / name)
    ]
    everywhere = set().union(*(names_of(path) for path in KIP_TESTS.glob("test_kip_*.py")))
    absent += sorted(set(re.findall(r"`(test_\w+)`", PAGE)) - everywhere)
    assert absent == []


def test_all_code_in_the_table_exists() -> None:
    """For example, `group.classic.join.join` is a name in coordinator/group/classic/join.py."""
    named = set(re.findall(r"`((?:group|config|schemas)\.[\w.]+)`", PAGE)) - SETTINGS
    assert len(named) > 20
    absent = []
    for name in sorted(named):
        words = name.split(".") if name.startswith("schemas.") else ["coordinator", *name.split(".")]
        at = next(size for size in range(len(words), 0, -1) if is_module(words[:size]))
        found: object = import_module(".".join(words[:at]))
        for word in words[at:]:
            found = getattr(found, word, None)
        if found is None:
            absent.append(name)
    assert absent == []


@pytest.mark.parametrize(
    ("page", "files"),
    [
        ("docs/contribute/known-bugs.md", {"tickets"}),
        ("tests/kip/transactions.md", {"transactions", "transaction_checks", "offsets_log"}),
        ("tests/kip/kip-345.md", set()),
        ("tests/kip/kip-848.md", set()),
        ("tests/kip/clauses.md", set()),
    ],
)
def test_every_script_is_in_the_table(page: str, files: set[str]) -> None:
    """A page names each script of its files, and no script that isn't there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    scripts = {file.stem: re.findall(r"^## (\w+)", file.read_text(), re.MULTILINE) for file in SCRIPTS.glob("*.txt")}
    named = set(re.findall(r"`(?!test_)([a-z0-9]+(?:_[a-z0-9]+)+)`", text)) - SETTINGS
    assert named - {name for names in scripts.values() for name in names} == set()
    assert [name for file in files for name in scripts[file] if f"`{name}`" not in text] == []


def test_every_fact_is_in_the_table() -> None:
    """Each fact about transactions has its number, and something that shows it."""
    rows = re.findall(r"^\| (\d+) \|.*\| (.+) \|$", (KIP_TESTS / "transactions.md").read_text(), re.MULTILINE)
    assert [int(number) for number, shown in rows if "`" in shown] == list(range(1, 58))


def is_module(words: list[str]) -> bool:
    """Whether this is the path of a module or package."""
    path = ROOT.joinpath(*words)
    return path.is_dir() or path.with_suffix(".py").is_file()
