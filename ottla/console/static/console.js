// Opens the page that the address names, asks for a login where one is needed, and handles keys. The first user of the API.

import { render, useState } from "./vendor/libraries.js";
import { NoLogin, cluster, loadClusters, loadSession, logIn, logOut, session } from "./api.js";
import { broker, brokers, findings } from "./cluster.js";
import { reassignments, transactions } from "./control.js";
import { groups, inFlight, reset } from "./groups.js";
import { overview } from "./overview.js";
import { failed, heading, html, visible } from "./parts.js";
import { acls, quotas, users } from "./security.js";
import { Shell } from "./shell.js";
import { topics } from "./topics.js";

const pages = {
  "": overview, topics, findings, reassignments, transactions, acls, users, quotas,
  brokers: (page, name) => (name === undefined ? brokers(page) : broker(page, name)),
  groups: (page, name, section) => (section === "reset" ? reset : section === "records" ? inFlight : groups)(page, name),
};

const place = document.getElementById("shell");
let leaving = new AbortController();
let saidForNext = "";
let clusters = [];
let showsAddress = null;
const view = { content: null, message: "", isBad: false, isBusy: true };

const draw = (changed) => {
  Object.assign(view, changed);
  render(html`<${Shell} ...${view} session=${session} clusters=${clusters} pageName=${addressParts()[0]} choose=${chooseCluster} reload=${reload} leave=${leave} />`, place);
};
const main = () => document.getElementById("main");

// What a page may do; each opening of a page has its own.
function newPage(signal) {
  return {
    signal,
    go(...parts) {
      const to = `#/${parts.map(encodeURIComponent).join("/")}`;
      if (location.hash === to) open();
      else location.hash = to;
    },
    reload(text = "") { saidForNext = text; open(); },
    say(text, isBad = false) { draw({ message: text, isBad }); },
  };
}

function addressParts() {
  const parts = location.hash.replace(/^#\//, "").split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return parts[0] === "#" ? [""] : parts;
}

async function open() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [name = "", ...rest] = addressParts();
  draw({ message: saidForNext, isBad: false, isBusy: true });
  saidForNext = "";
  const show = (content) => {
    if (signal.aborted) return;
    const hasFocus = main().contains(document.activeElement);
    // Another page keeps nothing of this one; the same page, asked again, keeps its filters and its order.
    const isSame = showsAddress === location.hash;
    showsAddress = location.hash;
    draw({ content: html`<div key=${location.hash}>${content}</div>`, isBusy: false });
    if (hasFocus && !main().contains(document.activeElement)) main().focus(); // else the tab key would begin again at the top
    if (!isSame) scrollTo(0, 0);
  };
  try {
    if (session.token === null) await showSession();
    if (session.needs_login && session.user === null) throw new NoLogin();
    show(await (Object.hasOwn(pages, name) ? pages[name](newPage(signal), ...rest) : Promise.reject(new Error(`There is no page ${name}.`))));
  } catch (error) {
    if (error instanceof NoLogin) session.token = null; // the console is asked again what it wants
    show(error instanceof NoLogin && session.needs_login ? html`<${LoginForm} />` : html`<div class="alone">${heading("This page cannot be shown")}${failed(error)}</div>`);
  }
}

async function showSession() {
  await loadSession();
  if (session.needs_login && session.user === null) return;
  try {
    await showClusters();
  } catch (error) {
    session.token = null;
    throw error;
  }
}

// Offers the clusters, and checks the name in the address: no request goes to another cluster than the page shows.
async function showClusters() {
  const names = await loadClusters();
  const chosen = cluster ?? names[0];
  if (!names.includes(chosen)) throw new Error(`This console has no cluster ${visible(chosen)}; it has ${names.map(visible).join(", ")}.`);
  clusters = names;
  session.cluster = names.length < 2 ? null : chosen;
  if (names.length > 1) document.title = `${visible(chosen)} – Ottla console`;
}

function LoginForm() {
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const { user, password } = event.target.elements;
    try {
      await logIn(user.value, password.value);
      await showSession();
      open();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<article class="login"><h1>Log in</h1><form onsubmit=${submit}>
    <label>User<input id="login-user" name="user" autocomplete="username" required /></label>
    <label>Password<input id="login-password" name="password" type="password" autocomplete="current-password" required /></label>
    ${problem === null ? null : failed(problem)}
    <button>Log in</button>
  </form></article>`;
}

// The same page of another cluster; what it showed may not be there.
function chooseCluster(name) {
  location.assign(`/?${new URLSearchParams({ cluster: name })}#/${addressParts()[0]}`);
}

// The session is loaded again, too: that of a console that was started anew has another token.
function reload() {
  session.token = null;
  open();
}

async function leave() {
  await logOut().catch(() => null);
  Object.assign(session, { user: null, token: null });
  open();
}

addEventListener("hashchange", () => {
  for (const one of document.querySelectorAll("dialog[open]")) one.close(); // it is about the page that is left
  open().then(() => main().focus());
});
addEventListener("keydown", (event) => {
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { main().querySelector(".filter, input")?.focus(); event.preventDefault(); }
  if (event.key === "r") reload();
});
open();
