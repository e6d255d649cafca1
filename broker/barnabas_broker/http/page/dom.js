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

/** Draw items (see layout.js) into an SVG element, one element for each item; elements of known ids are kept. */
export function draw(parent, items) {
  const known = new Map();
  for (const child of parent.children) known.set(child.getAttribute("data-id"), child);
  let at = 0;
  for (const { id, tag, text, title, ...attributes } of items) {
    let element = known.get(id);
    if (element === undefined || element.tagName !== tag) {
      element?.remove();
      element = document.createElementNS(SVG, tag);
      element.setAttribute("data-id", id);
    }
    known.delete(id);
    for (const name of element.getAttributeNames()) {
      if (name !== "data-id" && !(name in attributes)) element.removeAttribute(name);
    }
    for (const [name, value] of Object.entries(attributes)) {
      const given = String(value);
      if (element.getAttribute(name) !== given) element.setAttribute(name, given);
    }
    const key = (text ?? "") + "\n" + (title ?? "");
    if (element.drawn !== key) {
      element.drawn = key;
      element.replaceChildren();
      if (text !== undefined) element.append(text);
      if (title !== undefined) {
        const described = document.createElementNS(SVG, "title");
        described.textContent = title;
        element.append(described);
      }
    }
    if (parent.children[at] !== element) parent.insertBefore(element, parent.children[at] ?? null);
    at += 1;
  }
  for (const left of known.values()) left.remove();
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
