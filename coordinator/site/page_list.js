/* All groups: how many are in which state, what the doctor finds, the nodes, and a table. Members, topics and lag of a
   group are asked for while its row is in view, so that 10,000 groups cost no more than fifty. If the table is sorted by
   one of them, the server finds out those of all groups, a part at a time. */

import {$, Asking, CHURN, ago, ask, badge, churn, element, grouped, has, isBusy, named, ranges, returns, returnsText, several, showFindings, stateBadge, sum, utc} from "./page_dom.js";
import {format, here, replace} from "./page_address.js";
import {behindText} from "./page_lag.js";
import {Table} from "./page_table.js";

const LAGS_MAX = 50;  // groups of one question
const QUERY_MAX = 6_000;  // characters of its address
const ALL_MAX = 200;  // of so many groups the lag of all is asked for
const SUMMED = ["members", "topics", "lag", "behind"];  // columns that are sorted by sums
const SUMS_MS = 15_000, SUMS_SOON_MS = 2_000;  // while some sums are unknown, the page asks sooner
const FIRST_SORT = "-problem";
const FIRST = 8;  // findings that are in view at once

let groups = [];
let problems = new Map();  // by group: the worst severity that the doctor finds
let lags = new Map();
let nodes = {nodes: [], partitions_without_node: []};
let table = null;
let nodesTable = null;
let isTold = false;

/* A question about groups can be too long for an address, so it may be several. */
function questions(names) {
  const made = [];
  let now = "";
  let count = 0;
  for (const name of names) {
    const part = `group=${encodeURIComponent(name)}`;
    if (count === LAGS_MAX || (now && now.length + part.length > QUERY_MAX)) {
      made.push(now);
      [now, count] = ["", 0];
    }
    now += (now && "&") + part;
    count += 1;
  }
  return now ? [...made, now] : made;
}

const exists = (group) => !["deleted", "unknown"].includes(group.state);

const isSummed = () => groups.length > ALL_MAX && SUMMED.includes((here().sort ?? "").replace("-", ""));

/* The rows in view are asked about more often, so theirs stay. */
async function askSums(asking) {
  if (!isSummed()) return showSummed(null);
  const told = await ask("/sums");
  const inView = new Set(table.shown.map((group) => group.group_id));
  for (const each of told.sums) if (!inView.has(each.group_id) || !lags.has(each.group_id)) lags.set(each.group_id, each);
  asking.everyMs = told.is_complete ? SUMS_MS : SUMS_SOON_MS;
  showSummed(told);
  table.draw();
}

function showSummed(told) {
  $("summed").textContent = told === null || told.is_complete ? ""
    : `Sorted by what is known of ${grouped(told.sums.length)} of ${several(told.groups || groups.filter(exists).length, "group")} so far.`;
}

async function askLags() {
  const wanted = groups.length <= ALL_MAX ? groups : table.shown;
  for (const question of questions(wanted.filter(exists).map((group) => group.group_id))) {
    for (const each of await ask(`/lags?${question}`)) lags.set(each.group_id, each);
  }
  table.draw();
}

const ORDER = {error: 3, warning: 2, notice: 1};
const of = (group, key) => lags.get(group.group_id)?.[key];

export function lagText(told) {
  if (told === undefined || told.error !== undefined) return "-";
  if (told.lag !== null) return grouped(told.lag) + (told.without_end + told.beyond_end ? "+" : "");
  return told.without_end + told.beyond_end ? "unknown" : "-";
}

/* Where a topic's records are not on this server, nobody here knows its lag. */
export function lagTitle(told) {
  if (told === undefined || told.error !== undefined) return told?.error ?? "";
  return [
    told.without_end && `the end of the log of ${several(told.without_end, "topic partition")} is unknown: this server doesn't have their records`,
    told.beyond_end && `the committed offset of ${several(told.beyond_end, "topic partition")} is beyond the end of the log: the records are not here, or were deleted`,
  ].filter(Boolean).join("; ");
}

