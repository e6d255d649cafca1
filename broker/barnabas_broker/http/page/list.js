// A list that is sorted and filtered as one types. Only the rows that can be seen are in the document, so a thousand
// rows cost what twenty cost.

import { h } from "./dom.js";
import { poll } from "./poll.js";

/** Pixels: a row of one line, one with more below, and that on a narrow screen, as page.css has them. */
const ROW = 37;
const TALL = 58;
const NARROW = 92;
const EXTRA = 8;

/** The rows to show: those whose words contain every word of the filter, sorted. Pure. */
export function arrange(rows, { columns, wordsOf, name }, { words, sort, descending }) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    const text = wanted.length === 0 ? "" : wordsOf(row).toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  const { value } = columns.find((column) => column.key === sort) ?? columns[0];
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const direction = descending ? -1 : 1;
  return found.sort((a, b) => direction * compare(value(a), value(b)) || compare(name(a), name(b)));
}

/** A page with a list.
 *  about: title, address (like "#/topics"), path (of the JSON), interval in ms, columns (key, name, value for sorting,
 *  cell, numeric), sort: the key of the column by which it is sorted at first (the first one), rowsOf(data, earlier data), name(row), wordsOf(row), isTall(row) (optional), narrow (optional: pixels of a tall row on a narrow screen), placeholder, none (the text of an empty list,
 *  or what makes it of the data),
 *  unmatched, chips(rows, choose, words), noteOf(data), facts: an element above the list (optional). */
export function listPage(parent, parameters, heard, about) {
  const { columns, name } = about;
  const sorting = about.sort ?? columns[0].key;
  let data = null;
  let all = [];
  let chosen = {};
  let rows = [];
  let tops = [0]; // of each row, and the end of the last one

  const narrow = matchMedia("(max-width: 800px)");
  const isTall = about.isTall ?? (() => false);
  const filter = h("input", { type: "search", id: "filter", placeholder: about.placeholder, "aria-label": "Filter", oninput: typed, autocomplete: "off", spellcheck: "false" });
  const counts = h("div", { class: "counts", role: "status" });
  const heads = columns.map((column) =>
    h("th", { scope: "col", class: column.numeric ? `numeric c-${column.key}` : `c-${column.key}` }, h("button", { type: "button", onclick: () => sortBy(column.key) }, column.name)));
  const body = h("tbody", {});
  const above = h("tr", { class: "space", "aria-hidden": "true" }, h("td", {}));
  const below = h("tr", { class: "space", "aria-hidden": "true" }, h("td", {}));
  const table = h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), body);
  const nothing = h("p", { class: "empty" }, "The list is loaded.");
  const note = h("p", { class: "quiet" });
  parent.append(h("div", { class: "bar" }, h("h1", {}, about.title), filter, counts), about.facts ?? "", table, nothing, note);

  function address(given) {
    chosen = { words: given.get("filter") ?? "", sort: given.get("sort") ?? sorting, descending: given.get("descending") === "1" };
    if (filter.value !== chosen.words) filter.value = chosen.words;
    show();
  }

  function remember() {
    const query = new URLSearchParams();
    if (chosen.words) query.set("filter", chosen.words);
    if (chosen.sort !== sorting) query.set("sort", chosen.sort);
    if (chosen.descending) query.set("descending", "1");
    const text = query.toString();
    history.replaceState(null, "", `${about.address}${text ? "?" + text : ""}`);
    show();
  }

  function typed() {
    chosen.words = filter.value;
    remember();
  }

  function choose(words) {
    filter.value = chosen.words === words ? "" : words;
    typed();
  }

  function sortBy(key) {
    chosen = { ...chosen, sort: key, descending: chosen.sort === key && !chosen.descending };
    remember();
  }

  function show() {
    if (data === null) return;
    rows = arrange(all, about, chosen);
    counts.replaceChildren(...about.chips(all, choose));
    columns.forEach((column, at) => {
      const sorted = chosen.sort !== column.key ? "none" : chosen.descending ? "descending" : "ascending";
      heads[at].setAttribute("aria-sort", sorted);
    });
    note.textContent = about.noteOf(data);
    nothing.hidden = rows.length > 0;
    nothing.textContent = all.length > 0 ? about.unmatched : typeof about.none === "string" ? about.none : about.none(data);
    table.hidden = rows.length === 0;
    place();
  }

  function place() {
    const tall = narrow.matches ? about.narrow ?? NARROW : TALL;
    tops = [0];
    for (const row of rows) tops.push(tops.at(-1) + (isTall(row) ? tall : ROW));
    visible();
  }

  /** The number of the row at a height. */
  function rowAt(height) {
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tops[middle + 1] <= height) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function cellOf(column, row) {
    const cell = column.cell(row);
    cell.classList.add(`c-${column.key}`);
    return cell;
  }

  const made = new Map();

  function visible() {
    const top = body.getBoundingClientRect().top;
    const first = Math.max(rowAt(-top) - EXTRA, 0);
    const last = Math.min(rowAt(innerHeight - top) + 1 + EXTRA, rows.length);
    const start = Math.min(first, rows.length);
    const wanted = rows.slice(start, Math.max(last, start));
    above.firstChild.style.height = `${tops[start]}px`;
    below.firstChild.style.height = `${tops[rows.length] - tops[start + wanted.length]}px`;
    const keep = new Set(wanted.map(name));
    for (const each of made.keys()) if (!keep.has(each)) made.delete(each);
    const elements = wanted.map((row) => {
      const known = made.get(name(row));
      const text = JSON.stringify(row);
      if (known?.text === text) return known.element;
      const element = h("tr", { class: isTall(row) ? "tall" : "" }, columns.map((column) => cellOf(column, row)));
      // The link keeps the focus of the keyboard when its row is made again.
      if (known?.element.contains(document.activeElement)) queueMicrotask(() => element.querySelector("a")?.focus());
      made.set(name(row), { text, element });
      return element;
    });
    const wholly = [above, ...elements, below];
    if (body.children.length !== wholly.length || wholly.some((each, at) => body.children[at] !== each)) body.replaceChildren(...wholly);
  }

  function key(event) {
    if (event.key === "/" && document.activeElement !== filter) {
      event.preventDefault();
      filter.focus();
    }
  }

  let asked = false;
  function scrolled() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      visible();
    });
  }

  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", scrolled);
  narrow.addEventListener("change", place);
  addEventListener("keydown", key);
  address(parameters);
  const polling = poll(() => about.path, about.interval, (got) => {
    all = about.rowsOf(got, data);
    data = got;
    show();
  }, (error, status) => {
    heard(error, status);
    if (error !== null && data === null) nothing.textContent = `This cannot be loaded: ${error.message.slice(0, 300)}. The page tries again.`;
    if (error !== null && data !== null && status === 404) note.textContent = `What you see is older: ${error.message.slice(0, 300)}.`;
  });
  return {
    address,
    stop() {
      polling.stop();
      removeEventListener("scroll", scrolled);
      removeEventListener("resize", scrolled);
      narrow.removeEventListener("change", place);
      removeEventListener("keydown", key);
    },
  };
}
