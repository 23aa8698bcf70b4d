// The list of jobs.
import { html, useState } from "./preact-htm.js";
import { usePoll } from "./api.js";
import { ago, count, delay, rate, short, span, time } from "./format.js";
import { Badge, Empty, Table, Trouble, View } from "./ui.js";

export function Jobs({ go }) {
  const poll = usePoll("/dashboard/jobs", 2000);
  const [filter, setFilter] = useState("");
  const [ended, setEnded] = useState(true);
  return html`<main id="main" tabindex="-1"><${View} poll=${poll}>${(data) => {
    const wanted = filter.toLowerCase();
    const match = (job) => [job.name, job.jid, job.state, job.host, job.checkpoint_dir].some((text) => text.toLowerCase().includes(wanted));
    const running = data.jobs.filter((job) => job.ended === null && job.operable && match(job));
    const over = data.jobs.filter((job) => !(job.ended === null && job.operable) && match(job));
    return html`
      ${data.unreadable.map((what) => html`<div class="notice bad" role="alert"><b>A folder shows no job.</b> ${what}</div>`)}
      <div class="row between"><h1>Jobs</h1>
        <label class="filter">Filter <input type="search" id="filter" value=${filter} placeholder="name, id, state, folder" onInput=${(e) => setFilter(e.target.value)} /></label></div>
      <h2>Running <small>${running.length}</small></h2>
      <${List} jobs=${running} now=${data.now} go=${go} empty=${filter ? "No running job matches." : "No job is running. Start one: poundlock run job.py"} />
      <h2><button class="plain" aria-expanded=${ended} onClick=${() => setEnded(!ended)}>${ended ? "▾" : "▸"} Ended</button> <small>${over.length}</small></h2>
      ${ended && html`<${List} jobs=${over} now=${data.now} go=${go} over=${true} empty="No job has ended." />`}`;
  }}<//></main>`;
}

function List({ jobs, now, go, over, empty }) {
  const columns = [
    ["Job", (job) => html`<a href=${`#/job/${job.jid}`}>${job.name}</a><br /><small class="mono">${job.jid.slice(0, 8)}</small>`],
    ["State", (job) => html`<${Badge} state=${job.state} />${job.failure ? html`<br /><small class="why">${job.failure[0]}</small>` : ""}`, { wide: true }],
    ["Started", (job) => html`<span title=${time(job.started)}>${ago(job.started, now)}</span>`],
    over && ["Ran", (job) => span((job.ended || job.written || now) - job.started)],
    !over && ["Rows/s", (job) => rate(job.rows_per_s), { num: true }],
    ["Rows read", (job) => html`<span title=${count(job.rows_read)}>${short(job.rows_read)}</span>`, { num: true }],
    !over && ["Lag", (job) => short(job.lag), { num: true }],
    !over && ["Watermark behind", (job) => html`<span title=${time(job.watermark)}>${delay(job.watermark, now)}</span>`, { num: true }],
    ["Checkpoint", (job) => count(job.checkpoint), { num: true }],
    !over && ["Took", (job) => span(job.last_ms), { num: true }],
    ["Dead letters", (job) => count(job.dead_lettered), { num: true }],
    ["Restarts", (job) => count(job.restarts), { num: true }],
    ["Where", (job) => html`${job.application || job.host}`],
  ].filter(Boolean);
  return html`<${Table} columns=${columns} rows=${jobs} label="Jobs" empty=${empty} rowId=${(job) => job.jid} onRow=${(job) => go(`#/job/${job.jid}`)} />`;
}
