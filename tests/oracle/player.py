"""Plays a case of a script on a server.

A command is a word and its arguments, with whoever it is for in front: `form a, b` is for the stage, `a join` for a,
`a,b heartbeat` for both, one after the other; `a.client` is the connection of a member of the consumer protocol. The
words are the methods of `Client`, `Seat`, `Producer` and `Stage` (STAGE has those of the stage), with their docstrings.

Arguments are Python's literals, and:

- the name of a client or seat; `b.member_id` and `b.assigned` are what it has at that moment;
- `G`, the script's own group; a text that begins with "G." or "G-" begins with its name;
- `Heartbeat(group_id=G)`, a request; structs in it are `{name: 'topic', partitions: [...]}`;
- the FUNCTIONS and CONSTANTS below;
- any other name is itself: `until_state Empty`.

House rule: what is played is in the text alone; this module has no case of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

from tests.oracle import consumer, producer
from tests.oracle.consumer import Seat
from tests.oracle.literals import Literals, parsed
from tests.oracle.producer import Producer
from tests.oracle.script import Case, Outcomes
from tests.oracle.stage import Client, Server, Stage, commit_topics, protocol_list, subscription
from tests.oracle.transcript import STAYS_MS
from tests.support.batches import batch, numbered
from tests.support.raw import Closed, NoAnswer

Actor = Client | Producer | Seat

TOGETHER = 8
"""Cases that are played at the same time. A case that waits for a timeout does little else, and most do wait."""

TOLD = re.compile(r"(?P<who>(?:'[^']*'|[\w.,])+) (?P<rest>.*)$")
MAKES: dict[str, Callable[..., Actor]] = {
    "client": Stage.client,
    "static": Stage.static,
    "seat": consumer.seat,
    "producer": producer.producer,
}
"""`client a, b, version=5` makes each of them."""
STAGE: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (
        *(Stage.form, Stage.topic, Stage.known_topic, Stage.pass_time),
        *(Stage.until_members, Stage.until_state, Stage.until_topic, Stage.until_configs),
        *(consumer.settle, consumer.configure, consumer.short_session, consumer.delete_topic, consumer.grow_topic),
        *(consumer.until_epoch, consumer.until_seats, consumer.until_stable),
    )
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (batch, numbered, subscription, consumer.owning, consumer.assignment, commit_topics, protocol_list)
}
CONSTANTS = {"STAYS_MS": STAYS_MS, "NO_TOPIC": UUID(int=7), "START_MS": producer.START_MS}


class Play(Literals):
    """One case on a stage. ends: how long the transcript was after each command."""

    functions = FUNCTIONS

    def __init__(self, case: Case, server: Server, slower: int = 1) -> None:
        self.case = case
        self.stage = Stage(server, case.name, slower)
        self.actors: dict[str, Actor] = {}
        self.ends: list[int] = []

    def perform(self) -> Generator[None, None, None]:
        """Play; yield where the server has to be killed and started again. A server that fails to answer ends it."""
        with suppress(NoAnswer, Closed):
            for command in self.case.commands:
                try:
                    if command == "restart":
                        yield
                        self.stage.reconnect()
                    else:
                        self._do(command)
                except Exception as error:
                    error.add_note(f"{self.case}: {command}")
                    raise
                finally:
                    self.ends.append(len(self.stage.transcript.lines))

    def outcomes(self) -> Outcomes:
        """The answers to each command."""
        lines = self.stage.transcript.comparable()
        ends = self.ends + [len(lines)] * (len(self.case.commands) - len(self.ends))
        return [
            [str(line) for line in lines[start:end] if not line.is_asked]
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def _do(self, command: str) -> None:
        who, rest = "", command
        if command.partition(" ")[0] not in {*MAKES, *STAGE}:
            match = TOLD.match(command)
            assert match, command
            who, rest = match.groups()
        word, _, arguments = rest.partition(" ")
        call = parsed(arguments)
        if who:
            for each in who.split(","):
                self._tell(self._actor(each), word, call)
        elif word in MAKES:
            for name in call.args:
                made = name.id if isinstance(name, ast.Name) else self.value(name)
                self.actors[made] = MAKES[word](self.stage, made, **self.named(call))
        else:
            given = [self.value(each) for each in call.args]
            STAGE[word](*given if word == "settle" else (self.stage, *given), **self.named(call))

    def _tell(self, actor: Actor, word: str, call: ast.Call) -> None:
        if word == "set":
            for name, value in self.named(call).items():
                assert hasattr(actor, name), name
                setattr(actor, name, value)
            return
        made = getattr(actor, word)(*(self.value(each) for each in call.args), **self.named(call))
        if isinstance(made, Client):
            self.actors[made.name] = made

    def _actor(self, who: str) -> Actor:
        name, _, part = who.partition(".")
        actor = self.actors[name.strip("'")]
        return cast("Producer | Seat", actor).client if part == "client" else actor

    def text(self, text: str) -> str:
        """See Literals: "G." is the script's own group."""
        return self.stage.group + text[1:] if text.startswith(("G.", "G-")) else text

    def attribute(self, name: str, attribute: str) -> Any:
        """See Literals: what an actor has at this moment."""
        return getattr(self.actors[name], attribute)

    def name(self, name: str) -> Any:
        """See Literals: an actor, or a constant."""
        if name == "G":
            return self.stage.group
        return self.actors[name] if name in self.actors else CONSTANTS.get(name, name)

    def called(self, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """See Literals: the stage knows the ids of topics."""
        if name in {"topic_id", "log_folder"}:
            return getattr(self.stage, name)(*arguments)
        return super().called(name, arguments, named)


def play(case: Case, server: Server, slower: int = 1) -> Play:
    """Play a case from beginning to end. slower: by how much its short timeouts are longer."""
    (played,) = play_all([case], server, restart=None, slower=slower)
    return played


def play_together(cases: Sequence[Case], server: Server, slower: int = 1) -> list[Play]:
    """Play cases at the same time, so that they wait for their timeouts together. Each has a group of its own."""
    with ThreadPoolExecutor(TOGETHER) as threads:
        return list(threads.map(lambda case: play(case, server, slower), cases))


def play_all(cases: Sequence[Case], server: Server, restart: Callable[[], None] | None, slower: int = 1) -> list[Play]:
    """Play cases in which the server is killed: each up to there, one `restart`, and then the rest of each."""
    plays = [Play(case, server, slower) for case in cases]
    try:
        waiting = [rest for rest in (each.perform() for each in plays) if next(rest, "over") is None]
        if waiting:
            assert restart is not None
            restart()
        for rest in waiting:
            for _ in rest:
                raise AssertionError("a script has one restart")
    finally:
        for each in plays:
            each.stage.close()
    return plays
