// Draws tables of any length: the rows in view only, so that ten thousand cost no more than forty.
//
// Arrow keys choose a row, and the tab key reaches the links and buttons of that row alone, so a long table is not a long way. Where the
// columns do not fit side by side, each row becomes a card that names its values, so nothing is cut off.

import { Virtualizer, elementScroll, measureElement, observeElementOffset, observeElementRect, useLayoutEffect, useReducer, useRef, useState } from "./vendor/libraries.js";
import { grouped, html, shown } from "./parts.js";

const ROW_PIXELS = 37;
const CARD_PIXELS = 150;
const MEASURED_ROWS = 300;
const MOST_CHARACTERS = 60;
const LONG_CHARACTERS = 12;
const PADDING_PIXELS = 18;
const GAP_PIXELS = 15; // more, between a number and what follows it at its left edge
const BADGE_CHARACTERS = 3; // the room around the word
const WIDEST = { id: 20, number: 22, wide: 15, text: 26, buttons: 24 };

export const id = (name, value, show) => ({ name, value, show, kind: "id" });
export const number = (name, value, show) => ({ name, value, show, kind: "number" });
export const text = (name, value, show) => ({ name, value, show, kind: "text" });
export const wide = (name, value, show) => ({ name, value, show, kind: "wide" });
export const buttons = (show, characters = 14) => ({ name: "", show, kind: "buttons", characters });

const lengthOf = (content) => (typeof content === "string" || typeof content === "number" ? String(content).length : 0);

// The characters that the content of a column needs, judged by a sample of its rows.
function charactersOf(column, rows) {
  if (column.characters) return column.characters;
  let most = 4;
  const step = Math.max(1, Math.floor(rows.length / MEASURED_ROWS));
  for (let at = 0; at < rows.length; at += step) {
    const content = column.show?.(rows[at]);
    const isMarkup = typeof content === "object" && content !== null && column.kind !== "wide" && column.kind !== "id";
    most = Math.max(most, lengthOf(content) || lengthOf(column.value?.(rows[at])) + (isMarkup ? BADGE_CHARACTERS : 0));
  }
  return most;
}

// The characters that the heading of a column needs, with the arrow of a sorted one: in one line, or broken between its words.
function headingOf({ characters, name, value }, isRoomy) {
  if (characters) return 0;
  return (isRoomy ? name.length : Math.max(...name.split(" ").map((word) => word.length))) + (value ? 1 : 0);
}

// The width of a digit in the table's font, which is a little smaller than that of the page.
let measured = 0;
function characterPixels() {
  if (measured === 0) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = getComputedStyle(document.body).font;
    measured = pen.measureText("0").width * 0.9375 || 8;
  }
  return measured;
}

// `isRoomy` has every heading in one line, and gaps after numbers.
function layoutOf(columns, content, isRoomy) {
  const needed = columns.map((column, at) => Math.max(content[at], headingOf(column, isRoomy)));
  const characters = columns.map((column, at) => Math.min(needed[at], WIDEST[column.kind]));
  const padding = columns.map((column, at) => PADDING_PIXELS + (isRoomy && column.kind !== "number" && columns[at - 1]?.kind === "number" ? GAP_PIXELS : 0));
  const least = (at) => `calc(${characters[at]}ch + ${padding[at]}px)`;
  const tracks = columns.map((column, at) => `minmax(${least(at)}, ${column.kind === "wide" ? Math.min(Math.max(needed[at], 12), MOST_CHARACTERS) : Math.max(2, Math.round(characters[at] / 4))}fr)`);
  const pixels = characters.reduce((sum, each, at) => sum + each * characterPixels() + padding[at], 0);
  return { template: tracks.join(" "), pixels };
}

function compared(value, sign) {
  return (a, b) => {
    const [x, y] = [value(a) ?? "", value(b) ?? ""]; // what is unknown is less than everything
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  };
}

// `label` is the name of the table for screen readers; `kept` is what chose the rows, and a change of it begins at the top.
export function Table({ label, columns, rows, kept = "" }) {
  const box = useRef(null);
  const [sorted, setSorted] = useState({ name: null, sign: 1 });
  const [chosen, setChosen] = useState(0);
  const [width, setWidth] = useState(0);
  const [, redraw] = useReducer((turn) => turn + 1, 0);
  const by = columns.find((column) => column.name === sorted.name && column.value);
  const ordered = by ? [...rows].sort(compared(by.value, sorted.sign)) : rows;
  const current = Math.min(chosen, Math.max(rows.length - 1, 0));
  const content = columns.map((column) => charactersOf(column, rows));
  const roomy = layoutOf(columns, content, true);
  const isRoomy = width >= roomy.pixels;
  const { template, pixels } = isRoomy ? roomy : layoutOf(columns, content, false);
  const isNarrow = width > 0 && width < pixels;
  const virtual = useVirtualRows(box, rows.length, current, isNarrow, redraw);

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    observer.observe(box.current);
    setWidth(box.current.clientWidth);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => { virtual.measure(); }, [isNarrow]);
  useLayoutEffect(() => {
    setChosen(0);
    box.current.scrollTop = 0;
  }, [kept]);

  const sort = (name, sign) => {
    setSorted({ name, sign });
    setChosen(0);
    box.current.scrollTop = 0;
  };
  const onkeydown = (event) => {
    if (event.target !== box.current) return;
    const page = Math.max(1, Math.floor(box.current.clientHeight / ROW_PIXELS) - 2);
    const to = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + page, PageUp: current - page, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined && rows.length) {
      const next = Math.max(0, Math.min(rows.length - 1, to));
      setChosen(next);
      virtual.scrollToIndex(next);
      event.preventDefault();
    }
    if (event.key === "Enter") box.current.querySelector(".current a, .current button")?.click();
  };
  const described = { "aria-label": label, "aria-description": "Arrow keys choose a row.", "aria-rowcount": rows.length + 1 };
  return html`
    ${isNarrow && rows.length > 1 ? html`<${SortChoice} columns=${columns} sorted=${sorted} sort=${sort} />` : null}
    <div class=${isNarrow ? "rows cards" : isRoomy ? "rows roomy" : "rows"} role="table" tabindex="0" ref=${box} onkeydown=${onkeydown} ...${described}>
      <${Head} columns=${columns} template=${template} sorted=${sorted} sort=${sort} />
      <div class="space" role="rowgroup" style=${{ height: `${virtual.getTotalSize()}px` }}>
        ${virtual.getVirtualItems().map((item) => html`<${Row} key=${item.index} at=${item.index} start=${item.start} one=${ordered[item.index]} columns=${columns}
          template=${isNarrow ? "" : template} isCurrent=${item.index === current} choose=${setChosen} measure=${virtual.measureElement} />`)}
      </div>
    </div>`;
}

