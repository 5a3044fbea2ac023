"""Ports that leave a part of the design out: the simulation has to find each of them.

House rule: a mutant changes requests or answers between the engine and etcd's model, so it knows no code of the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.log.cluster.keys import Keys, parse_head
from coordinator.log.cluster.port import Compare, Delete, Done, Get, Lost, Put, Rejected, Target, Txn, TxnResult
from tests.simulation.cluster.world import CLUSTER
from tests.support.etcd_model import ModelPort

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = Keys(CLUSTER)
LOST_SHARE = 0.05


class NoHeadChain(ModelPort):
    """An append compares the create revision of own/ppp, as many programs on etcd do, and not the head."""

    def txn(self, txn: Txn, done: Done[TxnResult]) -> None:
        """See Port."""
        super().txn(txn._replace(compares=[_of_owner(compare) for compare in txn.compares]), done)


def _of_owner(compare: Compare) -> Compare:
    if compare.target is not Target.VALUE or not compare.key.startswith(KEYS.heads):
        return compare
    assert isinstance(compare.value, bytes)
    claim = int(parse_head(compare.value).owner.partition("/")[2])
    return Compare(KEYS.own(KEYS.number(compare.key)), Target.CREATE_REVISION, claim)


class ClockThatSleeps(ModelPort):
    """The lease is measured by a clock that stands still while the process or its machine does (CLOCK_MONOTONIC)."""

    def now_ms(self) -> int:
        """See Port."""
        return super().now_ms() - self.process.frozen_ms


class ClockThatCrawls(ModelPort):
    """The lease is measured by a clock that loses far more than the lease's margin."""

    def now_ms(self) -> int:
        """See Port."""
        return int(super().now_ms() * 0.6)


class LostIsDone(ModelPort):
    """A transaction without an answer counts as carried out."""

    def txn(self, txn: Txn, done: Done[TxnResult]) -> None:
        """See Port."""
        is_append = any(each.target is Target.VALUE for each in txn.compares)

        def told(outcome: TxnResult | Lost | Rejected) -> None:
            done(TxnResult(True, 0, []) if isinstance(outcome, Lost) and is_append else outcome)

        super().txn(txn, told)


class Silent(ModelPort):
    """A transaction without an answer is waited for."""

    def txn(self, txn: Txn, done: Done[TxnResult]) -> None:
        """See Port."""
        super().txn(txn, lambda outcome: None if isinstance(outcome, Lost) else done(outcome))


class Forgetful(ModelPort):
    """Some records are not written."""

    def txn(self, txn: Txn, done: Done[TxnResult]) -> None:
        """See Port."""
        kept = [each for each in txn.success if not _is_record(each) or self.etcd.random.random() > LOST_SHARE]
        super().txn(txn._replace(success=kept), done)


def _is_record(operation: Put | Delete | Get) -> bool:
    return isinstance(operation, (Put, Delete)) and operation.key.startswith(KEYS.prefix + b"log/")


MUTANTS: dict[str, Callable[..., ModelPort]] = {
    "an append without the head chain": NoHeadChain,
    "a lease by a clock that sleeps": ClockThatSleeps,
    "a lease by a clock that crawls": ClockThatCrawls,
    "a lost answer taken for a yes": LostIsDone,
    "a lost answer waited for": Silent,
    "records that are not written": Forgetful,
}
