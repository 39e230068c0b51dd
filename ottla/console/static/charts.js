// Draws the samples that the console takes of a cluster, whether a page was open or not. Asks for new ones while the page is open.

import { uPlot, useEffect, useRef, useState } from "./vendor/libraries.js";
import { ask, query } from "./api.js";
import { empty, failed, grouped, html } from "./parts.js";

const HEIGHT = 170;
const LEAST_SAMPLES = 3;
// Distances of the times below a chart, seconds: each has another minute.
const MINUTES = [1, 2, 5, 10, 15, 30, 60].map((each) => each * 60);
const AGAIN_MILLISECONDS = 10_000;

// The samples of the cluster, or of one topic or group: `{found, error}`.
export function useHistory(page, of = {}) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    let timer = null;
    let isOver = false;
    const look = async () => {
      try {
        const found = await ask(`history?${query(of)}`, page.signal);
        if (isOver) return;
        setAnswer({ found });
        timer = setTimeout(look, found.interval_seconds * 1000);
      } catch (error) {
        if (isOver || error.name === "AbortError") return;
        setAnswer({ error });
        timer = setTimeout(look, AGAIN_MILLISECONDS);
      }
    };
    look();
    return () => { isOver = true; clearTimeout(timer); };
  }, [page]);
  return answer;
}

export function Charts({ page, of, wanted }) {
  const { found, error } = useHistory(page, of);
  if (error) return failed(error);
  return html`<div class="charts">${wanted.map(([name, title]) => html`<${Chart} key=${name} title=${title} times=${found?.times_ms ?? []} values=${found?.series[name] ?? []} />`)}</div>`;
}

const rounded = (value) => (value === null || value === undefined ? "unknown" : grouped(value >= 100 ? Math.round(value) : Math.round(value * 10) / 10));

function Chart({ title, times, values }) {
  const known = values.filter((value) => value !== null);
  const isDrawn = known.length >= LEAST_SAMPLES;
  const summary = `now ${rounded(values.at(-1))}, at most ${rounded(known.length ? Math.max(...known) : null)}`;
  return html`<figure class="chart">
    <figcaption><b>${title}</b>${isDrawn ? html`<span class="note">${summary}</span>` : null}</figcaption>
    ${isDrawn ? html`<${Plot} label=${`${title}: ${summary}`} times=${times} values=${values} />` : empty("The first samples are being taken.", "The console samples the cluster every ten seconds, and keeps an hour.")}
  </figure>`;
}

const short = (value) => (value >= 1e6 ? `${value / 1e6} M` : value >= 1e3 ? `${value / 1e3} k` : String(value));

function Plot({ label, times, values }) {
  const place = useRef(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const again = () => setTurn((before) => before + 1);
    const observers = [new ResizeObserver(again), new MutationObserver(again)];
    observers[0].observe(place.current);
    observers[1].observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    return () => {
      for (const each of observers) each.disconnect();
      scheme.removeEventListener("change", again);
    };
  }, []);
  useEffect(() => {
    const style = getComputedStyle(place.current);
    const [ink, grid, stroke] = ["--pico-muted-color", "--line", "--link"].map((name) => style.getPropertyValue(name).trim());
    const font = `12px ${style.fontFamily}`;
    const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const plot = new uPlot({
      width: Math.max(place.current.clientWidth, 100), height: HEIGHT, cursor: { show: false }, legend: { show: false }, padding: [8, 20, 0, 0], // half of a time fits to the right of the last one
      scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.15 : 1] } },
      axes: [{ ...axis, size: 24, space: 70, incrs: MINUTES, values: (_, splits) => splits.map((at) => new Date(at * 1000).toTimeString().slice(0, 5)) }, { ...axis, size: 52, space: 34, values: (_, splits) => splits.map(short) }],
      series: [{}, { stroke, width: 2, fill: `${stroke}22`, points: { show: false } }],
    }, [times.map((at) => at / 1000), values], place.current);
    return () => plot.destroy();
  }, [times, values, turn]);
  return html`<div class="plot" role="img" aria-label=${label} ref=${place}></div>`;
}
