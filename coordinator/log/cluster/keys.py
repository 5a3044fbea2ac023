"""The names of all keys, what the keys of ownership contain, and which node should own a partition.

All keys of a cluster begin with /CLUSTER/. ppp is a partition's number, with three digits.

    meta            the format, the number of partitions of `__consumer_offsets`, and the cluster's id
    nodes/ID        a node that serves: how clients reach it                          with the node's lease
    own/ppp         the id of the node that owns the partition                        with the node's lease
    head/ppp        EPOCH:SEQUENCE:NODE/CLAIM, the end of the chain of appends        without a lease
    log/ppp/KEY     the newest value of a Kafka record key                            without a lease
    state/...       what the nodes share beside groups (shared.py)

**The head chain.** Each append of an owner moves the head from one sequence number to the next, and only if the head
was at the number before. A claim sets a higher epoch. So a transaction that comes late, or twice, fails, whatever its
sender's clock or lease says. CLAIM is the create revision of the claimer's own/ppp, so each claim differs from all
others.

House rule: pure; nothing here talks to the store.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import NamedTuple


class Head(NamedTuple):
    """The value of head/ppp. owner: NODE/CLAIM."""

    epoch: int
    sequence: int
    owner: str

    def text(self) -> bytes:
        """The value."""
        return f"{self.epoch}:{self.sequence}:{self.owner}".encode()

    def next(self) -> Head:
        """The head after one more append."""
        return Head(self.epoch, self.sequence + 1, self.owner)


NO_HEAD = Head(-1, 0, "")
"""Of a partition that nobody has ever claimed."""
UNREADABLE = -2
"""The epoch of a head that another version wrote, and that this one can't read. It equals no head of this version."""


def parse_head(value: bytes) -> Head:
    """Read a head. Raises ValueError."""
    epoch, sequence, owner = value.decode().split(":", 2)
    return Head(int(epoch), int(sequence), owner)


def any_head(value: bytes) -> Head:
    """Read a head that any version may have written: see UNREADABLE."""
    try:
        return parse_head(value)
    except ValueError:
        return Head(UNREADABLE, 0, value.decode(errors="replace"))


class Keys:
    """The keys of a cluster."""

    def __init__(self, cluster: str) -> None:
        self.prefix = f"/{cluster}/".encode()
        self.meta = self.prefix + b"meta"
        self.nodes = self.prefix + b"nodes/"
        self.owners = self.prefix + b"own/"
        self.heads = self.prefix + b"head/"
        self.state = self.prefix + b"state/"

    def node(self, node_id: int) -> bytes:
        """nodes/ID."""
        return self.nodes + str(node_id).encode()

    def own(self, partition: int) -> bytes:
        """own/ppp."""
        return self.owners + b"%03d" % partition

    def head(self, partition: int) -> bytes:
        """head/ppp."""
        return self.heads + b"%03d" % partition

    def log(self, partition: int) -> bytes:
        """log/ppp/: a Kafka record key follows."""
        return self.prefix + b"log/%03d/" % partition

    def number(self, key: bytes) -> int:
        """The number at the end of a key: a node's id, or a partition."""
        return int(key.rpartition(b"/")[2])


def prefix_end(prefix: bytes) -> bytes:
    """The first key behind all keys with a prefix that ends with a slash."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def best_node(partition: int, node_ids: Collection[int]) -> int | None:
    """The node that should own a partition: rendezvous hashing. A node that comes or goes moves only its own share."""
    return max(node_ids, key=lambda node_id: (_rank(partition, node_id), node_id), default=None)


def _rank(partition: int, node_id: int) -> bytes:
    return blake2b(b"%d/%d" % (node_id, partition), digest_size=8).digest()
