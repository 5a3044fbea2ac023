/* The report of an audit: its table of all groups gets a search, an order and pages. Without a script it is there whole.
   The report has this module and those that it imports in one script. */

import {element, has} from "./page_dom.js";
import {Table} from "./page_table.js";

const LESS = ["partition", "per hour", "offsets"];  // columns that a window of middle size has no room for

const plain = document.querySelector(".groups");
const rows = [...plain.tBodies[0].rows];
const heads = [...plain.tHead.rows[0].cells].map((cell) => cell.textContent);
const number = ({dataset, textContent}) => Number(dataset.value ?? textContent.match(/\d+/g)?.join("") ?? NaN);
const table = new Table(plain.parentElement, heads.map((name, at) => {
  const isNumber = at > 0 && at < heads.length - 1;
  const value = (row) => isNumber ? Number.isNaN(number(row.cells[at])) ? null : number(row.cells[at]) : row.cells[at].textContent;
  const file = (row) => row.cells[at].dataset.value ?? (/[a-z]/.test(row.cells[at].textContent) ? row.cells[at].textContent : value(row));  // "at least 4"
  return {key: name, name, number: isNumber, less: LESS.includes(name), value, file, cell: (row) => [...row.cells[at].cloneNode(true).childNodes]};
}), {name: "groups", size: 100, nothing: "no group has such an id"});
const field = element("input", {id: "search", type: "search", autocomplete: "off", spellcheck: "false"});
field.addEventListener("input", () => { table.page = 0; table.show(rows.filter((row) => has(field.value, row.cells[0].textContent))); });
table.root.before(element("p", {class: "search"}, element("label", {for: "search", text: "Groups whose id has "}), field));
table.show(rows);