function useVirtualRows(box, count, current, isNarrow, redraw) {
  const kept = useRef(null);
  const options = {
    count, overscan: 10, observeElementRect, observeElementOffset, measureElement, scrollToFn: elementScroll,
    initialRect: { width: 1000, height: 800 },
    getScrollElement: () => box.current,
    estimateSize: () => (isNarrow ? CARD_PIXELS : ROW_PIXELS),
    scrollPaddingStart: ROW_PIXELS, // the head
    rangeExtractor: ({ startIndex, endIndex, overscan }) => {
      const found = new Set([current]); // wherever it is: the tab key goes there
      for (let at = Math.max(0, startIndex - overscan); at <= Math.min(count - 1, endIndex + overscan); at += 1) found.add(at);
      return [...found].filter((at) => at < count).sort((a, b) => a - b);
    },
    onChange: () => redraw(),
  };
  kept.current ??= new Virtualizer(options);
  kept.current.setOptions(options);
  useLayoutEffect(() => kept.current._didMount(), []);
  useLayoutEffect(() => kept.current._willUpdate());
  return kept.current;
}

function Head({ columns, template, sorted, sort }) {
  return html`<div class="row head" role="row" style=${{ gridTemplateColumns: template }}>
    ${columns.map((column) => {
      const direction = sorted.name === column.name && column.value ? (sorted.sign > 0 ? "ascending" : "descending") : undefined;
      const turn = (event) => { event.preventDefault(); sort(column.name, direction === "ascending" ? -1 : 1); };
      return html`<div class=${column.kind} role="columnheader" aria-sort=${direction}>${column.value && column.name ? html`<a href="" role="button" onclick=${turn}>${column.name}</a>` : column.name || html`<span class="hidden">actions</span>`}</div>`;
    })}
  </div>`;
}

function SortChoice({ columns, sorted, sort }) {
  const onchange = (event) => {
    const [name, sign] = JSON.parse(event.target.value);
    sort(name, sign);
  };
  const named = columns.filter((column) => column.value && column.name);
  return html`<label class="sort">Sort by <select onchange=${onchange}>
    <option value=${JSON.stringify([null, 1])}>unsorted</option>
    ${named.flatMap((column) => [1, -1].map((sign) => html`<option value=${JSON.stringify([column.name, sign])} selected=${sorted.name === column.name && sorted.sign === sign}>${column.name}${sign > 0 ? "" : ", largest first"}</option>`))}
  </select></label>`;
}

// A long text has a line of its own in a card, where half a line would break it.
function kindOf(column, content) {
  return column.kind === "text" && (column.characters ?? lengthOf(content)) > LONG_CHARACTERS ? "text long" : column.kind;
}

function Row({ at, start, one, columns, template, isCurrent, choose, measure }) {
  const row = useRef(null);
  useLayoutEffect(() => { for (const control of row.current.querySelectorAll("a, button")) control.tabIndex = isCurrent ? 0 : -1; });
  useLayoutEffect(() => { measure(row.current); }, [template]);
  return html`<div class=${isCurrent ? "row current" : "row"} role="row" aria-rowindex=${at + 2} data-index=${at} ref=${row} onfocusin=${() => choose(at)}
    style=${{ transform: `translateY(${start}px)`, gridTemplateColumns: template }}>
    ${columns.map((column) => {
      const content = (column.show ?? column.value)(one);
      return html`<div class=${kindOf(column, content)} role="cell" data-name=${column.name}>${shown(content)}</div>`;
    })}
  </div>`;
}

// A table with a field that keeps the rows whose text has what is typed.
export function FilteredTable({ label, columns, rows, textOf, none }) {
  const [wanted, setWanted] = useState("");
  if (!rows.length && none) return none;
  const kept = wanted === "" ? rows : rows.filter((row) => textOf(row).toLowerCase().includes(wanted.toLowerCase()));
  return html`
    <form class="filtering" role="search" onsubmit=${(event) => event.preventDefault()}>
      <label>Filter by name (press /)<input type="search" class="filter" spellcheck=${false} oninput=${(event) => setWanted(event.target.value)} /></label>
      <span class="note" aria-live="polite">${wanted === "" ? grouped(rows.length) : `${grouped(kept.length)} of ${grouped(rows.length)}`}</span>
    </form>
    <${Table} kept=${wanted} label=${label} columns=${columns} rows=${kept} />`;
}
