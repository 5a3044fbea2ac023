"""`tenure seats` with a planted fault: python -m tests.kubernetes.planted FAULT, and its own arguments."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from coordinator.cli.main import main
from coordinator.seats import controller, core, pods

SLOWLY_S = 1.0


def frees_on_terminating() -> None:
    """Takes a pod that is being deleted for one that has ended and is gone."""
    happened, is_free = controller.Controller._pod_happened, core._is_free

    def soon(self: controller.Controller, kind: str, found: pods.Object) -> None:
        if found["metadata"].get("deletionTimestamp"):
            kind, found = "DELETED", found | {"status": {**found["status"], "phase": "Failed", "containerStatuses": []}}
        happened(self, kind, found)

    def free(place: core.Place, fresh: core.Confirmed) -> bool:
        return is_free(place, fresh._replace(pod_exists=False))

    controller.Controller._pod_happened = soon  # type: ignore[method-assign]
    core._is_free = free


def ignores_start() -> None:
    """Counts ordinals from 0."""
    read = pods.read_set
    controller.read_set = lambda found: read(found)._replace(start=0)  # type: ignore[attr-defined]


def forgets_the_member_id() -> None:
    """Removes any member that has the seat, after some time, as on a busy machine."""
    remove = controller.remove_seats  # type: ignore[attr-defined]

    def slowly(client: Any, group_id: str, member_ids: dict[str, str]) -> dict[str, int]:
        threading.Event().wait(SLOWLY_S)
        done: dict[str, int] = remove(client, group_id, dict.fromkeys(member_ids, ""))
        return done

    controller.remove_seats = slowly  # type: ignore[assignment,attr-defined]


def trusts_a_forced_end() -> None:
    """Takes a pod that was forced out for one that has ended."""
    end = core.Seats._end

    def clean(self: core.Seats, uid: str, now: float, *, is_clean: bool) -> None:
        end(self, uid, now, is_clean=True)

    core.Seats._end = clean  # type: ignore[method-assign]


def frees_what_comes_back() -> None:
    """Doesn't ask what the set wants."""
    pods.StatefulSet.ordinals = property(lambda _self: range(0))  # type: ignore[assignment,method-assign]


FAULTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        frees_on_terminating,
        ignores_start,
        forgets_the_member_id,
        trusts_a_forced_end,
        frees_what_comes_back,
    )
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    sys.argv = ["tenure", "seats", *sys.argv[2:]]
    main()
