// Draws the page of records: searches with filters, a live view, exports. One line is one record, which opens on a click.

import { useEffect, useReducer, useRef } from "./vendor/libraries.js";
import { addressOf, ask, events, path, query } from "./api.js";
import { indented } from "./json.js";
import { action, actions, badge, counted, empty, failed, grouped, heading, html, link, size, time, trail, visible } from "./parts.js";
import { produce } from "./topics.js";

const FORMS = ["auto", "text", "json", "hex", "msgpack", "avro", "protobuf"];
const MOST_SHOWN = 500;
const MOST_NAMED = 10;
const PREVIEW_CHARACTERS = 240;
const SHOWN_BYTES = 16384;
const TIMES = ["timestamp", "before"];

export async function records(page, name, partition) {
  return html`<${Records} page=${page} name=${name} partition=${partition} />`;
}

// The searches of the page. `state` is what the page shows, and `set` changes it.
class Reader {
  constructor(address, page, chosen, set) {
    Object.assign(this, { address, page, chosen, set, running: null, earlier: [] });
    page.signal.addEventListener("abort", () => this.stop());
  }

  stop() {
    this.running?.abort();
    this.running = null;
    this.set({ isRunning: false, left: [] });
  }

  begin(changed) {
    this.stop();
    this.running = new AbortController();
    this.set({ isRunning: true, said: "Reading…", error: null, ...changed });
    return this.running.signal;
  }

  // Begins anew, or goes on at a place of an earlier answer.
  async search(place = {}, earlier = []) {
    const signal = this.begin({});
    try {
      const found = await ask(`${this.address}/records?${query({ ...this.chosen(), ...place })}`, signal);
      this.earlier = earlier;
      this.place = place;
      const isForward = this.chosen().offset !== "" || this.chosen().timestamp !== "" || place.starts !== undefined;
      this.set({ records: isForward ? found.records : found.records.toReversed(), missing: found.missing, isForward, found, said: summaryOf(found), isLive: false });
    } catch (error) {
      if (signal.aborted) return; // by another search, or by the button, which says so
      this.set({ records: [], found: null, said: "", error });
    }
    if (this.running?.signal === signal) this.set({ isRunning: false });
  }

  // The next older records: without a beginning those before the shown ones, with one those that were shown before.
  older() {
    const { isForward, found } = this.set({});
    if (isForward) this.back();
    else this.search({ ends: placeOf(found.partitions, (one) => one.older ?? one.start) }, [...this.earlier, this.place]);
  }

  newer() {
    const { isForward, found } = this.set({});
    if (isForward) this.search({ starts: placeOf(found.partitions, (one) => one.next) }, [...this.earlier, this.place]);
    else this.back();
  }

  back() {
    this.search(this.earlier.at(-1) ?? {}, this.earlier.slice(0, -1));
  }

  async live() {
    const signal = this.begin({ records: [], found: null, isForward: false, isLive: true });
    let count = 0;
    const missing = [];
    const show = {
      begun: () => this.set({ said: "Waiting for new records…" }),
      records: ({ records: found }) => {
        count += found.length;
        const kept = [...found.toReversed(), ...this.set({}).records].slice(0, MOST_SHOWN);
        this.set({ records: kept, said: `${counted(count, "record")} so far${count > kept.length ? `; the last ${kept.length} are shown` : ""}` });
      },
      missing: ({ missing: more }) => { missing.push(...more); this.set({ missing: [...missing] }); },
      failed: ({ error }) => { throw new Error(error); },
      end: () => { throw new Error("The live view has ended; start it again."); },
    };
    try {
      for await (const { name, data } of events(`${this.address}/live?${query(this.chosen())}`, signal)) show[name](data);
      throw new Error("The live view was interrupted; start it again.");
    } catch (error) {
      if (signal.aborted) return; // by a search, another view, or the button, which says so
      this.stop();
      this.set({ said: "", error });
    }
  }

  cancel() {
    this.stop();
    this.set({ said: "Cancelled." });
  }

  save(format) {
    const away = document.createElement("a");
    Object.assign(away, { href: `${addressOf(this.address)}/export?${query(this.chosen())}&format=${format}`, download: "" });
    away.click();
  }
}

