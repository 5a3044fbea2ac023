/* The picture: each seat is a lane over time. The range of time is in the address, or fits what happened. */

import {$, badge, drawn, element, label, several, short, span, utc} from "./page_dom.js";
import {here, range, replace, time, timeText} from "./page_address.js";
import {Table} from "./page_table.js";
import {clamp, fitting, ticks} from "./page_time.js";

const TOP = 24, MARK = 6, BAR = 12, PILL = 14, LETTER = 7.5, STRIP = 26;
const TEXTS_MAX = 10;  // the texts in the tooltip of a mark that stands for several
const NARROW = 600;  // a narrower drawing has the names above the lanes, not beside them
const LANES_STEP = 60;  // lanes that are drawn at once
const LEAST_MS = 20, MOST_MS = 400 * 86_400_000;  // of a range
const TICK_PX = 110;

let shown = {entries: [], lanes: []};
let all = [0, 1];  // the range that has everything
let view = [0, 1];
let lanesMax = LANES_STEP;
let changed = () => {};
let table = null;
let dragged = null;
export let drawnWidth = 0;

const look = (mark) => ["restart", "rejoin", "return"].includes(mark.kind) && mark.rebalances ? "restart moves" : mark.kind;

/* Marks that look alike and would touch become one mark with their number. x: the position of a time, in pixels. */
export function together(marks, x) {
  const made = [];
  const newest = new Map();
  for (const mark of marks.toSorted((one, other) => one.from_ms - other.from_ms)) {
    const last = newest.get(look(mark));
    if (last !== undefined && x(mark.from_ms) - x(last.until_ms) < 2 * MARK) {
      last.until_ms = Math.max(last.until_ms, mark.until_ms);
      last.times += mark.times;
      last.text = [...last.text, ...mark.text].slice(0, TEXTS_MAX);
    } else {
      newest.set(look(mark), {...mark});
      made.push(newest.get(look(mark)));
    }
  }
  return made;
}

export const inView = ({from_ms: from, until_ms: until}) => (from ?? -Infinity) <= view[1] && (until ?? Infinity) >= view[0];
export const isAll = () => view[0] <= all[0] && view[1] >= all[1];

function go(from, to) {
  const size = clamp(to - from, LEAST_MS, MOST_MS);
  const middle = clamp((from + to) / 2, 0, 4e12);
  const [fromMs, toMs] = [Math.floor(middle - size / 2), Math.ceil(middle + size / 2)];
  replace({...here(), from: timeText(Math.max(fromMs, 0)), to: timeText(toMs)});
  follow();
}

function goAll() {
  replace({group: here().group});
  follow();
}

/* Shows the range that the address names. */
export function follow() {
  unmark();
  setView();
  draw();
  changed();
}

function setView() {
  const named = range();
  const [from, to] = [named?.fromMs ?? all[0], named?.toMs ?? all[1]];
  view = to > from ? [from, to] : all;
}

