// Draws the pages of reassignments with elections, and of transactions.

import { useState } from "./vendor/libraries.js";
import { ask, change, path, query } from "./api.js";
import { dialog } from "./dialog.js";
import { action, actions, counted, empty, facts, failed, heading, html, link, list, missing, note, split, stateBadge, time, trail } from "./parts.js";
import { FilteredTable, Table, buttons, number, text, wide } from "./table.js";

export async function reassignments(page) {
  const found = await ask("reassignments", page.signal);
  const columns = [
    wide("topic", (one) => one.topic, (one) => link(one.topic, "topics", one.topic)), number("partition", (one) => one.partition),
    text("replicas", (one) => list(one.replicas)), text("adding", (one) => list(one.adding)), text("removing", (one) => list(one.removing)),
    buttons((one) => action("Cancel", () => cancel(page, { partitions: [{ topic: one.topic, partition: one.partition }] }, `the move of ${one.topic}-${one.partition}`)), 9),
  ];
  const removeThrottles = () => dialog("Remove the replication throttles", [{ name: "topics", label: "Topics, separated by commas", optional: true }],
    async ({ topics }) => { await change("DELETE", "replication-throttles", { topics: split(topics) }); page.reload("The throttles are removed."); }, { button: "Remove" });
  return html`
    ${heading("Reassignments and elections")}
    ${actions(
      action("Elect leaders", () => elections(page)),
      found.reassignments.length ? action("Cancel all moves", () => cancel(page, { all: true }, "all moves"), true) : null,
      action("Remove throttles", removeThrottles))}
    <h2>In progress</h2>
    ${found.reassignments.length ? html`<${Table} label="Reassignments" columns=${columns} rows=${found.reassignments} />` : empty("No partition is being moved.", "Moves are listed here while brokers copy replicas. A plan below begins one.")}
    <h2>Plan</h2>${note("A plan balances the replicas of topics over brokers. It changes nothing until it is started.")}<${Planner} page=${page} />`;
}

function cancel(page, what, named) {
  dialog(`Cancel ${named}`, [], async () => { await change("DELETE", "reassignments", what); page.reload(); }, { button: "Cancel the move", explanation: "The partitions stay where they were." });
}

function elections(page) {
  dialog("Elect leaders", [
    { name: "type", label: "Kind", kind: "select", options: ["preferred", "unclean"] },
    { name: "partitions", label: "topic:partition, separated by commas (all)", optional: true },
  ], async ({ type, partitions }) => {
    const chosen = split(partitions).map((each) => {
      const at = each.lastIndexOf(":");
      if (at < 1 || !/^\d+$/.test(each.slice(at + 1))) throw new Error(`${each} is not topic:partition`);
      return { topic: each.slice(0, at), partition: Number(each.slice(at + 1)) };
    });
    const done = await change("POST", "elections", chosen.length ? { type, partitions: chosen } : { type, all: true });
    const bad = done.elections.filter((one) => one.failed);
    page.reload(`${counted(done.elections.filter((one) => one.result === "elected").length, "leader was", "leaders were")} elected. ${bad.map((one) => one.result).join(" ")}`);
  }, { button: "Elect", explanation: "An unclean election takes a replica that is not in sync, and may lose records." });
}

function Planner({ page }) {
  const [shown, setShown] = useState(null);
  const plan = async (event) => {
    event.preventDefault();
    const { topics, brokers, factor } = event.target.elements;
    try {
      const found = await ask(`reassignment-plan?${query({ topic: split(topics.value), broker: split(brokers.value), replication_factor: factor.value.trim() })}`, page.signal);
      setShown(html`<${Plan} page=${page} found=${found} />`);
    } catch (error) {
      if (error.name !== "AbortError") setShown(failed(error));
    }
  };
  return html`
    <form class="fields" onsubmit=${plan}>
      <label>Topics<input name="topics" spellcheck=${false} /></label><label>Brokers (all)<input name="brokers" /></label>
      <label>Replicas (as now)<input name="factor" inputmode="numeric" /></label><button>Plan</button>
    </form>
    <div aria-live="polite">${shown}</div>`;
}

