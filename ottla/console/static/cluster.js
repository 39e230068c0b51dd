// Draws the pages of the brokers, with their disks and configurations, and of the findings.

import { ask, change, path } from "./api.js";
import { dialog } from "./dialog.js";
import { action, actions, badge, empty, grouped, heading, html, link, list, note, size, time, trail, visible, warned } from "./parts.js";
import { FilteredTable, Table, buttons, id, number, text, wide } from "./table.js";

// A broker that has replicas and is not alive stays listed, after those that are.
export const withMissing = (brokers, missing) => [
  ...brokers.map((one) => ({ ...one, isAlive: true })),
  ...missing.map((id) => ({ id, address: null, rack: null, leads: 0, replicas: null, isAlive: false, error: null, log_dirs: [] })),
];

export const brokerState = (one, controller) => html`<span>${one.isAlive ? (one.error ? badge("does not answer", "bad") : badge("alive", "good")) : badge("dead", "bad")} ${one.id === controller ? badge("controller") : null}</span>`;

// What is wrong with the brokers themselves.
export function remarks(found) {
  const others = found.other_requests;
  const same = found.brokers.filter((one) => !others.includes(one.id)).map((one) => one.id);
  return [
    ...found.missing.map((id) => html`<p class="bad">Broker ${id} is not alive: its disks are unknown.</p>`),
    ...found.brokers.filter((one) => one.error).map((one) => html`<p class="bad">${visible(`Broker ${one.id}: ${one.error}`)}</p>`),
    ...(others.length ? [warned(`Brokers ${list(same)} support other requests than ${list(others)}: versions are mixed, and an upgrade may be unfinished.`)] : []),
  ];
}

export function Directories({ brokers }) {
  const disks = brokers.flatMap((one) => one.log_dirs.map((each) => ({ broker: one.id, ...each })));
  const used = (one) => (one.total_bytes ? 1 - one.usable_bytes / one.total_bytes : null);
  const columns = [
    id("broker", (one) => one.broker, (one) => link(one.broker, "brokers", one.broker)), wide("directory", (one) => one.path),
    number("replicas", (one) => one.replicas, (one) => grouped(one.replicas)), number("bytes", (one) => one.replica_bytes, (one) => size(one.replica_bytes)),
    number("disk free", (one) => one.usable_bytes, (one) => size(one.usable_bytes)), number("disk", (one) => one.total_bytes, (one) => size(one.total_bytes)),
    { ...text("full", used, (one) => (one.usable_bytes === null || used(one) === null ? null : html`<meter min="0" max="1" low="0.85" high="0.95" optimum="0" value=${used(one)} aria-label="used part of the disk">${Math.round(100 * used(one))} %</meter>`)), characters: 8 },
    text("state", (one) => one.error ?? "online", (one) => badge(one.error ?? "online", one.error ? "bad" : "good")),
  ];
  return disks.length ? html`<${Table} label="Log directories" columns=${columns} rows=${disks} />` : empty("No broker reports its log directories.", "The right Describe on the cluster is necessary.");
}

export async function brokers(page) {
  const found = await ask("brokers", page.signal);
  const columns = [
    id("broker", (one) => one.id, (one) => link(one.id, "brokers", one.id)), { ...text("state", (one) => Number(one.isAlive), (one) => brokerState(one, found.controller)), characters: 16 },
    wide("address", (one) => one.address), text("rack", (one) => one.rack),
    number("leads", (one) => one.leads, (one) => grouped(one.leads)), number("replicas", (one) => one.replicas, (one) => grouped(one.replicas)),
  ];
  return html`
    ${heading("Brokers")}
    <p>A broker's page has its configuration. What is set for ${link("all brokers", "brokers", "default")} is a page of its own.</p>
    ${remarks(found)}
    <${Table} label="Brokers" columns=${columns} rows=${withMissing(found.brokers, found.missing)} />
    <h2>Log directories</h2><${Directories} brokers=${found.brokers} />`;
}

export async function broker(page, name) {
  const address = `brokers/${path(name)}/configs`;
  const { configs } = await ask(address, page.signal);
  return html`${trail(link("Brokers", "brokers"))}${heading(name === "default" ? "Configuration of all brokers" : `Broker ${name}`)}<${Configs} page=${page} address=${address} configs=${configs} />`;
}

// The table of a configuration, with a dialog for each key.
export function Configs({ page, address, configs }) {
  const edit = (one) => dialog(one.name, [{ name: "value", label: `Value (default ${one.default ?? "none"})`, value: one.value ?? "", optional: true }],
    async ({ value }) => { await change("PATCH", address, { set: { [one.name]: value } }); page.reload(); },
    { explanation: `Now from ${one.source}.` });
  const reset = (one) => dialog(`Reset ${one.name}`, [], async () => { await change("PATCH", address, { delete: [one.name] }); page.reload(); },
    { button: "Reset", explanation: "The value that was set for it is deleted." });
  const isSet = (one) => one.source.startsWith("DYNAMIC");
  const columns = [
    wide("key", (one) => one.name, (one) => (isSet(one) ? html`<b>${one.name}</b>` : one.name)), wide("value", (one) => (one.sensitive ? "(hidden)" : one.value)),
    text("source", (one) => one.source, (one) => (isSet(one) ? badge(one.source) : one.source)), wide("default", (one) => one.default),
    buttons((one) => (one.read_only ? html`<span class="faint">read-only</span>` : html`<span>${action("Set", () => edit(one))} ${isSet(one) ? action("Reset", () => reset(one)) : null}</span>`)),
  ];
  const add = () => dialog("Set a key", [{ name: "key", label: "Key" }, { name: "value", label: "Value", optional: true }],
    async ({ key, value }) => { await change("PATCH", address, { set: { [key]: value } }); page.reload(); });
  return html`<${FilteredTable} label="Configuration" columns=${columns} rows=${configs} textOf=${(one) => one.name}
    none=${empty("Nothing is set.", "A key that is set here holds for all brokers.")} />${actions(action("Set another key", add))}`;
}

export function Finding({ one }) {
  return html`<article class=${`finding ${one.severity}`}>
    <p>${badge(one.severity, one.severity === "problem" ? "bad" : "warn")} <b>${one.id}</b></p>
    <p>${visible(one.what)}</p><p class="note">${visible(one.why)}</p><pre tabindex="0">${visible(one.command)}</pre>
  </article>`;
}

export async function findings({ signal }) {
  const found = await ask("findings", signal);
  return html`
    ${heading("Findings")}
    ${note(`Examined at ${time(found.examined_at_ms)}. The findings are kept for a while, because an examination costs the brokers much.`)}
    ${found.findings.length ? found.findings.map((one) => html`<${Finding} one=${one} />`) : empty("Nothing is wrong.", "Findings are what ottla doctor would say about this cluster.")}
    ${found.not_examined.map((one) => note(`Not examined: ${one}`))}`;
}
