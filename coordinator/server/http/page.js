/* The page: the list of groups at the left, one group at the right. It shows /overview, /groups/GROUP and
   /groups/GROUP/events, and asks for them again when /events sends an event. All text goes in by textContent. */
"use strict";

const SOON_MS = 250;
const WAITING_MS = 2000;  // a member that joins a waiting group makes no event, so the page asks again
const SVG = "http://www.w3.org/2000/svg";
const TOP = 24, MARK = 6, BAR = 12, PILL = 14, LETTER = 8;
const TEXTS_MAX = 10;  // the texts in the tooltip of a mark that stands for several
const NARROW = 600;  // a narrower drawing has the names above the lanes, not beside them
const $ = (id) => document.getElementById(id);

let overview = [];
const NOTHING = {entries: [], runs: [], lanes: [], members: []};
let shown = NOTHING;
let drawnWidth = 0;
let timer = null;
let source = null;

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") made.textContent = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) {
    const title = document.createElementNS(SVG, "title");
    title.textContent = text;
    made.append(title);
  }
  return made;
}

function label(x, y, text, kind, anchor = "start") {
  const made = drawn("text", {x, y, class: kind, "text-anchor": anchor});
  made.textContent = text;
  return made;
}

const several = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const short = (name, most) => name.length > most ? name.slice(0, most - 1) + "…" : name;
const utc = (ms) => new Date(ms).toISOString().replace("T", " ");  // as the command line writes it
const clock = (ms) => utc(ms).slice(11, 19) + "Z";
const churn = (rebalances, restarts, rejoins, takeovers) =>
  `${several(rebalances, "rebalance")} begun, ${several(restarts, "static restart")}` +
  (rejoins ? `, ${rejoins} ${rejoins === 1 ? "rejoin" : "rejoins"} after an outage` : "") +
  (takeovers ? `, ${several(takeovers, "takeover")}` : "");
const suspects = (number) => number ? `, ${several(number, "suspect restart")}` : "";
const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);

function chosen() {
  const typed = location.hash.slice(1);
  try {
    return decodeURIComponent(typed);
  } catch {
    return typed;  // a person typed a % that encodes nothing
  }
}

