"""Lag in time, in words, for `tenure mcp`.

House rule: words call unknown what is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.story.diagnosis import span_text
from coordinator.story.lag_time import GroupLag, LagTime, Rates
from coordinator.text import names_text


def lag_lines(group_id: str, known: GroupLag) -> Iterator[str]:
    """Lines about the lag of a group, then about each of its topics with records to read."""
    whole = known.sums.get(None)
    if whole is None:
        yield f"group {group_id}: no look shows how far it is"
        return
    yield f"group {group_id}: {lag_text(whole, _slow(known))}"
    for topic, each in sorted((topic, each) for topic, each in known.sums.items() if topic is not None and each.lag):
        yield f"  {topic}: {lag_text(each, _slow(known, topic))}"


def _slow(known: GroupLag, topic: str | None = None) -> list[str]:
    """The topic partitions that do not catch up, each with its rates, the longest lag first. topic: None for all."""
    slow = [
        (-each.lag, f"{name}-{index} ({_pace(each.rates)})")
        for (name, index), each in known.partitions.items()
        if each.rates is not None and each.catch_up_s is None and topic in {None, name}
    ]
    return [text for _, text in sorted(slow)]


def _pace(rates: Rates) -> str:
    return f"{rates.in_s:,.1f} records come and {rates.out_s:,.1f} are read in a second"


def lag_text(known: LagTime, slow: Sequence[str] = ()) -> str:
    """A lag in time as a sentence. slow: the topic partitions that do not catch up, of several."""
    rates = known.rates
    pace = "" if rates is None else f"; {_pace(rates)}"
    if not known.lag:
        return f"it has read all{pace}"
    stable = "" if known.stable_lag == known.lag else f" ({known.stable_lag:,} for readers of committed records)"
    end = f"; it does not catch up{f' in {names_text(slow)}' if slow else ''}"
    if known.keeps_up:
        end = "; it keeps up"
    elif known.catch_up_s is not None:
        end = f"; it has read all in {span_text(round(known.catch_up_s * 1000))}"
    age = f"{'at least ' if known.is_least else ''}{span_text(known.behind_ms)}"
    return f"{known.lag:,} records behind{stable}, the oldest came {age} ago{pace}{end if rates else ''}"
