"""The report as one HTML page that needs no other file: findings first, then the groups' past, drawn in SVG.

A drawing measures its width in per cent and its height in pixels, and names are text beside it. So a drawing is as wide
as the window, and its letters are as large as all others, on a telephone too. A group with 60 seats and thousands of
restarts has more marks than a screen has pixels, so marks on the same pixel are drawn once.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from coordinator import pages
from coordinator.audit.audit import AuditResult
from coordinator.audit.check.checks import CHECKS, Finding
from coordinator.audit.check.drawing import STEPS_MAX, Step
from coordinator.audit.check.history import READ, Story
from coordinator.audit.show.report import by_size, growth_text, least_text
from coordinator.audit.words import detail_words
from coordinator.group.notes import CLASSIC, CONSUMER
from coordinator.story.counts import number_text, returns_text, unknown_returns_text
from coordinator.story.diagnosis import Severity
from coordinator.story.lanes import Lane
from coordinator.text import printable, second_text, size_text

PAGE_FILE = "report.html"


def _resource(name: str) -> str:
    """Read a file beside this module, which may be in a zip."""
    return files("coordinator.audit.show").joinpath(name).read_text(encoding="utf-8")


FINDINGS_MAX = 100
"""The most findings of one check in the page: a reader with more fixes the cause, or reads findings.parquet."""
DRAWN_MAX = 20
BARS_MAX = 15
STEPS_SHOWN = 50
"""Steps of a group that the page describes in words."""
NAMES_MAX = 20
"""Groups that a row of the table of partitions names."""
FIRST_ROWS = 100
"""Rows of the table of groups before the reader asks for more."""
FINDINGS_SIZE_MAX = 800_000
DRAWINGS_SIZE_MAX = 1_100_000
PARTITIONS_SIZE_MAX = 100_000
ROWS_SIZE_MAX = 2_800_000
"""Bytes of each part. With style, script and bars the page stays below 5 MB, which a telephone can open."""

_NAME_MAX = 100
_DETAIL_MAX = 600
_PIXELS = 500
"""The steps of the time axis: with so few, even a group with many seats and years has room in a page."""
_APART = 100 / 150
"""The least distance between two marks of a seat, in per cent; a triangle is wider than that."""
_TITLES_MAX = 20
"""Restarts of a seat that show their time; with more, the marks lie on top of each other."""
_PLOT_HEIGHT = 104
_FLAT_HEIGHT = 34
"""The height of a drawing if the generation never changed."""
_PLOT_MARGIN = 12
_SEVERITIES = list(Severity)

Anchors = dict[tuple[str, int], str]
"""Group and partition -> the id of its drawing in the page."""

_STYLE = _resource("page.css")
_SCRIPT = _resource("page.js")


def write_page(out: Path, result: AuditResult) -> Path:
    """Write the page; returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / PAGE_FILE
    path.write_text(page(result), encoding="utf-8")
    return path


