// The page: which part of it the address shows, the theme, and whether the broker answers.

import { clock, h, plain } from "./dom.js";
import { groupPage } from "./group.js";
import { groupsPage } from "./groups.js";

const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const connection = document.getElementById("connection");
let shown = null;
let shownAs = null;
let silentSince = null;

/** Say that the broker does not answer, or that it does again. What was loaded stays. */
function heard(error, status) {
  if (error === null || status !== undefined) silentSince = null;
  else silentSince ??= Date.now();
  connection.className = silentSince === null ? "connection" : "connection lost";
  connection.textContent = silentSince === null ? "live" : `no answer since ${clock(silentSince)}: what you see is older`;
}

/** Show an error of the page itself: better than a page that stops without a word. */
function fault(text) {
  trouble.hidden = false;
  trouble.textContent = `This page has a fault, and may not be complete: ${plain(text, 300)}`;
}

/** The group of an address like #/groups/NAME?from=...; null for the list. */
function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?", 2);
  const parameters = new URLSearchParams(query ?? "");
  if (!path.startsWith("/groups/")) return { group: null, parameters };
  try {
    return { group: decodeURIComponent(path.slice("/groups/".length)), parameters };
  } catch {
    return { group: path.slice("/groups/".length), parameters };
  }
}

function show() {
  const { group, parameters } = route();
  if (shown !== null && shownAs === group) {
    shown.address(parameters);
    return;
  }
  shown?.stop();
  main.replaceChildren();
  document.title = group === null ? "Groups – Barnabas" : `${plain(group, 60)} – Barnabas`;
  shownAs = group;
  shown = group === null ? groupsPage(main, parameters, heard) : groupPage(main, group, parameters, heard);
}

function theme(name) {
  document.documentElement.dataset.theme = name;
}

function remembered() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null; // a browser without storage
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");
theme(remembered() ?? (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => theme(remembered() ?? (dark.matches ? "dark" : "light")));
document.getElementById("theme").addEventListener("click", () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  theme(name);
  try {
    localStorage.setItem("theme", name);
  } catch {
    // it lasts until the page is left
  }
});

addEventListener("error", (event) => fault(event.message));
addEventListener("unhandledrejection", (event) => fault(event.reason?.message ?? event.reason));
addEventListener("hashchange", show);
show();

fetch("/healthz").then((response) => response.json()).then((health) => {
  const text = `broker ${health.node_id}, version ${health.version}`;
  document.getElementById("broker").replaceChildren(h("span", {}, text));
}, () => {});