const zoom = (factor, at = (view[0] + view[1]) / 2) => go(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
const pan = (share) => go(view[0] + (view[1] - view[0]) * share, view[1] + (view[1] - view[0]) * share);
const lately = (ms) => go(Date.now() - ms, Date.now());

function shapeOf(mark, x, y, right, name) {
  const at = x(mark.from_ms);
  const kind = look(mark);
  const text = mark.text.join("\n");
  const lower = mark.kind === "fencing" ? MARK : -MARK / 2;  // a restart and a fencing often have the same time
  if (mark.times === 1) return drawn("use", {href: `#mark-${mark.kind}`, x: at, y: y + lower, class: kind, "data-member": name}, text);
  const made = drawn("g", {class: kind, "data-member": name}, text);
  const width = Math.max(x(mark.until_ms) - at + 2 * MARK, 2 * MARK + String(mark.times).length * LETTER);
  const left = Math.min(at - MARK, right - width);
  made.append(drawn("rect", {x: left, y: y + lower - PILL / 2, width, height: PILL, rx: PILL / 2}));
  made.append(label(left + width / 2, y + lower + 4, mark.times, "count", "middle"));
  return made;
}

const taken = (name, {from_ms: from, until_ms: until}) =>
  `${name} holds its seat ${from === null ? "since before the first event" : `from ${utc(from)}`} ${until === null ? "on" : `until ${utc(until)}`}`;

/* The drawing is as wide as its frame, and its unit is a pixel, so that text has its real size. */
export function draw() {
  const {entries, lanes} = shown;
  $("lanes").hidden = lanes.length === 0;
  if (lanes.length === 0) return;
  const looks = new Set(lanes.flatMap((lane) => lane.marks.flatMap((mark) => look(mark).split(" "))));
  for (const kind of ["moves", "takeover", "fencing", "suspect"]) $(kind).hidden = !looks.has(kind);
  $("standby").hidden = lanes.every((lane) => lane.standby_since_ms === null);
  const [begin, end] = view;
  const nowMs = Math.min(Date.now(), end);
  const width = drawnWidth = $("drawing").clientWidth;
  const isNarrow = width < NARROW;
  const [left, row, over] = isNarrow ? [MARK + 2, 42, 22] : [Math.min(280, Math.max(170, width / 6)), 26, 7];  // over: from a row's top to its lane
  const right = width - 12;
  const x = (ms) => left + (right - left) * (ms - begin) / (end - begin);
  const inside = (ms) => clamp(x(ms), left - MARK, right + MARK);
  const some = lanes.slice(0, lanesMax);
  const height = TOP + some.length * row + 8;
  const rebalances = entries.filter((entry) => entry.type === "rebalance");
  const svg = drawn("svg", {width, height, role: "img", "aria-label": `${several(lanes.length, "lane")}, ${shown.counts}; the list and the table below have all of it in words`});
  const kept = drawn("clipPath", {id: "frame"});
  kept.append(drawn("rect", {x: left - MARK, y: 0, width: right - left + 2 * MARK, height}));
  const moving = drawn("g", {"clip-path": "url(#frame)"});
  svg.append(kept);
  for (const [ms, text] of ticks(begin, end, Math.max(Math.floor((right - left) / TICK_PX), 2))) {
    const at = x(ms);
    svg.append(drawn("line", {x1: at, x2: at, y1: TOP - 6, y2: height, class: "tick"}));
    svg.append(label(clamp(at, left + 34, right - 34), 14, text, "time", "middle"));
  }
  some.forEach((lane, index) => {
    const y = TOP + index * row;
    svg.append(drawn("line", {x1: 0, x2: width, y1: y + row, y2: y + row, class: "lane"}));
    const name = label(8, y + 17, short(lane.name, Math.floor(((isNarrow ? width : left) - 12) / LETTER)), "name");
    name.append(drawn("title", {}));
    name.lastChild.textContent = lane.name;
    svg.append(name);
    for (const each of lane.spans) {
      const from = inside(each.from_ms ?? begin), until = inside(each.until_ms ?? nowMs);
      if (!inView(each) || (each.until_ms === null && begin > Date.now())) continue;
      moving.append(drawn("rect", {x: from, y: y + over, width: Math.max(until - from, 2), height: BAR, rx: 3, class: "seat", "data-member": lane.name}, taken(lane.name, each)));
    }
    if (lane.standby_since_ms !== null && lane.standby_since_ms <= end) {
      const from = inside(lane.standby_since_ms);
      moving.append(drawn("rect", {x: from, y: y + over, width: Math.max(inside(nowMs) - from, 2), height: BAR, rx: 3, class: "standby", "data-member": lane.name},
        `${lane.name} waits for a seat as a standby since ${utc(lane.standby_since_ms)}`));
    }
  });
  for (const entry of rebalances) {
    const ended = entry.ended_ms ?? (entry.outcome === null ? nowMs : entry.at_ms);
    if (entry.at_ms > end || ended < begin) continue;
    const from = inside(entry.at_ms);
    moving.append(drawn("rect", {
      x: from, y: TOP, width: Math.max(inside(ended) - from, 3), height: some.length * row,
      class: `rebalance${entry.outcome === null ? " open" : ""}${entry.inferred ? " inferred" : ""}`,
    }, entry.text.join("\n")));
  }
  some.forEach((lane, index) => {
    const y = TOP + index * row + over + BAR / 2;
    const marks = lane.marks.filter(inView);
    for (const mark of together(marks, x)) moving.append(shapeOf(mark, x, y, right, lane.name));
  });
  svg.append(moving);
  if (dragged) svg.append(drawn("rect", {x: Math.min(dragged.from, dragged.to), y: 0, width: Math.abs(dragged.to - dragged.from), height, class: "chosen"}));
  Object.assign($("drawing"), {scale: {left, right}});
  $("drawing").replaceChildren(svg);
  const more = lanes.length - some.length;
  $("more-lanes").hidden = more <= 0;
  $("more-lanes").textContent = `Draw ${Math.min(more, LANES_STEP)} more of ${several(lanes.length, "seat")}`;
  drawStrip(rebalances);
  showRange();
}

/* A strip of the whole life, with the range that is in view. */
function drawStrip(rebalances) {
  const width = $("strip").clientWidth;
  const [first, last] = [Math.min(all[0], view[0]), Math.max(all[1], view[1])];
  const x = (ms) => 2 + (width - 4) * (ms - first) / (last - first);
  const svg = drawn("svg", {width, height: STRIP});
  const drawnAt = new Set();  // a pixel needs one line, however many rebalances there are
  for (const entry of rebalances) {
    const at = Math.round(x(entry.at_ms));
    if (drawnAt.has(at)) continue;
    drawnAt.add(at);
    svg.append(drawn("line", {x1: at, x2: at, y1: 3, y2: STRIP - 3, class: "when"}));
  }
  svg.append(drawn("rect", {x: x(view[0]), y: 1, width: Math.max(x(view[1]) - x(view[0]), 4), height: STRIP - 2, rx: 3, class: "window"}));
  Object.assign($("strip"), {span: {first, last, width}});
  $("strip").replaceChildren(svg);
}

function showRange() {
  const where = view[1] < all[0] ? ", before the first event in memory" : view[0] > Math.max(all[1], Date.now()) ? ", in the future" : "";
  const text = isAll() ? "all that is in memory" : span(view[1] - view[0]) + where;
  if ($("range-said").textContent !== text) $("range-said").textContent = text;
  for (const [id, ms] of [["from", view[0]], ["to", view[1]]]) {
    // What a person types stays, and a text that is no time until there is another range: a look may come at any moment.
    if (document.activeElement !== $(id) && !$(id).hasAttribute("aria-invalid")) $(id).value = utc(ms);
  }
}

function unmark() {
  for (const id of ["from", "to"]) $(id).removeAttribute("aria-invalid");
}

function typed() {
  const [from, to] = ["from", "to"].map((id) => time($(id).value));
  for (const [id, is] of [["from", from !== undefined], ["to", to !== undefined && !(to <= from)]]) {
    is ? $(id).removeAttribute("aria-invalid") : $(id).setAttribute("aria-invalid", "true");
  }
  if (from !== undefined && to > from) go(from, to);
}

function showTable(lanes) {
  const list = (texts) => element("ul", {}, ...texts.map((text) => element("li", {text})));
  table ??= new Table($("lanes-table"), [
    {key: "seat", name: "Seat", value: (lane) => lane.name},
    {key: "now", name: "Now", value: (lane) => lane.standby_since_ms !== null ? "standby" : lane.spans.at(-1)?.until_ms === null ? "taken" : "free",
      cell: (lane) => lane.standby_since_ms !== null ? badge("standby", "calm") : lane.spans.at(-1)?.until_ms === null ? badge("taken", "good") : badge("free", "calm")},
    {key: "taken", name: "Taken", long: true, value: (lane) => lane.spans.map((each) => `${each.from_ms === null ? "" : utc(each.from_ms)}/${each.until_ms === null ? "" : utc(each.until_ms)}`).join(" "),
      cell: (lane) => lane.spans.length ? list(lane.spans.map((each) => `${each.from_ms === null ? "before the first event" : utc(each.from_ms)} to ${each.until_ms === null ? "now" : utc(each.until_ms)}`)) : "-"},
    {key: "marks", name: "What happened to it", long: true, value: (lane) => lane.marks.flatMap((mark) => mark.text).join(" / "),
      cell: (lane) => lane.marks.length ? list(lane.marks.flatMap((mark) => mark.text)) : "-"},
  ], {name: "seats", size: 50});
  table.show(lanes);
}

/* Draws a group. entries, lanes: as /groups/GROUP/events has them. counts: their numbers in words. */
export function show(now) {
  shown = now;
  const times = now.entries.flatMap((entry) => [entry.at_ms, entry.ended_ms ?? entry.at_ms]);
  const known = now.lanes.flatMap((lane) => lane.standby_since_ms ?? []);
  all = fitting([...times, ...known], Date.now(), now.lanes.some((lane) => lane.spans.at(-1)?.until_ms === null));
  setView();
  draw();
  showTable(now.lanes);
}

export function forget() {
  unmark();
  lanesMax = LANES_STEP;
}

function listenToPointer() {
  const box = $("drawing");
  const at = (event) => event.clientX - box.getBoundingClientRect().left - box.clientLeft;
  const ms = (pixel) => view[0] + (view[1] - view[0]) * (clamp(pixel, box.scale.left, box.scale.right) - box.scale.left) / (box.scale.right - box.scale.left);
  box.addEventListener("pointerdown", (event) => {
    // A finger scrolls the page.
    if (event.button === 0 && event.pointerType !== "touch" && at(event) >= box.scale.left) {
      dragged = {from: at(event), to: at(event)};
      box.setPointerCapture(event.pointerId);
      event.preventDefault();
      box.focus({preventScroll: true});
    }
  });
  box.addEventListener("pointermove", (event) => { if (dragged) { dragged.to = at(event); draw(); } });
  box.addEventListener("pointerup", () => {
    const chosen = dragged;
    dragged = null;
    if (!chosen) return;
    const [from, to] = [chosen.from, chosen.to].toSorted((one, other) => one - other);
    to - from > 5 ? go(ms(from), ms(to)) : draw();
  });
  box.addEventListener("pointercancel", () => { dragged = null; draw(); });
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;  // without a key the wheel scrolls the page
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1 / 1.5 : 1.5, ms(at(event)));
  }, {passive: false});
  const strip = $("strip");
  let moves = false;
  const move = (event) => {
    const {first, last, width} = strip.span;
    const middle = first + (last - first) * (event.clientX - strip.getBoundingClientRect().left) / width;
    go(middle - (view[1] - view[0]) / 2, middle + (view[1] - view[0]) / 2);
  };
  strip.addEventListener("pointerdown", (event) => { moves = !isAll(); if (moves) { strip.setPointerCapture(event.pointerId); move(event); } });
  strip.addEventListener("pointermove", (event) => { if (moves) move(event); });
  for (const name of ["pointerup", "pointercancel"]) strip.addEventListener(name, () => { moves = false; });
}

/* then: called when the range changes. */
export function open(then) {
  changed = then;
  const keys = {ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Home: goAll, 0: goAll};
  $("drawing").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  const does = {all: goAll, hour: () => lately(3_600_000), minutes: () => lately(600_000), in: () => zoom(0.5), out: () => zoom(2), earlier: () => pan(-0.5), later: () => pan(0.5)};
  for (const button of $("range").querySelectorAll("button")) button.addEventListener("click", does[button.dataset.does]);
  for (const id of ["from", "to"]) $(id).addEventListener("change", typed);
  $("more-lanes").addEventListener("click", () => { lanesMax += LANES_STEP; draw(); });
  listenToPointer();
  new ResizeObserver(() => { if ($("drawing").clientWidth !== drawnWidth) draw(); }).observe($("drawing"));
}
