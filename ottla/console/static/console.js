// Opens the page that the address names, asks for a login where one is needed, and handles keys. The first user of the API.

import { NoLogin, cluster, loadClusters, loadSession, logIn, logOut, session } from "./api.js";
import { brokers, findings, overview } from "./cluster.js";
import { reassignments, transactions } from "./control.js";
import { element, failed, heading, visible } from "./dom.js";
import { groups, reset } from "./groups.js";
import { acls, quotas, users } from "./security.js";
import { topics } from "./topics.js";

const main = document.getElementById("main");
const message = document.getElementById("message");
const chooser = document.getElementById("cluster");

const pages = {
  "": overview, brokers, topics, findings, reassignments, transactions, acls, users, quotas,
  groups: (page, name, section) => (section === "reset" ? reset(page, name) : groups(page, name)),
};

let leaving = new AbortController();
let saidForNext = "";

const page = {
  get signal() { return leaving.signal; },
  go(...parts) {
    const to = `#/${parts.map(encodeURIComponent).join("/")}`;
    if (location.hash === to) open();
    else location.hash = to;
  },
  reload(text = "") { saidForNext = text; open(); },
  say(text, isBad = false) { message.replaceChildren(isBad ? failed(new Error(text)) : visible(text)); },
};

async function open() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  page.say(saidForNext);
  saidForNext = "";
  const [name = "", ...rest] = location.hash.replace(/^#\//, "").split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  for (const one of document.querySelectorAll("nav a")) {
    if (one.getAttribute("href") === `#/${name}`) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  const show = (parts) => {
    if (signal.aborted) return;
    const hasFocus = main.contains(document.activeElement);
    main.replaceChildren(...parts.filter((part) => part !== null && part !== undefined));
    if (hasFocus) main.focus(); // else the tab key would begin again at the top
    main.removeAttribute("aria-busy");
  };
  try {
    if (session.token === null) await showSession();
    if (session.needs_login && session.user === null) throw new NoLogin();
    show(await (Object.hasOwn(pages, name) ? pages[name](page, ...rest) : Promise.reject(new Error(`There is no page ${name}.`))));
  } catch (error) {
    if (error instanceof NoLogin) session.token = null; // the console is asked again what it wants
    show(error instanceof NoLogin && session.needs_login ? loginForm() : [failed(error)]);
  }
}

async function showSession() {
  await loadSession();
  document.getElementById("read-only").hidden = !session.read_only;
  document.getElementById("user").textContent = session.needs_login && session.user !== null ? session.user : "";
  document.getElementById("log-out").hidden = !(session.needs_login && session.user !== null);
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
  chooser.replaceChildren(...names.map((name) => element("option", { value: name, selected: name === chosen }, name)));
  chooser.hidden = names.length < 2;
  session.cluster = names.length < 2 ? null : chosen;
  if (names.length > 1) document.title = `${visible(chosen)} – Ottla console`;
}

function loginForm() {
  const user = element("input", { id: "login-user", autocomplete: "username", required: true });
  const password = element("input", { id: "login-password", type: "password", autocomplete: "current-password", required: true });
  const problem = element("div");
  const form = element("form", {
    class: "column", onsubmit: async (event) => {
      event.preventDefault();
      try {
        await logIn(user.value, password.value);
        await showSession();
        open();
      } catch (error) {
        problem.replaceChildren(failed(error));
      }
    },
  }, element("label", null, "User", user), element("label", null, "Password", password), problem, element("div", { class: "actions" }, element("button", null, "Log in")));
  return [heading("Log in"), form];
}

// Keeps the chosen colours of this browser: those of the system, light, or dark.
const SCHEMES = { system: "light dark", light: "light", dark: "dark" };
const theme = document.getElementById("theme");
function colours(chosen) {
  const name = Object.hasOwn(SCHEMES, chosen ?? "") ? chosen : "system";
  document.documentElement.style.colorScheme = SCHEMES[name];
  theme.value = name;
  return name;
}
// A browser that keeps nothing for sites throws.
const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
const keep = (name) => { try { localStorage.setItem("theme", name); } catch { /* it holds until the page is left */ } };
colours(kept());
theme.addEventListener("change", () => keep(colours(theme.value)));

// The same page of another cluster; what it showed may not be there.
chooser.addEventListener("change", () => {
  const [name] = location.hash.replace(/^#\//, "").split("/");
  location.assign(`/?${new URLSearchParams({ cluster: chooser.value })}#/${name}`);
});

addEventListener("hashchange", () => {
  for (const one of document.querySelectorAll("dialog[open]")) one.close(); // it is about the page that is left
  open().then(() => main.focus());
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); }); // its address is no page
// The session is loaded again, too: that of a console that was started anew has another token.
const reload = () => { session.token = null; open(); };
document.getElementById("reload").addEventListener("click", reload);
document.getElementById("log-out").addEventListener("click", async () => {
  await logOut().catch(() => null);
  Object.assign(session, { user: null, token: null });
  open();
});
addEventListener("keydown", (event) => {
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { main.querySelector(".filter, input")?.focus(); event.preventDefault(); }
  if (event.key === "r") reload();
});
open();
