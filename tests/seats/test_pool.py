"""coordinator.seats.pool: names, and the table of their holders."""

from __future__ import annotations

from uuid import uuid4

import pytest

from coordinator.seats.pool import POOL_MAX, ROWS_MAX, Given, Row, Wish, assign, group_of, names_of
from protocol.errors import ProtocolError
from tests.support.cases import each

POOL = "w-[0..1]"


def wish(identity: str, claim: str = "", token: int = 0, *, waits: bool = True, highest: int = 0) -> Wish:
    """The wish of a member of POOL."""
    return Wish(identity, POOL, claim, token, waits, highest)


@each(
    "pool, names",
    [
        ("w-[0..2]", ("w-0", "w-1", "w-2")),
        ("w-[08..10]-x", ("w-08-x", "w-09-x", "w-10-x")),
        ("red, green", ("red", "green")),
        ("w-[3..3],z", ("w-3", "z")),
    ],
)
def test_names_of_a_pool(pool: str, names: tuple[str, ...]) -> None:
    """A pool is a range, whose names have the width of its first number, or several texts."""
    assert names_of(pool) == names


@each(
    "pool",
    [
        *("", "w-[2..1]", "w-[0..1000]", "a,a", "w-[0..", "w]", "[a..b]", "a,,b", "w-[0..600],x-[0..600]"),
        *(",".join(f"w-{number:08}" for number in range(200)), "w" * 250),
    ],
)
def test_a_wrong_pool_is_refused(pool: str) -> None:
    """A pool that isn't a list of different names is an error."""
    with pytest.raises(ValueError, match=r"neither|twice|more than"):
        names_of(pool)


def test_a_pool_that_grows_keeps_its_group() -> None:
    """Programs that roll from the smaller pool to the larger one share their names' leases."""
    assert group_of("orders-[0..7]") == group_of("orders-[0..9]") == "tenure-seats-orders"


def test_a_claim_stays_and_others_get_what_is_free() -> None:
    """The token of a claim stays; a new holder's is the time."""
    given = assign({"a": wish("A", "w-1", 7), "b": wish("B"), "c": wish("C")}, {}, "a", 99)
    assert [(each.name, each.token) for each in given.values()] == [("w-1", 7), ("w-0", 99), ("", 0)]
    assert given["c"].table == {"w-1": Row(7, "A"), "w-0": Row(99, "B")}


def test_of_two_claims_the_newer_one_counts() -> None:
    """The member with the older claim gets no name."""
    given = assign({"a": wish("A", "w-0", 7), "b": wish("B", "w-0", 8), "c": wish("C", "w-1", 3)}, {}, "a", 99)
    assert {member_id: each.name for member_id, each in given.items()} == {"a": "", "b": "w-0", "c": "w-1"}


def test_a_token_is_higher_than_each_that_a_member_knows() -> None:
    """A token grows, though the leader's clock is behind."""
    given = assign({"a": wish("A"), "b": wish("B", highest=200)}, {}, "a", 99)
    assert {(each.token, each.highest) for each in given.values()} == {(201, 201)}


def test_a_program_gets_its_own_name_again() -> None:
    """A free name goes to its last holder before it goes to a program that waits longer."""
    table = {"w-0": Row(1, "A"), "w-1": Row(2, "B")}
    given = assign({"c": wish("C"), "b2": wish("B"), "a": wish("A", "w-0", 1)}, table, "a", 99)
    assert (given["b2"].name, given["c"].name) == ("w-1", "")


def test_a_program_waits_for_the_name_of_its_earlier_run() -> None:
    """A program that waits no longer gets another name."""
    table = {"w-0": Row(1, "A")}
    members = {"a": wish("A", "w-0", 1), "a2": wish("A")}
    assert (assign(members, table, "a", 99)["a2"].name, assign(members, table, "a", 99)["a2"].is_near) == (
        "",
        True,
    )
    members["a2"] = wish("A", waits=False)
    assert assign(members, table, "a", 99)["a2"].name == "w-1"


def test_a_name_that_was_free_for_long_goes_first() -> None:
    """The last holder of a name that was free for a short time may come back."""
    table = {"w-0": Row(9, "A"), "w-1": Row(2, "B")}
    assert assign({"c": wish("C")}, table, "c", 99)["c"].name == "w-1"


def test_a_large_table_goes_to_the_leader_alone() -> None:
    """The assignments of a generation stay small, because a coordinator stores them as one record."""
    wishes = {f"m-{number}": Wish(f"p-{number}", "w-[0..99]", "", 0, True, 0) for number in range(100)}
    given = assign(wishes, {}, "m-3", 99)
    assert {member_id for member_id, each in given.items() if each.table} == {"m-3"}
    assert len({each.name for each in given.values()}) == 100


def test_the_longest_pool_of_400_programs_is_below_1_mb() -> None:
    """A coordinator stores the wishes and assignments of a generation, with names of members, as one record."""
    pool = f"w-[0..799],{','.join(f'worker-{number:03}' for number in range(180))}"
    assert POOL_MAX - 12 < len(pool) <= POOL_MAX
    member_ids = [f"rdkafka-{uuid4()}" for _ in range(400)]
    wishes = {member_id: Wish(f"orders-{member_id[-36:]}", pool, "", 0, True, 10**12) for member_id in member_ids}
    table = {name: Row(10**12, f"orders-{uuid4()}") for name in names_of(pool)}
    given = assign(wishes, table, member_ids[0], 10**12)
    record = sum(len(wishes[each].encode()) + len(given[each].encode()) + 3 * len(each) for each in member_ids)
    assert record < 1_000_000


def test_a_table_forgets_the_names_that_were_free_for_the_longest_time() -> None:
    """A table has no more rows, however often the pools of a group change."""
    table = {f"old-{number}": Row(number, "A") for number in range(1, ROWS_MAX + 1)}
    rows = assign({"b": wish("B")}, table, "b", 9_999)["b"].table
    assert len(rows) == ROWS_MAX
    assert "w-0" in rows
    assert table.keys() - rows.keys() == {"old-1"}


def test_wishes_and_assignments_survive_the_wire() -> None:
    """Bytes become the same wish and assignment again; no bytes are no assignment."""
    asked = wish("A", "w-0", 3)
    given = Given("w-0", 3, False, 1, {"w-0": Row(3, "A")})
    assert (Wish.decode(asked.encode()), Given.decode(given.encode())) == (asked, given)
    assert Given.decode(b"").name == ""


@pytest.mark.parametrize("data", [b"", b"not JSON", b"[]", b'["A","w-0","",0,true,"1"]'])
def test_a_wish_of_another_program_is_refused(data: bytes) -> None:
    """A member of another kind has sent no wish; the leader says so."""
    with pytest.raises(ProtocolError, match="isn't of tenure seat run"):
        Wish.decode(data)


def test_a_wish_of_a_wrong_pool_is_refused() -> None:
    """A leader reads no more names than the command takes."""
    with pytest.raises(ProtocolError, match="wrong pool"):
        Wish.decode(wish("A")._replace(pool="w-[0..9999]").encode())
