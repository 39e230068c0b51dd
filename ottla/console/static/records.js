// Draws the page of records: searches with filters, a live view, exports.

import { addressOf, ask, events, path, query } from "./api.js";
import { action, actions, element, failed, heading, link, note, time } from "./dom.js";
import { produce } from "./topics.js";

const FORMS = ["auto", "text", "json", "hex", "msgpack", "avro", "protobuf"];
const MOST_SHOWN = 500;
const MOST_NESTED = 50;
const MOST_NAMED = 10;

export async function records(page, name, partition) {
  const list = element("div", { class: "records" });
  const left = element("div", { "aria-live": "polite" });
  const state = element("p", { class: "note", "aria-live": "polite" });
  const fields = new Map();
  const field = (id, label, attributes) => {
    const made = element("input", { id, size: 14, spellcheck: "false", autocomplete: "off", ...attributes });
    fields.set(id, made);
    return element("label", null, label, made);
  };
  const choice = (id, label, options) => {
    const made = element("select", { id }, ...options.map((option) => element("option", { value: option }, option)));
    fields.set(id, made);
    return element("label", null, label, made);
  };
  const address = `topics/${path(name)}`;
  let running = null;
  const stop = () => { left.replaceChildren(); running?.abort(); running = null; cancel.hidden = true; };
  page.signal.addEventListener("abort", stop);
  addEventListener("keydown", (event) => { if (event.key === "Escape" && !cancel.hidden && !document.querySelector("dialog[open]")) cancel.click(); }, { signal: page.signal });

  const chosen = () => query(Object.fromEntries([...fields].map(([id, input]) => [id, id === "timestamp" || id === "before" ? milliseconds(input.value) : input.value.trim()])));

  async function search() {
    stop();
    running = new AbortController();
    const { signal } = running;
    cancel.hidden = false;
    state.textContent = "Reading…";
    try {
      const found = await ask(`${address}/records?${chosen()}`, signal);
      left.replaceChildren(...omitted(found.missing));
      list.replaceChildren(...found.records.map(drawn));
      const ranges = found.partitions.length === 1 ? `offsets ${found.partitions[0].start} to ${found.partitions[0].end}; ` : `${found.partitions.length} partitions; `;
      const reason = found.stopped_by === null || found.stopped_by === "limit" ? "" : `; the search ended at its limit of ${found.stopped_by}`;
      state.textContent = `${ranges}${found.records.length} of ${found.scanned.records} records read are shown${reason}`;
      const [only] = found.partitions;
      if (found.partitions.length === 1 && found.stopped_by !== null && only.next < only.end) {
        list.append(element("button", { type: "button", onclick: () => { fields.get("offset").value = only.next; fields.get("timestamp").value = ""; search(); } }, `Go on from offset ${only.next}`));
      }
    } catch (error) {
      if (signal.aborted) return; // by another search, or by the button, which says so
      state.textContent = "";
      list.replaceChildren(failed(error));
    }
    if (running?.signal === signal) cancel.hidden = true;
  }

  async function live() {
    stop();
    running = new AbortController();
    const { signal } = running;
    cancel.hidden = false;
    list.replaceChildren();
    state.textContent = "Reading…";
    let count = 0;
    const missing = [];
    const show = {
      begun() { state.textContent = "Waiting for new records…"; },
      records({ records: found }) {
        count += found.length;
        state.textContent = `${count} records so far; the last ${Math.min(count, MOST_SHOWN)} are shown`;
        list.prepend(...found.slice(-MOST_SHOWN).reverse().map(drawn));
        while (list.children.length > MOST_SHOWN) list.lastChild.remove();
      },
      missing({ missing: more }) { missing.push(...more); left.replaceChildren(...omitted(missing)); },
      failed({ error }) { throw new Error(error); },
      end() { throw new Error("The live view has ended; start it again."); },
    };
    try {
      for await (const { name, data } of events(`${address}/live?${chosen()}`, signal)) show[name](data);
      throw new Error("The live view was interrupted; start it again.");
    } catch (error) {
      if (signal.aborted) return; // by a search, another view, or the button, which says so
      stop();
      state.replaceChildren(failed(error));
    }
  }

  const save = (format) => element("a", { href: `${addressOf(address)}/export?${chosen()}&format=${format}`, download: true }).click();

  const cancel = element("button", { type: "button", hidden: true, onclick: () => { stop(); state.textContent = "Cancelled."; } }, "Cancel (Esc)");
  const form = element("form", {
    onsubmit: (event) => { event.preventDefault(); search(); },
  },
  field("partition", "Partitions (all)", { value: partition ?? "" }), field("offset", "From offset", { inputmode: "numeric" }),
  field("timestamp", "From time, UTC or ms", { placeholder: "2026-01-31T12:00" }), field("before", "Until time, UTC or ms"), field("limit", "Records (50)", { inputmode: "numeric" }),
  field("contains", "Text in key or value"), field("key", "Key is"), field("header", "Header name=value"), field("path", "JSON path a.b[0]"), field("equals", "has the value"),
  choice("key_form", "Keys as", FORMS), choice("value_form", "Values as", FORMS), choice("isolation", "Isolation", ["read_uncommitted", "read_committed"]),
  element("div", { class: "actions" }, element("button", null, "Search"), element("button", { type: "button", onclick: live }, "Live"),
    ...["json", "csv"].map((format) => element("button", { type: "button", onclick: () => save(format) }, `Export as ${format.toUpperCase()}`)), cancel));
  search();
  return [
    heading(`Records of ${name}${partition === undefined ? "" : `-${partition}`}`), element("p", null, link("The topic", "topics", name)),
    actions(action("Produce a record", () => produce(page, name))), form, state, left, list,
  ];
}

