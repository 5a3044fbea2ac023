"""Keys and certificates of all listeners with TLS, and their change while the server runs.

Every CHECK_EVERY_MS a thread looks at the files of keystores and truststores, since an administrator, or a program that
renews certificates, replaces them. SIGHUP has all files read at once. New connections get what was read; those that are
open keep what they have. If something is wrong with a new file, an ERROR line says so and the old one stays in use. The
same failure is said once.

A supervisor keeps what its workers have read (`keep_up`). So a worker that starts while a file is wrong serves with the
last good one.

House rule: no file is read on the loop's thread, except at start. A supervisor has no loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import NamedTuple

from coordinator.config import DOORS, Config, ConfigError, ListenerConfig, tls_listeners
from coordinator.loop.clock import Alarm, Clock, Hop
from coordinator.loop.lines import Lines
from coordinator.security.tls import Terms, terms_of
from coordinator.security.tls_stores import files_of
from coordinator.server.wire.handshakes import Handshakes
from coordinator.server.wire.tls import Plain, TlsTransport

CHECK_EVERY_MS = 5_000
"""How soon a changed file is noticed. A look costs a stat per file."""

END_WITHIN_S = 3.0
"""How long the end of a server waits for a look: a process that ends while a thread of it is in OpenSSL may crash."""

Signature = tuple[tuple[int, ...] | None, ...]
"""Facts that tell whether files have changed; None for a file that isn't there."""

OnLoaded = Callable[[], object]


class Read(NamedTuple):
    """The present content of a listener's files. found: a ConfigError if something is wrong with them."""

    listener: str
    signature: Signature
    found: Terms | ConfigError


class Certificates:
    """The terms of all listeners with TLS. Raises ConfigError, which names the listener too.

    last: what counts for a listener whose files are wrong. on_loaded: called when new files have been read.
    """

    def __init__(self, config: Config, last: Certificates | None = None, on_loaded: OnLoaded = lambda: None) -> None:
        names = tls_listeners(config)
        self._settings = {name: settings_of(config, name) for name in names}
        # With SASL it is the mechanism that says who a client is.
        self._name_users = {name: config.security_protocol(name) == "SSL" for name in names}
        self._terms: dict[str, Terms] = {}
        self._seen: dict[str, Signature] = {}
        self._alarm: Alarm[str]
        self._clock: Clock
        self._lines: Lines
        self._thread: Thread | None = None
        """Of the look under way."""
        self._looks_again = False
        self._has_stopped = False
        self._on_loaded = on_loaded
        self._wrong: dict[str, ConfigError] = {}
        for read in self._look(all_of_them=True):
            self._seen[read.listener] = read.signature
            if not isinstance(read.found, ConfigError):
                self._terms[read.listener] = read.found
            elif last is not None:
                self._terms[read.listener] = last.of(read.listener)
                self._wrong[read.listener] = read.found
            else:
                where = DOORS.get(read.listener, f"listener {read.listener}").rstrip(".")
                raise ConfigError(f"{read.found} ({where})")

    def of(self, listener: str) -> Terms:
        """The terms for a connection that comes now."""
        return self._terms[listener]

    def securing(self, listener: str, handshakes: Handshakes) -> Callable[[Plain], TlsTransport]:
        """Makes the protocol of a socket of that listener from what is above TLS."""
        return lambda plain: TlsTransport(plain, self.of(listener), handshakes)

    def start(self, clock: Clock, lines: Lines) -> None:
        """Look at the files from now on, and warn of certificates that have ended."""
        self._clock, self._lines = clock, lines
        self._alarm = Alarm(clock, lambda _: self.check())
        self._alarm.arm("check", clock.ms() + CHECK_EVERY_MS)
        for listener, terms in self._terms.items():
            if listener in self._wrong:
                self._take(listener, self._wrong[listener])
            self._warn(listener, terms)

    def keep_up(self) -> None:
        """Read the files that have changed, at once; wrong ones change nothing. In place of `start`."""
        for read in self._look(all_of_them=False):
            self._seen[read.listener] = read.signature
            if not isinstance(read.found, ConfigError):
                self._terms[read.listener] = read.found

    async def stop(self) -> None:
        """Look no more."""
        self._alarm.stop()
        self._has_stopped = True
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, END_WITHIN_S)

    def check(self, *, all_of_them: bool = False) -> None:
        """Have a thread look at the files. all_of_them: read also those that haven't changed."""
        self._alarm.arm("check", self._clock.ms() + CHECK_EVERY_MS)
        if self._thread is not None:
            self._looks_again = self._looks_again or all_of_them
            return
        hop = asyncio.get_running_loop().call_soon_threadsafe
        # A daemon: a file system that hangs must not keep the process from ending.
        self._thread = Thread(target=self._look_aside, args=(hop, all_of_them), name="certificates", daemon=True)
        self._thread.start()

    def _look_aside(self, hop: Hop, all_of_them: bool) -> None:  # noqa: FBT001 - a thread's argument
        reads = self._look(all_of_them=all_of_them)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            hop(self._looked, reads)

    def _look(self, *, all_of_them: bool) -> list[Read]:
        """Read the files that have changed. Runs on a thread, except at start."""
        reads: list[Read] = []
        for listener, settings in self._settings.items():
            signature = tuple(map(signature_of, files_of(settings)))
            if all_of_them or signature != self._seen[listener]:
                try:
                    terms = terms_of(settings)
                    if not self._name_users[listener]:
                        terms = terms._replace(names=None)
                    reads.append(Read(listener, signature, terms))
                except ConfigError as error:
                    reads.append(Read(listener, signature, error))
        return reads

    def _looked(self, reads: list[Read]) -> None:
        self._thread = None
        if self._has_stopped:
            return
        for read in reads:
            self._seen[read.listener] = read.signature
            self._take(read.listener, read.found)
        if self._looks_again:
            self._looks_again = False
            self.check(all_of_them=True)

    def _take(self, listener: str, found: Terms | ConfigError) -> None:
        if isinstance(found, ConfigError):
            text = f"The certificates of listener {listener} stay as they are, the new ones are wrong: {found}"
            self._lines.error("certificates_not_loaded", text, listener=listener, reason=str(found))
            return
        self._terms[listener] = found
        ends = found.ends.isoformat()
        text = f"Listener {listener} has read its certificates again, its own ends at {ends}"
        self._lines.info("certificates_loaded", text, listener=listener, ends=ends)
        self._warn(listener, found)
        self._on_loaded()

    def _warn(self, listener: str, terms: Terms) -> None:
        if terms.has_ended:
            ends = terms.ends.isoformat()
            text = f"The certificate of listener {listener} ended at {ends}: clients will refuse it"
            self._lines.warn("certificate_ended", text, listener=listener, ends=ends)


def settings_of(config: Config, listener: str) -> ListenerConfig:
    """The settings of a listener with TLS.

    A listener with SASL asks for certificates only if a setting of its own says so, as in Kafka (KIP-684), and so does
    HTTP: the default of all listeners is meant for those where a certificate says who a client is.
    """
    settings = config.of_listener(listener)
    if config.security_protocol(listener) == "SASL_SSL" or listener in DOORS:
        own = config.overrides.get(listener.lower(), {})
        settings = replace(settings, ssl_client_auth=own.get("ssl_client_auth", "none"))
    return settings


def signature_of(path: str) -> tuple[int, ...] | None:
    """Facts that change when a file is written or replaced, also behind a symbolic link; None if it isn't there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - the path is a text
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
