/* One group: its state, what is wrong and whom it waits for, its seats over time, members, lag, and what happened. */

import {$, Asking, CHURN, ask, badge, churn, element, grouped, has, iso, named, ranges, several, showFindings, span, stateBadge, sum, utc} from "./page_dom.js";
import {chosen, format, range, timeText} from "./page_address.js";
import {behindText, catchUpText, followed, graph, rateText, stableText} from "./page_lag.js";
import * as lanes from "./page_lanes.js";
import {lagText, lagTitle} from "./page_list.js";
import {Table} from "./page_table.js";

const WAITING_MS = 2_000;  // a member that joins a waiting group makes no event, so the page asks again
const ENTRIES_STEP = 100;
const AROUND_MS = 1_000;  // a link to an entry shows at least so much on each side of it

const NOTHING = {timeline: [], counts: Object.fromEntries(CHURN.map((key) => [key, 0])), runs: [], lanes: [], findings: []};
let past = NOTHING;
let members = [];
let entriesMax = ENTRIES_STEP;
let membersTable = null;
let lagTable = null;
let lag = null;
let trends = new Map();  // by topic: its lag at the last change, and whether it grew
let moments = new Map();  // by topic: the lag that the server told, and that the page saw; of the group without one
const opened = new Set();  // topics whose partitions are in view
let asking = null;
let lagging = null;

const said = () => `${churn(past.counts)}, ${several(past.timeline.filter((entry) => entry.type === "fencing").length, "fencing")}`;
const isFound = (text) => has($("within").value, text);

/* Members. */

const seatOf = (member) => member.group_instance_id ?? member.member_id;
const byTopic = (held) => Object.entries(held ?? {}).map(([topic, parts]) => `${topic}: ${ranges(parts)}`).join("; ");
const tasks = (member) => Object.entries(member.tasks ?? {}).map(([role, held]) => [role, Object.entries(held).map(([part, parts]) => `${part}: ${ranges(parts)}`).join("; ")])
  .filter(([, held]) => held).map(([role, held]) => `${role} ${held}`).join(", ");
const isStandby = (member) => member.standby_ms !== undefined;
const partitions = (member) => sum(Object.values(member.assignment ?? {}).map((each) => each.length));
const target = (member) => { const is = byTopic(member.assignment), wanted = byTopic(member.target_assignment); return wanted === is ? "the same" : wanted || "none"; };

function memberColumns() {
  const consumer = members.some((member) => member.member_epoch !== undefined);
  const stands = (member) => member.is_away ? "away" : member.standby_ms !== undefined ? `standby for ${span(member.standby_ms)}` : member.member_epoch === undefined ? "" : `epoch ${member.member_epoch}`;
  return [
    {key: "seat", name: "Instance id", value: (member) => member.group_instance_id ?? "", cell: (member) => member.group_instance_id ?? element("span", {class: "dim", text: "dynamic"})},
    {key: "member", name: "Member id", long: true, value: (member) => member.member_id},
    {key: "client", name: "Client", long: true, value: (member) => `${member.client_id} ${member.client_host}`},
    {key: "count", name: "Partitions", number: true, long: true, value: partitions},
    {key: "assignment", name: "Assignment", long: true, value: (member) => byTopic(member.assignment) || (member.assignment === null ? "unreadable" : "")},
    ...(members.some((member) => member.tasks) ? [{key: "tasks", name: "Tasks", long: true, value: tasks}] : []),
    ...(consumer ? [{key: "target", name: "Target", long: true, value: target}] : []),
    ...(consumer || members.some(isStandby)
      ? [{key: "stands", name: consumer ? "Epoch" : "Seat", long: true, value: stands, cell: (member) => member.is_away || isStandby(member) ? badge(stands(member), "calm") : stands(member)}] : []),
  ];
}

function showMembers() {
  $("members-section").hidden = members.length === 0;
  const columns = memberColumns();
  membersTable ??= new Table($("members"), columns, {name: "members"});
  membersTable.columns = columns;
  membersTable.nothing = "no member has such a name, client or topic";
  membersTable.show(members.filter((member) => isFound(`${member.group_instance_id ?? ""} ${member.member_id} ${member.client_id} ${member.client_host} ${byTopic(member.assignment)}`)));
}

