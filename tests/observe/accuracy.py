"""How well causes are inferred: plays scripted histories on servers, scores them, and writes the table.

    python -m tests.observe.accuracy                                 # the recorded histories, once more
    python -m tests.observe.accuracy --misses                        # and each rebalance that isn't right
    python -m tests.observe.accuracy --play kafka-3.9 kafka-4.4 tenure   # plays all scripts anew, and records them
    python -m tests.observe.accuracy --play kafka-4.4 --only storm twins.consumer
    python -m tests.observe.accuracy --write                         # the table of benchmarks/results/accuracy.md
    python -m tests.observe.accuracy --random --seed 7 --rounds 7    # histories that no rule was made for, 8 minutes
    python -m tests.observe.accuracy --random --seed 7 --rounds 0 --misses   # these once more

A played history is kept in `recorded/`, so that a change of a rule can be measured without a server (test_accuracy.py).
Random ones are kept in `build/random/SEED`.

House rule: nothing is left out of the table but scripts that a server can't play.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.observe.histories import SCRIPTS
from tests.observe.play import AT_ONCE, RANDOM_AT_ONCE, SERVERS, play, play_random
from tests.observe.score import Score, score
from tests.observe.stage import History

RECORDED = Path(__file__).with_name("recorded")
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks/results/accuracy.md"
RANDOM = ROOT / "build" / "random"
BEGIN, END = "<!-- the table of tests.observe.accuracy -->\n", "<!-- end of the table -->\n"
WORDS = ("right", "unknown", "wrong")
TITLES = {"kafka-3.9": "Kafka 3.9.1", "kafka-4.4": "Kafka 4.4.0", "tenure": "Tenure"}
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
    protocols = {script.name: script.protocol for script in SCRIPTS}
    histories = list(histories)
    for history in histories:
        cells[history.script, history.server] = score(history, live=False)
    lines = sums(histories, ("classic", "consumer"), lambda history: protocols[history.script])
    lines += ["", f"| script | {' | '.join(TITLES[server] for server in SERVERS)} |", "| --- " * 4 + "|"]
    for script in SCRIPTS:
        row = [_cell(cells.get((script.name, server))) for server in SERVERS]
        if any(row):
            lines.append(f"| {_title(script.name)} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


RANDOM_KINDS = ("classic", "classic, default times", "consumer", "consumer, default times")


def random_table(histories: Iterable[History]) -> str:
    """The sums of random histories."""

    def kind_of(history: History) -> str:
        _, _, protocol, times, _ = history.script.split("-")
        return protocol + (", default times" if times == "default" else "")

    return "\n".join(sums(histories, RANDOM_KINDS, kind_of)) + "\n"


def sums(histories: Iterable[History], kinds: Sequence[str], kind_of: Callable[[History], str]) -> list[str]:
    """The lines of a table: the sums by server and kind of history."""
    found: dict[tuple[str, str, bool], list[Score]] = defaultdict(list)
    for history in histories:
        for live in (False, True):
            found[history.server, kind_of(history), live].append(score(history, live=live))
    alone = "right | of these, order unknown | unknown | wrong"
    lines = [f"| server | protocol | rebalances | {alone} | with live state: {alone} |", "| --- " * 11 + "|"]
    for server in SERVERS:
        for kind in kinds:
            if (server, kind, False) in found:
                cells_of = [_shares(found[server, kind, live]) for live in (False, True)]
                total = counts_of(found[server, kind, False]).total()
                lines.append(f"| {TITLES[server]} | {kind} | {total} | {' | '.join(cells_of)} |")
    return lines


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
    parser.add_argument("--at-once", type=int, help="how many histories are played beside each other")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--random", action="store_true", help="random histories")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7, help="of each protocol on each server; 0: plays nothing")
    options = parser.parse_args()
    if options.random:
        _random(options)
        return
    RECORDED.mkdir(exist_ok=True)
    for server in options.play:
        play(server, options.only, lambda each: each.save(path_of(each)), print, options.at_once or AT_ONCE)
    histories = [each for each in recorded() if not options.only or each.script in options.only]
    if options.misses:
        _print_misses(histories)
    text = table(histories)
    print(text)
    if options.write:
        write(text)


def _random(options: argparse.Namespace) -> None:
    folder = RANDOM / str(options.seed)
    folder.mkdir(parents=True, exist_ok=True)
    if options.rounds:
        play_random(
            options.play or SERVERS, options.seed, options.rounds, lambda each: each.save(path_of(each, folder)), print,
            options.at_once or RANDOM_AT_ONCE,
        )  # fmt: skip
    histories = list(recorded(folder))
    if options.misses:
        _print_misses(histories)
    print(random_table(histories))


def _print_misses(histories: Iterable[History]) -> None:
    for history in histories:
        for verdict in score(history, live=False).verdicts:
            if verdict.word != "right":
                print(f"{history.server} {history.script}: {verdict.word}")
                print(f"    told     {verdict.told}\n    inferred {verdict.inferred}")


if __name__ == "__main__":
    main()
