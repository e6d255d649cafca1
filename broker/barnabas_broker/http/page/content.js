// Bytes of keys and values for people: as text, JSON or hex. What clients wrote is shown, never run.

import { plain } from "./dom.js";

/** How bytes can be shown. */
export const FORMATS = { auto: "Automatic", text: "Text", json: "JSON", hex: "Hex" };

/** The bytes of base64. */
export function bytesOf(base64) {
  const text = atob(base64);
  return Uint8Array.from(text, (each) => each.charCodeAt(0));
}

/** Bytes as text; null if they are not UTF-8. A character that was cut at the end does not count. */
export function textOf(data, cut) {
  for (let less = 0; less <= (cut ? 3 : 0); less += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data.subarray(0, data.length - less));
    } catch {
      // one byte less, if the end is missing
    }
  }
  return null;
}

/** Lines like "00000010  68 65 6c 6c 6f ...  hello". */
export function hexDump(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return lines.join("\n");
}

/** Text with its lines, and everything else that cannot be printed escaped. */
function multiline(text) {
  return text.split("\n").map((line) => plain(line.replace(/\t/g, "    "), 100000)).join("\n");
}

function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : null;
  } catch {
    return null;
  }
}

/** Shown bytes (their size and base64, or null) in a format: `line` for a table, `whole` for a reader, and the `format`
 *  that was possible. Pure. */
export function content(shown, format) {
  if (shown === null || shown === undefined) return { line: "null", whole: "null", format: "null", missing: true };
  const data = bytesOf(shown.base64);
  const cut = shown.size > data.length;
  const more = cut ? `… ${shown.size.toLocaleString("en")} bytes in all` : "";
  const text = format === "hex" ? null : textOf(data, cut);
  if (data.length === 0) return { line: "(empty)", whole: "(empty)", format: "empty", missing: true };
  // Text that is mostly control characters is more readable as bytes.
  const control = text === null ? 0 : (text.match(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g) ?? []).length;
  if (text === null || (format === "auto" && control > text.length / 4)) {
    const line = [...data.subarray(0, 48)].map((each) => each.toString(16).padStart(2, "0")).join(" ");
    return { line: shown.size > 48 ? `${line} …` : line, whole: hexDump(data) + (more && `\n${more}`), format: "hex" };
  }
  const json = format === "text" || cut ? null : prettyJson(text);
  const line = plain(text, 240);
  return { line, whole: json === null ? multiline(text) + (more && `\n${more}`) : multiline(json), format: json === null ? "text" : "json" };
}
