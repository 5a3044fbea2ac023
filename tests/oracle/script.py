"""The scripts as text: what clients send, and beneath each command what Apache Kafka answered.

    ## follower_restarts_in_stable versions=5,7,9
    # A follower that restarts gets the generation and its old assignment, and nobody rebalances.
    static a, b, version=$v
    form a, b
      a < JoinGroup error_code=NONE generation_id=1 protocol_name='range' ...
    b restarted again
    again join
      again < JoinGroup error_code=NONE generation_id=2 [7-9]protocol_type='consumer' protocol_name='range' ...

A file of `scripts` has its subject on top, then its scripts. A script begins with its name, with the versions in which
it is played (`$v` is the version) and with the servers that it wants (`on=`, else "open": see conftest.py). A line that
begins with `#` is for people. A command is not indented; player.py knows all commands. The lines below it, two spaces
further right, are the answers. A line, or a word of an answer, that begins with `[7-9]` is for these versions only.

A *case* is a script in one version. ORACLE_RECORD=1 writes Kafka's answers into the file, for a review of the diff.

House rule: only Kafka's answers are written here, and a file has just one form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

FOLDER = Path(__file__).with_name("scripts")
IS_RECORDING = os.environ.get("ORACLE_RECORD") == "1"

HEAD = re.compile(r"## (?P<name>\w+)(?: versions=(?P<versions>[\d,-]+))?(?: on=(?P<node>\w+))?$")
FOR_SOME = re.compile(r"\[(?P<versions>[\d,-]+)\] ")
WORD = re.compile(r" ?(?:[^] },']|'[^']*')+|[]},]+|.")
"""A part of an answer that a version may have alone: a field, or brackets that close."""
SHARED_WORD = re.compile(r"(?P<space> ?)(?:\[(?P<versions>[\d,-]+)\])?(?P<word>(?:[^] },']|'[^']*')+)|[]},]+|.")
"""The same with the versions that have it."""
WOVEN_MAX = 2
"""How many words one version may have more than another, at one place of an answer that both share."""
OUTCOME = "  "

ANY = -1
"""The version of a script that has none."""

Versions = frozenset[int]
Outcomes = list[list[str]]
"""The answers below each command of a case."""


@dataclass
class Step:
    """A command, the versions in which it is given, and the answers in each of them; or a line for people."""

    text: str
    versions: Versions
    answers: dict[int, list[str]] = field(default_factory=dict)


@dataclass(eq=False)
class Script:
    """A script of a file."""

    name: str
    file: str
    versions: tuple[int, ...]
    node: str
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """A script in one version."""

    script: Script
    version: int

    @property
    def name(self) -> str:
        """Its own: the group's name, too."""
        return self.script.name if self.version == ANY else f"{self.script.name}_v{self.version}"

    @property
    def node(self) -> str:
        """Which of the servers it wants."""
        return self.script.node

    @property
    def file(self) -> str:
        """The name of its file, without ending."""
        return self.script.file

    @property
    def steps(self) -> list[Step]:
        """The commands that are given in this version."""
        return [step for step in self.script.steps if self.version in step.versions and step.text[0] != "#"]

    @property
    def commands(self) -> list[str]:
        """The same as they are for this version."""
        return [step.text.replace("$v", str(self.version)) for step in self.steps]

    @property
    def restarts(self) -> bool:
        """Whether the server is killed in the middle."""
        return "restart" in self.commands

    @property
    def answers(self) -> Outcomes:
        """What Kafka answered to each command."""
        return [
            [answer.replace("$v", str(self.version)) for answer in step.answers[self.version]] for step in self.steps
        ]

    def record(self, outcomes: Outcomes) -> None:
        """Write other answers into the file."""
        scripts = read(FOLDER / f"{self.file}.txt")
        (script,) = (each for each in scripts if each.name == self.script.name)
        for step, answers in zip(Case(script, self.version).steps, outcomes, strict=True):
            step.answers[self.version] = [general(answer, self.version) for answer in answers]
        (FOLDER / f"{self.file}.txt").write_text(write(head_of(self.file), scripts))

    def __str__(self) -> str:
        return f"scripts/{self.file}.txt:{self.name}"


def cases() -> list[Case]:
    """All cases of all files."""
    found = [
        Case(script, version)
        for file in sorted(FOLDER.glob("*.txt"))
        for script in read(file)
        for version in script.versions
    ]
    assert len({case.name for case in found}) == len(found), "two scripts have one name"
    return found


def head_of(file: str) -> str:
    """What a file says above its first script."""
    return (FOLDER / f"{file}.txt").read_text().partition("\n\n## ")[0]