function columns() {
  const link = (group) => element("a", {href: format({group: group.group_id}), text: named(group.group_id)});
  const kind = (group) => `${group.group_type || "classic"}${group.protocol_type && group.protocol_type !== "consumer" ? `, ${group.protocol_type}` : ""}`;
  return [
    {key: "group", name: "Group", value: (group) => group.group_id, cell: link},
    {key: "state", name: "State", long: true, value: (group) => group.state, cell: (group) => stateBadge(group.state)},
    {key: "problem", name: "Doctor", number: true, title: "The worst that the doctor finds", value: (group) => ORDER[problems.get(group.group_id)] ?? null,
      cell: (group) => problems.has(group.group_id) ? badge(problems.get(group.group_id), problems.get(group.group_id)) : "-"},
    {key: "rebalances", name: "Rebalances", number: true, title: "Rebalances that began in the last hour", value: (group) => group.rebalances,
      cell: (group) => element("span", {class: group.rebalances ? "" : "dim", text: grouped(group.rebalances)})},
    {key: "restarts", name: "Restarts", number: true, title: "Returns of static members in the last hour: restarts, rejoins and takeovers", value: returns,
      cell: (group) => element("span", {class: group.suspect_restarts + group.takeovers ? "suspect" : returns(group) ? "" : "dim", title: returnsText(group), text: grouped(returns(group))})},
    {key: "members", name: "Members", number: true, value: (group) => of(group, "members"),
      cell: (group) => of(group, "standbys") ? element("span", {title: `and ${several(of(group, "standbys"), "standby")}`, text: `${of(group, "members")} + ${of(group, "standbys")}`}) : of(group, "members")},
    {key: "topics", name: "Topics", number: true, less: true, value: (group) => of(group, "topics")},
    {key: "lag", name: "Lag", number: true, title: "Records between the committed offsets and the ends of the logs", value: (group) => of(group, "lag"),
      cell: (group) => element("span", {title: lagTitle(lags.get(group.group_id)), text: lagText(lags.get(group.group_id))})},
    {key: "behind", name: "Behind", number: true, less: true, title: "The age of the oldest record that the group has not read, as far as looks tell", value: (group) => of(group, "behind_ms"),
      cell: (group) => behindText(lags.get(group.group_id))},
    {key: "last", name: "Last event", number: true, value: (group) => group.last_event_ms,
      cell: (group) => group.last_event_ms === null ? "-" : element("time", {datetime: utc(group.last_event_ms), title: utc(group.last_event_ms), text: ago(group.last_event_ms)})},
    {key: "node", name: "Node", number: true, less: true, title: "The node that coordinates the group", value: (group) => group.node_id},
    {key: "kind", name: "Protocol", less: true, value: kind},
  ];
}

/* The list as the address says. */
function chosenGroups() {
  const {search = "", state = ""} = here();
  return groups.filter((group) => (!state || group.state === state) && has(search, group.group_id));
}

function rename(parts) {
  const {search, state, sort} = {...here(), ...parts};
  replace({search, state, sort});
  show();
}

function showTiles() {
  const {state = ""} = here();
  const counts = new Map();
  for (const group of groups) counts.set(group.state, (counts.get(group.state) ?? 0) + 1);
  const buttons = [["", groups.length], ...[...counts].toSorted(([one], [other]) => isBusy(other) - isBusy(one) || (one < other ? -1 : 1))]
    .map(([name, count]) => element("button", {
      type: "button", class: "tile", "aria-pressed": String(name === state), "data-state": name, does: () => rename({state: name === state ? "" : name}),
    }, element("strong", {text: grouped(count)}), " ", name ? stateBadge(name) : "all groups"));
  const focused = $("states").contains(document.activeElement) ? document.activeElement.dataset.state : null;
  $("states").replaceChildren(...buttons);
  if (focused !== null) buttons.find((button) => button.dataset.state === focused)?.focus();
  const hour = CHURN.map((key) => [key, sum(groups.map((group) => group[key]))]);
  $("hour").textContent = `Last hour: ${churn(Object.fromEntries(hour))}`;
}

export function show() {
  if (!table) return;
  const {search = "", sort = FIRST_SORT} = here();
  if ($("filter") !== document.activeElement) $("filter").value = search;
  table.sort = sort;
  table.nothing = groups.length ? "no group has such a name and state" : isTold ? "no group yet" : "";
  showTiles();
  showNodes(nodes);
  table.show(chosenGroups());
}

