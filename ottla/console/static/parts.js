// Makes the small parts that all pages share: links, badges, notes, numbers with units. All texts of a cluster are set as text, never as
// markup.

import { h, htm, useEffect, useState } from "./vendor/libraries.js";
import { ask, session } from "./api.js";

export const html = htm.bind(h);

const numbered = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

// Control characters and marks that change the direction of text are shown by their numbers.
export function visible(value) {
  return String(value).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, numbered);
}

// The same in one line: a name, and what a field of a form takes.
export const visibleInOneLine = (value) => visible(value).replace(/[\t\n]/g, numbered);

// What a cell or a heading shows: text is made visible, elements stay, and nothing is a dash.
export function shown(content) {
  if (content === null || content === undefined || content === "") return html`<span class="faint">–</span>`;
  return typeof content === "string" || typeof content === "number" ? visible(content) : content;
}

export const addressOfPage = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
export const link = (text, ...parts) => html`<a href=${addressOfPage(...parts)}>${visibleInOneLine(text)}</a>`;

export function Icon({ of, label }) {
  const named = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return html`<svg class="icon" viewBox="0 0 24 24" ...${named}>${of.map(([tag, attributes]) => h(tag, attributes))}</svg>`;
}

// A word with a colour: `good`, `warn`, `bad` or none.
export const badge = (text, kind = "") => html`<span class=${`badge ${kind}`}>${visible(text)}</span>`;
export const fault = (count) => (count ? badge(count, "bad") : 0);

const STATES = {
  Stable: "good", Assigning: "warn", Reconciling: "warn", PreparingRebalance: "warn", CompletingRebalance: "warn", Dead: "bad",
  Ongoing: "warn", CompleteCommit: "good", CompleteAbort: "good",
};
export const stateBadge = (state) => (state ? badge(state, STATES[state] ?? "") : null);

export const heading = (title, ...beside) => html`<header class="title"><h1>${visibleInOneLine(title)}</h1>${beside}</header>`;
export const note = (content) => html`<p class="note">${typeof content === "string" ? visible(content) : content}</p>`;
export const warned = (text) => html`<p class="warn">${visible(text)}</p>`;
export const failed = (error) => html`<p class="bad" role="alert">${visible(error.message)}</p>`;

// The parts of an answer that are missing, if it names any.
export const missing = (lines = []) => lines.map((line) => failed(new Error(`Not examined: ${line}`)));

// In place of an empty list: the things that it would show, and the way to get there.
export const empty = (what, how) => html`<div class="empty"><p>${what}</p>${how ? html`<p class="note">${how}</p>` : null}</div>`;

// The way to the page from the pages above it.
export const trail = (...links) => html`<nav class="trail" aria-label="Where this page is">${links.map((one, at) => [at ? html`<span aria-hidden="true">/</span>` : null, one])}</nav>`;

// Facts about one thing, each with its name.
export const facts = (...pairs) => html`<dl class="facts">${pairs.filter((pair) => pair !== null).map(([name, value]) => html`<div><dt>${name}</dt><dd>${shown(value)}</dd></div>`)}</dl>`;

// Buttons for changes; none in a console that is read-only.
export function actions(...buttons) {
  const kept = buttons.filter((button) => button !== null);
  return session.read_only || !kept.length ? null : html`<div class="actions">${kept}</div>`;
}

export function action(label, onclick, isDanger = false, isDisabled = false) {
  return session.read_only ? null : html`<button type="button" class=${isDanger ? "danger" : "secondary"} onclick=${onclick} disabled=${isDisabled}>${label}</button>`;
}

// A part of the answer that comes after the page: `{found, error}`, both undefined until then, and without a path. Each `turn` asks again.
export function useAnswer(path, page, turn = 0) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    let isOver = false;
    if (path === null) return undefined;
    ask(path, page.signal).then((found) => { if (!isOver) setAnswer({ found }); }).catch((error) => { if (!isOver && error.name !== "AbortError") setAnswer({ error }); });
    return () => { isOver = true; };
  }, [path, page, turn]);
  return answer;
}

// A value that comes after its row: undefined until then, and null if nobody told it.
export const arrived = (value, show) => (value === undefined ? "…" : value === null ? "unknown" : show(value));

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes) {
  if (bytes === null || bytes === undefined) return null;
  let [amount, unit] = [bytes, 0];
  for (; amount >= 1024 && unit < UNITS.length - 1; unit += 1) amount /= 1024;
  return `${unit && amount < 100 ? amount.toFixed(1) : Math.round(amount)} ${UNITS[unit]}`;
}

export const grouped = (amount) => (amount === null || amount === undefined ? null : amount.toLocaleString("en"));
export const counted = (count, one, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;

export function time(timestamp) {
  const found = new Date(timestamp);
  return Number.isNaN(found.getTime()) ? String(timestamp) : found.toISOString();
}

export const list = (ids) => ids.join(", ");
export const split = (typed) => typed.split(",").map((each) => each.trim()).filter((each) => each !== "");
