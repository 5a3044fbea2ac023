"""Shows the demo to a person: a live table on a terminal, one line per step anywhere else; then the summary.

House rule: this module decides nothing and counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Self

from coordinator.story.described import Member


@dataclass(frozen=True, slots=True)
class Figures:
    """The server's figures of a roll.

    generation_before, generation_after: or epochs.
    unchanged: the number of topic partitions, of `partitions`, that kept their owner whenever the group was stable.
    rebalancing_s: seconds from the start to the end of each rebalance, added up.
    """

    kind: str
    restarts: int
    rebalances: int
    rebalancing_s: float
    generation_before: int
    generation_after: int
    partitions: int
    unchanged: int

    @property
    def moved_nothing(self) -> bool:
        """Whether there was no rebalance, and no topic partition changed its owner."""
        return self.rebalances == 0 and self.unchanged == self.partitions


@dataclass(slots=True)
class View:
    """The story at a moment, for the display.

    members: by worker, None for a worker that has no member. states: by worker, only while something happens to it.
    """

    kind: str
    counter: str = "generation"
    doing: str = ""
    state: str = ""
    generation: int = 0
    rebalances: int = 0
    members: dict[str, Member | None] = field(default_factory=dict)
    leader: str = ""
    states: dict[str, str] = field(default_factory=dict)


class Lines:
    """Prints one line per step; it shows nothing between steps."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to clean up."""

    def update(self, view: View) -> None:
        """Do nothing: a line is only for a step that is done."""

    def chapter(self, text: str) -> None:
        """Print the text: a part of the story begins or ends."""
        print(f"\n{text}", file=self._out, flush=True)

    def step(self, what: str, outcome: str) -> None:
        """Print a step that is done."""
        print(step_line(what, outcome), file=self._out, flush=True)


class LiveTable:
    """Prints the steps, and below them a table of the group as it is at the moment."""

    def __init__(self, out: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=out, force_terminal=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def chapter(self, text: str) -> None:
        """Print the text above the table: a part of the story begins or ends."""
        self._console.print(f"\n[bold]{text}[/]")

    def step(self, what: str, outcome: str) -> None:
        """Print a step that is done above the table."""
        self._console.print(step_line(what, outcome))

    def update(self, view: View) -> None:
        """Draw the table anew."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        title = f"{view.kind} · {view.state} · {view.counter} {view.generation} · rebalances {view.rebalances}"
        table = Table(title=title, caption=view.doing, title_justify="left", caption_justify="left", box=SIMPLE_HEAD)
        for heading in ("", "GROUP-INSTANCE-ID", "CONSUMER-ID", "PARTITIONS", ""):
            table.add_column(heading, no_wrap=True)
        for name, member in view.members.items():
            role = view.states.get(name) or ("leader" if name == view.leader else "")
            table.add_row(name, *_cells(member), Text(role), style="yellow" if name in view.states else "")
        self._live.update(table, refresh=True)


Display = Lines | LiveTable


def display(out: IO[str]) -> Display:
    """The live table if `out` is a terminal, else lines."""
    return LiveTable(out) if out.isatty() else Lines(out)


def step_line(what: str, outcome: str) -> str:
    """The line of a step with its outcome; all outcomes begin in the same column."""
    return f"  {what:<32}  {outcome}"


def summary(acts: Sequence[Figures]) -> str:
    """The acts side by side, one figure per line."""
    rows = [
        ("members", *(act.kind for act in acts)),
        ("consumers restarted", *(str(act.restarts) for act in acts)),
        ("coordinator killed, restarted", *("1" for _act in acts)),
        ("rebalances during the roll", *(str(act.rebalances) for act in acts)),
        ("time spent rebalancing", *(f"{act.rebalancing_s:.1f} s" for act in acts)),
        ("assignments unchanged", *(f"{act.unchanged}/{act.partitions}" for act in acts)),
        ("generation, epoch", *(f"{act.generation_before} -> {act.generation_after}" for act in acts)),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  "
        + row[0].ljust(widths[0])
        + "".join(f"   {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )


def _cells(member: Member | None) -> tuple[str, str, str]:
    """Instance id, member id and partitions; only the end of the member id, which a restart changes."""
    if member is None:
        return "-", "-", "-"
    member_id = member.member_id if len(member.member_id) <= 24 else f"...{member.member_id[-20:]}"
    partitions = " ".join(str(index) for _topic, index in member.topic_partitions)
    return member.group_instance_id or "-", member_id, partitions or "-"
