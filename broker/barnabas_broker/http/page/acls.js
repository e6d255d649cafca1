// The ACLs: what principals may do.

import { h, number, plain } from "./dom.js";
import { listPage } from "./list.js";

const RESOURCES = { TOPIC: "topic", GROUP: "group", CLUSTER: "cluster", TRANSACTIONAL_ID: "transactional id", DELEGATION_TOKEN: "delegation token", USER: "user" };

/** A resource in words, like `topics whose names begin with "t"`. Pure. */
export function resourceOf(row) {
  const kind = RESOURCES[row.resource_type] ?? plain(row.resource_type, 40);
  if (row.resource_type === "CLUSTER") return "the cluster";
  if (row.prefixed) return `${kind}s that begin with ${plain(row.resource, 200)}`;
  return row.resource === "*" ? `all ${kind}s` : `${kind} ${plain(row.resource, 200)}`;
}

/** What the page says below its list. Pure. */
export function noteOf(data) {
  if (!data.authorizer || data.reason !== null) return "";
  const parts = [
    data.super_users === null ? "Super users may do everything; who they are is in super.users of the brokers, and no request tells it."
      : data.super_users.length > 0 ? `Super users, who may do everything: ${data.super_users.map((each) => plain(each, 100)).join(", ")}.` : "There are no super users.",
    data.allow_everyone === null ? "" : data.allow_everyone ? "A resource without an ACL may be used by everyone (allow.everyone.if.no.acl.found)." : "What no ACL allows is denied.",
    data.count > data.acls.length ? `Only the first ${number(data.acls.length)} of ${number(data.count)} ACLs are shown.` : "",
  ];
  return parts.filter(Boolean).join(" ");
}

/** The text of an empty list. Pure. */
export function noneOf(data) {
  if (!data.authorizer) return "No authorizer is configured: ACLs are neither kept nor checked, and every client may do everything. To change that, set authorizer.class.name on the brokers.";
  return data.reason === null ? "There is no ACL." : `${plain(data.reason, 600)}.`;
}

const any = (text, every) => (text === "*" ? h("span", { class: "quiet" }, every) : plain(text, 200));
const COLUMNS = [
  { key: "principal", name: "Principal", value: (row) => row.principal, cell: (row) => h("td", { class: "name", title: plain(row.principal, 1000) }, row.principal === "User:*" ? "everyone" : plain(row.principal, 200)) },
  { key: "permission", name: "May", value: (row) => row.permission, cell: (row) => h("td", {}, row.permission === "ALLOW" ? h("span", { class: "h-ok" }, "● allowed") : h("b", { class: "h-stuck" }, `■ ${row.permission === "DENY" ? "denied" : plain(row.permission, 40)}`)) },
  { key: "operation", name: "Operation", value: (row) => row.operation, cell: (row) => h("td", {}, plain(row.operation, 60).toLowerCase().replaceAll("_", " ")) },
  { key: "resource", name: "Resource", value: (row) => `${row.resource_type} ${row.resource}`, cell: (row) => h("td", { class: "resource", title: plain(row.resource, 1000) }, resourceOf(row)) },
  { key: "host", name: "From", value: (row) => row.host, cell: (row) => h("td", {}, any(row.host, "any address")) },
];

export function aclsPage(parent, parameters, heard) {
  return listPage(parent, parameters, heard, {
    title: "ACLs", address: "#/acls", path: "/acls", interval: 5000, columns: COLUMNS,
    rowsOf: (data) => data.acls,
    name: (row) => [row.principal, row.resource_type, row.resource, row.prefixed, row.operation, row.permission, row.host].join("\n"),
    wordsOf: (row) => `${row.principal} ${row.permission === "ALLOW" ? "allowed" : "denied"} ${row.operation} ${row.operation.replaceAll("_", " ")} ${resourceOf(row)} ${row.resource} ${row.host}`,
    placeholder: "Filter by name or operation  ( / )",
    none: noneOf,
    unmatched: "No ACL matches the filter.",
    chips(rows, choose) {
      const denied = rows.filter((row) => row.permission === "DENY").length;
      const chip = (kind, sign, count, word) => h("button", { type: "button", class: `chip ${kind}`, onclick: () => choose(word) }, `${sign} ${number(count)} ${word}`);
      return [denied > 0 ? chip("h-stuck", "■", denied, "denied") : null, rows.length > denied ? chip("h-ok", "●", rows.length - denied, "allowed") : null].filter(Boolean);
    },
    noteOf,
  });
}
