// Asks the API at /api/v1, and keeps the session: its user, its token against forged requests, and whether changes are allowed.

// `cluster` is the name of the cluster if the console has several.
export const session = { user: null, token: null, needs_login: false, read_only: false, cluster: null };

// The cluster that the address of the page names; without a name it is the first one of the console.
export const cluster = new URLSearchParams(location.search).get("cluster");

export class NoLogin extends Error {}

async function answered(answer) {
  const found = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (answer.status === 401) throw new NoLogin(found.error);
  if (!answer.ok) throw new Error(found.error ?? `status ${answer.status}`);
  return found;
}

async function sent(method, address, body) {
  const headers = { "content-type": "application/json", "x-csrf-token": session.token ?? "" };
  return answered(await fetch(address, { method, headers, body: JSON.stringify(body) }));
}

// The address of a path of the API that is about the cluster of the page.
export function addressOf(path) {
  return cluster === null ? `/api/v1/${path}` : `/api/v1/clusters/${encodeURIComponent(cluster)}/${path}`;
}

export async function ask(path, signal) {
  return answered(await fetch(addressOf(path), { signal }));
}

// The server-sent events of a path as they come. Unlike EventSource it tells why the console refuses a request.
export async function* events(path, signal) {
  const answer = await fetch(addressOf(path), { signal });
  if (!answer.ok) await answered(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // of an event that is not complete
  let last = "";
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true })); // the connection is lost
    if (done) return;
    parts.push(value);
    const hasEnd = (last + value).includes("\n\n");
    last = value.slice(-1);
    if (!hasEnd) continue;
    const blocks = parts.join("").split("\n\n");
    parts = [blocks.pop()];
    for (const block of blocks) {
      const found = /^event: (.*)\ndata: (.*)$/.exec(block); // else it only keeps the connection alive
      if (found) yield { name: found[1], data: JSON.parse(found[2]) };
    }
  }
}

export async function change(method, path, body = {}) {
  return sent(method, addressOf(path), body);
}

export async function loadSession() {
  Object.assign(session, await answered(await fetch("/api/v1/session")));
}

// The names of the console's clusters.
export async function loadClusters() {
  return (await answered(await fetch("/api/v1/clusters"))).clusters.map((one) => one.name);
}

export async function logIn(user, password) {
  Object.assign(session, await sent("POST", "/api/v1/session", { user, password }));
}

export async function logOut() {
  Object.assign(session, await sent("DELETE", "/api/v1/session", {}));
}

// A name at the end of a path, or between two steps of it. Names of groups may have slashes; `.` and `..` are a parameter, because browsers
// take them in a path for steps.
export function path(name) {
  return name === "." || name === ".." ? `?${query({ name })}` : encodeURIComponent(name);
}

// The parameters that have a value.
export function query(fields) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") made.append(name, each);
    }
  }
  return made.toString();
}
