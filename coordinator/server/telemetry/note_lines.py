"""Makes log lines of notes.

A text line has the words of `group.notes`. A JSON line has the note's name in snake_case as `event`, and the
note's fields: a cause is an object (kind, member_ids, ..., source), and the members before and after a rebalance are
two numbers.

House rule: a note's name and its fields are an interface (docs/run/events.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.group import notes
from coordinator.group.notes import TEXTS, Noted, place_text
from coordinator.loop.lines import Level, Lines
from coordinator.story.schema import event_name

LEVELS = {
    notes.RebalanceStuck: Level.WARN,
    notes.MemberFenced: Level.WARN,
    notes.InstanceIdUnreleased: Level.WARN,
    notes.UnexpectedRequest: Level.WARN,
    notes.ClientRefused: Level.WARN,
    notes.GroupTooLarge: Level.ERROR,
}
"""The levels of notes; all other notes are INFO."""

COUNTED = frozenset({"before", "after"})
"""Fields of which a line has only the length."""

# Before Python 3.12, naming an enum's member is a call.
INFO = Level.INFO


class NoteLines:
    """Writes notes as log lines."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def take(self, noted: Sequence[Noted]) -> None:
        """Write the lines of notes, with one write."""
        if self._lines.has_fields:
            self._lines.put([self._object(partition, note) for partition, _, happened in noted for note in happened])
        else:
            texts = []
            for partition, _, happened in noted:
                place = place_text(partition)
                for note in happened:
                    kind = type(note)
                    texts.append((LEVELS.get(kind, INFO), TEXTS[kind](note, place)))
            self._lines.put_texts(texts)

    def _object(self, partition: int, note: notes.Note) -> str:
        from coordinator.story.making import json_fields  # noqa: PLC0415 - a start has no time for it

        kind = type(note)
        fields = {"partition": partition} | json_fields(note, (name for name in kind.FIELDS if name not in COUNTED))
        fields |= {name: len(getattr(note, name)) for name in kind.FIELDS if name in COUNTED}
        text = TEXTS[kind](note, place_text(partition))
        return self._lines.object_line(LEVELS.get(kind, INFO), event_name(kind.__name__), text, fields)
