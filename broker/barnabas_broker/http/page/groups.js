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

/** How bad what is wrong with a group is, the worst first; readable without colour. */
export const SEVERITY = { broken: "✕", sick: "!", odd: "~" };

/** The severity of a finding, with its sign; a word that this page does not know is shown as it is. */
export function severityMark(word) {
  return h("b", { class: `f-${SEVERITY[word] ? word : "odd"}` }, h("span", { "aria-hidden": "true" }, SEVERITY[word] ?? "·"), ` ${plain(word, 20)}`);
}

/** Why a group is not well: the worst thing that is wrong with it, or else the reason of its health. */
function why(row) {
  const worst = row.findings?.[0];
  if (worst === undefined || (worst.severity === "odd" && row.health_reason)) return { said: plain(row.health_reason, 1000), shown: plain(row.health_reason, 300) };
  const more = row.findings.length - 1;
  return { said: plain(worst.text, 1000), shown: [severityMark(worst.severity), ` ${plain(worst.text, 300)}`, more > 0 ? ` And ${more} more.` : ""] };
}

/** A reason below a name, if there is one. */
function whyBelow({ said, shown }) {
  return said === "" ? null : h("span", { class: "why", title: said }, shown);
}

const COLUMNS = [
  { key: "group", name: "Group", value: (row) => row.group, cell: (row) => h("td", { class: "name" },
    h("a", { href: `#/groups/${encodeURIComponent(row.group)}`, title: plain(row.group, 1000) }, plain(row.group) || "(empty name)"),
    whyBelow(why(row))) },
  { key: "health", name: "Health", value: (row) => ORDER.indexOf(row.health), cell: (row) => h("td", { class: "health", title: row.health_reason }, healthMark(row.health)) },
  { key: "state", name: "State", value: (row) => row.state, cell: (row) => h("td", {}, plain(row.state)) },
  { key: "protocol", name: "Protocol", value: (row) => `${row.type} ${row.protocol ?? ""}`, cell: (row) => h("td", {}, row.type === "consumer" || row.type === "share" ? row.type : "classic", row.protocol ? h("span", { class: "quiet" }, ` ${plain(row.protocol, 40)}`) : null) },
  { key: "members", name: "Members", value: (row) => -row.members, numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.members)) },
  { key: "storm", name: "Storm", value: (row) => -(row.storm_score ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric", title: STORM }, row.storm_score === 0 ? h("span", { class: "quiet" }, "0") : number(row.storm_score)) },
  { key: "age", name: "Oldest", value: (row) => -(row.lag_ms ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric", title: "The age of the oldest record that is not consumed" }, ageText(row.lag_ms, row.lag_ms_exact)) },
  { key: "consumed", name: "Consumed", value: (row) => -(row.commit_rate ?? -1), numeric: true, cell: (row) => rateCell(row.commit_rate, "Records per second that the group commits") },
  { key: "produced", name: "Produced", value: (row) => -(row.produce_rate ?? -1), numeric: true, cell: (row) => rateCell(row.produce_rate, "Records per second that are written to the partitions for which it has committed offsets") },
  { key: "lag", name: "Lag", value: (row) => -(row.lag ?? -1), numeric: true, cell: (row) => h("td", { class: "numeric" }, number(row.lag)) },
];

export function groupsPage(parent, parameters, heard) {
  return listPage(parent, parameters, heard, {
    title: "Groups", address: "#/", path: "/groups", interval: 1500, columns: COLUMNS, sort: "health",
    rowsOf: (data) => data.groups,
    name: (row) => row.group,
    isTall: (row) => why(row).said !== "",
    wordsOf: (row) => `${row.group} ${row.state} ${row.type} ${row.protocol ?? ""} ${row.health} ${(row.findings ?? []).map((each) => `${each.severity} ${each.kind}`).join(" ")}`,
    placeholder: "Filter by name, state, health or finding  ( / )",
    none: (data) => `${data.cluster ? "This cluster has no group yet" : "This broker coordinates no group yet"}. Start a consumer with a group.id, and it appears here.`,
    unmatched: "No group matches the filter.",
    chips(rows, choose) {
      const counted = new Map();
      for (const row of rows) {
        counted.set(row.health, (counted.get(row.health) ?? 0) + 1);
        for (const severity of new Set((row.findings ?? []).map((each) => each.severity))) counted.set(severity, (counted.get(severity) ?? 0) + 1);
      }
      const chip = (word, sign, kind) => h("button", { type: "button", class: `chip ${kind}-${word.replace(" ", "-")}`, onclick: () => choose(word) }, `${sign} ${counted.get(word)} ${word}`);
      return [
        ...ORDER.filter((word) => counted.has(word)).map((word) => chip(word, HEALTH[word], "h")),
        ...Object.keys(SEVERITY).filter((word) => counted.has(word)).map((word) => chip(word, SEVERITY[word], "f")),
      ];
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
