// The page: which part of it the address shows, the theme, and whether the broker answers.

import { aclsPage } from "./acls.js";
import { brokerPage } from "./broker.js";
import { brokersPage } from "./brokers.js";
import { clientPage, clientsPage } from "./clients.js";
import { clock, h, plain } from "./dom.js";
import { groupPage } from "./group.js";
import { groupsPage } from "./groups.js";
import { resetSection } from "./reset.js";
import { topicPage } from "./topic.js";
import { topicsPage } from "./topics.js";
import { transactionsPage } from "./transactions.js";

/** The pages: their names and addresses, the path of their JSON, and what shows them. */
const PAGES = [
  { name: "Groups", address: "#/", path: "/groups", list: groupsPage, one: groupPage },
  { name: "Topics", address: "#/topics", path: "/topics", list: topicsPage, one: topicPage },
  { name: "Transactions", address: "#/transactions", path: "/transactions", list: transactionsPage },
  { name: "Broker", address: "#/broker", path: "/broker", list: brokerPage },
  { name: "Brokers", address: "#/brokers", path: "/brokers", list: brokersPage },
  { name: "Client metrics", address: "#/client-metrics", path: "/client-metrics", list: clientsPage, one: clientPage },
  { name: "ACLs", address: "#/acls", path: "/acls", list: aclsPage },
];

const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const connection = document.getElementById("connection");
let shown = null;
let shownAs = null;
let silentSince = null;
let changes = false; // whether offsets may be reset
let token = null;

/** Say that the broker does not answer, or that it does again. What was loaded stays. */
function heard(error, status) {
  // 502: the console answers, but the brokers behind it do not.
  if (error === null || (status !== undefined && status !== 502)) silentSince = null;
  else silentSince ??= Date.now();
  connection.className = silentSince === null ? "connection" : "connection lost";
  connection.textContent = silentSince === null ? "live" : `no answer since ${clock(silentSince)}: what you see is older`;
}

/** Show an error of the page itself: better than a page that stops without a word. */
function fault(text) {
  trouble.hidden = false;
  trouble.textContent = `This page has a fault, and may not be complete: ${plain(text, 300)}`;
}

/** The page of an address like #/groups/NAME?from=..., and its group or topic; null for a list. */
function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?", 2);
  const parameters = new URLSearchParams(query ?? "");
  const one = PAGES.find((page) => page.one !== undefined && path.startsWith(`${page.path}/`));
  if (one === undefined) return { page: PAGES.find((page) => page.path === path) ?? PAGES[0], name: null, parameters };
  const name = path.slice(one.path.length + 1);
  try {
    return { page: one, name: decodeURIComponent(name), parameters };
  } catch {
    return { page: one, name, parameters };
  }
}

/** The address that the console printed has a token. It is kept for this tab, and taken out of the address. */
function takeToken(parameters) {
  if (parameters.has("token")) {
    token = parameters.get("token");
    try {
      sessionStorage.setItem("token", token);
    } catch {
      // it lasts until the page is left
    }
    parameters.delete("token");
    history.replaceState(null, "", "#/");
  }
}

function stored() {
  try {
    return sessionStorage.getItem("token");
  } catch {
    return null;
  }
}

/** Below a group, offsets can be reset if this console may change anything. */
function resetFor(page, name) {
  if (name !== null && page.one === groupPage) resetSection(main, name, token ?? stored());
}

function show() {
  const { page, name, parameters } = route();
  takeToken(parameters);
  const as = `${page.path}\n${name ?? ""}\n${name === null}`;
  if (shown !== null && shownAs === as) {
    shown.address(parameters);
    return;
  }
  shown?.stop();
  main.replaceChildren();
  document.title = `${name === null ? page.name : plain(name, 60)} – Barnabas`;
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.getAttribute("href") === page.address) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  shownAs = as;
  shown = name === null ? page.list(main, parameters, heard) : page.one(main, name, parameters, heard);
  if (changes) resetFor(page, name);
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
const links = (pages) => document.getElementById("pages").replaceChildren(...pages.map((page) => h("a", { href: page.address, "aria-current": route().page === page ? "page" : null }, page.name)));
show();

fetch("/", { headers: { Accept: "application/json" } }).then((response) => response.json()).then((about) => {
  // What is not served has no page: a console of another cluster knows nothing of the process of a broker.
  const served = PAGES.filter((page) => about.paths === undefined || page.path in about.paths);
  for (const page of PAGES) document.body.classList.toggle(`no-${page.path.slice(1)}`, !served.includes(page));
  links(served);
  changes = about.changes === true;
  if (changes) resetFor(route().page, route().name);
  document.getElementById("broker").textContent = plain(about.title ?? `broker ${about.node_id}, version ${about.version}`, 200);
}, () => links(PAGES));
