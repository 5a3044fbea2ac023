"""Messages for tests: any message of any version, random or full.

House rule: the strategies come from the definitions, so a new schema is tested without a new line here.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import settings

from protocol import messages
from protocol.definition import Field, Struct
from protocol.messages import NAMES, definition

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
"""Smallest and largest value of each integer type."""

SIZES = (0, 126, 127, 128)
"""Lengths on both sides of the limit at which a compact string's length takes a second byte."""

MESSAGES = [
    (name, version)
    for name in NAMES
    for version in range(definition(name).versions.first, definition(name).versions.last + 1)
]
"""Every message in every version."""


def tags_in(struct: Struct) -> set[int]:
    """Return the tags of a struct's fields, at every depth."""
    tags = {field.tag for field in struct.fields if field.tag is not None}
    return tags.union(*(tags_in(field.struct) for field in struct.fields if field.struct is not None))


KNOWN_TAGS = frozenset[int]().union(*(tags_in(definition(name).struct) for name in NAMES))
"""Every tag that a schema uses."""


def share(part: int) -> settings:
    """Divide the profile's number of examples by `part`, for a test that runs for each message."""
    profile = settings.default
    assert profile is not None, "tests/conftest.py loads one"
    return settings(max_examples=max(5, profile.max_examples // part))


def message_class(name: str) -> type[Any]:
    """Return the class of a message, without its type."""
    cls: type[Any] = getattr(messages, name)
    return cls


def is_flexible(name: str, version: int) -> bool:
    """Whether a version has tagged fields."""
    flexible = definition(name).flexible
    return flexible is not None and version >= flexible


@cache
def any_message(name: str, version: int, *, tags: bool = True) -> st.SearchStrategy[Any]:
    """Messages with values for the fields of a version; with unknown tagged fields if `tags`.

    Cached, because making a strategy takes longer than drawing from it.
    """
    cls = message_class(name)
    return _struct(cls, cls, definition(name).struct, version, tags=tags and is_flexible(name, version))


def full_message(name: str, version: int) -> Any:
    """Return a message in which each field of the version has another value than its default.

    Each array has two elements.
    """
    flexible = is_flexible(name, version)
    return _full(message_class(name), message_class(name), definition(name).struct, version, flexible=flexible)


@cache
def texts() -> st.SearchStrategy[str]:
    """Short strings of any letters, and a few with the lengths of SIZES."""
    return st.one_of(st.text(max_size=6), st.sampled_from(SIZES).map("x".__mul__))


@cache
def contents() -> st.SearchStrategy[bytes]:
    """Short bytes, and a few with the lengths of SIZES."""
    return st.one_of(st.binary(max_size=6), st.sampled_from(SIZES).map(b"\xff".__mul__))


@cache
def unknown_tags(
    *, first: int = 1_000, last: int = 2**32 - 1, min_size: int = 0, max_size: int = 2
) -> st.SearchStrategy[dict[int, bytes]]:
    """Tagged fields whose tags are from `first` to `last` and in no schema.

    The filter is necessary: a schema may use any tag, and Hypothesis likes to draw numbers that stand in the code.
    """
    tags = st.integers(first, last).filter(lambda tag: tag not in KNOWN_TAGS)
    return st.dictionaries(tags, contents(), min_size=min_size, max_size=max_size)


def _struct(cls: type[Any], message: type[Any], struct: Struct, version: int, *, tags: bool) -> st.SearchStrategy[Any]:
    fields = {
        field.name: _value(field, message, version, tags=tags) for field in struct.fields if version in field.versions
    }
    if tags:
        fields["unknown_tagged_fields"] = unknown_tags()
    return st.fixed_dictionaries(fields).map(lambda values: cls(**values))


def _value(field: Field, message: type[Any], version: int, *, tags: bool) -> st.SearchStrategy[Any]:
    value: st.SearchStrategy[Any]
    if field.struct is not None:
        value = _struct(getattr(message, field.type), message, field.struct, version, tags=tags)
    elif field.type in INTEGERS:
        value = st.integers(*INTEGERS[field.type])
    else:
        value = {
            "bool": st.booleans(),
            "float64": st.floats(allow_nan=False),
            "uuid": st.uuids(),
            "string": texts(),
            "bytes": contents(),
            "records": contents(),
        }[field.type]
    if field.array:
        value = st.lists(value, max_size=3)
    if field.nullable is not None and version in field.nullable:
        value = st.none() | value
    return value


def _full(cls: type[Any], message: type[Any], struct: Struct, version: int, *, flexible: bool) -> Any:
    made = cls(
        **{
            field.name: _full_value(field, message, version, flexible=flexible)
            for field in struct.fields
            if version in field.versions
        }
    )
    if flexible:
        made.unknown_tagged_fields = {2_000: b"", 70_000: b"\1\2"}
    return made


def _full_value(field: Field, message: type[Any], version: int, *, flexible: bool) -> Any:
    def one(number: int) -> Any:
        if field.struct is not None:
            return _full(getattr(message, field.type), message, field.struct, version, flexible=flexible)
        if field.type in INTEGERS:
            return 5 + number
        return {
            "bool": field.default is not True,
            "float64": 1.5,
            "uuid": UUID(int=1 + number),
            "string": "é" * 70 if number else "text",
            "bytes": b"bytes",
            "records": b"\0" * 130,
        }[field.type]

    return [one(0), one(1)] if field.array else one(0)
