"""How well causes are inferred: plays scripted histories on servers, scores them, and writes the table of the docs.

    python -m tests.observe.accuracy                                 # the recorded histories, once more
    python -m tests.observe.accuracy --misses                        # and each rebalance that isn't right
    python -m tests.observe.accuracy --play kafka-3.9 kafka-4.3 tenure   # plays all scripts anew, and records them
    python -m tests.observe.accuracy --play kafka-4.3 --only storm twins.consumer
    python -m tests.observe.accuracy --write                         # the table of docs/observe-accuracy.md

A played history is kept in `recorded/`, so that a change of a rule can be measured without a server (test_accuracy.py).

House rule: nothing is left out of the table but scripts that a server can't play.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.observe.histories import SCRIPTS
from tests.observe.play import AT_ONCE, SERVERS, play
from tests.observe.score import Score, score
from tests.observe.stage import History

RECORDED = Path(__file__).with_name("recorded")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "observe-accuracy.md"
BEGIN, END = "<!-- the table of tests.observe.accuracy -->\n", "<!-- end of the table -->\n"
WORDS = ("right", "unknown", "wrong")
TITLES = {"kafka-3.9": "Kafka 3.9.1", "kafka-4.3": "Kafka 4.3.1", "tenure": "Tenure"}
CLIENTS = {"confluent": "librdkafka", "kafka-clients-3": "Java"}


def recorded(folder: Path = RECORDED) -> Iterator[History]:
    """The recorded histories, by server and script."""
    for path in sorted(folder.glob("*.json.gz")):
        yield History.load(path)


def path_of(history: History, folder: Path = RECORDED) -> Path:
    """Where a history is recorded."""
    return folder / f"{history.server}.{history.script}.json.gz"


def counts_of(scores: Iterable[Score]) -> Counter[str]:
    """The verdicts of several histories. A missing rebalance counts as unknown: nothing wrong was said."""
    counts: Counter[str] = Counter()
    for each in scores:
        counts += each.counts
    counts["unknown"] += counts.pop("missing", 0)
    return counts


def table(histories: Iterable[History]) -> str:
    """Right, unknown and wrong of each script and server, from the log alone; and the sums, with live state too."""
    cells: dict[tuple[str, str], Score] = {}
    sums: dict[tuple[str, str, bool], list[Score]] = defaultdict(list)
    protocols = {script.name: script.protocol for script in SCRIPTS}
    for history in histories:
        protocol = protocols[history.script]
        for live in (False, True):
            scored = score(history, live=live)
            sums[history.server, protocol, live].append(scored)
            if not live:
                cells[history.script, history.server] = scored
    alone = "right | of these, order unknown | unknown | wrong"
    lines = [f"| server | protocol | rebalances | {alone} | with live state: {alone} |", "| --- " * 11 + "|"]
    for server in SERVERS:
        for protocol in ("classic", "consumer"):
            if (server, protocol, False) in sums:
                cells_of = [_shares(sums[server, protocol, live]) for live in (False, True)]
                total = counts_of(sums[server, protocol, False]).total()
                lines.append(f"| {TITLES[server]} | {protocol} | {total} | {' | '.join(cells_of)} |")
    lines += ["", f"| script | {' | '.join(TITLES[server] for server in SERVERS)} |", "| --- " * 4 + "|"]
    for script in SCRIPTS:
        row = [_cell(cells.get((script.name, server))) for server in SERVERS]
        if any(row):
            lines.append(f"| {_title(script.name)} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _title(name: str) -> str:
    what, _, more = name.partition(".")
    text = what.replace("_", " ")
    return f"{text}, {CLIENTS.get(more, 'consumer protocol' if more == 'consumer' else more)}" if more else text


def _shares(scores: Sequence[Score]) -> str:
    counts = counts_of(scores)
    unordered = str(sum(each.unordered for each in scores))
    right, unknown, wrong = (_share(counts, word) for word in WORDS)
    return f"{right} | {unordered} | {unknown} | {wrong}"


def _share(counts: Counter[str], word: str) -> str:
    return f"{counts[word]} ({100 * counts[word] / max(counts.total(), 1):.0f} %)"


def _cell(scored: Score | None) -> str:
    if scored is None:
        return ""
    counts = counts_of([scored])
    return ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word] or word == "right")


def write(text: str) -> None:
    """Put the table into its page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{text}{end}{after}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.observe.accuracy")
    parser.add_argument("--play", nargs="+", choices=SERVERS, default=[])
    parser.add_argument("--only", nargs="+", default=[], metavar="SCRIPT")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="how many scripts are played beside each other")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    RECORDED.mkdir(exist_ok=True)
    for server in options.play:
        play(server, options.only, lambda history: history.save(path_of(history)), print, options.at_once)
    histories = [each for each in recorded() if not options.only or each.script in options.only]
    if options.misses:
        for history in histories:
            for verdict in score(history, live=False).verdicts:
                if verdict.word != "right":
                    print(f"{history.server} {history.script}: {verdict.word}")
                    print(f"    told     {verdict.told}\n    inferred {verdict.inferred}")
    text = table(histories)
    print(text)
    if options.write:
        write(text)


if __name__ == "__main__":
    main()
