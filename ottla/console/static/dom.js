// Makes elements, tables and dialogs. All texts of a cluster are set as text, never as markup.

import { session } from "./api.js";

const ROW = 30;

export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : visible(child))));
  return made;
}

const numbered = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

// Control characters and marks that change the direction of text are shown by their numbers.
export function visible(value) {
  return String(value).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, numbered);
}

export function link(text, ...parts) {
  return element("a", { href: `#/${parts.map(encodeURIComponent).join("/")}` }, text);
}

// A table that draws the rows in view only: ten thousand cost no more than forty. Arrow keys choose a row, and the tab key reaches the links
// and buttons of that row alone, so a long table is not a long way. A row that is drawn stays the same element, also while it has the focus.
// `refresh` draws the cells of late columns again, whose values come after the rows.
export function table(label, columns, rows) {
  const head = element("div", { class: "row head", role: "row" });
  const space = element("div", { class: "space", role: "rowgroup" });
  const box = element("div", {
    class: "rows", role: "table", tabindex: "0", "aria-label": label, "aria-description": "Arrow keys choose a row.", "aria-rowcount": rows.length + 1,
  }, head, space);
  const cell = (column, content, role) => element("div", { class: column.kind, role }, content);
  const drawn = new Map();
  let shown = rows;
  let current = 0;
  let sorted = null;
  head.append(...columns.map((column) => {
    if (!column.value) return cell(column, column.name, "columnheader");
    const sort = () => {
      column.sign = -(column.sign ?? -1);
      sorted = column;
      show(shown);
    };
    return cell(column, element("a", { href: "", role: "button", onclick: (event) => { event.preventDefault(); sort(); } }, column.name), "columnheader");
  }));
  const filled = (column, at) => cell(column, (column.show ?? column.value)(shown[at]) ?? "–", "cell");
  function ordered(kept) {
    if (sorted === null) return kept;
    const { sign, value } = sorted;
    return [...kept].sort((a, b) => {
      const [x, y] = [value(a) ?? "", value(b) ?? ""]; // what is unknown is less than everything
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
  }
  function made(at) {
    const row = element("div", { class: "row", role: "row", "aria-rowindex": at + 2 });
    row.style.top = `${at * ROW}px`;
    row.append(...columns.map((column) => filled(column, at)));
    mark(row, at === current);
    return row;
  }
  function mark(row, isCurrent) {
    row?.classList.toggle("current", isCurrent);
    for (const control of row?.querySelectorAll("a, button") ?? []) control.tabIndex = isCurrent ? 0 : -1;
  }
  function choose(at) {
    mark(drawn.get(current), false);
    current = at;
    mark(drawn.get(current), true);
  }
  function place(at) {
    if (at >= shown.length || drawn.has(at)) return;
    const row = made(at);
    const [next] = [...drawn.keys()].filter((each) => each > at).sort((a, b) => a - b);
    space.insertBefore(row, drawn.get(next) ?? null);
    drawn.set(at, row);
  }
  function draw() {
    space.style.height = `${shown.length * ROW}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
    const last = Math.min(shown.length, first + Math.ceil((box.clientHeight || 800) / ROW) + 20);
    for (const [at, row] of drawn) {
      if ((at >= first && at < last) || at === current) continue;
      row.remove();
      drawn.delete(at);
    }
    place(current); // wherever it is: the tab key goes there
    for (let at = first; at < last; at += 1) place(at);
  }
  function go(to) {
    choose(Math.max(0, Math.min(shown.length - 1, to)));
    const top = current * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + 2 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * ROW - box.clientHeight;
    draw();
  }
  box.addEventListener("keydown", (event) => {
    if (event.target !== box) return;
    const page = Math.max(1, Math.floor(box.clientHeight / ROW) - 2);
    const to = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + page, PageUp: current - page, Home: 0, End: shown.length - 1 }[event.key];
    if (to !== undefined && shown.length) { go(to); event.preventDefault(); }
    if (event.key === "Enter") space.querySelector(".current a, .current button")?.click();
  });
  space.addEventListener("focusin", (event) => {
    const found = [...drawn].find(([, row]) => row.contains(event.target));
    if (found) choose(found[0]);
  });
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  function show(kept) {
    shown = ordered(kept);
    box.setAttribute("aria-rowcount", shown.length + 1);
    current = 0;
    drawn.clear();
    space.replaceChildren();
    box.scrollTop = 0;
    draw();
  }
  function refresh() {
    if (sorted?.isLate) {
      const hadFocus = space.contains(document.activeElement);
      show(shown);
      if (hadFocus) box.focus();
      return;
    }
    for (const [at, row] of drawn) columns.forEach((column, place) => { if (column.isLate) row.children[place].replaceWith(filled(column, at)); });
  }
  requestAnimationFrame(draw);
  draw();
  return { box, show, refresh };
}

export function filtered(...wanted) {
  return filteredTable(...wanted).parts;
}

// The parts of a table with a filter, and its `refresh`.
export function filteredTable(label, columns, rows, textOf) {
  const { box, show, refresh } = table(label, columns, rows);
  const count = element("span", { class: "note", "aria-live": "polite" }, `${rows.length}`);
  const field = element("input", {
    type: "search", class: "filter", spellcheck: "false", oninput: () => {
      const wanted = field.value.toLowerCase();
      const kept = rows.filter((row) => textOf(row).toLowerCase().includes(wanted));
      count.textContent = `${kept.length} of ${rows.length}`;
      show(kept);
    },
  });
  const form = element("form", { onsubmit: (event) => event.preventDefault() }, element("label", null, "Filter by name (press /)", field), count);
  return { parts: [form, box], refresh };
}

export const number = (name, value, show) => ({ name, value, show, kind: "number" });
export const text = (name, value, show) => ({ name, value, show });
export const wide = (name, value, show) => ({ name, value, show, kind: "wide" });
export const late = (column) => ({ ...column, isLate: true });
// A value that comes after its row: undefined until then, and null if nobody told it.
export const arrived = (value, show) => (value === undefined ? "…" : value === null ? "unknown" : show(value));
export const fault = (count) => (count ? element("span", { class: "bad" }, count) : 0);
export const heading = (title) => element("h1", null, title);
export const note = (content) => element("p", { class: "note" }, content);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes) {
  if (bytes === null || bytes === undefined) return null;
  let [amount, unit] = [bytes, 0];
  for (; amount >= 1024 && unit < UNITS.length - 1; unit += 1) amount /= 1024;
  return `${unit && amount < 100 ? amount.toFixed(1) : Math.round(amount)} ${UNITS[unit]}`;
}

export function time(timestamp) {
  const shown = new Date(timestamp);
  return Number.isNaN(shown.getTime()) ? timestamp : shown.toISOString();
}

// Buttons for changes; none in a console that is read-only.
export function actions(...buttons) {
  if (session.read_only) return null;
  return element("div", { class: "actions" }, ...buttons.filter((button) => button !== null));
}

export function action(label, onclick, isDanger) {
  return session.read_only ? null : element("button", { type: "button", class: isDanger ? "danger" : undefined, onclick }, label);
}

export function failed(error) {
  return element("p", { class: "bad", role: "alert" }, error.message);
}

// The parts of an answer that are missing, if it names any.
export function missing(lines = []) {
  return lines.map((line) => failed(new Error(`Not examined: ${line}`)));
}

// A dialog with fields `{name, label, kind, value, options, optional}`. `carryOut` gets their values, and its error is shown in the dialog.
// With `confirm` the name has to be typed first, as it is shown.
export function dialog(title, fields, carryOut, { button = "Save", confirm, explanation } = {}) {
  const inputs = new Map();
  const problem = element("div");
  const send = element("button", { type: "submit", class: confirm === undefined ? undefined : "danger" }, button);
  const rows = fields.map((field) => {
    const input = inputOf(field);
    inputs.set(field, input);
    return element("label", { class: field.kind === "checkbox" ? "beside" : undefined }, field.label, input);
  });
  if (confirm !== undefined) {
    send.disabled = true;
    const wanted = visible(confirm).replace(/[\t\n]/g, numbered); // a field of one line takes neither
    const typed = element("input", { class: "confirm", autocomplete: "off", spellcheck: "false", oninput: () => { send.disabled = typed.value !== wanted; } });
    rows.push(element("label", null, element("span", null, "Type ", element("b", null, wanted), " to confirm"), typed));
  }
  const box = element("dialog", {
    "aria-label": title, onclose: () => {
      box.remove();
      if (document.activeElement === document.body) document.getElementById("main").focus(); // what had the focus before is gone
    },
  });
  const form = element("form", {
    class: "column", onsubmit: async (event) => {
      event.preventDefault();
      if (send.disabled) return;
      send.disabled = true;
      try {
        await carryOut(Object.fromEntries([...inputs].map(([field, input]) => [field.name, valueOf(field, input)])));
        box.close();
      } catch (error) {
        problem.replaceChildren(failed(error));
        send.disabled = false;
      }
    },
  }, element("h2", null, title), session.cluster === null ? null : note(`Cluster ${session.cluster}`), explanation ? note(explanation) : null, ...rows, problem,
  element("div", { class: "actions" }, send, element("button", { type: "button", onclick: () => box.close() }, "Cancel")));
  box.append(form);
  document.body.append(box);
  box.showModal();
  return box;
}

function inputOf(field) {
  if (field.kind === "select") return element("select", null, ...field.options.map((option) => element("option", { value: option, selected: option === field.value }, option)));
  if (field.kind === "lines") return element("textarea", { rows: 6, spellcheck: "false", value: field.value ?? "" });
  if (field.kind === "checkbox") return element("input", { type: "checkbox", checked: field.value === true });
  const kind = field.kind === "password" ? "password" : "text";
  const made = element("input", { type: kind, autocomplete: kind === "password" ? "new-password" : "off", spellcheck: "false", required: !field.optional, value: field.value ?? "" });
  if (field.kind === "number") made.setAttribute("inputmode", "numeric");
  return made;
}

function valueOf(field, input) {
  if (field.kind === "checkbox") return input.checked;
  if (field.kind !== "number" && field.kind !== "amount") return input.value;
  const typed = input.value.trim();
  if (typed === "" && field.optional) return null;
  const found = Number(typed);
  const isUsable = typed !== "" && (field.kind === "amount" ? Number.isFinite(found) : Number.isSafeInteger(found));
  if (!isUsable) throw new Error(`${field.label}: ${typed} is not a number`);
  return found;
}

// `a=b` lines as pairs of a name and a value, in their order; a name may be repeated.
export function pairs(lines) {
  return lines.split("\n").filter((each) => each.trim() !== "").map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`${line} is not name=value`);
    return [line.slice(0, at).trim(), line.slice(at + 1)];
  });
}

// The same as an object, which has each name once.
export function byName(lines) {
  const found = pairs(lines);
  const names = new Set();
  for (const [name] of found) {
    if (names.has(name)) throw new Error(`${name} is given twice`);
    names.add(name);
  }
  return Object.fromEntries(found);
}
