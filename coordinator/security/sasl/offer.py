"""What a listener offers: its SASL mechanisms, with the users of each and the longest time of a session.

`sasl.enabled.mechanisms` names them. Tenure serves PLAIN, whose users are in `sasl.jaas.config`. Other names of Kafka's
are passed over as long as one is left that is served.

House rule: a fault in the settings is a ConfigError that names the setting and no value: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from coordinator.config import LISTENER_NAME, ConfigError
from coordinator.security import jaas
from coordinator.security.sasl import plain

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.security.sasl import Mechanism

ORDER = {plain.NAME: 0, "GSSAPI": 3}
"""Kafka's mechanisms, each with its place in a handshake's list: there they have the order of a HashSet of Java. Two of
one place keep the order of the setting.
"""


class Offer(NamedTuple):
    """The mechanisms of a listener.

    names: as a handshake lists them. mechanisms: by name. session_max_ms: how long a session lasts at most, by the
    mechanism's name; 0 if it doesn't end. frame_max_bytes: the largest frame of a client that hasn't authenticated, by
    the mechanism that it has named, "" before it has named one.
    """

    names: tuple[str, ...]
    mechanisms: Mapping[str, Mechanism]
    session_max_ms: Mapping[str, int]
    frame_max_bytes: Mapping[str, int]


def offer(config: Config, listener: str) -> Offer:
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
        tuple(names),
        {name: MAKERS[name](config, listener, where) for name in names},
        {name: config.of_listener(listener, name).connections_max_reauth_ms for name in names},
        {name: min(settings.sasl_server_max_receive_size, FRAME_MAX_BYTES) for name in ("", *names)},
    )


FRAME_MAX_BYTES = 8 * 1024
"""The largest frame of a client that hasn't authenticated, even if sasl.server.max.receive.size allows more: any
stranger can have the server hold so much for each connection. Names and passwords have some hundred bytes.
"""


def _plain(config: Config, listener: str, where: str) -> Mechanism:
    name = f"{where}{plain.NAME.lower()}.sasl.jaas.config"
    text = config.of_listener(listener, plain.NAME).sasl_jaas_config
    if not text:
        raise ConfigError(f"{name}: the users of {plain.NAME} are missing")
    try:
        return plain.Plain(jaas.users(text, plain.NAME))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


MAKERS: dict[str, Callable[[Config, str, str], Mechanism]] = {plain.NAME: _plain}
"""What makes each mechanism that is served."""