const placeOf = (partitions, offsetOf) => partitions.map((one) => `${one.partition}:${offsetOf(one)}`).join(",");

function summaryOf(found) {
  const [first] = found.partitions;
  const ranges = found.partitions.length === 1 ? `offsets ${first.start} to ${first.end}; ` : `${counted(found.partitions.length, "partition")}; `;
  const reason = found.stopped_by === null || found.stopped_by === "limit" ? "" : `; the search ended at its limit of ${found.stopped_by}`;
  return `${ranges}${grouped(found.records.length)} of ${grouped(found.scanned.records)} records read are shown${reason}`;
}

function Records({ page, name, partition }) {
  const form = useRef(null);
  const state = useRef({ records: [], missing: [], left: [], said: "", error: null, found: null, isRunning: false, isForward: false, isLive: false });
  const [, redraw] = useReducer((turn) => turn + 1, 0);
  const reader = useRef(null);
  useEffect(() => {
    const chosen = () => Object.fromEntries([...new FormData(form.current)].map(([id, value]) => [id, TIMES.includes(id) ? milliseconds(value) : value.trim()]));
    const set = (changed) => {
      const isChange = Object.keys(changed).length > 0;
      if (isChange) Object.assign(state.current, changed);
      if (isChange && !page.signal.aborted) redraw();
      return state.current;
    };
    const own = reader.current = new Reader(`topics/${path(name)}`, page, chosen, set);
    own.search();
    const onkeydown = (event) => { if (event.key === "Escape" && state.current.isRunning && !document.querySelector("dialog[open]")) own.cancel(); };
    addEventListener("keydown", onkeydown, { signal: page.signal });
    return () => own.stop();
  }, [page]);
  const { records: shown, missing, said, error, isRunning, found, isLive } = state.current;
  const title = `Records of ${name}${partition === undefined ? "" : `-${partition}`}`;
  return html`
    ${trail(link("Topics", "topics"), link(name, "topics", name))}
    ${heading(title, actions(action("Produce a record", () => produce(page, name))))}
    <${Search} form=${form} reader=${reader} partition=${partition} isRunning=${isRunning} />
    <div class="state"><p class="note" aria-live="polite">${said}</p><${Turns} reader=${reader} state=${state.current} /></div>
    <div aria-live="polite">${error === null ? null : failed(error)}${omitted(missing)}</div>
    <div class="records" style=${{ "--where": `${Math.max(4, ...shown.map((one) => `${one.partition}:${one.offset}`.length))}ch` }}>
      ${shown.length ? shown.map((record) => html`<${Line} key=${`${record.partition}:${record.offset}`} record=${record} name=${name} />`)
        : found && !isRunning ? empty("No records here.", "Records are listed newest first. Older ones may be before these offsets, or a filter leaves them out.") : isLive && !error ? empty("Nothing new yet.", "Records are shown here as they are written.") : null}
    </div>
    ${shown.length > 20 ? html`<div class="state"><span></span><${Turns} reader=${reader} state=${state.current} /></div>` : null}`;
}

// Older and newer records, where there may be some.
function Turns({ reader, state }) {
  const { found, isForward, isRunning, isLive } = state;
  if (!found || isLive) return null;
  const hasEarlier = reader.current.earlier.length > 0;
  const hasOlder = isForward ? hasEarlier : found.partitions.some((one) => one.older !== null && one.older !== undefined);
  const hasNewer = isForward ? found.partitions.some((one) => one.next < one.end) : hasEarlier;
  return html`<div class="turns">
    <button type="button" class="secondary" disabled=${!hasNewer || isRunning} onclick=${() => reader.current.newer()}>Newer</button>
    <button type="button" class="secondary" disabled=${!hasOlder || isRunning} onclick=${() => reader.current.older()}>Older</button>
  </div>`;
}

