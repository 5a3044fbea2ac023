"""The offer of a listener: its SASL mechanisms, with the users of each and the longest time of a session.

`sasl.enabled.mechanisms` names them. The users of PLAIN are in `sasl.jaas.config`, those of SCRAM in `Users`, those of
OAUTHBEARER have tokens that an identity provider has signed. GSSAPI, which isn't served, is passed over as long as
another one is left; the log warns of it.

House rule: a fault in the settings is a ConfigError that names the setting and no value: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from coordinator.config import LISTENER_NAME, Config, ConfigError, ListenerConfig
from coordinator.config import settings as all_settings
from coordinator.security import jaas
from coordinator.security.sasl import Mechanism
from coordinator.security.sasl.plain import NAME as PLAIN
from coordinator.security.sasl.plain import plain_mechanism
from coordinator.security.sasl.scram import DIGESTS, Credential, scram_mechanism

if TYPE_CHECKING:
    from ssl import SSLContext

    from coordinator.security.sasl.oauthbearer import Keys

OAUTHBEARER = "OAUTHBEARER"

IDENTIFICATION = "ssl.endpoint.identification.algorithm"
"""Of no effect in a login module, as in Kafka: the certificate of a provider has to name its host."""

OF_SERVERS = frozenset({"ssl.client.auth", "ssl.principal.mapping.rules"})
"""Settings of TLS that a client doesn't have."""

ORDER = {PLAIN: 0, "SCRAM-SHA-512": 0, "GSSAPI": 3, "SCRAM-SHA-256": 6, OAUTHBEARER: 8}
"""Kafka's mechanisms, each with its place in a handshake's list: there they have the order of a HashSet of Java. Two of
one place keep the order of the setting.
"""


class Offer(NamedTuple):
    """The mechanisms of a listener.

    mechanisms: by name, as a handshake lists them. session_max_ms: how long a session lasts at most, by the
    mechanism's name; 0 if it doesn't end. frame_max_bytes: the largest frame of a client that hasn't authenticated, by
    the mechanism that it has named, "" before it has named one. passed_over: mechanisms of Kafka that the setting names
    and that aren't served.
    """

    mechanisms: Mapping[str, Mechanism]
    session_max_ms: Mapping[str, int]
    frame_max_bytes: Mapping[str, int]
    passed_over: tuple[str, ...]


class Parts(NamedTuple):
    """The things that a server adds to its settings.

    find: the credential of a SCRAM user by mechanism and name, and whether there is such a user; else a decoy. nonce:
    makes a nonce of SCRAM. keys: those of a provider, by the URL of its JWKS, how often to read it (ms), and its TLS;
    None for the CAs of this machine. wall_ms: Unix time.
    """

    find: Callable[[str, str], tuple[Credential, bool]]
    nonce: Callable[[], str]
    keys: Callable[[str, int, SSLContext | None], Keys]
    wall_ms: Callable[[], int]


FRAME_MAX_BYTES = 8 * 1024
"""The largest frame of a client that hasn't authenticated, even if sasl.server.max.receive.size allows more: any
stranger can have the server hold so much for each connection. Names and passwords have some hundred bytes.
"""

FRAMES_MAX_BYTES = {OAUTHBEARER: 64 * 1024}
"""The largest frame for a mechanism that needs more: a token with a long list of roles has some ten kilobytes."""


