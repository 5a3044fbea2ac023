"""The arguments of an operation, out of a request: named, of the described types, and nothing else.

The schemas are those of /openapi.json, so the document says what is accepted. Only the part of JSON Schema that the
operations use is understood: types, enum, minimum, maximum, items, properties, additionalProperties.

House rule: an error names the field and says what it has to be.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.site.openapi import Schema

KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a text", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "array": ("a list", (list,)),
    "object": ("an object", (dict,)),
}
"""A type of JSON Schema -> its words, and the classes of its values."""


def body_fields(content: bytes) -> dict[str, Any]:
    """The fields of a request's body, a JSON object; none of an empty body, or of null. Raises ValueError."""
    if not content:
        return {}
    try:
        found = json.loads(content)
        json.dumps(found, ensure_ascii=False).encode()  # no answer could repeat a half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is no JSON: {error}") from None
    match found:
        case dict():
            return found
        case None:
            return {}
        case _:
            raise ValueError("the body is no JSON object")


def query_fields(texts: Mapping[str, str], schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The fields of a query. Texts that should be other values are read as JSON, or stay texts."""
    found: dict[str, Any] = {}
    for name, text in texts.items():
        found[name] = text
        if schemas.get(name, {}).get("type", "string") != "string":
            try:
                found[name] = json.loads(text)
            except ValueError:
                continue
    return found


def check(given: Mapping[str, Any], schemas: Mapping[str, Schema], needed: Collection[str]) -> None:
    """Raise ValueError if a field is unknown, missing, or not as its schema says."""
    for name, value in given.items():
        if name not in schemas:
            raise ValueError(f"there is no field {name!r}; there are: {', '.join(schemas) or 'none'}")
        _check(name, value, schemas[name])
    for name in needed:
        if name not in given:
            raise ValueError(f"the field {name!r} is missing")


def _check(name: str, value: Any, schema: Schema) -> None:
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(map(str, schema['enum']))}")
    words, classes = KINDS[schema["type"]]
    # Python counts true and false as numbers, and reads Infinity and NaN.
    is_finite = not isinstance(value, float) or isfinite(value)
    if not isinstance(value, classes) or (isinstance(value, bool) and bool not in classes) or not is_finite:
        raise ValueError(f"{name}: {json.dumps(value)} is not {words}")
    if "minimum" in schema and value < schema["minimum"]:
        raise ValueError(f"{name}: {value} is less than {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        raise ValueError(f"{name}: {value} is more than {schema['maximum']}")
    if isinstance(value, list):
        for index, each in enumerate(value):
            _check(f"{name}[{index}]", each, schema["items"])
    elif isinstance(value, dict):
        fields = schema.get("properties", {})
        for key, each in value.items():
            if key not in fields and "additionalProperties" not in schema:
                raise ValueError(f"{name}: there is no field {key!r}; there are: {', '.join(fields)}")
            _check(f"{name}.{key}", each, fields.get(key) or schema["additionalProperties"])
        for key in schema.get("required", ()):
            if key not in value:
                raise ValueError(f"{name}: the field {key!r} is missing")
