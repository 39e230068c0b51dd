// Draws the pages of topics: the list, and one topic with its partitions, configuration and producers.

import { ask, change, path, query } from "./api.js";
import { Charts } from "./charts.js";
import { Configs } from "./cluster.js";
import { byName, dialog, pairs } from "./dialog.js";
import {
  action, actions, arrived, badge, counted, empty, facts, failed, fault, grouped, heading, html, link, list, missing, note, size, stateBadge, time, trail, useAnswer, visible,
} from "./parts.js";
import { records } from "./records.js";
import { FilteredTable, Table, buttons, id, number, text, wide } from "./table.js";

const MOST_REASONS = 5;

export async function topics(page, name, section, partition) {
  if (section === "records") return records(page, name, partition);
  if (name !== undefined) return topic(page, name);
  const found = await ask("topics", page.signal);
  return html`<${Topics} page=${page} topics=${found.topics} />`;
}

// The sizes come when all brokers have answered; the page does not wait for them.
function Topics({ page, topics }) {
  const told = useAnswer("topic-sizes", page);
  const isKnown = told.found !== undefined || told.error !== undefined;
  const byTopic = new Map((told.found?.topics ?? []).map((one) => [one.name, one]));
  const rows = isKnown ? topics.map((one) => ({ ...one, bytes: byTopic.get(one.name)?.bytes ?? null, replica_bytes: byTopic.get(one.name)?.replica_bytes ?? null })) : topics;
  const sizes = (name, key) => ({ ...number(name, (one) => one[key], (one) => arrived(one[key], size)), characters: name.length + 2 });
  const columns = [
    wide("topic", (one) => one.name, (one) => html`${link(one.name, "topics", one.name)}${one.internal ? html` ${badge("internal")}` : null}`),
    number("partitions", (one) => one.partitions, (one) => grouped(one.partitions)), number("replicas", (one) => one.replicas), sizes("leader size", "bytes"), sizes("replica size", "replica_bytes"),
    number("not in sync", (one) => one.under_replicated, (one) => fault(one.under_replicated)), number("no leader", (one) => one.offline, (one) => fault(one.offline)),
  ];
  const makes = () => create(page);
  return html`
    ${heading("Topics", actions(action("Create a topic", makes)))}
    <${FilteredTable} label="Topics" columns=${columns} rows=${rows} textOf=${(one) => one.name}
      none=${empty("This cluster has no topics.", html`Topics are listed here with their partitions and sizes. Create one above, or by ${html`<code>ottla topics create NAME</code>`}.`)} />
    <div aria-live="polite">${topics.length ? html`<${SizeRemarks} told=${told} />` : null}</div>`;
}

function SizeRemarks({ told }) {
  if (told.error) return failed(told.error);
  if (!told.found) return note("Asking the brokers for the sizes…");
  const { errors } = told.found;
  return html`${note("The leader size counts each record once; the replica size counts every copy of it.")}
    ${errors.slice(0, MOST_REASONS).map((one) => html`<p class="bad">${visible(`Sizes on broker ${one.broker} are unknown: ${one.error}`)}</p>`)}
    ${errors.length > MOST_REASONS ? note(`${errors.length - MOST_REASONS} more parts are unknown.`) : null}`;
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
  const found = await ask(`topics/${path(name)}`, page.signal);
  if (found.name !== name) throw new Error(`There is no topic ${name}.`); // `..` leads to the list of all: no topic has that name
  return html`<${Topic} page=${page} name=${name} found=${found} />`;
}

