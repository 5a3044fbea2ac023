"""The form of a message: the tables of `schemas` as values.

A schema table has a line per field, in the order of the wire:

    name   type   versions   [null[=VERSIONS]] [default=VALUE] [ignorable] [tag=N] [long]      # remark

    group_id            string             0+
    group_instance_id   string             5+   null default=null
    protocols           []Protocol         0+
        name            string             0+

- type: bool, int8, int16, uint16, int32, uint32, int64, float64, string, bytes, uuid, records, or the name of a struct
  whose fields follow indented; `[]` in front makes it an array of that.
- versions: `0+`, `2-4` or `1`; the field is on the wire in these only.
- null: the versions in which the field may be null; without `=` all that have it. A struct may be null in all of them
  or in none.
- default: the field's value in a message that gives none, or whose version lacks the field. Without this option: 0,
  false, "", empty, the zero UUID or a struct of defaults by type (records: null). A struct that may be null and isn't
  tagged is null by default.
- ignorable: encoding drops the field's value in a version that lacks it. Without this option it drops only the default.
- tag: the field is a tagged field (KIP-482) with this number in every version that has it; such versions are flexible.
- long: the field is a string whose reader refuses a long one itself. So decoding accepts it even if it takes more than
  32,767 bytes once U+FFFD stands for bytes that aren't UTF-8.

House rule: a table that breaks these rules raises DefinitionError, which names the line; nothing is guessed.
Source: Kafka's message format README (clients/src/main/resources/common/message/README.md).
"""

from __future__ import annotations

from typing import NamedTuple

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of fixed size, and their code in `struct`."""

VARIABLE = frozenset({"string", "bytes", "records"})
"""Types that start with their length."""


class DefinitionError(ValueError):
    """A schema table that breaks the rules of this module."""


class Versions(NamedTuple):
    """An inclusive range of versions."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


class Field(NamedTuple):
    """One field of a struct.

    type: the element's type if `array`. struct: the struct that the type names; None for other types. nullable: the
    versions in which it may be null; None if there are none. default: a number, bool or str; None for null; `()` for an
    empty array; b"" for bytes. A uuid's default is always the zero UUID. has_struct: the default is a struct of its
    fields' defaults.
    """

    name: str
    type: str
    array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions | None
    default: int | float | bool | str | bytes | tuple[()] | None
    ignorable: bool
    tag: int | None
    has_struct: bool = False
    is_long: bool = False


class Struct(NamedTuple):
    """Named fields in the order of the wire."""

    name: str
    fields: tuple[Field, ...]


class Definition(NamedTuple):
    """A message.

    api_key: None for records. flexible: the first flexible version (KIP-482), None if there is none.
    """

    struct: Struct
    api_key: int | None
    versions: Versions
    flexible: int | None


def define(
    name: str, table: str, versions: tuple[int, int], flexible: int | None = None, api_key: int | None = None
) -> Definition:
    """A message from its table; see the head of this module. Raises DefinitionError."""
    lines = []
    for text in table.splitlines():
        words = text.partition("#")[0].split()
        if words:
            lines.append((len(text) - len(text.lstrip()), words))
    definition = Versions(*versions)
    fields, rest = _fields(name, lines, 0, definition, flexible)
    if rest != len(lines):
        raise DefinitionError(f"{name}: {' '.join(lines[rest][1])}: indented, but not below a struct")
    return Definition(Struct(name, fields), api_key, definition, flexible)


def structs(struct: Struct) -> list[Struct]:
    """The structs nested in one, at every depth, in the order of the wire. One that several fields have comes once."""
    found: dict[str, Struct] = {}
    for field in struct.fields:
        if field.struct is not None:
            for each in (field.struct, *structs(field.struct)):
                if found.setdefault(each.name, each) != each:
                    raise DefinitionError(f"{struct.name}: two structs {each.name} with other fields")
    return list(found.values())


