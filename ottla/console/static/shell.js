// Draws what surrounds every page: the side bar, which is a menu in narrow windows, and the bar with the cluster and the colours.

import {
  ArrowLeftRight, Gauge, LayoutDashboard, Layers, Menu, RefreshCw, Server, ShieldCheck, Shuffle, Stethoscope, User, Users, useLayoutEffect, useState,
} from "./vendor/libraries.js";
import { Icon, failed, html, visible } from "./parts.js";

const SECTIONS = [
  ["Cluster", [["", "Overview", LayoutDashboard], ["brokers", "Brokers", Server], ["topics", "Topics", Layers], ["groups", "Groups", Users]]],
  ["Operation", [["findings", "Findings", Stethoscope], ["reassignments", "Reassignments", Shuffle], ["transactions", "Transactions", ArrowLeftRight]]],
  ["Security", [["acls", "ACLs", ShieldCheck], ["users", "Users", User], ["quotas", "Quotas", Gauge]]],
];

const SCHEMES = ["system", "light", "dark"];
// A browser that keeps nothing for sites throws.
const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
const keep = (name) => { try { localStorage.setItem("theme", name); } catch { /* it holds until the page is left */ } };

function setColours(name) {
  const root = document.documentElement;
  if (name === "system") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", name);
}

function Colours() {
  const [chosen, setChosen] = useState(() => (SCHEMES.includes(kept()) ? kept() : "system"));
  useLayoutEffect(() => setColours(chosen), []);
  const onchange = (event) => {
    keep(event.target.value);
    setChosen(event.target.value);
    setColours(event.target.value);
  };
  const names = { system: "Auto", light: "Light", dark: "Dark" };
  return html`<select id="theme" aria-label="Colours" onchange=${onchange}>${SCHEMES.map((name) => html`<option value=${name} selected=${name === chosen}>${names[name]}</option>`)}</select>`;
}

function Pages({ pageName, isOpen }) {
  const page = ([name, label, icon]) => html`<li><a href=${`#/${name}`} aria-current=${name === pageName ? "page" : undefined}><${Icon} of=${icon} /><span>${label}</span></a></li>`;
  return html`<nav id="pages" class=${isOpen ? "pages open" : "pages"} aria-label="Pages">
    ${SECTIONS.map(([title, pages]) => html`<div><p class="section" aria-hidden="true">${title}</p><ul aria-label=${title}>${pages.map(page)}</ul></div>`)}
  </nav>`;
}

export function Shell({ content, message, isBad, isBusy, session, clusters, pageName, choose, reload, leave }) {
  const [isOpen, setOpen] = useState(false);
  useLayoutEffect(() => setOpen(false), [content]);
  const hasUser = session.needs_login && session.user !== null;
  const isOut = session.needs_login && session.user === null;
  const skip = (event) => { event.preventDefault(); document.getElementById("main").focus(); }; // its address is no page
  const mark = html`<a class="mark" href="#/"><svg viewBox="0 0 16 16" width="22" height="22" aria-hidden="true"><circle cx="8" cy="8" r="5.5" /></svg><strong>Ottla</strong></a>`;
  const clusterChoice = html`<select id="cluster" aria-label="Cluster" hidden=${clusters.length < 2} onchange=${(event) => choose(event.target.value)}>
    ${clusters.map((name) => html`<option value=${name} selected=${name === (session.cluster ?? clusters[0])}>${visible(name)}</option>`)}</select>`;
  return html`
    <a class="skip" href="#main" onclick=${skip}>Skip to the content</a>
    <header class="bar">
      ${mark}
      ${clusterChoice}
      <span class="stretch"></span>
      ${session.read_only ? html`<span id="read-only" class="badge">read-only</span>` : null}
      <span id="user">${hasUser ? visible(session.user) : ""}</span>
      ${hasUser ? html`<button id="log-out" type="button" class="secondary" onclick=${leave}>Log out</button>` : null}
      <${Colours} />
      ${isOut ? null : html`<button id="reload" type="button" class="secondary" title="Ask the cluster again (r)" onclick=${reload}><${Icon} of=${RefreshCw} /><span>Reload</span></button>
      <button id="menu" type="button" class="secondary" aria-expanded=${String(isOpen)} aria-controls="pages" onclick=${() => setOpen(!isOpen)}><${Icon} of=${Menu} /><span>Menu</span></button>`}
    </header>
    ${isOut ? null : html`<${Pages} pageName=${pageName} isOpen=${isOpen} />`}
    <main id="main" tabindex="-1" aria-busy=${isBusy ? "true" : undefined}>
      <div id="message" role="status">${message === "" ? null : isBad ? failed(new Error(message)) : html`<p class="said">${visible(message)}</p>`}</div>
      ${content}
    </main>`;
}
