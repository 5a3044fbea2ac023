"""Requests in few words: the structs in them are dicts.

    request("Metadata", topics=[{"name": "orders"}])

House rule: a field that a struct doesn't have is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.definition import Struct
from protocol.messages import API_KEYS, Message, definition, request_class


def request(api: str, **fields: Any) -> Message:
    """Return the request of an API."""
    made = request_class(API_KEYS[api])
    return _filled(made, made, definition(made.NAME).struct, fields)


def _filled(top: type[Message], made: type[Message], struct: Struct, values: Mapping[str, Any]) -> Message:
    """Return a message or a struct of it. top: the class of the message, which has those of all structs."""
    inner = {field.name: field.struct for field in struct.fields}
    return made(**{name: _of_structs(top, inner.get(name), value) for name, value in values.items()})


def _of_structs(top: type[Message], struct: Struct | None, value: Any) -> Any:
    if struct is None or value is None:
        return value
    made = getattr(top, struct.name)
    return [each if isinstance(each, Message) else _filled(top, made, struct, each) for each in value]
