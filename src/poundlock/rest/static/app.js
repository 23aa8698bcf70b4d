// The page as a whole: where one is, the token, the theme, the keyboard, and lines on what was done.
import { html, render, useCallback, useEffect, useState } from "./preact-htm.js";
import { setToken, takeToken, useToken } from "./api.js";
import { Confirm } from "./ui.js";
import { Job, VIEWS } from "./job.js";
import { Jobs } from "./jobs.js";

takeToken();
const go = (hash) => { location.hash = hash; };

function where() {
  const [, kind, jid, view, rest] = /^#\/?(?:(job)\/([0-9a-fA-F]{32})(?:\/([a-z-]+)(?:\/(.*))?)?)?/.exec(location.hash) || [];
  return kind ? { jid: jid.toLowerCase(), view: VIEWS.some(([id]) => id === view) ? view : "graph", rest } : {};
}

function useTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const [theme, set] = useState(document.documentElement.dataset.theme || (dark.matches ? "dark" : "light"));
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("poundlock-theme", next); } catch { /* for this page only */ }
    set(next);
  };
  return [theme, toggle];
}

const KEYS = [["?", "this help"], ["j", "list of jobs"], ["1 … 9, 0", "the first ten views of a job"], ["← →", "views, from a tab"], ["/", "the filter of a list or log"], ["t", "light or dark"], ["Esc", "close"]];

function App() {
  const [at, setAt] = useState(where());
  const [asked, confirm] = useState(null);
  const [lines, setLines] = useState([]);
  const [help, setHelp] = useState(false);
  const [theme, toggle] = useTheme();
  const token = useToken();
  const tell = useCallback((text) => setLines((was) => [...was.slice(-3), { text, id: Math.random() }]), []);
  const close = useCallback(() => confirm(null), []);
  useEffect(() => {
    const moved = () => { takeToken(); setAt(where()); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => { if (!at.jid) document.title = "poundlock"; }, [at.jid]);
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,select,textarea,dialog")) return;
      const number = "1234567890".indexOf(event.key);
      if (event.key === "?") setHelp((was) => !was);
      else if (event.key === "Escape") setHelp(false);
      else if (event.key === "j") go("#/");
      else if (event.key === "t") toggle();
      else if (event.key === "/" && document.getElementById("filter")) { event.preventDefault(); document.getElementById("filter").focus(); }
      else if (number >= 0 && at.jid) go(`#/job/${at.jid}/${VIEWS[number][0]}`);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [at, theme]);
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
    <header><a class="brand" href="#/"><img src="/page/icon.svg" alt="" width="22" height="22" /> poundlock</a><span class="grow"></span>
      <button class="plain" title="Keys" aria-expanded=${help} onClick=${() => setHelp(!help)}>? <span class="wide-only">Keys</span></button>
      <button class="plain" onClick=${toggle} title="Light or dark">${theme === "dark" ? "☀" : "☾"} <span class="wide-only">${theme === "dark" ? "Light" : "Dark"}</span></button>
      ${token && html`<button class="plain" onClick=${() => setToken(null)}>Sign out</button>`}</header>
    ${help && html`<section class="card help"><h2>Keys</h2><dl class="keys">${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl></section>`}
    ${!token ? html`<${SignIn} />` : at.jid ? html`<${Job} key=${at.jid} ...${at} go=${go} confirm=${confirm} tell=${tell} theme=${theme} />` : html`<${Jobs} go=${go} />`}
    <${Confirm} ask=${asked} close=${close} />
    <div class="lines" role="status" aria-live="polite">${lines.map((line) => html`<div key=${line.id} class="notice good">${line.text} <button class="plain" aria-label="Close" onClick=${() => setLines((was) => was.filter((each) => each !== line))}>✕</button></div>`)}</div>`;
}

function SignIn() {
  const [value, set] = useState("");
  return html`<main id="main" tabindex="-1" class="sign-in"><h1>Token</h1>
    <p>Give the token of this server. It stays in this tab until you close it.</p>
    <form onSubmit=${(event) => { event.preventDefault(); setToken(value.trim()); }}><label>Token <input type="password" autocomplete="off" autofocus value=${value} onInput=${(e) => set(e.target.value)} /></label><div class="buttons"><button class="primary" disabled=${!/^[!-~]+$/.test(value.trim())}>Go on</button></div></form>
    <p><small><code>poundlock dashboard</code> prints an address with it; for a job's own server <code>poundlock info JOB</code> names the file.</small></p></main>`;
}

render(html`<${App} />`, document.getElementById("app"));
