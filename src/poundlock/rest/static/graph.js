// The job as a picture, laid out by dagre: sources, steps, segments of Spark's and sinks, with figures at each.
import { html, useEffect, useMemo, useRef, useState } from "./preact-htm.js";
import * as dagre from "./dagre.js";
import { usePoll } from "./api.js";
import { bytes, count, delay, missing, rate, share, short, time } from "./format.js";
import { Facts, Table, View } from "./ui.js";

const WIDTH = 184, LINE = 17, HEAD = 44;
const KINDS = {
  source: "source", step: "step", keyed: "keyed step", partitioned: "spread step", spark: "Spark SQL", sink: "sink", "dead letters": "dead letters",
};

function figures(node, now) {
  const f = node.figures, lines = [];
  if (!missing(f.rows_per_s)) lines.push(["rows", rate(f.rows_per_s)]);
  else if (!missing(f.rows)) lines.push(["rows", short(f.rows)]);
  if (!missing(f.bytes_per_s)) lines.push(["bytes", `${bytes(f.bytes_per_s)}/s`]);
  if (!missing(f.lag)) lines.push(["lag", short(f.lag)]);
  if (!missing(f.watermark)) lines.push(["behind", delay(f.watermark, now)]);
  if (!missing(f.state_bytes)) lines.push(["state", bytes(f.state_bytes)]);
  if (!missing(f.busy)) lines.push(["busy", share(f.busy)]);
  if (!missing(f.skew) && f.skew > 1.5) lines.push(["skew", `${f.skew.toFixed(1)} ×`]);
  return lines;
}

// Room is for as many lines as a node can ever have, so that nothing jumps when a figure comes or goes.
const room = (node) => HEAD + 6 + LINE * ({ source: 6, keyed: 5, sink: 3, "dead letters": 3 }[node.kind] || 2);

