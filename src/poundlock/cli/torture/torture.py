"""One torture: the sample is taken, the job runs undisturbed, then it is killed as planned, and both outputs are compared."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from poundlock.audit.audit import audit
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli.job_lookup import find_checkpoint, rebuilt_sinks
from poundlock.cli.options import Call
from poundlock.cli.progress_bar import ProgressBar, progress_bar
from poundlock.cli.torture.control import Control, break_output
from poundlock.cli.torture.kills import Kill
from poundlock.cli.torture.lives import LivesOfJob, Service
from poundlock.cli.torture.outputs import comparisons
from poundlock.cli.torture.report import TortureResult
from poundlock.cli.torture.sample import SampleSize, samples_of
from poundlock.cli.torture.sandbox import RUNS, TORTURED, UNDISTURBED, Sandbox, job_file
from poundlock.cli.torture.topics import made_topics, named_topics
from poundlock.job import Job
from poundlock.storage import open_storage


@dataclass(frozen=True, kw_only=True)
class Torture:
    """A torture of a job.

    Args:
        job: as its file has it.
        target: that file, with `:name`, as any folder knows it.
        root: the folder of the sandbox.
        arguments: behind `poundlock run FILE` in every life.
        size: of the sample.
        patience_s: how long one life may take.
        services: what kills of the kind "service" stop and start.
        control: how the output is broken before it is compared.
    """

    call: Call
    job: Job
    target: str
    root: Path
    kills: Sequence[Kill]
    arguments: Sequence[str]
    size: SampleSize
    patience_s: float
    services: Sequence[Service] = ()
    control: Control | None = None

    def run(self, seed: int, command: str, *, keep: bool) -> TortureResult:
        """Take the sample, run the job twice, and compare.

        Args:
            seed: of the kills.
            command: that repeats it, for the report.
            keep: whether the sandbox and its topics stay although nothing differs. The folder stays wherever something does.

        Raises:
            PoundlockError: the job has nothing to read, or fails by itself.
        """
        sandbox = Sandbox(
            target=self.target,
            root=str(self.root),
            samples=samples_of(self.job, self.root, self.size),
            streaming=not all(node.source.bounded for node in self.job.sources),
            topics=named_topics(self.job),
        )
        sandbox.save()
        with made_topics(self.job, sandbox, keep=keep), progress_bar(self.call.output, "undisturbed run") as bar:
            undisturbed = self._lives(sandbox, UNDISTURBED, bar).run()
            bar.update(0, len(self.kills), "kills")
            tortured = self._lives(sandbox, TORTURED, bar).run(self.kills)
            bar.update(text="comparing")
            broken = "" if self.control is None else break_output(self.job, sandbox, self.control)
            result = TortureResult(
                job=self.job.name,
                seed=seed,
                command=command,
                samples={name: sample.says for name, sample in sandbox.samples.items()},
                undisturbed=undisturbed,
                tortured=tortured,
                checkpoints=(_checkpoints(sandbox, UNDISTURBED), _checkpoints(sandbox, TORTURED)),
                sinks=comparisons(self.job, sandbox, RUNS),
                disagreements=self._audited(sandbox),
                control=broken,
                sandbox=str(self.root),
            )
        if keep or not result.agrees:
            return result
        shutil.rmtree(self.root, ignore_errors=True)
        return replace(result, sandbox="")

    def _lives(self, sandbox: Sandbox, run: str, bar: ProgressBar) -> LivesOfJob:
        def say(line: str) -> None:
            bar.say(line)
            struck.append(line)
            bar.update(len(struck))

        struck: list[str] = []
        folder = sandbox.folder(run)
        own = ["-D", f"state_dir={folder / 'state'}", "-D", f"checkpoint_dir={folder / 'checkpoint'}"]
        return LivesOfJob(
            file=job_file(sandbox, run),
            arguments=[*self.arguments, *own],
            patience_s=self.patience_s,
            say=say,
            services=self.services,
        )

    def _audited(self, sandbox: Sandbox) -> list[str]:
        """Return in what the sinks of the tortured run do not hold what its ledger says."""
        checkpoint = find_checkpoint(str(sandbox.folder(TORTURED) / "checkpoint"), self.call)
        report = audit(Ledger(checkpoint.storage), rebuilt_sinks(checkpoint))
        return [
            f"{sink or 'the ledger'}: {wrong.what}" + (f" ({wrong.path})" if wrong.path else "")
            for sink, wrong in report.disagreements
        ]


def _checkpoints(sandbox: Sandbox, run: str) -> int:
    newest = Ledger(open_storage(str(sandbox.folder(run) / "checkpoint"))).newest()
    return 0 if newest is None else newest.checkpoint + 1
