// Draws the pages of groups: the list, one group with its members, offsets and lag, and the records in flight of a share group; resets
// offsets after a preview.

import { useState } from "./vendor/libraries.js";
import { ask, change, path, query } from "./api.js";
import { Charts } from "./charts.js";
import { dialog } from "./dialog.js";
import { action, actions, arrived, badge, counted, empty, facts, failed, grouped, heading, html, link, missing, note, split, stateBadge, trail, useAnswer, visible } from "./parts.js";
import { FilteredTable, Table, number, text, wide } from "./table.js";

export async function groups(page, name) {
  if (name !== undefined) return group(page, name);
  const found = await ask("groups", page.signal);
  const none = empty("This cluster has no groups.", html`Consumer and share groups are listed here with their states and lag, once a consumer joins: <code>ottla consume -G NAME TOPIC</code>.`);
  return html`${heading("Groups")}${missing(found.not_examined)}${found.groups.length ? html`<${Groups} page=${page} groups=${found.groups} />` : none}`;
}

// The lag is that of the last sample for the charts.
function Groups({ page, groups }) {
  const told = useAnswer("group-lags", page);
  const isKnown = told.found !== undefined || told.error !== undefined;
  const byGroup = new Map((told.found?.groups ?? []).map((one) => [one.group, one.lag]));
  const rows = isKnown ? groups.map((one) => ({ ...one, lag: byGroup.get(one.group) ?? null })) : groups;
  const columns = [
    wide("group", (one) => one.group, (one) => link(one.group, "groups", one.group)), text("state", (one) => one.state, (one) => stateBadge(one.state)),
    number("lag", (one) => one.lag, (one) => arrived(one.lag, (lag) => (lag ? badge(grouped(lag), "warn") : 0))),
    text("type", (one) => one.type), text("protocol", (one) => one.protocol_type), number("coordinator", (one) => one.coordinator),
  ];
  return html`<${FilteredTable} label="Groups" columns=${columns} rows=${rows} textOf=${(one) => one.group} />`;
}

async function group(page, name) {
  const found = await ask(`groups/${path(name)}`, page.signal);
  const lag = found.partitions.reduce((sum, one) => sum + (one.lag ?? 0), 0);
  const unknown = found.partitions.filter((one) => one.offset !== null && one.lag === null).length;
  return html`
    ${trail(link("Groups", "groups"))}
    ${heading(`Group ${name}`, stateBadge(found.state), found.type ? badge(found.type) : null)}
    ${facts(["lag", `${grouped(lag)}${unknown ? `, without ${counted(unknown, "partition")} whose end is unknown` : ""}`], ["members", found.members.length],
      ["coordinator", found.coordinator], found.assignor ? ["assignor", found.assignor] : null, found.epoch === null ? null : ["epoch", found.epoch])}
    <p class="ways">${link("ACLs", "acls", "GROUP", name)} ${found.type === "Share" ? link("Records in flight", "groups", name, "records") : null}</p>
    <${GroupActions} page=${page} name=${name} found=${found} />
    <${Charts} page=${page} of=${{ group: name }} wanted=${[["lag", "Lag, records"]]} />
    <h2>Offsets</h2><${Offsets} partitions=${found.partitions} />
    <h2>Members</h2><${Members} members=${found.members} />`;
}

function GroupActions({ page, name, found }) {
  const topics = [...new Set(found.partitions.map((one) => one.topic))];
  return actions(
    action("Reset offsets", () => page.go("groups", name, "reset")),
    action("Delete the offsets of a topic", () => dialog(`Delete offsets of ${name}`, [{ name: "topic", label: "Topic", kind: "select", options: topics }], async ({ topic }) => {
      await change("DELETE", "group-offsets", { group: name, topic, confirm: name });
      page.reload();
    }, { button: "Delete", confirm: name }), true),
    action("Delete the group", () => dialog(`Delete group ${name}`, [], async () => {
      await change("DELETE", `groups/${path(name)}`, { confirm: name });
      page.go("groups");
    }, { button: "Delete", confirm: name, explanation: "Its offsets are lost." }), true));
}

function Offsets({ partitions }) {
  const columns = [
    wide("topic", (one) => one.topic, (one) => link(one.topic, "topics", one.topic)), number("partition", (one) => one.partition),
    number("offset", (one) => one.offset), number("end", (one) => one.end), number("lag", (one) => one.lag, (one) => (one.lag ? badge(grouped(one.lag), "warn") : one.lag)), wide("members", (one) => one.members.join(", ")),
  ];
  return html`<${FilteredTable} label="Offsets" columns=${columns} rows=${partitions} textOf=${(one) => one.topic}
    none=${empty("This group has no offsets.", "They are there once a member has committed one.")} />`;
}

function Members({ members }) {
  const columns = [wide("member", (one) => one.id), text("client", (one) => one.client), text("host", (one) => one.host), number("partitions", (one) => one.partitions)];
  return members.length ? html`<${Table} label="Members" columns=${columns} rows=${members} />` : empty("No consumer is a member now.", "The offsets stay until they expire.");
}

