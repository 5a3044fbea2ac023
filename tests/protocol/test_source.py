"""The code that the compiler writes for a version, and the limits of its optimizations."""

from __future__ import annotations

import re
from typing import Any

import pytest

from protocol import source
from protocol.definition import define

TABLE = """
group_id    string     0+
generation  int32      0+
epoch       int16      0+
member_id   string     0+
topics      []string   1+
flag        bool       0+
"""


def never(name: str) -> Any:
    """Fail: a table without structs needs no codec of a struct."""
    raise AssertionError(name)


@pytest.fixture
def owner() -> source.Owner:
    """Return a class without structs."""
    return source.Owner("Example", object, never, never, never)


@pytest.mark.parametrize(("flexible", "code"), [(False, "ihh"), (True, "ihB")])
def test_neighbours_of_fixed_size_are_read_at_once(owner: source.Owner, *, flexible: bool, code: str) -> None:
    """One struct call reads neighbouring fixed fields, together with the length of the next field."""
    text = source.decoder(owner, 0, flexible).struct(define("Example", TABLE, (0, 1), 0).struct).text
    assert re.findall(rf"unpack_{code}\(", text) == [f"unpack_{code}("]


@pytest.mark.parametrize(("flexible", "code"), [(False, "ihh"), (True, "ih")])
def test_neighbours_of_fixed_size_are_written_at_once(owner: source.Owner, *, flexible: bool, code: str) -> None:
    """One struct call writes neighbouring fixed fields, with the next field's length if its size is fixed."""
    text = source.encoder(owner, 0, flexible).struct(define("Example", TABLE, (0, 1), 0).struct).text
    assert set(re.findall(rf"pack_{code}\(", text)) == {f"pack_{code}("}


def test_message_of_fixed_fields_is_one_call(owner: source.Owner) -> None:
    """One pack writes the answer to a heartbeat, with the count of tagged fields."""
    definition = define("Example", "throttle_time_ms int32 0+\nerror_code int16 0+", (0, 0), 0).struct
    assert (
        source.encoder(owner, 0, True)
        .struct(definition)
        .text.endswith("    return pack_ihx(m.throttle_time_ms, m.error_code)\n")
    )


def test_field_of_another_version_costs_nothing_but_its_default(owner: source.Owner) -> None:
    """A field that the version doesn't have only gets its default: the code for it has no check of versions."""
    definition = define("Example", TABLE, (0, 1)).struct
    assert "m.topics = []\n" in source.decoder(owner, 0, False).struct(definition).text
    assert "topics announces" not in source.decoder(owner, 0, False).struct(definition).text
    assert "topics announces" in source.decoder(owner, 1, False).struct(definition).text


def test_traceback_names_message_and_version(owner: source.Owner) -> None:
    """A traceback through the generated code shows message and version in place of a file."""
    written = source.decoder(owner, 0, False).struct(define("Example", TABLE, (0, 1)).struct)
    function = source.build(written, "decode Example v0")
    assert function.__code__.co_filename == "<decode Example v0>"
