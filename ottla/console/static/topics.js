// Draws the pages of topics: the list, and one topic with its partitions, configuration and producers.

import { ask, change, path, query } from "./api.js";
import { configTable } from "./cluster.js";
import { action, actions, arrived, byName, dialog, element, failed, fault, filteredTable, heading, late, link, missing, note, number, pairs, size, table, text, time, wide } from "./dom.js";
import { records } from "./records.js";

const MOST_REASONS = 5;

export async function topics(page, name, section, partition) {
  if (section === "records") return records(page, name, partition);
  if (name !== undefined) return topic(page, name);
  const found = await ask("topics", page.signal);
  const columns = [
    wide("topic", (one) => one.name, (one) => link(one.name, "topics", one.name)), number("partitions", (one) => one.partitions),
    number("replicas", (one) => one.replicas), sizes("leader size", "bytes"), sizes("replica size", "replica_bytes"),
    number("not in sync", (one) => one.under_replicated, (one) => fault(one.under_replicated)),
    number("no leader", (one) => one.offline, (one) => fault(one.offline)), text("", (one) => (one.internal ? "internal" : "")),
  ];
  const { parts: [form, box], refresh } = filteredTable("Topics", columns, found.topics, (one) => one.name);
  return [heading("Topics"), actions(action("Create a topic", () => create(page))), form, fillSizes(page, found.topics, refresh), box];
}

const sizes = (name, key) => late(number(name, (one) => one[key], (one) => arrived(one[key], size)));

// The sizes come when all brokers have answered; the page does not wait for them.
function fillSizes(page, topics, refresh) {
  const state = element("div", { "aria-live": "polite" }, note("Asking the brokers for the sizes…"));
  const fill = (told) => {
    const byTopic = new Map(told.map((one) => [one.name, one]));
    for (const one of topics) {
      const known = byTopic.get(one.name);
      one.bytes = known?.bytes ?? null;
      one.replica_bytes = known?.replica_bytes ?? null;
    }
    refresh();
  };
  ask("topic-sizes", page.signal).then((told) => {
    fill(told.topics);
    const more = told.errors.length - MOST_REASONS;
    state.replaceChildren(
      note("The leader size counts each record once; the replica size counts every copy of it."),
      ...told.errors.slice(0, MOST_REASONS).map((one) => element("p", { class: "bad" }, `Sizes on broker ${one.broker} are unknown: ${one.error}`)),
      ...(more > 0 ? [note(`${more} more parts are unknown.`)] : []));
  }).catch((error) => {
    if (error.name === "AbortError") return;
    fill([]);
    state.replaceChildren(failed(error));
  });
  return state;
}

function create(page) {
  dialog("Create a topic", [
    { name: "name", label: "Name" },
    { name: "partitions", label: "Partitions (default of the brokers)", kind: "number", optional: true },
    { name: "replication_factor", label: "Replicas (default of the brokers)", kind: "number", optional: true },
    { name: "configs", label: "Configuration, key=value lines", kind: "lines" },
  ], async (fields) => {
    await change("POST", "topics", { ...fields, configs: byName(fields.configs) });
    page.go("topics", fields.name);
  }, { button: "Create" });
}

async function topic(page, name) {
  const address = `topics/${path(name)}`;
  const found = await ask(address, page.signal);
  const partitions = [
    number("partition", (one) => one.partition, (one) => link(one.partition, "topics", name, "records", one.partition)),
    number("leader", (one) => one.leader, (one) => one.leader ?? element("span", { class: "bad" }, "none")),
    text("replicas", (one) => one.replicas.join(", ")),
    text("in sync", (one) => one.isr.join(", "), (one) => element("span", { class: one.isr.length < one.replicas.length ? "bad" : undefined }, one.isr.join(", "))),
    number("start", (one) => one.start), number("end", (one) => one.end), number("records", (one) => (one.end === null ? null : one.end - one.start)),
    number("bytes", (one) => one.bytes, (one) => size(one.bytes)),
    { name: "", show: (one) => element("a", { href: "", role: "button", onclick: (event) => { event.preventDefault(); showProducers(page, name, one.partition); } }, "producers") },
  ];
  return [
    heading(`Topic ${name}`), note(`id ${found.id}${found.internal ? ", internal" : ""}`),
    element("p", null, link("Records", "topics", name, "records"), " · ", link("ACLs", "acls", "TOPIC", name)),
    actions(
      action("Produce a record", () => produce(page, name)),
      action("Add partitions", () => dialog(`Add partitions to ${name}`, [{ name: "count", label: "Total number of partitions", kind: "number", value: found.partitions.length + 1 }],
        async (fields) => { await change("POST", `${address}/partitions`, fields); page.reload(); }, { button: "Add" })),
      action("Elect preferred leaders", () => dialog(`Elect the preferred leaders of ${name}`, [], async () => {
        const all = found.partitions.map((one) => ({ topic: name, partition: one.partition }));
        const { elections } = await change("POST", "elections", { type: "preferred", partitions: all });
        page.reload(`${elections.filter((one) => one.result === "elected").length} leaders were elected.`);
      }, { button: "Elect" })),
      action("Delete records", () => deleteRecords(page, name, found), true),
      action("Delete the topic", () => dialog(`Delete topic ${name}`, [], async () => {
        await change("DELETE", address, { confirm: name });
        page.go("topics");
      }, { button: "Delete", confirm: name, explanation: "All of its records are lost." }), true)),
    element("h2", null, "Partitions"), table("Partitions", partitions, found.partitions).box,
    element("h2", null, "Groups that read it"), readers(page, address),
    element("h2", null, "Configuration"),
    ...(found.configs_error ? [failed(new Error(found.configs_error))] : configTable(page, `${address}/configs`, found.configs)),
  ];
}

