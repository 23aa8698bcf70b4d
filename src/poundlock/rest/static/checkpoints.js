// Checkpoints with their phases, what failed in between, and the ledger: a decision opened up.
import { html, useState } from "./preact-htm.js";
import { usePoll } from "./api.js";
import { ago, bytes, clock, count, json, missing, span, time } from "./format.js";
import { Empty, Facts, Table, View } from "./ui.js";

export const PHASES = ["plan", "run", "verify", "decide", "commit"];
const whole = (line) => Object.values(line.durations).reduce((a, b) => a + b, 0);

function Phases({ line, longest }) {
  const total = whole(line);
  return html`<div class="phases" role="img" aria-label=${PHASES.filter((p) => !missing(line.durations[p])).map((p) => `${p} ${span(line.durations[p])}`).join(", ")}>
    ${PHASES.filter((p) => line.durations[p]).map((p) => html`<span class=${`phase ${p}`} title=${`${p} ${span(line.durations[p])}`} style=${{ width: `${Math.max(0.8, (line.durations[p] / longest) * 100)}%` }}>${line.durations[p] / longest > 0.09 ? p : ""}</span>`)}
    <span class="total">${total ? span(total) : ""}</span></div>`;
}

export function Checkpoints({ jid, go }) {
  const poll = usePoll(`/jobs/${jid}/timeline?last=80`, 2000);
  const now = Date.now();
  return html`<${View} poll=${poll}>${(data) => {
    const taken = data.decisions.filter((line) => line.occasion === "checkpoint");
    const longest = Math.max(1, ...taken.slice(0, 25).map(whole));
    const worked = taken.map(whole).sort((a, b) => a - b);
    const known = taken.filter((line) => !missing(line.bytes_written));
    return html`
      <${Facts} facts=${[
        ["Newest", taken.length ? `#${taken[0].checkpoint}` : "–"], ["Decided", taken.length ? ago(taken[0].decided, now) : "–"],
        ["Median", worked.length ? span(worked[Math.floor(worked.length / 2)]) : "–"], ["Longest", worked.length ? span(worked[worked.length - 1]) : "–"],
        ["Median size", known.length ? bytes(known.map((l) => l.bytes_written).sort((a, b) => a - b)[Math.floor(known.length / 2)]) : "–"],
        ["Failures", count(data.failures.length)],
      ]} />
      ${data.failures.length > 0 && html`<h3>Failed or restarted</h3><${Table} label="Failures" rows=${data.failures} columns=${[
        ["When", (f) => time(f.at)], ["Why", (f) => html`${f.what}${f.next && html`<br /><small>${f.next}</small>`}`, { wide: true }],
      ]} />`}
      <h3>Phases <span class="legend">${PHASES.map((p) => html`<span><i class=${`phase ${p}`}></i>${p}</span>`)}</span></h3>
      <${Table} label="Phases of the newest checkpoints" rows=${taken.slice(0, 25)} empty="No checkpoint is decided yet." rowId=${(l) => l.number} onRow=${(l) => go(`#/job/${jid}/ledger/${l.number}`)} columns=${[
        ["Checkpoint", (l) => html`<a href=${`#/job/${jid}/ledger/${l.number}`}>#${l.checkpoint}</a>`],
        ["Decided", (l) => html`<span title=${time(l.decided)}>${clock(l.decided)}</span>`],
        ["Phases", (l) => html`<${Phases} line=${l} longest=${longest} />`, { wide: true }],
      ]} />
      <h3>History</h3>
      <${History} rows=${taken.slice(0, 40)} jid=${jid} go=${go} />`;
  }}<//>`;
}

function History({ rows, jid, go, empty }) {
  return html`<${Table} label="History" rows=${rows} rowId=${(l) => l.number} empty=${empty || "No checkpoint is decided yet."} onRow=${(l) => go(`#/job/${jid}/ledger/${l.number}`)} columns=${[
    ["Record", (l) => html`<a href=${`#/job/${jid}/ledger/${l.number}`}>${l.number}</a>`, { num: true }],
    ["Occasion", (l) => `${l.occasion}${l.redo ? ", again" : ""}`], ["Checkpoint", (l) => l.checkpoint, { num: true }],
    ["Decided", (l) => time(l.decided)], ["Read", (l) => count(l.rows_read), { num: true }], ["Written", (l) => count(l.rows_written), { num: true }],
    ["Size", (l) => bytes(l.bytes_written), { num: true }], ["Dead letters", (l) => count(l.dead_lettered), { num: true }], ["Late", (l) => count(l.late), { num: true }],
    ["Committed", (l) => count(l.committed), { num: true }], ["State added", (l) => (l.state_files ? bytes(l.state_bytes) : "–"), { num: true }],
    ...PHASES.filter((p) => rows.some((l) => !missing(l.durations[p]))).map((p) => [p, (l) => span(l.durations[p]), { num: true }]),
    ["Epoch", (l) => l.epoch, { num: true }],
  ]} />`;
}

export function Ledger({ jid, go, rest }) {
  const number = /^\d+$/.test(rest || "") ? Number(rest) : null;
  return number === null ? html`<${LedgerList} jid=${jid} go=${go} />` : html`<${Decision} jid=${jid} number=${number} />`;
}

function LedgerList({ jid, go }) {
  const [before, setBefore] = useState(null);
  const poll = usePoll(`/jobs/${jid}/timeline?last=50${before === null ? "" : `&before=${before}`}`, before === null ? 3000 : 0);
  return html`<${View} poll=${poll}>${(data) => html`
    <p>Each record is a decision: what it names is visible, once, whatever crashes. ${missing(data.newest) ? "" : `Records ${data.oldest} to ${data.newest} are kept.`}</p>
    <${History} rows=${data.decisions} jid=${jid} go=${go} empty="There is no record." />
    <div class="buttons"><button disabled=${before === null} onClick=${() => setBefore(null)}>Newest</button>
      <button disabled=${!data.decisions.length || data.decisions[data.decisions.length - 1].number <= data.oldest} onClick=${() => setBefore(data.decisions[data.decisions.length - 1].number)}>Older</button></div>`}<//>`;
}

