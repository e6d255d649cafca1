// The broker: its requests, its process, its log directory, the cluster. Rates are differences of two answers.

import { bytes, duration, h, number, plain, rate, sheet } from "./dom.js";
import { poll } from "./poll.js";

/** What was observed after an earlier answer: `counts` and `total`; all of it without one. Pure. */
export function since(histogram, earlier) {
  if (earlier === undefined || earlier.counts.some((count, at) => count > histogram.counts[at])) return histogram;
  return { bounds: histogram.bounds, counts: histogram.counts.map((count, at) => count - earlier.counts[at]), total: histogram.total - earlier.total };
}

/** The number of observations. */
export function countOf(histogram) {
  return histogram.counts.reduce((sum, each) => sum + each, 0);
}

/** The upper bound in ms of the bucket that a quantile is in: Infinity for the last one, null without observations. */
export function quantile(histogram, share) {
  const all = countOf(histogram);
  if (all === 0) return null;
  let seen = 0;
  for (let at = 0; at < histogram.counts.length; at += 1) {
    seen += histogram.counts[at];
    if (seen >= share * all) return at < histogram.bounds.length ? histogram.bounds[at] * 1000 : Infinity;
  }
  return Infinity;
}

/** A quantile for people. */
export function atMost(histogram, share) {
  const ms = quantile(histogram, share);
  if (ms === null) return "–";
  if (ms === Infinity) return `> ${duration(histogram.bounds.at(-1) * 1000)}`;
  return `≤ ${ms < 1 ? `${Math.round(ms * 1000)} µs` : ms < 1000 ? `${ms} ms` : duration(ms)}`;
}

