// One job: how it goes, what can be asked of it, and the views.
import { html, useEffect, useState } from "./preact-htm.js";
import { usePoll } from "./api.js";
import { ago, count, delay, missing, rate, short, span, time } from "./format.js";
import { Badge, Facts, Trouble } from "./ui.js";
import { Graph } from "./graph.js";
import { Checkpoints, Ledger } from "./checkpoints.js";
import { DeadLetters, Sinks, Watermarks } from "./flow.js";
import { State } from "./state.js";
import { Configuration, Failures, Logs } from "./logs.js";
import { Charts } from "./charts.js";
import { operations, Savepoints } from "./savepoints.js";

export const VIEWS = [
  ["graph", "Graph", Graph], ["checkpoints", "Checkpoints", Checkpoints], ["metrics", "Metrics", Charts], ["watermarks", "Watermarks", Watermarks],
  ["state", "State", State], ["ledger", "Ledger", Ledger], ["sinks", "Sinks", Sinks], ["dead-letters", "Dead letters", DeadLetters],
  ["failures", "Failures", Failures], ["logs", "Logs", Logs], ["savepoints", "Savepoints", Savepoints], ["configuration", "Configuration", Configuration],
];

export function Job({ jid, view, rest, go, confirm, tell, theme }) {
  const poll = usePoll("/dashboard/jobs", 2000);
  const [kept, keep] = useState(null);
  const card = poll.data && poll.data.jobs.find((job) => job.jid === jid);
  useEffect(() => { if (card) keep(card); }, [card]);
  useEffect(() => { document.title = card ? `${card.name} · ${card.state} · poundlock` : "poundlock"; }, [card && card.name, card && card.state]);
  useEffect(() => { const tab = document.getElementById(`tab-${view}`); if (tab) tab.scrollIntoView({ block: "nearest", inline: "center" }); }, [view, !!card]);
  const shown = card || (kept && kept.jid === jid ? kept : null);
  if (!shown) {
    return html`<main id="main" tabindex="-1"><${Trouble} poll=${poll} />${poll.data && html`<div class="notice bad" role="alert"><b>There is no job ${jid}.</b> See the <a href="#/">list of jobs</a>.</div>`}</main>`;
  }
  const now = poll.data ? poll.data.now : Date.now();
  const can = operations(shown, tell);
  const Picked = (VIEWS.find(([id]) => id === view) || VIEWS[0])[2];
  const off = !shown.operable || !!poll.error;
  const arrows = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = VIEWS.findIndex(([id]) => id === view);
    const next = VIEWS[(at + by + VIEWS.length) % VIEWS.length][0];
    event.preventDefault();
    go(`#/job/${jid}/${next}`);
    requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
  };
  return html`<main id="main" tabindex="-1">
    <${Trouble} poll=${poll} />
    <div class="row between head"><h1>${shown.name} <${Badge} state=${shown.state} /></h1>
      <div class="buttons"><button disabled=${off} onClick=${() => confirm(can.checkpoint)}>Checkpoint …</button><button disabled=${off} onClick=${() => confirm(can.savepoint)}>Savepoint …</button>
        <button disabled=${off} onClick=${() => confirm(can.stop)}>Stop with savepoint …</button><button disabled=${off} onClick=${() => confirm(can.halt)}>Stop …</button><button class="danger" disabled=${off} onClick=${() => confirm(can.cancel)}>Cancel …</button></div></div>
    ${shown.failure && html`<div class="notice bad" role="alert"><b>${shown.state === "RESTARTING" ? "It is restarted" : shown.gone ? "It is gone" : "It failed"}: ${shown.failure[0]}</b> ${shown.failure[1] || ""}</div>`}
    <${Facts} facts=${[
      ["Started", html`<span title=${time(shown.started)}>${ago(shown.started, now)}</span>`],
      !missing(shown.ended) && ["Ended", html`<span title=${time(shown.ended)}>${ago(shown.ended, now)}, after ${span(shown.ended - shown.started)}</span>`],
      ["Checkpoint", count(shown.checkpoint)], ["Took", span(shown.last_ms)], ["Rows/s", rate(shown.rows_per_s)],
      ["Read", html`<span title=${count(shown.rows_read)}>${short(shown.rows_read)}</span>`], ["Written", html`<span title=${count(shown.rows_written)}>${short(shown.rows_written)}</span>`],
      ["Lag", short(shown.lag)], ["Watermark behind", html`<span title=${time(shown.watermark)}>${delay(shown.watermark, now)}</span>`],
      ["Dead letters", count(shown.dead_lettered)], ["Restarts", count(shown.restarts)],
    ]} />
    <div class="tabs" role="tablist" aria-label="Views" onKeyDown=${arrows}>${VIEWS.map(([id, name]) => html`<a id=${`tab-${id}`} role="tab" href=${`#/job/${jid}/${id}`} aria-selected=${id === view} aria-controls="view" tabindex=${id === view ? 0 : -1}>${name}</a>`)}</div>
    <div id="view" role="tabpanel" aria-labelledby=${`tab-${view}`}><${Picked} key=${`${jid} ${view} ${rest || ""}`} jid=${jid} card=${shown} rest=${rest} go=${go} confirm=${confirm} tell=${tell} theme=${theme} /></div></main>`;
}
