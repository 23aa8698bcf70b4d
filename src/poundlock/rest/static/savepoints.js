// Savepoints: those there are, taking one, stopping or cancelling with one, and removing one.
import { html } from "./preact-htm.js";
import { ask, done, usePoll } from "./api.js";
import { ago, bytes, count, time } from "./format.js";
import { Table, View } from "./ui.js";

const FOLDER = { name: "directory", label: "Folder, empty = the usual one", placeholder: "/savepoints or s3://bucket/savepoints" };

// Each is what `Confirm` asks; `tell` gets a line when it is done.
export function operations(job, tell) {
  const at = `/jobs/${job.jid}`;
  const folder = (values) => (values.directory ? values.directory.trim() : "");
  return {
    checkpoint: {
      title: `Take a checkpoint of ${job.name} now?`, text: "The job goes on.", confirm: "Take a checkpoint",
      act: async () => {
        const { "request-id": id } = await ask("POST", `${at}/checkpoints`, {});
        const { checkpointId } = await done(`${at}/checkpoints/${id}`);
        tell(`Checkpoint ${checkpointId} is committed.`);
      },
    },
    savepoint: {
      title: `Take a savepoint of ${job.name}?`, text: "The job goes on. A savepoint is a copy of its whole state from which another run can begin.", confirm: "Take the savepoint", fields: [FOLDER],
      act: async (values) => {
        const body = folder(values) ? { "target-directory": folder(values) } : {};
        const { "request-id": id } = await ask("POST", `${at}/savepoints`, body);
        const { location } = await done(`${at}/savepoints/${id}`);
        tell(`Savepoint completed: ${location}`);
      },
    },
    stop: {
      title: `Stop ${job.name} with a savepoint?`, text: "The running checkpoint is finished, a savepoint is taken, and the job ends.", confirm: "Stop with a savepoint", danger: true, keep: "Let it run",
      fields: [FOLDER, { name: "drain", kind: "check", label: "Drain: fire every window and timer first. The job is then over for good." }],
      act: async (values) => {
        const body = { drain: !!values.drain };
        if (folder(values)) body.targetDirectory = folder(values);
        else body.targetDirectory = await usual(at);
        const { "request-id": id } = await ask("POST", `${at}/stop`, body);
        const { location } = await ended(() => done(`${at}/savepoints/${id}`));
        tell(location ? `Stopped with the savepoint ${location}` : "The job has stopped. Its savepoint is in the list of savepoints.");
      },
    },
    halt: {
      title: `Stop ${job.name} without a savepoint?`, text: "The running checkpoint and all pending files are finished, and the job ends. The next run goes on from there.", confirm: "Stop", danger: true, keep: "Let it run",
      act: async () => {
        await ask("POST", `${at}/stop`, {});
        tell("The job was asked to stop.");
      },
    },
    cancel: {
      title: `Cancel ${job.name} at once?`, text: "Pending data stays hidden for the next start, and nothing is lost. No savepoint is taken.", confirm: "Cancel the job", danger: true, keep: "Let it run",
      act: async () => {
        await ask("PATCH", `${at}?mode=cancel`);
        tell("The job was asked to cancel.");
      },
    },
  };
}

async function usual(at) {
  const { folder } = await ask("GET", `${at}/savepoints`);
  if (!folder) throw new Error("The job's usual folder is not known: name a folder.");
  return folder;
}

// A job's own server goes with the job: that it no longer answers is no failure of what was asked.
async function ended(what) {
  try { return await what(); } catch (error) {
    if (error.status) throw error;
    return {};
  }
}

const dispose = (savepoint, tell, again) => ({
  title: "Remove this savepoint?", text: `${savepoint.path} is deleted for good, and no job can begin from it any more.`, confirm: "Remove it", danger: true, keep: "Keep it",
  act: async () => {
    const { "request-id": id } = await ask("POST", "/savepoint-disposal", { "savepoint-path": savepoint.path });
    await done(`/savepoint-disposal/${id}`);
    tell(`Removed ${savepoint.path}`);
    again();
  },
});

export function Savepoints({ jid, card, confirm, tell }) {
  const poll = usePoll(`/jobs/${jid}/savepoints`, 4000);
  const can = operations(card, tell);
  return html`<div class="buttons">
      <button class="primary" disabled=${!card.operable} onClick=${() => confirm(can.savepoint)}>Take a savepoint …</button>
      <button disabled=${!card.operable} onClick=${() => confirm(can.stop)}>Stop with a savepoint …</button></div>
    <${View} poll=${poll}>${(data) => html`${data.folder && html`<p><small>Of ${data.folder}, and retained checkpoints.</small></p>`}
      <${Table} label="Savepoints" rows=${data.savepoints} empty="There is no savepoint of this job in its usual folder." rowId=${(s) => s.path} columns=${[
        ["Path", (s) => html`<code>${s.path}</code>${s.trouble ? html`<br /><small>${s.trouble}</small>` : ""}`, { wide: true }], ["Kind", (s) => s.kind], ["Taken", (s) => html`<span title=${time(s.created)}>${ago(s.created)}</span>`],
        ["Checkpoint", (s) => count(s.checkpoint), { num: true }], ["Size", (s) => bytes(s.bytes), { num: true }],
        ["", (s) => (s.kind === "savepoint" ? html`<button class="danger small" onClick=${() => confirm(dispose(s, tell, poll.again))}>Remove …</button>` : html`<small>goes by itself</small>`)],
      ]} /><p><small>Begin from one: <code>poundlock run -s PATH job.py</code></small></p>`}<//>`;
}