const called = (c) => c.final || c.tid || c.gid || c.file || c.path || c.kind || "a commit";

function Decision({ jid, number }) {
  const poll = usePoll(`/jobs/${jid}/ledger/${number}`, 0);
  return html`<${View} poll=${poll}>${({ line, record, committed }) => html`
    <div class="row between"><h3>Record ${number}: ${line.occasion === "checkpoint" ? "" : `${line.occasion} after `}checkpoint ${line.checkpoint}${line.redo ? ", again" : ""}</h3>
      <span class="buttons"><a class="button" href=${`#/job/${jid}/ledger/${Math.max(0, number - 1)}`}>Older</a> <a class="button" href=${`#/job/${jid}/ledger/${number + 1}`}>Newer</a> <a class="button" href=${`#/job/${jid}/ledger`}>All</a></span></div>
    <${Facts} facts=${[
      ["Decided", time(line.decided)], ["Epoch", line.epoch], ["Parallelism", count(line.parallelism)],
      ["Watermark", time(line.watermark)], ["All visible", committed === null ? "yes, later records follow" : committed ? "yes" : "not noted yet"],
      ...PHASES.filter((p) => !missing(line.durations[p])).map((p) => [p, span(line.durations[p])]),
    ]} />
    <h4>What it read</h4>
    <${Table} label="Sources" rows=${Object.entries(record.sources || {})} empty="It read nothing." columns=${[
      ["Source", ([name]) => html`<b>${name}</b>`], ["From", ([, s]) => html`<code>${json(s.start)}</code>`, { wide: true }], ["To, not with it", ([, s]) => html`<code>${json(s.end)}</code>`, { wide: true }],
      ["Rows", ([, s]) => count(s.rows), { num: true }], ["Bytes", ([, s]) => bytes(s.bytes), { num: true }],
      ["Identity", ([, s]) => html`<code>${Object.keys(s.identity || {}).length ? json(s.identity) : "–"}</code>`, { wide: true }],
    ]} />
    <h4>What became visible</h4>
    ${Object.entries(record.sinks || {}).map(([name, sink]) => html`<details open=${sink.committables.length > 0 && sink.committables.length <= 20}><summary><b>${name}</b>: ${count(sink.committables.length)} committed, ${count(sink.counts.written)} rows written, ${count(sink.counts.dead_lettered)} dead letters, ${count(sink.counts.late)} late, ${count(sink.counts.filtered)} filtered</summary>
      <${Table} label=${`Commits of ${name}`} rows=${sink.committables.slice(0, 200)} empty="Nothing: what was written waits for a later decision." columns=${[
        ["File or transaction", (c) => html`<code>${called(c)}</code>`, { wide: true }], ["Rows", (c) => count(c.rows), { num: true }], ["Bytes", (c) => bytes(c.bytes), { num: true }],
        ["Made of", (c) => (c.segments ? `${c.segments.length} segment${c.segments.length === 1 ? "" : "s"}` : "–")], ["Events", (c) => (missing(c.min_ms) ? "–" : `${time(c.min_ms)} to ${time(c.max_ms)}`)],
      ]} />
      ${sink.wrote && html`<p><small>Wrote ${count(sink.wrote.rows)} rows, ${bytes(sink.wrote.bytes)}, in ${count(sink.wrote.pieces)} pieces; digest <code>${sink.wrote.digest || "–"}</code></small></p>`}</details>`)}
    <h4>What changed of the state</h4>
    <${StateChange} state=${record.state} />
    <details><summary>The record, whole</summary><pre class="code">${JSON.stringify(record, null, 2)}</pre></details>`}<//>`;
}

function StateChange({ state }) {
  if (!state) return html`<${Empty}>It says nothing of keyed state.<//>`;
  const changes = Object.entries(state.change || {});
  if (!changes.length) return html`<p>It says all there is: ${Object.entries(state.manifest || {}).map(([stage, m]) => `${stage} with ${(m.files || []).length} files`).join(", ") || "nothing is kept"}.</p>`;
  return changes.map(([stage, change]) => html`<p><b>${stage}</b></p><${Table} label=${`State files of ${stage}`} rows=${change.added || []} empty="No file was added." columns=${[
    ["Added", (f) => html`<code>${f.name}</code>`, { wide: true }], ["Key groups", (f) => `${f.first} to ${f.stop - 1}`], ["Rows", (f) => count(f.rows), { num: true }], ["Bytes", (f) => bytes(f.bytes), { num: true }], ["Digest", (f) => html`<code>${f.digest}</code>`],
  ]} /><p><small>${count((change.parts || []).reduce((n, p) => n + (p.removed || []).length, 0))} references to older files were removed.</small></p>`);
}

