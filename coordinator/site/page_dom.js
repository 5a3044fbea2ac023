/* Elements, words and questions that all rooms of the page share. All text goes in by textContent. */

const SVG = "http://www.w3.org/2000/svg";
const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]];
const SOON_MS = 250;
const REST = 3, REST_MAX_MS = 5_000;  // a question that takes long is asked again after so many times as long

export const $ = (id) => document.getElementById(id);

export function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") made.textContent = value;
    else if (key === "does") made.addEventListener("click", value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) {
    const title = document.createElementNS(SVG, "title");
    title.textContent = text;
    made.append(title);
  }
  return made;
}

export function label(x, y, text, kind, anchor = "start") {
  const made = drawn("text", {x, y, class: kind, "text-anchor": anchor});
  made.textContent = text;
  return made;
}

export const several = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
/* Long names often differ at their ends, so the middle goes. */
export const short = (name, most) => name.length > most ? `${name.slice(0, Math.ceil((most - 1) / 2))}…${name.slice(name.length - Math.floor((most - 1) / 2))}` : name;
export const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);
export const iso = (ms) => Number.isNaN(new Date(ms).getTime()) ? String(ms) : new Date(ms).toISOString();  // a record may have any number
export const utc = (ms) => iso(ms).replace("T", " ");  // as the command line writes it
export const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
export const named = (group) => group || "(empty name)";

/* A duration in its two largest units. */
export function span(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Number((ms / 1_000).toFixed(1))} s`;
  const at = UNITS.findIndex(([unit]) => ms >= unit);
  const [[large, name], [small, less]] = [UNITS[at], UNITS[at + 1]];
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${name}${rest ? ` ${rest} ${less}` : ""}`;
}

/* How long ago, in one unit: a list needs no more. */
export function ago(ms) {
  const past = Date.now() - ms;
  return past < 1_000 ? "just now" : `${span(past).replace(/\.\d+/, "").split(" ").slice(0, 2).join(" ")} ago`;
}

/* The numbers of partitions, neighbours together: 0-5, 7. */
export function ranges(numbers) {
  const runs = [];
  for (const number of numbers.toSorted((one, other) => one - other)) {
    const last = runs.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([from, to]) => from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}-${to}`).join(", ");
}

const STATES = {
  Stable: ["good", "all members have their partitions"],
  Empty: ["calm", "the group has no members, but may have committed offsets"],
  PreparingRebalance: ["busy", "a rebalance waits for members to join"],
  CompletingRebalance: ["busy", "all have joined, and wait for their partitions"],
  Assigning: ["busy", "the group waits for a new assignment"],
  Reconciling: ["busy", "members move to their new partitions"],
  Dead: ["calm", "the group is being removed"],
  deleted: ["calm", "the group was deleted; events of it are in memory"],
  unknown: ["calm", "there is no such group now, but events of it are in memory"],
};

export function badge(text, kind, title) {
  return element("span", {class: `badge ${kind}`, title, text});
}

export function stateBadge(state) {
  const [kind, title] = STATES[state] ?? ["calm", ""];
  return badge(state, kind, title || null);
}

export const isBusy = (state) => STATES[state]?.[0] === "busy";

const RETURNS = {static_restarts: "static restart", suspect_restarts: "suspect restart", static_rejoins: "rejoin", takeovers: "takeover", static_returns: "return"};
export const CHURN = ["rebalances", ...Object.keys(RETURNS)];

/* The counts of a group, as /overview has them: the returns, those in words, and all in words. */
export const returns = (counts) => sum(Object.keys(RETURNS).map((key) => counts[key]));
export const returnsText = (counts, always) => Object.entries(RETURNS).filter(([key]) => counts[key] || key === always)
  .map(([key, noun]) => several(counts[key], noun) + (key === "static_rejoins" ? " after an outage" : "")).join(", ");
export const churn = (counts) => `${several(counts.rebalances, "rebalance")} begun, ${returnsText(counts, "static_restarts")}`;

/* Whether a text has all words that are typed into a search. */
export const has = (typed, text) => typed.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

/* What is found, and what to do. linked: an element that names the group, or nothing. */
function findingItem(finding, ...linked) {
  const when = finding.last_at_ms === null ? "" : ` (last at ${utc(finding.last_at_ms)})`;
  return element("li", {class: finding.severity},
    element("p", {}, badge(finding.severity, finding.severity), " ", ...linked, element("span", {class: "found", text: finding.found}), when),
    element("p", {class: "advice", text: finding.advice}));
}

/* Shows findings: the first problems, the others, and notices. linked: elements that name the group of a finding. */
export function showFindings(box, findings, most = Infinity, linked = () => []) {
  const isOpen = (kind) => box.querySelector(`details.${kind}`)?.open;
  const list = (some) => element("ul", {}, ...some.map((finding) => findingItem(finding, ...linked(finding))));
  const folded = (kind, some, noun) => some.length ? [element("details", {class: kind, open: isOpen(kind)}, element("summary", {text: several(some.length, noun)}), list(some))] : [];
  const bad = findings.filter((finding) => finding.severity !== "notice"), notices = findings.filter((finding) => finding.severity === "notice");
  box.replaceChildren(...(bad.length ? [list(bad.slice(0, most))] : []), ...folded("more", bad.slice(most), "further problem"), ...folded("notices", notices, "notice"));
}

export async function ask(path) {
  const answer = await fetch(path, {headers: {accept: "application/json"}});
  const body = await answer.json().catch(() => ({error: `${answer.status} ${answer.statusText}`}));
  if (!answer.ok) throw Object.assign(new Error(body.error), {status: answer.status});
  return body;
}

/* Asks again and again while the page is in view: every so often, and soon after `soon()`, but with a pause. */
export class Asking {
  constructor(work, everyMs, leastMs = SOON_MS) {
    Object.assign(this, {work, everyMs, leastMs, timer: null, dueMs: Infinity, runs: false, again: false, endedMs: 0, tookMs: 0, stopped: true});
    document.addEventListener("visibilitychange", () => { if (!document.hidden && !this.stopped) this.soon(); });
  }

  get restMs() {
    return Math.min(REST * this.tookMs, REST_MAX_MS);
  }

  start() {
    this.stopped = false;
    this.runs ? this.again = true : this.run();
  }

  stop() {
    this.stopped = true;
    this.clear();
  }

  soon() {
    if (this.runs) this.again = true;
    else if (!this.stopped) this.at(Math.max(Date.now() + SOON_MS, this.endedMs + Math.max(this.leastMs, this.restMs)));
  }

  at(ms) {
    if (ms >= this.dueMs) return;
    this.clear();
    this.dueMs = ms;
    this.timer = setTimeout(() => this.run(), Math.max(ms - Date.now(), 0));
  }

  clear() {
    clearTimeout(this.timer);
    this.dueMs = Infinity;
  }

  async run() {
    this.clear();
    if (document.hidden || this.stopped) return;
    this.runs = true;
    this.again = false;
    const beganMs = Date.now();
    try {
      await this.work();
    } finally {
      this.runs = false;
      this.endedMs = Date.now();
      this.tookMs = this.endedMs - beganMs;
      if (this.again) this.soon();
      if (!this.stopped) this.at(this.endedMs + Math.max(this.everyMs, this.restMs));
    }
  }
}
