"""What a savepoint says of itself: `_metadata.json`, written last, so that a folder without it is no savepoint.

It names every file with size and digest; whatever differs shows before anything is restored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.participant import JSON
from poundlock.errors import DefinitionError
from poundlock.state.decided_state import manifests_of
from poundlock.state.manifest import RunFile
from poundlock.state.runs.run import VERIFIED_WHOLE, RunningDigest, new_digest
from poundlock.storage import LocalStorage, Storage
from poundlock.storage.json_record import of_format, read_record, typed
from poundlock.values import Clock
from poundlock.versions import version_of

METADATA = "_metadata.json"
FORMAT = 2
_FIRST = 1
_BLOCK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
Algorithm = Callable[[], RunningDigest]


def new_name(job_id: str) -> str:
    """Return a new savepoint's name, in Flink's form: `savepoint-<6 hex of the job id>-<12 hex>`."""
    return f"savepoint-{job_id[:6]}-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One file of a savepoint.

    Args:
        bytes: its size.
        sha256: in hex; None for a run of keyed state, whose digest the decision has already, so that a savepoint does not
            read the state.
    """

    bytes: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One part of the job that the savepoint holds something of."""

    kind: str  # "source", "sink" or "stateful"
    named: bool = True  # whether the user gave the id
    # what its state is made of, as JSON; what is restored must be made of the same. {} = nobody can tell.
    made_of: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """What a savepoint says of itself."""

    name: str
    job: str
    job_id: str
    created_ms: int
    versions: Mapping[str, str]
    decision: Decision  # the newest decision at the cut, with where every source stands and what every sink carries on
    operators: Mapping[str, Operator]  # by operator id, in the order of the job
    sinks: Mapping[str, JSON]  # per sink, what `Inspectable.describe_json` gave
    files: Mapping[str, SavedFile]  # by path below the savepoint
    # per sink, what `Portable.note` gave at the cut; a sink without one is left out
    noted: Mapping[str, JSON] = field(default_factory=dict)
    # of one that was made of another by hand: "from", its name, and "done", what was done, in words
    edited: Mapping[str, Any] | None = None

    def to_json(self) -> JSON:
        """Return it as a JSON object."""
        value = msgspec.to_builtins(replace(self, files=dict(sorted(self.files.items()))))
        whole = {"v": FORMAT, **value, "decision": self.decision.to_json()}
        return {name: each for name, each in whole.items() if name not in ("noted", "edited") or each}

    @classmethod
    def from_json(cls, value: JSON) -> Metadata:
        """Return what a JSON object says.

        Raises:
            ValueError: it has a format this version does not know, or says what no savepoint does.
        """
        if isinstance(value, dict) and value.get("v") == _FIRST:
            raise ValueError(f"it was taken by {OF_FIRST_EDITION}")
        made = typed({**of_format(value, FORMAT), "decision": Decision.from_json(value.get("decision"))}, cls)
        for path, file in made.files.items():
            if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
                raise ValueError(f"{path!r} is no path of a file in it")
            if file.sha256 is None and path not in made.runs:
                raise ValueError(f"{path} has no digest")
            if file.sha256 is not None and not _SHA256.fullmatch(file.sha256):
                raise ValueError(f"{file.sha256!r} is no SHA-256")
        return made

    @cached_property
    def runs(self) -> Mapping[str, RunFile]:
        """The runs of keyed state, by path."""
        manifests = manifests_of(self.decision.state).values()
        return {file.name: file for manifest in manifests for file in manifest.files}


def metadata_of(
    identity: Identity,
    name: str,
    decision: Decision,
    *,
    operators: Mapping[str, Operator],
    sinks: Mapping[str, JSON],
    clock: Clock,
) -> Metadata:
    """Return what a savepoint of a decision, with all of its keyed state, says of itself now: all but its files."""
    return Metadata(
        name=name,
        job=identity.name,
        job_id=identity.job_id,
        created_ms=clock.now_ms(),
        versions={package: version_of(package) for package in ("poundlock", "pyspark")},
        decision=decision,
        operators=operators,
        sinks=sinks,
        files={},
    )


def read_metadata(savepoint: Storage) -> Metadata:
    """Return what a savepoint says of itself.

    Raises:
        DefinitionError: the folder is no savepoint, a damaged one, or one of another version.
    """
    made = read_record(
        savepoint,
        METADATA,
        lambda data: Metadata.from_json(json.loads(data)),
        next="copy the savepoint again, or use the version of poundlock that wrote it",
        kind=DefinitionError,
    )
    if made is not None:
        return made
    paths = [entry.path for entry in islice(savepoint.list(), _LOOKED_AT)]
    if inside := sorted(path.removesuffix(f"/{METADATA}") for path in paths if _is_one_below(path)):
        more = "" if len(inside) == 1 else f", or one of the other {len(inside) - 1}"
        raise DefinitionError(
            f"{savepoint.root} is a folder of savepoints, and none itself",
            next=f"give the one that is meant: {savepoint.root.rstrip('/')}/{inside[-1]}{more}",
        )
    what = f"{savepoint.root} has no {METADATA}: it was not copied whole, or is no savepoint"
    raise DefinitionError(
        what if paths else f"there is no savepoint in {savepoint.root}",
        next="give the folder that `poundlock savepoint` printed",
    )


_LOOKED_AT = 10_000
"""So many files of a folder that is none are looked at for savepoints in it."""


def _is_one_below(path: str) -> bool:
    """Return whether a file is what a savepoint right below the folder says of itself."""
    folder, _, name = path.rpartition("/")
    return name == METADATA and folder != "" and "/" not in folder


def check_files(
    savepoint: Storage, metadata: Metadata, progress: Callable[[int, int], None] = lambda done, total: None
) -> None:
    """Raise DefinitionError unless every file of a savepoint is there as it was written; of large runs of keyed state, as long.

    `progress` takes how many files of how many have been looked at, often.
    """
    for path, wrong in damage(savepoint, metadata, whole=False, progress=progress):
        raise damaged(savepoint, path, wrong)


def damaged(savepoint: Storage, path: str, wrong: str) -> DefinitionError:
    """Return the error that says which file of a savepoint is not as it was written."""
    return DefinitionError(
        f"the savepoint {savepoint.root} is damaged: {path} {wrong}", next="copy it again from where it was taken"
    )


def damage(
    savepoint: Storage,
    metadata: Metadata,
    *,
    whole: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[tuple[str, str]]:
    """Yield every file that is not as it was written, with what is wrong with it.

    Args:
        whole: whether runs of keyed state are read that a job does not read either when it begins, because they are large.
        progress: takes how many files of how many have been looked at, often.
    """
    for number, (path, file) in enumerate(metadata.files.items()):
        progress(number, len(metadata.files))
        status = savepoint.stat(path)
        if strays(savepoint, path):
            yield path, "is a link, and a savepoint has none"
        elif status is None:
            yield path, "is missing"
        elif status.bytes != file.bytes:
            yield path, f"has {status.bytes} bytes instead of {file.bytes}"
        elif not whole and path in metadata.runs and file.bytes > VERIFIED_WHOLE:
            continue
        elif digest_of(savepoint, path, _algorithm(file)) != (file.sha256 or metadata.runs[path].digest):
            yield path, "has other content than was written"


def strays(savepoint: Storage, path: str) -> bool:
    """Return whether a path leads out of a savepoint, or is a second way in it: it, or a folder on the way, is a link."""
    if not isinstance(savepoint, LocalStorage):
        return False
    return os.path.realpath(f"{savepoint.root}/{path}") != os.path.join(os.path.realpath(savepoint.root), path)


def _algorithm(file: SavedFile) -> Algorithm:
    return hashlib.sha256 if file.sha256 is not None else new_digest


def digest_of(storage: Storage, path: str, algorithm: Algorithm = hashlib.sha256) -> str:
    """Return the digest of a file, in hex."""
    digest = algorithm()
    with storage.open(path) as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def listed(value: Any) -> str:
    """Return a part of what an operator's state is made of, for people: a list as its items."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


OF_FIRST_EDITION = "poundlock 0.1, whose state and positions are Spark's and cannot be read by this version"


def refuse_first_edition(checkpoint: Storage) -> None:
    """Raise DefinitionError if a job of the first edition left a checkpoint folder."""
    if next(iter(checkpoint.list("spark/offsets")), None) is not None:
        raise DefinitionError(
            f"the checkpoint {checkpoint.root} was taken by {OF_FIRST_EDITION}",
            next="let that version finish the job's input (poundlock stop --drain), then begin in another checkpoint_dir",
        )
