// The list of groups. Only the rows that can be seen are in the document, so a thousand groups cost what twenty cost.

import { h, number, plain } from "./dom.js";
import { poll } from "./poll.js";

const ROW = 37;
const EXTRA = 8;
/** Signs of health, readable without colour, the worst first. */
export const HEALTH = { stuck: "■", flapping: "↻", waiting: "◷", lagging: "▲", "no members": "○", ok: "●" };
const ORDER = Object.keys(HEALTH);

const COLUMNS = [
  { key: "health", name: "Health", value: (row) => ORDER.indexOf(row.health) },
  { key: "group", name: "Group", value: (row) => row.group },
  { key: "state", name: "State", value: (row) => row.state },
  { key: "protocol", name: "Protocol", value: (row) => `${row.type} ${row.protocol ?? ""}` },
  { key: "members", name: "Members", value: (row) => -row.members, numeric: true },
  { key: "lag", name: "Lag", value: (row) => -(row.lag ?? -1), numeric: true },
];

/** The rows to show: those whose group, state, protocol or health contains every word, sorted. Pure. */
export function arrange(rows, { words, sort, descending }) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const of = (row) => `${row.group} ${row.state} ${row.type} ${row.protocol ?? ""} ${row.health}`.toLowerCase();
  const found = wanted.length === 0 ? [...rows] : rows.filter((row) => wanted.every((word) => of(row).includes(word)));
  const { value } = COLUMNS.find((column) => column.key === sort) ?? COLUMNS[0];
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const direction = descending ? -1 : 1;
  return found.sort((a, b) => direction * compare(value(a), value(b)) || compare(a.group, b.group));
}

export function groupsPage(parent, parameters, heard) {
  let data = null;
  let chosen = {};
  let rows = [];

  const filter = h("input", { type: "search", id: "filter", placeholder: "Filter by name, state or health  ( / )", "aria-label": "Filter", oninput: typed, autocomplete: "off", spellcheck: "false" });
  const counts = h("div", { class: "counts", role: "status" });
  const heads = COLUMNS.map((column) =>
    h("th", { scope: "col", class: column.numeric ? `numeric c-${column.key}` : `c-${column.key}` }, h("button", { type: "button", onclick: () => sortBy(column.key) }, column.name)));
  const body = h("tbody", {});
  const above = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: COLUMNS.length }));
  const below = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: COLUMNS.length }));
  const table = h("table", { class: "groups" }, h("thead", {}, h("tr", {}, heads)), body);
  const nothing = h("p", { class: "empty" }, "The groups are loaded.");
  const note = h("p", { class: "quiet" });
  parent.append(h("div", { class: "bar" }, h("h1", {}, "Groups"), filter, counts), table, nothing, note);

  function address(given) {
    chosen = { words: given.get("filter") ?? "", sort: given.get("sort") ?? "health", descending: given.get("descending") === "1" };
    if (filter.value !== chosen.words) filter.value = chosen.words;
    show();
  }

  function remember() {
    const query = new URLSearchParams();
    if (chosen.words) query.set("filter", chosen.words);
    if (chosen.sort !== "health") query.set("sort", chosen.sort);
    if (chosen.descending) query.set("descending", "1");
    const text = query.toString();
    history.replaceState(null, "", `#/${text ? "?" + text : ""}`);
    show();
  }

  function typed() {
    chosen.words = filter.value;
    remember();
  }

  function sortBy(key) {
    chosen = { ...chosen, sort: key, descending: chosen.sort === key && !chosen.descending };
    remember();
  }

  function show() {
    if (data === null) return;
    rows = arrange(data.groups, chosen);
    const counted = new Map();
    for (const row of data.groups) counted.set(row.health, (counted.get(row.health) ?? 0) + 1);
    const buttons = ORDER.filter((status) => counted.has(status)).map((status) =>
      h("button", { type: "button", class: `chip h-${status.replace(" ", "-")}`, onclick: () => { filter.value = chosen.words === status ? "" : status; typed(); } }, `${HEALTH[status]} ${counted.get(status)} ${status}`));
    counts.replaceChildren(...buttons);
    COLUMNS.forEach((column, at) => {
      const sorted = column.key === chosen.sort ? (chosen.descending ? "descending" : "ascending") : "none";
      heads[at].setAttribute("aria-sort", sorted);
    });
    const unloaded = data.unloaded_partitions.length;
    note.textContent = unloaded > 0 ? `The broker still loads ${unloaded} partitions of __consumer_offsets: their groups are missing here.` : "";
    nothing.hidden = rows.length > 0;
    nothing.textContent = data.groups.length === 0
      ? "This broker coordinates no group yet. Start a consumer with a group.id, and it appears here."
      : "No group matches the filter.";
    table.hidden = rows.length === 0;
    visible();
  }

  const made = new Map();

  function visible() {
    const top = body.getBoundingClientRect().top;
    const first = Math.max(Math.floor(-top / ROW) - EXTRA, 0);
    const last = Math.min(Math.ceil((innerHeight - top) / ROW) + EXTRA, rows.length);
    const start = Math.min(first, rows.length);
    const wanted = rows.slice(start, Math.max(last, start));
    above.firstChild.style.height = `${start * ROW}px`;
    below.firstChild.style.height = `${(rows.length - start - wanted.length) * ROW}px`;
    const keep = new Set(wanted.map((row) => row.group));
    for (const name of made.keys()) if (!keep.has(name)) made.delete(name);
    const elements = wanted.map((row) => {
      const known = made.get(row.group);
      const text = JSON.stringify(row);
      if (known?.text === text) return known.element;
      const element = rowOf(row);
      // The link keeps the focus of the keyboard when its row is made again.
      if (known?.element.contains(document.activeElement)) queueMicrotask(() => element.querySelector("a")?.focus());
      made.set(row.group, { text, element });
      return element;
    });
    const all = [above, ...elements, below];
    if (body.children.length !== all.length || all.some((each, at) => body.children[at] !== each)) body.replaceChildren(...all);
  }

  function rowOf(row) {
    const status = HEALTH[row.health] ? row.health : "ok";
    return h("tr", {},
      h("td", { class: `health h-${status.replace(" ", "-")}`, title: row.health_reason }, h("span", { "aria-hidden": "true" }, HEALTH[status]), ` ${status}`),
      h("td", { class: "name" }, h("a", { href: `#/groups/${encodeURIComponent(row.group)}`, title: plain(row.group, 1000) }, plain(row.group) || "(empty name)"), row.health_reason && row.health !== "lagging" && row.health !== "no members" ? h("span", { class: "why" }, row.health_reason) : null),
      h("td", {}, plain(row.state)),
      h("td", {}, row.type === "consumer" ? "consumer" : "classic", row.protocol ? h("span", { class: "quiet" }, ` ${plain(row.protocol, 40)}`) : null),
      h("td", { class: "numeric" }, number(row.members)),
      h("td", { class: "numeric" }, number(row.lag)));
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
  addEventListener("keydown", key);
  address(parameters);
  const polling = poll(() => "/groups", 1500, (got) => {
    data = got;
    show();
  }, (error, status) => {
    heard(error, status);
    if (error !== null && data === null) nothing.textContent = `The groups cannot be loaded: ${plain(error.message)}. The page tries again.`;
  });
  return {
    address,
    stop() {
      polling.stop();
      removeEventListener("scroll", scrolled);
      removeEventListener("resize", scrolled);
      removeEventListener("keydown", key);
    },
  };
}