def offer(config: Config, listener: str, parts: Parts) -> Offer:
    """The offer of a listener with SASL. Raises ConfigError."""
    settings = config.of_listener(listener)
    where = f"{LISTENER_NAME}{listener.lower()}."
    enabled = tuple(dict.fromkeys(settings.sasl_enabled_mechanisms))
    for name in enabled:
        if name not in ORDER:
            raise ConfigError(f"{where}sasl.enabled.mechanisms: there is no mechanism {name}")
    names = sorted((name for name in enabled if name in MAKERS), key=ORDER.__getitem__)
    if not names:
        served = ", ".join(MAKERS)
        raise ConfigError(
            f"{where}sasl.enabled.mechanisms: none of {', '.join(enabled) or 'an empty list'} is served; {served} are"
        )
    return Offer(
        {name: MAKERS[name](name, config.of_listener(listener, name), where, parts) for name in names},
        {name: config.of_listener(listener, name).connections_max_reauth_ms for name in names},
        {
            name: min(settings.sasl_server_max_receive_size, FRAMES_MAX_BYTES.get(name, FRAME_MAX_BYTES))
            for name in ("", *names)
        },
        tuple(name for name in enabled if name not in MAKERS),
    )


def _plain(name: str, settings: ListenerConfig, where: str, _: Parts) -> Mechanism:
    setting = f"{where}{name.lower()}.sasl.jaas.config"
    if not settings.sasl_jaas_config:
        raise ConfigError(f"{setting}: the users of {name} are missing")
    return plain_mechanism(_users(name, settings.sasl_jaas_config, setting))


def _scram(name: str, settings: ListenerConfig, where: str, parts: Parts) -> Mechanism:
    if settings.sasl_jaas_config:  # Kafka needs it, although it has no users
        _users(name, settings.sasl_jaas_config, f"{where}{name.lower()}.sasl.jaas.config")
    return scram_mechanism(name, partial(parts.find, name), parts.nonce)


def _bearer(name: str, settings: ListenerConfig, where: str, parts: Parts) -> Mechanism:
    module_setting = f"{where}{name.lower()}.sasl.jaas.config"
    if settings.sasl_jaas_config:  # Kafka needs it
        _users(name, settings.sasl_jaas_config, module_setting)
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    setting = f"{where}sasl.oauthbearer.jwks.endpoint.url"
    if not url:
        raise ConfigError(f"{setting}: {name} takes signed tokens only, and this says where the keys are")
    if not url.lower().startswith(("file:", "http://", "https://")):
        raise ConfigError(f"{setting}: {url!r} is no URL of file, http or https")
    # A server without it doesn't import what checks signatures.
    from coordinator.security.sasl.oauthbearer import Rules, bearer_mechanism  # noqa: PLC0415

    rules = Rules(
        frozenset(settings.sasl_oauthbearer_expected_audience),
        settings.sasl_oauthbearer_expected_issuer,
        settings.sasl_oauthbearer_clock_skew_seconds * 1_000,
        settings.sasl_oauthbearer_sub_claim_name,
    )
    context = None
    if settings.sasl_jaas_config and url.lower().startswith("https:"):
        context = _context_for_provider(settings.sasl_jaas_config, module_setting)
    keys = parts.keys(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms, context)
    return bearer_mechanism(rules, keys, parts.wall_ms)


def _context_for_provider(text: str, setting: str) -> SSLContext | None:
    """The TLS for a provider, from the options ssl.* of a login module as in Kafka; None if there are none."""
    options = {name: value for name, value in jaas.read(text).options.items() if name.startswith("ssl.")}
    if not options:
        return None
    from coordinator.security.tls import client_context  # noqa: PLC0415 - as above

    known, values = all_settings(), {}
    try:
        for name in options.keys() - {IDENTIFICATION}:
            if name not in known or name in OF_SERVERS:
                raise ConfigError(f"{name}: no such option of {jaas.BEARER_MODULE}")
            values[known[name].attribute] = known[name].read(options[name])
        return client_context(ListenerConfig(**values), checks_host=True)
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{setting}: {error}") from None


def _users(name: str, text: str, setting: str) -> Mapping[str, str]:
    try:
        return jaas.users(text, name)
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from None


MAKERS: Mapping[str, Callable[[str, ListenerConfig, str, Parts], Mechanism]] = {
    PLAIN: _plain,
    **dict.fromkeys(DIGESTS, _scram),
    OAUTHBEARER: _bearer,
}
"""The function that makes each mechanism that is served."""
