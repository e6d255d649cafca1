// One topic: its partitions, some of its records, its configuration.

import { content, FORMATS } from "./content.js";
import { bytes, clock, h, number, plain, rate, sheet } from "./dom.js";
import { poll } from "./poll.js";

const MOST_ROWS = 300;
const MOST_RECORDS = 200;

/** The records per second of each partition since the earlier data, by number; null where they are not known. Pure. */
export function partitionRates(data, earlier) {
  const passed = earlier === null ? 0 : (data.time - earlier.time) / 1000;
  const before = new Map((earlier?.partitions ?? []).map((each) => [each.partition, each]));
  return new Map(data.partitions.map((each) => {
    const old = before.get(each.partition)?.end ?? null;
    return [each.partition, passed > 0 && old !== null && each.end !== null ? Math.max(each.end - old, 0) / passed : null];
  }));
}

export function topicPage(parent, topic, parameters, heard) {
  const path = `/topics/${encodeURIComponent(topic)}`;
  let data = null;
  let rates = new Map();
  const facts = h("p", { class: "facts" }, "The topic is loaded.");
  const partitions = h("section", {});
  const configs = h("section", {});
  const records = recordsPart(path);
  parent.append(h("p", { class: "back" }, h("a", { href: "#/topics" }, "← All topics")), h("h1", {}, plain(topic, 200)), facts, partitions, records.element, configs);

  function show(earlier) {
    const sum = (of) => data.partitions.reduce((total, each) => (of(each) === null ? total : (total ?? 0) + of(each)), null);
    rates = partitionRates(data, earlier);
    const behind = data.partitions.filter((each) => each.isr.length < each.replicas.length).length;
    const offline = data.partitions.filter((each) => each.leader < 0).length;
    const chip = (...text) => h("span", { class: "chip" }, ...text);
    facts.replaceChildren(...[
      chip(`${number(data.partitions.length)} partition${data.partitions.length === 1 ? "" : "s"}`),
      chip(`${number(sum((each) => (each.end === null || each.start === null ? null : each.end - each.start)))} records`), chip(bytes(sum((each) => each.size))),
      chip(rate(sum((each) => rates.get(each.partition) ?? null))),
      offline > 0 ? h("span", { class: "chip h-stuck" }, `■ ${offline} without a leader`) : null,
      behind > 0 ? h("span", { class: "chip h-lagging" }, `▲ ${behind} under-replicated`) : null,
      data.internal ? chip("internal") : null].filter(Boolean));
    const note = data.cluster ? data.notes.map((each) => `${plain(each, 300)}.`).join(" ") : data.partitions.some((each) => each.leader !== data.node_id) ? "What another broker leads is shown there." : "";
    partitions.replaceChildren(h("h2", {}, "Partitions"), ...sheet(
      ["Partition", "Leader", "Replicas", "In sync", "#First offset", "#End", "#Records", "#Records/s", "#Not stable", "#Size"],
      data.partitions.slice(0, MOST_ROWS).map((each) => [
        number(each.partition), each.leader < 0 ? h("b", { class: "h-stuck" }, "■ none") : `${each.leader}`, each.replicas.join(", "),
        each.isr.length < each.replicas.length ? h("b", { class: "h-lagging" }, `▲ ${each.isr.join(", ") || "none"}`) : each.isr.join(", "),
        number(each.start), number(each.end), number(each.end === null || each.start === null ? null : each.end - each.start), rate(rates.get(each.partition) ?? null),
        each.end !== null && each.stable !== null && each.end > each.stable ? h("a", { href: "#/transactions", title: "Records of open transactions, or behind one" }, number(each.end - each.stable)) : "–", bytes(each.size)]),
      data.partitions.length - MOST_ROWS), note ? h("p", { class: "quiet" }, note) : "");
    const set = data.configs.filter((each) => !each.default);
    const rowsOf = (list) => list.map((each) => [h("code", {}, each.name), plain(each.value ?? "–", 300), each.source.toLowerCase().replaceAll("_", " ").replace(" config", "")]);
    if (configs.childElementCount === 0 || configs.shown !== JSON.stringify(data.configs)) {
      configs.shown = JSON.stringify(data.configs);
      const open = configs.querySelector("details")?.open;
      configs.replaceChildren(h("h2", {}, "Configuration"),
        ...(set.length === 0 ? [h("p", { class: "quiet" }, data.configs.length === 0 ? "Not known." : "All values are defaults.")] : sheet(["Key", "Value", "Source"], rowsOf(set), 0)),
        h("details", { open }, h("summary", {}, `${data.configs.length - set.length} defaults`), ...sheet(["Key", "Value", "Source"], rowsOf(data.configs.filter((each) => each.default)), 0)));
    }
    records.topic(data);
  }

  const polling = poll(() => path, 2000, (got) => {
    const earlier = data;
    data = got;
    show(earlier);
  }, (error, status) => {
    heard(error, status);
    if (error !== null && (data === null || status === 404)) facts.textContent = `The topic cannot be shown: ${plain(error.message, 300)}.`;
  });
  return {
    address() {},
    stop() {
      polling.stop();
      records.stop();
    },
  };
}

