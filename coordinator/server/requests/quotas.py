"""DescribeClientQuotas and AlterClientQuotas: tools read and set quotas (KIP-546).

The list of topics keeps them (`nodes.topics.QUOTAS`); `security.quotas` says what an entity and a value can be.

House rule: no state. Source: Kafka's ClientQuotaControlManager and ClientQuotasImage, release 3.9.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from coordinator.log.topics.list import QUOTAS
from coordinator.security.acls import Kind, Operation
from coordinator.security.quotas import (
    CLIENT_ID,
    DEFAULT,
    IP,
    KEPT_BYTES_MAX,
    USER,
    Entity,
    Wrong,
    check_value,
    entity_of,
    name_of,
    quotas_of,
)
from coordinator.server.nodes.topics import Altered, Change
from coordinator.server.requests.many import Refused, answer_changed, refuse_all
from coordinator.server.requests.rights import NOT_ALLOWED, may
from coordinator.server.wire.call import Call, Steps
from coordinator.text import cut_text
from protocol.messages import AlterClientQuotasResponse, DescribeClientQuotasResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest

EXACT, THE_DEFAULT, ANY = 0, 1, 2
"""Match types of DescribeClientQuotas."""


# DescribeClientQuotas.


_Filter = dict[str, "set[str | None] | None"]


def describe_client_quotas(call: Call, request: DescribeClientQuotasRequest) -> Steps:
    """DescribeClientQuotas: the quotas of all entities that the filter lets through."""
    if not may(call, Operation.DESCRIBE_CONFIGS, Kind.CLUSTER):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        call.answer(DescribeClientQuotasResponse(error_code=error, error_message=NOT_ALLOWED, entries=None))
        return
    try:
        wanted = yield from _filter(request.components)
    except Refused as refused:
        error, message = refused.error, refused.message
        call.answer(DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None))
        return
    entries = []
    for entity, values in quotas_of(call.services.discovery.topics.entry(QUOTAS).configs).items():
        yield
        if _is_wanted(entity, wanted, is_strict=request.strict):
            shown = [
                DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity.named()
            ]
            numbers = [DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in values.items()]
            entries.append(DescribeClientQuotasResponse.EntryData(entity=shown, values=numbers))
    call.answer(DescribeClientQuotasResponse(error_message=None, entries=entries))


def _filter(components: Iterable[DescribeClientQuotasRequest.ComponentData]) -> Generator[None, None, _Filter]:
    """By type, the names of which an entity must have one; None for any. Raises Refused."""
    wanted: _Filter = {}
    for each in components:
        yield
        kind, match = each.entity_type, each.match
        if not kind:
            raise Refused(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
        if kind not in {USER, CLIENT_ID, IP}:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if each.match_type not in {EXACT, THE_DEFAULT, ANY}:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown match type {each.match_type}")
        if (match is None) == (each.match_type == EXACT):
            message = f"Match type {each.match_type} {'needs a' if match is None else 'has no'} name to match."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
        # No entity has the name "", which stands for the default.
        names: dict[int, set[str | None] | None] = {EXACT: {match} - {""}, THE_DEFAULT: {DEFAULT}, ANY: None}
        wanted[kind] = names[each.match_type]
    if IP in wanted and len(wanted) > 1:
        message = "Invalid entity filter component combination: an IP can't be combined with a user or a client id."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    return wanted


def _is_wanted(entity: Entity, wanted: _Filter, *, is_strict: bool) -> bool:
    """Whether the filter lets an entity through. is_strict: it must have no other type."""
    named = entity.named()
    if is_strict and len(named) != len(wanted):
        return False
    has = {kind: name or DEFAULT for kind, name in named}
    return all(kind in has and (names is None or has[kind] in names) for kind, names in wanted.items())


# AlterClientQuotas.


class _Alteration(NamedTuple):
    """The new texts of an entity's quotas; None removes one. result: its part of the answer."""

    texts: dict[str, str | None]
    result: AlterClientQuotasResponse.EntryData


def alter_client_quotas(call: Call, request: AlterClientQuotasRequest) -> Steps:
    """AlterClientQuotas: each entity by itself; the answer waits until all changes are durable.

    An entity that is named twice has one answer, an error, and keeps its quotas.
    """
    alterations: dict[frozenset[tuple[str, str | None]], _Alteration] = {}
    is_allowed = may(call, Operation.ALTER_CONFIGS, Kind.CLUSTER)
    for entry in request.entries:
        yield
        named, entity = [], []
        for each in entry.entity:
            named.append((each.entity_type, each.entity_name))
            entity.append(
                AlterClientQuotasResponse.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            )
            yield
        result = AlterClientQuotasResponse.EntryData(error_message=None, entity=entity)
        known = alterations.setdefault(frozenset(named), _Alteration({}, result))
        if known.result is not result:
            known.texts.clear()
            _refuse(known.result, ErrorCode.INVALID_REQUEST, "An entity must appear at most once.")
            continue
        if not is_allowed:
            _refuse(result, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED)
            continue
        try:
            known.texts.update((yield from _texts(named, entry.ops)))
        except Wrong as problem:
            _refuse(result, ErrorCode.INVALID_REQUEST, str(problem))
    results, accepted = [], []
    texts: dict[str, str | None] = {}
    removed = set()
    for alteration in alterations.values():
        results.append(alteration.result)
        if not alteration.result.error_code:
            accepted.append(alteration.result)
        for name, text in alteration.texts.items():
            texts[name] = text
            if text is None:
                removed.add(name)
            yield
        yield
    body = AlterClientQuotasResponse(entries=results)
    if not _has_room(call.services.discovery.topics.newest_entry(QUOTAS).configs, texts, removed):
        yield from refuse_all(accepted, ErrorCode.POLICY_VIOLATION, f"The names of all quotas exceed {KEPT_BYTES_MAX}.")
        texts.clear()
    change = Change(altered=[Altered(QUOTAS.topic_id, configs=texts)])
    is_change = bool(texts) and not request.validate_only
    yield from answer_changed(call, change if is_change else None, body, accepted)


def _texts(
    named: list[tuple[str, str | None]], ops: Iterable[AlterClientQuotasRequest.OpData]
) -> Generator[None, None, dict[str, str | None]]:
    """The new texts of an entity's quotas. Raises Wrong."""
    entity = entity_of(named)
    texts: dict[str, str | None] = {}
    for op in ops:
        yield
        name = name_of(entity, op.key)
        if name in texts:
            raise Wrong(f"Duplicate quota key {op.key}")
        if not op.remove:
            check_value(entity, op.key, op.value)
        texts[name] = None if op.remove else repr(op.value)
    return texts


def _has_room(kept: Mapping[str, str], texts: Mapping[str, str | None], removed: set[str]) -> bool:
    """Whether the quotas, changed by `texts`, are not too many. It is one step, so all of it is the work of sets."""
    added = set(texts).difference(removed, kept)
    gone = removed.intersection(kept)
    return not added or sum(map(len, kept)) + sum(map(len, added)) - sum(map(len, gone)) <= KEPT_BYTES_MAX


def _refuse(result: AlterClientQuotasResponse.EntryData, error: ErrorCode, message: str) -> None:
    result.error_code, result.error_message = error, cut_text(message)