/* Lag. */

const TREND = {up: "↑ grows", down: "↓ falls", same: ""};

function follow(topic, now) {
  const before = trends.get(topic);
  const went = before === undefined || now === null || before.lag === null || now === before.lag ? before?.went ?? "same" : now > before.lag ? "up" : "down";
  trends.set(topic, {lag: now, went: now === 0 ? "same" : went});
  return TREND[trends.get(topic).went];
}

const stable = (told) => stableText(told) ? [" ", element("span", {class: "dim", title: "Readers of committed records (isolation.level) stop at an open transaction. No request tells which readers a group has.", text: `(${stableText(told)})`})] : [];

function lagCell(topic) {
  const [arrow, ...word] = (topic.trend ?? "").split(" ");
  return element("span", {}, element("span", {title: lagTitle(topic), text: lagText(topic)}), ...(topic.trend ? [" ", element("span", {class: "dim", title: `it ${word.join(" ")}`, text: arrow}), element("span", {class: "unseen", text: word.join(" ")})] : []), ...stable(topic));
}

function offsetsOf(topic) {
  const number = (value) => value === null ? "-" : grouped(value);
  const names = ["Partition", "Member", "Client", "Committed", "End", "Lag", "Behind", "Catches up in"];
  const head = names.map((text) => element("th", {scope: "col", text}));
  const rows = topic.offsets.map((each) => {
    const told = [each.group_instance_id ?? each.member_id ?? "nobody", each.client_id === null ? "-" : `${each.client_id} ${each.client_host}`,
      number(each.current_offset), number(each.log_end_offset), element("span", {}, each.lag !== null && each.lag < 0 ? "unknown" : number(each.lag), ...stable(each)), behindText(each), catchUpText(each)];
    return element("tr", {}, element("th", {scope: "row", text: String(each.partition)}),
      ...told.map((value, at) => element("td", {class: at < 2 ? null : "number", "data-label": names[at + 1]}, value)));
  });
  const box = element("details", {open: opened.has(topic.topic)}, element("summary", {"data-topic": topic.topic, text: several(topic.offsets.length, "partition")}),
    element("div", {class: "wide"}, element("table", {class: "offsets"}, element("caption", {class: "unseen", text: `Partitions of ${topic.topic}`}), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))));
  box.addEventListener("toggle", () => box.open ? opened.add(topic.topic) : opened.delete(topic.topic));
  return box;
}

function showLag() {
  $("lag-section").hidden = lag === null || lag.topics.length === 0;
  if ($("lag-section").hidden) return;
  lagTable ??= new Table($("lag"), [
    {key: "topic", name: "Topic", value: (topic) => topic.topic},
    {key: "lag", name: "Lag", number: true, long: true, value: (topic) => topic.lag, cell: lagCell},
    {key: "behind", name: "Behind", number: true, title: "The age of the oldest record that the group has not read", value: (topic) => topic.behind_ms, cell: behindText},
    {key: "in", name: "In/s", number: true, less: true, title: "Records that come in a second", value: (topic) => topic.in_per_s, cell: (topic) => rateText(topic.in_per_s)},
    {key: "out", name: "Out/s", number: true, less: true, title: "Records that the group reads in a second", value: (topic) => topic.out_per_s, cell: (topic) => rateText(topic.out_per_s)},
    {key: "ends", name: "Catches up in", number: true, title: "When it has read all, at these rates", value: (topic) => topic.catches_up === false ? Infinity : topic.catch_up_ms, cell: catchUpText},
    {key: "past", name: "Lag of the last hour", sorts: false, long: true, value: (topic) => topic.moments.map((each) => each.lag).join(" "), cell: (topic) => graph(topic.moments, topic.topic)},
    {key: "assigned", name: "Assigned", number: true, title: "Topic partitions that a member has", value: (topic) => topic.assigned_partitions},
    {key: "partitions", name: "Offsets", sorts: false, under: true, value: (topic) => topic.offsets.map((each) => `${each.partition}:${each.current_offset ?? ""}/${each.log_end_offset ?? ""}`).join(" "), cell: offsetsOf},
  ], {name: "topics", sort: "-lag", size: 25});
  lagTable.nothing = "no topic has such a name";
  const focused = document.activeElement?.dataset?.topic;
  lagTable.show(lag.topics.filter((topic) => isFound(topic.topic)));
  if (focused !== undefined) [...$("lag").querySelectorAll("summary")].find((each) => each.dataset.topic === focused)?.focus();
  $("lag-note").textContent = lagTitle(lag);
  $("lag-graph").replaceChildren(...(lag.topics.length > 1 ? [element("p", {class: "dim", text: "All topics together"}), graph(lag.moments, "all topics")] : []));
}

