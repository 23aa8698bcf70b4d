// The log, failures in full, and how the job was set up.
import { html, useState } from "./preact-htm.js";
import { usePoll } from "./api.js";
import { count, json, missing, time } from "./format.js";
import { Facts, Table, View } from "./ui.js";

export function Logs({ jid }) {
  const [level, setLevel] = useState("debug");
  const [text, setText] = useState("");
  const [live, setLive] = useState(true);
  const poll = usePoll(`/jobs/${jid}/log?last=400&level=${level}&contains=${encodeURIComponent(text.slice(0, 200))}`, live ? 2000 : 0);
  return html`<form class="row" onSubmit=${(e) => e.preventDefault()}>
      <label>Level <select value=${level} onChange=${(e) => setLevel(e.target.value)}>${["debug", "info", "warning", "error"].map((each) => html`<option value=${each}>${each} and above</option>`)}</select></label>
      <label>Text <input type="search" id="filter" value=${text} onInput=${(e) => setText(e.target.value)} /></label>
      <label class="check"><input type="checkbox" checked=${live} onChange=${(e) => setLive(e.target.checked)} /> follow</label></form>
    <${View} poll=${poll}>${(data) => html`<p><small>${data.place}${data.truncated ? ", its end" : ""}; the newest line first</small></p>
      <div class="log" role="log" tabindex="0" aria-label="Log">${[...data.lines].reverse().map((line) => html`<div class=${`line ${line.level || ""}`}><time>${(line.time || "").replace("T", " ").slice(0, 23)}</time> <b>${line.level || ""}</b> <span>${line.message}</span> ${Object.entries(line.rest).map(([name, value]) => html`<span class="rest">${name}=${json(value)} </span>`)}${line.exception && html`<pre class="code">${line.exception}</pre>`}</div>`)}
      ${!data.lines.length && html`<p class="empty">No line matches.</p>`}</div>`}<//>`;
}

export function Failures({ jid }) {
  const poll = usePoll(`/jobs/${jid}/failures`, 3000);
  return html`<${View} poll=${poll}>${(data) => html`
    <${Facts} facts=${[["State", data.state], ["Restarts", count(data.restarts)]]} />
    ${data.failure && html`<div class="notice bad"><b>${data.failure[0]}</b> ${data.failure[1] || ""}</div>`}
    ${!data.entries.length && html`<p class="empty">Nothing went wrong.</p>`}
    ${data.entries.map((each) => html`<section class="card"><p><small>${time(each.at)} · ${each.level}</small></p><p><b>${each.what}</b></p>${each.next && html`<p>${each.next}</p>`}${each.trace && html`<details open=${each.level === "error"}><summary>Stack trace</summary><pre class="code">${each.trace}</pre></details>`}</section>`)}`}<//>`;
}

function flat(value, prefix = "") {
  return Object.entries(value).flatMap(([name, each]) => (each && typeof each === "object" && !Array.isArray(each) && Object.keys(each).length ? flat(each, `${prefix}${name}.`) : [[prefix + name, each]]));
}

export function Configuration({ jid, card }) {
  const poll = usePoll(`/jobs/${jid}/config`, 0);
  return html`<${View} poll=${poll}>${(data) => html`
    <h3>The process</h3><${Table} label="The process" rows=${[["Command", card.command], ["Checkpoint folder", card.checkpoint_dir], ["Host", card.host], ["Process", card.process], ["Application", card.application], ["Job id", card.jid]].filter(([, v]) => !missing(v))} columns=${[["", ([n]) => n], ["", ([, v]) => html`<code>${String(v)}</code>`, { wide: true }]]} />
    <h3>Settings</h3><${Table} label="Settings" rows=${flat(data["execution-config"]).sort(([a], [b]) => (a < b ? -1 : 1))} columns=${[["Setting", ([n]) => html`<code>${n}</code>`], ["Value", ([, v]) => html`<code>${json(v)}</code>`, { wide: true }]]} />`}<//>`;
}
