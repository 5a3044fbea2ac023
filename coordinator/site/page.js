/* The page: a list of groups, or one group, as the address says. The rooms:

     page_address.js   the address          page_list.js    all groups
     page_dom.js       elements, words      page_group.js   one group
     page_table.js     tables               page_lanes.js   the picture of its seats
     page_time.js      ranges, ticks

   The page asks again when /events tells of something, and slowly while it doesn't: state and lag change without events.
   It knows nothing of the server behind it but its paths, so that an observer of another cluster can serve it. */

import {$, ask, named, several} from "./page_dom.js";
import {chosen} from "./page_address.js";
import * as group from "./page_group.js";
import * as list from "./page_list.js";

let source = null;
let shown;
let listAddress = "#";
let isConnected = false;
let isRefused = false;  // a server may keep no events; its other answers are there
let failure = "";

function say() {
  const text = failure || (isConnected ? "live" : isRefused ? "no events here: asks every 10 s" : source === null ? "connecting" : "not connected, trying again");
  if ($("live").textContent !== text) $("live").textContent = text;
  $("live").className = isConnected && !failure ? "good" : "busy";
  $("hour").hidden = isRefused;
}

/* The cluster, so that a person who has the pages of several clusters can tell them apart. */
async function nameCluster() {
  const {nodes} = await ask("/nodes");
  const addresses = nodes.map((node) => `${node.host}:${node.port}`).join(", ");
  $("where").textContent = $("where").title = nodes.length > 1 ? `${several(nodes.length, "node")}: ${addresses}` : addresses;
}

const views = {
  list: list.open((reason) => { failure = reason; say(); }),
  group: group.open(),
};

/* Shows what the address names. is: whether a person went there, and wants the focus there too. */
function route(is) {
  nameCluster().catch(() => {});
  const name = chosen();
  const isGroup = name !== undefined;
  if (!isGroup) listAddress = location.hash || "#";
  $("back").querySelector("a").href = listAddress;
  document.title = isGroup ? `${named(name)} · Tenure` : "Tenure";
  $("group").hidden = !isGroup;
  $("all").hidden = isGroup;
  if (isGroup && shown === name) return views.group.follow();
  shown = name;
  views[isGroup ? "list" : "group"].stop();
  if (isGroup) group.choose();
  views[isGroup ? "group" : "list"].start();
  if (is) {
    $(isGroup ? "group" : "all").focus({preventScroll: true});
    scrollTo(0, 0);
  }
}

function told(event) {
  const group = event.data ? JSON.parse(event.data).group ?? null : null;  // null: it may be any group's
  if (shown === undefined) views.list.soon();
  else if (group === null || group === shown) views.group.soon();
}

function listen() {
  source = new EventSource("/events");
  source.onopen = () => { [isConnected, isRefused] = [true, false]; say(); told({}); };
  source.onmessage = told;
  source.addEventListener("gap", told);
  source.onerror = () => {
    // A server without events refuses; the browser doesn't try again then.
    [isConnected, isRefused] = [false, source.readyState === EventSource.CLOSED];
    say();
    if (isRefused) setTimeout(listen, 10_000);
  };
}

addEventListener("hashchange", () => route(true));
// A browser keeps pages for its back button, with their connections, and opens six connections to a server at most.
addEventListener("pagehide", () => source.close());
addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  $(shown === undefined ? "filter" : "within").focus();
});
route(false);
listen();
say();
