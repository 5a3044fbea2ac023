"""Is the coordinator in this container well? Exit code 0 if it answers ApiVersions, else 1 and a line with the reason.

A listener with SASL answers this request before a login. A listener with TLS may show any certificate here, because the
question is only whether it answers. One that asks for a certificate refuses this program, which is an answer too.

The request takes the same way as every other one: listener, connection, event loop. Slow groups don't slow it down. The
address is the first listener in the environment; this program doesn't see the command line or properties files.

House rule: it runs every few seconds, so it imports little.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from coordinator.client.connection import Address, Connection, Deadline
from coordinator.client.errors import Refused, Unauthenticated, Unreachable
from coordinator.config import EVERYWHERE, load, served_listeners
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from coordinator.client.security import Security

TIMEOUT_S = 4.0


def any_server() -> Security:
    """TLS without trust: only for a question whose answer may come from anybody."""
    import ssl  # noqa: PLC0415 - a server without TLS doesn't pay for these

    from coordinator.client.properties import Properties  # noqa: PLC0415
    from coordinator.client.security import Security  # noqa: PLC0415

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return Security(Properties(), context)


def main() -> None:
    """Ask once."""
    config, _ = load(environment=os.environ)
    listener = served_listeners(config)[0]
    security = any_server() if config.has_tls(listener.name) else None
    address = Address("127.0.0.1" if listener.host in EVERYWHERE else listener.host, listener.port)
    try:
        Connection(address, "health", Deadline(TIMEOUT_S, time.monotonic), security).close()
    except Unauthenticated:
        return
    except (Refused, Unreachable, ProtocolError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
