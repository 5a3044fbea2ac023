"""Which protocol name a group uses: the members vote.

Each votes for the first name in its list that all of them list; the name with most votes wins. Kafka leaves ties to the
order in which a hash map happens to hold the names, and different releases hold them differently. Which of two equally
good assignors a group gets should not depend on the coordinator it meets, so this follows Kafka 3.9: the order of a
Scala hash map, a trie over the scrambled hashes, five bits a level, where the names that are alone on their branch come
before those that share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coordinator.group.partition import java_hash

BITS = 5
"""Of the hash that choose a branch at each level of the trie."""
HASH_BITS = 32
MASK = 0xFFFFFFFF


def winner(votes: dict[str, int]) -> str:
    """The name with most votes (name -> votes, at least one name)."""
    most = max(votes.values())
    return next(name for name in trie_order(votes) if votes[name] == most)


def trie_order(names: Iterable[str], shift: int = 0) -> Iterator[str]:
    """`names` as a Scala hash map yields them."""
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
    """Java's hash of a string, its bits mixed as that hash map mixes them."""
    mixed = java_hash(name) & MASK
    mixed = (mixed + ~(mixed << 9)) & MASK
    mixed ^= mixed >> 14
    mixed = (mixed + (mixed << 4)) & MASK
    return mixed ^ mixed >> 10
