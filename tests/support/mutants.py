"""Mutants: plant small faults in a package, one at a time, and list those that no test sees.

    make mutants ARGS="coordinator/group/consumer --seed 1 --sample 100 tests/group tests/kip"

One process imports all tests. A child runs them once and notes which tests execute each line of the package, and each
test's time. Then each mutant gets a child: it swaps the code of the mutated function, and runs the tests of that line,
short ones first, up to the first failure. A mutant outside of functions works only at import, so its tests run in a
new process.

The same seed chooses the same mutants as long as the package stays the same. A mutant that survives is a missing test,
or makes no difference.

House rule: a mutant is a fault that a person could write by mistake. Asserts, annotations and texts stay.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip
LEFT_ALONE = ("annotation", "returns", "decorator_list", "bases")
REMOVED = (ast.Assign, ast.AugAssign, ast.Expr, ast.Delete, ast.Raise, ast.Continue, ast.Break)
# A test that needs more than this many times its own time, and a start, hangs.
SLOWER, START_S = 20, 10.0


class Site(NamedTuple):
    """A place in a tree that `plant` changes."""

    node: Any
    statement: ast.stmt
    is_in_function: bool
    plant: Callable[[], object]


def sites(node: ast.AST, statement: Any = None, *, is_in_function: bool = False) -> Iterator[Site]:
    """Yield each place below a node, in the order of the source."""
    for field, value in ast.iter_fields(node):
        if field in LEFT_ALONE or (field == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        is_inside = is_in_function or (
            field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        )
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert):
                continue
            around = child if isinstance(child, ast.stmt) else statement
            if isinstance(child, REMOVED) and not _names_a_value(child):
                yield Site(child, child, is_inside, lambda at=value, i=index: at.__setitem__(i, ast.Pass()))  # type: ignore[misc]
            for changed, plant in _changes(child):
                yield Site(changed, around, is_inside, plant)
            yield from sites(child, around, is_in_function=is_inside)


def _names_a_value(node: ast.stmt) -> bool:
    """Whether a statement is a text, or names a value: without the name nothing works."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name | ast.Tuple)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: Any) -> Iterator[tuple[ast.AST, Callable[[], object]]]:
    def put(field: str, new: object) -> Callable[[], object]:
        return lambda: setattr(node, field, new)

    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                yield node, lambda i=index, new=OTHER[type(op)]: ops.__setitem__(i, new())  # type: ignore[misc]
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OTHER:
            yield node, put("op", OTHER[type(op)]())
        case ast.Constant(value=bool(value)):
            yield node, put("value", not value)
        case ast.Constant(value=int(value)):
            yield node, put("value", value + 1)
            yield node, put("value", value - 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, put("operand", ast.UnaryOp(ast.Not(), operand))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, put("test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[test]):
            yield test, put("ifs", [ast.UnaryOp(ast.Not(), test)])
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield node, put("value", ast.Constant(None))


def planted(path: str, number: int) -> tuple[ast.Module, Site, str]:
    """Return the tree of a file with a mutant in it, where that is, and what it was and is."""
    tree = ast.parse(Path(path).read_text())
    site = list(sites(tree))[number]
    before = ast.unparse(site.node)
    site.plant()
    ast.fix_missing_locations(tree)
    after = ast.unparse(site.node)
    if after == before:
        after = "removed" if site.node is site.statement else f"not ({before})"
    return tree, site, f"{before}  ->  {after}"


def swap(functions: list[FunctionType], before: CodeType, after: CodeType) -> bool:
    """Give each living function of a file the code of the mutant; False if none takes it."""
    new = {key: code for key, code, old in _pairs(before, after) if code != old}
    changed = [function for function in functions if _key(function.__code__) in new]
    try:
        for function in changed:
            function.__code__ = new[_key(function.__code__)]
    except ValueError:  # another number of free variables
        return False
    return bool(changed)


def _key(code: CodeType) -> object:
    return code.co_qualname, code.co_firstlineno, code.co_code


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[object, CodeType, CodeType]]:
    yield _key(old), new, old
    inner = [[code for code in outer.co_consts if isinstance(code, CodeType)] for outer in (old, new)]
    for was, code in zip(*inner, strict=False):
        yield from _pairs(was, code)


class Mutants:
    """The plugin that plants a sample in place of pytest's own loop."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        files = sorted(str(path) for name in options.package for path in _files(Path(name)))
        every = [(path, number) for path in files for number, _ in enumerate(sites(ast.parse(Path(path).read_text())))]
        self._sample = sorted(random.Random(options.seed).sample(every, min(options.sample, len(every))))
        self._absolute = {os.path.abspath(path): path for path in files}
        self._items: list[pytest.Item] = []
        self._tests_of: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._times: dict[int, float] = {}
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = session.items
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename in self._absolute:
                self._functions[self._absolute[found.__code__.co_filename]].append(found)
        gc.freeze()
        with tempfile.TemporaryDirectory() as folder:
            parts = [(str(Path(folder, str(part))), part) for part in range(self._options.jobs)]
            for pid in [_fork(lambda: self._note_lines(*part)) for part in parts]:  # noqa: B023 - the child runs at once
                _wait(pid)
            for file, _ in parts:
                tests_of, times = pickle.loads(Path(file).read_bytes())  # noqa: S301 - its own child wrote it
                self._times |= times
                for place, tests in tests_of.items():
                    self._tests_of[place] |= tests
        print(f"{len(self._times)} of {len(self._items)} tests pass, {sum(self._times.values()):.0f} s", flush=True)
        running: dict[int, tuple[str, int]] = {}
        outcomes: Counter[str] = Counter()
        for mutant in [*self._sample, *[None] * self._options.jobs]:
            if mutant is None or len(running) == self._options.jobs:
                if running:
                    pid, outcome = _wait()
                    self._report(*running.pop(pid), outcome, outcomes)
            if mutant is not None:
                running[_fork(lambda: self._try(*mutant))] = mutant  # noqa: B023 - the child runs at once
        print(dict(outcomes))
        return True

    def _note_lines(self, file: str, part: int) -> None:
        """Run each test of a part once: which lines of the package it executes, and how long it takes."""
        tests_of: dict[tuple[str, int], set[int]] = defaultdict(set)
        times: dict[int, float] = {}
        running = -1

        def line(frame: FrameType, _event: str, _argument: object) -> Any:
            tests_of[self._absolute[frame.f_code.co_filename], frame.f_lineno].add(running)
            return line

        def call(frame: FrameType, event: str, argument: object) -> Any:
            return line(frame, event, argument) if frame.f_code.co_filename in self._absolute else None

        threading.settrace(call)
        for running in range(part, len(self._items), self._options.jobs):
            began = time.monotonic()
            sys.settrace(call)
            did_pass = _passes(self._items[running])
            sys.settrace(None)
            if did_pass:
                times[running] = time.monotonic() - began
        Path(file).write_bytes(pickle.dumps((dict(tests_of), times)))

    def _tests_for(self, path: str, site: Site) -> list[int]:
        """Return the tests that execute the place, short ones first; for one outside of functions, those of its file."""
        lines = range(site.node.lineno, site.node.end_lineno + 1)
        found = {
            test
            for (file, line), tests in self._tests_of.items()
            if file == path and (line in lines or not site.is_in_function)
            for test in tests
        }
        chosen, total = [], 0.0
        for test in sorted(found & self._times.keys(), key=lambda test: self._times[test]):
            total += self._times[test]
            if chosen and total > self._options.within:
                break
            chosen.append(test)
        return chosen

    def _try(self, path: str, number: int) -> None:
        """In a child: end with 0 if no test sees the mutant, with 9 if no test executes its line."""
        tree, site, _ = planted(path, number)
        tests = self._tests_for(path, site)
        if not tests:
            os._exit(NOT_RUN)
        file = os.path.abspath(path)
        before, after = (
            compile(each, file, "exec", dont_inherit=True) for each in (ast.parse(Path(path).read_text()), tree)
        )
        if not site.is_in_function or not swap(self._functions[path], before, after):
            signal.setitimer(signal.ITIMER_REAL, START_S + SLOWER * sum(self._times[test] for test in tests))
            arguments = ["--plant", f"{path}:{number}", *(self._items[test].nodeid for test in tests)]
            os.execv(sys.executable, [sys.executable, "-m", "tests.support.mutants", *arguments])  # noqa: S606
        for test in tests:
            signal.setitimer(signal.ITIMER_REAL, START_S + SLOWER * self._times[test])
            if not _passes(self._items[test]):
                os._exit(1)

    def _report(self, path: str, number: int, status: int, outcomes: Counter[str]) -> None:
        code = os.waitstatus_to_exitcode(status)
        outcome = {0: "SURVIVED", NOT_RUN: "NOT RUN", 1: "killed", 2: "killed", -signal.SIGALRM: "killed, hung"}.get(
            code, f"ended with {code}"
        )
        outcomes[outcome] += 1
        _, site, text = planted(path, number)
        print(f"{outcome:12} {path}:{site.node.lineno} #{number}  {text}", flush=True)


NOT_RUN = 9


def _files(package: Path) -> list[Path]:
    return [package] if package.is_file() else list(package.rglob("*.py"))


def _passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False))


def _fork(do: Callable[[], None]) -> int:
    """Run something in a child, in a group of processes of its own."""
    if (pid := os.fork()) == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(2 if "MUTANTS_DEBUG" in os.environ else 3):
            os.dup2(nowhere, stream)
        try:
            do()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(70)
        os._exit(0)
    return pid


def _wait(pid: int = -1) -> tuple[int, int]:
    """Wait for a child, and end what its tests started."""
    pid, status = os.waitpid(pid, 0)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return pid, status


def _import_planted(mutant: str) -> None:
    """Let this process import a mutant in place of its module."""
    path, number = mutant.rsplit(":", 1)
    tree, file, read = planted(path, int(number))[0], os.path.abspath(path), SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        return compile(tree, file, "exec", dont_inherit=True) if loader.path == file else read(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def main() -> int:
    """Plant a sample, or run some tests on one mutant (`--plant`)."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Small faults that no test sees.")
    parser.add_argument("package", nargs="*", help="files and folders to plant in")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="tests, and other arguments of pytest")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample")
    parser.add_argument("--sample", type=int, default=100, help="how many mutants")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--within", type=float, default=60.0, help="seconds of tests for one mutant")
    parser.add_argument("--plant", help=argparse.SUPPRESS)
    options, more = parser.parse_known_args()
    # Without pytest's assertions: the modules of a plugin for pytest, such as Tenure's, would have other code.
    quiet = ["-q", "-s", "--assert=plain", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        if options.plant:
            _import_planted(options.plant)
            return pytest.main([*quiet, "-x", *options.package, *more])
        return pytest.main([*quiet, *options.tests, *more], plugins=[Mutants(options)])


if __name__ == "__main__":
    sys.exit(main())
