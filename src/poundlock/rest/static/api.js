// How the page asks: JSON over REST with the token, which stays in this tab's session storage and in no cookie.
import { useEffect, useRef, useState } from "./preact-htm.js";

const KEY = "poundlock-token";
const listeners = new Set();
let token = null;

export function takeToken() {
  const given = /^#token=([!-~]+)$/.exec(location.hash);
  if (given) {
    setToken(decodeURIComponent(given[1]));
    history.replaceState(null, "", location.pathname + "#/");
  } else {
    try { token = sessionStorage.getItem(KEY); } catch { token = null; }
  }
}

export function setToken(value) {
  token = value;
  try { value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY); } catch { /* this tab then asks again */ }
  listeners.forEach((each) => each());
}

export function useToken() {
  const [, again] = useState(0);
  useEffect(() => {
    const changed = () => again((n) => n + 1);
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, []);
  return token;
}

export class Refused extends Error {
  constructor(status, lines) {
    super(lines[0] || `HTTP status ${status}`);
    this.status = status;
    this.next = lines[1] || "";
  }
}

export async function ask(method, path, body, signal) {
  // A page of another site cannot send the last one: an operation is refused without it.
  const headers = { Authorization: `Bearer ${token || ""}`, Accept: "application/json", "X-Requested-With": "poundlock" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* below */ }
  if (answer.status === 401) setToken(null);
  if (!answer.ok) throw new Refused(answer.status, (value && value.errors) || []);
  return value;
}

// Asks again and again while the page is seen. What was answered last stays when nobody answers.
export function usePoll(path, everyMs = 2000) {
  const [state, set] = useState({ data: null, error: null, at: null, path: null });
  const wake = useRef(() => {});
  useEffect(() => {
    if (!path) return undefined;
    const stop = new AbortController();
    let timer = 0, running = false;
    const look = async () => {
      clearTimeout(timer);
      if (document.hidden || running) return;
      running = true;
      let pause = everyMs;
      try {
        const data = await ask("GET", path, undefined, stop.signal);
        if (!stop.signal.aborted) set({ data, error: null, at: Date.now(), path });
      } catch (error) {
        if (!stop.signal.aborted) set((was) => ({ ...(was.path === path ? was : { data: null, at: null, path }), error }));
        pause = Math.max(everyMs, 3000); // also what is asked for once: it may be there in a moment
      }
      running = false;
      if (!stop.signal.aborted && pause) timer = setTimeout(look, pause);
    };
    wake.current = look;
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [path, everyMs]);
  const here = state.path === path ? state : { data: null, error: null, at: null };
  return { ...here, again: () => wake.current() };
}

// Waits until what was asked for is done: `look` returns the answer of a trigger.
export async function done(path) {
  for (;;) {
    const now = await ask("GET", path);
    if (now.status.id !== "IN_PROGRESS") {
      const cause = now.operation && now.operation["failure-cause"];
      if (cause) {
        const [what, next] = String(cause["stack-trace"]).split("\nNext: ");
        throw new Refused(200, [what, next]);
      }
      return now.operation || {};
    }
    await new Promise((then) => setTimeout(then, 400));
  }
}
