"""The nodes of a cluster and the owners of its partitions, as this node has last seen them; for any thread.

The engine's thread replaces a whole picture with a newer one. Readers take one picture and read in it. A picture that
is a little old does no harm: the node that a client is sent to says NOT_COORDINATOR, and the client asks again.

House rule: nobody changes a picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Picture(NamedTuple):
    """nodes: what each node registered, by its id. owners: the owner of each partition, None for nobody."""

    nodes: Mapping[int, bytes]
    owners: Sequence[int | None]


class Members:
    """See the module. now: the newest picture."""

    def __init__(self, partition_count: int) -> None:
        self.now = Picture({}, [None] * partition_count)
