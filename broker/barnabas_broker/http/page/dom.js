// Elements and text. Names come from clients of the broker: they become text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and those that change the direction of text or are invisible.
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A name or a reason, for people: unprintable characters are escaped, and a long text is cut. */
export function plain(value, most = 120) {
  const text = String(value ?? "").replace(UNPRINTABLE, (c) => {
    const code = c.charCodeAt(0);
    return code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
  });
  return text.length <= most ? text : text.slice(0, most - 1) + "…";
}

/** An HTML element. Attributes that begin with "on" are listeners; null, undefined and false attributes are left out. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** The parts of an item that are not attributes. */
const PARTS = new Set(["id", "tag", "text", "title"]);

/** Change the attributes of an element from those of one item to those of another one. */
function change(element, before, item) {
  for (const name in before) if (!(name in item) && !PARTS.has(name)) element.removeAttribute(name);
  for (const name in item) if (before[name] !== item[name] && !PARTS.has(name)) element.setAttribute(name, item[name]);
}

/** Draw items (see layout.js) into an SVG element, one element for each item; elements of known ids are kept. */
export function draw(parent, items) {
  const wanted = new Set(items.map((each) => each.id));
  const known = new Map();
  for (const child of [...parent.children]) {
    const id = child.item?.id;
    if (wanted.has(id)) known.set(id, child);
    else child.remove();
  }
  let place = parent.firstChild;
  for (const item of items) {
    const { id, tag, text, title } = item;
    let element = known.get(id);
    if (element === undefined || element.tagName !== tag) {
      if (element !== undefined && place === element) place = element.nextSibling;
      element?.remove();
      element = document.createElementNS(SVG, tag);
      element.setAttribute("data-id", id);
    }
    // What was drawn before is kept beside the element: asking the document for it takes most of a frame.
    const before = element.item ?? {};
    element.item = item;
    if (before !== item) change(element, before, item);
    if (before !== item && (before.text !== text || before.title !== title)) {
      element.replaceChildren();
      if (text !== undefined) element.append(text);
      if (title !== undefined) {
        const described = document.createElementNS(SVG, "title");
        described.textContent = title;
        element.append(described);
      }
    }
    if (place === element) place = element.nextSibling;
    else parent.insertBefore(element, place);
  }
}

/** A duration in ms, in short. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "?";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0).replace(/\.0$/, "")} s`;
  if (ms < 7200000) return `${Math.round(ms / 60000)} min`;
  return `${Math.round(ms / 3600000)} h`;
}

/** A time of day, in the zone of the browser. */
export function clock(ms, fraction = false) {
  const date = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return fraction ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

/** A number with separators. */
export function number(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en");
}

/** Bytes, in short. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let [size, unit] = [value, 0];
  while (size >= 1024 && unit < 5) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${["B", "KB", "MB", "GB", "TB", "PB"][unit]}`;
}

/** A number per second. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return `${number(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10)}/s`;
}

/** A table that scrolls by itself if it is too wide. The name of a column of numbers begins with "#". */
export function sheet(names, rows, more) {
  const numeric = names.map((name) => name.startsWith("#"));
  const head = names.map((name, at) => h("th", { scope: "col", class: numeric[at] ? "numeric" : null }, name.replace(/^#/, "")));
  const body = rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: numeric[at] ? "numeric" : null }, cell))));
  return [
    h("div", { class: "sheet", tabindex: 0, role: "group", "aria-label": "Table" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body))),
    more > 0 ? h("p", { class: "quiet" }, `and ${number(more)} more`) : null].filter(Boolean);
}

/** Partitions by topic in short, like "orders-0 to orders-3". */
export function partitions(byTopic, most = 6) {
  const parts = [];
  for (const [topic, numbers] of Object.entries(byTopic ?? {})) {
    const name = plain(topic, 60);
    for (let at = 0; at < numbers.length; ) {
      let end = at;
      while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) end += 1;
      parts.push(at === end ? `${name}-${numbers[at]}` : `${name}-${numbers[at]} to ${numbers[end]}`);
      at = end + 1;
    }
  }
  return parts.length > most ? `${parts.slice(0, most).join(", ")} and ${parts.length - most} more` : parts.join(", ");
}