// The records of a share group that its leaders would deliver again, and those behind the start that are complete.
export async function inFlight(page, name) {
  const found = await ask(`group-records?${query({ group: name })}`, page.signal);
  const rows = found.partitions.flatMap((one) => one.records.map((records) => ({ topic: one.topic, partition: one.partition, ...records })));
  const left = found.partitions.reduce((sum, one) => sum + one.ranges, 0) - rows.length;
  const columns = [
    wide("topic", (one) => one.topic, (one) => link(one.topic, "topics", one.topic)), number("partition", (one) => one.partition),
    number("first", (one) => one.first), number("last", (one) => one.last), text("state", (one) => one.state), number("deliveries", (one) => one.deliveries),
  ];
  return html`
    ${trail(link("Groups", "groups"), link(name, "groups", name))}
    ${heading(`Records in flight of ${name}`)}
    ${facts(["in flight", grouped(found.partitions.reduce((sum, one) => sum + one.in_flight, 0))], left ? ["more ranges", grouped(left)] : null)}
    ${note("These are the stored states. A record that a member has now is in the state that it had before.")}
    <${FilteredTable} label="Records" columns=${columns} rows=${rows} textOf=${(one) => one.topic} none=${empty("No state of a record is stored behind the start.", "Records that wait for their first delivery are in the lag.")} />
    <${Release} page=${page} name=${name} />`;
}

// A group without members that begins anew at its starts has released all its records.
function Release({ page, name }) {
  const [shown, setShown] = useState(null);
  const preview = async () => {
    try {
      const found = await ask(`group-reset?${query({ group: name, to: "shift", value: "0" })}`, page.signal);
      setShown(html`<${Preview} name=${name} found=${found} key=${Date.now()} />`);
    } catch (error) {
      if (error.name !== "AbortError") setShown(failed(error));
    }
  };
  return html`
    ${actions(action("Release all records", preview))}
    ${note("They are delivered again from the start on, as if for the first time, also those that are complete.")}
    <div aria-live="polite">${shown}</div>`;
}

const MODES = {
  earliest: "to the beginning", latest: "to the end", offset: "to the offset", shift: "by this many records (-10 goes back)",
  time: "to the time (UTC)", ago: "to the time ago (36h, P1D)", current: "to the present offsets",
};

export async function reset(page, name) {
  const known = await ask(`groups/${path(name)}`, page.signal).catch(() => ({ partitions: [] }));
  const topics = [...new Set(known.partitions.map((one) => one.topic))];
  return html`${trail(link("Groups", "groups"), link(name, "groups", name))}${heading(`Reset offsets of ${name}`)}<${Reset} page=${page} name=${name} topics=${topics} />`;
}

function Reset({ page, name, topics }) {
  const [shown, setShown] = useState(null);
  const preview = async (event) => {
    event.preventDefault();
    const { topics: topic, partitions, to, value } = event.target.elements;
    try {
      const found = await ask(`group-reset?${query({ group: name, to: to.value, value: value.value.trim(), topic: split(topic.value), partition: split(partitions.value) })}`, page.signal);
      setShown(html`<${Preview} name=${name} found=${found} key=${Date.now()} />`);
    } catch (error) {
      if (error.name !== "AbortError") setShown(failed(error));
    }
  };
  return html`
    <form class="fields" onsubmit=${preview}>
      <label>Topics<input name="topics" defaultValue=${topics.map(visible).join(", ")} spellcheck=${false} /></label>
      <label>Partitions (all)<input name="partitions" /></label>
      <label>Reset<select name="to">${Object.entries(MODES).map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select></label>
      <label>Value<input name="value" /></label>
      <button>Preview</button>
    </form>
    <div aria-live="polite">${shown}</div>`;
}

function Preview({ name, found }) {
  const [outcome, setOutcome] = useState(null);
  const columns = [
    wide("topic", (one) => one.topic), number("partition", (one) => one.partition), number("start", (one) => one.start), number("end", (one) => one.end),
    number("now", (one) => one.before), number("will be", (one) => one.offset),
    number("change", (one) => (one.before === null ? null : one.offset - one.before), (one) => (one.before === null ? null : `${one.offset > one.before ? "+" : ""}${one.offset - one.before}`)),
  ];
  const apply = async () => {
    try {
      const offsets = found.offsets.map(({ topic, partition, before, offset }) => ({ topic, partition, before, offset }));
      await change("POST", "group-reset", { group: name, offsets });
      setOutcome(html`<p role="status" class="said">The offsets of ${counted(offsets.length, "partition")} were reset.</p>`);
    } catch (error) {
      setOutcome(failed(error));
    }
  };
  const isDone = outcome?.props.role === "status";
  if (isDone) return outcome;
  return html`
    ${outcome}
    ${note(found.can_be_applied ? "Nothing is changed yet." : `The group is ${found.state}; stop its consumers, then look at the preview again.`)}
    ${found.remarks.map(note)}
    ${(found.missing ?? []).map((one) => failed(new Error(`Without a new offset: ${one.topic}-${one.partition}. ${one.error}`)))}
    <${Table} label="Preview" columns=${columns} rows=${found.offsets} />
    ${actions(action("Apply these offsets", apply, true, !found.can_be_applied))}`;
}
