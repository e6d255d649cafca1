// The requests around a rebalance: what each client asked for, when, and what it got.

import { clock, duration, h, number, plain, sheet } from "./dom.js";

const MOST = 100;

/** The requests that came around a band. Pure. */
export function requestsIn(band, requests) {
  const [from, until] = band.around;
  return requests.filter((each) => each.until >= from && (until === null || each.time <= until));
}

function answerOf(each) {
  if (each.answer === null) return h("b", {}, "waits");
  const after = each.waited_ms > 0 ? `, after ${duration(each.waited_ms)}` : "";
  if (each.answer !== "NONE") return [h("b", {}, plain(each.answer, 60)), after];
  const word = each.api === "ConsumerGroupHeartbeat" ? "epoch" : "generation";
  return `ok${each.given === null ? "" : `, ${word} ${each.given}`}${after}`;
}

function requestOf(each) {
  const word = each.api === "ConsumerGroupHeartbeat" ? "epoch" : "generation";
  const notes = [
    each.generation === null ? "" : `${word} ${each.generation}`,
    each.members > 1 ? `${number(each.members)} members` : "",
    each.reason ? `“${plain(each.reason, 200)}”` : "",
  ].filter(Boolean);
  return [each.api, notes.length > 0 ? h("span", { class: "quiet" }, ` ${notes.join(", ")}`) : null];
}

function memberOf(each) {
  // Not the client id: an administrator may remove a member, too.
  if (!each.instance_id) return plain(each.member_id || "–", 120);
  return [h("b", {}, plain(each.instance_id, 60)), h("span", { class: "quiet" }, each.member_id ? ` · ${plain(each.member_id, 120)}` : "")];
}

function rowsOf(each) {
  const row = [clock(each.time, true), requestOf(each), answerOf(each), memberOf(each), plain(each.client_id, 60), plain((each.host ?? "").replace(/^\//, ""), 60)];
  if (each.more === 0) return [row];
  const alike = `${number(each.more)} more ${each.api} like this${each.until > each.time ? `, until ${clock(each.until, true)}` : ""}`;
  return [row, [clock(each.until, true), h("span", { class: "quiet" }, alike), "", "", "", ""]];
}

/** What is shown of the requests around a band.
 *  requests: those of the broker, null until they are loaded; missing: why there are none, null if there are. */
export function requestsAround(band, requests, missing) {
  const head = h("h3", {}, "The requests around it");
  const said = (text) => [head, h("p", { class: "quiet" }, text)];
  if (missing !== null) return said(plain(missing, 400));
  if (requests === null) return said("They are loaded.");
  const found = requestsIn(band, requests.requests);
  const since = requests.kept_since;
  const short = since === null || since > band.start + 1000;
  const note = !short ? null : h("p", { class: "quiet" }, `${since === null ? "Its requests" : `Requests before ${clock(since)}`} are not kept: a broker has the newest ones of a group, in memory, until it stops.`);
  if (found.length === 0) return short ? [head, note] : said("No request around it changed the group or was refused.");
  const rows = found.slice(0, MOST).flatMap(rowsOf);
  return [head, note, ...sheet(["Time", "Request", "Answer", "Member", "Client id", "Host"], rows, found.length - MOST)].filter(Boolean);
}
