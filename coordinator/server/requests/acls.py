"""DescribeAcls, CreateAcls, DeleteAcls: clients read and change the rules of who may do what.

The rules are in an entry beside the topics (nodes.topics.ACLS), so that they last and reach all workers. An answer to a
change waits until it is durable and in effect on this node.

House rule: what a rule means is in `security.acls`. Source: Kafka's AclApis and AclControlManager, release 3.9.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from coordinator.log.engine import EngineError
from coordinator.log.topics.list import ACLS
from coordinator.security.acls import CLUSTER_NAME, Filter, Kind, Operation, Pattern, Permission, Rule
from coordinator.server.nodes.topics import Altered, Change
from coordinator.server.requests.many import answer_changed, changed, error_of
from coordinator.server.requests.rights import NOT_ALLOWED, may
from coordinator.server.wire.call import Call, Steps
from coordinator.text import cut_text
from protocol.errors import ProtocolError
from protocol.messages import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

RULES_MAX = 20_000
"""Rules at most: each change writes all of them, which then takes about 0.1 s on the thread of the disk."""

CREATIONS_MAX = 5_000
"""ACLs in a CreateAcls. They come into effect together, which takes 35 ms of the loop for so many."""

FILTERS_MAX = 1_000
"""Filters in a DeleteAcls: each looks at all rules. Kafka's tools send one for each rule that a command names."""

TIMEOUT_MS = 30_000
"""How long a change may take; the requests have no timeout of their own."""

NO_AUTHORIZER = "No Authorizer is configured on the broker"
Number = TypeVar("Number", bound=IntEnum)


def _read(kind: type[Number], number: int) -> Number:
    """The value with that number; 0 if this version has none."""
    return kind(number) if number in kind._value2member_map_ else kind(0)


