"""Takes the picture of the audit's page that the documentation shows.

    python -m tests.audit.picture [FILE]

The program makes the same log each time: a group of static members and a group of dynamic members, each with a roll.

House rule: the picture shows the page as the audit writes it; nothing is added to it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from coordinator.audit.show.page import write_page
from coordinator.group.partition import partition_for
from tests.audit.audited import audited
from tests.audit.scenes import SECOND_MS, Member, Scene, member, static
from tests.support.browser import Browser

FILE = Path("docs/images/audit.webp")
WIDTH, HEIGHT = 1000, 1630
MINUTE_MS = 60 * SECOND_MS
PARTITION_COUNT = 50
SEATS = [f"orders-{number}" for number in range(1, 7)]


def rolled(scene: Scene, group_id: str) -> None:
    """Restart six static members one after the other, twice; the group doesn't rebalance."""
    lives = dict.fromkeys(SEATS, 1)

    def write() -> None:
        parts = {seat: {"orders": [2 * number, 2 * number + 1]} for number, seat in enumerate(SEATS)}
        scene.group(
            [static(seat, life, parts[seat], session_timeout=60_000) for seat, life in lives.items()], 1, group_id
        )

    write()
    for wait_ms in (7 * MINUTE_MS, 16 * MINUTE_MS):
        scene.tick(wait_ms)
        for number, seat in enumerate(SEATS):
            lives[seat] += 1
            write()
            scene.commit(1_000 * lives[seat] + number, group_id, "orders", 2 * number).tick(75 * SECOND_MS)


def stormy(scene: Scene, group_id: str) -> None:
    """Restart four dynamic members in the same way; each restart is two rebalances."""
    names = [f"billing-{life}" for life in range(1, 5)]
    generation = 0

    def write() -> None:
        nonlocal generation
        generation += 1
        made: list[Member] = [member(name, {"invoices": [at]}, topics=["invoices"]) for at, name in enumerate(names)]
        scene.group(made, generation, group_id)

    write()
    for life in range(5, 13):
        scene.tick(4 * MINUTE_MS)
        names.pop(0)
        write()
        scene.commit(100 * life, group_id, "invoices").tick(40 * SECOND_MS)
        names.append(f"billing-{life}")
        write()


def write_log(folder: Path) -> None:
    """Write the log: two groups, each on a partition of its own."""
    for name, play in (("orders", rolled), ("billing", stormy)):
        scene = Scene(partition_for(name, PARTITION_COUNT))
        play(scene, name)
        scene.write(folder, PARTITION_COUNT)


def main() -> None:
    """Make the picture."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        write_log(folder)
        result = audited(folder)
        result.source = "data"
        path = write_page(Path(name), result)
        with Browser() as browser:
            browser.resize(WIDTH, HEIGHT)
            browser.open(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(browser.screenshot(file.suffix.removeprefix(".")))
    print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
