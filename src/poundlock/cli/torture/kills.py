"""The plan of kills: which part of a job dies in which of its lives, and when. It depends on the seed alone.

A life ends with the death of its driver. What else is killed in it, a worker, the JVM, or the broker, it has to live through.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poundlock.cli.output import plural
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.failpoints import Failpoint

IN_TASKS = (Failpoint.TASKS_READING, Failpoint.SINK_WRITING, Failpoint.STATE_WRITING, Failpoint.SINK_PREPARED)
"""The steps of tasks: a worker dies there, and the driver goes on."""
PARTS = ("driver", "jvm", "worker")
SERVICE = "service"
_SPREAD_S = 0.5
_START_S = 12.0


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One kill.

    Args:
        number: from 1.
        what: the name of a failpoint, or "driver", "jvm", "worker" or "service" at a moment of chance.
        times: at that pass of the failpoint in the process.
        after_s: the moment: so long behind the first checkpoint of the life, or behind its start.
        from_start: whether it counts from the start of the driver's process.
        choice: 0 to 1, which of several workers or services it is; see `one_of`.
        asked: whether it was asked for by name, and is none of chance.
    """

    number: int
    what: str
    times: int = 1
    after_s: float = 0.0
    from_start: bool = False
    choice: float = 0.0
    asked: bool = False

    @property
    def at_failpoint(self) -> bool:
        """Whether a failpoint does it, and not a moment."""
        return self.what not in (*PARTS, SERVICE)

    @property
    def ends_life(self) -> bool:
        """Whether the driver dies of it."""
        return self.what == "driver" or (self.at_failpoint and Failpoint(self.what) not in IN_TASKS)

    def __str__(self) -> str:
        if self.at_failpoint:
            return f"at {self.what}" + (f", pass {self.times}" if self.times > 1 else "")
        since = "the start" if self.from_start else "a checkpoint"
        return f"{self.what}, {self.after_s:.2f} s behind {since}"

    def setting(self, marks: Path) -> str:
        """Return the failpoint for the environment of the life; `marks` gets a file once it has struck."""
        return f"{self.what}:kill@{self.times};once={self.mark(marks)}"

    def mark(self, marks: Path) -> Path:
        """Return the file that says that a failpoint has struck."""
        return marks / f"kill-{self.number}"


def plan(seed: int, kills: int, *, at: Sequence[str] = (), keyed: bool, services: int = 0) -> tuple[Kill, ...]:
    """Return the kills of a seed, those that were asked for by name first.

    Args:
        kills: how many of chance.
        at: failpoints, with `@N` behind for the Nth pass.
        keyed: whether the job keeps keyed state, so that its tasks write some.
        services: how many brokers and databases can be stopped. Where chance leaves one out, the last kills are of all of them: they are behind all deaths
            of the driver, so that the job is there to live through them.

    Raises:
        DefinitionError: there is no such failpoint, the job does not come to it, or there are fewer kills of chance than services.
    """
    chance = random.Random(f"torture {seed}")
    steps = [each.value for each in Failpoint if keyed or each is not Failpoint.STATE_WRITING]
    made = [_named(text, number, keyed=keyed) for number, text in enumerate(at, 1)]
    if kills < services:
        raise DefinitionError(
            f"{plural(services, 'service')} cannot be stopped by {plural(kills, 'kill')} of chance",
            next=f"give --kills {services} or more, or leave --stop-service and --start-service out",
        )
    for number in range(len(made) + 1, len(made) + 1 + kills):
        parts = [*PARTS, "driver", *([SERVICE] if services else [])]
        if chance.random() < 0.6:
            made.append(Kill(number=number, what=chance.choice(steps), times=chance.choice((1, 1, 2))))
            continue
        what = chance.choice(parts)
        from_start = what == "driver" and chance.random() < 0.3
        after_s = chance.uniform(0.5, _START_S) if from_start else chance.uniform(0, _SPREAD_S)
        made.append(
            Kill(number=number, what=what, after_s=round(after_s, 3), from_start=from_start, choice=chance.random())
        )
    struck = {one_of(kill.choice, services) for kill in made if kill.what == SERVICE}
    for each in range(services if len(struck) < services else 0):
        number, after_s = len(made) - services + each, round(chance.uniform(0, _SPREAD_S), 3)
        made[number] = Kill(number=number + 1, what=SERVICE, after_s=after_s, choice=(each + 0.5) / services)
    return tuple(made)


def one_of(choice: float, count: int) -> int:
    """Return which of so many a choice from 0 to 1 is."""
    return min(int(choice * count), count - 1)


def lives_of(kills: Sequence[Kill]) -> list[list[Kill]]:
    """Return the kills of each life: each ends with the one that the driver dies of, the last one perhaps with none."""
    lives: list[list[Kill]] = [[]]
    for kill in kills:
        lives[-1].append(kill)
        if kill.ends_life:
            lives.append([])
    return lives


def _named(text: str, number: int, *, keyed: bool) -> Kill:
    name, at, times = text.partition("@")
    names = [each.value for each in Failpoint]
    if name not in names:
        raise DefinitionError(
            f"there is no failpoint {name!r}", next=did_you_mean(name, names, f"use one of {', '.join(names)}")
        )
    if at and (not times.isdecimal() or int(times) < 1):
        raise DefinitionError(f"--at {text} is not FAILPOINT@N", next=f"write --at {name}@2 for its second pass")
    if name == Failpoint.STATE_WRITING.value and not keyed:
        raise DefinitionError(f"the job does not come to {name}: it keeps no keyed state", next="leave it out")
    return Kill(number=number, what=name, times=int(times) if at else 1, asked=True)