// The groups come when their coordinators have answered; the page does not wait for them.
function readers(page, address) {
  const shown = element("div", { "aria-live": "polite" }, note("Asking the coordinators…"));
  const columns = [
    wide("group", (one) => one.group, (one) => link(one.group, "groups", one.group)), text("state", (one) => one.state), number("members", (one) => one.members),
    number("offsets", (one) => one.partitions), number("lag", (one) => one.lag),
  ];
  ask(`${address}/groups`, page.signal).then((found) => {
    const omitted = found.not_examined ? note(`${found.not_examined} more groups were not examined.`) : "";
    shown.replaceChildren(found.groups.length ? table("Groups", columns, found.groups).box : note("No group reads this topic."), omitted, ...missing(found.missing));
  }).catch((error) => { if (error.name !== "AbortError") shown.replaceChildren(failed(error)); });
  return shown;
}

export function produce(page, name) {
  dialog(`Produce a record to ${name}`, [
    { name: "partition", label: "Partition (chosen by the key)", kind: "number", optional: true },
    { name: "key", label: "Key", optional: true },
    { name: "isKeyNull", label: "The key is null", kind: "checkbox", value: true },
    { name: "value", label: "Value", kind: "lines" },
    { name: "isValueNull", label: "The value is null (a tombstone)", kind: "checkbox" },
    { name: "headers", label: "Headers, name=value lines; a name may be repeated", kind: "lines" },
  ], async (fields) => {
    const key = fields.isKeyNull && fields.key === "" ? null : fields.key;
    const sent = { key, value: fields.isValueNull ? null : fields.value, headers: pairs(fields.headers) };
    if (fields.partition !== null) sent.partition = fields.partition;
    const done = await change("POST", `topics/${path(name)}/records`, sent);
    page.reload(`Written to partition ${done.partition} at offset ${done.offset}.`);
  }, { button: "Produce" });
}

function deleteRecords(page, name, found) {
  dialog(`Delete records of ${name}`, [
    { name: "partition", label: "Partition (all)", kind: "number", optional: true },
    { name: "offset", label: "Below this offset; -1 deletes all", kind: "number" },
  ], async ({ partition, offset }) => {
    const chosen = partition === null ? found.partitions.map((one) => one.partition) : [partition];
    await change("DELETE", `topics/${path(name)}/records`, { confirm: name, offsets: chosen.map((each) => ({ partition: each, offset })) });
    page.reload();
  }, { button: "Delete", confirm: name });
}

async function showProducers(page, name, partition) {
  const found = await ask(`topics/${path(name)}/producers?${query({ partition })}`).catch((error) => error);
  if (found instanceof Error) { page.say(found.message, true); return; }
  const rows = found.producers.map((one) => element("li", null,
    `producer ${one.producer_id}, epoch ${one.producer_epoch}, sequence ${one.last_sequence}, last record ${time(one.last_timestamp)}`,
    one.start_offset === null ? "" : `, a transaction is open from offset ${one.start_offset} on`));
  const box = dialog(`Producers of ${name}-${partition}`, [], async () => {}, { button: "Close" });
  box.querySelector("h2").after(rows.length ? element("ul", null, ...rows) : note("The leader remembers no producer."));
}
