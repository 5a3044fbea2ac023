"""SASL of a server, put together: what its listeners offer, the users of SCRAM, the keys of tokens, and the door.

Only a server with a listener of SASL imports this.

House rule: chance enters here. A mistake in the settings is found before anything listens.
"""

from __future__ import annotations

from base64 import b64encode
from os import urandom
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from coordinator.config import LISTENER_NAME, SASL_PROTOCOLS, Config, ConfigError, served_listeners
from coordinator.log.topics.list import CREDENTIALS
from coordinator.loop.clock import Clock, Hop
from coordinator.loop.lines import Lines, Sparing
from coordinator.security.credentials import DECOY_KEY, DECOY_KEY_BYTES, Users
from coordinator.security.sasl.offer import Offer, Parts, offer
from coordinator.server.nodes.topics import Altered, Change, Topics
from coordinator.server.telemetry.measures import Measures
from coordinator.server.wire.api import Api
from coordinator.server.wire.authentication import Door

if TYPE_CHECKING:
    from coordinator.security.sasl.oauthbearer import Keys
    from coordinator.server.key_source import KeySource

NONCE_BYTES = 18
"""Chance in a nonce of SCRAM, so that no client has seen the same one before."""


def nonce() -> str:
    """A nonce of SCRAM."""
    return urandom(NONCE_BYTES).hex()


def offers(config: Config, parts: Parts) -> dict[str, Offer]:
    """The offer of each listener with SASL, by its name. Raises ConfigError."""
    names = [each.name for each in served_listeners(config) if config.security_protocol(each.name) in SASL_PROTOCOLS]
    return {name: offer(config, name, parts) for name in names}


def check(config: Config) -> None:
    """Raise ConfigError if a setting is wrong. Nothing is read yet, and nobody can log in."""
    nothing: Any = lambda *_: None  # noqa: E731 - in place of what a server adds
    offers(config, Parts(nothing, nothing, nothing, nothing))


class Sasl:
    """See the module. hop: calls back on the loop's thread."""

    def __init__(
        self,
        config: Config,
        topics: Topics,
        api: Api,
        clock: Clock,
        lines: Lines,
        measures: Measures,
        hop: Hop,
    ) -> None:
        self._clock = clock
        self._lines = Sparing(lines, clock)
        self._hop = hop
        self._sources: dict[tuple[str, SSLContext | None], KeySource] = {}
        secret = urandom(DECOY_KEY_BYTES)
        if DECOY_KEY not in topics.entry(CREDENTIALS).configs:
            kept = Altered(CREDENTIALS.topic_id, configs={DECOY_KEY: b64encode(secret).decode()})
            topics.change(Change(altered=[kept]), lambda _: None)
        users = Users(lambda: topics.entry(CREDENTIALS).configs, secret)
        found = offers(config, Parts(users.find, nonce, self._keys, clock.wall_ms))
        for listener, each in found.items():
            if each.passed_over:
                setting, missing = f"{LISTENER_NAME}{listener.lower()}.sasl.enabled.mechanisms", each.passed_over
                text = f"{setting}: {', '.join(missing)} is not served; clients log in by {', '.join(each.mechanisms)}"
                lines.warn("setting_ignored", text)
        delay_ms = config.connection_failed_authentication_delay_ms
        self.door = Door(found, api, clock, Sparing(lines, clock), measures, delay_ms)

    def _keys(self, url: str, refresh_ms: int, context: SSLContext | None) -> Keys:
        """The keys of a provider."""
        from coordinator.server.key_source import KeySource  # noqa: PLC0415 - only OAUTHBEARER needs it

        place = url, context
        if place not in self._sources:
            self._sources[place] = KeySource(url, context, refresh_ms, self._clock, self._lines, self._hop)
        return self._sources[place]

    async def start(self) -> None:
        """Read the keys of tokens. Raises ConfigError if a file has none; a provider may be away for a while."""
        for (url, _), source in self._sources.items():
            await source.start()
            if not source.keys and url.startswith("file:"):
                raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {url}: {source.problem}")

    async def stop(self) -> None:
        """Read no more keys."""
        for source in self._sources.values():
            await source.stop()
