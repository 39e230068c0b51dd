// Draws the pages about the cluster: overview, brokers with their disks and configurations, and findings.

import { ask, change, path } from "./api.js";
import { action, arrived, dialog, element, failed, filtered, heading, late, link, note, number, size, table, text, time, wide } from "./dom.js";

// The page shows the metadata at once. The disks and versions of the brokers come when all brokers have answered.
export async function overview({ signal }) {
  const found = await ask("overview", signal);
  const tile = (name, value, bad) => element("li", { class: bad && value ? "bad" : undefined }, element("b", null, value), name);
  const columns = [
    number("broker", (one) => one.id, (one) => link(one.id, "brokers", one.id)), wide("address", (one) => one.address),
    text("rack", (one) => one.rack), number("leads", (one) => one.leads), number("replicas", (one) => one.replicas),
    text("role", (one) => (one.id === found.controller ? "controller" : "")),
    late(text("protocol", (one) => one.protocol_version, (one) => arrived(one.protocol_version, (version) => element("span", { class: one.isOther ? "warn" : undefined }, version)))),
  ];
  const { box, refresh } = table("Brokers", columns, found.brokers);
  const disks = element("div", { "aria-live": "polite" }, note("Asking the brokers…"));
  const fill = (told) => {
    const byId = new Map(told.brokers.map((one) => [one.id, one]));
    const first = told.brokers.find((one) => one.protocol_version !== null)?.protocol_version;
    for (const one of found.brokers) {
      one.protocol_version = byId.get(one.id)?.protocol_version ?? null;
      one.isOther = told.other_requests.includes(one.id) || one.protocol_version !== first;
    }
    refresh();
  };
  ask("brokers", signal).then((told) => {
    fill(told);
    disks.replaceChildren(...remarks(told), directories(told));
  }).catch((error) => {
    if (error.name === "AbortError") return;
    fill({ brokers: [], other_requests: [] });
    disks.replaceChildren(failed(error));
  });
  return [
    heading(`Cluster ${found.cluster_id}`),
    element("ul", { class: "numbers" },
      tile("brokers", found.brokers.length), tile("topics", found.topics), tile("partitions", found.partitions),
      tile("without leader", found.offline, true), tile("not in sync", found.under_replicated, true)),
    element("h2", null, "Brokers"), box,
    element("h2", null, "Log directories"), disks,
  ];
}

// What is wrong with the brokers themselves.
function remarks(found) {
  const others = found.other_requests;
  const same = found.brokers.filter((one) => !others.includes(one.id)).map((one) => one.id);
  return [
    ...found.missing.map((id) => element("p", { class: "bad" }, `Broker ${id} is not alive: its disks are unknown.`)),
    ...found.brokers.filter((one) => one.error).map((one) => element("p", { class: "bad" }, `Broker ${one.id}: ${one.error}`)),
    ...(others.length ? [element("p", { class: "warn" }, `Brokers ${same.join(", ")} support other requests than ${others.join(", ")}: versions are mixed, and an upgrade may be unfinished.`)] : []),
  ];
}

function directories(found) {
  const disks = found.brokers.flatMap((one) => one.log_dirs.map((each) => ({ broker: one.id, ...each })));
  const columns = [
    number("broker", (one) => one.broker, (one) => link(one.broker, "brokers", one.broker)), wide("directory", (one) => one.path),
    number("replicas", (one) => one.replicas), number("bytes", (one) => one.replica_bytes, (one) => size(one.replica_bytes)),
    number("disk free", (one) => one.usable_bytes, (one) => size(one.usable_bytes)), number("disk", (one) => one.total_bytes, (one) => size(one.total_bytes)),
    text("state", (one) => one.error ?? "online", (one) => element("span", { class: one.error ? "bad" : undefined }, one.error ?? "online")),
  ];
  return table("Log directories", columns, disks).box;
}

export async function brokers(page, name) {
  if (name !== undefined) return broker(page, name);
  const found = await ask("brokers", page.signal);
  return [
    heading("Brokers"),
    element("p", null, "Configuration: ", ...found.brokers.flatMap((one) => [link(`broker ${one.id}`, "brokers", one.id), ", "]), link("all brokers", "brokers", "default")),
    ...remarks(found), element("h2", null, "Log directories"), directories(found),
  ];
}

async function broker(page, name) {
  const address = `brokers/${path(name)}/configs`;
  const { configs } = await ask(address, page.signal);
  return [heading(name === "default" ? "Configuration of all brokers" : `Broker ${name}`), ...configTable(page, address, configs)];
}

// The table of a configuration, with a dialog for each key.
export function configTable(page, address, configs) {
  const edit = (one) => dialog(one.name, [{ name: "value", label: `Value (default ${one.default ?? "none"})`, value: one.value ?? "", optional: true }],
    async ({ value }) => { await change("PATCH", address, { set: { [one.name]: value } }); page.reload(); },
    { explanation: `Now from ${one.source}.` });
  const reset = (one) => dialog(`Reset ${one.name}`, [], async () => { await change("PATCH", address, { delete: [one.name] }); page.reload(); },
    { button: "Reset", explanation: "The value that was set for it is deleted." });
  const isSet = (one) => one.source.startsWith("DYNAMIC");
  const columns = [
    wide("key", (one) => one.name), wide("value", (one) => (one.sensitive ? "(hidden)" : one.value)), wide("source", (one) => one.source),
    wide("default", (one) => one.default),
    { name: "", show: (one) => (one.read_only ? "" : element("span", null, action("Set", () => edit(one)) ?? "", isSet(one) ? action("Reset", () => reset(one)) ?? "" : "")) },
  ];
  const add = action("Set another key", () => dialog("Set a key", [{ name: "key", label: "Key" }, { name: "value", label: "Value", optional: true }],
    async ({ key, value }) => { await change("PATCH", address, { set: { [key]: value } }); page.reload(); }));
  return [...filtered("Configuration", columns, configs, (one) => one.name), add];
}

export async function findings({ signal }) {
  const found = await ask("findings", signal);
  return [
    heading("Findings"), note(`Examined at ${time(found.examined_at_ms)}. The findings are kept for a while, because an examination costs the brokers much.`),
    found.findings.length ? null : element("p", null, "Nothing is wrong."),
    ...found.findings.map((one) => element("article", null,
      element("b", { class: one.severity === "problem" ? "bad" : "warn" }, `${one.severity} ${one.id}`),
      element("div", null, one.what), element("div", { class: "note" }, one.why), element("pre", null, one.command))),
    ...found.not_examined.map((one) => note(`Not examined: ${one}`)),
  ];
}
