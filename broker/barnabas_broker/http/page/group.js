// One group on one time axis: the chart, what is behind the selected band, its members and partitions.

import { compare } from "./compare.js";
import { curveItems } from "./curves.js";
import { clock, draw, duration, h, number, partitions, plain, sheet } from "./dom.js";
import { ageText, healthMark, severityMark, STORM } from "./groups.js";
import { bandTitle, KINDS, laneNames, layout, LEFT, pausedRows, pauseText, SIGNS } from "./layout.js";
import { LIVE, poll, present } from "./poll.js";
import { requestsAround } from "./requests.js";
import { cells, COLUMNS, windowLegend } from "./windows.js";

const SHORTEST = 200;
const LONGEST = 7 * 86400000;
const HOUR = 3600000;
const MOST_ROWS = 300;
/** Pixels: what is drawn of the lanes is a multiple of BLOCK, and LOWEST at least. */
const BLOCK = 120;
const LOWEST = 640;
const SVG = "http://www.w3.org/2000/svg";

export function groupPage(parent, group, parameters, heard) {
  let chart = null;
  let now = null; // the group as it is: members, offsets
  let curves = null;
  let requests = null; // of the broker that coordinates the group
  let pointed = null; // a time under the pointer
  let skew = 0;
  let since = Math.floor((present() - HOUR) / 60000) * 60000;
  let live = true;
  let span = null; // ms that are shown; null until the first chart is there
  let to = null;
  let selected = null; // the start of a band; null is the newest one
  let comparedTo = null; // the start of another band
  let asked = false;

  const title = h("h1", {}, plain(group, 200) || "(empty name)");
  const facts = h("p", { class: "facts" }, "The group is loaded.");
  const findings = h("section", { class: "findings", "aria-label": "What is wrong with the group", hidden: true });
  const storm = h("p", { class: "storm quiet", title: STORM, hidden: true });
  const headline = h("p", { class: "headline", role: "status" });
  const range = h("span", { class: "quiet range" });
  const liveButton = h("button", { type: "button", class: "live", onclick: goLive, title: "l" }, "Live");
  const tools = h("div", { class: "tools" },
    h("button", { type: "button", onclick: () => step(-1), title: "←" }, "‹ Earlier"),
    h("button", { type: "button", onclick: () => step(1), title: "→" }, "Later ›"),
    h("button", { type: "button", onclick: () => zoom(0.5), title: "+", "aria-label": "Zoom in" }, "+"),
    h("button", { type: "button", onclick: () => zoom(2), title: "-", "aria-label": "Zoom out" }, "−"),
    h("button", { type: "button", onclick: closeUp, title: "z" }, "Zoom to the rebalance"),
    h("button", { type: "button", onclick: fit, title: "0" }, "Everything"),
    liveButton, range);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "chart");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", "The group on a time axis. Arrow keys select a rebalance, plus and minus zoom.");
  const patterns = document.createElementNS(SVG, "defs");
  const drawn = document.createElementNS(SVG, "g");
  svg.append(patterns, drawn);
  draw(patterns, [
    { id: "hatch", tag: "pattern", patternUnits: "userSpaceOnUse", width: 6, height: 6, patternTransform: "rotate(45)" },
    { id: "dots", tag: "pattern", patternUnits: "userSpaceOnUse", width: 5, height: 5 },
  ]);
  for (const pattern of patterns.children) pattern.id = pattern.getAttribute("data-id");
  draw(patterns.children[0], [{ id: "a", tag: "rect", class: "stripe", width: 3, height: 6 }]);
  draw(patterns.children[1], [{ id: "b", tag: "circle", class: "dot", cx: 2.5, cy: 2.5, r: 1.4 }]);
  const scroller = h("div", { class: "scroller", onscroll: scrolled }, svg);
  const below = document.createElementNS(SVG, "svg");
  below.setAttribute("class", "chart curves");
  below.setAttribute("role", "img");
  below.setAttribute("aria-label", "Lag, age of the oldest unread record, and records per second, on the same time axis.");
  const lines = h("div", { class: "below" }, below);
  const legend = h("p", { class: "legend" },
    Object.entries(KINDS).map(([kind, said]) => h("span", { class: `key k-${kind}` }, h("b", {}, SIGNS[kind]), ` ${said}`)),
    h("span", { class: "key swatch s-owning" }, "owns partitions"), h("span", { class: "key swatch s-joined" }, "owns nothing"),
    h("span", { class: "key swatch s-silent" }, "silent"), h("span", { class: "key swatch s-revoking" }, "revoking"),
    h("span", { class: "key swatch s-pause" }, "no owner"), h("span", { class: "key swatch s-most" }, "perhaps no owner"));
  const gaps = h("ul", { class: "gaps" });
  const panel = h("section", { class: "panel", "aria-label": "The selected rebalance", "aria-live": "polite" });
  const around = h("section", { class: "requests", "aria-label": "The requests around the selected rebalance", hidden: true });
  const others = h("section", { class: "events" });
  const members = h("section", {});
  const offsets = h("section", {});
  parent.append(h("p", { class: "back" }, h("a", { href: "#/" }, "← All groups")), title, facts, findings, headline, storm,
    tools, scroller, lines, legend, gaps, panel, around, others, members, offsets);

  const time = () => present() + skew;
  const edges = () => {
    const end = live ? time() : to;
    return { from: end - span, to: end };
  };

  function chosen() {
    if (chart === null || chart.bands.length === 0) return null;
    if (selected === null) return chart.bands.length - 1;
    const at = chart.bands.findIndex((band) => band.start === selected);
    return at >= 0 ? at : chart.bands.length - 1;
  }

  // The address

  function address(given) {
    const [from, end] = [Number(given.get("from")), Number(given.get("to"))];
    selected = given.has("band") && Number.isFinite(Number(given.get("band"))) ? Number(given.get("band")) : null;
    if (Number.isFinite(from) && Number.isFinite(end) && end - from >= SHORTEST && from > 0 && end < 8e15) {
      live = false;
      to = end;
      span = Math.min(end - from, LONGEST);
      if (from < since) since = Math.floor(from / 60000) * 60000;
    } else {
      live = true;
    }
    show();
  }

  function remember() {
    const query = new URLSearchParams();
    if (!live) {
      const { from } = edges();
      query.set("from", Math.round(from));
      query.set("to", Math.round(to));
    }
    if (selected !== null) query.set("band", selected);
    const text = query.toString();
    history.replaceState(null, "", `#/groups/${encodeURIComponent(group)}${text ? "?" + text : ""}`);
    later();
  }

  // Moving in time

  /** Show a time; at the right edge it stays live, unless a moment was asked for. */
  function move(from, end, moment = false) {
    span = Math.min(Math.max(end - from, SHORTEST), LONGEST);
    const latest = time();
    live = !moment && end >= latest - span / 200;
    to = Math.min(end, latest);
    const first = edges().from;
    if (first < since) since = Math.floor(first / 60000) * 60000;
    remember();
  }

  function zoom(factor, at = null) {
    if (span === null) return;
    const { from, to: end } = edges();
    const wide = Math.min(Math.max(span * factor, SHORTEST), LONGEST);
    const around = at ?? (live ? end : (from + end) / 2);
    const share = (around - from) / (end - from);
    move(around - wide * share, around + wide * (1 - share));
  }

  function goLive() {
    live = true;
    selected = null;
    remember();
  }

  function fit() {
    if (chart === null) return;
    const latest = time();
    live = true;
    span = wholeSpan(latest);
    remember();
  }

  function wholeSpan(latest) {
    const first = Math.min(...chart.bands.map((band) => band.start), ...chart.pauses.map((each) => each.start), ...chart.lanes.map((lane) => lane.start ?? Infinity));
    const wide = Number.isFinite(first) ? (latest - first) * 1.06 : 0;
    return Math.min(Math.max(wide, 20000), LONGEST);
  }

  /** A report opens on what happened, without the time before and after. */
  function storyOnly() {
    const starts = [...chart.bands, ...chart.pauses].map((each) => each.start).concat(chart.lanes.map((lane) => lane.start ?? Infinity));
    const ends = [...chart.bands.map((band) => band.assigned ?? band.start), ...[...chart.pauses, ...chart.lanes].map((each) => each.end ?? 0)];
    const [first, last] = [Math.min(...starts), Math.max(...ends)];
    if (!Number.isFinite(first) || last <= first) return;
    const margin = Math.max((last - first) * 0.08, SHORTEST / 2);
    live = false;
    to = Math.min(last + margin * 2, Math.max(time(), last + margin));
    span = Math.min(to - first + margin, LONGEST);
  }

  function select(at) {
    if (at === null || chart?.bands[at] === undefined) return;
    const band = chart.bands[at];
    selected = band.start;
    const { from, to: end } = edges();
    if (band.start < from || band.start > end) move(band.start - span / 2, band.start + span / 2, true);
    else remember();
  }

  function step(by) {
    const at = chosen();
    if (at === null) return;
    select(Math.min(Math.max(at + by, 0), chart.bands.length - 1));
  }

  function closeUp() {
    const at = chosen();
    if (at === null) return;
    const band = chart.bands[at];
    selected = band.start;
    const starts = chart.pauses.filter((each) => each.band === at).map((each) => each.start);
    const first = Math.min(band.start, ...starts);
    const last = band.assigned ?? band.end ?? time();
    const margin = Math.max((last - first) * 0.6, 400);
    move(first - margin, last + margin * 1.6, true);
  }

  function timeAt(event) {
    const place = svg.getBoundingClientRect();
    const { from, to: end } = edges();
    const share = (event.clientX - place.left - LEFT) / Math.max(place.width - LEFT - 14, 1);
    return from + Math.min(Math.max(share, 0), 1) * (end - from);
  }

  for (const each of [svg, below]) each.addEventListener("wheel", (event) => {
    if (span === null || !(event.ctrlKey || event.metaKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      zoom(2 ** (Math.sign(event.deltaY) * 0.35), timeAt(event));
    } else {
      const { from, to: end } = edges();
      const shift = ((event.deltaX || event.deltaY) / svg.clientWidth) * (end - from);
      move(from + shift, end + shift);
    }
  }, { passive: false });

  let drag = null;
  for (const each of [svg, below]) each.addEventListener("pointerdown", (event) => {
    if (span === null || event.button !== 0) return;
    drag = { x: event.clientX, ...edges(), moved: false };
  });
  for (const each of [svg, below]) each.addEventListener("pointermove", (event) => {
    if (span !== null && drag === null) {
      pointed = timeAt(event);
      later();
    }
    if (drag === null) return;
    if (!drag.moved && Math.abs(event.clientX - drag.x) < 4) return;
    if (!drag.moved) each.setPointerCapture(event.pointerId);
    drag.moved = true;
    const shift = ((drag.x - event.clientX) / Math.max(svg.clientWidth - LEFT, 1)) * (drag.to - drag.from);
    move(drag.from + shift, drag.to + shift);
  });
  for (const each of [svg, below]) {
    each.addEventListener("pointerup", () => setTimeout(() => { drag = null; }));
    each.addEventListener("pointercancel", () => { drag = null; });
    each.addEventListener("pointerleave", () => { pointed = null; later(); });
  }
  for (const each of [svg, below]) each.addEventListener("click", (event) => {
    if (drag?.moved) return;
    const at = event.target.closest?.("[data-band]")?.getAttribute("data-band");
    if (at) select(Number(at));
  });
  for (const each of [svg, below]) each.addEventListener("dblclick", (event) => zoom(0.5, timeAt(event)));

  function key(event) {
    if (event.target.closest?.("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: fit, l: goLive, z: closeUp };
    const action = actions[event.key];
    const at = event.target.getAttribute?.("data-band");
    if (action !== undefined) {
      event.preventDefault();
      action();
    } else if ((event.key === "Enter" || event.key === " ") && at) {
      event.preventDefault();
      select(Number(at));
    } else if (event.key === "Escape") {
      location.hash = "#/";
    }
  }

  // Showing

  function later() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      show();
    });
  }

  let shown = null; // what was drawn last, and the part of the height
  let scrolling = false;

  /** The part of the lanes that is visible, to whole blocks: most frames of scrolling draw nothing. */
  function seen() {
    const top = Math.floor(scroller.scrollTop / BLOCK) * BLOCK;
    return { top, bottom: Math.ceil((scroller.scrollTop + Math.max(scroller.clientHeight, LOWEST)) / BLOCK) * BLOCK };
  }

  /** Scrolling shows other lanes of the same moment, and changes nothing else. */
  function scrolled() {
    if (scrolling || shown === null) return;
    scrolling = true;
    requestAnimationFrame(() => {
      scrolling = false;
      const { top, bottom } = seen();
      if (top === shown.top && bottom === shown.bottom) return;
      shown = { ...shown, top, bottom };
      draw(drawn, layout(chart, shown).items);
    });
  }

  function show() {
    if (chart === null) return;
    if (span === null) {
      span = wholeSpan(time());
      if (!LIVE && live) storyOnly();
    }
    const { from, to: end } = edges();
    const width = Math.max(scroller.clientWidth, 480);
    const at = chosen();
    const view = { from, to: end, now: time(), width, selected: at, pointed, ...seen() };
    const before = shown?.selected;
    shown = view;
    const made = layout(chart, view);
    svg.setAttribute("viewBox", `0 0 ${width} ${made.height}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", made.height);
    const onBand = document.activeElement?.getAttribute?.("data-band");
    draw(drawn, made.items);
    if (onBand && Number(onBand) === before && at !== before) drawn.querySelector(`[data-band="${at}"][role]`)?.focus(); // it follows the arrow keys
    if (curves !== null) {
      const { height, items } = curveItems(curves, chart.bands, { ...view, exact: now?.lag_ms_exact });
      below.setAttribute("viewBox", `0 0 ${width} ${height}`);
      below.setAttribute("width", width);
      below.setAttribute("height", height);
      draw(below, items);
    }
    liveButton.setAttribute("aria-pressed", live);
    range.textContent = `${new Date(from).toLocaleDateString()} ${clock(from)} – ${clock(end)} (${duration(end - from)})${live && LIVE ? ", live" : ""}`;
    showPanel(at);
  }

  let panelOf = null;
  function showPanel(at) {
    const band = at === null ? null : chart.bands[at];
    // Durations of what lasts change with time; everything else only with the chart.
    const lasting = band !== null && (band.assigned === null || chart.pauses.some((each) => each.end === null));
    const version = `${at} ${lasting ? Math.floor(time() / 1000) : ""}`;
    showRequests(band);
    const choosing = panelOf?.chart === chart && panelOf.at === at && document.activeElement?.id === "compare"; // its list may be open
    if (choosing || (panelOf?.chart === chart && panelOf.version === version)) return;
    panelOf = { chart, at, version };
    headline.replaceChildren(...headlineOf());
    gaps.replaceChildren(
      ...sourceOf(chart.source),
      ...(chart.more ? [h("li", {}, "The oldest part is left out: there is too much to show at once.")] : []),
      ...chart.gaps.slice(-20).map((gap) => h("li", {}, `${clock(gap.time)} `, plain(gap.text, 400))));
    panel.replaceChildren(...(band === null
      ? [h("p", { class: "empty" }, `No rebalance since ${clock(chart.since)}. Zoom out to see earlier ones; the next one appears here by itself.`)]
      : panelFor(band, at)));
    const alone = chart.explanations.filter((_, n) => !chart.bands.some((each) => each.explanation === n)).slice(-12).reverse();
    others.replaceChildren(...(alone.length === 0 ? [] : [h("h2", {}, "What else happened"), h("ul", {}, alone.map((each) =>
      h("li", {}, h("time", {}, clock(each.time)), " ", plain(each.text, 600), each.remedy ? h("em", {}, ` ${plain(each.remedy, 600)}`) : null)))]));
  }

  let requestsOf = null;
  function showRequests(band) {
    if (requestsOf?.chart === chart && requestsOf.band === band && requestsOf.requests === requests) return;
    requestsOf = { chart, band, requests };
    around.hidden = band === null;
    around.replaceChildren(...(band === null ? [] : requestsAround(band, requests, chart.source?.no_requests ?? (LIVE || requests !== null ? null : "Requests are not in this file."))));
  }

  /** Where the events come from, as far as that has to be known; a broker's own events have no such note. */
  function sourceOf(source) {
    if (source === undefined) return [];
    const percent = source.size > 0 ? ` ${Math.min(Math.floor((100 * source.read) / source.size), 99)} %` : "";
    return [
      source.note === null ? null : h("li", {}, plain(source.note, 600)),
      source.loaded || source.error !== null ? null : h("li", { class: "loading" }, `The records are read:${percent || " …"}`),
      source.error === null ? null : h("li", { class: "loading" }, `What happens now cannot be read: ${plain(source.error, 600)}. It is tried again.`),
      source.dropped > 0 ? h("li", {}, `${number(source.dropped)} older events are left out.`) : null,
    ].filter(Boolean);
  }

  function headlineOf() {
    if (chart.bands.length === 0) return [`No rebalance since ${clock(chart.since)}.`];
    const at = chart.bands.length - 1;
    const band = chart.bands[at];
    const paused = pausedRows(chart.pauses.filter((each) => each.band === at), time());
    const text = [h("b", {}, `Last rebalance, ${clock(band.start)}: `), h("b", { class: `sign k-${band.kind}` }, SIGNS[band.kind]), ` ${bandTitle(band)}.`];
    if (band.assigned === null) text.push(" It is not over.");
    if (paused.length > 0) {
      // The longest pause, and the partitions that had one of the same length.
      const long = (each) => pauseText(each.pauses.at(-1), time());
      const byTopic = Object.create(null);
      for (const each of paused.filter((row) => long(row) === long(paused[0]))) (byTopic[each.topic] ??= []).push(each.partition);
      for (const numbers of Object.values(byTopic)) numbers.sort((a, b) => a - b);
      text.push(` ${partitions(byTopic, 4)} had no owner for ${long(paused[0])}.`);
    }
    return text;
  }

  function panelFor(band, at) {
    const explained = band.explanation === null ? null : chart.explanations[band.explanation];
    const rows = [];
    const row = (name, ...content) => rows.push(h("dt", {}, name), h("dd", {}, ...content));
    const took = band.assigned === null ? "It is not over." : duration(band.assigned - band.start);
    row("Cause", h("b", { class: `sign k-${band.kind}` }, SIGNS[band.kind]), ` ${bandTitle(band)}`, band.inferred ? h("span", { class: "quiet" }, " (concluded, not recorded)") : null);
    row("When", `${new Date(band.start).toLocaleDateString()} ${clock(band.start, true)}; until all had their partitions: ${took}`);
    for (const member of band.members.slice(0, 5)) {
      row("Member", h("b", {}, plain(member.name, 200)), h("span", { class: "quiet" },
        [["client id", member.client_id], ["host", member.host], ["instance id", member.instance_id], ["member id", member.member_id]]
          .filter(([, value]) => value).map(([name, value]) => ` · ${name} ${plain(value, 120)}`).join("")));
    }
    if (band.members.length > 5) row("Members", `and ${band.members.length - 5} more`);
    if (band.reason) row("Client’s reason", `“${plain(band.reason, 400)}”`);
    const paused = pausedRows(chart.pauses.filter((each) => each.band === at), time());
    if (paused.length > 0) {
      row("No owner", h("ul", { class: "paused" }, paused.slice(0, 12).map((each) => h("li", {}, h("b", {}, `${plain(each.topic, 80)}-${each.partition}`), ` ${pauseText(each.pauses.at(-1), time())}`)), paused.length > 12 ? h("li", {}, `and ${paused.length - 12} more`) : null));
    }
    if (band.moves.length > 0) {
      row("Moved", h("ul", {}, band.moves.slice(0, 20).map((each) => h("li", {}, h("b", {}, plain(each.name, 120)),
        Object.keys(each.gained).length ? ` + ${partitions(each.gained, 12)}` : "", Object.keys(each.lost).length ? ` − ${partitions(each.lost, 12)}` : "")),
        band.moves.length > 20 ? h("li", {}, `and ${band.moves.length - 20} more members`) : null));
    } else if (band.assigned !== null) {
      row("Moved", "no partition");
    }
    if (explained?.remedy) row("What to do", h("strong", {}, plain(explained.remedy, 800)));
    return [
      h("h2", {}, `Generation ${band.generation}`, h("span", { class: "quiet" }, ` ${at + 1} of ${chart.bands.length} shown`)),
      h("dl", {}, rows),
      ...comparison(at),
      ...(explained === null || explained === undefined ? [] : [h("h3", {}, "In sentences"), h("p", {}, plain(explained.text, 1500)), h("ul", { class: "sentences" }, explained.details.slice(0, 40).map((each) => h("li", {}, plain(each, 600))))]),
    ];
  }

  /** A choice of another generation, and what is different between it and the selected one. */
  function comparison(at) {
    if (chart.bands.length < 2) return [];
    const with_ = chart.bands.findIndex((band) => band.start === comparedTo);
    const choice = h("select", { id: "compare", onchange: (event) => {
      comparedTo = event.target.value === "" ? null : Number(event.target.value);
      panelOf = null;
      showPanel(chosen());
      panel.querySelector("#compare")?.focus();
    } }, h("option", { value: "" }, "no other"), chart.bands.map((band, n) => (n === at ? null : h("option", { value: band.start, selected: n === with_ }, `generation ${band.generation}, ${clock(band.start)}`))));
    const head = h("h3", {}, h("label", {}, "Compare with ", choice));
    if (with_ < 0 || with_ === at) return [head];
    const made = compare(chart, at, with_);
    const names = laneNames(chart.lanes);
    const list = (lanes) => lanes.slice(0, 20).map((n) => names[n]).join(", ") + (lanes.length > 20 ? ` and ${lanes.length - 20} more` : "") || "none";
    const owner = (n) => (n === null ? "no owner" : names[n]);
    const counted = Object.entries(made.kinds).map(([kind, count]) => h("span", {}, h("b", { class: `sign k-${kind}` }, SIGNS[kind]), ` ${count} × ${KINDS[kind]}  `));
    return [head, h("dl", { class: "compared" },
      h("dt", {}, "Between"), h("dd", {}, `generation ${made.earlier.generation} (${clock(made.earlier.start)}) and ${made.later.generation} (${clock(made.later.start)}): `, counted),
      h("dt", {}, "New members"), h("dd", {}, list(made.arrived)),
      h("dt", {}, "Gone"), h("dd", {}, list(made.gone)),
      h("dt", {}, "Other owner"), h("dd", {}, made.moved.length === 0 ? "no partition" : h("ul", {}, made.moved.slice(0, 40).map((each) => h("li", {}, h("b", {}, `${plain(each.topic, 80)}-${each.partition}`), ` ${owner(each.from)} → ${owner(each.to)}`)),
        made.moved.length > 40 ? h("li", {}, `and ${made.moved.length - 40} more`) : null)),
      h("dt", {}, "No owner"), h("dd", {}, made.paused === 0 ? "never" : `at most ${duration(made.paused)}, of all partitions together`))];
  }

  function showNow() {
    const lags = now.offsets.map((each) => each.lag).filter((each) => each !== null);
    const lag = lags.length === 0 ? null : lags.reduce((sum, each) => sum + each, 0);
    // What findings say is not said again.
    const hasFindings = (now.findings ?? []).length > 0;
    const hasStorm = [...(now.findings ?? []), ...(chart?.findings ?? [])].some((each) => each.kind === "storm");
    facts.replaceChildren(
      now.health ? h("span", { class: "chip", title: now.health_reason }, healthMark(now.health), now.health_reason && !hasFindings ? h("span", { class: "quiet" }, ` ${plain(now.health_reason, 300)}`) : "") : "",
      h("span", { class: "chip" }, plain(now.state)), now.generation === null ? "" : h("span", { class: "chip" }, `${now.type === "consumer" || now.type === "share" ? "epoch" : "generation"} ${now.generation}`),
      h("span", { class: "chip" }, now.type === "share" ? "share group" : now.type === "consumer" ? "consumer protocol" : "classic protocol"),
      now.protocol ? h("span", { class: "chip" }, plain(now.protocol, 60)) : "",
      h("span", { class: "chip" }, `${now.members.length} member${now.members.length === 1 ? "" : "s"}`),
      h("span", { class: "chip" }, `lag ${number(lag)}${lag ? `, ${ageText(now.lag_ms, now.lag_ms_exact)}` : ""}`));
    showFindings();
    storm.hidden = !now.storm?.value || hasStorm;
    storm.replaceChildren(...(storm.hidden ? [] : [now.storm.value >= 60 ? h("b", { class: "h-flapping" }, `↻ ${plain(now.storm.text, 600)}`) : plain(now.storm.text, 600)]));
    const pushes = now.members.some((each) => each.client_metrics);
    members.replaceChildren(h("h2", {}, "Members now"), ...(now.members.length === 0 ? [h("p", { class: "empty" }, "No members.")] : sheet(
      ["Client id", "Host", "Instance id", "Last heard", "Owns", "Member id", ...(pushes ? ["Metrics"] : [])],
      now.members.slice(0, MOST_ROWS).map((each) => [plain(each.client_id, 60), plain(each.host, 60), plain(each.instance_id ?? "–", 60),
        each.heard_ago_ms === null ? "–" : `${duration(each.heard_ago_ms)} ago`, partitions(each.assignment, 8) || "–", h("code", {}, plain(each.member_id, 80)), ...(pushes ? [metricsOf(each)] : [])]),
      now.members.length - MOST_ROWS)));
    if (now.type === "share") return showWindows();
    const owners = new Map(now.members.map((each) => [each.member_id, plain(each.client_id, 60)]));
    offsets.replaceChildren(...(now.offsets.length === 0 ? [] : [h("h2", {}, "Committed offsets"), ...sheet(
      ["Partition", "#Committed", "#End", "#Lag", "#In a transaction", "Owner"],
      now.offsets.slice(0, MOST_ROWS).map((each) => [h("a", { href: `#/topics/${encodeURIComponent(each.topic)}` }, `${plain(each.topic, 80)}-${each.partition}`), number(each.current_offset), number(each.log_end_offset),
        number(each.lag), each.unstable_lag ? h("a", { href: "#/transactions" }, number(each.unstable_lag)) : "–", owners.get(each.member_id) ?? "–"]),
      now.offsets.length - MOST_ROWS)]));
  }

  /** Where the metrics are that a member pushes. Several clients may have its client id and address. */
  function metricsOf(member) {
    const found = member.client_metrics;
    if (!found) return "–";
    if (found.client_instance_id === null) return h("a", { href: `#/client-metrics?filter=${encodeURIComponent(member.client_id)}` }, `probably one of ${number(found.count)}`);
    return h("a", { href: `#/client-metrics/${found.client_instance_id}` }, found.certain ? "metrics" : "probably these");
  }

  /** The window of each share partition: what members have, for how much longer, and the record that the start waits for. */
  function showWindows() {
    const names = new Map(now.members.map((each) => [each.member_id, plain(each.client_id, 60)]));
    const name = (id) => names.get(id) ?? plain(id, 60);
    offsets.replaceChildren(...(now.offsets.length === 0 ? [] : [h("h2", {}, "Share partitions"), windowLegend(), ...sheet(
      COLUMNS, now.offsets.slice(0, MOST_ROWS).map((each) => cells(each, name)), now.offsets.length - MOST_ROWS)]));
  }

  let findingsOf = "";
  /** What is wrong: a report has what is past in its chart. */
  function showFindings() {
    const found = [...(now?.findings ?? []), ...(chart?.findings ?? [])];
    const text = JSON.stringify(found);
    if (text === findingsOf) return; // the text may be selected
    findingsOf = text;
    findings.hidden = found.length === 0;
    findings.replaceChildren(h("ul", {}, found.map((each) => h("li", { class: each.severity },
      h("p", {}, severityMark(each.severity), h("span", { class: "quiet" }, `, ${plain(each.sure, 20)}: `), plain(each.text, 1500),
        each.time === null ? "" : h("time", { class: "quiet" }, ` (${clock(each.time)})`)),
      each.evidence.map((line) => h("p", { class: "quiet" }, plain(line, 600))),
      each.remedy ? h("p", {}, h("b", {}, "What to do: "), plain(each.remedy, 800)) : null))));
  }

  function failed(error, status) {
    heard(error, status);
    if (error !== null && chart === null) headline.textContent = `The history cannot be loaded: ${plain(error.message, 300)}`;
  }

  address(parameters); // before the first request: it says since when
  const path = `/groups/${encodeURIComponent(group)}`;
  let asking = null;
  const charts = poll(() => `${path}/chart?since=${since}`, 700, (got, ahead) => {
    chart = got;
    showFindings();
    // Only a broker itself has requests: a console or a report says where its chart comes from.
    if (chart.source === undefined) asking ??= poll(() => `${path}/requests`, 2000, (found) => {
      requests = found;
      later();
    }, (error) => {
      if (error !== null) requests ??= { kept_since: null, requests: [] };
    });
    skew = Math.abs(ahead) > 2000 ? ahead : 0;
    later();
  }, failed);
  const looks = poll(() => path, 2000, (got) => {
    now = got;
    showNow();
  }, (error, status) => {
    heard(error, status);
    if (error === null) return;
    if (now === null || status === 404) facts.textContent = `The group cannot be shown as it is now: ${plain(error.message, 300)}.`;
  });
  const samples = poll(() => `${path}/curves?since=${since}`, 2000, (got) => {
    curves = got;
    later();
  }, () => {}); // A group that is gone has no samples; whether the broker answers is seen above.
  const ticking = setInterval(() => live && LIVE && !document.hidden && later(), 1000);
  addEventListener("keydown", key);
  addEventListener("resize", later);
  return {
    address,
    stop() {
      charts.stop();
      asking?.stop();
      looks.stop();
      samples.stop();
      clearInterval(ticking);
      removeEventListener("keydown", key);
      removeEventListener("resize", later);
    },
  };
}
