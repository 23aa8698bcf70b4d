"""`poundlock deploy`: a systemd unit or Kubernetes objects for a job, on standard output or in a file; installs nothing."""

from __future__ import annotations

import getpass
import json as jsons
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from poundlock.cli.options import Call, JobArgument, JsonOption, MasterOption, ParallelismOption, with_shared_options
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, refusing

if TYPE_CHECKING:
    from poundlock.deploy.job import Deployed


app = typer.Typer(help="Files that have a job run by systemd or Kubernetes.", no_args_is_help=True)

NameOption = Annotated[str | None, Option("--name", help="Name of the unit or objects; default: of the job.")]
OutputOption = Annotated[
    Path | None, Option("-o", "--output", metavar="PATH", help="Write into a file instead of printing.")
]
EnvOption = Annotated[
    list[str] | None, Option("--env", metavar="KEY=VALUE", help="A variable of the job's environment.")
]
StandbyOption = Annotated[
    bool, Option("--standby", help="For a driver that another one stands by for, or that stands by itself.")
]
GraceOption = Annotated[str, Option("--stop-timeout", metavar="DURATION", help="How long a clean stop may take.")]


@app.command("systemd")
@with_shared_options
def systemd(
    job: JobArgument,
    name: NameOption = None,
    user: Annotated[bool, Option("--user", help="For your own manager: systemctl --user.")] = False,
    run_as: Annotated[
        str | None, Option("--run-as", metavar="USER", help="User of a system unit; default: you.")
    ] = None,
    env: EnvOption = None,
    env_file: Annotated[
        Path | None, Option("--env-file", metavar="FILE", help="File of variables, for secrets.")
    ] = None,
    grace: GraceOption = "5 min",
    standby: StandbyOption = False,
    output: OutputOption = None,
    *,
    call: Call,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
) -> None:
    """Print a systemd unit for a job."""
    from poundlock.deploy.systemd import install_commands, render, unit_name

    if user and run_as is not None:
        raise DefinitionError(
            "--run-as is for system units, and --user makes another kind", next="leave one of them out"
        )
    if run_as is not None and not re.fullmatch(r"\w[\w.@-]*\$?", run_as):
        raise DefinitionError(f"--run-as {run_as!r} is no name of a user", next="give one that the machine has")
    if env_file is not None and not env_file.is_absolute():
        raise DefinitionError(f"--env-file {env_file} is not absolute", next=f"write --env-file {env_file.absolute()}")
    instead = "put it into a file and name it with --env-file"
    deployed, file = _deployed(job, env, grace, call, master, parallelism, instead)
    if file is not None and (call.config is not None or os.environ.get("POUNDLOCK_CONFIG")):
        deployed = _with(deployed, "--config", str(file))
    if standby:
        deployed = _standing_by(deployed)
    unit = render(
        deployed,
        name=unit_name(name or f"poundlock-{deployed.job.name}"),
        user=user,
        run_as=run_as or getpass.getuser(),
        environment_file=env_file,
        folder=Path.cwd(),
        standby=standby,
    )
    path = _place(output, unit.name)
    commands = install_commands(unit, path, user=user)
    data = {"name": unit.name, "path": path and str(path), "sections": unit.sections, "install": commands}
    _deliver(call.output, unit.text, path, 0o644, data, commands)


