// Resets the offsets of a group: first what would change, then, confirmed, exactly that.

import { h, number, plain } from "./dom.js";

const TARGETS = [
  ["earliest", "to the first record", null],
  ["latest", "to the end", null],
  ["current", "to the committed offset; to the end where none is committed", null],
  ["datetime", "to a time", "2026-01-31T12:00:00"],
  ["duration", "to a duration ago", "10m"],
  ["offset", "to an offset", "0"],
  ["shift", "forward, or back if negative, by a number of records", "-100"],
];

export function resetSection(parent, group, token) {
  if (parent.querySelector("#reset") !== null) return;
  const section = h("section", { id: "reset", class: "panel" }, h("h2", {}, "Reset offsets"));
  parent.append(section);
  if (token === null) {
    section.append(h("p", {}, "To reset offsets here, open the page by the address that the console printed: it has the token."));
    return;
  }
  const target = h("select", { id: "reset-to", onchange: changed }, TARGETS.map(([name, said]) => h("option", { value: name }, said)));
  const value = h("input", { id: "reset-value", type: "text", "aria-label": "Value", autocomplete: "off", spellcheck: "false", oninput: stale });
  const topics = h("input", { id: "reset-topics", type: "text", placeholder: "all, or orders, payments:0,2", autocomplete: "off", spellcheck: "false", oninput: stale });
  const outcome = h("div", { class: "outcome", role: "status" });
  const form = h("form", { onsubmit: plan },
    h("label", {}, "New offsets ", target), value,
    h("label", {}, "Topics ", topics),
    h("button", { type: "submit" }, "Show what would change"));
  section.append(h("p", { class: "quiet" }, "Offsets can be reset while the group has no members. Nothing is changed until you confirm it."), form, outcome);
  changed();

  function changed() {
    const example = TARGETS.find(([name]) => name === target.value)[2];
    value.hidden = example === null;
    value.placeholder = example ?? "";
    value.value = "";
    stale();
  }

  /** What was shown does not belong to the form any more. */
  function stale() {
    outcome.replaceChildren();
  }

  async function send(body) {
    const response = await fetch(`/groups/${encodeURIComponent(group)}/offsets`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Barnabas-Token": token },
      body: JSON.stringify(body),
    });
    const data = await response.json();
    if (!response.ok) throw new Error(data.error ?? response.statusText);
    return data;
  }

  async function attempt(work) {
    outcome.replaceChildren(h("p", { class: "quiet" }, "The brokers are asked."));
    try {
      outcome.replaceChildren(...(await work()));
    } catch (error) {
      outcome.replaceChildren(h("p", { class: "refused" }, plain(error.message, 600)));
    }
  }

  function plan(event) {
    event.preventDefault();
    // A comma separates topics, unless it stands between the numbers of partitions.
    const named = topics.value.split(/,(?!\s*\d+\s*(?:,|$))|\s+/).map((each) => each.trim()).filter(Boolean);
    attempt(async () => {
      const data = await send({ to: target.value, value: value.value.trim(), topics: named });
      const moves = data.offsets.filter((each) => each.old_offset !== each.new_offset).length;
      return [
        h("p", {}, h("b", {}, "Dry run, nothing was changed."), ` ${moves} of ${data.offsets.length} partition${data.offsets.length === 1 ? "" : "s"} would get another offset.`),
        ...listed(data, "New offset"),
        h("button", { type: "button", id: "reset-execute", onclick: () => execute(data.plan) }, `Commit these offsets for ${plain(group, 60)}`),
      ];
    });
  }

  function execute(name) {
    attempt(async () => {
      const data = await send({ plan: name });
      const failed = data.offsets.filter((each) => each.error !== null).length;
      const said = failed === 0 ? "The offsets are committed." : failed === data.offsets.length ? "All offsets were refused: nothing was changed." : `${failed} offsets were refused; the others are committed.`;
      return [h("p", {}, h("b", {}, said)), ...listed(data, failed === 0 ? "Committed" : "Wanted")];
    });
  }

  function listed(data, name) {
    const rows = data.offsets.slice(0, 300).map((each) => h("tr", {},
      h("td", {}, `${plain(each.topic, 80)}-${each.partition}`), h("td", {}, number(each.old_offset)), h("td", {}, number(each.new_offset)),
      h("td", {}, each.error === null ? "" : plain(each.error, 300))));
    return [
      ...data.notes.map((note) => h("p", { class: "quiet" }, plain(note, 300))),
      h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["Partition", "Before", name, ""].map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, rows)),
      data.offsets.length > 300 ? h("p", { class: "quiet" }, `and ${data.offsets.length - 300} more`) : null,
    ].filter(Boolean);
  }
}
