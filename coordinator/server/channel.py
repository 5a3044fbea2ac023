"""The messages between a supervisor and its workers, over a pair of sockets: one JSON object a line.

    worker to supervisor    ready                                    the worker accepts requests
                            start_failed      reason                 the worker can't start, and ends
                            change_request    number, change         asks for a change of the list of topics
                            applied           number                 the worker has made the change of this `apply`
                            certificates_read                        the worker has read new, right certificates
                            pong                                     answers `ping`: the worker's event loop turns
                            ask               number, node, question asks the worker of that node
                            answer            number, answer         ends the `asked` of this number
    supervisor to worker    apply             number, change         this change is durable; make it too
                            change_result     number, taken, error   ends the worker's `change_request` of this number
                            ping                                     asks for `pong`
                            silent_nodes      nodes                  the nodes whose workers don't answer now, by id
                            asked             number, question       another worker asks (relay.py)
                            answered          number, answer         ends the worker's `ask` of this number

A change is the three lists of a `Change`. In a `change_result`, `taken` names the topics that were not created and the
topics that have their names; `error` says why the whole change failed.

Each side numbers its own messages. Lines arrive in order, so a worker gets `apply` before the `change_result`. After a
deletion, a worker sends `applied` when it uses neither records nor folders of the topic.

House rule: both ends come from one start of one program. There are no versions, and a line that can't be read is a bug.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Any


class Kind(StrEnum):
    """The kind of a message: see the module."""

    READY = auto()
    START_FAILED = auto()
    CHANGE_REQUEST = auto()
    APPLIED = auto()
    PONG = auto()
    CERTIFICATES_READ = auto()
    ASK = auto()
    ANSWER = auto()
    APPLY = auto()
    CHANGE_RESULT = auto()
    PING = auto()
    SILENT_NODES = auto()
    ASKED = auto()
    ANSWERED = auto()


def line(kind: str, **fields: Any) -> bytes:
    """The line of a message. Its reasons and errors may name a path, and so are made `sendable`."""
    from msgspec.json import encode  # noqa: PLC0415 - each server imports this module, and workers alone need these

    from coordinator.text import sendable  # noqa: PLC0415 - as above

    said = {name: sendable(field) if isinstance(field, str) else field for name, field in fields.items()}
    return encode({"kind": kind, **said}) + b"\n"


class LineReader:
    """Reads messages from bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take more bytes; returns the messages that they complete."""
        from msgspec.json import decode  # noqa: PLC0415 - as above

        begun, end, rest = data.rpartition(b"\n")
        if not end:
            self._rest += data
            return []
        lines = bytes(self._rest + begun)
        self._rest = bytearray(rest)
        return [decode(each) for each in lines.split(b"\n")]
