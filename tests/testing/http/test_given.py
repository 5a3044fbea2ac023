"""Fields of a request: those that a schema accepts reach the operation, all others are named in an error."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coordinator.testing.http.given import body_fields, check, query_fields
from coordinator.testing.http.shapes import ASSIGNMENT, CAUSE, COUNT, SECONDS, TEXTS, UNHEARD

SCHEMAS = {
    "count": COUNT,
    "seconds": SECONDS,
    "names": TEXTS,
    "cause": CAUSE,
    "before": ASSIGNMENT,
    "unheard": UNHEARD,
    "on": {"type": "boolean"},
    "name": {"type": "string"},
}


@pytest.mark.parametrize(
    "given",
    [
        {"count": 0},
        {"seconds": 0.5},
        {"seconds": 3},
        {"names": []},
        {"names": ["a"]},
        {"cause": "member_left"},
        {"before": {"m": {"t": [0, 1]}}},
        {"unheard": [{"group": "g", "member": "m"}]},
        {"on": True},
        {"name": ""},
    ],
)
def test_fields_that_are_as_described_pass(given: dict[str, Any]) -> None:
    """A value of the described type passes, and stands for a missing field otherwise."""
    check(given, SCHEMAS, list(given))
    with pytest.raises(ValueError, match=f"the field '{next(iter(given))}' is missing"):
        check({}, SCHEMAS, list(given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"coutn": 1}, "there is no field 'coutn'; there are: count, seconds,"),
        ({"count": "1"}, 'count: "1" is not a whole number'),
        ({"count": 1.5}, "count: 1.5 is not a whole number"),
        ({"count": True}, "count: true is not a whole number"),
        ({"count": None}, "count: null is not a whole number"),
        ({"count": -1}, "count: -1 is less than 0"),
        ({"count": 2**31}, "count: 2147483648 is more than 2147483647"),
        ({"seconds": math.inf}, "seconds: Infinity is not a number"),
        ({"seconds": math.nan}, "seconds: NaN is not a number"),
        ({"before": {"m": {"t": [0, 2**31]}}}, r"before.m.t\[1\]: 2147483648 is more than"),
        ({"on": 1}, "on: 1 is not true or false"),
        ({"name": 7}, "name: 7 is not a text"),
        ({"names": "a"}, 'names: "a" is not a list'),
        ({"names": ["a", 1]}, r"names\[1\]: 1 is not a text"),
        ({"cause": "boredom"}, "cause: 'boredom' is none of .*member_left"),
        ({"cause": []}, r"cause: \[\] is none of"),
        ({"before": []}, r"before: \[\] is not an object"),
        ({"before": {"m": {"t": 1}}}, r"before.m.t: 1 is not a list"),
        ({"unheard": [{"group": "g"}]}, r"unheard\[0\]: the field 'member' is missing"),
        ({"unheard": [{"group": "g", "member": "m", "x": 1}]}, r"unheard\[0\]: there is no field 'x'"),
    ],
)
def test_other_fields_are_named(given: dict[str, Any], words: str) -> None:
    """The error names the field, and says what it has to be."""
    with pytest.raises(ValueError, match=f"^{words}"):
        check(given, SCHEMAS, [])


def test_a_body_is_an_object_or_empty() -> None:
    """An empty body and null have no fields; any other value than an object, and text that is no JSON, are refused."""
    assert body_fields(b"") == body_fields(b"null") == {}
    assert body_fields(b'{"a": 1}') == {"a": 1}
    for content in (b"[]", b"1", b'"a"'):
        with pytest.raises(ValueError, match=r"^the body is no JSON object$"):
            body_fields(content)
    for content in (
        b"{",
        b"\xff",
        b"group=1",
        b"[" * 100_000,
        b'{"name": "\\ud800"}',
        b'{"count": ' + b"9" * 5_000 + b"}",
    ):
        with pytest.raises(ValueError, match=r"^the body is no JSON: "):
            body_fields(content)


def test_a_query_has_numbers_where_its_schema_has() -> None:
    """Texts become numbers and flags where the schema says so; a name that looks like a number stays a name."""
    texts = {"count": "7", "on": "true", "name": "7", "seconds": "x", "other": "1"}
    expected = {"count": 7, "on": True, "name": "7", "seconds": "x", "other": "1"}
    assert query_fields(texts, SCHEMAS) == expected