export function brokerPage(parent, parameters, heard) {
  let first = null;
  let data = null;
  let earlier = null;
  const title = h("h1", {}, "Broker");
  const facts = h("p", { class: "facts" }, "The broker is asked.");
  const process = h("section", {});
  const requests = h("section", {});
  const directory = h("section", {});
  const cluster = h("section", {});
  parent.append(title, facts, process, requests, directory, cluster);

  function show() {
    const passed = earlier === null ? 0 : data.clock - earlier.clock;
    const per = (now, before) => (passed > 0 ? rate(Math.max(now - before, 0) / passed) : "–");
    const chip = (text, kind) => h("span", { class: kind ? `chip ${kind}` : "chip" }, text);
    title.textContent = `Broker ${data.node_id}`;
    facts.replaceChildren(chip(`version ${plain(data.version, 40)}`), chip(`cluster ${plain(data.cluster_id, 60)}`),
      chip(data.controller_id === data.node_id ? "controller" : `controller: ${data.controller_id < 0 ? "none" : data.controller_id}`),
      data.obstacles.length === 0 ? chip("● ready", "h-ok") : chip(`■ not ready: ${plain(data.obstacles.join("; "), 400)}`, "h-stuck"));
    const lag = since(data.loop_lag, earlier?.loop_lag);
    const cpu = passed > 0 ? `${(((data.cpu_seconds - earlier.cpu_seconds) / passed) * 100).toFixed(1)} %` : "–";
    const pairs = (list) => h("dl", {}, list.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    process.replaceChildren(h("h2", {}, "Process"), h("div", { class: "panel" }, pairs([
      ["Memory", bytes(data.resident_bytes)],
      ["CPU of one core", cpu],
      ["Event loop late", `p50 ${atMost(lag, 0.5)}, p99 ${atMost(lag, 0.99)}`],
      ["Connections", `${number(data.connections.open)} open, ${number(data.connections.accepted)} since the start, ${number(data.connections.refused)} refused, ${number(data.connections.dropped)} dropped`],
      ["Received", passed > 0 ? `${bytes((data.bytes_in - earlier.bytes_in) / passed)}/s` : bytes(data.bytes_in)],
      ["Sent", passed > 0 ? `${bytes((data.bytes_out - earlier.bytes_out) / passed)}/s` : bytes(data.bytes_out)],
      ...(data.membership === null ? [] : [
        ["Lease", data.membership.serving ? h("b", { class: "h-ok" }, `● serving, renewed ${data.membership.lease_age_ms === null ? "never" : `${duration(data.membership.lease_age_ms)} ago`}, ${duration(data.membership.lease_remaining_ms)} left`) : h("b", { class: "h-stuck" }, data.membership.registered ? "■ not renewed: the broker may not lead" : "■ not registered in the cluster")],
        ["Broker epoch", number(data.membership.broker_epoch)]])])));
    const before = new Map((first === data ? [] : first.requests).map((each) => [each.api, each.latency]));
    const rows = data.requests.map((each) => {
      const old = earlier?.requests.find((one) => one.api === each.api)?.latency;
      const recent = countOf(since(each.latency, old));
      const shown = before.has(each.api) && countOf(since(each.latency, before.get(each.api))) > 0 ? since(each.latency, before.get(each.api)) : each.latency;
      const errors = Object.entries(each.errors).sort((a, b) => b[1] - a[1]).slice(0, 4).map(([code, count]) => `${code} ${number(count)}`).join(", ");
      return { api: each.api, all: countOf(each.latency), recent: passed > 0 && earlier !== null ? recent / passed : null, shown, errors };
    }).sort((a, b) => b.all - a.all);
    requests.replaceChildren(h("h2", {}, "Requests by API"), h("p", { class: "quiet" }, "Latencies since this page was opened, from the request to its response; Fetch and JoinGroup include the time for which they ask to wait."),
      ...sheet(["API", "#Requests/s", "#Requests", "#Mean", "#p50", "#p99", "Errors in responses"], rows.map((each) => [
        each.api, rate(each.recent), number(each.all), countOf(each.shown) > 0 ? milliseconds((each.shown.total / countOf(each.shown)) * 1000) : "–",
        atMost(each.shown, 0.5), atMost(each.shown, 0.99), each.errors || "–"]), 0));
    const disk = data.log_directory;
    directory.replaceChildren(h("h2", {}, "Log directory"), h("div", { class: "panel" }, pairs([
      ["Path", h("code", {}, plain(disk.path, 400))],
      ["State", disk.failure ? h("b", { class: "h-stuck" }, `■ offline: ${plain(disk.failure, 300)}`) : disk.shortage ? h("b", { class: "h-stuck" }, `■ cannot be written: ${plain(disk.shortage, 300)}`) : h("b", { class: "h-ok" }, "● online")],
      ["Logs", `${number(disk.partitions)} partitions, ${bytes(disk.size)}`],
      ["Disk", disk.disk_bytes === null ? "not known" : `${bytes(disk.disk_free_bytes)} free of ${bytes(disk.disk_bytes)}`],
      ["Damaged records", disk.damaged_records > 0 ? h("b", { class: "h-stuck" }, `■ ${number(disk.damaged_records)}`) : "none"],
      ["Set aside", disk.strays > 0 ? `${number(disk.strays)} partitions` : "none"]])));
    cluster.replaceChildren(h("h2", {}, "Brokers of the cluster"), ...sheet(["Node id", "Address", "Rack", "#Leads", "#Replicas", "Role"], data.brokers.map((each) => [
      String(each.node_id), plain(each.address, 200), plain(each.rack ?? "–", 60), number(each.leads), number(each.replicas),
      [each.node_id === data.node_id ? "this broker" : "", each.node_id === data.controller_id ? "controller" : ""].filter(Boolean).join(", ") || "–"]), 0));
  }

  const polling = poll(() => "/broker", 2000, (got) => {
    earlier = data;
    data = got;
    first ??= got;
    show();
  }, (error, status) => {
    heard(error, status);
    if (error !== null && data === null) facts.textContent = `The broker cannot be shown: ${plain(error.message, 300)}.`;
  });
  return { address() {}, stop: () => polling.stop() };
}

function milliseconds(ms) {
  return ms < 1 ? `${Math.round(ms * 1000)} µs` : duration(ms);
}