/** Some records of a topic: the last ones, those from a time on, or all that come. */
function recordsPart(path) {
  let rows = [];
  let next = null;
  let following = null;
  let asked = 0;
  let known = null;
  const opened = new Set();

  const partition = h("select", { "aria-label": "Partition", onchange: load }, h("option", { value: "" }, "All partitions"));
  const format = h("select", { "aria-label": "Format", onchange: show }, Object.entries(FORMATS).map(([value, name]) => h("option", { value }, name)));
  const from = h("input", { type: "datetime-local", step: 1, "aria-label": "From this time on", onchange: load });
  const last = h("button", { type: "button", onclick: () => { from.value = ""; load(); } }, "Last records");
  const follow = h("button", { type: "button", "aria-pressed": "false", onclick: () => (following === null ? begin() : halt()) }, "Follow");
  const state = h("p", { class: "quiet", role: "status" }, "");
  const body = h("tbody", {});
  const table = h("table", { class: "plain records" }, h("thead", {}, h("tr", {}, ["Partition", "Offset", "Time", "Key", "Value"].map((each, at) => h("th", { scope: "col", class: at < 2 ? "numeric" : null }, each)))), body);
  const element = h("section", { class: "reader" }, h("h2", {}, "Records"),
    h("div", { class: "tools" }, last, h("label", {}, "From ", from), follow, partition, format), state, h("div", { class: "sheet", tabindex: 0, role: "group", "aria-label": "Records" }, table));

  function query(more) {
    const given = new URLSearchParams(more);
    if (partition.value !== "") given.set("partition", partition.value);
    return `${path}/records?${given.toString().replaceAll("%3A", ":").replaceAll("%2C", ",")}`;
  }

  async function load() {
    halt();
    const mine = (asked += 1);
    const since = from.value === "" ? null : new Date(from.value).getTime();
    try {
      const response = await fetch(query(since === null ? {} : { since: Math.max(Math.round(since), 0) }), { signal: AbortSignal.timeout(15000) });
      const got = await response.json();
      if (mine !== asked) return;
      if (!response.ok) throw new Error(got.error ?? response.statusText);
      rows = got.records;
      next = got.next;
      opened.clear();
      told(got, since === null ? "The last records" : `From ${clock(since)} on`);
    } catch (error) {
      if (mine !== asked) return;
      rows = [];
      state.textContent = `Records cannot be shown: ${plain(error.message, 300)}`;
    }
    show();
  }

  function told(got, what) {
    const parts = [rows.length === 0 ? "No records here." : `${what}: ${number(rows.length)}.`];
    if (got.more_partitions) parts.push(`Only the first ${got.partitions.length} partitions are read: choose one.`);
    parts.push(...got.gaps.map((gap) => `${plain(gap, 300)}.`));
    state.textContent = parts.join(" ");
  }

  function begin() {
    if (next === null) return;
    follow.setAttribute("aria-pressed", "true");
    const positions = () => Object.entries(next).map(([number_, offset]) => `${number_}:${offset}`).join(",");
    following = poll(() => query({ after: positions(), count: MOST_RECORDS }), 1000, (got) => {
      next = { ...next, ...got.next };
      rows = [...rows, ...got.records].slice(-MOST_RECORDS);
      told(got, "Following");
      if (got.records.length > 0) show();
    }, (error) => {
      if (error !== null) state.textContent = `Records cannot be shown: ${plain(error.message, 300)}`;
    });
  }

  function halt() {
    following?.stop();
    following = null;
    follow.setAttribute("aria-pressed", "false");
  }

  const idOf = (row) => `${row.partition}/${row.offset}`;

  function toggle(id) {
    if (!opened.delete(id)) opened.add(id);
    show();
    body.querySelector(`[data-row="${id}"] button`)?.focus();
  }

  function show() {
    table.hidden = rows.length === 0;
    body.replaceChildren(...[...rows].reverse().flatMap((row) => {
      const id = idOf(row);
      const time = row.timestamp < 0 ? "–" : h("time", { title: new Date(row.timestamp).toISOString() }, clock(row.timestamp, true));
      const head = [h("td", { class: "numeric" }, String(row.partition)), h("td", { class: "numeric" }, h("button", { type: "button", "aria-expanded": String(opened.has(id)), onclick: () => toggle(id) }, String(row.offset))), h("td", {}, time)];
      if (row.kind !== "record") {
        const text = row.kind === "marker" ? `transaction marker: ${plain(row.marker, 40)}` : plain(row.error, 400);
        return [h("tr", { "data-row": id }, head, h("td", { colspan: 2, class: row.kind === "error" ? "h-stuck" : "quiet" }, text))];
      }
      const [key, value] = [content(row.key, format.value), content(row.value, format.value)];
      const line = h("tr", { "data-row": id, class: opened.has(id) ? "open" : null }, head,
        h("td", { class: key.missing ? "quiet one" : "one" }, key.line), h("td", { class: value.missing ? "quiet one" : "one" }, value.line));
      if (!opened.has(id)) return [line];
      const part = (name, each) => (each.missing ? [] : [h("h3", {}, `${name} (${each.format})`), h("pre", {}, each.whole)]);
      const headers = row.headers.map(([name, each]) => h("li", {}, h("b", {}, plain(name, 200)), " ", content(each, format.value).line));
      if (row.header_count > row.headers.length) headers.push(h("li", {}, `and ${row.header_count - row.headers.length} more`));
      const size = (each) => (each === null ? "null" : `${number(each.size)} bytes`);
      return [line, h("tr", { class: "detail" }, h("td", { colspan: 5 },
        h("p", { class: "quiet" }, `Key ${size(row.key)}, value ${size(row.value)}${row.transactional ? ", in a transaction" : ""}, ${row.timestamp < 0 ? "no time" : new Date(row.timestamp).toISOString()}`),
        part("Key", key), part("Value", value), headers.length > 0 ? [h("h3", {}, "Headers"), h("ul", {}, headers)] : null))];
    }));
  }

  return {
    element,
    topic(data) {
      const numbers = data.partitions.filter((each) => each.end !== null).map((each) => each.partition);
      if (partition.options.length !== numbers.length + 1) {
        partition.append(...numbers.slice(partition.options.length - 1).map((each) => h("option", { value: each }, `Partition ${each}`)));
      }
      if (known === null) {
        known = data;
        load();
      }
    },
    stop: halt,
  };
}
