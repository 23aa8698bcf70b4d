"""What a torture came to: as lines, as JSON, and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from poundlock.cli.output import plural
from poundlock.cli.torture.lives import Lives, in_order
from poundlock.cli.torture.outputs import SinkComparison


@dataclass(frozen=True, kw_only=True)
class TortureResult:
    """What a torture came to.

    Args:
        job: its name.
        command: that repeats it.
        samples: per source, what both runs read.
        checkpoints: how many the undisturbed run took, and how many the tortured one.
        disagreements: of the tortured run's sinks with its ledger, as `poundlock audit` tells them.
        control: how the output was broken on purpose before it was compared; "" if it was not.
        sandbox: its folder; "" where it was removed.
    """

    job: str
    seed: int
    command: str
    samples: dict[str, str]
    undisturbed: Lives
    tortured: Lives
    checkpoints: tuple[int, int]
    sinks: Sequence[SinkComparison]
    disagreements: Sequence[str]
    control: str
    sandbox: str

    @property
    def agrees(self) -> bool:
        """Whether the tortured run wrote what the undisturbed one did, and what its ledger says."""
        return not self.disagreements and all(sink.agrees for sink in self.sinks)

    @property
    def survived(self) -> bool:
        """Whether everything agrees, and the job was killed at all: without a kill nothing is proven."""
        return self.agrees and bool(self.tortured.struck)

    def verdict(self) -> str:
        """Return the result in one line."""
        kills, lives = plural(len(self.tortured.struck), "kill"), self.tortured.lives
        survived = f"{kills} in {lives} {'life' if lives == 1 else 'lives'}"
        if self.agrees and not self.survived:
            return f"{self.job} was not killed once, so nothing is proven: give it more input, or other kills"
        if self.agrees:
            return f"{self.job} survived {survived}: every record is there once, and the ledger agrees"
        return f"{self.job} did NOT survive {survived}: what it wrote differs"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        sinks = [{**asdict(sink), "agrees": sink.agrees} for sink in self.sinks]
        return {**asdict(self), "sinks": sinks, "agrees": self.agrees, "survived": self.survived}

    def lines(self) -> Iterator[str]:
        """Yield it as lines."""
        for name, says in self.samples.items():
            yield f"source {name}: {says}"
        quiet, hard = self.checkpoints
        yield f"undisturbed: {plural(quiet, 'checkpoint')}, {self.undisturbed.seconds:.0f} s"
        yield f"tortured: {plural(hard, 'checkpoint')}, {self.tortured.seconds:.0f} s"
        yield from (f"  {line}" for line in in_order(self.tortured))
        if self.control:
            yield f"control: {self.control}"
        for sink in self.sinks:
            yield f"sink {sink.sink}: {account(sink)}"
            yield from (f"  {what}: {text}" for what, some in sink.examples.items() for text in some)
        yield from (f"DISAGREES with the ledger: {text}" for text in self.disagreements)
        yield self.verdict()
        if self.sandbox:
            yield f"sandbox: {self.sandbox}"
        yield f"again: {self.command}"


def account(sink: SinkComparison) -> str:
    """Return in one line what differs in a sink."""
    if sink.uncompared:
        return f"not compared: {sink.uncompared}"
    parts = [plural(sink.records, "record"), f"{sink.lost:,} lost"]
    parts.append(f"{sink.doubled:,} doubled" + (", which it may (at-least-once)" if sink.may_repeat else ""))
    return ", ".join([*parts, *([f"{plural(sink.hidden, 'hidden file')} left behind"] if sink.hidden else [])])


_STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #c62828; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { border-left: .4rem solid var(--bad); padding: .5rem 1rem; } .verdict.good { border-color: var(--good); }
table { border-collapse: collapse; width: 100%; } th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
.figure { text-align: right; font-variant-numeric: tabular-nums; } code, li { overflow-wrap: anywhere; }
.wide { overflow-x: auto; } @media (max-width: 30rem) { table { font-size: .85rem; } th, td { padding: .3rem; } }
@media (prefers-color-scheme: dark) { :root { --good: #57c26f; --bad: #ff8a80; } }
"""


def page(result: TortureResult) -> str:
    """Return the page."""
    good = " good" if result.survived else ""
    body = [
        f"<h1>Torture of {escape(result.job)}</h1>",
        f'<p class="verdict{good}" role="status">{"✓" if result.survived else "✗"} {escape(result.verdict())}</p>',
        "<h2>Sinks</h2>",
        _table(("sink", "records", "lost", "doubled", "hidden", ""), [_row(sink) for sink in result.sinks], figures=4),
        *_differences(result),
        "<h2>Input</h2>",
        _table(("source", "sample"), [(name, says) for name, says in result.samples.items()]),
        "<h2>Runs</h2>",
        _table(
            ("run", "checkpoints", "lives", "seconds"),
            [
                (name, str(count), str(lives.lives), f"{lives.seconds:.0f}")
                for name, count, lives in zip(
                    ("undisturbed", "tortured"), result.checkpoints, (result.undisturbed, result.tortured), strict=True
                )
            ],
            figures=3,
        ),
        "<h2>Kills</h2>",
        f"<ol>{''.join(f'<li>{escape(line)}</li>' for line in in_order(result.tortured))}</ol>",
        f"<h2>Again</h2><p>seed {result.seed}</p><p><code>{escape(result.command)}</code></p>",
    ]
    title = f"Torture of {escape(result.job)}"
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
        f"<style>{_STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _row(sink: SinkComparison) -> tuple[str, ...]:
    if sink.uncompared:
        return (sink.sink, "", "", "", "", f"not compared: {sink.uncompared}")
    note = "may repeat records: at-least-once" if sink.may_repeat else ""
    return (sink.sink, *(f"{n:,}" for n in (sink.records, sink.lost, sink.doubled, sink.hidden)), note)


def _differences(result: TortureResult) -> Iterator[str]:
    lines = [f"{sink.sink}: {what}: {text}" for sink in result.sinks for what, t in sink.examples.items() for text in t]
    lines += [f"the ledger disagrees: {text}" for text in result.disagreements]
    if result.control:
        lines.insert(0, f"control: {result.control}")
    if lines:
        yield f"<h2>Differences</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], *, figures: int = 0) -> str:
    """Return a table; so many columns behind the first are figures."""

    def cells(kind: str, texts: Sequence[str]) -> str:
        mark = [" class=figure" if 0 < number <= figures else "" for number in range(len(texts))]
        return "".join(f"<{kind}{m}>{escape(text)}</{kind}>" for m, text in zip(mark, texts, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells("th", names)}</tr></thead><tbody>{body}</tbody></table></div>'
