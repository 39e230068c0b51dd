// Draws the pages of reassignments with elections, and of transactions.

import { ask, change, path, query } from "./api.js";
import { action, actions, dialog, element, failed, filtered, heading, link, missing, note, number, table, text, time, wide } from "./dom.js";

const list = (ids) => ids.join(", ");
const split = (typed) => typed.split(",").map((each) => each.trim()).filter((each) => each !== "");

export async function reassignments(page) {
  const found = await ask("reassignments", page.signal);
  const columns = [
    wide("topic", (one) => one.topic, (one) => link(one.topic, "topics", one.topic)), number("partition", (one) => one.partition),
    text("replicas", (one) => list(one.replicas)), text("adding", (one) => list(one.adding)), text("removing", (one) => list(one.removing)),
    { name: "", show: (one) => action("Cancel", () => cancel(page, { partitions: [{ topic: one.topic, partition: one.partition }] }, `the move of ${one.topic}-${one.partition}`)) ?? "" },
  ];
  return [
    heading("Reassignments and elections"),
    actions(
      action("Elect leaders", () => elections(page)),
      found.reassignments.length ? action("Cancel all moves", () => cancel(page, { all: true }, "all moves"), true) : null,
      action("Remove throttles", () => dialog("Remove the replication throttles", [{ name: "topics", label: "Topics, separated by commas", optional: true }],
        async ({ topics }) => { await change("DELETE", "replication-throttles", { topics: split(topics) }); page.reload("The throttles are removed."); }, { button: "Remove" }))),
    element("h2", null, "In progress"),
    found.reassignments.length ? table("Reassignments", columns, found.reassignments).box : note("No partition is being moved."),
    element("h2", null, "Plan"), ...planner(page),
  ];
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
    page.reload(`${done.elections.filter((one) => one.result === "elected").length} leaders were elected. ${bad.map((one) => one.result).join(" ")}`);
  }, { button: "Elect", explanation: "An unclean election takes a replica that is not in sync, and may lose records." });
}

function planner(page) {
  const topics = element("input", { id: "plan-topics", size: 40, spellcheck: "false" });
  const brokers = element("input", { id: "plan-brokers", size: 12 });
  const factor = element("input", { id: "plan-factor", size: 6, inputmode: "numeric" });
  const shown = element("div", { "aria-live": "polite" });
  const columns = [wide("topic", (one) => one.topic), number("partition", (one) => one.partition), text("now", (one) => list(one.now)), text("planned", (one) => list(one.planned))];
  async function plan(event) {
    event.preventDefault();
    try {
      const found = await ask(`reassignment-plan?${query({ topic: split(topics.value), broker: split(brokers.value), replication_factor: factor.value.trim() })}`, page.signal);
      const start = action("Start this reassignment", () => dialog("Start the reassignment", [
        { name: "throttle", label: "Throttle, bytes per second and broker (none)", kind: "number", optional: true },
        { name: "additional", label: "Even while others are in progress", kind: "checkbox" },
      ], async (fields) => { await change("POST", "reassignments", { plan: found.plan, ...fields }); page.reload("The reassignment has begun."); }, { button: "Start" }));
      const json = element("details", null, element("summary", null, "The plan as JSON, for kafka-reassign-partitions.sh"), element("pre", null, JSON.stringify(found.plan)));
      shown.replaceChildren(table("Plan", columns, found.partitions).box, json, start ?? "");
    } catch (error) {
      shown.replaceChildren(failed(error));
    }
  }
  return [
    element("form", { onsubmit: plan }, element("label", null, "Topics", topics), element("label", null, "Brokers (all)", brokers),
      element("label", null, "Replicas (as now)", factor), element("button", null, "Plan")),
    shown,
  ];
}

export async function transactions(page, name) {
  if (name !== undefined) return transaction(page, name);
  const found = await ask("transactions", page.signal);
  const columns = [
    wide("transactional id", (one) => one.transactional_id, (one) => link(one.transactional_id, "transactions", one.transactional_id)),
    text("state", (one) => one.state), number("producer", (one) => one.producer_id), number("coordinator", (one) => one.coordinator),
  ];
  const hanging = element("div");
  const find = async () => {
    hanging.replaceChildren(note("Asking the leaders…"));
    hanging.replaceChildren(...await hangingParts(page).catch((error) => [failed(error)]));
  };
  return [
    heading("Transactions"), ...missing(found.not_examined), ...filtered("Transactions", columns, found.transactions, (one) => one.transactional_id),
    element("h2", null, "Hanging transactions"), element("button", { type: "button", onclick: find }, "Find hanging transactions"), hanging,
  ];
}

async function hangingParts(page) {
  const found = await ask("hanging-transactions", page.signal);
  const columns = [
    wide("topic", (one) => one.topic), number("partition", (one) => one.partition), number("producer", (one) => one.producer_id), number("begins at", (one) => one.start_offset),
    number("idle, minutes", (one) => Math.floor(one.idle_ms / 60000)), wide("transactional id", (one) => one.transactional_id),
    { name: "", show: (one) => action("Abort", () => abort(page, one), true) ?? "" },
  ];
  return [
    note(`The last stable offset of ${found.held_back.length} partitions is behind their end.`),
    found.hanging.length ? table("Hanging transactions", columns, found.hanging).box : note("No transaction hangs."),
    ...missing(found.not_examined),
  ];
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
  return [
    heading(`Transactional id ${name}`),
    element("p", null, `${found.state}, producer ${found.producer_id} epoch ${found.producer_epoch}, coordinator ${found.coordinator}, timeout ${found.timeout_ms} ms`),
    found.start_time_ms === null ? null : note(`The last transaction began at ${time(found.start_time_ms)}${found.open_for_ms === null ? "" : ` and is open for ${Math.round(found.open_for_ms / 1000)} s`}.`),
    actions(action("Abort and fence", () => dialog(`Abort the transaction of ${name}`, [], async () => {
      await change("POST", "transaction-forget", { transactional_id: name, confirm: name });
      page.reload("The transaction is aborted, and its producers are fenced.");
    }, { button: "Abort", confirm: name, explanation: "The coordinator aborts an open transaction, and refuses its producers." }), true)),
    element("h2", null, "Partitions"), table("Partitions", columns, found.partitions).box,
  ];
}