// A time as the API takes it; numbers are milliseconds since 1970.
function milliseconds(typed) {
  const trimmed = typed.trim();
  if (trimmed === "" || /^\d+$/.test(trimmed)) return trimmed;
  const found = Date.parse(/[zZ]|[+-]\d\d:?\d\d$/.test(trimmed) ? trimmed : `${trimmed.includes("T") ? trimmed : `${trimmed}T00:00`}Z`);
  return Number.isNaN(found) ? trimmed : found;
}

// Names the partitions whose leaders did not answer.
function omitted(missing) {
  if (!missing.length) return [];
  const more = missing.length > MOST_NAMED ? ` and ${missing.length - MOST_NAMED} more` : "";
  const names = missing.slice(0, MOST_NAMED).map((one) => one.partition).join(", ");
  return [failed(new Error(`Not shown: the records of partition ${names}${more}. ${missing[0].error}`))];
}

function drawn(record) {
  const unseen = record.header_count - record.headers.length;
  return element("article", null,
    element("div", { class: "note" }, `partition ${record.partition}   offset ${record.offset}   ${time(record.timestamp)}`),
    element("div", null, "key ", bytes(record.key)), element("div", null, "value ", bytes(record.value)),
    ...record.headers.map((header) => element("div", { class: "note" }, `${header.name} `, bytes(header))),
    unseen > 0 ? note(`${unseen} more headers are in the export.`) : null);
}

function bytes(data) {
  if (data.form === "null") return element("i", null, "null");
  let shown = data.text;
  try {
    const parsed = data.form !== "hex" && /^[[{]/.test(data.text) && depth(data.text) <= MOST_NESTED ? JSON.parse(data.text) : null;
    // Only where nothing is lost: large numbers and repeated keys do not survive parsing.
    if (parsed !== null && JSON.stringify(parsed) === data.text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1")) shown = JSON.stringify(parsed, null, 2);
  } catch {
    shown = data.text;
  }
  const remark = data.error ? `, ${data.error}` : "";
  return element("span", null, element("span", { class: "note" }, `(${data.form}, ${data.bytes} bytes${remark})`), element("pre", { dir: "auto" }, shown));
}

// How deep brackets are nested, those in texts among them; the indentation of deep ones would fill the memory.
function depth(text) {
  let [now, most] = [0, 0];
  for (const each of text) {
    if (each === "[" || each === "{") most = Math.max(most, now += 1);
    else if (each === "]" || each === "}") now -= 1;
  }
  return most;
}
