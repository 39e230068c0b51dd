// Opens dialogs with fields, whose error stays in the dialog.

import { render, useLayoutEffect, useRef, useState } from "./vendor/libraries.js";
import { session } from "./api.js";
import { failed, html, note, visible, visibleInOneLine } from "./parts.js";

// The fields are `{name, label, kind, value, options, optional}`. `carryOut` gets their values. With `confirm` the name has to be typed
// first, as it is shown.
export function dialog(title, fields, carryOut, options = {}) {
  const place = document.createElement("div");
  document.body.append(place);
  const end = () => {
    render(null, place);
    place.remove();
    if (document.activeElement === document.body) document.getElementById("main").focus(); // what had the focus before is gone
  };
  render(html`<${Dialog} title=${title} fields=${fields} carryOut=${carryOut} end=${end} ...${options} />`, place);
}

function Dialog({ title, fields, carryOut, end, button = "Save", confirm, explanation, content }) {
  const box = useRef(null);
  const [problem, setProblem] = useState(null);
  const [isSending, setSending] = useState(false);
  const [typed, setTyped] = useState("");
  useLayoutEffect(() => box.current.showModal(), []); // at once: a page that is left closes its dialogs
  const wanted = confirm === undefined ? "" : visibleInOneLine(confirm);
  const isOpen = confirm === undefined || typed === wanted;
  const submit = async (event) => {
    event.preventDefault();
    if (isSending || !isOpen) return;
    setSending(true);
    try {
      const inputs = event.target.elements;
      await carryOut(Object.fromEntries(fields.map((field) => [field.name, valueOf(field, inputs.namedItem(`field-${field.name}`))])));
      box.current?.close();
    } catch (error) {
      setProblem(error);
      setSending(false);
    }
  };
  const cluster = session.cluster === null ? null : note(`Cluster ${session.cluster}`);
  return html`<dialog ref=${box} aria-label=${visible(title)} onclose=${end}><article><form onsubmit=${submit}>
    <h2>${visible(title)}</h2>${cluster}${explanation ? note(explanation) : null}${content}
    ${fields.map((field) => html`<label class=${field.kind === "checkbox" ? "beside" : undefined}>${visible(field.label)}<${Input} field=${field} /></label>`)}
    ${confirm === undefined ? null : html`<label><span>Type <b>${wanted}</b> to confirm</span>
      <input class="confirm" autocomplete="off" spellcheck=${false} oninput=${(event) => setTyped(event.target.value)} /></label>`}
    ${problem === null ? null : failed(problem)}
    <div class="actions">
      <button type="submit" class=${confirm === undefined ? undefined : "danger"} disabled=${isSending || !isOpen}>${button}</button>
      <button type="button" class="secondary" onclick=${() => box.current.close()}>Cancel</button>
    </div>
  </form></article></dialog>`;
}

function Input({ field }) {
  const named = { name: `field-${field.name}` };
  if (field.kind === "select") return html`<select ...${named}>${field.options.map((option) => html`<option value=${option} selected=${option === field.value}>${visible(option)}</option>`)}</select>`;
  if (field.kind === "lines") return html`<textarea ...${named} rows="5" spellcheck=${false} defaultValue=${field.value ?? ""}></textarea>`;
  if (field.kind === "checkbox") return html`<input ...${named} type="checkbox" defaultChecked=${field.value === true} />`;
  const kind = field.kind === "password" ? { type: "password", autocomplete: "new-password" } : { type: "text", autocomplete: "off" };
  return html`<input ...${named} ...${kind} spellcheck=${false} required=${!field.optional} defaultValue=${field.value ?? ""} inputmode=${field.kind === "number" ? "numeric" : undefined} />`;
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
