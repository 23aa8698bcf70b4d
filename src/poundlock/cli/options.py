"""Options that several commands share, each with one spelling and one help text, and those that nearly all have as one `Call`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Argument, Option

from poundlock.cli.output import Output

if TYPE_CHECKING:
    from poundlock.config import Settings

T = TypeVar("T")

JobArgument = Annotated[str, Argument(metavar="JOB.PY[:NAME]", help="File of the job; :NAME where it defines several.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
MasterOption = Annotated[
    str | None, Option("--master", metavar="MASTER", help="local[N], spark://HOST:PORT, yarn or k8s://URL.")
]
ParallelismOption = Annotated[
    int | None,
    Option(
        "-p", "--parallelism", min=1, help="Number of tasks, and the cores asked of a cluster; default: those it gives."
    ),
]
AllowNonRestoredOption = Annotated[
    bool, Option("-n", "--allow-non-restored-state", help="Leave state behind that the job has no operator for.")
]
NewerOutputOption = Annotated[
    str | None,
    Option(
        "--on-newer-output", metavar="refuse|keep|retract", help="Output finished after the savepoint; default: refuse."
    ),
]
NoRestOption = Annotated[bool, Option("--no-rest", help="Serve no REST.")]


@dataclass(frozen=True)
class Call:
    """What a command is given beside its own options: where its result goes, and which settings hold."""

    output: Output = field(default_factory=Output)
    define: Sequence[str] = ()
    config: Path | None = None

    def settings(self, **typed: Any) -> Settings:
        """Return the settings of the run; see `load_settings`."""
        from poundlock.config import load_settings

        return load_settings(self.define, config=self.config, **typed)


def _shared(
    json: JsonOption = False,
    define: Annotated[
        list[str] | None,
        Option("-D", metavar="KEY=VALUE", help="A setting; wins over environment and file. spark.… goes to Spark."),
    ] = None,
    config: Annotated[
        Path | None,
        Option("--config", metavar="FILE", help="Settings file; default: poundlock.toml where there is one."),
    ] = None,
) -> Call:
    return Call(Output(json), define or (), config)


def with_shared_options(command: Callable[..., T]) -> Callable[..., T]:
    """Have --json, -D and --config stand where `call` does among a command's parameters, and hand them on as that."""
    shared = inspect.signature(_shared, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def called(**given: Any) -> T:
        call = _shared(**{name: given.pop(name) for name in shared})
        return command(call=call, **given)

    parameters = []
    for name, each in signature.parameters.items():
        parameters += list(shared.values()) if name == "call" else [each]
    ordered = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    called.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
    return called