function layout(graph, down) {
  const g = new dagre.Graph({ compound: true, multigraph: true });
  g.setGraph({ rankdir: down ? "TB" : "LR", nodesep: 24, ranksep: down ? 40 : 44, marginx: 14, marginy: 14 });
  g.setDefaultEdgeLabel(() => ({}));
  graph.nodes.forEach((node) => g.setNode(`n ${node.id}`, { width: WIDTH, height: room(node) }));
  graph.stages.filter((stage) => stage.nodes.length).forEach((stage) => {
    g.setNode(`s ${stage.number}`, {});
    stage.nodes.forEach((id) => g.setParent(`n ${id}`, `s ${stage.number}`));
  });
  graph.edges.forEach((edge) => g.setEdge(`n ${edge.source}`, `n ${edge.target}`, {
    width: edge.ship === "forward" ? 1 : 78, height: 16, labelpos: "c",
  }));
  dagre.layout(g);
  return g;
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const path = (points) => points.map((p, n) => `${n ? "L" : "M"}${p.x.toFixed(1)},${p.y.toFixed(1)}`).join("");

export function Graph({ jid }) {
  const poll = usePoll(`/jobs/${jid}/graph`, 2000);
  const [picked, pick] = useState(null);
  const [down, setDown] = useState(matchMedia("(max-width: 700px)").matches);
  useEffect(() => {
    const narrow = matchMedia("(max-width: 700px)");
    const changed = () => setDown(narrow.matches);
    narrow.addEventListener("change", changed);
    return () => narrow.removeEventListener("change", changed);
  }, []);
  return html`<${View} poll=${poll}>${(graph) => {
    const now = Date.now();
    const node = graph.nodes.find((each) => each.id === picked);
    return html`
      <${Facts} facts=${[
        ["Busy", share(graph.busy), "The part of the time in which a checkpoint was under way"],
        ["Parallelism", count(graph.parallelism)],
        ["Watermark", time(graph.watermark)],
        graph.held_by && ["Held back by", graph.held_by],
      ]} />
      <${Picture} graph=${graph} down=${down} picked=${picked} pick=${pick} now=${now} />
      ${node && html`<section class="card" aria-live="polite"><div class="row between"><h3>${node.id}</h3><button onClick=${() => pick(null)}>Close</button></div>
        <p>${KINDS[node.kind] || node.kind}${node.stage ? `, stage ${node.stage}` : ""}: ${node.what}</p>
        <${Facts} facts=${[
          ["Rows", count(node.figures.rows)], ["Rows/s", rate(node.figures.rows_per_s)],
          ["Bytes/s", missing(node.figures.bytes_per_s) ? "–" : `${bytes(node.figures.bytes_per_s)}/s`],
          ["Watermark", time(node.figures.watermark)], ["Lag", count(node.figures.lag)],
          ["State", bytes(node.figures.state_bytes)], ["Entries", count(node.figures.state_rows)],
          ["Busy", share(node.figures.busy), "The part of the time of its tasks in which it had a core"], ["Skew", missing(node.figures.skew) ? "–" : `${node.figures.skew} ×`],
        ]} /></section>`}
      <details><summary>The same as a table</summary>
      <${Table} label="Steps" rows=${graph.nodes} columns=${[
        ["Step", (n) => html`<b>${n.id}</b>`], ["Kind", (n) => KINDS[n.kind] || n.kind], ["Stage", (n) => n.stage || "–", { num: true }],
        ["Reads from", (n) => graph.edges.filter((e) => e.target === n.id).map((e) => `${e.source}${e.ship === "forward" ? "" : ` (${e.ship})`}`).join(", ") || "–"],
        ["Rows/s", (n) => rate(n.figures.rows_per_s), { num: true }], ["Busy", (n) => share(n.figures.busy), { num: true }], ["Lag", (n) => count(n.figures.lag), { num: true }], ["State", (n) => bytes(n.figures.state_bytes), { num: true }],
        ["What", (n) => n.what, { wide: true }],
      ]} /></details>`;
  }}<//>`;
}

function Picture({ graph, down, picked, pick, now }) {
  // Laid out once for a shape; figures change within it.
  const shape = JSON.stringify([graph.nodes.map((n) => [n.id, n.kind]), graph.edges, graph.stages, down]);
  const g = useMemo(() => layout(graph, down), [shape]);
  const box = g.graph();
  const frame = useRef(null);
  if (!graph.nodes.length) return null;
  return html`<div class="picture scroll" ref=${frame} tabindex="0" role="region" aria-label="The job as a picture">
    <svg style=${{ minWidth: `${Math.ceil(box.width * 0.6)}px` }} width=${Math.ceil(box.width)} height=${Math.ceil(box.height)} viewBox=${`0 0 ${Math.ceil(box.width)} ${Math.ceil(box.height)}`} role="group" aria-label=${`${graph.nodes.length} steps`}>
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0L8,4L0,8z" class="tip" /></marker></defs>
      ${graph.stages.filter((s) => s.nodes.length).map((s) => {
        const at = g.node(`s ${s.number}`);
        return html`<g><rect class="stage" x=${at.x - at.width / 2} y=${at.y - at.height / 2} width=${at.width} height=${at.height} rx="10" />
          <text class="stage-name" x=${at.x - at.width / 2 + 9} y=${at.y - at.height / 2 + 13}>stage ${s.number} · ${s.kind}</text></g>`;
      })}
      ${graph.edges.map((e) => {
        const at = g.edge(`n ${e.source}`, `n ${e.target}`);
        const special = e.ship !== "forward";
        return html`<g class=${`edge ${e.ship.replaceAll(" ", "-")}`}><path d=${path(at.points)} marker-end="url(#tip)" />
          ${special && !missing(at.x) && html`<text x=${at.x} y=${at.y + 4}>${e.ship}</text>`}</g>`;
      })}
      ${graph.nodes.map((n) => {
        const at = g.node(`n ${n.id}`), x = at.x - WIDTH / 2, y = at.y - at.height / 2;
        const key = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(n.id); } };
        return html`<g class=${`node ${n.kind.replace(" ", "-")} ${picked === n.id ? "picked" : ""}`} tabindex="0" role="button" aria-label=${`${n.id}, ${KINDS[n.kind] || n.kind}`} onClick=${() => pick(n.id)} onKeyDown=${key}>
          <title>${n.what}</title>
          <rect x=${x} y=${y} width=${WIDTH} height=${at.height} rx=${n.kind === "sink" || n.kind === "source" ? 18 : 6} />
          <text class="kind" x=${x + 14} y=${y + 17}>${KINDS[n.kind] || n.kind}</text>
          <text class="name" x=${x + 14} y=${y + 35}>${clip(n.id, 24)}</text>
          ${figures(n, now).map(([name, value], line) => html`<text class="figure" x=${x + 14} y=${y + HEAD + 11 + line * LINE}>${name}</text><text class="figure value" x=${x + WIDTH - 14} y=${y + HEAD + 11 + line * LINE}>${value}</text>`)}
        </g>`;
      })}
    </svg></div>`;
}
