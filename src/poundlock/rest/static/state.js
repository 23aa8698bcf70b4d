// Keyed state by operator and key group, and what is kept for one key.
import { html, useState } from "./preact-htm.js";
import { ask, usePoll } from "./api.js";
import { bytes, count, json, missing, span, time } from "./format.js";
import { Bar, Empty, Facts, Table, View } from "./ui.js";

export function State({ jid }) {
  const poll = usePoll(`/jobs/${jid}/state`, 4000);
  return html`<${View} poll=${poll}>${(data) => html`
    <${Facts} facts=${[["Size", bytes(data.bytes)], ["Rows in files", count(data.rows)], ["Files", count(data.files)], ["Key groups", count(data.max_parallelism)], ["As of checkpoint", count(data.checkpoint)]]} />
    ${!data.operators.length && html`<${Empty}>No step of this job keeps state.<//>`}
    ${data.operators.map((op) => html`<section class="card"><h3>${op.id} <small>${op.stage}</small></h3>
      <${Facts} facts=${[["Size", bytes(op.bytes)], ["Files", count(op.files)], ["Watermark", time(op.watermark)], ["Next timer", time(op.event_timer)], ["Skew", missing(op.skew) ? "–" : `${op.skew} × the average`]]} />
      <${Table} label=${`Tables of ${op.id}`} rows=${op.tables} empty="It has no table yet." columns=${[["Table", (t) => html`<b>${t.name}</b>`], ["Kind", (t) => t.kind || "–"], ["Time to live", (t) => (missing(t.ttl_ms) ? "for ever" : span(t.ttl_ms))], ["By", (t) => (t.broadcast ? "broadcast" : t.windowed ? "key and window" : "key")]]} />
      <h4>Key groups with the most rows <small>in the newest checkpoint</small></h4>
      <${Table} label=${`Largest key groups of ${op.id}`} rows=${op.largest} empty="No rows came of late." columns=${[["Key group", ([group]) => group], ["Rows", ([, rows]) => count(rows), { num: true }], ["Share", ([, , part]) => html`<${Bar} value=${part} label=${`${(part * 100).toFixed(1)} %`} />\u00a0${(part * 100).toFixed(1)}\u00a0%`]]} />
      <details><summary>Ranges of key groups (${op.ranges.length})</summary><${Table} label=${`Ranges of ${op.id}`} rows=${op.ranges} columns=${[["Key groups", (r) => `${r.first} to ${r.stop - 1}`], ["Files", (r) => count(r.files), { num: true }], ["Rows", (r) => count(r.rows), { num: true }], ["Bytes", (r) => bytes(r.bytes), { num: true }], ["Share", (r) => html`<${Bar} value=${op.bytes ? r.bytes / op.bytes : 0} label="Share of the size" />`]]} /></details>
      <${OneKey} jid=${jid} operator=${op.id} /></section>`)}`}<//>`;
}

function OneKey({ jid, operator }) {
  const [key, setKey] = useState("");
  const [kept, setKept] = useState(null);
  const [error, setError] = useState(null);
  const look = async (event) => {
    event.preventDefault();
    setError(null); setKept(null);
    try { setKept(await ask("GET", `/jobs/${jid}/operators/${encodeURIComponent(operator)}/state/${encodeURIComponent(key)}`)); } catch (failed) { setError(failed); }
  };
  return html`<form class="row" onSubmit=${look}><label>One key <input type="text" value=${key} placeholder='ada, 12, ["ada", 3]' onInput=${(e) => setKey(e.target.value)} /></label><button disabled=${!key}>Look</button></form>
    ${error && html`<div class="notice bad" role="alert"><b>${error.message}</b> ${error.next}</div>`}
    ${kept && Object.entries(kept.state).map(([name, of]) => html`<p><b>${name}</b>: ${count(of.count)} entries</p><${Table} label=${name} rows=${of.entries} empty="Nothing is kept." columns=${[["Key", (e) => html`<code>${json(e.key)}</code>`], ["Window", (e) => (e.windowed ? html`<code>${json(e.window)}</code>` : "–")], ["Value", (e) => html`<code>${json(e.value)}</code>`, { wide: true }]]} />`)}
    ${kept && !Object.keys(kept.state).length && html`<${Empty}>Nothing is kept for this key.<//>`}`;
}