def read(file: Path) -> list[Script]:
    """The scripts of a file."""
    scripts: list[Script] = []
    for line in file.read_text().split("\n"):
        if match := HEAD.match(line):
            numbers = sorted(_numbers(match["versions"])) if match["versions"] else [ANY]
            scripts.append(Script(match["name"], file.stem, tuple(numbers), match["node"] or "open"))
        elif scripts and line.startswith(OUTCOME):
            step = scripts[-1].steps[-1]
            versions, text = _for_some(line.removeprefix(OUTCOME), step.versions)
            for version in versions:
                step.answers[version].append(_in_version(text, version))
        elif scripts and line:
            versions, text = _for_some(line, frozenset(scripts[-1].versions))
            scripts[-1].steps.append(Step(text, versions, {version: [] for version in versions}))
    return scripts


def write(head: str, scripts: Sequence[Script]) -> str:
    """A file's text."""
    return "\n\n".join([head, *("\n".join(_lines(script)) for script in scripts)]) + "\n"


def general(answer: str, version: int) -> str:
    """An answer in which `$v` stands for the version in the name of a topic."""
    return re.sub(rf"(?<=\.v){version}(?!\d)", "$v", answer)


class Woven:
    """An answer of several versions: its words, each with the versions that have it."""

    def __init__(self, version: int, words: list[str]) -> None:
        self.versions = {version}
        self.words = [(word, {version}) for word in words]

    def weave(self, version: int, words: list[str]) -> bool:
        """Take in another version's answer, if it is the same but for a few words more or less."""
        matcher = SequenceMatcher(None, [word for word, _ in self.words], words, autojunk=False)
        together: list[tuple[str, set[int]]] = []
        for kind, start, end, first, last in matcher.get_opcodes():
            alone = [] if kind == "equal" else [*(word for word, _ in self.words[start:end]), *words[first:last]]
            if kind == "replace" or len(alone) > WOVEN_MAX or any(word[0] in "]}," for word in alone):
                return False
            together += [(word, has | {version} if kind == "equal" else has) for word, has in self.words[start:end]]
            if kind == "insert":
                together += [(word, {version}) for word in words[first:last]]
        self.versions.add(version)
        self.words = together
        return True

    def text(self, among: Versions) -> str:
        """A line of the file: `[7-9] a < JoinGroup error_code=NONE [9]skip_assignment=True`."""
        own = frozenset(self.versions)
        words = (
            word[: word.startswith(" ")] + for_some(word.removeprefix(" "), frozenset(has), own, "")
            for word, has in self.words
        )
        return for_some("".join(words), own, among)


def merged(answers: Mapping[int, list[str]]) -> Iterator[Woven]:
    """The answers of several versions to one command, in the order that they have in each version."""
    found: list[tuple[list[str], list[Woven]]] = []
    for version in sorted(answers):
        split = [WORD.findall(line) for line in answers[version]]
        matcher = SequenceMatcher(None, ["".join(kind) for kind, _ in found], ["".join(words[:3]) for words in split])
        together: list[tuple[list[str], list[Woven]]] = []
        for how, start, end, first, last in matcher.get_opcodes():
            together += found[start:end]
            if how == "equal":
                for (_, alike), words in zip(found[start:end], split[first:last], strict=True):
                    if not any(each.weave(version, words) for each in alike):
                        alike.append(Woven(version, words))
            else:
                together += [(words[:3], [Woven(version, words)]) for words in split[first:last]]
        found = together
    return (each for _, alike in found for each in alike)


def for_some(text: str, versions: Versions, among: Collection[int], space: str = " ") -> str:
    """A line, or a word, with the versions in front if not all have it: `[5-7] text`."""
    return text if versions == frozenset(among) else f"[{_spans(versions, sorted(among))}]{space}{text}"


def _lines(script: Script) -> Iterator[str]:
    head = f"## {script.name}"
    if script.versions != (ANY,):
        head += f" versions={_spans(frozenset(script.versions), range(max(script.versions) + 1))}"
    yield head if script.node == "open" else f"{head} on={script.node}"
    for step in script.steps:
        yield for_some(step.text, step.versions, script.versions)
        yield from (OUTCOME + each.text(step.versions) for each in merged(step.answers))


def _for_some(line: str, among: Versions) -> tuple[Versions, str]:
    match = FOR_SOME.match(line)
    return (_numbers(match["versions"]) & among, line[match.end() :]) if match else (among, line)


def _in_version(line: str, version: int) -> str:
    """An answer without the words of other versions."""

    def word(match: re.Match[str]) -> str:
        if match["versions"] is None:
            return match[0]
        return match["space"] + match["word"] if version in _numbers(match["versions"]) else ""

    return SHARED_WORD.sub(word, line)


def _numbers(text: str) -> Versions:
    """The numbers of `0-3,5`."""
    spans = [span.partition("-") for span in text.split(",")]
    return frozenset(number for first, _, last in spans for number in range(int(first), int(last or first) + 1))


def _spans(versions: Versions, among: Sequence[int]) -> str:
    """The shortest text of these numbers, where only numbers of `among` count."""
    spans: list[list[int]] = []
    is_open = False
    for number in among:
        if number in versions and is_open:
            spans[-1][1:] = [number]
        elif number in versions:
            spans.append([number])
        is_open = number in versions
    return ",".join("-".join(map(str, span)) for span in spans)
