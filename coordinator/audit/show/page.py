"""The report as one HTML page that needs no other file: findings first, then the groups' past, drawn in SVG.

It has the style, the marks and the words of the page of a server (`coordinator.site`): lanes, with a line over all of
them for each rebalance. A drawing measures its width in per cent and its height in pixels, and names are text beside
it. So a drawing is as wide as the window, and its letters are as large as all others, on a telephone too. A group with
60 seats and thousands of restarts has more marks than a screen has pixels, so marks on the same pixel are drawn once.

Each part of the page has a limit: findings, drawings and rows. The groups with the most events come first, and the page
says how many had no room. A policy in the page allows only its own style and script, so a browser runs no code that
hides in a name from the log.

House rule: text from a log goes through `_safe`; no other text of a log gets into the page.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TextIO

from coordinator import pages
from coordinator.audit.audit import AuditResult
from coordinator.audit.check.checks import CHECKS, Finding
from coordinator.audit.check.history import READ, STEPS_MAX, Step, Story
from coordinator.audit.show.report import by_size, detail_words, growth_text, least_text, print_to, state_text
from coordinator.audit.show.summary import write_summary
from coordinator.group.notes import CLASSIC, CONSUMER
from coordinator.story.counts import number_text, returns_text, unknown_returns_text
from coordinator.story.diagnosis import Severity
from coordinator.story.lanes import Lane
from coordinator.text import names_text, printable, second_text, size_text

PAGE_FILE = "report.html"


def _file(name: str) -> str:
    """Read a file of the site, which may be in a zip."""
    return files("coordinator.site").joinpath(name).read_text(encoding="utf-8")


FINDINGS_MAX = 100
"""The most findings of one check in the page: a reader with more fixes the cause, or reads findings.parquet."""
DRAWN_MAX = 20
BARS_MAX = 15
STEPS_SHOWN = 50
"""Steps of a group that the page describes in words."""
NAMES_MAX = 20
"""Groups that a row of the table of partitions names."""
FINDINGS_SIZE_MAX = 800_000
DRAWINGS_SIZE_MAX = 1_100_000
PARTITIONS_SIZE_MAX = 100_000
ROWS_SIZE_MAX = 2_800_000
"""Bytes of each part. With style, script and bars the page stays below 5 MB, which a telephone can open."""

_NAME_MAX = 100
_DETAIL_MAX = 600
_PIXELS = 500
"""The steps of the time axis: with so few, even a group with many seats and years has room in a page."""
_APART = 100 / 125
"""The least distance between two marks of a seat, in per cent; a mark is wider than that."""
_TEXTS_MAX = 3
"""Records that a line names; with many, several are on one pixel."""
_TITLES_MAX = 20
"""Restarts of a seat that show their time; with more, the marks lie on top of each other."""
_SEVERITIES = list(Severity)

_FINDING = "group|#generation|#partition|#offset|detail"
_GROUP = "group|findings|partition|generation|members|rebalances|per hour|returns|offsets|bytes|covered, UTC"
_LOST = "#partition|#bytes|#groups|lost with it"

Anchors = dict[tuple[str, int], str]
"""Group and partition -> the id of its drawing in the page."""

_STYLE, _MARKS = _file("page.css"), _file("page_marks.html")
_MODULES = [_file(name) for name in ("page_dom.js", "page_table.js", "report.js")]
_SCRIPT = re.sub(r"^import .*\n|^export ", "", "".join(_MODULES), flags=re.MULTILINE)
"""The modules as one script: a page that is one file can't import."""


