// A report: the page of one group in a file, without a broker.

import { clock, plain } from "./dom.js";
import { groupPage } from "./group.js";

const main = document.getElementById("main");
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");

function theme(name) {
  document.documentElement.dataset.theme = name;
}

function parameters() {
  return new URLSearchParams(location.hash.split("?", 2)[1] ?? "");
}

function fault(text) {
  const trouble = document.getElementById("trouble");
  trouble.hidden = false;
  trouble.textContent = `This page has a fault, and may not be complete: ${plain(text, 300)}`;
}

theme(dark.matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
addEventListener("error", (event) => fault(event.message));
addEventListener("unhandledrejection", (event) => fault(event.reason?.message ?? event.reason));
document.getElementById("broker").textContent = `a report of ${new Date(data.time).toLocaleDateString()} ${clock(data.time)}`;
main.replaceChildren();
const page = groupPage(main, data.group, parameters(), () => {});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#/groups/")) page.address(parameters());
});
document.body.classList.add("no-topics", "no-transactions"); // their pages are not in the file
const absent = [".back", ".live", data.now === null ? ".facts" : "", data.curves === undefined ? ".below" : ""].filter(Boolean);
for (const part of main.querySelectorAll(absent.join(", "))) part.hidden = true;