def page(result: AuditResult) -> str:
    """The whole page."""
    found = Counter((each.group, each.partition) for each in result.findings if each.group is not None)
    # Groups with findings first, then by events, then by size: a reader looks for these.
    stories = sorted(
        result.stories,
        key=lambda each: (
            -found[each.group, each.partition],
            -each.rebalances - each.return_count,
            -each.bytes,
            each.group,
        ),
    )
    # A group with only committed offsets has nothing to draw.
    drawable = [story for story in stories if any(step.generation is not None for step in story.steps)]
    drawn = drawable[:DRAWN_MAX]
    drawings = _within(DRAWINGS_SIZE_MAX, ("\n".join(_drawing(number, each)) for number, each in enumerate(drawn)))
    anchors = {(each.group, each.partition): f"group-{number}" for number, each in enumerate(drawn[: len(drawings)])}
    parts = [
        *_head(result),
        "<main id='main'>",
        *_findings(result.findings, result.counts, anchors),
        *_drawn(drawings, len(drawable)),
        *_bytes(result.stories),
        *_partitions(result),
        *_table(stories, found, anchors),
        "</main>",
        f"<footer>{_dim('Made by tenure audit. Times are UTC. Drawings show what the log covers: a compacted log')}",
        _dim(f"has lost older records. {pages.AUDIT_CHECKS} explains each check, {pages.AUDIT_FILES} this page."),
        "</footer>",
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
    yield "<a class='skip' href='#main'>To the findings</a>"
    yield "<header><h1>Audit of group metadata</h1>"
    yield f"<p class='dim'>{_safe(result.source, 300)}</p>"
    if result.stories:
        first, last = min(each.first_ms for each in result.stories), max(each.last_ms for each in result.stories)
        yield f"<p>The log covers {_window(first, last)}.</p>"
    least = "at least " if any(story.at_least for story in result.stories) else ""
    facts = (
        ("findings", _number(result.counts.total())),
        ("groups", _number(len(result.stories))),
        ("rebalances", least + _number(sum(story.rebalances for story in result.stories))),
        ("returns", least + _number(sum(story.return_count for story in result.stories))),
        ("records", _number(sum(result.records_by_type.values()))),
        ("bytes", size_text(sum(result.sizes.values()))),
        ("partitions", _number(len(result.sizes))),
    )
    yield "<dl class='facts'>"
    yield from (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    yield "</dl>"
    yield "<nav aria-label='Parts of this page'><ul>"
    for anchor, name in (
        ("findings", "Findings"),
        ("drawn", "Generations and seats"),
        ("bytes", "Bytes"),
        ("partitions", "Partitions"),
        ("all-groups", "All groups"),
    ):
        yield f"<li><a href='#{anchor}'>{name}</a></li>"
    yield "</ul></nav>"
    yield from (f"<p class='dim'>Note: {_safe(note, 300)}</p>" for note in result.notes)
    yield "</header>"


# -- findings


def _findings(findings: Sequence[Finding], counts: Counter[str], anchors: Anchors) -> Iterator[str]:
    yield "<h2 id='findings'>Findings</h2>"
    if not findings:
        yield "<div class='card'><p><strong class='good'>Nothing found.</strong> Every check held.</p></div>"
        return
    by_check: dict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        by_check[each.check].append(each)
    order = sorted(by_check, key=lambda check: (_SEVERITIES.index(CHECKS[check].severity), -counts[check], check))
    yield "<div class='card'><table><thead><tr><th scope='col'>severity</th><th scope='col'>check</th>"
    yield "<th scope='col' class='n'>findings</th></tr></thead><tbody>"
    for check in order:
        severity, meaning, _ = CHECKS[check]
        yield (
            f"<tr><td>{_badge(severity)}</td><td><a href='#check-{check}'><code>{check}</code></a> "
            f"<span class='dim'>{escape(meaning)}</span></td><td class='n'>{_number(counts[check])}</td></tr>"
        )
    yield "</tbody></table></div>"
    left = FINDINGS_SIZE_MAX
    for check in order:
        rows = _within(left, (_finding(each, anchors) for each in by_check[check][:FINDINGS_MAX]))
        left -= sum(map(_size, rows))
        yield from _check(check, rows, len(by_check[check]), counts[check])


def _check(check: str, rows: Sequence[str], kept: int, count: int) -> Iterator[str]:
    """A check: its meaning, the advice, and its findings."""
    yield f"<section class='card check' id='check-{check}' aria-labelledby='name-{check}'>"
    yield f"<h3 id='name-{check}'>{_badge(CHECKS[check].severity)}<code>{check}</code>"
    yield f"<small>{_number(count)} {'finding' if count == 1 else 'findings'}</small></h3>"
    yield f"<p>{_code(escape(CHECKS[check].advice, quote=False))}</p>"
    if rows:
        yield f"<div class='scroll' tabindex='0' role='region' aria-label='Findings of {check}'><table><thead><tr>"
        yield "<th scope='col'>group</th><th scope='col' class='n'>generation</th><th scope='col' class='n'>partition"
        yield "</th><th scope='col' class='n'>offset</th><th scope='col'>detail</th></tr></thead><tbody>"
        yield from rows
        yield "</tbody></table></div>"
    if len(rows) < kept:
        yield _dim(f"{_number(kept - len(rows))} more are in findings.parquet.")
    if kept < count:
        yield _dim(f"{_number(count - kept)} more are only counted.")
    yield "</section>"


def _finding(finding: Finding, anchors: Anchors) -> str:
    return (
        f"<tr><td class='id'>{_group_link(finding.group, finding.partition, anchors)}</td>"
        f"<td class='n'>{_or_dash(finding.generation)}</td>"
        f"<td class='n'>{finding.partition}</td><td class='n'>{_or_dash(finding.offset)}</td>"
        f"<td class='wide'>{_detail(finding.detail)}</td></tr>"
    )


def _detail(text: str) -> str:
    """The detail of a finding as words instead of JSON."""
    left = _DETAIL_MAX
    words = []
    for name, value in detail_words(text):
        shown = _safe(value, max(left, _NAME_MAX))
        words.append(f"<span class='key'>{_safe(name)}</span> {shown}" if name else shown)
        left -= len(value)
    return "; ".join(words)


# -- groups, drawn


def _drawn(drawings: Sequence[str], count: int) -> Iterator[str]:
    yield "<h2 id='drawn'>Generations and seats</h2>"
    if not drawings:
        why = "There is no room to draw a group." if count else "There is no group to draw."
        yield f"<div class='card'><p>{why}</p></div>"
        return
    yield (
        "<p class='legend dim'><small>A seat is an instance id, or the member id of a member without one.<br>"
        + _legend(
            seat="taken", mark="a static member came back under a new member id", dot="a generation",
            empty="the group is empty",
        )
        + "</small></p>"
    )  # fmt: skip
    yield "<svg class='shapes' aria-hidden='true'><path id='return' class='mark' d='M0 3l5 12h-10z'/></svg>"
    yield from drawings
    if len(drawings) < count:
        yield _dim(
            f"{_number(count - len(drawings))} quieter groups are not drawn; all of them are in the table below."
        )


def _drawing(number: int, story: Story) -> Iterator[str]:
    """A group: its past in words, its generations, and a lane for each seat."""
    yield f"<section class='card' id='group-{number}' aria-labelledby='title-{number}'>"
    yield f"<h3 id='title-{number}'>{_safe(story.group)}</h3>"
    yield f"<p>{_sentences(story)}</p>"
    yield f"<p class='dim'><small>{_window(story.first_ms, story.last_ms)}, partition {story.partition}</small></p>"
    for client_id, why in sorted(story.old_clients.items())[:3]:
        yield f"<p class='dim'><small>Note: {_safe(client_id)}: {escape(why)}</small></p>"
    known = [step for step in story.steps if step.generation is not None]
    if known:
        axis = _Axis.of(min(story.first_ms, known[0].ts), story.last_ms)
        yield "<figure>"
        yield from _generations(story, known, axis)
        if story.lanes:
            yield f"<ul class='rows' aria-label='Seats of {_safe(story.group)}'>"
            for seat, lane in sorted(story.lanes.items(), key=_lane_order):
                yield _lane(seat, lane, axis)
            yield "</ul>"
        yield f"<div class='row axis'><span class='name dim'>UTC</span>{_times(axis)}</div>"
        if story.seats_left_out:
            yield f"<figcaption>Only the first {len(story.lanes)} seats are drawn.</figcaption>"
        if len(story.steps) == STEPS_MAX:
            yield f"<figcaption>Only the last {_number(STEPS_MAX)} records are drawn.</figcaption>"
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
    causes = ", ".join(f"{_number(count)} {_safe(cause)}" for cause, count in both)
    unseen = f"; {_number(story.rebalances_unseen)} left no record" if story.rebalances_unseen else ""
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

    @classmethod
    def of(cls, first_ms: int, last_ms: int) -> _Axis:
        """An axis from one time to another."""
        return cls(first_ms, max(last_ms - first_ms, 1))

    def x(self, ts: int) -> float:
        """The per cent for a time, in steps of the axis."""
        part = min(max((ts - self.first_ms) / self.span_ms, 0.0), 1.0)
        return round(part * _PIXELS) * 100 / _PIXELS

    def ticks(self) -> list[int]:
        """The times of the labels: one at least, five at most."""
        step = next((each for each in _TICKS_MS if self.span_ms / each <= 4.5), self.span_ms // 4)
        first = -(-self.first_ms // step) * step
        return list(range(first, self.first_ms + self.span_ms + 1, step))[:5] or [self.first_ms]


_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_TICKS_MS = (
    *(each * _SECOND_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * _MINUTE_MS for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR_MS for each in (1, 2, 3, 6, 12)),
    *(each * _DAY_MS for each in (1, 2, 3, 7, 14, 30, 90, 365, 3_650)),
)


def _times(axis: _Axis) -> str:
    ticks = axis.ticks()
    step = ticks[1] - ticks[0] if len(ticks) > 1 else axis.span_ms
    form = (
        "%d %b %Y"
        if step >= _DAY_MS
        else "%d %b %H:%M"
        if axis.span_ms >= _DAY_MS
        else "%H:%M"
        if step >= _MINUTE_MS
        else "%H:%M:%S"
    )
    labels = []
    for ts in ticks:
        x = axis.x(ts)
        anchor = "start" if x < 6 else "end" if x > 94 else "middle"
        labels.append(f"<text x='{x:g}%' y='15' text-anchor='{anchor}'>{escape(_moment(ts, form))}</text>")
    return f"<svg height='22' aria-hidden='true'>{''.join(labels)}</svg>"


def _moment(ts: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(ts / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return str(ts)


def _generations(story: Story, known: Sequence[Step], axis: _Axis) -> Iterator[str]:
    values = [step.generation or 0 for step in known]
    low, high = min(values), max(values)
    height = _PLOT_HEIGHT if low < high else _FLAT_HEIGHT
    bottom = height - _PLOT_MARGIN

    def y(generation: int) -> float:
        if low == high:
            return height / 2
        return round(bottom - (bottom - _PLOT_MARGIN) * (generation - low) / (high - low), 1)

    labels = _integer_ticks(low, high)
    what = f"Generation {low}" if low == high else f"Generation from {low} to {high}"
    rebalances = number_text(story.rebalances, "rebalance", at_least=story.at_least)
    label = f"{what}, {rebalances}, {_window_text(story.first_ms, story.last_ms)}"
    yield f"<div class='row plot'><svg class='name' height='{height}' aria-hidden='true'>"
    for generation in labels:
        word = "<tspan class='far'>generation </tspan>" if generation == labels[-1] else ""
        yield f"<text x='100%' y='{y(generation) + 4:g}' text-anchor='end'>{word}{generation}</text>"
    yield f"</svg><svg height='{height}' role='img' aria-label='{escape(label)}'>"
    for generation in labels:
        yield f"<line class='grid' x1='0' x2='100%' y1='{y(generation):g}' y2='{y(generation):g}'/>"
    for ts in axis.ticks():
        yield f"<line class='grid' x1='{axis.x(ts):g}%' x2='{axis.x(ts):g}%' y1='0' y2='{height}'/>"
    yield from _line(known, axis, y)
    yield from _dots(story.steps, axis, y, height)
    yield "</svg></div>"


def _line(known: Sequence[Step], axis: _Axis, y: Callable[[int], float]) -> Iterator[str]:
    """The generation over time, as a staircase."""
    x, height = axis.x(known[0].ts), y(known[0].generation or 0)
    for step in known[1:]:
        next_x, next_height = axis.x(step.ts), y(step.generation or 0)
        if next_height != height and next_x >= x:
            yield f"<line class='step' x1='{x:g}%' x2='{next_x:g}%' y1='{height:g}' y2='{height:g}'/>"
            yield f"<line class='step' x1='{next_x:g}%' x2='{next_x:g}%' y1='{height:g}' y2='{next_height:g}'/>"
            x, height = next_x, next_height
    yield f"<line class='step' x1='{x:g}%' x2='100%' y1='{height:g}' y2='{height:g}'/>"


def _dots(steps: Iterable[Step], axis: _Axis, y: Callable[[int], float], height: int) -> Iterator[str]:
    drawn = set()
    for step in steps:
        x = axis.x(step.ts)
        if step.generation is None:
            mark = f"<line class='{escape(step.kind)}' x1='{x:g}%' x2='{x:g}%' y1='0' y2='{height}'>"
            end, title = "</line>", step.cause
        elif step.kind in {"generation", "empty"}:
            style = "empty" if step.kind == "empty" else "dot"
            mark = f"<circle class='{style}' cx='{x:g}%' cy='{y(step.generation):g}' r='3.5'>"
            end, title = (
                "</circle>",
                f"generation {step.generation}, {number_text(step.members, 'member')}: {step.cause}",
            )
        else:
            continue
        if mark not in drawn:
            drawn.add(mark)
            yield f"{mark}<title>{_safe(title, _DETAIL_MAX)}, {second_text(step.ts)}</title>{end}"


def _integer_ticks(low: int, high: int) -> list[int]:
    """Numbers for an axis: both ends, and round numbers between them with some distance to the ends."""
    step = 1
    for factor in (2, 2.5, 2) * 6:
        if (high - low) / step <= 4:
            break
        step = int(step * factor)
    between = [each for each in range(-(-low // step) * step, high, step) if each - low >= step / 2 <= high - each]
    return sorted({low, high, *between[:5]})


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
    marks = [f"<line class='grid' x1='{axis.x(ts):g}%' x2='{axis.x(ts):g}%' y1='0' y2='18'/>" for ts in axis.ticks()]
    spans: list[list[float]] = []
    for start, end in lane.spans:
        x, until = axis.x(axis.first_ms if start is None else start), axis.x(last_ms if end is None else end)
        if spans and x - spans[-1][0] < _APART:
            spans[-1][1] = max(until, spans[-1][1])
        else:
            spans.append([x, until])
    marks += (
        f"<rect class='seat' x='{x:g}%' y='3' width='{max(until - x, 0.3):.3g}%' height='12' rx='2'/>"
        for x, until in spans
    )
    former = -_APART
    for mark in lane.marks:
        x = axis.x(mark.from_ms)
        if abs(x - former) >= _APART:
            former = x
            title = f"<title>{second_text(mark.from_ms)}</title>" if len(lane.marks) <= _TITLES_MAX else ""
            marks.append(f"<use href='#return' x='{x:g}%'>{title}</use>")
    taken = (
        "taken all the time"
        if len(lane.spans) == 1 and lane.spans[0][1] is None
        else f"taken {number_text(len(lane.spans), 'time')}"
    )
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
    which = f"the last {len(steps)} of {_number(len(story.steps))}" if len(steps) < len(story.steps) else "all"
    yield f"<details><summary>Step by step ({which})</summary><div class='scroll'><table><thead><tr>"
    yield "<th scope='col'>when</th><th scope='col'>what</th><th scope='col' class='n'>generation</th>"
    yield "<th scope='col' class='n'>members</th><th scope='col'>what changed</th></tr></thead><tbody>"
    for step in steps:
        yield (
            f"<tr><td class='t'>{second_text(step.ts)}</td><td>{escape(step.kind)}</td>"
            f"<td class='n'>{_or_dash(step.generation)}</td><td class='n'>{step.members}</td>"
            f"<td>{_safe(step.cause, _DETAIL_MAX)}</td></tr>"
        )
    yield "</tbody></table></div></details>"


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
            f"<rect class='offsets' y='1' width='{max(both, 0.2):.4g}%' height='14' rx='2'/>"
            f"<rect class='seat' y='1' width='{own:.4g}%' height='14' rx='2'/></svg>"
            f"<span class='size'>{size_text(story.bytes)}</span></li>"
        )
    yield "</ul>"
    yield (
        "<p class='legend dim'><small>"
        + _legend(
            seat="the group's own records: each holds all of its members", offsets="committed offsets",
        )
        + "</small></p>"
    )  # fmt: skip
    if len(stories) > len(largest):
        yield _dim(f"{_number(len(stories) - len(largest))} smaller groups are in the table below.")
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
    yield "<div class='card'><div class='scroll' tabindex='0' role='region' aria-label='Groups by partition'><table>"
    yield "<thead><tr><th scope='col' class='n'>partition</th><th scope='col' class='n'>bytes</th>"
    yield "<th scope='col' class='n'>groups</th><th scope='col'>lost with it</th></tr></thead><tbody>"
    yield from rows
    yield "</tbody></table></div>"
    if len(rows) < len(order):
        yield _dim(f"{_number(len(order) - len(rows))} more partitions have no room here.")
    yield "</div>"


def _partition_row(partition: int, result: AuditResult, stories: Sequence[Story]) -> str:
    names = ", ".join(_safe(story.group) for story in stories[:NAMES_MAX])
    more = f" and {_number(len(stories) - NAMES_MAX)} more" if len(stories) > NAMES_MAX else ""
    return (
        f"<tr><td class='n'>{partition}</td><td class='n'>{size_text(result.sizes.get(partition, 0))}</td>"
        f"<td class='n'>{_number(len(stories))}</td><td class='wide'>{names}{more}</td></tr>"
    )


def _table(stories: Sequence[Story], found: Counter[tuple[str, int]], anchors: Anchors) -> Iterator[str]:
    yield "<h2 id='all-groups'>All groups</h2>"
    if not stories:
        yield "<div class='card'><p>The log has no group.</p></div>"
        return
    rows = _within(ROWS_SIZE_MAX, (_group_row(each, found, anchors) for each in stories))
    yield "<div class='card'><div class='find' hidden><label for='search'>Groups whose id has</label>"
    yield "<input type='search' id='search' autocomplete='off' spellcheck='false' aria-describedby='shown'></div>"
    yield "<div class='scroll' tabindex='0' role='region' aria-label='Table of all groups'><table class='groups'>"
    yield "<caption><small id='shown' role='status'>"
    yield "Groups with findings first, then those with most events.</small></caption>"
    yield "<thead><tr><th scope='col'>group</th>"
    for name in (
        "findings",
        "partition",
        "generation",
        "members",
        "rebalances",
        "per hour",
        "returns",
        "offsets",
        "bytes",
    ):
        yield f"<th scope='col' class='n'>{name}</th>"
    yield "<th scope='col' class='n'>covered, UTC</th></tr></thead><tbody id='all'>"
    yield from rows
    yield "</tbody></table></div>"
    yield f"<button type='button' id='more' data-rows='{FIRST_ROWS}' hidden>Show all that fit</button>"
    if len(rows) < len(stories):
        yield _dim(
            f"{_number(len(stories) - len(rows))} quieter groups have no room here; summary.json has all of them."
        )
    yield "</div>"


def _state(story: Story) -> object:
    if story.deleted:
        return "deleted"
    return _or_dash(story.generation) if story.group_type in READ else escape(story.group_type)


def _group_row(story: Story, found: Counter[tuple[str, int]], anchors: Anchors) -> str:
    last = second_text(story.last_ms)
    day = second_text(story.first_ms)[: len("2000-01-01 ")]
    numbers = (
        found[story.group, story.partition] or "-", story.partition, _state(story),
        story.member_count if story.group_type in READ else "-", least_text(story.rebalances, story),
        story.rebalances_per_hour, least_text(story.return_count, story), len(story.committed), size_text(story.bytes),
    )  # fmt: skip
    cells = "".join(f"<td>{each}</td>" for each in numbers)
    return (
        f"<tr><th scope='row'>{_group_link(story.group, story.partition, anchors)}</th>{cells}"
        f"<td>{second_text(story.first_ms)} to {last.removeprefix(day)}</td></tr>"
    )


# -- words


def _safe(text: str, size_max: int = _NAME_MAX) -> str:
    """Text from a log as safe text: shortened, invisible characters spelt out, markup escaped."""
    shown = printable(text if len(text) <= size_max else f"{text[: size_max - 1]}…")
    return escape(shown)


def _group_link(group: str | None, partition: int, anchors: Anchors) -> str:
    if group is None:
        return "-"
    anchor = anchors.get((group, partition))
    return _safe(group) if anchor is None else f"<a href='#{anchor}'>{_safe(group)}</a>"


def _badge(severity: Severity) -> str:
    return f"<span class='badge {severity.value}'>{severity.value}</span>"


def _legend(**meanings: str) -> str:
    """The meaning of each colour or shape."""
    shapes = {
        "dot": "<circle class='dot' cx='7' cy='5' r='3.5'/>",
        "empty": "<circle class='empty' cx='7' cy='5' r='3.5'/>",
        "mark": "<path class='mark' d='M7 0l4 10h-8z'/>",
    }
    found = []
    for style, meaning in meanings.items():
        shape = shapes.get(style, f"<rect class='{style}' width='14' height='10' rx='2'/>")
        found.append(f"<span><svg class='key-of' aria-hidden='true'>{shape}</svg>{escape(meaning)}</span>")
    return " ".join(found)


def _code(text: str) -> str:
    """Escaped text, with text in backquotes as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text)


def _window(first_ms: int, last_ms: int) -> str:
    return escape(_window_text(first_ms, last_ms))


def _window_text(first_ms: int, last_ms: int) -> str:
    """A time span as text: begin, end and length."""
    seconds = (last_ms - first_ms) / 1000
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{second_text(first_ms)} to {second_text(last_ms)} ({seconds / size:.3g} {unit})"
    return f"{second_text(first_ms)} to {second_text(last_ms)} ({seconds:.3g} seconds)"


def _number(number: int) -> str:
    return f"{number:,}"


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
