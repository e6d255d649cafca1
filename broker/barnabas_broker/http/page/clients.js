// The clients that push metrics to the broker (KIP-714): all of them, and the values of one.

import { duration, h, number, plain, sheet } from "./dom.js";
import { listPage } from "./list.js";

/** Intervals without a push after which a client is late: the first push may come half an interval later than the others. */
const LATE = 2;

/** What is wrong with the pushes of a client, in words; "" if nothing is. Pure. */
export function troubleOf(row) {
  if (row.error !== null) return `refused: ${row.error}`;
  return row.subscribed && row.pushed_ago_ms > LATE * row.interval_ms ? "late" : "";
}

/** When a client pushed last, in words. Pure. */
export function pushedText(row) {
  if (row.pushed_ago_ms !== null) return `${duration(row.pushed_ago_ms)} ago`;
  return row.subscribed ? "not yet" : "nothing asked";
}

/** The value of a series; null if it is not finite. Pure. */
export function valueText(value) {
  if (value === null) return "–";
  if (Number.isInteger(value)) return number(value);
  return Math.abs(value) >= 1000 ? number(Math.round(value * 100) / 100) : String(Number(value.toPrecision(4)));
}

/** Labels in one line. Pure. */
export function labelsText(labels) {
  return Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(", ");
}

const library = (row) => (row.software_name === "unknown" ? "unknown library" : `${plain(row.software_name, 60)} ${plain(row.software_version, 60)}`);
const named = (row) => plain(row.client_id, 200) || "(no client id)";
const address = (row) => `${row.address.includes(":") ? `[${plain(row.address, 60)}]` : plain(row.address, 60)}:${row.port}`;
const pushed = (row) => (troubleOf(row) === "" ? pushedText(row) : h("b", { class: "h-lagging", title: plain(troubleOf(row), 100) }, `▲ ${row.error === null ? pushedText(row) : plain(row.error, 60)}`));
const COLUMNS = [
  { key: "client", name: "Client id", value: (row) => row.client_id, cell: (row) => h("td", { class: "name", title: named(row) }, h("a", { href: `#/client-metrics/${row.client_instance_id}` }, named(row)), row.group === null ? null : h("span", { class: "quiet" }, ` in ${plain(row.group, 100)}`)) },
  { key: "library", name: "Library", value: library, cell: (row) => h("td", { title: library(row) }, library(row)) },
  { key: "address", name: "Address", value: address, cell: (row) => h("td", {}, address(row)) },
  { key: "interval", name: "Interval", value: (row) => row.interval_ms, numeric: true, cell: (row) => h("td", { class: "numeric" }, duration(row.interval_ms)) },
  { key: "pushed", name: "Last push", value: (row) => row.pushed_ago_ms ?? Infinity, numeric: true, cell: (row) => h("td", { class: "numeric" }, pushed(row)) },
  { key: "series", name: "Series", value: (row) => -row.series, numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.series)) },
];

function subscriptionsOf(data) {
  if (data.subscriptions.length === 0) return [];
  return [h("h2", {}, "Subscriptions"), ...sheet(["Name", "#Interval", "Metrics that begin with", "Clients"], data.subscriptions.map((each) =>
    [h("b", {}, plain(each.subscription, 120)), duration(each.interval_ms), plain(each.metrics, 200) || "none: nothing is pushed", plain(each.match, 200) || "all"]), 0)];
}