async function askLag() {
  const group = chosen();
  const told = await ask(`/lag?group=${encodeURIComponent(group)}`).catch(() => null);
  if (group !== chosen()) return;
  lag = told;
  const nowMs = Date.now();
  for (const topic of lag?.topics ?? []) topic.trend = follow(topic.topic, topic.lag);
  for (const each of lag === null ? [] : [lag, ...lag.topics]) {
    each.moments = followed(moments.get(each.topic) ?? [], each, nowMs);
    moments.set(each.topic, each.moments);
  }
  showLag();
  showFacts();
}

/* What happened. */

/* A run stands in the list at the place of its last restart. The server says which runs there are, and what is wrong with them. */
function items() {
  const bySeat = Map.groupBy(past.runs, (run) => run.group_instance_id);
  const runOf = (entry) => !["static_restart", "static_return"].includes(entry.type) ? undefined :
    bySeat.get(entry.group_instance_id)?.find((run) => run.from_ms <= entry.at_ms && entry.at_ms <= run.until_ms);
  const last = new Map(past.timeline.map((entry) => [runOf(entry), entry]));
  return past.timeline.flatMap((entry) => {
    const run = runOf(entry);
    if (run === undefined) return [{...entry, until_ms: entry.ended_ms ?? entry.at_ms}];
    return last.get(run) === entry ? [{type: run.finding ? "suspect" : entry.type, at_ms: run.from_ms, until_ms: run.until_ms, text: run.text}] : [];
  });
}

