"""The tables of schemas: the parser accepts each legal table and refuses the others."""

from __future__ import annotations

import pytest

from protocol.definition import DefinitionError, Field, Struct, Versions, define, structs


def only_field(line: str, flexible: int | None = 6) -> Field:
    """Return the field that a table of one line defines."""
    (field,) = define("Example", line, (0, 9), flexible).struct.fields
    return field


def test_line_with_every_option() -> None:
    """The field has all options of its line."""
    line = "reason string 6-8 null=7+ ignorable tag=423  # why it joins"
    assert only_field(line) == Field(
        "reason",
        "string",
        False,
        None,
        Versions(6, 8),
        Versions(7, 8),
        "",
        True,
        423,
    )


def test_nested_fields_belong_to_the_struct_above_them() -> None:
    """Indented lines are the fields of the struct above them, at any depth."""
    table = """
    groups        []Group   1+
        name      string    1+
        members   []Member  2+
            id    int32     2+
    error_code    int16     0+
    """
    groups, error_code = define("Example", table, (0, 3)).struct.fields
    assert (error_code.name, error_code.struct) == ("error_code", None)
    assert groups.array
    assert groups.struct is not None
    assert [field.name for field in groups.struct.fields] == ["name", "members"]
    assert groups.struct.fields[1].versions == Versions(2, 3)
    assert [struct.name for struct in structs(Struct("Example", (groups, error_code)))] == ["Group", "Member"]


@pytest.mark.parametrize(
    ("line", "default"),
    [
        ("a int32 0+", 0),
        ("a int32 0+ default=-1", -1),
        ("a int32 0+ default=0x7fffffff", 0x7FFFFFFF),
        ("a bool 0+", False),
        ("a bool 0+ default=true", True),
        ("a float64 0+ default=1.5", 1.5),
        ("a string 0+", ""),
        ("a string 0+ null default=null", None),
        ("a bytes 0+", b""),
        ("a records 0+", None),
        ("a []int32 0+", ()),
        ("a []int32 0+ null default=null", None),
    ],
)
def test_default(line: str, default: object) -> None:
    """A field's default is that of its line, or else its type's default in Kafka."""
    found = only_field(line).default
    assert (found, type(found)) == (default, type(default))


@pytest.mark.parametrize(("text", "versions"), [("3+", (3, 9)), ("2-4", (2, 4)), ("1", (1, 1))])
def test_versions(text: str, versions: tuple[int, int]) -> None:
    """A line can write versions in three ways; an open range ends at the message's last version."""
    assert only_field(f"a int32 {text}", flexible=None).versions == versions


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("a int32", "needs a name, a type and versions"),
        ("a int33 0+", "neither a known type"),
        ("a Thing 0+\nb int32 0+", "neither a known type"),
        ("a int32 0+\n    b int32 0+", "not below a struct"),
        ("a int32 0+\na int32 0+", "two fields with one name"),
        ("a int32 x+", "are no versions"),
        ("a int32 1-2+", "are no versions"),
        ("a int32 4-", "are no versions"),
        ("a int32 0-10", "not within 0-9"),
        ("a int32 5-4", "not within 0-9"),
        ("a Thing 3+\n    b int32 2+", "not within 3-9"),
        ("a int32 0+ optional", "optional is no option"),
        ("a int32 0+ default", "default is no option"),
        ("a string 6+ tag=x", "tag=x is no option"),
        ("a int32 0+ null", "int32 is never null"),
        ("s S 0+ null\n  a int32 0+", "a struct that may be null is so in all versions, and by default"),
        ("a string 1+ null=0+", "not within 1-9"),
        ("a int32 5+ tag=0", "isn't flexible"),
        ("a string 0+ default=null", "null isn't allowed"),
        ("a string 0+ null=3+ default=null", "null isn't allowed"),
        ("a string 0+ default=x", "only null"),
        ("a uuid 0+ default=1", "only null"),
        ("a bool 0+ default=1", "1 is no bool"),
        ("a int32 0+ default=one", "one is no int32"),
    ],
)
def test_table_that_breaks_a_rule_is_refused(table: str, reason: str) -> None:
    """A wrong schema fails at its first use, and the error names the problem."""
    with pytest.raises(DefinitionError, match=reason):
        define("Example", table, (0, 9), flexible=6)


def test_tagged_field_needs_a_message_with_flexible_versions() -> None:
    """A tagged field needs a flexible version, because other versions have no tagged fields."""
    with pytest.raises(DefinitionError, match="isn't flexible"):
        define("Example", "a int32 0+ tag=0", (0, 9))
