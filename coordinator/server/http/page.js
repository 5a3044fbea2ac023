/* The page: groups at the left, one of them at the right. Everything shown comes from /overview, /groups/GROUP and
   /groups/GROUP/events, asked for again when /events says that something happened. All text goes in by textContent. */
"use strict";

const SOON_MS = 250;
const WAITING_MS = 2000;  // who joins meanwhile is no event
const SVG = "http://www.w3.org/2000/svg";
const TOP = 24, MARK = 6, BAR = 12, LETTER = 8;
const NARROW = 600;  // a drawing of less has its names above the lanes, and not beside them
const $ = (id) => document.getElementById(id);

let overview = [];
let shown = {entries: [], members: []};
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
const churn = (rebalances, restarts) => `${several(rebalances, "rebalance")} begun, ${several(restarts, "static restart")}`;

function chosen() {
  const typed = location.hash.slice(1);
  try {
    return decodeURIComponent(typed);
  } catch {
    return typed;  // by hand, with a % that encodes nothing
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
    small.append(` · last hour: ${churn(group.rebalances, group.static_restarts)}`);
    link.append(small);
    return element("li", {}, link);
  });
  $("groups").replaceChildren(...rows);
  $("no-groups").hidden = overview.length > 0;
}

/* One group. */

function nameOf(seat) {
  return typeof seat === "string" ? seat : seat.group_instance_id ?? seat.member_id;
}

function lanesOf(entries, members, end) {
  const lanes = new Map();
  const lane = (name) => {
    if (!lanes.has(name)) lanes.set(name, {name, since: null, spans: [], marks: []});
    return lanes.get(name);
  };
  for (const entry of entries) {
    if (entry.type === "rebalance" && entry.after && entry.outcome !== "undone") {
      const there = new Set(entry.after.map(nameOf));
      if (entry.before) {
        for (const seat of entry.before) {
          const known = lane(nameOf(seat));
          if (known.since === null && known.spans.length === 0) known.since = "before";
        }
      }
      for (const each of lanes.values()) {
        if (each.since !== null && !there.has(each.name)) {
          each.spans.push([each.since, entry.ended_ms]);
          each.since = null;
        }
      }
      for (const name of there) {
        const each = lane(name);
        if (each.since === null) each.since = entry.ended_ms;
      }
    } else if (entry.type === "static_restart" || entry.type === "takeover") {
      const each = lane(entry.group_instance_id);
      if (each.since === null) each.since = "before";
      each.marks.push({at: entry.at_ms, kind: entry.type === "takeover" ? "takeover" : entry.rebalances ? "restart moves" : "restart", text: entry.text[0]});
    } else if (entry.type === "fencing") {
      lane(entry.group_instance_id).marks.push({at: entry.at_ms, kind: "fencing", text: entry.text[0]});
    } else if (entry.type === "deleted") {
      for (const each of lanes.values()) {
        if (each.since !== null) each.spans.push([each.since, entry.at_ms]);
        each.since = null;
      }
    }
  }
  for (const member of members) {
    const each = lane(member.group_instance_id ?? member.member_id);
    if (each.since === null && each.spans.length === 0) each.since = "before";
  }
  for (const each of lanes.values()) if (each.since !== null) each.spans.push([each.since, end]);
  return [...lanes.values()].sort((one, other) => one.name < other.name ? -1 : 1);
}

