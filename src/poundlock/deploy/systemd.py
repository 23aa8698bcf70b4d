"""A systemd unit for one job: stopped cleanly, started again where that can help and left alone where it cannot.

Everything in it is absolute, so that the unit means the same wherever it is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poundlock.deploy.job import Deployed, own_settings
from poundlock.errors import DefinitionError

_NAME = re.compile(r"[A-Za-z0-9:_.-]{1,200}")
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
# Starting again mends none of these: the first are errors that a person has to mend, the last a cancel that was asked for.
_STAY_ENDED = "2 4 5 130 143"
# A driver that was succeeded is started again, to stand by for the one that succeeded it.
_STAY_ENDED_WITH_STANDBY = "2 4 130 143"
# The JIT compiler needs pages that are written and then run, and Spark a folder for temporary files and the network;
# everything here leaves those alone.
_HARDENING = tuple(
    (what, "yes") for what in ("NoNewPrivileges", "LockPersonality", "RestrictRealtime", "RestrictSUIDSGID")
)
# A user's own manager has no right to give a service a file system or a kernel of its own.
_PROTECTED = ("Clock", "ControlGroups", "Hostname", "KernelLogs", "KernelModules", "KernelTunables")
_HARDENING_OF_SYSTEM = (
    ("PrivateTmp", "yes"),
    ("ProtectSystem", "full"),
    *((f"Protect{what}", "yes") for what in _PROTECTED),
    ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_NETLINK AF_UNIX"),
)

Section = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit."""

    name: str
    sections: dict[str, Section]

    @property
    def text(self) -> str:
        parts = [f"[{name}]\n" + "".join(f"{k}={v}\n" for k, v in pairs) for name, pairs in self.sections.items()]
        return "\n".join(parts)


def unit_name(name: str) -> str:
    """Return the name of a unit's file. Raises DefinitionError if systemd would not take it."""
    name = name.removesuffix(".service")
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} is no name of a systemd unit", next='use letters, digits, ":", "_", "." and "-": --name NAME'
        )
    return f"{name}.service"


def render(
    deployed: Deployed,
    *,
    name: str,
    user: bool,
    run_as: str | None,
    environment_file: Path | None,
    folder: Path,
    standby: bool = False,
) -> Unit:
    """Return the unit of a job.

    Args:
        user: whether it is for a user's own manager (`systemctl --user`).
        run_as: the user a system unit runs as; None = the manager's own.
        folder: the working folder, in which relative paths of the job and `poundlock.toml` are looked for.
        standby: whether another driver may have succeeded one that ends; the arguments say that it stands by.
    """
    waits = [] if user else [("Wants", "network-online.target"), ("After", "network-online.target")]
    files = [] if environment_file is None else [("EnvironmentFile", _specifiers(str(environment_file)))]
    command = [sys.executable, "-m", "poundlock", "run", deployed.target(str(deployed.file)), *deployed.arguments]
    return Unit(
        name=name,
        sections={
            "Unit": [
                ("Description", _specifiers(f"poundlock job {deployed.job.name}")),
                *waits,
                # A broker may be away for longer than any number of starts: an error that will not pass has its exit code.
                ("StartLimitIntervalSec", "0"),
            ],
            "Service": [
                ("Type", "exec"),
                *([] if run_as is None or user else [("User", run_as)]),
                ("WorkingDirectory", _specifiers(str(folder))),
                *(("Environment", _word(f"{k}={v}")) for k, v in _environment(deployed).items()),
                *files,
                ("ExecStart", " ".join(_word(word).replace("$", "$$") for word in command)),
                # Only the main process gets the signal: it lets the others finish.
                ("KillMode", "mixed"),
                ("KillSignal", "SIGTERM"),
                ("TimeoutStopSec", str(deployed.grace_s)),
                ("Restart", "on-failure"),
                ("RestartSec", "10"),
                ("RestartPreventExitStatus", _STAY_ENDED_WITH_STANDBY if standby else _STAY_ENDED),
                ("SuccessExitStatus", "130 143"),
                # The job starts a JVM again that was killed for want of memory; the rest need not end with it.
                ("OOMPolicy", "continue"),
                *_HARDENING,
                *(() if user else _HARDENING_OF_SYSTEM),
            ],
            "Install": [("WantedBy", "default.target" if user else "multi-user.target")],
        },
    )


def _environment(deployed: Deployed) -> dict[str, str]:
    settings = deployed.settings
    variables = {**own_settings(), **_java(), **deployed.environment}
    variables.pop("POUNDLOCK_CONFIG", None)
    variables["POUNDLOCK_STATE_DIR"] = os.path.abspath(settings.state_dir)
    variables["POUNDLOCK_CACHE_DIR"] = os.path.abspath(settings.cache_dir)
    return dict(sorted(variables.items()))


def _java() -> dict[str, str]:
    """Return where Java is: a manager's own PATH is short."""
    if home := os.environ.get("JAVA_HOME"):
        return {"JAVA_HOME": home}
    java = shutil.which("java")
    home_of = Path(os.path.realpath(java)).parent.parent if java is not None else None
    return {} if home_of is None or not (home_of / "lib").is_dir() else {"JAVA_HOME": str(home_of)}


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Return a word as systemd reads it back."""
    text = _specifiers(text)
    if _PLAIN.fullmatch(text.replace("%", "").replace("$", "")):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
    return f'"{escaped}"'


def install_commands(unit: Unit, path: Path | None, *, user: bool) -> Sequence[str]:
    """Return what to type to install a unit and start it."""
    mine = " --user" if user else ""
    place = "~/.config/systemd/user" if user else "/etc/systemd/system"
    return (
        f"cp {path or unit.name} {place}/{unit.name}",
        f"systemctl{mine} daemon-reload",
        f"systemctl{mine} enable --now {unit.name}",
    )
