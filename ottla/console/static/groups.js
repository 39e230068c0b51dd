// Draws the pages of groups: the list, and one group with its members, offsets and lag; resets offsets after a preview.

import { ask, change, path, query } from "./api.js";
import { action, actions, dialog, element, failed, filtered, heading, link, missing, note, number, table, text, wide } from "./dom.js";

export async function groups(page, name) {
  if (name !== undefined) return group(page, name);
  const found = await ask("groups", page.signal);
  const columns = [
    wide("group", (one) => one.group, (one) => link(one.group, "groups", one.group)), text("state", (one) => one.state),
    text("type", (one) => one.type), text("protocol", (one) => one.protocol_type), number("coordinator", (one) => one.coordinator),
  ];
  return [heading("Groups"), ...missing(found.not_examined), ...filtered("Groups", columns, found.groups, (one) => one.group)];
}

async function group(page, name) {
  const found = await ask(`groups/${path(name)}`, page.signal);
  const partitions = [
    wide("topic", (one) => one.topic, (one) => link(one.topic, "topics", one.topic)), number("partition", (one) => one.partition),
    number("offset", (one) => one.offset), number("end", (one) => one.end), number("lag", (one) => one.lag), wide("members", (one) => one.members.join(", ")),
  ];
  const members = [wide("member", (one) => one.id), text("client", (one) => one.client), text("host", (one) => one.host), number("partitions", (one) => one.partitions)];
  const topics = [...new Set(found.partitions.map((one) => one.topic))];
  const lag = found.partitions.reduce((sum, one) => sum + (one.lag ?? 0), 0);
  const unknown = found.partitions.filter((one) => one.offset !== null && one.lag === null).length;
  return [
    heading(`Group ${name}`), element("p", null, `${found.state}, ${found.type}, coordinator ${found.coordinator} ${found.assignor}${found.epoch === null ? "" : `, epoch ${found.epoch}`}; lag ${lag}${unknown ? `, without ${unknown} partitions whose end is unknown` : ""}`),
    element("p", null, link("ACLs", "acls", "GROUP", name)),
    actions(
      action("Reset offsets", () => page.go("groups", name, "reset")),
      action("Delete the offsets of a topic", () => dialog(`Delete offsets of ${name}`, [{ name: "topic", label: "Topic", kind: "select", options: topics }], async ({ topic }) => {
        await change("DELETE", "group-offsets", { group: name, topic, confirm: name });
        page.reload();
      }, { button: "Delete", confirm: name }), true),
      action("Delete the group", () => dialog(`Delete group ${name}`, [], async () => {
        await change("DELETE", `groups/${path(name)}`, { confirm: name });
        page.go("groups");
      }, { button: "Delete", confirm: name, explanation: "Its offsets are lost." }), true)),
    element("h2", null, "Offsets"), ...filtered("Offsets", partitions, found.partitions, (one) => one.topic),
    element("h2", null, "Members"), table("Members", members, found.members).box,
  ];
}

const MODES = {
  earliest: "to the beginning", latest: "to the end", offset: "to the offset", shift: "by this many records (-10 goes back)",
  time: "to the time (UTC)", ago: "to the time ago (36h, P1D)", current: "to the present offsets",
};

export async function reset(page, name) {
  const known = await ask(`groups/${path(name)}`, page.signal).catch(() => ({ partitions: [] }));
  const topics = [...new Set(known.partitions.map((one) => one.topic))];
  const topic = element("input", { id: "topics", value: topics.join(", "), spellcheck: "false", size: 40 });
  const partition = element("input", { id: "partitions", size: 10 });
  const mode = element("select", { id: "to" }, ...Object.entries(MODES).map(([value, label]) => element("option", { value }, label)));
  const value = element("input", { id: "value", size: 20 });
  const shown = element("div", { "aria-live": "polite" });
  const columns = [
    wide("topic", (one) => one.topic), number("partition", (one) => one.partition), number("start", (one) => one.start), number("end", (one) => one.end),
    number("now", (one) => one.before), number("will be", (one) => one.offset), number("change", (one) => (one.before === null ? null : one.offset - one.before)),
  ];
  const split = (typed) => typed.split(",").map((each) => each.trim()).filter((each) => each !== "");
  async function preview() {
    try {
      const found = await ask(`group-reset?${query({ group: name, to: mode.value, value: value.value.trim(), topic: split(topic.value), partition: split(partition.value) })}`, page.signal);
      const apply = action("Apply these offsets", async () => {
        try {
          const offsets = found.offsets.map(({ topic: of, partition: at, before, offset }) => ({ topic: of, partition: at, before, offset }));
          await change("POST", "group-reset", { group: name, offsets });
          shown.replaceChildren(element("p", { role: "status" }, `The offsets of ${offsets.length} partitions were reset.`));
        } catch (error) {
          shown.prepend(failed(error));
        }
      }, true);
      if (apply) apply.disabled = !found.can_be_applied;
      shown.replaceChildren(
        note(found.can_be_applied ? "Nothing is changed yet." : `The group is ${found.state}; stop its consumers, then look at the preview again.`),
        ...found.remarks.map(note),
        ...(found.missing ?? []).map((one) => failed(new Error(`Without a new offset: ${one.topic}-${one.partition}. ${one.error}`))),
        table("Preview", columns, found.offsets).box, apply ?? "");
    } catch (error) {
      shown.replaceChildren(failed(error));
    }
  }
  const form = element("form", { onsubmit: (event) => { event.preventDefault(); preview(); } },
    element("label", null, "Topics", topic), element("label", null, "Partitions (all)", partition), element("label", null, "Reset", mode), element("label", null, "Value", value),
    element("button", null, "Preview"));
  return [heading(`Reset offsets of ${name}`), element("p", null, link("The group", "groups", name)), form, shown];
}
