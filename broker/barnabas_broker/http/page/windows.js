// The windows of share partitions, a lane for each: what is processed, what members have, and what will be delivered again.

import { draw, duration, h, number, plain } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 1000;
const HIGH = 16;
/** The least width of a part, so that a single record can be seen. */
const LEAST = 6;
/** The lines of text below a lane. */
const MOST_LINES = 8;
const STATES = {
  acknowledged: "processed",
  acquired: "with a member",
  available: "to be delivered again",
  archived: "not delivered any more",
};

const size = (part) => part.last_offset - part.first_offset + 1;
const offsets = (part) => (size(part) === 1 ? number(part.first_offset) : `${number(part.first_offset)}–${number(part.last_offset)}`);

/** What is said of a part, in words; `name` is that of a member. */
function said(part, name) {
  if (part.state === "acquired") {
    return `${offsets(part)}: ${name(part.member_id)}, delivery ${part.delivery_count}, ${part.expires_in_ms === null ? "being written" : `${duration(part.expires_in_ms)} left`}`;
  }
  const times = part.delivery_count > 0 ? `, delivered ${part.delivery_count === 1 ? "once" : `${part.delivery_count} times`}` : "";
  return `${offsets(part)}: ${STATES[part.state] ?? plain(part.state, 20)}${times}`;
}

/** The rectangles of a window. */
function items(row, name) {
  const sizes = row.window.map(size);
  const total = sizes.reduce((sum, each) => sum + each, 0);
  const widths = sizes.map((each) => Math.max((each / total) * WIDE, LEAST));
  const scale = WIDE / widths.reduce((sum, each) => sum + each, 0);
  let x = 0;
  const made = row.window.map((part, at) => {
    const width = widths[at] * scale;
    const item = { id: `p${at}`, tag: "rect", class: `w-${part.state in STATES ? part.state : "archived"}`, x: x.toFixed(1), y: 0, width: width.toFixed(1), height: HIGH, title: said(part, name) };
    x += width;
    return item;
  });
  // What the start waits for is at its left end.
  made.push({ id: "blocks", tag: "rect", class: row.full ? "blocks full" : "blocks", x: 0, y: 0, width: 4, height: HIGH, title: row.full ? "The window is full, and its start waits for this record" : "The start of the window waits for this record" });
  return made;
}

/** A lane with its parts, and the parts that members have or that will be delivered again as text. */
function lane(row, name) {
  if (row.window.length === 0) return row.start_offset === null ? "–" : "empty";
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "window");
  svg.setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const counts = Object.keys(STATES).map((state) => [state, row.window.filter((part) => part.state === state).reduce((sum, part) => sum + size(part), 0)]);
  svg.setAttribute("aria-label", counts.filter(([, count]) => count > 0).map(([state, count]) => `${number(count)} ${STATES[state]}`).join(", "));
  draw(svg, items(row, name));
  const told = row.window.filter((part) => part.state === "acquired" || part.state === "available");
  const more = told.length - MOST_LINES;
  return [svg, h("ul", {}, told.slice(0, MOST_LINES).map((part) => h("li", {}, said(part, name))),
    more > 0 ? h("li", {}, `and ${number(more)} more`) : null,
    row.more_parts > 0 ? h("li", {}, `The lane ends at offset ${number(row.window.at(-1).last_offset)}: ${number(row.more_parts)} more parts follow.`) : null)];
}

/** The columns of a table of share partitions. */
export const COLUMNS = ["Partition", "#Start", "#End", "#Lag", "#Available", "#Acquired", "Start waits for", "Window"];

/** The cells of a share partition. */
export function cells(row, name) {
  const waits = row.blocked_by === null ? "–" : `${number(row.blocked_by.offset)}${row.blocked_by.member_id === null ? "" : ` (${name(row.blocked_by.member_id)})`}`;
  return [h("a", { href: `#/topics/${encodeURIComponent(row.topic)}` }, `${plain(row.topic, 80)}-${row.partition}`),
    number(row.start_offset), number(row.log_end_offset), number(row.lag), number(row.available), number(row.acquired),
    row.full ? h("b", { class: "k-lost" }, `${waits}, the window is full`) : waits, lane(row, name)];
}

/** What the colors of a lane stand for. */
export const windowLegend = () => h("p", { class: "legend" }, Object.entries(STATES).map(([state, text]) => h("span", { class: `key swatch s-w-${state}` }, text)));