function Search({ form, reader, partition, isRunning }) {
  const field = (id, label, attributes) => html`<label>${label}<input id=${id} name=${id} spellcheck=${false} autocomplete="off" ...${attributes} /></label>`;
  const choice = (id, label, options) => html`<label>${label}<select id=${id} name=${id}>${options.map((option) => html`<option value=${option}>${option.replace("read_", "")}</option>`)}</select></label>`;
  const submit = (event) => { event.preventDefault(); reader.current.search(); };
  return html`<form ref=${form} class="search" onsubmit=${submit}>
    <div class="fields">
      ${field("contains", "Text in key or value")}
      ${field("partition", "Partitions (all)", { defaultValue: partition ?? "" })}${field("offset", "From offset", { inputmode: "numeric" })}
      ${field("timestamp", "From time, UTC or ms", { placeholder: "2026-01-31T12:00" })}
    </div>
    <details><summary>More filters and forms</summary><div class="fields">
      ${field("before", "Until time, UTC or ms")}${field("limit", "Records (50)", { inputmode: "numeric" })}
      ${field("key", "Key is")}${field("header", "Header name=value")}${field("path", "JSON path a.b[0]")}${field("equals", "has the value")}
      ${choice("key_form", "Keys as", FORMS)}${choice("value_form", "Values as", FORMS)}${choice("isolation", "Isolation", ["read_uncommitted", "read_committed"])}
    </div></details>
    <div class="actions">
      <button>Search</button><button type="button" class="secondary" onclick=${() => reader.current.live()}>Live</button>
      ${["json", "csv"].map((format) => html`<button type="button" class="secondary" onclick=${() => reader.current.save(format)}>Export as ${format.toUpperCase()}</button>`)}
      <button type="button" class="secondary" hidden=${!isRunning} onclick=${() => reader.current.cancel()}>Cancel (Esc)</button>
    </div>
  </form>`;
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
  if (!missing.length) return null;
  const more = missing.length > MOST_NAMED ? ` and ${missing.length - MOST_NAMED} more` : "";
  const names = missing.slice(0, MOST_NAMED).map((one) => one.partition).join(", ");
  return failed(new Error(`Not shown: the records of partition ${names}${more}. ${missing[0].error}`));
}

const preview = (data) => (data.form === "null" ? html`<i>null</i>` : visible(data.text.slice(0, PREVIEW_CHARACTERS)) + (data.text.length > PREVIEW_CHARACTERS ? "…" : ""));

function Line({ record, name }) {
  const [isOpen, toggle] = useReducer((_, event) => event.currentTarget.open, false);
  return html`<details class="record" ontoggle=${toggle}>
    <summary>
      <span class="when">${time(record.timestamp)}</span><span class="where">${record.partition}<span class="faint">:</span>${record.offset}</span>
      <span class="key"><bdi>${preview(record.key)}</bdi></span><span class="preview"><bdi>${preview(record.value)}</bdi></span>
    </summary>
    ${isOpen ? html`<${Opened} record=${record} name=${name} />` : null}
  </details>`;
}

function Opened({ record, name }) {
  const unseen = record.header_count - record.headers.length;
  const whole = (part) => `${addressOf(`topics/${path(name)}/whole`)}?${query({ partition: record.partition, offset: record.offset, part })}`;
  return html`<div class="opened">
    <p class="note">partition ${record.partition}, offset ${record.offset}, ${time(record.timestamp)}</p>
    <${Bytes} title="key" data=${record.key} address=${whole("key")} /><${Bytes} title="value" data=${record.value} address=${whole("value")} />
    ${record.headers.length ? html`<h2>headers</h2><dl class="headers">${record.headers.map((header) => html`<div><dt>${visible(header.name)}</dt><dd><bdi>${header.form === "null" ? html`<i>null</i>` : visible(header.text)}</bdi></dd></div>`)}</dl>` : null}
    ${unseen > 0 ? html`<p class="note">${unseen} more headers are in the export.</p>` : null}
  </div>`;
}

function Bytes({ title, data, address }) {
  if (data.form === "null") return html`<h2>${title}</h2><p><i>null</i></p>`;
  return html`<h2>${title} ${badge(data.form)} <small>${size(data.bytes)}${data.error ? `, ${visible(data.error)}` : ""}</small> <a href=${address} download>Download</a></h2>
    ${data.is_cut ?? data.bytes > SHOWN_BYTES ? html`<p class="note">The first ${size(SHOWN_BYTES)} are shown; the download has all.</p>` : null}
    <pre dir="auto" tabindex="0">${visible(data.form === "hex" ? data.text : indented(data.text))}</pre>`;
}
