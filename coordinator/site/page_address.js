/* The address: #group=NAME&from=TIME&to=TIME is a group in a range of time; #search=TEXT&state=STATE&sort=-COLUMN is the
   list. A time is Unix time in ms, or as the page shows it; a range may have one end. #NAME alone is a group too. */

import {iso} from "./page_dom.js";

const KEYS = ["group", "from", "to", "search", "state", "sort"];

export function parse(hash) {
  const typed = hash.replace(/^#/, "");
  const begin = typed.split("=", 1)[0];
  if (typed && !(typed.includes("=") && KEYS.includes(begin))) return {group: decoded(typed)};
  const parts = new URLSearchParams(typed.replaceAll("+", "%2B"));  // a + stands for itself
  return Object.fromEntries([...parts].filter(([key]) => KEYS.includes(key)));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;  // a person typed a % that encodes nothing
  }
}

export function format(parts) {
  return "#" + KEYS.filter((key) => parts[key] !== undefined && (parts[key] !== "" || key === "group"))
    .map((key) => `${key}=${encodeURIComponent(parts[key]).replaceAll("%3A", ":")}`).join("&");
}

export const here = () => parse(location.hash);

/* The group in the address; undefined for the list. */
export const chosen = () => here().group;

/* Unix time in ms; undefined if the text is no time. Without a zone it is UTC. */
export function time(text) {
  const trimmed = (text ?? "").trim();
  if (/^\d{9,16}$/.test(trimmed)) return Number(trimmed);
  if (!/^\d{4}-\d\d-\d\d/.test(trimmed)) return undefined;
  const iso = trimmed.replace(" ", "T");
  const ms = Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(iso) || !iso.includes("T") ? iso : iso + "Z");
  return Number.isNaN(ms) ? undefined : ms;
}

export const timeText = (ms) => iso(Math.round(ms));

/* The range of time in the address; null if there is none. One of its ends may be undefined: then it is open. */
export function range() {
  const {from, to} = here();
  const [fromMs, toMs] = [time(from), time(to)];
  return (fromMs === undefined && toMs === undefined) || toMs <= fromMs ? null : {fromMs, toMs};
}

/* Another address of the same view: no new step for the back button. */
export function replace(parts) {
  const hash = format(parts);
  history.replaceState(null, "", hash === "#" ? location.pathname : hash);
}
