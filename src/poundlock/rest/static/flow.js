// Watermarks and lag, sinks, dead letters.
import { html, useState } from "./preact-htm.js";
import { usePoll } from "./api.js";
import { ago, bytes, count, delay, json, missing, time } from "./format.js";
import { Bar, Empty, Facts, Table, View } from "./ui.js";

export function Watermarks({ jid }) {
  const poll = usePoll(`/jobs/${jid}/watermarks`, 2000);
  const now = Date.now();
  return html`<${View} poll=${poll}>${(data) => html`
    <${Facts} facts=${[
      ["Watermark", time(data.watermark)], ["Behind the clock", delay(data.watermark, now)],
      !missing(data.latest_event) && ["Behind the latest event", missing(data.watermark) ? "–" : delay(data.watermark, data.latest_event)],
      ["Lag", missing(data.lag) ? "not known" : `${count(data.lag)} rows`], ["Held back by", data.held_by || "nobody"], ["As of", ago(data.decided, now)],
    ]} />
    ${data.sources.map((source) => html`<section><h3>${source.id}</h3>
      <${Facts} facts=${[["Watermark", time(source.watermark)], ["Idle", source.idle ? "yes" : "no"], ["Held back by", source.held_by || "–"], ["Rows in the newest checkpoint", count(source.rows)]]} />
      ${source.partitions.length ? html`<${Table} label=${`Partitions of ${source.id}`} rows=${source.partitions} rowId=${(p) => p.name} columns=${[
        ["Partition", (p) => html`<b>${p.name}</b>${p.name === source.held_by ? " ← holds the watermark back" : ""}`], ["Watermark", (p) => time(p.watermark)],
        ["Behind the fastest", (p) => delay(p.watermark, Math.max(...source.partitions.map((q) => q.watermark ?? -Infinity))), { num: true }],
        ["Position", (p) => count(p.position), { num: true }], ["Read", (p) => count(p.rows), { num: true }], ["Lag", (p) => count(p.lag), { num: true }],
        ["Idle", (p) => (p.idle ? "idle" : p.silent_since ? `silent for ${delay(p.silent_since, now)}` : "–")],
      ]} />` : html`<p>Stands at <code>${json(source.end)}</code>.</p>`}</section>`)}
    ${!data.sources.length && html`<${Empty}>No checkpoint is decided yet.<//>`}
    <h3>Steps</h3><${Table} label="Watermarks of steps" rows=${data.streams} empty="The job has no event time." columns=${[
      ["Step", (s) => html`<b>${s.id}</b>`], ["Watermark", (s) => time(s.watermark)], ["Behind the clock", (s) => delay(s.watermark, now), { num: true }], ["Idle", (s) => (s.idle ? "idle" : "–")],
    ]} />`}<//>`;
}

export function Sinks({ jid, go }) {
  const poll = usePoll(`/jobs/${jid}/sinks`, 3000);
  return html`<${View} poll=${poll}>${(data) => html`<p>By the newest ${count(data.looked_at)} decisions.</p>
    ${data.sinks.map((sink) => html`<section class="card"><h3>${sink.id}</h3><p><small>${sink.description || ""}</small></p>
      <${Facts} facts=${[["Rows written", count(sink.counts.written)], ["Bytes", bytes(sink.bytes)], ["Filtered", count(sink.counts.filtered)], ["Late", count(sink.counts.late)], ["Dead letters", count(sink.counts.dead_lettered)], ["Rows pending", count(sink.pending)]]} />
      <details open><summary>Last commits</summary><${Table} label=${`Commits of ${sink.id}`} rows=${sink.commits} empty="Nothing became visible in these decisions." rowId=${(c) => c.number} onRow=${(c) => go(`#/job/${jid}/ledger/${c.number}`)} columns=${[
        ["Record", (c) => html`<a href=${`#/job/${jid}/ledger/${c.number}`}>${c.number}</a>`, { num: true }], ["When", (c) => time(c.decided)], ["Occasion", (c) => c.occasion],
        ["What", (c) => html`<code>${c.what.join(", ")}${c.pieces > c.what.length ? ` and ${c.pieces - c.what.length} more` : ""}</code>`, { wide: true }], ["Rows", (c) => count(c.rows), { num: true }], ["Bytes", (c) => bytes(c.bytes), { num: true }],
      ]} /></details>
      ${sink.files.length > 0 && html`<details><summary>Finished files (${sink.files.length} newest)</summary><${Table} label=${`Files of ${sink.id}`} rows=${sink.files} columns=${[
        ["File", (f) => html`<code>${f.path}</code>`, { wide: true }], ["Rows", (f) => count(f.rows), { num: true }], ["Bytes", (f) => bytes(f.bytes), { num: true }], ["Events", (f) => (missing(f.first_event) ? "–" : `${time(f.first_event)} to ${time(f.last_event)}`)], ["Checkpoint", (f) => f.checkpoint, { num: true }], ["Finished", (f) => time(f.decided)],
      ]} /></details>`}</section>`)}`}<//>`;
}

export function DeadLetters({ jid }) {
  const [many, setMany] = useState(20);
  const poll = usePoll(`/jobs/${jid}/dead-letters?samples=${many}`, 4000);
  return html`<${View} poll=${poll}>${(data) => {
    const all = data.reasons.reduce((n, [, many]) => n + many, 0);
    return html`
      <${Facts} facts=${[["Of late", count(data.rows), "In the newest decisions"], ["Folder", data.place || "–"]]} />
      ${data.note && html`<div class="notice">${data.note}</div>`}
      <h3>Reasons <small>of ${count(data.samples.length)} samples</small></h3>
      <${Table} label="Reasons" rows=${data.reasons} empty="There are no dead letters." columns=${[
        ["Reason", ([why]) => html`<span class="clip">${why}</span>`, { wide: true }], ["Samples", ([, many]) => count(many), { num: true }], ["Share", ([, many]) => html`<${Bar} value=${many / all} label=${`${Math.round((many / all) * 100)} %`} />`],
      ]} />
      <h3>Samples <small>the newest first</small></h3>
      <${Table} label="Samples" rows=${data.samples} empty="There are none." columns=${[
        ["Reason", (d) => html`<span class="clip">${d.reason}</span>`, { wide: true }], ["Record", (d) => html`<code class="clip">${d.value}</code>`, { wide: true }],
        ["Place", (d) => html`<code>${json(d.place)}</code>`], ["Step", (d) => d.operator || "–"], ["Checkpoint", (d) => count(d.checkpoint), { num: true }],
      ]} />
      ${data.samples.length >= many && many < 320 && html`<button onClick=${() => setMany(many * 2)}>More</button>`}`;
  }}<//>`;
}