function showEntries() {
  const whole = items();
  const found = whole.filter((entry) => lanes.inView({from_ms: entry.at_ms, until_ms: entry.until_ms}) && isFound(entry.text.join("\n")));
  $("entries-section").hidden = whole.length === 0;
  $("entries-count").textContent = found.length === whole.length ? whole.length === 1 ? "1 entry." : `${grouped(whole.length)} entries.` : `${grouped(found.length)} of ${grouped(whole.length)} entries are in this range and match.`;
  const focused = $("entries").contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const newest = found.toReversed();
  $("entries").replaceChildren(...newest.slice(0, entriesMax).map((entry) => {
    const [first, ...more] = entry.text;
    const around = Math.max(AROUND_MS, (entry.until_ms - entry.at_ms) / 2);
    const href = format({group: chosen(), from: timeText(entry.at_ms - around), to: timeText(entry.until_ms + around)});
    const at = element("time", {datetime: iso(entry.at_ms), text: utc(entry.at_ms)});
    const line = element("p", {}, element("a", {href, title: "Show this time in the picture"}, at), " " + first);
    return element("li", {class: `${entry.type}${entry.inferred ? " inferred" : ""}`}, line, ...more.map((text) => element("p", {text: text.trim()})));
  }));
  if (focused) [...$("entries").querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  $("inferred").hidden = !whole.some((entry) => entry.inferred);
  const left = newest.length - entriesMax;
  $("more-entries").hidden = left <= 0;
  $("more-entries").textContent = `Show ${Math.min(left, ENTRIES_STEP)} older`;
  const named = range();
  const first = past.timeline[0]?.at_ms;
  $("older").hidden = !(named && first !== undefined && named.fromMs < first - AROUND_MS);
}

/* The head. */

/* The epochs of a group of the consumer protocol. */
function epochs(group) {
  if (group.group_epoch === undefined) return "";
  const target = group.assignment_epoch === group.group_epoch ? "" : ` with the target of ${group.assignment_epoch}`;
  return `, epoch ${group.group_epoch}${target}`;
}

let facts = null;

function showFacts() {
  if (facts === null) return $("facts").replaceChildren();
  const standbys = members.filter(isStandby).length;
  const at = facts.coordinator;
  const told = [
    ["State", stateBadge(facts.state)],
    ["Members", grouped(members.length - standbys)],
    ...(standbys ? [["Standbys", grouped(standbys)]] : []),
    ["Topics", lag === null ? "-" : grouped(lag.topics.length)],
    ["Partitions assigned", grouped(sum(members.map(partitions)))],
    ["Lag", lag === null ? "-" : element("span", {title: lagTitle(lag)}, lagText(lag), ...stable(lag))],
    ...(lag?.lag ? [["Behind", behindText(lag)], ["Catches up in", catchUpText(lag)]] : []),
    ["Assignor", facts.protocol_name || "-"],
    ["Protocol", facts.group_type ?? "classic"],
    ...(at ? [["Coordinator", `node ${at.node_id}, ${at.host}:${at.port}`]] : []),
  ];
  $("facts").replaceChildren(...told.flatMap(([name, value]) => [element("div", {}, element("dt", {text: name}), element("dd", {}, value))]));
}

/* All that the search is about, but the lag. */
function showFiltered() {
  lanes.show({entries: past.timeline, lanes: past.lanes.filter((lane) => isFound(lane.name)), counts: said()});
  showMembers();
  showEntries();
}

function showAll(is) {
  facts = is.members === undefined ? null : is;
  members = is.members ?? [];
  showFacts();
  showFindings($("found"), past.findings);
  showFiltered();
  const lines = [...(is.expects?.text ?? []), ...(is.waiting?.text ?? is.held_up_text ?? [])];
  $("waiting").replaceChildren(...lines.map((text) => element("p", {text})));
  asking.everyMs = lines.length ? WAITING_MS : 10_000;
}

async function askGroup() {
  const group = chosen();
  const path = "/groups/" + encodeURIComponent(group);
  const told = await ask(path + "/events").catch((error) => ({...NOTHING, problem: error.message, status: error.status}));
  const is = await ask(path).catch((error) => ({state: error.message, status: error.status}));
  if (group !== chosen()) return;
  past = {...NOTHING, ...told};
  const isGone = is.status === 404 && past.timeline.length > 0;
  if (isGone) is.state = past.timeline.at(-1).type === "deleted" ? "deleted" : "unknown";
  const since = past.timeline.length ? `; since ${utc(past.timeline[0].at_ms)}: ${said()}` : "";
  const standbys = (is.members ?? []).filter(isStandby).length;
  const summary = is.status !== undefined && !isGone ? is.state : `${is.state}${epochs(is)}; ${several(is.members?.length - standbys || 0, "member")}${standbys ? `, ${several(standbys, "standby")}` : ""}${since}`;
  if ($("summary").textContent !== summary) $("summary").textContent = summary;  // a screen reader reads it when it changes
  const isThere = is.status === undefined || isGone;
  $("note").textContent = isThere ? told.problem ?? "" : is.status === 404 ? "This page shows the group as soon as there is one with this name." : "This page asks again.";
  $("body").hidden = !isThere && past.timeline.length === 0;
  showAll(is);
}

/* A group was chosen: nothing of the last one stays. */
export function choose() {
  [past, members, lag, facts, entriesMax] = [NOTHING, [], null, null, ENTRIES_STEP];
  trends = new Map();
  moments = new Map();
  opened.clear();
  lanes.forget();
  $("name").textContent = named(chosen());
  $("summary").textContent = "loading";
  $("note").textContent = "";
  $("within").value = "";
  $("waiting").replaceChildren();
  $("body").hidden = true;
  for (const table of [membersTable, lagTable]) if (table) table.page = 0;
  showFacts();
  showFindings($("found"), []);
  showLag();
}

export function open() {
  asking = new Asking(askGroup, 10_000);
  lagging = new Asking(askLag, 5_000, 2_000);
  lanes.open(showEntries);
  $("within").addEventListener("input", () => { showFiltered(); showLag(); });
  $("more-entries").addEventListener("click", () => { entriesMax += ENTRIES_STEP; showEntries(); });
  return {
    start() { asking.start(); lagging.start(); },
    stop() { asking.stop(); lagging.stop(); },
    soon() { asking.soon(); },
    follow() {
      lanes.follow();
      $("lanes").scrollIntoView({block: "nearest"});  // a person who chose the time of an entry far below sees the picture
    },
  };
}
