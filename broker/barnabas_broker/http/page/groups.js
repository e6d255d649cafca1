// The list of groups, with their health at a glance.

import { duration, h, number, plain, rate } from "./dom.js";
import { listPage } from "./list.js";

/** Signs of health, readable without colour, the worst first. */
export const HEALTH = { stuck: "■", flapping: "↻", waiting: "◷", lagging: "▲", unknown: "?", "no members": "○", ok: "●" };
const ORDER = Object.keys(HEALTH);

/** The health of a row; a word that this page does not know is shown as it is. */
export function healthMark(word) {
  return h("span", { class: `h-${HEALTH[word] ? word.replace(" ", "-") : "ok"}` }, h("span", { "aria-hidden": "true" }, HEALTH[word] ?? "·"), ` ${plain(word, 20)}`);
}

/** A lag in time. Before the first sample nothing is known of a record's age: then it is at least this. Pure. */
export function ageText(ms, exact) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return exact === false ? "not known yet" : "0 s";
  return `${exact === false ? "≥ " : ""}${duration(ms)}`;
}

/** What a storm score is. */
export const STORM = "Storm score of the last 10 minutes, 0 to 100: up to 50 points for rebalances (one a minute has all), 30 for time in which partitions had no owner (a third has all), 20 for a repeated cause. From 60 on a group is flapping.";

/** A rate of the list. Until the broker knows it, it is not 0. */
function rateCell(value, what) {
  const unknown = value === null || value === undefined;
  return h("td", { class: "numeric", title: `${what}, on average of the last 15 to 30 s${unknown ? ". Not known yet" : ""}` }, value === 0 || unknown ? h("span", { class: "quiet" }, rate(value)) : rate(value));
}

const COLUMNS = [
  { key: "health", name: "Health", value: (row) => ORDER.indexOf(row.health), cell: (row) => h("td", { class: "health", title: row.health_reason }, healthMark(row.health)) },
  { key: "group", name: "Group", value: (row) => row.group, cell: (row) => h("td", { class: "name" },
    h("a", { href: `#/groups/${encodeURIComponent(row.group)}`, title: plain(row.group, 1000) }, plain(row.group) || "(empty name)"),
    row.health_reason ? h("span", { class: "why" }, plain(row.health_reason, 300)) : null) },
  { key: "state", name: "State", value: (row) => row.state, cell: (row) => h("td", {}, plain(row.state)) },
  { key: "protocol", name: "Protocol", value: (row) => `${row.type} ${row.protocol ?? ""}`, cell: (row) => h("td", {}, row.type === "consumer" ? "consumer" : "classic", row.protocol ? h("span", { class: "quiet" }, ` ${plain(row.protocol, 40)}`) : null) },
  { key: "members", name: "Members", value: (row) => -row.members, numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.members)) },
  { key: "storm", name: "Storm", value: (row) => -(row.storm_score ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric", title: STORM }, row.storm_score === 0 ? h("span", { class: "quiet" }, "0") : number(row.storm_score)) },
  { key: "age", name: "Oldest", value: (row) => -(row.lag_ms ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric", title: "The age of the oldest record that is not consumed" }, ageText(row.lag_ms, row.lag_ms_exact)) },
  { key: "consumed", name: "Consumed", value: (row) => -(row.commit_rate ?? -1), numeric: true, cell: (row) => rateCell(row.commit_rate, "Records per second that the group commits") },
  { key: "produced", name: "Produced", value: (row) => -(row.produce_rate ?? -1), numeric: true, cell: (row) => rateCell(row.produce_rate, "Records per second that are written to the partitions for which it has committed offsets") },
  { key: "lag", name: "Lag", value: (row) => -(row.lag ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.lag)) },
];

export function groupsPage(parent, parameters, heard) {
  return listPage(parent, parameters, heard, {
    title: "Groups", address: "#/", path: "/groups", interval: 1500, columns: COLUMNS,
    rowsOf: (data) => data.groups,
    name: (row) => row.group,
    wordsOf: (row) => `${row.group} ${row.state} ${row.type} ${row.protocol ?? ""} ${row.health}`,
    placeholder: "Filter by name, state or health  ( / )",
    none: (data) => `${data.cluster ? "This cluster has no group yet" : "This broker coordinates no group yet"}. Start a consumer with a group.id, and it appears here.`,
    unmatched: "No group matches the filter.",
    chips(rows, choose) {
      const counted = new Map();
      for (const row of rows) counted.set(row.health, (counted.get(row.health) ?? 0) + 1);
      return ORDER.filter((status) => counted.has(status)).map((status) =>
        h("button", { type: "button", class: `chip h-${status.replace(" ", "-")}`, onclick: () => choose(status) }, `${HEALTH[status]} ${counted.get(status)} ${status}`));
    },
    noteOf(data) {
      const unloaded = data.unloaded_partitions?.length ?? 0;
      return [
        unloaded > 0 ? `The broker still loads ${unloaded} partitions of __consumer_offsets: their groups are missing here.` : "",
        ...(data.failures ?? []).map((each) => `Groups of a broker are missing here: ${plain(each, 300)}.`),
      ].join(" ").trim();
    },
  });
}