async function ask(path) {
  const answer = await fetch(path, {headers: {accept: "application/json"}});
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

/* The list. */

function showGroups() {
  const wanted = $("filter").value.toLowerCase();
  const now = chosen();
  const rows = overview.filter((group) => group.group_id.toLowerCase().includes(wanted)).map((group) => {
    const link = element("a", {href: "#" + encodeURIComponent(group.group_id), text: group.group_id || "(empty name)"});
    if (group.group_id === now) link.setAttribute("aria-current", "page");
    const small = element("small");
    const busy = group.state.endsWith("Rebalance");
    small.append(element("span", {class: busy ? "busy" : "calm", text: group.state}));
    small.append(` · last hour: ${churn(group.rebalances, group.static_restarts, group.static_rejoins, group.takeovers)}`);
    small.append(element("span", {class: "suspect", text: suspects(group.suspect_restarts)}));
    link.append(small);
    return element("li", {}, link);
  });
  $("groups").replaceChildren(...rows);
  $("no-groups").hidden = overview.length > 0;
}

/* One group. */

/* A function that finds the run of restarts of an entry. The server says what a run is, and what is wrong with it. */
function runFinder(runs) {
  const bySeat = Map.groupBy(runs, (run) => run.group_instance_id);
  return (entry) => entry.type !== "static_restart" ? undefined :
    bySeat.get(entry.group_instance_id)?.find((run) => run.from_ms <= entry.at_ms && entry.at_ms <= run.until_ms);
}

const look = (mark) => ["restart", "rejoin"].includes(mark.kind) && mark.rebalances ? "restart moves" : mark.kind;

/* Marks that look alike and would touch become one mark with their number. x: the position of a time, in pixels. */
function together(marks, x) {
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

function shapeOf(mark, x, y, right, name) {
  const at = x(mark.from_ms);
  const kind = look(mark);
  const text = mark.text.join("\n");
  const lower = mark.kind === "fencing" ? MARK : -MARK / 2;  // a restart and a fencing often have the same time
  if (mark.times === 1) {
    return mark.kind === "fencing"
      ? drawn("path", {d: `M${at} ${y}l${MARK} ${MARK}l-${MARK} ${MARK}l-${MARK} -${MARK}z`, class: kind, "data-member": name}, text)
      : drawn("circle", {cx: at, cy: y + lower, r: MARK, class: kind, "data-member": name}, text);
  }
  const made = drawn("g", {class: kind, "data-member": name}, text);
  const width = Math.max(x(mark.until_ms) - at + 2 * MARK, 2 * MARK + String(mark.times).length * LETTER);
  const left = Math.min(at - MARK, right - width);
  made.append(drawn("rect", {x: left, y: y + lower - PILL / 2, width, height: PILL, rx: PILL / 2}));
  made.append(label(left + width / 2, y + lower + 4, mark.times, "count", "middle"));
  return made;
}

/* The drawing is as wide as its frame, and its unit is a pixel, so that text has its real size. */
function draw({entries, runs, lanes}) {
  const end = Date.now();
  $("lanes").hidden = lanes.length === 0;
  $("suspect").hidden = !runs.some((run) => run.finding);
  $("standby").hidden = lanes.every((lane) => lane.standby_since_ms === null);
  if (lanes.length === 0) return;
  const width = drawnWidth = $("drawing").clientWidth;
  const isNarrow = width < NARROW;
  const [left, row, over] = isNarrow ? [MARK + 2, 42, 22] : [170, 26, 7];  // over: the distance from a row's top to its lane
  const times = entries.flatMap((entry) => [entry.at_ms, entry.ended_ms ?? entry.at_ms]);
  const first = Math.min(...times, end - 1000);
  const x = (ms) => left + (width - left - 12) * (ms - first) / (end - first);
  const height = TOP + lanes.length * row + 8;
  const rebalances = entries.filter((entry) => entry.type === "rebalance");
  const svg = drawn("svg", {
    width, height, role: "img",
    "aria-label": `${several(lanes.length, "lane")}, ${counted(entries, runs)}; the list below has all of it in words`,
  });
  for (const share of [0, 0.5, 1]) {
    const at = first + (end - first) * share;
    svg.append(label(x(at), 14, clock(at), "time", share === 0 ? "start" : share === 1 ? "end" : "middle"));
  }
  lanes.forEach((lane, index) => {
    const y = TOP + index * row;
    svg.append(drawn("line", {x1: 0, x2: width, y1: y + row, y2: y + row, class: "lane"}));
    const name = label(8, y + 17, short(lane.name, Math.floor(((isNarrow ? width : left) - 8) / LETTER)), "name");
    name.append(drawn("title", {}));
    name.lastChild.textContent = lane.name;
    svg.append(name);
    for (const span of lane.spans) {
      const from = x(span.from_ms ?? first);  // null: since before the first event
      svg.append(drawn("rect", {
        x: from, y: y + over, width: Math.max(x(span.until_ms ?? end) - from, 2), height: BAR, rx: 3, class: "seat", "data-member": lane.name,
      }, lane.name));
    }
    if (lane.standby_since_ms !== null) {
      const from = Math.max(x(lane.standby_since_ms), left);
      svg.append(drawn("rect", {
        x: from, y: y + over, width: Math.max(x(end) - from, 2), height: BAR, rx: 3, class: "standby", "data-member": lane.name,
      }, `${lane.name} waits for a seat as a standby since ${utc(lane.standby_since_ms)}`));
    }
  });
  for (const entry of rebalances) {
    const from = x(entry.at_ms);
    svg.append(drawn("rect", {
      x: from, y: TOP, width: Math.max(x(entry.ended_ms ?? (entry.outcome === null ? end : entry.at_ms)) - from, 3),
      height: lanes.length * row, class: entry.outcome === null ? "rebalance open" : "rebalance",
    }, entry.text.join("\n")));
  }
  lanes.forEach((lane, index) => {
    const y = TOP + index * row + over + BAR / 2;
    for (const mark of together(lane.marks, x)) svg.append(shapeOf(mark, x, y, width - MARK, lane.name));
  });
  $("drawing").replaceChildren(svg);
}

function showMembers(members) {
  $("members").hidden = $("members-title").hidden = members.length === 0;
  // Only members of the consumer protocol have an epoch and a target.
  const hasTargets = members.some((member) => member.member_epoch !== undefined);
  const names = ["Instance id", "Member id", "Client", "Assignment", ...(hasTargets ? ["Target", "Epoch"] : [])];
  const head = element("tr", {}, ...names.map((text) => element("th", {scope: "col", text})));
  const byTopic = (held) => Object.entries(held ?? {}).map(([topic, parts]) => `${topic}: ${parts.join(", ")}`).join("; ");
  const targets = (member) => {
    const has = byTopic(member.assignment), wanted = byTopic(member.target_assignment);
    return [wanted === has ? "the same" : wanted, member.is_away ? "away" : String(member.member_epoch)];
  };
  const rows = members.map((member) => element("tr", {},
    element("td", {text: member.group_instance_id ?? ""}),
    element("td", {text: member.member_id}),
    element("td", {text: `${member.client_id} ${member.client_host}`}),
    element("td", {text: byTopic(member.assignment)}),
    ...(hasTargets ? targets(member).map((text) => element("td", {text})) : []),
  ));
  $("members").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

function showWaiting(lines) {
  $("waiting").replaceChildren(...lines.map((text) => element("p", {text})));
  if (lines.length) setTimeout(soon, WAITING_MS);
}

function showFound(runs) {
  const found = runs.map((run) => run.finding).filter((finding) => finding && finding.severity !== "notice");
  $("found").replaceChildren(...found.map(({found, advice}) => element("p", {}, element("strong", {text: found}), `: ${advice}`)));
}

/* A run stands in the list at the place of its last restart. */
function showEntries(entries, runs) {
  const runOf = runFinder(runs);
  const last = new Map(entries.map((entry) => [runOf(entry), entry]));
  const items = entries.flatMap((entry) => {
    const run = runOf(entry);
    if (run === undefined) return [entry];
    return last.get(run) === entry ? [{type: run.finding ? "suspect" : entry.type, at_ms: run.from_ms, text: run.text}] : [];
  });
  $("entries-title").hidden = items.length === 0;
  $("entries").replaceChildren(...items.toReversed().map((entry) => {
    const [first, ...more] = entry.text;
    const line = element("p", {}, element("time", {datetime: new Date(entry.at_ms).toISOString(), text: utc(entry.at_ms)}), " " + first);
    return element("li", {class: entry.type}, line, ...more.map((text) => element("p", {text: text.trim()})));
  }));
}

/* The numbers of a group's entries, as text. */
function counted(entries, runs) {
  const count = (type) => entries.filter((entry) => entry.type === type).length;
  const suspect = sum(runs.filter((run) => run.finding).map((run) => run.restarts));
  const numbers = churn(count("rebalance"), count("static_restart") - suspect, count("static_rejoin"), count("takeover"));
  return `${numbers}${suspects(suspect)}, ${several(count("fencing"), "fencing")}`;
}

async function showGroup() {
  const group = chosen();
  document.title = group ? `${group} · Tenure` : "Tenure";
  document.body.classList.toggle("one", group !== "");
  if (!group) {
    $("name").textContent = "Choose a group";
    $("summary").textContent = "";
    show(NOTHING);
    showWaiting([]);
    return;
  }
  const path = "/groups/" + encodeURIComponent(group);
  const past = await ask(path + "/events").catch((error) => ({timeline: [], runs: [], lanes: [], problem: error.message}));
  const is = await ask(path).catch((error) => ({state: wasDeleted(group) ? "deleted" : error.message, members: []}));
  if (group !== chosen()) return;
  $("name").textContent = group;
  const since = past.timeline.length ? `; since ${utc(past.timeline[0].at_ms)}: ${counted(past.timeline, past.runs)}` : "";
  $("summary").textContent = past.problem ?? `${is.state}${epochs(is)}; ${several(is.members.length, "member")}${since}`;
  show({entries: past.timeline, runs: past.runs, lanes: past.lanes, members: is.members});
  showWaiting([...(is.expects?.text ?? []), ...(is.waiting?.text ?? is.held_up_text ?? [])]);
}

/* The epochs of a group of the consumer protocol. */
function epochs(group) {
  if (group.group_epoch === undefined) return "";
  const target = group.assignment_epoch === group.group_epoch ? "" : ` with the target of ${group.assignment_epoch}`;
  return `, epoch ${group.group_epoch}${target}`;
}

const wasDeleted = (name) => overview.some((group) => group.group_id === name && group.state === "deleted");

function show(now) {
  shown = now;
  draw(now);
  showFound(now.runs);
  showMembers(now.members);
  showEntries(now.entries, now.runs);
}

async function refresh() {
  timer = null;
  try {
    overview = await ask("/overview");
    showGroups();
    await showGroup();
  } catch (error) {
    $("live").textContent = error.message;
  }
}

function soon() {
  timer ??= setTimeout(refresh, SOON_MS);
}

function listen() {
  source = new EventSource("/events");
  source.onopen = () => { $("live").textContent = "live"; soon(); };
  source.onmessage = soon;
  source.onerror = () => { $("live").textContent = "not connected, trying again"; };
}

addEventListener("hashchange", () => { showGroups(); showGroup().then(() => $(chosen() ? "group" : "all").focus()); });
$("filter").addEventListener("input", showGroups);
// A browser keeps pages for its back button, with their connections, and opens six connections to a server at most.
addEventListener("pagehide", () => source.close());
addEventListener("pageshow", (shown) => { if (shown.persisted) listen(); });
new ResizeObserver(() => { if ($("drawing").clientWidth !== drawnWidth) draw(shown); }).observe($("drawing"));
refresh();
listen();