function Plan({ page, found }) {
  const columns = [wide("topic", (one) => one.topic), number("partition", (one) => one.partition), text("now", (one) => list(one.now)), text("planned", (one) => list(one.planned))];
  const start = () => dialog("Start the reassignment", [
    { name: "throttle", label: "Throttle, bytes per second and broker (none)", kind: "number", optional: true },
    { name: "additional", label: "Even while others are in progress", kind: "checkbox" },
  ], async (fields) => { await change("POST", "reassignments", { plan: found.plan, ...fields }); page.reload("The reassignment has begun."); }, { button: "Start" });
  return html`<${Table} label="Plan" columns=${columns} rows=${found.partitions} />
    <details><summary>The plan as JSON</summary><pre tabindex="0">${JSON.stringify(found.plan)}</pre></details>
    ${actions(action("Start this reassignment", start))}`;
}

export async function transactions(page, name) {
  if (name !== undefined) return transaction(page, name);
  const found = await ask("transactions", page.signal);
  const columns = [
    wide("transactional id", (one) => one.transactional_id, (one) => link(one.transactional_id, "transactions", one.transactional_id)),
    text("state", (one) => one.state, (one) => stateBadge(one.state)), number("producer", (one) => one.producer_id), number("coordinator", (one) => one.coordinator),
  ];
  return html`
    ${heading("Transactions")}${missing(found.not_examined)}
    <${FilteredTable} label="Transactions" columns=${columns} rows=${found.transactions} textOf=${(one) => one.transactional_id}
      none=${empty("No producer has used transactions.", "Producers with a transactional.id are listed here with the state of their last transaction.")} />
    <h2>Hanging transactions</h2><${Hanging} page=${page} />`;
}

function Hanging({ page }) {
  const [shown, setShown] = useState(null);
  const find = async () => {
    setShown(note("Asking the leaders…"));
    setShown(await hangingParts(page).catch((error) => failed(error)));
  };
  return html`<button type="button" class="secondary" onclick=${find}>Find hanging transactions</button><div aria-live="polite">${shown}</div>`;
}

async function hangingParts(page) {
  const found = await ask("hanging-transactions", page.signal);
  const columns = [
    wide("topic", (one) => one.topic), number("partition", (one) => one.partition), number("producer", (one) => one.producer_id), number("begins at", (one) => one.start_offset),
    number("idle, minutes", (one) => Math.floor(one.idle_ms / 60000)), wide("transactional id", (one) => one.transactional_id), buttons((one) => action("Abort", () => abort(page, one), true), 9),
  ];
  return html`
    ${note(`The last stable offset of ${counted(found.held_back.length, "partition")} is behind the end.`)}
    ${found.hanging.length ? html`<${Table} label="Hanging transactions" columns=${columns} rows=${found.hanging} />` : note("No transaction hangs.")}
    ${missing(found.not_examined)}`;
}

function abort(page, one) {
  dialog(`Abort the transaction on ${one.topic}-${one.partition}`, [], async () => {
    await change("POST", "transaction-abort", { topic: one.topic, partition: one.partition, start_offset: one.start_offset, confirm: one.topic });
    page.reload("The abort marker is written.");
  }, { button: "Abort", confirm: one.topic, explanation: "The leader writes an abort marker. The coordinator is not asked." });
}

async function transaction(page, name) {
  const found = await ask(`transactions/${path(name)}`, page.signal);
  const columns = [wide("topic", (one) => one.topic, (one) => link(one.topic, "topics", one.topic)), number("partition", (one) => one.partition)];
  const fence = () => dialog(`Abort the transaction of ${name}`, [], async () => {
    await change("POST", "transaction-forget", { transactional_id: name, confirm: name });
    page.reload("The transaction is aborted, and its producers are fenced.");
  }, { button: "Abort", confirm: name, explanation: "The coordinator aborts an open transaction, and refuses its producers." });
  const begun = found.start_time_ms === null ? null : note(`The last transaction began at ${time(found.start_time_ms)}${found.open_for_ms === null ? "" : ` and is open for ${Math.round(found.open_for_ms / 1000)} s`}.`);
  return html`
    ${trail(link("Transactions", "transactions"))}
    ${heading(`Transactional id ${name}`, stateBadge(found.state))}
    ${facts(["producer", found.producer_id], ["epoch", found.producer_epoch], ["coordinator", found.coordinator], ["timeout", `${found.timeout_ms} ms`])}
    ${begun}${actions(action("Abort and fence", fence, true))}
    <h2>Partitions</h2>${found.partitions.length ? html`<${Table} label="Partitions" columns=${columns} rows=${found.partitions} />` : empty("No partition is part of a transaction now.")}`;
}