@app.command("image")
def image(
    packages: Annotated[
        list[str] | None, Argument(metavar="[PACKAGE]...", help="What pip installs; default: poundlock[kafka,rest].")
    ] = None,
    spark: Annotated[
        str | None,
        Option(
            "--spark",
            metavar="VERSION",
            help="Version of pyspark, or newest; default: the one that is installed here.",
        ),
    ] = None,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Print a Dockerfile for driver and executors in Kubernetes."""
    import sys

    from poundlock.deploy.executor_pods import image_recipe

    for package in packages or ():
        if not package.strip() or set(package) & set('"\\$`\n'):
            raise DefinitionError(f"{package!r} is not what pip installs", next='write such as "poundlock[kafka,rest]"')
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    pinned = _spark_of_image(spark, packages or ())
    text = image_recipe(packages or ["poundlock[kafka,rest]"], python=version, spark=pinned)
    path = _place(output, "Dockerfile")
    commands = [f"docker build -t IMAGE -f {path or 'Dockerfile'} ."]
    _deliver(Output(json), text, path, 0o644, {"path": path and str(path), "text": text, "spark": pinned}, commands)


def _spark_of_image(asked: str | None, packages: Sequence[str]) -> str | None:
    """Return the version of pyspark that an image gets; None where packages say it, or the newest is wanted.

    What runs here is what the job was tried with; driver and executors that differ from it may not even read its checkpoint's Spark jobs alike.

    Raises:
        DefinitionError: it is asked for twice, or is no version that poundlock runs on.
    """
    from poundlock.deploy.executor_pods import names_spark
    from poundlock.versions import version_of

    named = next((package for package in packages if names_spark(package)), None)
    if named is not None:
        if asked is not None:
            raise DefinitionError(
                f"--spark {asked} and {named!r} both say which Spark the image has", next="leave one of them out"
            )
        return None
    if asked == "newest":
        return None
    version = version_of("pyspark") if asked is None else asked
    if not re.fullmatch(r"[0-9]+(\.[0-9]+){1,2}((a|b|rc|\.dev|\.post)[0-9]+)?", version):
        if asked is None:  # its classes came from elsewhere than a package
            return None
        raise DefinitionError(f"--spark {asked} is no version of Spark", next="write such as --spark 4.2.1, or newest")
    if not (version[:3] == "3.5" or version.startswith("4.")):
        raise DefinitionError(
            f"--spark {version}: poundlock runs on Spark 3.5 and on Spark 4", next="write such as --spark 4.2.1"
        )
    return version


@app.command("kubernetes")
@with_shared_options
def kubernetes(
    job: JobArgument,
    image: Annotated[
        str,
        Option("--image", metavar="IMAGE", help="Image with Python, poundlock[rest], Java and what the job imports."),
    ],
    name: NameOption = None,
    namespace: Annotated[str | None, Option("-n", "--namespace", help="Where the objects go.")] = None,
    storage: Annotated[str, Option("--storage", help="Size of the volume of state.")] = "10Gi",
    storage_class: Annotated[str | None, Option("--storage-class", help="Class of that volume.")] = None,
    cpu: Annotated[int, Option("--cpu", min=1, help="Cores.")] = 1,
    rest_port: Annotated[int, Option("--rest-port", min=1, max=65535, help="Port of REST.")] = 8081,
    token_secret: Annotated[
        str | None, Option("--token-secret", help='Secret that has the REST token as "token"; default: one is made.')
    ] = None,
    tls_secret: Annotated[
        str | None, Option("--tls-secret", help="Secret of the type kubernetes.io/tls; default: REST has no TLS.")
    ] = None,
    env: EnvOption = None,
    env_secret: Annotated[str | None, Option("--env-secret", help="Secret whose entries become variables.")] = None,
    grace: GraceOption = "5 min",
    standby: StandbyOption = False,
    output: OutputOption = None,
    *,
    call: Call,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
) -> None:
    """Print Kubernetes objects for a job: a stateful set of one pod."""
    from poundlock.deploy.kubernetes import KubernetesCluster, install_commands, refuse_volume, render
    from poundlock.deploy.yaml import documents

    instead = "put it into a Secret and name it with --env-secret"
    deployed, file = _deployed(job, env, grace, call, master, parallelism, instead)
    if deployed.job.parallelism is None and deployed.settings.parallelism is None and master is None:
        deployed = _with(deployed, "-p", str(cpu))  # Java would count the cores of the node
    cluster = KubernetesCluster(
        name=name or deployed.job.name,
        image=image,
        namespace=namespace,
        storage=storage,
        storage_class=storage_class,
        cpu=cpu,
        rest_port=rest_port,
        token_secret=token_secret,
        tls_secret=tls_secret,
        env_secret=env_secret,
        executors=deployed.settings.master.startswith("k8s://"),
        standby=standby,
    )
    if standby:
        deployed = _standing_by(deployed)
        refuse_volume(deployed)
    objects, as_json = render(deployed, cluster, config=file), call.output.as_json
    whole = {"apiVersion": "v1", "kind": "List", "items": objects}
    path = _place(output, f"{cluster.name}.{'json' if as_json else 'yaml'}")
    text = jsons.dumps(whole, indent=2) + "\n" if as_json and path is not None else documents(objects)
    commands = install_commands(cluster, path)
    data: Any = whole if path is None else {"path": str(path), "install": commands}
    _deliver(call.output, text, path, 0o600, data, commands)  # it has the token


def _deployed(
    job: str,
    env: Sequence[str] | None,
    grace: str,
    call: Call,
    master: str | None,
    parallelism: int | None,
    instead: str,
) -> tuple[Deployed, Path | None]:
    """Return the job to deploy, and the settings file in use."""
    from poundlock.cli.job_loader import load_job, split_target
    from poundlock.config import CONFIG_FILE
    from poundlock.deploy.job import Deployed, environment, grace_seconds, options, refuse_secrets
    from poundlock.driver.driver import with_settings
    from poundlock.plan.guarantees import check_required
    from poundlock.plan.plan import make_plan

    settings = call.settings(master=master, parallelism=parallelism)
    refuse_secrets(settings, call.define, instead=instead)
    file, variable = split_target(job)
    loaded = load_job(job)
    check_required(make_plan(with_settings(loaded, settings)))
    deployed = Deployed(
        job=loaded,
        file=file.absolute(),
        variable=variable,
        settings=settings,
        arguments=options(call.define, master, parallelism),
        environment=environment(env or (), instead=instead),
        grace_s=grace_seconds(grace),
    )
    named = call.config or os.environ.get("POUNDLOCK_CONFIG") or CONFIG_FILE
    path = Path(named).expanduser().absolute()
    return deployed, path if path.is_file() else None


def _standing_by(deployed: Deployed) -> Deployed:
    from poundlock.driver.standby.standby import refuse_standby

    refuse_standby(deployed.job, deployed.settings)
    return _with(deployed, "--standby")


def _with(deployed: Deployed, *more: str) -> Deployed:
    return replace(deployed, arguments=[*deployed.arguments, *more])


def _place(output: Path | None, name: str) -> Path | None:
    return output / name if output is not None and output.is_dir() else output


def _deliver(output: Output, text: str, path: Path | None, mode: int, data: Any, commands: Sequence[str]) -> None:
    """Show what was rendered, or write it into a file, whole or not at all, and show what to type then."""
    from poundlock.control.registry import write_whole

    if path is None:
        output.show(text.rstrip("\n"), data)
        return
    with refusing(f"{path} cannot be written", next="give -o a place that you may write to"):
        write_whole(path, text.encode(), mode)
    output.show([f"wrote {path}", *(f"  {command}" for command in commands)], data)
