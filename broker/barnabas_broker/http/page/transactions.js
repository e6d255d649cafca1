// Open transactions, and the partitions that wait for them.

import { clock, duration, h, number, partitions, plain, sheet } from "./dom.js";
import { poll } from "./poll.js";

export function transactionsPage(parent, parameters, heard) {
  let data = null;
  const facts = h("p", { class: "facts" }, "The transactions are loaded.");
  const open = h("section", {});
  const blocked = h("section", {});
  parent.append(h("h1", {}, "Transactions"), facts, open, blocked);

  function show() {
    facts.replaceChildren(h("span", { class: "chip" }, `${number(data.transactional_ids)} transactional id${data.transactional_ids === 1 ? "" : "s"}`), h("span", { class: "chip" }, `${number(data.open_count)} open`),
      data.loading ? h("span", { class: "chip h-waiting" }, "◷ partitions of __transaction_state are being loaded") : "");
    const age = (since) => duration(Math.max(data.time - since, 0));
    open.replaceChildren(h("h2", {}, "Open transactions"), ...(data.open.length === 0 ? [h("p", { class: "empty" }, data.cluster ? "No transaction is open in this cluster." : "No transaction is open at this coordinator.")] : sheet(
      ["Transactional id", "State", "Open for", "Aborted after", "Client", "#Producer id", "#Epoch", "Partitions"],
      data.open.map((each) => [
        h("b", {}, plain(each.transactional_id, 120)), plain(each.state, 40),
        each.start_ms === null ? "–" : h("span", { class: data.time - each.start_ms > each.timeout_ms / 2 ? "h-lagging" : null, title: `since ${clock(each.start_ms)}` }, `${data.time - each.start_ms > each.timeout_ms / 2 ? "▲ " : ""}${age(each.start_ms)}`),
        duration(each.timeout_ms), plain(each.client || "–", 80), String(each.producer_id), String(each.producer_epoch),
        `${partitions(each.partitions, 6)}${each.partition_count > 200 ? ` and more, ${number(each.partition_count)} in all` : ""}`]),
      data.open_count - data.open.length)), ...(data.cluster && data.open.length > 0 ? [h("p", { class: "quiet" }, "The client of a transaction is known to its coordinator only.")] : []),
      ...(data.notes ?? []).map((each) => h("p", { class: "quiet" }, `${plain(each, 300)}.`)));
    blocked.replaceChildren(h("h2", {}, "Partitions that wait"), h("p", { class: "quiet" }, "read_committed consumers read up to the last stable offset: the start of the first transaction that is open."),
      ...(data.blocked.length === 0 ? [h("p", { class: "empty" }, data.cluster ? "No partition waits for a transaction." : "No partition that this broker leads waits for a transaction.")] : sheet(
        ["Partition", "#Last stable offset", "#End", "#Records that wait", "Waits for", "Last write"],
        data.blocked.map((each) => [
          h("a", { href: `#/topics/${encodeURIComponent(each.topic)}` }, `${plain(each.topic, 80)}-${each.partition}`), number(each.stable), number(each.end), number(each.records),
          each.producer === null ? (each.producers_known === false ? h("span", { class: "quiet" }, "not known: its producers cannot be read") : data.cluster ? "the replication of its end, or a transaction that ended just now" : "the replication of its end") : h("span", {}, h("b", {}, each.producer.transactional_id === null ? `producer ${each.producer.producer_id}` : plain(each.producer.transactional_id, 120)),
            each.producer.transactional_id === null ? h("span", { class: "quiet" }, data.cluster ? " (without a transactional id that is known)" : " (another broker coordinates it)") : "", each.open > 1 ? h("span", { class: "quiet" }, ` and ${number(each.open - 1)} more`) : ""),
          each.producer?.last_write_ms > 0 ? `${age(each.producer.last_write_ms)} ago` : "–"]), 0)));
  }

  const polling = poll(() => "/transactions", 1500, (got) => {
    data = got;
    show();
  }, (error, status) => {
    heard(error, status);
    if (error !== null && data === null) facts.textContent = `Transactions cannot be shown: ${plain(error.message, 300)}.`;
  });
  return { address() {}, stop: () => polling.stop() };
}
