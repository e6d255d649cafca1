// The list of topics.

import { bytes, h, number, plain, rate } from "./dom.js";
import { listPage } from "./list.js";

/** Rows with the records per second that were written since the earlier data; null if there is none. Pure. */
export function withRates(data, earlier) {
  const passed = earlier === null ? 0 : (data.time - earlier.time) / 1000;
  const before = new Map((earlier?.topics ?? []).map((row) => [row.topic, row]));
  return data.topics.map((row) => {
    const old = before.get(row.topic);
    const known = passed > 0 && old !== undefined && row.end !== null && old.end !== null && row.known === old.known;
    return { ...row, rate: known ? Math.max(row.end - old.end, 0) / passed : null };
  });
}

/** What is wrong with a topic, in words; "" if nothing is. Pure. */
export function troubleOf(row) {
  if (row.offline > 0) return `${number(row.offline)} without a leader`;
  return row.under_replicated > 0 ? `${number(row.under_replicated)} under-replicated` : "";
}

const COLUMNS = [
  { key: "topic", name: "Topic", value: (row) => `${row.internal ? 1 : 0}${row.topic}`, cell: (row) => h("td", { class: "name" },
    h("a", { href: `#/topics/${encodeURIComponent(row.topic)}`, title: plain(row.topic, 1000) }, plain(row.topic)),
    row.internal ? h("span", { class: "why" }, "internal") : null, troubleOf(row) ? h("span", { class: "why h-stuck" }, `■ ${troubleOf(row)}`) : null) },
  { key: "partitions", name: "Partitions", value: (row) => -row.partitions, numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.partitions)) },
  { key: "replicas", name: "Replicas", value: (row) => -row.replicas, numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.replicas)) },
  { key: "rate", name: "Records/s", value: (row) => -(row.rate ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric" }, rate(row.rate)) },
  { key: "records", name: "Records", value: (row) => -(row.records ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.records)) },
  { key: "size", name: "Size", value: (row) => -(row.size ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric" }, bytes(row.size)) },
];

export function topicsPage(parent, parameters, heard) {
  return listPage(parent, parameters, heard, {
    title: "Topics", address: "#/topics", path: "/topics", interval: 2000, columns: COLUMNS,
    rowsOf: withRates,
    name: (row) => row.topic,
    wordsOf: (row) => `${row.topic} ${row.internal ? "internal" : ""} ${troubleOf(row)}`,
    placeholder: "Filter by name  ( / )",
    none: "There is no topic yet. A client that writes to one creates it.",
    unmatched: "No topic matches the filter.",
    chips(rows, choose) {
      const bad = rows.filter((row) => row.under_replicated > 0).length;
      const offline = rows.filter((row) => row.offline > 0).length;
      return [
        offline > 0 ? h("button", { type: "button", class: "chip h-stuck", onclick: () => choose("leader") }, `■ ${offline} without a leader`) : null,
        bad > 0 ? h("button", { type: "button", class: "chip h-lagging", onclick: () => choose("under-replicated") }, `▲ ${bad} under-replicated`) : null,
      ].filter(Boolean);
    },
    noteOf(data) {
      if (data.cluster) return data.notes.map((each) => `${plain(each, 300)}.`).join(" ");
      const elsewhere = data.topics.some((row) => row.known < row.partitions);
      return elsewhere ? "Records, sizes and rates are those of the partitions that this broker leads." : "";
    },
  });
}
