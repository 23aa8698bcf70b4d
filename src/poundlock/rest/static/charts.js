// Figures of the last hours, drawn by uPlot. Lines differ in their dashes, not in colour alone.
import { html, useEffect, useRef, useState } from "./preact-htm.js";
import { usePoll } from "./api.js";
import { bytes, count, rate, span } from "./format.js";
import { View } from "./ui.js";

const SPANS = [[15, "15 min"], [60, "1 h"], [360, "6 h"], [1440, "24 h"]];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2]];
const CHARTS = [
  ["Rows a second", [["read", "rows_read_per_s"], ["written", "rows_written_per_s"]], (v) => rate(v)],
  ["Bytes a second", [["read", "bytes_read_per_s"], ["written", "bytes_written_per_s"]], (v) => `${bytes(v)}/s`],
  ["Phases of checkpoints, the longest", [["run", "run_ms"], ["verify", "verify_ms"], ["decide", "decide_ms"], ["commit", "commit_ms"], ["plan", "plan_ms"]], (v) => span(v)],
  ["Watermark behind the clock", [["delay", "watermark_delay_s"]], (v) => span(v * 1000)],
  ["Lag, rows", [["lag", "lag"]], count],
  ["Late rows and dead letters a second", [["late", "late_per_s"], ["dead letters", "dead_lettered_per_s"]], (v) => rate(v)],
  ["State", [["size", "state_bytes"]], bytes],
  ["Restarts", [["restarts", "restarts"]], count],
];

export function Charts({ jid, theme }) {
  const [minutes, setMinutes] = useState(60);
  const poll = usePoll(`/jobs/${jid}/series?minutes=${minutes}`, 5000);
  return html`<div class="row" role="group" aria-label="How far back">${SPANS.map(([many, name]) => html`<button aria-pressed=${minutes === many} onClick=${() => setMinutes(many)}>${name}</button>`)}</div>
    <${View} poll=${poll}>${(data) => html`
      ${data.truncated && html`<div class="notice">There were more checkpoints in this time than are read; the older ones are left out.</div>`}
      <div class="charts">${CHARTS.filter(([, lines]) => lines.some(([, name]) => data.columns[name].some((v) => v !== null))).map(([title, lines, show]) => html`<${Chart} key=${title} title=${title} lines=${lines.filter(([, name]) => data.columns[name].some((v) => v !== null))} show=${show} data=${data} theme=${theme} />`)}</div>
      ${!data.columns.checkpoints.some((v) => v !== null) && html`<p class="empty">No checkpoint was decided in this time.</p>`}`}<//>`;
}

function Chart({ title, lines, show, data, theme }) {
  const box = useRef(null);
  const plot = useRef(null);
  const columns = [data.time.map((ms) => ms / 1000), ...lines.map(([, name]) => data.columns[name])];
  const shape = lines.map(([name]) => name).join();
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const hour = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
    plot.current = new window.uPlot({
      width: Math.max(260, box.current.clientWidth), height: 190, cursor: { sync: { key: "poundlock" } },
      tzDate: (seconds) => window.uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      axes: [{ ...axis, values: (_, ticks) => ticks.map(hour) }, { ...axis, size: 86, values: (_, ticks) => ticks.map((v) => show(v)) }],
      scales: { y: { range: (_, least, most) => (least === null ? [0, 1] : [Math.min(0, least), most === 0 ? 1 : most * 1.08]) } },
      series: [{ label: "UTC", value: (_, v) => (v === null ? "–" : new Date(v * 1000).toISOString().slice(11, 19)) }, ...lines.map(([name], n) => ({
        label: name, stroke: color(`--chart-${n + 1}`), width: 2, dash: DASHES[n], spanGaps: true, points: { show: false }, value: (_, v) => (v === null || v === undefined ? "–" : show(v)),
      }))],
    }, columns, box.current);
    const resized = new ResizeObserver(() => plot.current.setSize({ width: Math.max(260, box.current.clientWidth), height: 190 }));
    resized.observe(box.current);
    return () => { resized.disconnect(); plot.current.destroy(); };
  }, [shape, theme]);
  useEffect(() => { if (plot.current) plot.current.setData(columns); }, [data]);
  const newest = lines.map(([name, column]) => [name, data.columns[column].findLast((v) => v !== null)]);
  return html`<figure class="card"><figcaption>${title} <small>${newest.map(([name, v]) => `${lines.length > 1 ? `${name} ` : ""}${show(v)}`).join(", ")}</small></figcaption><div ref=${box} role="img" aria-label=${`${title}: newest ${newest.map(([name, v]) => `${name} ${show(v)}`).join(", ")}`}></div></figure>`;
}