def write_page(out: Path, result: AuditResult) -> Path:
    """Write the page; returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / PAGE_FILE
    path.write_text(page(result), encoding="utf-8")
    return path


def publish(result: AuditResult, out: Path | None, stream: TextIO) -> None:
    """Print the report, and write summary and page below `out`: for every way to run the audit. Raises OSError."""
    print_to(stream, result)
    if out is not None:
        write_summary(out, result)
        stream.write(f"{write_page(out, result)}\n")


def page(result: AuditResult) -> str:
    """The whole page."""
    found = Counter((each.group, each.partition) for each in result.findings if each.group is not None)
    # Groups with findings first, then by events, then by size: a reader looks for these.
    stories = sorted(
        result.stories,
        key=lambda it: (-found[it.group, it.partition], -it.rebalances - it.return_count, -it.bytes, it.group),
    )
    # A group with only committed offsets has nothing to draw.
    drawable = [story for story in stories if any(step.generation is not None for step in story.steps)]
    drawn = drawable[:DRAWN_MAX]
    drawings = _within(DRAWINGS_SIZE_MAX, ("\n".join(_drawing(number, each)) for number, each in enumerate(drawn)))
    kinds = {mark.kind for each in drawn for lane in each.lanes.values() for mark in lane.marks}
    anchors = {(each.group, each.partition): f"group-{number}" for number, each in enumerate(drawn[: len(drawings)])}
    parts = [
        *_head(result),
        *_findings(result.findings, result.counts, anchors),
        *_drawn(drawings, len(drawable), kinds),
        *_bytes(result.stories),
        *_partitions(result),
        *_all(stories, found, anchors),
        "<footer class='dim'>Made by tenure audit. Times are UTC. Drawings show what the log covers: a compacted log",
        f"has lost older records. {pages.AUDIT_CHECKS} explains each check, {pages.AUDIT_FILES} this page.</footer>",
        "</main>",
        f"<script>{_SCRIPT}</script></body></html>" if stories else "</body></html>",
        "",
    ]
    return "\n".join(parts)


def _head(result: AuditResult) -> Iterator[str]:
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src '{_hash(_STYLE)}'; "
        f"script-src '{_hash(_SCRIPT)}'"
    )
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Audit of {_safe(result.source)}</title><style>{_STYLE}</style></head><body>"
    yield "<header><a class='unseen' href='#findings'>To the findings</a><h1>Audit of group metadata</h1>"
    yield f"<p id='where'>{_safe(result.source, 300)}</p></header><main>"
    if result.stories:
        first, last = min(each.first_ms for each in result.stories), max(each.last_ms for each in result.stories)
        yield f"<p>The log covers {_window(first, last)}.</p>"
    least = "at least " if any(story.at_least for story in result.stories) else ""
    facts = (
        ("findings", f"{result.counts.total():,}"),
        ("groups", f"{len(result.stories):,}"),
        ("rebalances", least + f"{sum(story.rebalances for story in result.stories):,}"),
        ("returns", least + f"{sum(story.return_count for story in result.stories):,}"),
        ("records", f"{sum(result.records_by_type.values()):,}"),
        ("bytes", size_text(sum(result.sizes.values()))),
        ("partitions", f"{len(result.sizes):,}"),
    )
    yield "<dl class='facts'>"
    yield from (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    yield "</dl>"
    yield "<nav aria-label='Parts of this page'><ul>"
    for anchor, name in (
        ("findings", "Findings"),
        ("drawn", "Rebalances and seats"),
        ("bytes", "Bytes"),
        ("partitions", "Partitions"),
        ("all-groups", "All groups"),
    ):
        yield f"<li><a href='#{anchor}'>{name}</a></li>"
    yield "</ul></nav>"
    yield from (f"<p class='dim'>Note: {_safe(note, 300)}</p>" for note in result.notes)


# -- findings


def _findings(findings: Sequence[Finding], counts: Counter[str], anchors: Anchors) -> Iterator[str]:
    yield "<h2 id='findings'>Findings</h2>"
    if not findings:
        yield "<div class='card'><p><strong class='badge good'>Nothing found.</strong> Every check held.</p></div>"
        return
    by_check: dict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        by_check[each.check].append(each)
    order = sorted(by_check, key=lambda check: (_SEVERITIES.index(CHECKS[check].severity), -counts[check], check))
    heads = "severity|check|#findings"
    link = "<a href='#check-{0}'><code>{0}</code></a> <span class='dim'>{1}</span>"
    sums = (
        _row(heads, _badge(CHECKS[each].severity), link.format(each, escape(CHECKS[each].meaning)), f"{counts[each]:,}")
        for each in order
    )
    yield "<div class='card'>"
    yield from _table(heads, sums)
    yield "</div>"
    left = FINDINGS_SIZE_MAX
    for check in order:
        rows = _within(left, (_finding(each, anchors) for each in by_check[check][:FINDINGS_MAX]))
        left -= sum(map(_size, rows))
        yield from _check(check, rows, len(by_check[check]), counts[check])


def _check(check: str, rows: Sequence[str], kept: int, count: int) -> Iterator[str]:
    """A check: its meaning, the advice, and its findings."""
    yield f"<section class='card check' id='check-{check}' aria-labelledby='name-{check}'>"
    yield f"<h3 id='name-{check}'>{_badge(CHECKS[check].severity)} <code>{check}</code> "
    yield f"<small>{count:,} {'finding' if count == 1 else 'findings'}</small></h3>"
    advice = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(CHECKS[check].advice, quote=False))
    yield f"<p>{advice}</p>"
    if rows:
        yield from _table(_FINDING, rows, f"Findings of {check}")
    if len(rows) < kept:
        yield _dim(f"{kept - len(rows):,} more are in findings.parquet.")
    if kept < count:
        yield _dim(f"{count - kept:,} more are only counted.")
    yield "</section>"


def _finding(finding: Finding, anchors: Anchors) -> str:
    group = _group_link(finding.group, finding.partition, anchors)
    return _row(_FINDING, group, finding.generation, finding.partition, finding.offset, _detail(finding.detail))


def _detail(text: str) -> str:
    """The detail of a finding as words instead of JSON."""
    left = _DETAIL_MAX
    words = []
    for name, value in detail_words(text):
        shown = _safe(value, max(left, _NAME_MAX))
        words.append(f"<span class='dim'>{_safe(name)}</span> {shown}" if name else shown)
        left -= len(value)
    return "; ".join(words)


# -- groups, drawn


def _drawn(drawings: Sequence[str], count: int, kinds: set[str]) -> Iterator[str]:
    yield "<h2 id='drawn'>Rebalances and seats</h2>"
    if not drawings:
        why = "There is no room to draw a group." if count else "There is no group to draw."
        yield f"<div class='card'><p>{why}</p></div>"
        return
    yield _dim("A seat is an instance id, or the member id of a member without one.")
    legend = _MARKS
    for kind in kinds:
        legend = legend.replace(f'id="{kind}" hidden', f'id="{kind}"')
    yield f"<p class='legend'>{legend}</p>"
    yield from drawings
    if len(drawings) < count:
        yield _dim(f"{count - len(drawings):,} quieter groups are not drawn; all of them are in the table below.")


def _drawing(number: int, story: Story) -> Iterator[str]:
    """A group: its past in words, and a lane for each seat."""
    yield f"<section class='card' id='group-{number}' aria-labelledby='title-{number}'>"
    yield f"<h3 id='title-{number}'>{_safe(story.group)}</h3>"
    yield f"<p>{_sentences(story)}</p>"
    yield f"<p class='dim'><small>{_window(story.first_ms, story.last_ms)}, partition {story.partition}</small></p>"
    for client_id, why in sorted(story.old_clients.items())[:3]:
        yield f"<p class='dim'><small>Note: {_safe(client_id)}: {escape(why)}</small></p>"
    known = [step for step in story.steps if step.generation is not None]
    if known:
        first_ms = min(story.first_ms, known[0].ts)
        axis = _Axis(first_ms, max(story.last_ms - first_ms, 1))
        yield "<figure><div class='picture'>"
        yield from _rebalances(story, known, axis)
        if story.lanes:
            yield f"<ul class='rows' aria-label='Seats of {_safe(story.group)}'>"
            yield from (_lane(*each, axis) for each in sorted(story.lanes.items(), key=_lane_order))
            yield "</ul>"
        yield f"</div><div class='row axis'><span class='name dim'>UTC</span>{_times(axis)}</div>"
        if story.seats_left_out:
            yield f"<figcaption>Only the first {len(story.lanes)} seats are drawn.</figcaption>"
        if len(story.steps) == STEPS_MAX:
            yield f"<figcaption>Only the last {STEPS_MAX:,} records are drawn.</figcaption>"
        yield "</figure>"
    yield from _steps(story)
    yield "</section>"


def _sentences(story: Story) -> str:
    """The past of a group, in a sentence or two."""
    if story.deleted:
        state = "Deleted"
    elif story.group_type == CONSUMER:
        members = number_text(story.member_count, "member")
        state = f"A group of the consumer protocol, epoch {_or_dash(story.generation)}, {members}"
    elif story.group_type != CLASSIC:
        state = f"A group of the {escape(story.group_type)} protocol, whose members aren't read"
    else:
        state = f"Generation {_or_dash(story.generation)}, {number_text(story.member_count, 'member')}"
    both = (story.causes + story.causes_recorded).most_common()
    causes = ", ".join(f"{count:,} {_safe(cause)}" for cause, count in both)
    unseen = f"; {story.rebalances_unseen:,} left no record" if story.rebalances_unseen else ""
    rebalances = number_text(story.rebalances, "rebalance", at_least=story.at_least)
    unknown = [escape(unknown_returns_text(story.returns.total()))] if story.returns else []
    returns = ", ".join([*filter(None, [returns_text(story.returns_recorded)]), *unknown])
    return (
        f"{state}. {rebalances[0].upper()}{rebalances[1:]}{f' ({causes}{unseen})' if causes else ''}, "
        f"{returns or number_text(0, 'return', at_least=story.at_least)}, "
        f"{number_text(len(story.committed), 'committed offset')}, "
        f"{size_text(story.bytes)}."
    )


class _Axis(NamedTuple):
    """Turns a time into per cent of a drawing's width."""

    first_ms: int
    span_ms: int

    def x(self, ts: int) -> float:
        """The per cent for a time, in steps of the axis."""
        part = min(max((ts - self.first_ms) / self.span_ms, 0.0), 1.0)
        return round(part * _PIXELS) * 100 / _PIXELS

    def ticks(self) -> list[int]:
        """The times of the labels: one at least, five at most."""
        step = next((each for each in _TICKS_MS if self.span_ms / each <= 4.5), self.span_ms // 4)
        first = -(-self.first_ms // step) * step
        return list(range(first, self.first_ms + self.span_ms + 1, step))[:5] or [self.first_ms]


_DAY_MS = 86_400_000
_TICKS_MS = (
    *(each * 1_000 for each in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800)),
    *(each * 3_600_000 for each in (1, 2, 3, 6, 12)),
    *(each * _DAY_MS for each in (1, 2, 3, 7, 14, 30, 90, 365, 3_650)),
)


def _times(axis: _Axis) -> str:
    """The labels of an axis, as the page of a server writes them."""
    ticks, labels = axis.ticks(), []
    step = ticks[1] - ticks[0] if len(ticks) > 1 else axis.span_ms
    part = slice(10) if step >= _DAY_MS else slice(5, 16) if axis.span_ms >= _DAY_MS else slice(11, 19)
    for ts in ticks:
        x = axis.x(ts)
        anchor = "start" if x < 6 else "end" if x > 94 else "middle"
        labels.append(f"<text class='time' x='{x:g}%' y='15' text-anchor='{anchor}'>{second_text(ts)[part]}</text>")
    return f"<svg height='22' aria-hidden='true'>{''.join(labels)}</svg>"


def _rebalances(story: Story, known: Sequence[Step], axis: _Axis) -> Iterator[str]:
    """Lines over all lanes: round times, and each record that says who has a seat."""
    values = [step.generation or 0 for step in known]
    low, high = min(values), max(values)
    which = f"Generation {low}" if low == high else f"Generation from {low} to {high}"
    rebalances = number_text(story.rebalances, "rebalance", at_least=story.at_least)
    label = f"{which}, {rebalances}, {_window(story.first_ms, story.last_ms)}"
    yield f"<svg class='over' role='img' aria-label='{label}'>"
    yield from (_upright("tick", axis.x(ts)) for ts in axis.ticks())
    lines: dict[tuple[str, float], list[str]] = defaultdict(list)
    for step in story.steps:
        if step.kind not in {"return", "rewritten"}:
            title = f"{number_text(step.members, 'member')}: {_safe(step.cause, _DETAIL_MAX)}, {second_text(step.ts)}"
            kind, state = (step.kind, "") if step.generation is None else ("when", f"generation {step.generation}, ")
            lines[kind, axis.x(step.ts)].append(state + title)
    yield from (_upright(kind, x, *titles[:_TEXTS_MAX]) for (kind, x), titles in lines.items())
    yield "</svg>"


def _upright(style: str, x: float, *titles: str) -> str:
    inside = "<title>" + "\n".join(titles) + "</title>" if titles else ""
    return f"<line class='{escape(style)}' x1='{x:g}%' x2='{x:g}%' y1='0' y2='100%'>{inside}</line>"


def _lane_order(item: tuple[str, Lane]) -> tuple[object, ...]:
    """The sort key of a seat: static seats by their numbers, dynamic seats in the order of their arrival."""
    seat, lane = item
    words = tuple(
        (int(word), "") if word.isdecimal() and len(word) < 9 else (0, word)
        for word in re.split(r"(\d+)", seat[:_NAME_MAX])
    )
    return (lane.spans[0][0] or 0) if lane.spans else 0, words, seat


def _lane(seat: str, lane: Lane, axis: _Axis) -> str:
    """The lane of a seat: when it was taken, and when its member came back."""
    last_ms = axis.first_ms + axis.span_ms
    spans: list[list[float]] = []
    for start, end in lane.spans:
        x, until = axis.x(axis.first_ms if start is None else start), axis.x(last_ms if end is None else end)
        if spans and x - spans[-1][0] < _APART:
            spans[-1][1] = max(until, spans[-1][1])
        else:
            spans.append([x, until])
    marks = [
        f"<rect class='seat' x='{x:g}%' y='3' width='{max(until - x, 0.3):.3g}%' height='12' rx='2'/>"
        for x, until in spans
    ]
    former = -_APART
    for mark in lane.marks:
        x = axis.x(mark.from_ms)
        if abs(x - former) >= _APART:
            former = x
            title = f"<title>{second_text(mark.from_ms)}</title>" if len(lane.marks) <= _TITLES_MAX else ""
            marks.append(f"<use href='#mark-{mark.kind}' class='{mark.kind}' x='{x:g}%' y='9'>{title}</use>")
    is_always = len(lane.spans) == 1 and lane.spans[0][1] is None
    taken = "taken all the time" if is_always else f"taken {number_text(len(lane.spans), 'time')}"
    label = f"{_safe(seat)}: {taken}, {number_text(len(lane.marks), 'return')}"
    return (
        f"<li class='row'><span class='name' title='{_safe(seat, 300)}' aria-hidden='true'>{_safe(seat)}</span>"
        f"<svg height='18' role='img' aria-label='{label}'>{''.join(marks)}</svg></li>"
    )


def _steps(story: Story) -> Iterator[str]:
    """The drawing in words: for readers who can't see it, and for readers who want to copy it."""
    steps = list(story.steps)[-STEPS_SHOWN:]
    if not steps:
        return
    which = f"the last {len(steps)} of {len(story.steps):,}" if len(steps) < len(story.steps) else "all"
    heads = "#when|what|#generation|#members|what changed"
    rows = (
        _row(heads, second_text(ts), escape(kind), generation, members, _safe(cause, _DETAIL_MAX))
        for ts, kind, generation, members, cause in steps
    )
    yield f"<details><summary>Step by step ({which})</summary>"
    yield from _table(heads, rows)
    yield "</details>"


# -- bytes, and the table of all groups


def _bytes(stories: Sequence[Story]) -> Iterator[str]:
    yield "<h2 id='bytes'>Bytes by group</h2>"
    largest = by_size(stories)[:BARS_MAX]
    if not largest:
        yield "<div class='card'><p>There is no group.</p></div>"
        return
    most = max(largest[0].bytes, 1)
    yield "<div class='card bars'><ul class='rows' aria-label='Bytes by group'>"
    for story in largest:
        own, both = 100 * story.group_bytes / most, 100 * story.bytes / most
        offsets = size_text(story.bytes - story.group_bytes)
        label = f"{size_text(story.group_bytes)} of the group, {offsets} of committed offsets"
        yield (
            f"<li class='row'><span class='name' title='{_safe(story.group, 300)}'>{_safe(story.group)}</span>"
            f"<svg height='16' role='img' aria-label='{label}'>"
            f"<rect class='area' y='1' width='{max(both, 0.2):.4g}%' height='14' rx='2'/>"
            f"<rect class='seat' y='1' width='{own:.4g}%' height='14' rx='2'/></svg>"
            f"<span class='dim'>{size_text(story.bytes)}</span></li>"
        )
    yield "</ul>"
    yield "<p class='legend'>"
    for style, meaning in (("seat", "its own records: each holds all of its members"), ("area", "committed offsets")):
        yield "<span><svg class='key' width='14' height='16' aria-hidden='true'>"
        yield f"<rect class='{style}' y='2' width='14' height='12'/></svg>{meaning}</span>"
    yield "</p>"
    if len(stories) > len(largest):
        yield _dim(f"{len(stories) - len(largest):,} smaller groups are in the table below.")
    yield from (
        f"<p><strong>{_safe(story.group)}</strong>: {escape(growth)}.</p>"
        for story in largest
        if (growth := growth_text(story))
    )
    yield "</div>"


def _partitions(result: AuditResult) -> Iterator[str]:
    """The groups of each partition: they are lost if the partition is lost."""
    groups: dict[int, list[Story]] = defaultdict(list)
    for story in result.stories:
        if not story.deleted:
            groups[story.partition].append(story)
    yield "<h2 id='partitions'>Groups by partition</h2>"
    if not groups:
        yield "<div class='card'><p>No partition has a group.</p></div>"
        return
    order = sorted(groups, key=lambda partition: (-len(groups[partition]), partition))
    rows = _within(PARTITIONS_SIZE_MAX, (_partition_row(each, result, groups[each]) for each in order))
    yield "<div class='card'>"
    yield from _table(_LOST, rows, "Groups by partition")
    if len(rows) < len(order):
        yield _dim(f"{len(order) - len(rows):,} more partitions have no room here.")
    yield "</div>"


def _partition_row(partition: int, result: AuditResult, stories: Sequence[Story]) -> str:
    names = names_text([_safe(story.group) for story in stories[:NAMES_MAX]], len(stories), NAMES_MAX)
    return _row(_LOST, partition, size_text(result.sizes.get(partition, 0)), f"{len(stories):,}", names)


def _all(stories: Sequence[Story], found: Counter[tuple[str, int]], anchors: Anchors) -> Iterator[str]:
    yield "<h2 id='all-groups'>All groups</h2>"
    if not stories:
        yield "<div class='card'><p>The log has no group.</p></div>"
        return
    rows = _within(ROWS_SIZE_MAX, (_group_row(each, found, anchors) for each in stories))
    yield "<div class='card'>"
    begin = "<table class='groups'><caption>Groups with findings first, then those with most events.</caption>"
    yield from _table(_GROUP, rows, "Table of all groups", begin)
    if len(rows) < len(stories):
        yield _dim(f"{len(stories) - len(rows):,} quieter groups have no room here; summary.json has all of them.")
    yield "</div>"


def _group_row(story: Story, found: Counter[tuple[str, int]], anchors: Anchors) -> str:
    last = second_text(story.last_ms)
    day = second_text(story.first_ms)[: len("2000-01-01 ")]
    state = state_text(story).removeprefix("generation ")
    numbers = (
        found[story.group, story.partition] or "-", story.partition, escape(state),
        story.member_count if story.group_type in READ else "-", least_text(story.rebalances, story),
        story.rebalances_per_hour, least_text(story.return_count, story), len(story.committed),
    )  # fmt: skip
    cells = "".join(f"<td>{each}</td>" for each in numbers)
    return (
        f"<tr><th scope='row'>{_group_link(story.group, story.partition, anchors)}</th>{cells}"
        f"<td data-value='{story.bytes}'>{size_text(story.bytes)}</td>"
        f"<td>{second_text(story.first_ms)} to {last.removeprefix(day)}</td></tr>"
    )


# -- words


def _safe(text: str, size_max: int = _NAME_MAX) -> str:
    """Text from a log as safe text: shortened, invisible characters spelt out, markup escaped."""
    shown = printable(text if len(text) <= size_max else f"{text[: size_max - 1]}…")
    return escape(shown)


def _table(heads: str, rows: Iterable[str], name: str = "", begin: str = "<table>") -> Iterator[str]:
    """A table that scrolls; by keys, if it has a name. heads: columns between bars, those of numbers behind a #."""
    region = f" tabindex='0' role='region' aria-label='{name}'" if name else ""
    yield f"<div class='wide'{region}>{begin}<thead><tr>"
    yield from (f"<th scope='col'{_aligned(head)}>{head.removeprefix('#')}</th>" for head in heads.split("|"))
    yield "</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table></div>"


def _row(heads: str, *cells: object) -> str:
    """A row of a table with these columns; the cells are safe text."""
    both = zip(heads.split("|"), cells, strict=True)
    return f"<tr>{''.join(f'<td{_aligned(head)}>{_or_dash(cell)}</td>' for head, cell in both)}</tr>"


def _aligned(head: str) -> str:
    return " class='number'" if head.startswith("#") else ""


def _group_link(group: str | None, partition: int, anchors: Anchors) -> str:
    if group is None:
        return "-"
    anchor = anchors.get((group, partition))
    return _safe(group) if anchor is None else f"<a href='#{anchor}'>{_safe(group)}</a>"


def _badge(severity: Severity) -> str:
    return f"<span class='badge {severity.value}'>{severity.value}</span>"


def _window(first_ms: int, last_ms: int) -> str:
    """A time span as text: begin, end and length."""
    seconds = (last_ms - first_ms) / 1000
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{second_text(first_ms)} to {second_text(last_ms)} ({seconds / size:.3g} {unit})"
    return f"{second_text(first_ms)} to {second_text(last_ms)} ({seconds:.3g} seconds)"


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _dim(text: str) -> str:
    return f"<p class='dim'>{escape(text)}</p>"


def _hash(text: str) -> str:
    """The hash by which a policy allows a style or a script."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _size(text: str) -> int:
    return len(text.encode())


def _within(size_max: int, parts: Iterable[str]) -> list[str]:
    """The first parts that fit into so many bytes."""
    kept = []
    for part in parts:
        size_max -= _size(part)
        if size_max < 0:
            break
        kept.append(part)
    return kept