function showProblems(told) {
  const worst = (finding) => ORDER[finding.severity];
  problems = new Map();
  for (const finding of told.findings) {
    const known = problems.get(finding.group_id);
    if (finding.group_id !== null && (ORDER[known] ?? 0) < worst(finding)) problems.set(finding.group_id, finding.severity);
  }
  const link = ({group_id: id}) => id === null ? ["the cluster: "] : [element("a", {href: format({group: id}), text: named(id)}), ": "];
  showFindings($("findings"), told.findings, FIRST, link);
  if (!told.findings.some((finding) => finding.severity !== "notice")) $("findings").prepend(element("p", {class: "dim", text: "Nothing is wrong that the doctor can see."}));
  const left = [
    told.looked_at < told.groups && `${grouped(told.looked_at)} of ${several(told.groups, "group")} looked at`,
    told.further_findings && `${several(told.further_findings, "further finding")}: tenure doctor --all`,
  ].filter(Boolean).join("; ");
  $("looked-at").textContent = left;
  show();
}

export function showNodes(told) {
  nodes = told;
  const nobody = told.partitions_without_node;
  $("nodes-section").hidden = told.nodes.length < 2 && !nobody.length;
  const counts = new Map();
  for (const group of groups) counts.set(group.node_id, (counts.get(group.node_id) ?? 0) + 1);
  const row = (name, address, groups, partitions) => ({name, address, groups, partitions});
  nodesTable ??= new Table($("nodes"), [
    {key: "node", name: "Node", value: (node) => node.name, cell: (node) => node.address === null ? element("span", {class: "suspect", text: node.name}) : node.name},
    {key: "address", name: "Address", long: true, value: (node) => node.address},
    {key: "groups", name: "Groups", number: true, value: (node) => node.groups, cell: (node) => node.groups === null ? null : grouped(node.groups)},
    {key: "count", name: "Partitions", number: true, value: (node) => node.partitions.length},
    {key: "partitions", name: "Partitions of __consumer_offsets", sorts: false, long: true, value: (node) => ranges(node.partitions) || "none"},
  ], {name: "nodes"});
  nodesTable.show([...told.nodes.map((node) => row(node.node_id, `${node.host}:${node.port}`, counts.get(node.node_id) ?? 0, node.partitions)),
    ...(nobody.length ? [row("nobody", null, null, nobody)] : [])]);
}

/* A question that fails leaves the answer of the one before; the status line says why. */
const told = (work, failed) => () => work().then(() => failed(""), (error) => failed(error.message));

/* The questions of this view. failed: shows the reason of a failure, "" after a success. */
export function open(failed) {
  table = new Table($("groups"), columns(), {name: "groups", sort: here().sort ?? FIRST_SORT, changed: (sort) => { rename({sort}); lagging.soon(); summing.soon(); }});
  $("filter").addEventListener("input", () => { table.page = 0; rename({search: $("filter").value}); lagging.soon(); });
  const lagging = new Asking(askLags, 15_000, 1_000);
  lagging.work = () => askLags().catch(() => {});  // the table shows a dash
  const summing = new Asking(() => askSums(summing).catch(() => {}), SUMS_MS, 1_000);
  const listing = new Asking(told(async () => {
    groups = await ask("/overview");
    const first = !isTold;
    isTold = true;
    show();
    if (first) [lagging, summing].forEach((each) => each.start());
    else if (table.shown.some((group) => exists(group) && !lags.has(group.group_id))) lagging.soon();
  }, failed), 10_000, 1_000);
  const examining = new Asking(() => ask("/findings").then(showProblems).catch((error) => { $("looked-at").textContent = error.message; }), 15_000, 2_000);
  const owning = new Asking(() => ask("/nodes").then(showNodes).catch(() => {}), 10_000, 2_000);
  const all = [listing, examining, owning];
  return {
    start() { [...all, ...(isTold ? [lagging, summing] : [])].forEach((each) => each.start()); show(); },
    stop() { [...all, lagging, summing].forEach((each) => each.stop()); },
    soon() { listing.soon(); },
  };
}
