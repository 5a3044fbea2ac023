"""Settings that work, and that an operator may not have meant: a line at the start names each.

A setting without effect is one of them: it is about TLS, say, and no listener has TLS. `NEEDS` has all of these.

House rule: a text is one sentence about a setting, and one about what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from coordinator import pages
from coordinator.config import DOORS, EVERYWHERE, Config, override_of, served_listeners, settings
from coordinator.loop.lines import Lines


class Need(NamedTuple):
    """A condition under which settings have an effect.

    names: theirs; one that ends in a dot stands for all that begin with it. is_met: whether they have an effect, at
    these listeners. words: why they have none, and what to do.
    """

    names: tuple[str, ...]
    is_met: Callable[[Config, list[str]], bool]
    words: str


def _has_sasl(config: Config, listeners: list[str]) -> bool:
    return any(config.security_protocol(name).startswith("SASL_") for name in listeners)


def _takes_tokens(config: Config, listeners: list[str]) -> bool:
    return any(
        "OAUTHBEARER" in config.of_listener(name).sasl_enabled_mechanisms and _has_sasl(config, [name])
        for name in listeners
    )


def _has_tls(config: Config, listeners: list[str]) -> bool:
    return any(config.has_tls(name) for name in listeners)


def _asks_for_certificates(config: Config, listeners: list[str]) -> bool:
    return any(config.has_tls(name) and config.of_listener(name).ssl_client_auth != "none" for name in listeners)


def _never(_config: Config, _listeners: list[str]) -> bool:
    return False


NEEDS = (
    Need(
        ("group.consumer.assignor.offload.enable", "group.coordinator.append.linger.ms", "ssl.protocol"),
        _never,
        "Tenure takes it for Kafka's sake only. Leave it out",
    ),
    Need(("ssl.",), _has_tls, "no listener has TLS. Make one SSL or SASL_SSL"),
    Need(
        ("ssl.principal.mapping.rules", "ssl.truststore."),
        _asks_for_certificates,
        "no listener asks for certificates. Set ssl.client.auth=required",
    ),
    Need(
        ("connection.failed.authentication.delay.ms", "connections.max.reauth.ms", "sasl."),
        _has_sasl,
        "no listener has SASL. Make one SASL_SSL or SASL_PLAINTEXT",
    ),
    Need(("sasl.oauthbearer.",), _takes_tokens, "no listener takes tokens. Add OAUTHBEARER to sasl.enabled.mechanisms"),
    Need(
        ("inter.broker.listener.name", "security.inter.broker.protocol"),
        lambda config, _: any(config.is_of_brokers(each.name) for each in served_listeners(config)),
        "the server has no second listener, or none of that name. Leave it out",
    ),
    Need(
        ("super.users", "allow.everyone.if.no.acl.found", "tenure.authorizer."),
        lambda config, _: bool(config.authorizer_class_name),
        "there are no ACLs. Set authorizer.class.name",
    ),
    Need(("tenure.http.",), lambda config, _: bool(config.http), "there is no HTTP. Set tenure.http"),
    Need(
        ("tenure.http.client.config",),
        lambda config, _: config.workers > 1,
        "there is one process, which asks no other. Leave it out, or set tenure.workers",
    ),
    Need(("tenure.control.",), lambda config, _: bool(config.control), "there is no control. Set tenure.control"),
    Need(
        ("tenure.metrics.groups.max",),
        lambda config, _: bool(config.http or config.statsd),
        "nothing reads metrics. Set tenure.http or tenure.statsd",
    ),
    Need(("tenure.statsd.",), lambda config, _: config.statsd is not None, "there is no StatsD. Set tenure.statsd"),
    Need(
        ("tenure.events.retention.",),
        lambda config, _: config.events_enable,
        "the server keeps no events. Set tenure.events.enable=true",
    ),
    Need(
        ("tenure.journal.", "offsets.topic.segment.bytes"),
        lambda config, _: not config.store,
        "tenure.store keeps the groups. Leave it out",
    ),
    Need(
        ("tenure.journal.bytes",),
        lambda config, _: config.journal_enable,
        "there is no journal. Set tenure.journal.enable=true",
    ),
    Need(
        ("tenure.store.", "tenure.offset.fetch.verify"),
        lambda config, _: bool(config.store),
        "the groups are in log.dirs. Set tenure.store",
    ),
    Need(
        ("transaction.", "transactional.", "tenure.transaction.", "tenure.transactional."),
        lambda config, _: not config.store,
        "a cluster has no transactions. Leave it out",
    ),
    Need(
        ("tenure.worker.timeout.ms",),
        lambda config, _: config.workers > 1,
        "there is one process, which nothing watches. Set tenure.workers",
    ),
    Need(
        ("group.consumer.",),
        lambda config, _: "consumer" in config.group.group_coordinator_rebalance_protocols,
        "the server doesn't serve the consumer protocol. Add consumer to group.coordinator.rebalance.protocols",
    ),
)
"""A setting that several name has an effect only if all of them are met."""


def risks(config: Config) -> Iterator[str]:
    """Yield a text for each."""
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


def idle(config: Config) -> Iterator[str]:
    """Yield a text for the settings that some source gave, which are not the default, and which have no effect."""
    found: dict[str, list[str]] = {}
    for name in sorted(config.stated):
        words = _why_idle(config, name)
        if words is not None:
            found.setdefault(words, []).append(name)
    for words, names in found.items():
        yield f"{', '.join(names)}: no effect, because {words}"


def _why_idle(config: Config, name: str) -> str | None:
    override = override_of(name)
    listeners = [*(each.name for each in served_listeners(config)), *DOORS]
    plain = name
    if override is not None:
        setting = override.setting
        owner, _, mechanism = override.owner.partition(".")
        value = config.overrides[override.owner][setting.attribute]
        if owner not in DOORS:
            plain = setting.name
            listeners = [each for each in listeners if each.lower() == owner]
            if not listeners:
                return None  # it is of a listener of Kafka's controller
            enabled = config.of_listener(listeners[0]).sasl_enabled_mechanisms
            if mechanism and _has_sasl(config, listeners) and mechanism.upper() not in enabled:
                return f"sasl.enabled.mechanisms of that listener lacks {mechanism.upper()}"
    else:
        setting = settings()[name]
        value = setting.value_of(config)
    if value == setting.default:
        return None
    for need in NEEDS:
        is_about = any(plain.startswith(each) if each.endswith(".") else plain == each for each in need.names)
        if is_about and not need.is_met(config, listeners):
            return need.words
    return None


def warn_of_risks(config: Config, lines: Lines) -> None:
    """Write a line for each."""
    for text in idle(config):
        lines.warn("setting_ignored", text)
    for text in risks(config):
        lines.warn("setting_risky", text)
