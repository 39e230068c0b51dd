// Draws the console from the API at /api/v1. All texts of a cluster are set as text, never as markup.

const ROW = 30;
const main = document.getElementById("main");

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : visible(child))));
  return made;
}

// Control characters and marks that change the direction of text are shown by their numbers.
function visible(value) {
  return String(value).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (found) => {
    return `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

function link(text, ...parts) {
  return element("a", { href: `#/${parts.map(encodeURIComponent).join("/")}` }, text);
}

async function ask(path, signal) {
  const answer = await fetch(`/api/v1/${path}`, { signal });
  const found = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw new Error(found.error ?? `status ${answer.status}`);
  return found;
}

// A table that draws the rows in view only: ten thousand cost no more than forty.
function table(label, columns, rows) {
  const head = element("div", { class: "row head", role: "row" });
  const space = element("div", { class: "space" });
  const box = element("div", { class: "rows", role: "table", tabindex: "0", "aria-label": label, "aria-rowcount": rows.length + 1 }, head, space);
  const cell = (column, content, role) => element("div", { class: column.kind, role }, content);
  let shown = rows;
  head.append(...columns.map((column) => {
    const sort = () => {
      const sign = column.sign = -(column.sign ?? -1);
      shown = [...shown].sort((a, b) => {
        const [x, y] = [column.value(a) ?? "", column.value(b) ?? ""];
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
      draw();
    };
    return cell(column, element("a", { href: "", role: "button", onclick: (event) => { event.preventDefault(); sort(); } }, column.name), "columnheader");
  }));
  function draw() {
    space.style.height = `${shown.length * ROW}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
    const last = Math.min(shown.length, first + Math.ceil((box.clientHeight || 800) / ROW) + 20);
    space.replaceChildren(...shown.slice(first, last).map((row, at) => {
      const drawn = element("div", { class: "row", role: "row", "aria-rowindex": first + at + 2 });
      drawn.style.top = `${(first + at) * ROW}px`;
      drawn.append(...columns.map((column) => cell(column, (column.show ?? column.value)(row) ?? "–", "cell")));
      return drawn;
    }));
  }
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  const show = (kept) => { shown = kept; box.scrollTop = 0; draw(); };
  requestAnimationFrame(draw);
  draw();
  return { box, show };
}

function filtered(label, columns, rows, textOf) {
  const { box, show } = table(label, columns, rows);
  const count = element("span", { class: "note" }, `${rows.length}`);
  const field = element("input", {
    type: "search", id: "filter", spellcheck: "false", oninput: () => {
      const wanted = field.value.toLowerCase();
      const kept = rows.filter((row) => textOf(row).toLowerCase().includes(wanted));
      count.textContent = `${kept.length} of ${rows.length}`;
      show(kept);
    },
  });
  const form = element("form", { onsubmit: (event) => event.preventDefault() }, element("label", null, "Filter by name (press /)", field), count);
  return [form, box];
}

const number = (name, value, show) => ({ name, value, show, kind: "number" });
const text = (name, value, show) => ({ name, value, show });
const wide = (name, value, show) => ({ name, value, show, kind: "wide" });
const fault = (count) => (count ? element("span", { class: "bad" }, count) : 0);
const heading = (title) => element("h1", null, title);

const pages = {
  async ""(signal) {
    const found = await ask("overview", signal);
    const tile = (name, value, bad) => element("li", { class: bad && value ? "bad" : undefined }, element("b", null, value), name);
    const columns = [
      number("broker", (broker) => broker.id), wide("address", (broker) => broker.address), text("rack", (broker) => broker.rack),
      number("leads", (broker) => broker.leads), number("replicas", (broker) => broker.replicas),
      text("role", (broker) => (broker.id === found.controller ? "controller" : "")),
    ];
    return [
      heading(`Cluster ${found.cluster_id}`),
      element("ul", { class: "numbers" },
        tile("brokers", found.brokers.length), tile("topics", found.topics), tile("partitions", found.partitions),
        tile("without leader", found.offline, true), tile("not in sync", found.under_replicated, true)),
      element("h2", null, "Brokers"),
      table("Brokers", columns, found.brokers).box,
    ];
  },

  async topics(signal, name, section, partition) {
    if (section === "records") return records(signal, name, partition);
    if (name !== undefined) return topic(signal, name);
    const found = await ask("topics", signal);
    const columns = [
      wide("topic", (one) => one.name, (one) => link(one.name, "topics", one.name)), number("partitions", (one) => one.partitions),
      number("replicas", (one) => one.replicas), number("not in sync", (one) => one.under_replicated, (one) => fault(one.under_replicated)),
      number("no leader", (one) => one.offline, (one) => fault(one.offline)),
    ];
    return [heading("Topics"), ...filtered("Topics", columns, found.topics, (one) => one.name)];
  },

  async groups(signal, name) {
    if (name !== undefined) return group(signal, name);
    const found = await ask("groups", signal);
    const columns = [
      wide("group", (one) => one.group, (one) => link(one.group, "groups", one.group)), text("state", (one) => one.state),
      text("type", (one) => one.type), text("protocol", (one) => one.protocol_type), number("coordinator", (one) => one.coordinator),
    ];
    return [heading("Groups"), ...filtered("Groups", columns, found.groups, (one) => one.group)];
  },

  async findings(signal) {
    const found = await ask("findings", signal);
    return [
      heading("Findings"),
      found.findings.length ? null : element("p", null, "Nothing is wrong."),
      ...found.findings.map((one) => element("article", null,
        element("b", { class: one.severity === "problem" ? "bad" : "warn" }, `${one.severity} ${one.id}`),
        element("div", null, one.what), element("div", { class: "note" }, one.why), element("pre", null, one.command))),
      ...found.not_examined.map((one) => element("p", { class: "note" }, `Not examined: ${one}`)),
    ];
  },
};

async function topic(signal, name) {
  const found = await ask(`topics/${encodeURIComponent(name)}`, signal);
  const partitions = [
    number("partition", (one) => one.partition, (one) => link(one.partition, "topics", name, "records", one.partition)),
    number("leader", (one) => one.leader, (one) => one.leader ?? element("span", { class: "bad" }, "none")),
    text("replicas", (one) => one.replicas.join(", ")),
    text("in sync", (one) => one.isr.join(", "), (one) => element("span", { class: one.isr.length < one.replicas.length ? "bad" : undefined }, one.isr.join(", "))),
    number("start", (one) => one.start), number("end", (one) => one.end), number("records", (one) => (one.end === null ? null : one.end - one.start)),
  ];
  const configs = [wide("key", (one) => one.name), wide("value", (one) => one.value), wide("source", (one) => one.source)];
  return [
    heading(`Topic ${name}`), element("p", { class: "note" }, `id ${found.id}`),
    element("h2", null, "Partitions"), table("Partitions", partitions, found.partitions).box,
    element("h2", null, "Configuration"), ...filtered("Configuration", configs, found.configs, (one) => one.name),
  ];
}

async function records(signal, name, partition) {
  const list = element("div");
  const input = (id, label) => element("label", null, label, element("input", { id, inputmode: "numeric", size: 16 }));
  async function load(query) {
    const found = await ask(`topics/${encodeURIComponent(name)}/records?partition=${encodeURIComponent(partition)}&${query}`, signal);
    list.replaceChildren(
      element("p", { class: "note" }, `offsets ${found.start} to ${found.end}; ${found.records.length} records shown`),
      ...found.records.map((record) => element("article", null,
        element("div", { class: "note" }, `offset ${record.offset}   ${time(record.timestamp)}`),
        element("div", null, "key ", bytes(record.key)), element("div", null, "value ", bytes(record.value)),
        ...record.headers.map((header) => element("div", { class: "note" }, `${header.name} `, bytes(header))))));
  }
  const form = element("form", {
    onsubmit: (event) => {
      event.preventDefault();
      const chosen = new URLSearchParams();
      for (const field of form.querySelectorAll("input")) if (field.value) chosen.set(field.id, field.value.trim());
      load(chosen).catch((error) => { if (error.name !== "AbortError") list.replaceChildren(failed(error)); });
    },
  }, input("offset", "From offset"), input("timestamp", "From time, ms since 1970"), input("limit", "Records (50)"), element("button", null, "Show"));
  await load("");
  return [heading(`${name}-${partition}`), element("p", null, link("all partitions", "topics", name)), form, list];
}

function time(timestamp) {
  const shown = new Date(timestamp);
  return Number.isNaN(shown.getTime()) ? timestamp : shown.toISOString();
}

function bytes(data) {
  if (data.form === "null") return element("i", null, "null");
  let shown = data.text;
  try {
    const parsed = data.form === "text" && /^[[{]/.test(data.text) ? JSON.parse(data.text) : null;
    // Only where nothing is lost: large numbers and repeated keys do not survive parsing.
    if (parsed !== null && JSON.stringify(parsed) === data.text.trim()) shown = JSON.stringify(parsed, null, 2);
  } catch {
    shown = data.text;
  }
  return element("span", null, element("span", { class: "note" }, `(${data.form}, ${data.bytes} bytes)`), element("pre", { dir: "auto" }, shown));
}

async function group(signal, name) {
  const found = await ask(`groups/${encodeURIComponent(name)}`, signal);
  const partitions = [
    wide("topic", (one) => one.topic, (one) => link(one.topic, "topics", one.topic)), number("partition", (one) => one.partition),
    number("offset", (one) => one.offset), number("end", (one) => one.end), number("lag", (one) => one.lag), wide("member", (one) => one.member),
  ];
  const members = [wide("member", (one) => one.id), text("client", (one) => one.client), text("host", (one) => one.host), number("partitions", (one) => one.partitions)];
  return [
    heading(`Group ${name}`), element("p", null, `${found.state}, ${found.type}, coordinator ${found.coordinator} ${found.assignor}`),
    element("h2", null, "Offsets"), ...filtered("Offsets", partitions, found.partitions, (one) => one.topic),
    element("h2", null, "Members"), table("Members", members, found.members).box,
  ];
}

function failed(error) {
  return element("p", { class: "bad", role: "alert" }, error.message);
}

let leaving = new AbortController();

async function open() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [page = "", ...rest] = location.hash.replace(/^#\//, "").split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  for (const one of document.querySelectorAll("nav a")) {
    if (one.getAttribute("href") === `#/${page}`) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    const shown = await (Object.hasOwn(pages, page) ? pages[page](signal, ...rest) : Promise.reject(new Error(`There is no page ${page}.`)));
    if (!signal.aborted) main.replaceChildren(...shown.filter((part) => part !== null));
  } catch (error) {
    if (!signal.aborted) main.replaceChildren(failed(error));
  }
  if (!signal.aborted) main.removeAttribute("aria-busy");
}

addEventListener("hashchange", () => open().then(() => main.focus()));
document.getElementById("reload").addEventListener("click", open);
addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { document.getElementById("filter")?.focus(); event.preventDefault(); }
  if (event.key === "r") open();
});
open();
