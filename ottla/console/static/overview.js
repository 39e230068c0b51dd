// Draws the overview: whether the cluster is well, its brokers, and its disks.

import { CircleAlert, CircleCheck, CircleX, TriangleAlert } from "./vendor/libraries.js";
import { ask } from "./api.js";
import { Charts } from "./charts.js";
import { Directories, brokerState, remarks, withMissing } from "./cluster.js";
import { Icon, arrived, badge, counted, failed, grouped, heading, html, link, note, useAnswer, visible } from "./parts.js";
import { Table, id, number, text, wide } from "./table.js";

const MOST_NAMED = 5;

// The page shows the metadata at once. The findings, disks and versions come when all brokers have answered.
export async function overview(page) {
  const found = await ask("overview", page.signal);
  return html`<${Overview} page=${page} found=${found} />`;
}

function Overview({ page, found }) {
  const told = useAnswer("brokers", page);
  const missing = found.missing ?? [];
  return html`
    ${heading("Overview", html`<span class="note">cluster ${visible(found.cluster_id)}</span>`)}
    <${Health} page=${page} found=${found} missing=${missing} />
    <ul class="numbers">
      <${Tile} name=${found.brokers.length === 1 ? "broker" : "brokers"} value=${found.brokers.length} of=${missing.length ? found.brokers.length + missing.length : null} isBad=${missing.length > 0} />
      <${Tile} name="topics" value=${found.topics} place=${["topics"]} /><${Tile} name="partitions" value=${found.partitions} />
      <${Tile} name="without leader" value=${found.offline} isBad=${found.offline > 0} />
      <${Tile} name="not in sync" value=${found.under_replicated} isBad=${found.under_replicated > 0} />
    </ul>
    <${Charts} page=${page} of=${{}} wanted=${[["records", "Records written per second"], ["lag", "Lag of all groups, records"]]} />
    <h2>Brokers</h2><${Brokers} found=${found} missing=${missing} told=${told} />
    <h2>Log directories</h2><div aria-live="polite"><${Disks} told=${told} /></div>`;
}

function Tile({ name, value, of, isBad, place }) {
  const content = html`<b>${grouped(value)}${of ? html`<small> of ${grouped(of)}</small>` : null}</b><span>${name}</span>`;
  return html`<li class=${isBad ? "bad" : undefined}>${place ? html`<a href=${`#/${place.join("/")}`}>${content}</a>` : content}</li>`;
}

// The worst that is known. The metadata tells of brokers and partitions at once; the findings come later.
function Health({ page, found, missing }) {
  const { found: told, error } = useAnswer("findings", page);
  const problems = [
    ...missing.map((id) => `Broker ${id} is dead.`),
    ...(found.offline ? [`${counted(found.offline, "partition has", "partitions have")} no leader.`] : []),
    ...(found.controller === null ? ["The cluster has no controller."] : []),
  ];
  const findings = told?.findings ?? [];
  const serious = findings.filter((one) => one.severity === "problem");
  const isBad = problems.length > 0 || serious.length > 0;
  const isWarned = findings.length > 0 || found.under_replicated > 0 || (told?.not_examined.length ?? 0) > 0;
  const [kind, icon, said] = isBad ? ["bad", CircleX, "The cluster needs attention"]
    : isWarned ? ["warn", TriangleAlert, "The cluster works, with warnings"]
      : told ? ["good", CircleCheck, "All is well"] : ["", CircleAlert, error ? "The findings are unknown" : "No fault is known yet"];
  const lines = [...problems, ...(problems.length ? serious.filter((one) => one.what && !/dead|not alive|no leader/.test(one.what)) : findings).map((one) => one.what)];
  return html`<section class=${`health ${kind}`} aria-label="Health" aria-live="polite">
    <${Icon} of=${icon} />
    <div>
      <p class="verdict">${said}</p>
      ${lines.length ? html`<ul>${lines.slice(0, MOST_NAMED).map((line) => html`<li>${visible(line)}</li>`)}</ul>` : null}
      <p class="note">${told ? html`${counted(findings.length, "finding")} of ${link("ottla doctor", "findings")}${lines.length > MOST_NAMED ? `, of which ${MOST_NAMED} are shown` : ""}` : error ? visible(error.message) : "Examining the cluster…"}</p>
    </div>
  </section>`;
}

function Brokers({ found, missing, told }) {
  const byId = new Map((told.found?.brokers ?? []).map((one) => [one.id, one]));
  const first = told.found?.brokers.find((one) => one.protocol_version !== null)?.protocol_version;
  const others = told.found?.other_requests ?? [];
  const isKnown = told.found !== undefined || told.error !== undefined;
  const rows = withMissing(found.brokers, missing).map((one) => ({
    ...one,
    error: byId.get(one.id)?.error ?? null,
    protocol_version: one.isAlive ? (isKnown ? byId.get(one.id)?.protocol_version ?? null : undefined) : null,
    isOther: others.includes(one.id) || byId.get(one.id)?.protocol_version !== first,
  }));
  const columns = [
    id("broker", (one) => one.id, (one) => link(one.id, "brokers", one.id)), { ...text("state", (one) => Number(one.isAlive), (one) => brokerState(one, found.controller)), characters: 16 },
    wide("address", (one) => one.address), text("rack", (one) => one.rack),
    number("leads", (one) => one.leads, (one) => grouped(one.leads)), number("replicas", (one) => one.replicas, (one) => grouped(one.replicas)),
    text("protocol", (one) => one.protocol_version, (one) => arrived(one.protocol_version, (version) => (one.isOther ? badge(version, "warn") : version))),
  ];
  return html`<${Table} label="Brokers" columns=${columns} rows=${rows} />`;
}

function Disks({ told }) {
  if (told.error) return failed(told.error);
  if (!told.found) return note("Asking the brokers…");
  return html`${remarks(told.found)}<${Directories} brokers=${told.found.brokers} />`;
}
