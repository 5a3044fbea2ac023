"""Is the coordinator in this container well? Exit code 0 if it answers ApiVersions, else 1 and a line with the reason.

The request takes the same way as every other one: listener, connection, event loop. Slow groups don't slow it down. The
address is the first listener in the environment; this program doesn't see the command line or properties files.

House rule: it runs every few seconds, so it imports little.
"""

from __future__ import annotations

import os
import sys
import time

from coordinator.client.connection import Address, Connection, Deadline
from coordinator.client.errors import Refused, Unreachable
from coordinator.config import EVERYWHERE, load, served_listeners
from protocol.errors import ProtocolError

TIMEOUT_S = 4.0


def main() -> None:
    """Ask once."""
    config, _ = load(environment=os.environ)
    listener = served_listeners(config)[0]
    address = Address("127.0.0.1" if listener.host in EVERYWHERE else listener.host, listener.port)
    try:
        Connection(address, "health", Deadline(TIMEOUT_S, time.monotonic)).close()
    except (Refused, Unreachable, ProtocolError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