def _fields(
    name: str, lines: list[tuple[int, list[str]]], start: int, versions: Versions, flexible: int | None
) -> tuple[tuple[Field, ...], int]:
    """The fields from line `start` on that have its indentation, and the line behind them."""
    fields: list[Field] = []
    index = start
    depth = lines[start][0] if start < len(lines) else 0
    while index < len(lines) and lines[index][0] == depth:
        words = lines[index][1]
        index += 1
        where = f"{name}: {' '.join(words)}"
        if len(words) < 3:
            raise DefinitionError(f"{where}: a field needs a name, a type and versions")
        array = words[1].startswith("[]")
        type_name = words[1].removeprefix("[]")
        present = _versions(where, words[2], versions)
        struct = None
        if type_name not in FIXED and type_name not in VARIABLE:
            if index == len(lines) or lines[index][0] <= depth:
                raise DefinitionError(f"{where}: neither a known type nor a struct with fields below it")
            below, index = _fields(type_name, lines, index, present, flexible)
            struct = Struct(type_name, below)
        fields.append(_field(where, words, type_name, array, struct, present, flexible))
    if len({field.name for field in fields}) != len(fields):
        raise DefinitionError(f"{name}: two fields with one name")
    return tuple(fields), index


def _field(
    where: str,
    words: list[str],
    type_name: str,
    array: bool,
    struct: Struct | None,
    present: Versions,
    flexible: int | None,
) -> Field:
    """A field from the words of its line."""
    nullable: Versions | None = None
    ignorable = False
    is_long = False
    tag: int | None = None
    given: str | None = None
    for option in words[3:]:
        key, equals, value = option.partition("=")
        if key == "null":
            nullable = _versions(where, value, present) if equals else present
        elif key == "default" and equals:
            given = value
        elif option == "ignorable":
            ignorable = True
        elif key == "tag" and value.isdecimal():
            tag = int(value)
        elif option == "long" and type_name == "string":
            is_long = True
        else:
            raise DefinitionError(f"{where}: {option} is no option")
    if nullable is not None and not (array or type_name in VARIABLE):
        if type_name in FIXED:
            raise DefinitionError(f"{where}: {type_name} is never null")
        if nullable != present or (given != "null" and tag is None):
            raise DefinitionError(
                f"{where}: a struct that may be null is so in all versions, and by default if untagged"
            )
    if tag is not None and (flexible is None or present.first < flexible):
        raise DefinitionError(f"{where}: a tagged field in a version that isn't flexible")
    default = _default(where, type_name, array, given, nullable == present)
    has_struct = struct is not None and not array and given != "null"
    return Field(words[0], type_name, array, struct, present, nullable, default, ignorable, tag, has_struct, is_long)


def _versions(where: str, text: str, within: Versions) -> Versions:
    """`3+`, `2-4` or `1`; an open end is the end of `within`, which must hold all of it."""
    first, dash, last = text.removesuffix("+").partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and text.endswith("+")):
        raise DefinitionError(f"{where}: {text} are no versions")
    versions = Versions(int(first), within.last if text.endswith("+") else int(last or first))
    if not within.first <= versions.first <= versions.last <= within.last:
        raise DefinitionError(f"{where}: {text} is not within {within.first}-{within.last}")
    return versions


def _default(
    where: str, type_name: str, array: bool, given: str | None, always_nullable: bool
) -> int | float | bool | str | bytes | tuple[()] | None:
    """The default of a field: what the table gives, else that of its type."""
    if given == "null":
        if not always_nullable:
            raise DefinitionError(f"{where}: null can't be the default where null isn't allowed")
        return None
    if array or type_name not in FIXED or type_name == "uuid":
        if given is not None:
            raise DefinitionError(f"{where}: only null can be given as default of {type_name}")
        if array:
            return ()
        if type_name == "string":
            return ""
        return b"" if type_name == "bytes" else None
    if type_name == "bool":
        if given not in (None, "true", "false"):
            raise DefinitionError(f"{where}: {given} is no bool")
        return given == "true"
    try:
        return float(given or 0) if type_name == "float64" else int(given or "0", 0)
    except ValueError:
        raise DefinitionError(f"{where}: {given} is no {type_name}") from None
