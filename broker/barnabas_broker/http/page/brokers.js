// The brokers of a cluster, as any client can see them.

import { bytes, h, number, plain, sheet } from "./dom.js";
import { poll } from "./poll.js";

/** The bytes of a broker's replicas; null if they are not known. Pure. */
export function sizeOf(broker) {
  return broker.log_directories === null ? null : broker.log_directories.reduce((sum, each) => sum + each.size, 0);
}

/** What is wrong with a broker, in words; "" if nothing is. Pure. */
export function troubleOf(broker) {
  const failed = (broker.log_directories ?? []).filter((each) => each.failure !== null).length;
  return [
    broker.live ? "" : "not live",
    failed > 0 ? `${failed} log director${failed === 1 ? "y" : "ies"} offline` : "",
    broker.not_in_sync > 0 ? `${number(broker.not_in_sync)} replicas not in sync` : "",
  ].filter(Boolean).join(", ");
}

export function brokersPage(parent, parameters, heard) {
  let data = null;
  const facts = h("p", { class: "facts" }, "The brokers are asked.");
  const brokers = h("section", {});
  const directories = h("section", {});
  const unknown = h("p", { class: "quiet" },
    "Requests by API, latencies, memory, the delay of the event loop and connections are not shown here: no request of Kafka's protocol tells them. A Barnabas broker shows them on its own page (--http-port), Apache Kafka by its metrics (JMX).");
  parent.append(h("h1", {}, "Brokers"), facts, brokers, directories, unknown);

  function show() {
    const chip = (text, kind) => h("span", { class: kind ? `chip ${kind}` : "chip" }, text);
    const live = data.brokers.filter((each) => each.live).length;
    facts.replaceChildren(...[
      chip(`cluster ${plain(data.cluster_id || "without an id", 60)}`), chip(`${number(live)} broker${live === 1 ? "" : "s"}`),
      chip(data.controller_id < 0 ? "controller: not known" : `controller: ${data.controller_id}`),
      data.offline > 0 ? chip(`■ ${number(data.offline)} partitions without a leader`, "h-stuck") : null,
      data.brokers.length > live ? chip(`■ ${number(data.brokers.length - live)} not live`, "h-stuck") : null].filter(Boolean));
    brokers.replaceChildren(...sheet(["Node id", "Address", "Rack", "#Leads", "#Replicas", "#Size", "State"], data.brokers.map((each) => [
      String(each.node_id), each.address === null ? "–" : plain(each.address, 200), plain(each.rack ?? "–", 60), number(each.leads), number(each.replicas), bytes(sizeOf(each)),
      h("span", {}, troubleOf(each) ? h("b", { class: each.live && each.not_in_sync === 0 ? "h-lagging" : "h-stuck" }, `■ ${troubleOf(each)}`) : h("span", { class: "h-ok" }, "● live"), each.controller ? ", controller" : "")]), 0));
    const rows = data.brokers.flatMap((each) => (each.log_directories ?? []).map((one) => [
      String(each.node_id), h("code", {}, plain(one.path, 300)), one.failure === null ? h("span", { class: "h-ok" }, "● online") : h("b", { class: "h-stuck" }, `■ offline: ${plain(one.failure, 300)}`),
      number(one.replicas), bytes(one.size), one.disk_bytes === null ? "not known" : `${bytes(one.disk_free_bytes)} of ${bytes(one.disk_bytes)}`]));
    const missing = data.brokers.filter((each) => each.reason !== null).map((each) => h("p", { class: "quiet" }, `Log directories of broker ${each.node_id} are not known: ${plain(each.reason, 300)}.`));
    directories.replaceChildren(h("h2", {}, "Log directories"), ...(rows.length === 0 ? [] : sheet(["Broker", "Path", "State", "#Replicas", "#Size", "Disk free"], rows, 0)), ...missing);
  }

  const polling = poll(() => "/brokers", 2000, (got) => {
    data = got;
    show();
  }, (error, status) => {
    heard(error, status);
    if (error !== null && data === null) facts.textContent = `The brokers cannot be shown: ${plain(error.message, 300)}.`;
  });
  return { address() {}, stop: () => polling.stop() };
}
