// Where everything of a group's chart is drawn. Pure: the same chart and view give the same items.
// An item is one SVG element: its id, tag and attributes, and its text and title.

import { clock, duration, partitions, plain } from "./dom.js";

export const LEFT = 210;
const RIGHT = 14;
const AXIS = 22;
const BANDS = 30;
const LANE = 30;
const PAUSE = 22;
const HEAD = 24;
const MOST_PAUSED = 60;
const CHARACTER = 6.6;
const NARROW = 28;

/** What stands for a kind of cause without colour. */
export const SIGNS = { joined: "+", left: "−", lost: "✕", changed: "↻", topic: "◆", failed: "!", unknown: "?" };
export const KINDS = {
  joined: "a member joined",
  left: "a member left",
  lost: "a member was lost",
  changed: "a member rejoined, or the group changed",
  topic: "topics changed",
  failed: "a record was not written",
  unknown: "not recorded",
};

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000,
  900000, 1800000, 3600000, 7200000, 21600000, 43200000, 86400000];

/** The short name of a band: its sign, generation and cause. */
export function bandTitle(band) {
  const who = band.members.length > 0 ? plain(band.members[0].name, 80) : "";
  const more = band.members.length > 1 ? ` and ${band.members.length - 1} more` : "";
  return `${who}${more}${who ? " " : ""}${band.cause_text}`;
}

/** How long a pause lasted, in words. */
export function pauseText(pause, now) {
  if (pause.end === null) return `${duration(Math.max(now - pause.start, 0))} so far`;
  return pause.at_least_ms === pause.at_most_ms ? duration(pause.at_most_ms) : `≤ ${duration(pause.at_most_ms)}`;
}

/** Lanes by their name, each list in the order in which they began. */
function byName(lanes) {
  const named = new Map();
  for (const each of lanes) {
    const list = named.get(each.lane.name);
    if (list === undefined) named.set(each.lane.name, [each]);
    else list.push(each);
  }
  for (const list of named.values()) list.sort((a, b) => (a.lane.start ?? -Infinity) - (b.lane.start ?? -Infinity));
  return named;
}

const startOf = ({ lane }) => lane.start ?? -Infinity;
const endOf = ({ lane }) => lane.end ?? Infinity;

/** Names of lanes: members that had the same name at the same time get the end of their ids. */
export function laneNames(lanes) {
  const names = lanes.map((lane) => plain(lane.name, 60));
  for (const list of byName(lanes.map((lane, at) => ({ lane, at }))).values()) {
    let end = -Infinity;
    const together = list.some((each) => {
      const meets = startOf(each) < end;
      end = Math.max(end, endOf(each));
      return meets;
    });
    if (together) for (const { lane, at } of list) names[at] += ` …${plain(lane.member_id, 400).slice(-5)}`;
  }
  return names;
}

/** Names in the order that people expect: consumer-9 before consumer-10. */
const IN_ORDER = new Intl.Collator("en", { numeric: true });
/** The rows of each chart, by its lanes: they are made once. */
const rowsOf = new WeakMap();

/** The rows of a chart: a client that leaves and joins again is one row, though it has another member id each time.
 *  Rows of members that are there come first, in the order of their names. */
export function laneRows(lanes) {
  const known = rowsOf.get(lanes);
  if (known !== undefined) return known;
  const rows = [];
  for (const list of byName(lanes.map((lane, at) => ({ lane, at }))).values()) {
    const open = [];
    for (const each of list) {
      const row = open.find((one) => endOf(one.parts.at(-1)) <= startOf(each));
      if (row === undefined) open.push({ name: each.lane.name, parts: [each] });
      else row.parts.push(each);
    }
    rows.push(...open);
  }
  const gone = (row) => Number(row.parts.every(({ lane }) => lane.end !== null));
  rows.sort((a, b) => gone(a) - gone(b) || IN_ORDER.compare(a.name, b.name) || startOf(a.parts[0]) - startOf(b.parts[0]));
  rowsOf.set(lanes, rows);
  return rows;
}

