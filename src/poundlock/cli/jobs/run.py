"""`poundlock run`: runs a job until its input ends or a signal asks it to stop, showing how it goes.

The job runs in a thread of its own: the main one is left to signals, which Spark would otherwise take for itself. The first
SIGINT or SIGTERM finishes the checkpoint and all pending files (exit code 0), the second stops hard and loses nothing, the
third ends the process on the spot (130 or 143 both).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.completion import savepoints
from poundlock.cli.options import (
    AllowNonRestoredOption,
    Call,
    JobArgument,
    MasterOption,
    NewerOutputOption,
    NoRestOption,
    ParallelismOption,
    with_shared_options,
)
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, PoundlockError

if TYPE_CHECKING:
    from poundlock.checkpoint.portable import NewerOutput
    from poundlock.cli.job_endpoint import Presence
    from poundlock.config import Settings
    from poundlock.control.logs import JobLog
    from poundlock.control.supervisor import Supervised
    from poundlock.driver.savepoints.restore import Beginning
    from poundlock.job import Job


@with_shared_options
def command(
    job: JobArgument,
    *,
    call: Call,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
    conf: Annotated[
        list[str] | None, Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's, as for spark-submit.")
    ] = None,
    py_files: Annotated[
        str | None,
        Option("--py-files", metavar="FILES", help="Modules for the tasks of a cluster: a.py,b.zip; comma-separated."),
    ] = None,
    archives: Annotated[
        str | None,
        Option("--archives", metavar="FILES", help="Unpacked beside the tasks: env.tar.gz#env is their Python."),
    ] = None,
    deploy_mode: Annotated[
        str | None,
        Option("--deploy-mode", metavar="client|cluster", help="Where the driver runs; default: client, here."),
    ] = None,
    savepoint: Annotated[
        str | None,
        Option(
            "-s",
            "--from-savepoint",
            metavar="PATH",
            help="Begin with a savepoint or a checkpoint.",
            autocompletion=savepoints,
        ),
    ] = None,
    allow_non_restored: AllowNonRestoredOption = False,
    newer_output: NewerOutputOption = None,
    rename_operator: Annotated[
        list[str] | None,
        Option("--rename-operator", metavar="OLD=NEW", help="Give state in it to an operator with another id."),
    ] = None,
    claim_mode: Annotated[
        str | None,
        Option(
            "--claim-mode",
            "-claim",
            "--claimMode",
            "-rm",
            "--restoreMode",
            metavar="NO_CLAIM|CLAIM",
            help="Whose the savepoint is: yours (default), or the job's, which deletes it after its first checkpoint.",
        ),
    ] = None,
    detached: Annotated[
        bool, Option("-d", "--detached", help="Go on in the background; print the job's id once it runs.")
    ] = False,
    restart: Annotated[
        bool, Option("--restart", help="Start the job's process again when it crashes, as the restart strategy says.")
    ] = False,
    standby: Annotated[
        bool,
        Option("--standby", help="Stand by while another driver runs the job, and go on when that one is gone."),
    ] = False,
    no_rest: NoRestOption = False,
) -> int:
    """Run a job until its input ends or Ctrl-C.

    Ctrl-C finishes the checkpoint and all pending files; a second one stops hard and loses nothing.
    """
    from poundlock.cli.job_endpoint import Presence
    from poundlock.cli.job_loader import load_job
    from poundlock.cli.jobs.detach import detach, supervise
    from poundlock.control.cluster_driver import container
    from poundlock.control.logs import open_log
    from poundlock.control.supervisor import supervised
    from poundlock.driver.progress import StopRequest
    from poundlock.driver.requests import Requests
    from poundlock.spark.launch.dependencies import add_to_path
    from poundlock.spark.launch.java import java_of

    line, output = supervised(), call.output
    where = {"master": master, "parallelism": parallelism, "py_files": py_files, "archives": archives}
    where["deploy_mode"] = deploy_mode
    settings = call.settings(conf=conf or (), rest_enabled=False if no_rest else None, **where)
    beginning = _beginning(savepoint, allow_non_restored, newer_output, claim_mode, rename_operator or ())
    if standby:
        _refuse_with_standby(settings, beginning, restart=restart)
    java_of(settings)
    arguments = [*typed_options(call, conf or (), where, no_rest), *typed_beginning(beginning)]
    arguments += ["--standby"] if standby else []
    if settings.deploy_mode == "cluster":
        if restart:
            raise DefinitionError(
                "--restart starts a driver of this machine again, and --deploy-mode cluster runs it on the cluster",
                next="leave --restart out: YARN starts a driver that died again",
            )
        from poundlock.cli.jobs.submit import submit

        return submit(job, arguments, settings, beginning, output, detached=detached)
    if detached:
        return detach(job, [*arguments, *(["--restart"] if restart else [])], settings, output)
    if restart:
        return supervise(job, [*arguments, *(["--json"] if output.as_json else [])], settings, output)
    if line is not None:
        arguments.append("--restart")
    if beginning is not None and (given := line.situation if line is not None else container()) is not None:
        beginning = dataclasses.replace(beginning, job_id=given.job_id)
    add_to_path(settings)
    loaded = load_job(job)
    with open_log(loaded.name, settings.logs, level=settings.log_level, secrets=settings.secrets()) as log:
        log.logger.info("run", file=job, settings=settings.shown())
        if unnamed := loaded.unnamed_operators():
            log.logger.warning(
                "operators without a name: a savepoint may not find them when the job changes", ids=unnamed
            )
        if line is not None:
            _introduce(line, loaded, settings, log)
        presence = Presence(
            job=loaded,
            settings=settings,
            log=log,
            stop=StopRequest(),
            requests=Requests(),
            job_file=job,
            arguments=[job, *arguments],
            supervised=line,
        )
        presence.take_port()
        try:
            code = _watched(loaded, settings, output, log, presence, beginning, standby=standby)
        except BaseException as error:
            presence.end(error.exit_code if isinstance(error, PoundlockError) else 1, error)
            raise
        presence.end(code)
        return code


def _refuse_with_standby(settings: Settings, beginning: Beginning | None, *, restart: bool) -> None:
    """Raise DefinitionError if something was asked for that does not go with standing by."""
    if settings.deploy_mode == "cluster":
        raise DefinitionError(
            "--standby has a second driver wait on a machine, and --deploy-mode cluster runs it on the cluster",
            next="leave --standby out: YARN starts a driver that died again; or leave --deploy-mode out",
        )
    if restart:
        raise DefinitionError(
            "--restart starts the process of a driver again, and with --standby the other driver has the job by then",
            next="leave --restart out, and have each driver started again by systemd or Kubernetes: poundlock deploy systemd --standby",
        )
    if beginning is not None:
        raise DefinitionError(
            "-s begins a job with a savepoint, and a driver that stands by goes on from the checkpoint of one that runs",
            next="begin it without --standby, in the folder that both reach; then start the standby without -s",
        )


def _introduce(line: Supervised, job: Job, settings: Settings, log: JobLog) -> None:
    """Tell the supervisor how the job is to be restarted, and the log why it was."""
    from poundlock.driver.driver import strategy_of
    from poundlock.driver.restart import strategy_json

    line.tell(strategy=strategy_json(strategy_of(job, settings)))
    if line.situation.restarts:
        why, _ = line.situation.troubles[-1]
        log.logger.warning("started again by the supervisor", restarts=line.situation.restarts, why=why)


def typed_options(call: Call, conf: Sequence[str], given: Mapping[str, object], no_rest: bool) -> list[str]:
    """Return the options as they could be typed."""
    words = [word for flag, options in (("-D", call.define), ("--conf", conf)) for o in options for word in (flag, o)]
    for name, value in {"config": call.config, **given}.items():
        flag = "-p" if name == "parallelism" else f"--{name.replace('_', '-')}"
        words += [] if value is None else [flag, str(value)]
    return [*words, *(["--no-rest"] if no_rest else [])]


def typed_beginning(beginning: Beginning | None) -> list[str]:
    """Return the options that say with which savepoint a job begins, as they could be typed."""
    if beginning is None:
        return []
    words = ["-s", beginning.path, "--on-newer-output", beginning.newer, "--claim-mode", beginning.claim]
    words += [word for old, new in beginning.renamed.items() for word in ("--rename-operator", f"{old}={new}")]
    return [*words, "-n"] if beginning.allow_non_restored else words


def newer_output_of(text: str | None) -> NewerOutput:
    """Return what is to become of output that was finished after a savepoint. Raises DefinitionError."""
    if text not in (None, "refuse", "keep", "retract"):
        raise DefinitionError(f"--on-newer-output={text} is not known", next="use one of refuse, keep, retract")
    return text or "refuse"  # type: ignore[return-value]


def _beginning(
    savepoint: str | None, allow_non_restored: bool, newer: str | None, mode: str | None, renamed: Sequence[str]
) -> Beginning | None:
    output = newer_output_of(newer)
    if savepoint is None:
        if allow_non_restored or newer is not None or mode is not None or renamed:
            raise DefinitionError(
                "-n, --on-newer-output, --rename-operator and --claim-mode are for a savepoint, and none is given",
                next="add -s PATH, or leave them out",
            )
        return None
    from poundlock.driver.savepoints.restore import Beginning
    from poundlock.savepoint.operator_ids import parse_renamed
    from poundlock.savepoint.restore import parse_mode

    return Beginning(
        savepoint,
        allow_non_restored,
        output,
        parse_mode("NO_CLAIM" if mode is None else mode),
        renamed=parse_renamed(renamed),
    )


def _watched(
    job: Job,
    settings: Settings,
    output: Output,
    log: JobLog,
    presence: Presence,
    beginning: Beginning | None,
    *,
    standby: bool,
) -> int:
    from poundlock.cli.jobs.watched import exit_code_of, run_watched
    from poundlock.cli.progress_display import watcher
    from poundlock.cli.signals import signals_asking
    from poundlock.driver.standby.standby import StandbyMode

    with (
        watcher(job.name, log.path, output) as watch,
        signals_asking(presence.stop, watch.say, job) as signals,
    ):
        if presence.supervised is not None:
            presence.supervised.listen(signals.ask, presence.stop)
        # A signal is for this process alone; who means the job asks it over REST or through its folder.
        mode = StandbyMode(on_waiting=presence.standing_by, hands_over=lambda: signals.count > 0) if standby else None
        progress = run_watched(job, settings, log, presence, watch.update, beginning, standby=mode)
        watch.done(progress)
    return exit_code_of(progress, signals)