/* Drawn as wide as there is room, a unit of it being a pixel, so that text has the size that it says. */
function draw({entries, members}) {
  const end = Date.now();
  const lanes = lanesOf(entries, members, end);
  $("lanes").hidden = lanes.length === 0;
  if (lanes.length === 0) return;
  const width = drawnWidth = $("drawing").clientWidth;
  const isNarrow = width < NARROW;
  const [left, row, over] = isNarrow ? [MARK + 2, 42, 22] : [170, 26, 7];  // over: from a row's top to its lane
  const times = entries.flatMap((entry) => [entry.at_ms, entry.ended_ms ?? entry.at_ms]);
  const first = Math.min(...times, end - 1000);
  const x = (ms) => left + (width - left - 12) * ((ms === "before" ? first : ms) - first) / (end - first);
  const height = TOP + lanes.length * row + 8;
  const rebalances = entries.filter((entry) => entry.type === "rebalance");
  const restarts = entries.filter((entry) => entry.type === "static_restart");
  const svg = drawn("svg", {
    width, height, role: "img",
    "aria-label": `${several(lanes.length, "lane")}, ${churn(rebalances.length, restarts.length)}; the list below has all of it in words`,
  });
  for (const share of [0, 0.5, 1]) {
    const at = first + (end - first) * share;
    svg.append(label(x(at), 14, clock(at), "time", share === 0 ? "start" : share === 1 ? "end" : "middle"));
  }
  lanes.forEach((lane, place) => {
    const y = TOP + place * row;
    svg.append(drawn("line", {x1: 0, x2: width, y1: y + row, y2: y + row, class: "lane"}));
    const name = label(8, y + 17, short(lane.name, Math.floor(((isNarrow ? width : left) - 8) / LETTER)), "name");
    name.append(drawn("title", {}));
    name.lastChild.textContent = lane.name;
    svg.append(name);
    for (const [from, to] of lane.spans) {
      svg.append(drawn("rect", {
        x: x(from), y: y + over, width: Math.max(x(to) - x(from), 2), height: BAR, rx: 3, class: "seat", "data-member": lane.name,
      }, lane.name));
    }
  });
  for (const entry of rebalances) {
    const from = x(entry.at_ms);
    svg.append(drawn("rect", {
      x: from, y: TOP, width: Math.max(x(entry.ended_ms ?? (entry.outcome === null ? end : entry.at_ms)) - from, 3),
      height: lanes.length * row, class: entry.outcome === null ? "rebalance open" : "rebalance",
    }, entry.text.join("\n")));
  }
  lanes.forEach((lane, place) => {
    const y = TOP + place * row + over + BAR / 2;
    for (const mark of lane.marks) {
      const at = x(mark.at);
      const shape = mark.kind === "fencing"  // lower than a restart: the two often come at one time
        ? drawn("path", {d: `M${at} ${y}l${MARK} ${MARK}l-${MARK} ${MARK}l-${MARK} -${MARK}z`, class: mark.kind, "data-member": lane.name}, mark.text)
        : drawn("circle", {cx: at, cy: y - 3, r: MARK, class: mark.kind, "data-member": lane.name}, mark.text);
      svg.append(shape);
    }
  });
  $("drawing").replaceChildren(svg);
}

function showMembers(members) {
  $("members").hidden = $("members-title").hidden = members.length === 0;
  const head = element("tr", {}, ...["Instance id", "Member id", "Client", "Assignment"].map((text) => element("th", {scope: "col", text})));
  const rows = members.map((member) => element("tr", {},
    element("td", {text: member.group_instance_id ?? ""}),
    element("td", {text: member.member_id}),
    element("td", {text: `${member.client_id} ${member.client_host}`}),
    element("td", {text: Object.entries(member.assignment ?? {}).map(([topic, parts]) => `${topic}: ${parts.join(", ")}`).join("; ")}),
  ));
  $("members").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

function showWaiting(waiting) {
  $("waiting").replaceChildren(...(waiting?.text ?? []).map((text) => element("p", {text})));
  if (waiting) setTimeout(soon, WAITING_MS);
}

function showEntries(entries) {
  $("entries-title").hidden = entries.length === 0;
  $("entries").replaceChildren(...entries.toReversed().map((entry) => {
    const [first, ...more] = entry.text;
    const line = element("p", {}, element("time", {datetime: new Date(entry.at_ms).toISOString(), text: utc(entry.at_ms)}), " " + first);
    return element("li", {class: entry.type}, line, ...more.map((text) => element("p", {text: text.trim()})));
  }));
}

async function showGroup() {
  const group = chosen();
  document.title = group ? `${group} · Tenure` : "Tenure";
  document.body.classList.toggle("one", group !== "");
  if (!group) {
    $("name").textContent = "Choose a group";
    $("summary").textContent = "";
    showEntries([]);
    showMembers([]);
    showWaiting(null);
    draw(shown = {entries: [], members: []});
    return;
  }
  const path = "/groups/" + encodeURIComponent(group);
  const told = await ask(path + "/events").catch((error) => ({timeline: [], problem: error.message}));
  const is = await ask(path).catch((error) => ({state: error.message, members: []}));
  if (group !== chosen()) return;
  $("name").textContent = group;
  const count = (type) => told.timeline.filter((entry) => entry.type === type).length;
  const since = told.timeline.length ? `; since ${utc(told.timeline[0].at_ms)}: ${churn(count("rebalance"), count("static_restart"))}, ${several(count("fencing"), "fencing")}` : "";
  $("summary").textContent = told.problem ?? `${is.state}; ${several(is.members.length, "member")}${since}`;
  shown = {entries: told.timeline, members: is.members};
  draw(shown);
  showMembers(is.members);
  showWaiting(is.waiting);
  showEntries(told.timeline);
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
// A page that a browser keeps for its back button would keep its connection, too, and a browser has six for a server.
addEventListener("pagehide", () => source.close());
addEventListener("pageshow", (shown) => { if (shown.persisted) listen(); });
new ResizeObserver(() => { if ($("drawing").clientWidth !== drawnWidth) draw(shown); }).observe($("drawing"));
refresh();
listen();