/** The places of times: `x` of a time, pixels per ms, and the right edge. */
export function scaleOf({ from, to, width }) {
  const right = Math.max(width - RIGHT, LEFT + 50);
  const scale = (right - LEFT) / Math.max(to - from, 1);
  return { x: (time) => Math.min(Math.max(LEFT + (time - from) * scale, LEFT), right), scale, right };
}

/** The marks of the time axis: at round times of day in the browser's zone. */
export function timeTicks(view) {
  const { from, to } = view;
  const { x, scale } = scaleOf(view);
  const step = STEPS.find((each) => each * scale >= 90) ?? STEPS.at(-1);
  const zone = new Date(from).getTimezoneOffset() * 60000;
  const ticks = [];
  for (let time = Math.ceil((from - zone) / step) * step + zone; time <= to; time += step) {
    ticks.push({ time, at: round(x(time)), text: clock(time, step < 1000) });
  }
  return ticks;
}

const said = new WeakMap();
/** The items of each lane, and what they depend on: while the chart is scrolled they stay what they are. */
const laid = new WeakMap();

/** The partitions of a span in words: short ones, all, and their number. They are made once for each chart. */
function words(span) {
  let known = said.get(span);
  if (known === undefined) {
    const count = Object.values(span.partitions).reduce((sum, each) => sum + each.length, 0);
    known = { short: partitions(span.partitions, 4), long: partitions(span.partitions, 30), count };
    said.set(span, known);
  }
  return known;
}

/** The items of a chart.
 *  view: from, to and now in ms since 1970, width in pixels, selected: the index of a band or null; top and bottom: the
 *  part of the height that is visible, if it is not all: rows elsewhere are left out. */
