"""Is the coordinator in this container well? Exit code 0 if it answers ApiVersions, else 1 and a line that says why.

The request goes the way of every other one, through the listener, a connection and the event loop, and asks for nothing
that a group could make slow. The address is that of the first listener that the environment names; what stands on the
command line or in a properties file isn't seen here.

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
