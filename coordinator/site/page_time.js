/* Ranges of time and their ticks. A time is Unix time in ms. */

import {utc} from "./page_dom.js";

const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
  1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000, 172_800_000, 604_800_000];

export const clamp = (number, least, most) => Math.min(Math.max(number, least), most);

/* From the first event to now; to a while after the last one, if nobody has a seat and it is quiet for longer than it lived. */
export function fitting(times, nowMs, isTaken = false) {
  if (times.length === 0) return [nowMs - 60_000, nowMs];
  const first = times.reduce((one, other) => Math.min(one, other)), last = times.reduce((one, other) => Math.max(one, other));
  const lived = Math.max(last - first, 1_000);
  return [first, Math.max(!isTaken && nowMs - last > lived ? last + Math.max(lived / 10, 1_000) : nowMs, first + 1_000)];
}

/* The round times in a range, so many that their labels have room. */
export function ticks(fromMs, toMs, most) {
  const step = TICKS.find((each) => (toMs - fromMs) / each <= most) ?? TICKS.at(-1) * Math.ceil((toMs - fromMs) / TICKS.at(-1) / most);
  const made = [];
  for (let at = Math.ceil(fromMs / step) * step; at <= toMs; at += step) made.push(at);
  const text = (ms) => step >= 86_400_000 ? utc(ms).slice(0, 10)
    : toMs - fromMs > 86_400_000 ? utc(ms).slice(5, 16) + "Z"
    : step >= 1_000 ? utc(ms).slice(11, 19) + "Z" : utc(ms).slice(11);
  return made.map((ms) => [ms, text(ms)]);
}