def _refusal(call: Call, operation: Operation) -> tuple[ErrorCode, str] | None:
    """Why nobody, or not this client, may do this to ACLs."""
    if call.services.access.is_open:
        return ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    if not may(call, operation, Kind.CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
    return None


def _filter(asked: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> Filter:
    """The filter of a request. Raises ProtocolError, as Kafka closes the connection, if it has a zero."""
    numbers = (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    if 0 in numbers:
        raise ProtocolError("a filter of ACLs contains UNKNOWN elements")
    return Filter(
        _read(Kind, asked.resource_type_filter),
        _read(Pattern, asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        _read(Operation, asked.operation),
        _read(Permission, asked.permission_type),
    )


def describe_acls(call: Call, request: DescribeAclsRequest) -> Steps:
    """DescribeAcls: the rules that a filter selects, by resource."""
    wanted = _filter(request)
    refusal = _refusal(call, Operation.DESCRIBE)
    if refusal is not None:
        call.answer(DescribeAclsResponse(error_code=refusal[0], error_message=refusal[1]))
        return
    resources: dict[tuple[Kind, Pattern, str], DescribeAclsResponse.DescribeAclsResource] = {}
    for rule in call.services.access.acls:
        if wanted.selects(rule):
            place = rule.kind, rule.pattern, rule.name
            if place not in resources:
                resources[place] = DescribeAclsResponse.DescribeAclsResource(
                    resource_type=rule.kind, resource_name=rule.name, pattern_type=rule.pattern
                )
            resources[place].acls.append(
                DescribeAclsResponse.AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
            )
        yield
    call.answer(DescribeAclsResponse(error_message=None, resources=list(resources.values())))


def _problem(rule: Rule) -> str | None:
    """Why there can't be such a rule."""
    if rule.kind is Kind.CLUSTER and rule.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not rule.name:
        return "Invalid empty resource name"
    if 0 in (rule.kind, rule.pattern, rule.operation, rule.permission):
        return "There is no such resource type, pattern type, operation or permission type."
    if ":" not in rule.principal:
        why = "no colon is present separating the principal type from the principal name"
        return f"Could not parse principal from `{rule.principal}` ({why})"
    if not rule.host:
        return "Host pattern cannot be null or empty"  # Kafka 4.4; no client has the host "", so 3.9 keeps it in vain
    return None


def create_acls(call: Call, request: CreateAclsRequest) -> Steps:
    """CreateAcls: each rule is added, or refused by itself. A rule that is there already changes nothing."""
    call.is_kept = True
    is_readable = True
    rules = []
    for each in request.creations:
        numbers = (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
        if 0 in numbers:
            raise ProtocolError("an ACL to create contains UNKNOWN elements")
        is_readable = is_readable and 1 not in numbers and each.resource_pattern_type != Pattern.MATCH
        kind, pattern = _read(Kind, each.resource_type), _read(Pattern, each.resource_pattern_type)
        decision = _read(Operation, each.operation), _read(Permission, each.permission_type)
        rules.append(Rule(kind, pattern, each.resource_name, each.principal, each.host, *decision))
        yield
    refusal = _refusal(call, Operation.ALTER)
    if refusal is None and not is_readable:
        # Kafka can't build such a rule, so the whole request fails.
        refusal = ErrorCode.UNKNOWN_SERVER_ERROR, "ANY and MATCH are for filters."
    if refusal is None and len(request.creations) > CREATIONS_MAX:
        refusal = ErrorCode.POLICY_VIOLATION, f"A request has at most {CREATIONS_MAX} ACLs."
    results: list[CreateAclsResponse.AclCreationResult] = []
    added: dict[str, None] = {}
    held = call.services.discovery.topics.newest_entry(ACLS).configs
    for rule in rules:
        result = CreateAclsResponse.AclCreationResult(error_message="")
        results.append(result)
        text = rule.text()
        problem = _problem(rule)
        if refusal is not None:
            result.error_code, result.error_message = refusal
        elif problem is not None:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, problem
        elif text not in held and text not in added:
            if len(held) + len(added) >= RULES_MAX:
                result.error_code = ErrorCode.POLICY_VIOLATION
                result.error_message = f"There are at most {RULES_MAX} ACLs."
            else:
                added[text] = None
        yield
    body = CreateAclsResponse(results=results)
    accepted = [result for result in results if not result.error_code]
    change = Change(altered=[Altered(ACLS.topic_id, configs=dict.fromkeys(added, ""))])
    yield from answer_changed(call, change if added else None, body, accepted, TIMEOUT_MS)


def delete_acls(call: Call, request: DeleteAclsRequest) -> Steps:
    """DeleteAcls: remove the rules that each filter selects. A rule that two filters select is in both answers.

    Filters that are alike share one result.
    """
    filters = []
    for each in request.filters:
        filters.append(_filter(each))
        yield
    call.is_kept = True
    refusal = _refusal(call, Operation.ALTER)
    if refusal is None and len(filters) > FILTERS_MAX:
        refusal = ErrorCode.POLICY_VIOLATION, f"A request has at most {FILTERS_MAX} filters."
    results: list[DeleteAclsResponse.DeleteAclsFilterResult] = []
    known: dict[Filter, DeleteAclsResponse.DeleteAclsFilterResult] = {}
    removed: dict[str, DeleteAclsResponse.DeleteAclsMatchingAcl] = {}
    rules = call.services.discovery.topics.newest_entry(ACLS).configs if refusal is None else {}
    for wanted in filters:
        yield
        if wanted in known:
            results.append(known[wanted])
            continue
        result = known[wanted] = DeleteAclsResponse.DeleteAclsFilterResult(error_message=None)
        results.append(result)
        if refusal is not None:
            result.error_code, result.error_message = refusal
        elif wanted.is_unknown:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Unknown filter."
        else:
            for text in rules:
                rule = call.services.access.acls.rule_of(text)
                if wanted.selects(rule):
                    if text not in removed:
                        removed[text] = _matching(rule)
                    result.matching_acls.append(removed[text])
                yield
    if removed:
        change = Change(altered=[Altered(ACLS.topic_id, configs=dict.fromkeys(removed))])
        outcome = yield from changed(call, change, TIMEOUT_MS)
        if isinstance(outcome, EngineError):
            for result in results:
                result.error_code, result.error_message = error_of(outcome), cut_text(str(outcome))
                result.matching_acls = []
    call.answer(DeleteAclsResponse(filter_results=results))


def _matching(rule: Rule) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=rule.kind,
        resource_name=rule.name,
        pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
