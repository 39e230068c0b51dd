// Draws the pages of ACLs, users and quotas.

import { ask, change, path, query } from "./api.js";
import { byName, dialog } from "./dialog.js";
import { action, actions, badge, empty, heading, html, note } from "./parts.js";
import { FilteredTable, buttons, number, text, wide } from "./table.js";

const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const OPERATIONS = [
  "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
  "CREATE_TOKENS", "DESCRIBE_TOKENS",
];
const MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

export async function acls(page, kind, name) {
  const selected = kind === undefined ? {} : { resource_type: kind, name, pattern_type: "MATCH" };
  const found = await ask(`acls?${query(selected)}`, page.signal);
  const described = (one) => `${one.permission_type} ${one.principal} from ${one.host} to ${one.operation} ${one.resource_type} ${one.name}`;
  const remove = (one) => dialog("Remove an ACL", [], async () => { await change("DELETE", "acls", one); page.reload(); }, { button: "Remove", explanation: described(one), confirm: one.name });
  const columns = [
    wide("principal", (one) => one.principal), text("permission", (one) => one.permission_type, (one) => badge(one.permission_type, one.permission_type === "DENY" ? "bad" : "good")),
    text("operation", (one) => one.operation), text("resource", (one) => one.resource_type), wide("name", (one) => one.name), text("pattern", (one) => one.pattern_type), text("host", (one) => one.host),
    buttons((one) => action("Remove", () => remove(one), true), 10),
  ];
  const add = () => dialog("Add an ACL", [
    { name: "principal", label: "Principal, as User:alice or User:*", value: "User:" },
    { name: "permission_type", label: "Permission", kind: "select", options: ["ALLOW", "DENY"] },
    { name: "operation", label: "Operation", kind: "select", options: OPERATIONS },
    { name: "resource_type", label: "Resource", kind: "select", options: RESOURCES, value: kind },
    { name: "name", label: "Name (* for all, kafka-cluster for the cluster)", value: name },
    { name: "pattern_type", label: "Pattern", kind: "select", options: ["LITERAL", "PREFIXED"] },
    { name: "host", label: "From host", value: "*" },
  ], async (fields) => { await change("POST", "acls", fields); page.reload(); }, { button: "Add" });
  return html`
    ${heading(kind === undefined ? "ACLs" : `ACLs of ${kind} ${name}`, actions(action("Add an ACL", add)))}
    <${FilteredTable} label="ACLs" columns=${columns} rows=${found.acls} textOf=${described}
      none=${empty("There are no ACLs.", "Each ACL allows or denies one operation of a principal on a resource. Brokers without an authorizer have none.")} />`;
}

export async function users(page) {
  const found = await ask("users", page.signal);
  const set = (name) => dialog(name === undefined ? "Add a user" : `Change the password of ${name}`, [
    ...(name === undefined ? [{ name: "user", label: "Name" }] : []),
    { name: "password", label: "Password", kind: "password" },
    { name: "mechanism", label: "Mechanism", kind: "select", options: ["both", ...MECHANISMS] },
    { name: "iterations", label: "Iterations (4096)", kind: "number", optional: true },
  ], async ({ user, password, mechanism, iterations }) => {
    await change("PUT", `users/${path(name ?? user)}`, { password, iterations, mechanisms: mechanism === "both" ? MECHANISMS : [mechanism] });
    page.reload();
  });
  const remove = (one) => dialog(`Remove ${one.mechanism} of ${one.user}`, [], async () => {
    await change("DELETE", `users/${path(one.user)}`, { confirm: one.user, mechanisms: [one.mechanism] });
    page.reload();
  }, { button: "Remove", confirm: one.user });
  const columns = [
    wide("user", (one) => one.user), text("mechanism", (one) => one.mechanism), number("iterations", (one) => one.iterations),
    buttons((one) => html`<span>${action("Password", () => set(one.user))} ${action("Remove", () => remove(one), true)}</span>`, 20),
  ];
  return html`
    ${heading("Users", actions(action("Add a user", () => set())))}${note("Users who authenticate by SCRAM.")}
    <${FilteredTable} label="Users" columns=${columns} rows=${found.users} textOf=${(one) => one.user}
      none=${empty("No user has a SCRAM password.", "A user who is added here can log in to a listener with SASL/SCRAM.")} />`;
}

export async function quotas(page) {
  const found = await ask("quotas", page.signal);
  const rows = found.quotas.flatMap((one) => Object.entries(one.values).map(([key, value]) => ({ entity: one.entity, key, value })));
  const named = (entity) => Object.entries(entity).map(([kind, name]) => (name === null ? `default ${kind}` : `${kind} ${name}`)).join(", ");
  const remove = (one) => dialog(`Remove ${one.key} of ${named(one.entity)}`, [], async () => { await change("PATCH", "quotas", { entity: one.entity, remove: [one.key] }); page.reload(); }, { button: "Remove", confirm: one.key });
  const columns = [
    wide("of", (one) => named(one.entity)), wide("quota", (one) => one.key), number("value", (one) => one.value), buttons((one) => action("Remove", () => remove(one), true), 10),
  ];
  const set = () => dialog("Set a quota", [
    { name: "entity", label: "Of: user=alice, client-id=app or ip=10.0.0.1 lines; user= is the default", kind: "lines" },
    { name: "key", label: "Quota", kind: "select", options: QUOTAS },
    { name: "value", label: "Value", kind: "amount" },
  ], async ({ entity, key, value }) => {
    const names = Object.fromEntries(Object.entries(byName(entity)).map(([kind, name]) => [kind, name === "" ? null : name]));
    await change("PATCH", "quotas", { entity: names, set: { [key]: value } });
    page.reload();
  }, { button: "Set" });
  return html`
    ${heading("Quotas", actions(action("Set a quota", set)))}
    <${FilteredTable} label="Quotas" columns=${columns} rows=${rows} textOf=${(one) => `${named(one.entity)} ${one.key}`}
      none=${empty("There are no quotas.", "A quota limits the bytes, requests or connections of users, clients or addresses.")} />`;
}