export function layout(chart, view) {
  const { from, to, now, selected, top = -Infinity, bottom = Infinity } = view;
  const { x, scale, right } = scaleOf(view);
  const moment = `${from}/${to}/${now}/${view.width}`;
  const visible = (y) => y + LANE >= top && y <= bottom;
  const seen = (start, end) => start <= to && (end ?? now) >= from;
  const back = [];
  const items = [];
  const box = (start, end, least) => {
    const left = x(start);
    const wide = Math.max(x(end) - left, least);
    return { x: round(Math.min(left, right - least)), width: round(wide) };
  };
  const fits = (text, wide) => text.length * CHARACTER <= wide;

  const names = laneNames(chart.lanes);
  const lanes = laneRows(chart.lanes).filter(({ parts }) => parts.some(({ lane }) => seen(lane.start ?? -Infinity, lane.end)));
  const rows = pausedRows(chart.pauses.filter((each) => seen(each.start, each.end)), now);
  const lanesTop = AXIS + BANDS + HEAD;
  const pausesTop = lanesTop + Math.max(lanes.length, 1) * LANE + HEAD;
  const shown = rows.slice(0, MOST_PAUSED);
  const height = pausesTop + Math.max(shown.length, 1) * PAUSE + (rows.length > shown.length ? PAUSE : 0) + 8;

  // The time axis.
  for (const { time, at, text } of timeTicks(view)) {
    back.push({ id: `tick/${time}`, tag: "line", class: "tick", x1: at, x2: at, y1: AXIS, y2: height });
    items.push({ id: `time/${time}`, tag: "text", class: "time", x: at, y: 14, "text-anchor": "middle", text });
  }
  if (chart.since > from) {
    back.push({ id: "unknown", tag: "rect", class: "unknown", ...box(from, chart.since, 0), y: AXIS, height: height - AXIS, title: "Not loaded: before the time since which events were asked for." });
  }

  // Bands: a strip of generations, and the time of each rebalance over all lanes.
  items.push({ id: "bands", tag: "text", class: "head", x: 8, y: AXIS + 20, text: "Generations" });
  chart.bands.forEach((band, at) => {
    const end = band.end ?? Math.max(now, band.start);
    if (!seen(band.start, end)) return;
    const over = Math.min(band.assigned ?? end, end);
    const title = `Generation ${band.generation}: ${bandTitle(band)}, ${clock(band.start, true)}`;
    const chosen = at === selected ? " selected" : "";
    const place = box(band.start, end, 3);
    if (seen(band.start, over)) {
      back.push({ id: `rebalance/${at}`, tag: "rect", class: `rebalance k-${band.kind}${chosen}`, "data-band": at, ...box(band.start, over, 2), y: AXIS + BANDS, height: height - AXIS - BANDS, title });
    }
    items.push({ id: `band/${at}`, tag: "rect", class: `band k-${band.kind}${chosen}`, "data-band": at, ...place, y: AXIS, height: BANDS - 4, role: "button", tabindex: at === selected ? 0 : -1, "aria-label": title, "aria-pressed": at === selected, title });
    const sign = SIGNS[band.kind] ?? "?";
    const text = [`${sign} ${band.generation} ${bandTitle(band)}`, `${sign} ${band.generation} ${band.cause_text}`, `${sign} ${band.generation}`, sign].find((each) => fits(each, place.width - 6));
    if (text !== undefined) items.push({ id: `name/${at}`, tag: "text", class: "bandname", x: place.x + 5, y: AXIS + 17, text });
  });

  // A lane for each client.
  items.push({ id: "members", tag: "text", class: "head", x: 8, y: lanesTop - 7, text: "Members" });
  if (lanes.length === 0) items.push({ id: "nobody", tag: "text", class: "nothing", x: LEFT + 8, y: lanesTop + 19, text: "No member in this time." });
  lanes.forEach(({ parts }, row) => {
    const y = lanesTop + row * LANE;
    if (!visible(y)) return;
    parts.forEach((part, n) => {
      const last = n + 1 === parts.length; // it has the name of the row
      if (last || seen(startOf(part), part.lane.end)) drawPart(part, parts[n + 1]?.lane, y);
    });
  });

  /** A member in its row; `next` is the member that the client became when it joined again. */
  function drawPart({ lane, at }, next, y) {
    const like = `${moment}/${at}/${names[at]}/${y}/${next?.start}`;
    const known = laid.get(lane);
    if (known?.like === like) {
      for (const each of known.items) items.push(each);
      return;
    }
    const first = items.length;
    const key = `lane/${at}`;
    const last = lane.end ?? Math.max(now, lane.start ?? now);
    const label = names[at];
    if (next === undefined) items.push({ id: key, tag: "text", class: lane.end === null ? "lane" : "lane gone", x: 8, y: y + 19, text: label.length > 29 ? label.slice(0, 28) + "…" : label, title: `${plain(lane.name, 300)}\n${plain(lane.member_id, 300)}` });
    items.push({ id: `${key}/joined`, tag: "rect", class: "joined", ...box(lane.start ?? from, last, 1), y: y + 12, height: 6, title: `${label}: in the group, owns nothing` });
    lane.spans.forEach((span, n) => {
      const end = span.end ?? last;
      if (!seen(span.start, end)) return;
      const place = box(span.start, end, 1);
      const { short, long, count } = words(span);
      items.push({ id: `${key}/owns/${n}`, tag: "rect", class: "owning", ...place, y: y + 4, height: LANE - 8, title: `${label} owns ${long}` });
      // Text costs a browser most: hundreds of narrow spans have their title only.
      const text = place.width < NARROW ? undefined : [short, `${count} partition${count === 1 ? "" : "s"}`, String(count)].find((each) => fits(each, place.width - 8));
      if (text !== undefined) items.push({ id: `${key}/what/${n}`, tag: "text", class: "what", x: place.x + 5, y: y + 19, text });
    });
    for (const [kind, said] of [["revoking", "has to revoke partitions"], ["silent", "sent no heartbeat"]]) {
      lane[kind].forEach((period, n) => {
        const end = period.end ?? last;
        if (!seen(period.start, end)) return;
        items.push({ id: `${key}/${kind}/${n}`, tag: "rect", class: kind, ...box(period.start, end, 2), y: y + 4, height: LANE - 8, title: `${label} ${said} for ${duration(end - period.start)}` });
      });
    }
    if (lane.end !== null && lane.end <= to && lane.end >= from) {
      const how = lane.end_type.replace(/^(static_)?member_/, "").replaceAll("_", " ");
      const sign = lane.end_type === "member_left" ? "−" : "✕";
      const room = next === undefined ? Infinity : x(next.start) - x(lane.end) - 6;
      const text = [`${sign} ${how}`, sign].find((each) => fits(each, room));
      if (text !== undefined) items.push({ id: `${key}/end`, tag: "text", class: "end", x: round(x(lane.end)) + 3, y: y + 19, text });
    }
    laid.set(lane, { like, items: items.slice(first) });
  }

  // The pauses of partitions.
  items.push({ id: "pauses", tag: "text", class: "head", x: 8, y: pausesTop - 7, text: "Partitions without an owner" });
  if (rows.length === 0) items.push({ id: "unpaused", tag: "text", class: "nothing", x: LEFT + 8, y: pausesTop + 15, text: "None in this time." });
  shown.forEach((row, n) => {
    const y = pausesTop + n * PAUSE;
    if (!visible(y)) return;
    const key = `paused/${row.topic}/${row.partition}`;
    const name = `${plain(row.topic, 200)}-${row.partition}`;
    items.push({ id: key, tag: "text", class: "lane", x: 8, y: y + 15, text: name.length > 29 ? name.slice(0, 14) + "…" + name.slice(-14) : name, title: `${name}: ${duration(row.total)} in all, at most` });
    row.pauses.forEach((pause, k) => {
      const end = pause.end ?? now;
      const place = box(pause.start, end, 2);
      const said = pauseText(pause, now);
      const bounds = pause.end === null || pause.at_least_ms === pause.at_most_ms ? said : `at least ${duration(pause.at_least_ms)}, at most ${duration(pause.at_most_ms)}`;
      const title = `${name} had no owner: ${bounds}`;
      items.push({ id: `${key}/${k}`, tag: "rect", class: "pause", "data-band": pause.band ?? "", ...place, y: y + 3, height: PAUSE - 6, title });
      const least = pause.end === null ? end - pause.start : pause.at_least_ms ?? 0;
      if (least > 0) items.push({ id: `${key}/${k}/least`, tag: "rect", class: "pause least", "data-band": pause.band ?? "", ...box(end - least, end, 1), y: y + 3, height: PAUSE - 6, title });
      const after = place.x + place.width + 4;
      if (k + 1 === row.pauses.length || (row.pauses[k + 1].start - end) * scale > said.length * CHARACTER + 8) {
        const room = fits(said, right - after);
        items.push({ id: `${key}/${k}/text`, tag: "text", class: "pausename", x: room ? after : round(place.x - 4), "text-anchor": room ? "start" : "end", y: y + 15, text: said });
      }
    });
  });
  if (rows.length > shown.length) items.push({ id: "more", tag: "text", class: "nothing", x: 8, y: height - 10, text: `… and ${rows.length - shown.length} more partitions` });

  chart.gaps.forEach((gap, at) => {
    if (gap.time < from || gap.time > to) return;
    items.push({ id: `gap/${at}`, tag: "line", class: "gap", x1: round(x(gap.time)), x2: round(x(gap.time)), y1: AXIS, y2: height, title: plain(gap.text, 400) });
  });
  if (now <= to && now >= from) items.push({ id: "now", tag: "line", class: "now", x1: round(x(now)), x2: round(x(now)), y1: AXIS, y2: height });
  return { height, items: [...back, ...items] };
}

/** A place, in tenths of a pixel. */
export function round(value) {
  return Math.round(value * 10) / 10;
}

/** The pauses of each partition, the partition with the longest total first. */
export function pausedRows(pauses, now) {
  const rows = new Map();
  for (const pause of pauses) {
    const key = `${pause.topic}\n${pause.partition}`;
    const row = rows.get(key) ?? { topic: pause.topic, partition: pause.partition, pauses: [], total: 0 };
    row.pauses.push(pause);
    row.total += pause.at_most_ms ?? Math.max(now - pause.start, 0);
    rows.set(key, row);
  }
  return [...rows.values()].sort((a, b) => b.total - a.total || (a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.partition - b.partition));
}
