"""Settings that work, and that an operator may not have meant: a line at the start names each.

House rule: a risk is one sentence about a setting and its value, and one about what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator import pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.config import Config
    from coordinator.server.telemetry.lines import Lines

EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - nothing is bound here
"""The hosts that stand for every interface of the machine."""


def risks(config: Config) -> Iterator[str]:
    """Yield a text for each."""
    names = [listener.name for listener in config.listeners]
    if config.security.ssl_client_auth != "none" and not any(map(config.has_tls, names)):
        yield f"ssl.client.auth={config.security.ssl_client_auth} has no effect: no listener has TLS. Make one SSL"
    if not config.authorizer_class_name:
        for listener in config.listeners:
            if listener.host in EVERYWHERE and config.security_protocol(listener.name) == "PLAINTEXT":
                yield (
                    f"listeners: {listener} is open to every network of this machine, and without "
                    f"authorizer.class.name every client may do everything. Name one address, or see {pages.SECURED}"
                )
    elif not config.super_users and not config.allow_everyone_if_no_acl_found:
        yield (
            "super.users is empty: clients may do only what ACLs allow, and nobody can make the first ACL. Set "
            "super.users=User:NAME"
        )


def warn_of_risks(config: Config, lines: Lines) -> None:
    """Write a line for each."""
    for text in risks(config):
        lines.warn("setting_risky", text)