export function clientsPage(parent, parameters, heard) {
  const list = h("section", {});
  const subscriptions = h("section", {});
  parent.append(list, subscriptions);
  return listPage(list, parameters, heard, {
    title: "Client metrics", address: "#/client-metrics", path: "/client-metrics", interval: 2000, columns: COLUMNS,
    rowsOf(data) {
      subscriptions.replaceChildren(...subscriptionsOf(data));
      return data.clients;
    },
    name: (row) => row.client_instance_id,
    wordsOf: (row) => `${row.client_id} ${row.group ?? ""} ${row.software_name} ${row.software_version} ${row.address}:${row.port} ${troubleOf(row)}`,
    placeholder: "Filter by client id, group, library or address  ( / )",
    none: (data) => data.subscriptions.length === 0
      ? "No client pushes metrics, because there is no subscription. To do: barnabas client-metrics set all --metrics '*'"
      : "No client has asked this broker which metrics to push. Clients that were connected before the first subscription ask after they have connected again.",
    unmatched: "No client matches the filter.",
    chips(rows, choose) {
      const chip = (word, count) => (count > 0 ? h("button", { type: "button", class: "chip h-lagging", onclick: () => choose(word) }, `▲ ${number(count)} ${word}`) : null);
      return ["late", "refused"].map((word) => chip(word, rows.filter((row) => troubleOf(row).startsWith(word)).length)).filter(Boolean);
    },
    noteOf: (data) => [
      data.clients.length > 0 ? `${number(data.series)} series. Clients that push to another broker are on its page.` : "",
      data.dropped > 0 ? `${number(data.dropped)} values were dropped, because there were too many series.` : "",
    ].filter(Boolean).join(" "),
  });
}

const labelled = (row) => labelsText(row.labels) !== "";
const VALUES = [
  { key: "metric", name: "Metric", value: (row) => row.name, cell: (row) => h("td", { class: "name", title: `barnabas_client_${row.name} on /metrics` }, h("b", {}, plain(row.name, 200)), labelled(row) ? h("div", { class: "why", title: plain(labelsText(row.labels), 1000) }, plain(labelsText(row.labels), 300)) : null) },
  { key: "value", name: "Value", value: (row) => -(row.value ?? -Infinity), numeric: true, cell: (row) => h("td", { class: "numeric", title: row.value === null ? "not a number, or infinite" : String(row.value) }, valueText(row.value)) },
];

/** What is known of a client, above its values. */
function factsOf(data) {
  const { group_id: group, ...others } = data.labels;
  const chip = (...content) => h("span", { class: "chip" }, ...content);
  return [
    chip(library(data)), chip(address(data)), chip(`every ${duration(data.interval_ms)}`), chip("last push ", pushed(data)),
    group === undefined ? null : chip("group ", h("a", { href: `#/groups/${encodeURIComponent(group)}` }, plain(group, 100))),
    ...Object.entries(others).map(([key, value]) => chip(h("span", { class: "quiet" }, `${plain(key, 60)} `), plain(value, 100))),
    chip(data.metrics.length === 0 ? "no subscription asks for its metrics" : data.metrics[0] === "*" ? "asked for all metrics" : `asked for ${data.metrics.slice(0, 8).map((each) => `${plain(each, 100)}*`).join(", ")}${data.metrics.length > 8 ? ` and ${number(data.metrics.length - 8)} more` : ""}`),
  ].filter(Boolean);
}

export function clientPage(parent, name, parameters, heard) {
  const list = h("section", {});
  const facts = h("p", { class: "facts" });
  parent.append(h("p", { class: "back" }, h("a", { href: "#/client-metrics" }, "← All clients")), list);
  const path = `/client-metrics/${encodeURIComponent(name)}`;
  return listPage(list, parameters, heard, {
    title: plain(name, 60), address: `#${path}`, path, interval: 2000, columns: VALUES, facts,
    rowsOf(data) {
      list.querySelector("h1").textContent = named(data);
      facts.replaceChildren(...factsOf(data));
      return data.values;
    },
    isTall: labelled, narrow: 66,
    name: (row) => `${row.name}\n${labelsText(row.labels)}`,
    wordsOf: (row) => `${row.name} ${labelsText(row.labels)}`,
    placeholder: "Filter by metric or label  ( / )",
    none: "The client has pushed no value yet.",
    unmatched: "No metric matches the filter.",
    chips: () => [],
    noteOf: (data) => (data.values.length > 0 ? "The values of the last push, and totals that it left out because they had not changed. Names and units are the client’s." : ""),
  });
}
