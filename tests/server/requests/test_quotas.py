"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from coordinator.log.engine import EngineError
from coordinator.server.requests import quotas
from protocol.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest
from schemas.errors import ErrorCode
from tests.server.harness import Serving, serving
from tests.support.raw import Connection, ask
from tests.support.tenure import Tenure

Named = Mapping[str, str | None]


def entry(entity: Named | list[tuple[str, str | None]], **values: float | None) -> AlterClientQuotasRequest.EntryData:
    """Set these values of an entity; None removes one."""
    pairs = list(entity.items()) if isinstance(entity, Mapping) else entity
    return AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in pairs],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


async def alter(server: Serving, *entries: AlterClientQuotasRequest.EntryData, **fields: Any) -> list[int]:
    """The error codes of the entries."""
    answer = await (await server.peer()).ask(AlterClientQuotasRequest(entries=list(entries), **fields), 1)
    return [each.error_code for each in answer.entries]


async def describe(server: Serving, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """The answer of a filter."""
    parts = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    return await (await server.peer()).ask(DescribeClientQuotasRequest(components=parts, strict=strict), 1)


def shown(answer: Any) -> list[tuple[list[tuple[str, str | None]], dict[str, float]]]:
    """Entities and values of an answer, in an order of their own."""
    found = [
        (
            sorted(((each.entity_type, each.entity_name) for each in entry.entity), key=str),
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]
    return sorted(found, key=str)


async def test_what_is_set_is_described(server: Serving) -> None:
    """An entity's values are those that were set and not removed; one without any isn't shown."""
    alice, both = {"user": "alice"}, {"user": None, "client-id": "é"}
    assert await alter(
        server, entry(alice, producer_byte_rate=5.0, request_percentage=2.5), entry(both, consumer_byte_rate=9.0)
    ) == [0, 0]
    assert shown(await describe(server)) == [
        ([("client-id", "é"), ("user", None)], {"consumer_byte_rate": 9.0}),
        ([("user", "alice")], {"producer_byte_rate": 5.0, "request_percentage": 2.5}),
    ]
    assert await alter(server, entry(alice, producer_byte_rate=6.0, request_percentage=None)) == [0]
    assert await alter(server, entry(both, consumer_byte_rate=None)) == [0]
    assert shown(await describe(server)) == [([("user", "alice")], {"producer_byte_rate": 6.0})]


async def test_validate_only_changes_nothing(server: Serving) -> None:
    """The answer says what would be, and nothing is set."""
    wrong = entry({"user": "a"}, producer_byte_rate=-1.0)
    codes = await alter(server, entry({"user": "b"}, producer_byte_rate=1.0), wrong, validate_only=True)
    assert codes == [0, ErrorCode.INVALID_REQUEST]
    assert shown(await describe(server)) == []


async def test_an_entity_that_is_named_twice_keeps_its_quotas(server: Serving) -> None:
    """One answer, an error, and nothing of it is set. A type that stands twice in one entity is an error too."""
    twice = entry({"user": "a", "client-id": "c"}, producer_byte_rate=1.0)
    again = entry({"client-id": "c", "user": "a"}, consumer_byte_rate=1.0)
    other = entry({"user": "b"}, producer_byte_rate=1.0)
    assert await alter(server, twice, other, again) == [ErrorCode.INVALID_REQUEST, 0]
    doubled = entry([("user", "x"), ("user", "y")], producer_byte_rate=1.0)
    assert await alter(server, doubled) == [ErrorCode.INVALID_REQUEST]
    assert shown(await describe(server)) == [([("user", "b")], {"producer_byte_rate": 1.0})]


async def test_an_exact_empty_name_is_not_the_default(server: Serving) -> None:
    """The default is asked for by its match type alone."""
    await alter(server, entry({"user": None}, producer_byte_rate=1.0))
    assert shown(await describe(server, ("user", 0, ""))) == []
    assert len(shown(await describe(server, ("user", 1, None)))) == 1


async def test_quotas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit nothing is added; known values can still be changed and removed."""
    monkeypatch.setattr(quotas, "KEPT_BYTES_MAX", 100)
    async with serving() as server:
        first = {"user": "a" * 40}
        assert await alter(server, entry(first, producer_byte_rate=1.0)) == [0]
        second = entry({"user": "b" * 40}, producer_byte_rate=1.0)
        wrong = entry({"user": "c"}, nonsense=1.0)
        assert await alter(server, second, wrong) == [ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST]
        assert await alter(server, entry(first, producer_byte_rate=2.0)) == [0]
        assert await alter(server, entry(first, producer_byte_rate=None), second) == [0, 0]
        assert len(shown(await describe(server))) == 1


async def test_a_change_that_is_not_written_is_refused(server: Serving) -> None:
    """Each entity gets KAFKA_STORAGE_ERROR, and keeps its quotas."""
    topics = server.server._topics
    topics._write = lambda _, done: done(EngineError("the disk is full"))
    assert await alter(server, entry({"user": "a"}, producer_byte_rate=1.0)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert shown(await describe(server)) == []


def test_quotas_reach_all_workers_and_last() -> None:
    """A quota that one worker was told holds on the other, and after a kill of the server on both."""
    wanted = DescribeClientQuotasRequest(components=[], strict=False)
    with Tenure(arguments=["--workers", "2"]) as server:

        def shown_by(port: int) -> list[float]:
            with Connection(port, "slow") as connection:
                answer = connection.ask(wanted, 1)
            return [each.value for entry in answer.entries or () for each in entry.values]

        altered = AlterClientQuotasRequest(entries=[entry({"client-id": "slow"}, request_percentage=0.001)])
        ask(server.ports[0], altered, 1)
        assert [shown_by(port) for port in server.ports] == [[0.001], [0.001]]
        for port in server.ports:
            with Connection(port, "slow") as connection:
                answer = connection.ask(wanted, 1)
            assert answer.throttle_time_ms > 0
        server.restart()
        assert [shown_by(port) for port in server.ports] == [[0.001], [0.001]]
