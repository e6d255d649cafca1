// Lag and rates of a group as curves on the time axis of its chart. Pure: the same samples and view give the same items.

import { clock, duration, number } from "./dom.js";
import { LEFT, round, scaleOf, timeTicks } from "./layout.js";

const PANEL = 54;
const GAP = 12;
const TOP = 4;
/** Ms between two samples after which a curve is interrupted: at this time nothing was sampled. */
const BREAK = 45000;

const rate = (value) => `${number(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10)}/s`;

/** The curves below the chart. A line is told from another one of its panel by its dashes, not only by its colour. */
export const PANELS = [
  { key: "lag", title: "Lag", format: number, lines: [{ column: "lag", name: "records" }] },
  { key: "age", title: "Oldest unread record", format: (ms) => (ms === 0 ? "0 s" : duration(ms)), lines: [{ column: "lag_ms", name: "age" }] },
  { key: "rates", title: "Records per second", format: rate, lines: [{ column: "produce_rate", name: "produced" }, { column: "commit_rate", name: "consumed" }] },
];

/** The smallest of 1, 2, 5, 10, ... that is not below a value. */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= value * 0.999999);
}

/** The index of the last sample at or before a time; -1 if there is none. */
export function sampleAt(times, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The items of the curves.
 *  view: from, to and now in ms since 1970, width in pixels, pointed: a time whose values are shown, or null,
 *  exact: false if the oldest record that is not consumed may be older than the newest sample says. */
export function curveItems(curves, bands, view) {
  const { from, to, now, width, pointed } = view;
  const { x, right } = scaleOf(view);
  const { times } = curves;
  const height = TOP + PANELS.length * (PANEL + GAP);
  const items = [];
  for (const { time, at } of timeTicks(view)) {
    items.push({ id: `tick/${time}`, tag: "line", class: "tick", x1: at, x2: at, y1: 0, y2: height });
  }
  bands.forEach((band, at) => {
    const over = band.assigned ?? band.end ?? now;
    if (over < from || band.start > to) return;
    items.push({ id: `rebalance/${at}`, tag: "rect", class: `rebalance k-${band.kind}`, "data-band": at, x: round(x(band.start)), width: Math.max(round(x(over) - x(band.start)), 2), y: 0, height });
  });
  const first = Math.max(sampleAt(times, from), 0);
  const last = Math.min(sampleAt(times, to) + 2, times.length);
  const shown = pointed === null ? times.length - 1 : sampleAt(times, pointed);
  const fresh = shown >= 0 && (pointed === null ? now : pointed) - times[shown] < BREAK;
  PANELS.forEach((panel, row) => {
    const top = TOP + row * (PANEL + GAP);
    let largest = 0;
    for (const { column } of panel.lines) {
      for (let at = first; at < last; at += 1) largest = Math.max(largest, curves[column][at] ?? 0);
    }
    const most = niceCeiling(largest);
    const y = (value) => top + PANEL - (value / most) * (PANEL - 6);
    items.push({ id: `${panel.key}/base`, tag: "line", class: "base", x1: LEFT, x2: right, y1: top + PANEL, y2: top + PANEL });
    items.push({ id: `${panel.key}/title`, tag: "text", class: "head", x: 8, y: top + 13, text: panel.title });
    if (largest > 0) items.push({ id: `${panel.key}/most`, tag: "text", class: "time", x: LEFT - 6, y: top + 14, "text-anchor": "end", text: panel.format(most) });
    panel.lines.forEach(({ column, name }, n) => {
      const values = curves[column];
      const path = pathOf(times, values, first, last, x, y);
      if (path !== "") items.push({ id: `${panel.key}/${column}`, tag: "path", class: `curve ${column}`, d: path });
      const value = fresh ? values[shown] : null;
      const said = value === null || value === undefined ? "not known" : saidOf(panel, value, { lag: curves.lag[shown], exact: pointed !== null || view.exact !== false });
      const place = 8 + n * 94;
      const sign = panel.lines.length > 1 ? 22 : 0;
      if (sign > 0) items.push({ id: `${panel.key}/${column}/sign`, tag: "line", class: `curve ${column}`, x1: place, x2: place + 16, y1: top + 29, y2: top + 29 });
      items.push({ id: `${panel.key}/${column}/name`, tag: "text", class: "time", x: place + sign, y: top + 33, text: name });
      items.push({ id: `${panel.key}/${column}/value`, tag: "text", class: "value", x: place, y: top + 50, text: said });
      if (pointed !== null && value !== null && value !== undefined) items.push({ id: `${panel.key}/${column}/dot`, tag: "circle", class: `point ${column}`, cx: round(x(times[shown])), cy: round(y(value)), r: 3 });
    });
  });
  if (pointed !== null && pointed >= from && pointed <= to) {
    items.push({ id: "pointed", tag: "line", class: "pointed", x1: round(x(pointed)), x2: round(x(pointed)), y1: 0, y2: height });
    const near = x(pointed) > right - 70;
    items.push({ id: "pointed/time", tag: "text", class: "time", x: round(x(pointed)) + (near ? -4 : 4), "text-anchor": near ? "end" : "start", y: height - 2, text: clock(pointed) });
  }
  if (times.length === 0) items.push({ id: "nothing", tag: "text", class: "nothing", x: LEFT + 8, y: TOP + 30, text: curves.kept === false ? "This group is not sampled: there are too many groups." : "No samples yet: they begin some seconds after the first committed offset." });
  return { height, items };
}

/** A value in words. What one sample only has seen, and may be older, has an age from the next sample on. */
function saidOf(panel, value, { lag, exact }) {
  if (panel.key !== "age") return panel.format(value);
  if (value === 0) return lag > 0 && !exact ? "not known yet" : panel.format(0);
  return `${exact ? "" : "≥ "}${panel.format(value)}`;
}

function pathOf(times, values, first, last, x, y) {
  const parts = [];
  let before = null;
  for (let at = first; at < last; at += 1) {
    const value = values[at];
    if (value === null || value === undefined) {
      before = null;
      continue;
    }
    const joined = before !== null && times[at] - before < BREAK;
    parts.push(`${joined ? "L" : "M"}${round(x(times[at]))} ${round(y(value))}`);
    before = times[at];
  }
  return parts.join("");
}
