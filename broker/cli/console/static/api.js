// Asks the API at /api/v1, and keeps the session: its user, its token against forged requests, and whether changes are allowed.

export const session = { user: null, token: null, needs_login: false, read_only: false };

export class NoLogin extends Error {}

async function answered(answer) {
  const found = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (answer.status === 401) throw new NoLogin(found.error);
  if (!answer.ok) throw new Error(found.error ?? `status ${answer.status}`);
  return found;
}

export async function ask(path, signal) {
  return answered(await fetch(`/api/v1/${path}`, { signal }));
}

export async function change(method, path, body = {}) {
  const headers = { "content-type": "application/json", "x-csrf-token": session.token ?? "" };
  return answered(await fetch(`/api/v1/${path}`, { method, headers, body: JSON.stringify(body) }));
}

export async function loadSession() {
  Object.assign(session, await ask("session"));
}

export async function logIn(user, password) {
  Object.assign(session, await change("POST", "session", { user, password }));
}

export async function logOut() {
  Object.assign(session, await change("DELETE", "session"));
}

// The parts of a path; names of groups may have slashes.
export function path(...parts) {
  return parts.map(encodeURIComponent).join("/");
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