function Topic({ page, name, found }) {
  const address = `topics/${path(name)}`;
  const isTiered = found.configs.some((one) => one.name === "remote.storage.enable" && one.value === "true");
  const remote = useAnswer(isTiered ? `${address}/remote` : null, page);
  const sum = (rows, key) => (rows.some((one) => one[key] === null) ? null : rows.reduce((total, one) => total + one[key], 0));
  const records = found.partitions.some((one) => one.end === null) ? "unknown" : grouped(sum(found.partitions, "end") - sum(found.partitions, "start"));
  return html`
    ${trail(link("Topics", "topics"))}
    ${heading(`Topic ${name}`, found.internal ? badge("internal") : null, found.offline ? badge(`${counted(found.offline, "partition")} without leader`, "bad") : null, found.under_replicated ? badge(`${found.under_replicated} not in sync`, "warn") : null)}
    ${facts(["partitions", grouped(found.partitions.length)], ["replicas", found.replicas], ["offsets", records], [isTiered ? "local size" : "leader size", size(sum(found.partitions, "bytes")) ?? "unknown"],
      isTiered ? ["remote size", arrived(remote.error ? null : remote.found && sum(remote.found.partitions, "bytes"), size)] : null, ["id", found.id])}
    <p class="ways"><a role="button" href=${`#/topics/${encodeURIComponent(name)}/records`}>Records</a>${link("ACLs", "acls", "TOPIC", name)}</p>
    <${TopicActions} page=${page} name=${name} address=${address} found=${found} />
    <${Charts} page=${page} of=${{ topic: name }} wanted=${[["records", "Records written per second"]]} />
    <h2>Partitions</h2><${Partitions} page=${page} name=${name} partitions=${found.partitions} remote=${isTiered ? remote : null} />
    <h2>Groups that read it</h2><div aria-live="polite"><${Readers} page=${page} address=${address} /></div>
    <h2>Configuration</h2>${found.configs_error ? failed(new Error(found.configs_error)) : html`<${Configs} page=${page} address=${`${address}/configs`} configs=${found.configs} />`}`;
}

function TopicActions({ page, name, address, found }) {
  return actions(
    action("Produce a record", () => produce(page, name)),
    action("Add partitions", () => dialog(`Add partitions to ${name}`, [{ name: "count", label: "Total number of partitions", kind: "number", value: found.partitions.length + 1 }],
      async (fields) => { await change("POST", `${address}/partitions`, fields); page.reload(); }, { button: "Add" })),
    action("Elect preferred leaders", () => dialog(`Elect the preferred leaders of ${name}`, [], async () => {
      const all = found.partitions.map((one) => ({ topic: name, partition: one.partition }));
      const { elections } = await change("POST", "elections", { type: "preferred", partitions: all });
      page.reload(`${counted(elections.filter((one) => one.result === "elected").length, "leader was", "leaders were")} elected.`);
    }, { button: "Elect" })),
    action("Delete records", () => deleteRecords(page, name, found), true),
    action("Delete the topic", () => dialog(`Delete topic ${name}`, [], async () => {
      await change("DELETE", address, { confirm: name });
      page.go("topics");
    }, { button: "Delete", confirm: name, explanation: "All of its records are lost." }), true));
}

// Of a topic with tiered storage the leaders' disks have the records from the local start on, and the remote store has copies of older ones.
function Partitions({ page, name, partitions, remote }) {
  const open = (one) => (event) => { event.preventDefault(); showProducers(page, name, one.partition); };
  const isKnown = remote?.found !== undefined || remote?.error !== undefined;
  const told = new Map((remote?.found?.partitions ?? []).map((one) => [one.partition, one]));
  const rows = isKnown ? partitions.map((one) => ({ ...one, local_start: told.get(one.partition)?.local_start ?? null, remote_bytes: told.get(one.partition)?.bytes ?? null })) : partitions;
  const columns = [
    id("partition", (one) => one.partition, (one) => link(one.partition, "topics", name, "records", one.partition)),
    number("leader", (one) => one.leader, (one) => one.leader ?? badge("none", "bad")), text("replicas", (one) => list(one.replicas)),
    text("in sync", (one) => list(one.isr), (one) => (one.isr.length < one.replicas.length ? badge(list(one.isr) || "none", "warn") : list(one.isr))),
    number("start", (one) => one.start), remote && number("local start", (one) => one.local_start, (one) => arrived(one.local_start, String)),
    number("end", (one) => one.end), number("records", (one) => (one.end === null ? null : one.end - one.start)),
    number(remote ? "local size" : "bytes", (one) => one.bytes, (one) => size(one.bytes)),
    remote && { ...number("remote size", (one) => one.remote_bytes, (one) => arrived(one.remote_bytes, size)), characters: 10 },
    buttons((one) => html`<a href="" role="button" class="plain" onclick=${open(one)}>producers</a>`, 10),
  ];
  return html`<${Table} label="Partitions" columns=${columns.filter(Boolean)} rows=${rows} />
    ${remote?.error ? html`<div aria-live="polite">${failed(new Error(`What the remote store has is unknown: ${remote.error.message}`))}</div>` : null}`;
}

// The groups come when their coordinators have answered; the page does not wait for them.
function Readers({ page, address }) {
  const { found, error } = useAnswer(`${address}/groups`, page);
  if (error) return failed(error);
  if (!found) return note("Asking the coordinators…");
  const columns = [
    wide("group", (one) => one.group, (one) => link(one.group, "groups", one.group)), text("state", (one) => one.state, (one) => stateBadge(one.state)), number("members", (one) => one.members),
    number("offsets", (one) => one.partitions), number("lag", (one) => one.lag, (one) => grouped(one.lag)),
  ];
  return html`
    ${found.groups.length ? html`<${Table} label="Groups" columns=${columns} rows=${found.groups} />` : empty("No group reads this topic.", "Groups that have offsets of it, or members with its partitions, are listed here with their lag.")}
    ${found.not_examined ? note(`${found.not_examined} more groups were not examined.`) : null}${missing(found.missing)}`;
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
  const line = (one) => html`<li>producer ${one.producer_id}, epoch ${one.producer_epoch}, sequence ${one.last_sequence}, last record ${time(one.last_timestamp)}${one.start_offset === null ? null : `, a transaction is open from offset ${one.start_offset} on`}</li>`;
  const content = found.producers.length ? html`<ul>${found.producers.map(line)}</ul>` : note("The leader remembers no producer.");
  dialog(`Producers of ${name}-${partition}`, [], async () => {}, { button: "Close", content });
}
