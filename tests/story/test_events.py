"""Events are classes: their fields are those of notes and of the page, and a record of another form can't be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from coordinator.group.notes import TEXTS
from coordinator.story.events import TYPES, After, EventsDropped, Move, event_json, fields_of, read_event
from coordinator.story.schema import CONFLICT, SELF, event_name
from tests.support.cases import each
from tests.support.told import told

ROOT = Path(__file__).parents[2]


def test_an_event_has_the_fields_of_its_note() -> None:
    """A field that a note gets has to be in the event's class; a gap is of no note, and neither are findings."""
    noted = {event_name(kind.__name__): kind for kind in TEXTS}
    assert TYPES.keys() - noted.keys() == {"events_dropped", "finding_began", "finding_ended"}
    for name in TYPES.keys() & noted.keys():
        has = {field.name for field in fields(TYPES[name])}
        assert set(noted[name].FIELDS) - {"topic_names"} <= has, name


def test_the_page_has_every_field_of_an_event_and_no_other() -> None:
    """docs/run/events.md is what people read before they write a consumer of the topic."""
    page = (ROOT / "docs" / "run" / "events.md").read_text(encoding="utf-8")
    own = {"inferred", "causes_in_order", "generations_unseen"}  # an observer's: docs/ask-why/observe.md
    named = {field.encode_name for kind in TYPES.values() for field in fields(kind)} - own
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
    listed = page.partition("The topic has only the types of this list.")[2].partition("\n\nIn a record")[0]
    known = {*TYPES, *named, *(field.encode_name for kind in (After, Move) for field in fields(kind))}
    known |= {CONFLICT, SELF, "consumer"}
    assert [name for name in re.findall(r"`([a-z_]+)`", listed) if name not in known] == []
    assert [name for name in TYPES if f"`{name}`" not in listed] == ["member_away"], "an observer alone makes it"


@each("name", sorted(TYPES))
def test_an_event_is_read_as_it_was_written(name: str) -> None:
    """Its type stands in it, and names its class."""
    event = told(name)
    assert (event.type, type(event)) == (name, TYPES[name])
    assert read_event(event_json(event)) == event
    assert json.loads(event_json(event)) == fields_of(event)
    assert list(fields_of(event))[:3] == ["version", "type", "at_ms"]


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"type": "something_new"}, {"at_ms": "now"}, {"generation": None}, {"member_id": 7}],
    ids=["a later version", "an unknown type", "no time", "a field that lacks its value", "a field of another kind"],
)
def test_a_record_of_another_form_can_not_be_read(change: dict[str, object]) -> None:
    """So what is read has all that its class promises."""
    whole = fields_of(told("pending_expired"))
    assert read_event(json.dumps(whole).encode()) is not None
    assert read_event(json.dumps(whole | change).encode()) is None
    assert read_event(json.dumps({name: whole[name] for name in whole if name not in change}).encode()) is None


@each("value", [None, b"", b"{", b"[]", b"\xff", b'"text"'])
def test_other_bytes_are_no_event(value: bytes | None) -> None:
    """Any client may have written to the topic before Tenure had it."""
    assert read_event(value) is None


def test_a_field_of_a_later_server_is_passed_over() -> None:
    """New fields need no new version."""
    assert read_event(json.dumps(fields_of(told("rebalance_stuck")) | {"new": 1}).encode()) == told("rebalance_stuck")
    assert isinstance(read_event(event_json(told("events_dropped"))), EventsDropped)


def test_an_event_that_tells_its_entry_alone_has_words() -> None:
    """Entries with fields of their own have their words elsewhere; any other type of entry is said by its event."""
    composed = {"rebalance", "held", "pending", "loaded"}
    silent = {
        name for name, kind in TYPES.items() if kind.entry and kind.entry not in composed and "_lines" not in vars(kind)
    }
    assert not silent
