"""The vote of the members: it decides a group's protocol name, or its server-side assignor.

A member of the classic protocol votes for the first name in its list that all members list. The name with most votes
wins. On a tie Kafka takes the first name in the order of a hash map, and its releases have different hash maps. Which
of two assignors a group gets should not depend on its coordinator, so this module follows Kafka 3.9: a Scala hash map.
That is a trie over the scrambled hashes, with five bits a level; a name alone on its branch comes before names that
share a branch. Only Kafka 4 has server-side assignors (KIP-848), so ties among them fall as in a Java hash map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from coordinator.group.partition import java_hash

BUCKETS = 16
"""Buckets of a Java hash map with up to 12 names."""
BITS = 5
"""Bits of the hash that choose a branch at each level of the trie."""
HASH_BITS = 32
MASK = 0xFFFFFFFF


def winner(votes: dict[str, int]) -> str:
    """The name with most votes. votes: by name, at least one."""
    most = max(votes.values())
    return next(name for name in trie_order(votes) if votes[name] == most)


def best_assignor(votes: Mapping[str, int]) -> str | None:
    """The server-side assignor with most votes; None without votes. votes: by name."""
    most = max(votes.values(), default=0)
    return min((name for name, count in votes.items() if count == most), key=bucket) if most else None


def bucket(name: str) -> int:
    """The bucket of a Java hash map that has a name."""
    hashed = java_hash(name) & MASK
    return (hashed ^ hashed >> 16) % BUCKETS


def trie_order(names: Iterable[str], shift: int = 0) -> Iterator[str]:
    """`names` in the order of a Scala hash map."""
    if shift >= HASH_BITS:
        yield from names
        return
    digits: dict[int, list[str]] = {}
    for name in names:
        digits.setdefault(scrambled_hash(name) >> shift & (1 << BITS) - 1, []).append(name)
    for digit in sorted(digits):
        if len(digits[digit]) == 1:
            yield digits[digit][0]
    for digit in sorted(digits):
        if len(digits[digit]) > 1:
            yield from trie_order(digits[digit], shift + BITS)


def scrambled_hash(name: str) -> int:
    """Java's hash of a string, with its bits mixed as a Scala hash map mixes them."""
    mixed = java_hash(name) & MASK
    mixed = (mixed + ~(mixed << 9)) & MASK
    mixed ^= mixed >> 14
    mixed = (mixed + (mixed << 4)) & MASK
    return mixed ^ mixed >> 10
