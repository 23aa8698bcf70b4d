// What views share: badges, tables, notices, dialogs.
import { html, useEffect, useRef, useState } from "./preact-htm.js";
import { clock } from "./format.js";

const MARKS = {
  RUNNING: "●", INITIALIZING: "…", RESTARTING: "↻", CANCELLING: "◌", FINISHED: "✓", CANCELED: "⊘", FAILED: "✕",
};

export const Badge = ({ state }) => html`<span class=${`badge ${state}`}><span aria-hidden="true">${MARKS[state] || "?"}</span> ${state}</span>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

// What cannot be read now, with what was read last still below it.
export function Trouble({ poll }) {
  if (!poll.error) return null;
  const old = poll.at ? ` What is shown is of ${clock(poll.at)}.` : "";
  const lost = !poll.error.status;
  return html`<div class="notice bad" role="alert"><b>${lost ? "The server does not answer." : poll.error.message}</b> ${lost ? "It is asked again every few seconds." : poll.error.next}${old}</div>`;
}

export function View({ poll, children }) {
  return html`<${Trouble} poll=${poll} />${poll.data ? children(poll.data) : poll.error ? null : html`<p class="empty" aria-busy="true">Loading …</p>`}`;
}

// columns: [heading, cell(row), options { num, wide, id }]
export function Table({ columns, rows, label, empty = "There is nothing yet.", onRow, rowId }) {
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map(([name, , how = {}]) => html`<th scope="col" class=${how.num ? "num" : ""}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row, n) => html`<tr key=${rowId ? rowId(row) : n} class=${onRow ? "link" : ""} onClick=${onRow ? (event) => { if (!event.target.closest("a,button")) onRow(row); } : null}>
      ${columns.map(([name, cell, how = {}]) => html`<td data-name=${name} class=${`${how.num ? "num" : ""} ${how.wide ? "wide" : ""}`}>${cell(row)}</td>`)}
    </tr>`)}</tbody></table></div>`;
}

export const Facts = ({ facts }) => html`<dl class="facts">${facts.filter(Boolean).map(([name, value, title]) => html`<div title=${title || ""}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

export function Bar({ value, label }) {
  const part = Math.max(0, Math.min(1, value || 0));
  return html`<meter class="bar" min="0" max="1" value=${part} title=${label} aria-label=${label}>${label}</meter>`;
}

// A question before something happens. `ask` is { title, text, confirm, danger, fields, act } or null.
export function Confirm({ ask, close }) {
  const box = useRef(null);
  const [values, set] = useState({});
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    set({}); setError(null); setBusy(false);
    if (ask && box.current && !box.current.open) box.current.showModal();
  }, [ask]);
  if (!ask) return null;
  const act = async (event) => {
    event.preventDefault();
    setBusy(true); setError(null);
    try {
      await ask.act(values);
      close();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return html`<dialog ref=${box} onClose=${close} aria-labelledby="confirm-title">
    <form onSubmit=${act}>
      <h2 id="confirm-title">${ask.title}</h2>
      <p>${ask.text}</p>
      ${(ask.fields || []).map((field) => field.kind === "check"
        ? html`<label class="check"><input type="checkbox" checked=${!!values[field.name]} onChange=${(e) => set({ ...values, [field.name]: e.target.checked })} /> ${field.label}</label>`
        : html`<label>${field.label}<input type="text" spellcheck="false" autocomplete="off" placeholder=${field.placeholder || ""} value=${values[field.name] || ""} onInput=${(e) => set({ ...values, [field.name]: e.target.value })} /></label>`)}
      ${error && html`<div class="notice bad" role="alert"><b>${error.message}</b> ${error.next || ""}</div>`}
      <div class="buttons">
        <button type="button" autofocus onClick=${() => box.current.close()} disabled=${busy}>${ask.keep || "Leave it"}</button>
        <button type="submit" class=${ask.danger ? "danger" : "primary"} disabled=${busy}>${busy ? "Working …" : ask.confirm}</button>
      </div>
    </form></dialog>`;
}

export const Copy = ({ text }) => html`<code class="path">${text}</code>`;
