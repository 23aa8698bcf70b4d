"""`poundlock files --sealed` and `--wait`: which buckets are sealed, for those who load each of them once and whole.

Nothing is asked of a running job: its decisions and the manifests in its buckets are read, and read again while something is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poundlock.cli.output import Output, plural
from poundlock.cli.progress_bar import ProgressBar, progress_bar
from poundlock.errors import DefinitionError
from poundlock.values import duration, format_bytes, format_duration, utc_text

if TYPE_CHECKING:
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.connectors.files.partitions.sealed_listing import SealedEntry, SealedListing

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class WantedBuckets:
    """Which buckets, and whether they are waited for."""

    sink: str | None
    buckets: Sequence[str]
    wait: bool
    version: int | None
    timeout: str | None

    def check(self) -> None:
        """Raise DefinitionError where options do not go together."""
        if self.wait and not self.buckets:
            raise DefinitionError(
                "--wait is given no bucket to wait for", next="name it: --bucket dt=2026-01-05/hour=10"
            )
        if not self.wait:
            self._refuse("--wait", {"--version": self.version, "--timeout": self.timeout})

    def refuse_beside_files(self) -> None:
        """Raise DefinitionError where options are of sealed buckets alone."""
        self._refuse("--sealed and --wait", {"--version": self.version, "--timeout": self.timeout})

    @staticmethod
    def _refuse(needed: str, given: dict[str, object]) -> None:
        for option, value in given.items():
            if value is not None:
                raise DefinitionError(f"{option} has no effect without {needed}", next=f"add {needed}, or leave it out")


def show(ledger: Ledger, wanted: WantedBuckets, output: Output) -> int:
    """List sealed buckets, when those are sealed that are waited for; return the exit code.

    Raises:
        DefinitionError: options do not go together, or the job seals no buckets.
    """
    from poundlock.connectors.files.partitions.sealed_listing import SealedListing
    from poundlock.storage import open_storage

    wanted.check()
    limit = None if wanted.timeout is None else duration(wanted.timeout)
    listing = SealedListing(open_storage, wanted.sink)
    if wanted.wait:
        with progress_bar(output, "sealed buckets") as bar:
            entries, missing = _waited_for(
                ledger, listing, wanted, None if limit is None else limit.total_seconds(), bar
            )
        if missing:
            assert limit is not None
            output.note(f"not sealed within {format_duration(limit)}: {', '.join(missing)}")
        else:
            _print(entries, output)
        return 1 if missing else 0
    listing.take(ledger)
    if not listing.seals:
        raise _seals_none(ledger, wanted)
    _print([each for each in listing.entries() if not wanted.buckets or each.manifest.bucket in wanted.buckets], output)
    return 0


def _seals_none(ledger: Ledger, wanted: WantedBuckets) -> DefinitionError:
    newest = ledger.newest()
    if wanted.sink is not None and newest is not None and wanted.sink not in newest.sinks:
        return DefinitionError(f"the job has no sink {wanted.sink!r}", next=f"use one of {', '.join(newest.sinks)}")
    return DefinitionError(
        "no sink of the job seals buckets", next="give a FileSink sealed=SealedBuckets(…), or leave --sealed out"
    )


def _waited_for(
    ledger: Ledger, listing: SealedListing, wanted: WantedBuckets, limit_s: float | None, bar: ProgressBar
) -> tuple[list[SealedEntry], list[str]]:
    """Return the buckets that are waited for once all are sealed, and otherwise, when time is up, those that are not."""
    until = None if limit_s is None else time.monotonic() + limit_s
    known: int | None = None
    entries: dict[str, SealedEntry] = {}
    while True:
        newest = ledger.newest()
        if newest is not None and newest.number != known:
            listing.take([newest])  # whose states name the folders of all sinks
            known = newest.number
            if not listing.seals and newest.occasion != "start":
                raise _seals_none(ledger, wanted)
        for bucket in wanted.buckets:
            entry = listing.of_bucket(bucket) if bucket not in entries else None
            if entry is not None and entry.manifest.version >= (wanted.version or 1):
                entries[bucket] = entry
        missing = [bucket for bucket in wanted.buckets if bucket not in entries]
        bar.of(len(entries), len(wanted.buckets))
        if not missing or (until is not None and time.monotonic() >= until):
            return [entries[bucket] for bucket in wanted.buckets if bucket in entries], missing
        time.sleep(_POLL_S)


def _print(entries: Sequence[SealedEntry], output: Output) -> None:
    output.show(_lines(entries), lambda: [each.to_json() for each in entries])


def _lines(entries: Sequence[SealedEntry]) -> Iterable[str]:
    yield f"{'version':>7}  {'sealed':24}  {'files':>7}  {'rows':>10}  {'bytes':>12}  bucket"
    for each in entries:
        its = each.manifest
        yield (
            f"{its.version:>7}  {utc_text(its.sealed_ms):24}  {len(its.files):>7}  {its.rows:>10}  {its.bytes:>12}"
            f"  {each.root}{'/' if its.bucket else ''}{its.bucket}"
        )
    rows, size = sum(each.manifest.rows for each in entries), sum(each.manifest.bytes for each in entries)
    yield f"{plural(len(entries), 'bucket')}, {plural(rows, 'row')}, {format_bytes(size)}"
