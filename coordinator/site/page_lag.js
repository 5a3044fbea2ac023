/* Lag in records and in time: in words, and as a small graph of the last hour. */

import {drawn, element, grouped, short, span, utc} from "./page_dom.js";

const WIDTH = 180, HEIGHT = 36, EDGE = 2;
const MOMENTS_MAX = 240;  // of a graph: those that the server tells, and those that the page saw since

export const behindText = (told) => told?.behind_ms === null || told?.behind_ms === undefined ? "-" : told.behind_ms === 0 ? "0" : `${told.behind_is_least ? "at least " : ""}${span(told.behind_ms)}`;
export const catchUpText = (told) => told?.catches_up === false ? "never" : told?.catch_up_ms === null || told?.catch_up_ms === undefined ? "-" : told.catch_up_ms === 0 ? told.lag > 0 ? "keeps up" : "0" : span(told.catch_up_ms);
export const rateText = (rate) => rate === null || rate === undefined ? "-" : rate >= 100 ? grouped(Math.round(rate)) : String(Number(rate.toFixed(1)));

/* Readers of committed records don't read records of open transactions, and no request tells which readers a group has. */
export const stableText = (told) => told.stable_lag === null || told.stable_lag === undefined || told.stable_lag === told.lag ? "" : `${grouped(told.stable_lag)} if read_committed`;

/* The moments that the server tells, with those that the page saw since. */
export function followed(seen, told, nowMs) {
  const newest = told.past.at(-1)?.at_ms ?? -Infinity;
  const since = seen.filter((each) => each.at_ms > newest);
  return told.lag === null ? [...told.past, ...since] : [...told.past, ...since, {at_ms: nowMs, lag: told.lag}].slice(-MOMENTS_MAX);
}

/* The lag over time, from nothing to its most. */
export function graph(moments, name) {
  if (moments.length < 2) return element("span", {class: "dim", text: "-"});
  const [first, last] = [moments[0].at_ms, moments.at(-1).at_ms];
  const most = Math.max(...moments.map((each) => each.lag));
  const x = (at) => EDGE + (WIDTH - 2 * EDGE) * (at - first) / Math.max(last - first, 1);
  const y = (lag) => HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * lag / Math.max(most, 1);
  const points = moments.map((each) => `${x(each.at_ms).toFixed(1)},${y(each.lag).toFixed(1)}`);
  const said = `Lag of ${short(name, 60)} in ${span(last - first)} until ${utc(last)}: ${grouped(moments[0].lag)} at first, ${grouped(most)} at most, ${grouped(moments.at(-1).lag)} at last`;
  const box = drawn("svg", {class: "graph", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": said}, said);
  box.append(drawn("polygon", {class: "area", points: [`${EDGE},${HEIGHT - EDGE}`, ...points, `${WIDTH - EDGE},${HEIGHT - EDGE}`].join(" ")}),
    drawn("polyline", {class: "lag", points: points.join(" ")}));
  return box;
}
