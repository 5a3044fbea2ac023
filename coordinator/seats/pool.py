"""The names of a pool, and the table of their holders that the leader of a group makes.

    names_of("orders-[0..2]")  ->  ("orders-0", "orders-1", "orders-2")

A name stays with the member that claims it. A free name goes to the program that had it last, and then to the others,
the name first that was free for the longest time.

A token is the leader's time in ms, and higher than each one that a member of the group knows. So tokens grow though a
clock is wrong, and also if everybody who knew the last one is gone.

House rule: pure; a leader takes no name from a member that claims it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Self, TypeVar

import msgspec

from protocol.errors import ProtocolError

Value = TypeVar("Value")

NAMES_MAX = 1_000
NAME_MAX = 249
"""Characters of a name, and of an identity: the most that Kafka takes as a `group.instance.id`."""
POOL_MAX = 2_000
"""Characters of a pool's text: a coordinator stores the wishes of all members as one record, of 1 MB at most."""
ROWS_MAX = 2_000
"""Rows of tables in one generation, which are in that record too. If there would be more, only the leader gets the
table; if one table would have more, the names that were free for the longest time go from it."""


@lru_cache(16)  # the members of a group have few different pools
def names_of(pool: str) -> tuple[str, ...]:
    """The names of a pool: texts separated by commas, each with one range [FIRST..LAST] or none. Raises ValueError."""
    if len(pool) > POOL_MAX:
        raise ValueError(f"more than {POOL_MAX} characters; ranges like orders-[0..7] are shorter")
    names: list[str] = []
    for part in pool.split(","):
        found = re.fullmatch(r"([^\[\]]*)\[(\d{1,9})\.\.(\d{1,9})\]([^\[\]]*)", part.strip())
        if found is None and (not part.strip() or "[" in part or "]" in part):
            raise ValueError(f"{part!r} is neither a name nor like orders-[0..7]")
        if found is None:
            names.append(part.strip())
            continue
        before, first, last, behind = found.groups()
        if not 0 <= int(last) - int(first) < NAMES_MAX:
            raise ValueError(f"{part!r} has no names, or more than {NAMES_MAX}")
        names += [f"{before}{number:0{len(first)}}{behind}" for number in range(int(first), int(last) + 1)]
    if len(set(names)) != len(names) or len(names) > NAMES_MAX:
        raise ValueError(f"{pool!r} has a name twice, or more than {NAMES_MAX}")
    if max(map(len, names)) > NAME_MAX:
        raise ValueError(f"a name has more than {NAME_MAX} characters")
    return tuple(names)


def group_of(pool: str) -> str:
    """The group that leases a pool's names: without numbers, so that a pool can grow while its programs roll."""
    return "tenure-seats-" + re.sub(r"-?\[[^]]*\]", "", pool).replace(",", "-")


class Wish(NamedTuple):
    """A member's wish, which it sends with its JoinGroup.

    identity: the program, over its restarts. pool: its text. claim: the name that it holds, or ""; token: of the claim,
    else 0.
    waits: whether it waits for a name that another member with its identity still has.
    highest: the highest token that it knows.
    """

    identity: str
    pool: str
    claim: str
    token: int
    waits: bool
    highest: int

    def encode(self) -> bytes:
        """As bytes of JoinGroup."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Of bytes of JoinGroup. Raises ProtocolError: a member of another kind sent them."""
        wish = _decoded(data, cls)
        try:
            names_of(wish.pool)
        except ValueError as error:
            raise ProtocolError(f"a member of the group has a wrong pool: {error}") from error
        return wish


class Row(NamedTuple):
    """The last holder of a name."""

    token: int
    identity: str


class Given(NamedTuple):
    """The assignment of a member. name: "" for none. is_near: an earlier run of the same program still has its name."""

    name: str
    token: int
    is_near: bool
    highest: int
    table: dict[str, Row]

    def encode(self) -> bytes:
        """As bytes of SyncGroup."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Of bytes of SyncGroup; nothing of none. Raises ProtocolError, as a wish does."""
        return _decoded(data, cls) if data else cls("", 0, False, 0, {})


def _decoded(data: bytes, kind: type[Value]) -> Value:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a member of the group isn't of tenure seat run: {error}") from error


def assign(wishes: Mapping[str, Wish], table: Mapping[str, Row], leader: str, now_ms: int) -> dict[str, Given]:
    """Give names to members, by member id. table: of an earlier generation, as far as the leader knows it."""
    token = max(now_ms, 1 + max(wish.highest for wish in wishes.values()))
    held: dict[str, str] = {}
    for member_id, wish in sorted(wishes.items(), key=lambda each: -each[1].token):
        if wish.claim and wish.claim not in held:
            held[wish.claim] = member_id
    tokens = {held[name]: wishes[held[name]].token for name in held}
    near = _give_free(wishes, table, held)
    free = sorted(table.keys() - held.keys(), key=lambda name: table[name].token, reverse=True)
    rows = {name: table[name] for name in free[: max(ROWS_MAX - len(held), 0)]}
    for name, member_id in held.items():
        rows[name] = Row(tokens.get(member_id, token), wishes[member_id].identity)
    names = {member_id: name for name, member_id in held.items()}
    is_small = len(wishes) * len(rows) <= ROWS_MAX
    return {
        member_id: Given(
            names.get(member_id, ""),
            rows[names[member_id]].token if member_id in names else 0,
            member_id in near,
            token,
            rows if is_small or member_id == leader else {},
        )
        for member_id in wishes
    }


def _give_free(wishes: Mapping[str, Wish], table: Mapping[str, Row], held: dict[str, str]) -> set[str]:
    """Give names that nobody claims to members without one; returns the members that wait for their own."""
    near: set[str] = set()
    without = [member_id for member_id in wishes if member_id not in held.values()]
    for member_id in without.copy():
        wish = wishes[member_id]
        own = [name for name in names_of(wish.pool) if name in table and table[name].identity == wish.identity]
        free = [name for name in own if name not in held]
        if free:
            held[free[0]] = member_id
            without.remove(member_id)
        elif own and wish.waits:
            near.add(member_id)
            without.remove(member_id)
    for member_id in without:
        free = [name for name in names_of(wishes[member_id].pool) if name not in held]
        if free:
            held[min(free, key=lambda name: table[name].token if name in table else 0)] = member_id
    return near
