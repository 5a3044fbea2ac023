/* Tables that can be sorted and searched, page by page, so that 10,000 rows are as quick as ten. On a narrow screen each
   row is a card, and a list box sorts. */

import {element, grouped, several} from "./page_dom.js";

/* columns: {key, name, value(row), cell(row), file(row), number, long, under, less, sorts}. value: to sort by. cell, file:
   what to show, and what the file has, by default the value. long: a card gives it a line of its own. under: it has a line
   of its own below the row. less: there is no room for it in a window of middle size. options: {name, size, sort, nothing,
   changed(sort)}. name: of the rows, ending in s. nothing: what to say if there are none. */
export class Table {
  constructor(root, columns, options) {
    Object.assign(this, {root, columns, size: 50, sort: "", page: 0, rows: [], ...options});
    this.table = element("table", {role: "table", class: "cards"});
    this.caption = element("caption", {class: "unseen", text: this.name});
    this.head = element("tr", {role: "row"});
    this.body = element("tbody", {role: "rowgroup"});
    this.table.append(this.caption, element("thead", {role: "rowgroup"}, this.head), this.body);
    this.select = element("select", {"aria-label": `Sort ${this.name}`});
    this.select.addEventListener("change", () => this.sortBy(this.select.value));
    this.said = element("span", {role: "status"});
    this.earlier = element("button", {type: "button", text: "Previous", does: () => this.turn(-1)});
    this.later = element("button", {type: "button", text: "Next", does: () => this.turn(1)});
    this.file = element("button", {type: "button", class: "file", text: "CSV", title: "Download all rows as CSV", "aria-label": `Download ${this.name} as CSV`, does: () => this.save()});
    this.foot = element("p", {class: "pages"}, this.earlier, this.later, this.said, this.file);
    const box = element("p", {class: "sorts"}, "Sort by ", this.select);
    root.replaceChildren(box, element("div", {class: "wide"}, this.table), this.foot);
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  get above() {
    return this.columns.filter((column) => !column.under);
  }

  get shown() {
    return this.ordered.slice(this.page * this.size, (this.page + 1) * this.size);
  }

  sortBy(sort) {
    this.sort = sort;
    this.page = 0;
    this.draw();
    this.changed?.(sort);
  }

  turn(step) {
    this.page += step;
    this.draw();
    this.changed?.(this.sort);
    // A button that was used up has lost the focus.
    const [wanted, other] = step > 0 ? [this.later, this.earlier] : [this.earlier, this.later];
    (wanted.disabled ? other : wanted).focus();
  }

  order() {
    const key = this.sort.replace(/^-/, "");
    const column = this.columns.find((each) => each.key === key);
    if (column === undefined) return this.rows;
    const sign = this.sort.startsWith("-") ? -1 : 1;
    const valued = this.rows.map((row) => [column.value(row), row]);
    return valued.toSorted(([one], [other]) => compared(one, other, sign)).map(([, row]) => row);
  }

  draw() {
    this.ordered = this.order();
    const last = Math.max(Math.ceil(this.ordered.length / this.size) - 1, 0);
    this.page = Math.min(Math.max(this.page, 0), last);
    this.drawHead();
    const focused = this.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const [above, under] = [this.above, this.columns.filter((column) => column.under)];
    this.body.replaceChildren(...this.shown.flatMap((row) => [element("tr", {role: "row", class: under.length > 0 && "above"}, ...above.map((column) => this.cell(column, row))),
      ...under.map((column) => element("tr", {role: "row", class: "under"}, element("td", {role: "cell", colspan: above.length}, column.cell(row))))]));
    if (focused) [...this.body.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    const first = this.page * this.size;
    const [from, to] = [first + 1, first + this.shown.length].map(grouped);
    const all = several(this.ordered.length, this.name.replace(/s$/, ""));
    const text = this.ordered.length === 0 ? this.nothing ?? "nothing" : last ? `${from} to ${to} of ${all}` : all;
    if (this.said.textContent !== text) this.said.textContent = text;  // a screen reader reads it when it changes
    this.file.hidden = this.ordered.length === 0;
    this.earlier.hidden = this.later.hidden = last === 0;
    this.earlier.disabled = this.page === 0;
    this.later.disabled = this.page === last;
  }

  cell(column, row) {
    const told = column.cell ? column.cell(row) : column.value(row);
    const cell = told === null || told === undefined || told === "" ? "-" : told;
    const isHead = column === this.columns[0];
    const made = element(isHead ? "th" : "td", {role: isHead ? "rowheader" : "cell", scope: isHead && "row", class: `${kinds(column)}${cell === "-" ? " none" : ""}`, "data-label": column.name});
    made.append(...[cell].flat().map((each) => each instanceof Node ? each : String(each)));
    return made;
  }

  drawHead() {
    const names = this.columns.map((column) => `${column.key} ${column.name}`).join();
    if (names !== this.headNames) {
      this.headNames = names;
      this.head.replaceChildren(...this.above.map((column) => {
        const cell = element("th", {scope: "col", role: "columnheader", class: kinds(column), title: column.title});
        cell.append(sorts(column) ? element("button", {type: "button", text: column.name, does: () => this.sortBy(this.next(column))}) : column.name);
        return cell;
      }));
      const sorted = this.columns.filter((column) => sorts(column));
      this.select.replaceChildren(element("option", {value: "", text: "as it comes"}), ...sorted.flatMap((column) => [
        element("option", {value: column.key, text: `${column.name}, up`}), element("option", {value: `-${column.key}`, text: `${column.name}, down`})]));
    }
    this.select.value = this.sort;
    this.above.forEach((column, index) => {
      const direction = this.sort === column.key ? "ascending" : this.sort === `-${column.key}` ? "descending" : "none";
      if (sorts(column)) this.head.children[index].setAttribute("aria-sort", direction);
    });
  }

  /* Numbers are most interesting when they are large. */
  next(column) {
    const order = column.number ? [`-${column.key}`, column.key] : [column.key, `-${column.key}`];
    return order[(order.indexOf(this.sort) + 1) % 2];
  }

  save() {
    const quoted = (value) => {
      const text = String(value ?? "");
      // A spreadsheet takes a text that begins like this for a formula.
      const safe = /^[=+@\t\r]|^-(?!\d+$)/.test(text) ? `'${text}` : text;
      return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const lines = [this.columns.map((column) => column.name), ...this.ordered.map((row) => this.columns.map((column) => (column.file ?? column.value)(row)))];
    const text = lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
    const url = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
    element("a", {href: url, download: `${this.name.replaceAll(/\W+/g, "-")}.csv`}).click();
    setTimeout(() => URL.revokeObjectURL(url));
  }
}

const sorts = (column) => column.sorts !== false;

const kinds = (column) => ["number", "long", "less"].filter((kind) => column[kind]).join(" ");

/* Rows without a value come last, whichever way the others are sorted. */
function compared(one, other, sign) {
  const [none, nothing] = [one ?? "", other ?? ""].map((value) => value === "");
  if (none || nothing) return none - nothing;
  return sign * (typeof one === "string" ? (one < other ? -1 : one > other ? 1 : 0) : one - other);
}
