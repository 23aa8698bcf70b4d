"""The names a file sink gives: hidden ones that only their own job may remove, and the check of bucket names.

A hidden name carries a tag of job and sink, so that jobs can share a folder and a sweep never meets another's files.
"""

from __future__ import annotations

import hashlib
import re
import uuid

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")
_LONGEST = 200
_LONGEST_BUCKET = 700  # a key of S3 has at most 1024 bytes, and the sink's folder and the file's name are in it


def owner_tag(job_id: str, sink: str) -> str:
    """Return 8 hex digits that stand for one sink of one job in hidden names."""
    return hashlib.sha256(f"{job_id}/{sink}".encode()).hexdigest()[:8]


def join(bucket: str, name: str) -> str:
    """Return the path of a file in a bucket; the bucket "" is the sink's folder itself."""
    return f"{bucket}/{name}" if bucket else name


def segment_name(prefix: str, subtask: int, checkpoint: int, tag: str, attempt: str, number: int) -> str:
    """Return the hidden name of the `number`-th segment of a task attempt."""
    attempt = re.sub(r"[^A-Za-z0-9]", "", attempt)
    return f".{prefix}-{subtask}-{checkpoint}.inprogress.{tag}-{attempt}-{number}"


def merging_name(final: str, tag: str) -> str:
    """Return a new hidden path beside `final` for the merge of several segments."""
    folder, _, name = final.rpartition("/")
    return join(folder, f".{name}.merging.{tag}-{uuid.uuid4().hex}")


def final_name(prefix: str, subtask: int, counter: int, suffix: str) -> str:
    """Return the name of a finished file."""
    return f"{prefix}-{subtask}-{counter}{suffix}"


def upload_name(prefix: str, subtask: int, counter: int, tag: str, attempt: str, suffix: str) -> str:
    """Return the name of a finished file that a task attempt uploads itself: 8 digits of the sink and 8 of the attempt follow."""
    unique = hashlib.sha256(attempt.encode()).hexdigest()[:8]
    return f"{prefix}-{subtask}-{counter}-{tag}{unique}{suffix}"


def uploaded_by(path: str, tag: str) -> bool:
    """Return whether a path is what an attempt of this job's sink uploads, or joins: its own name, or a hidden one."""
    name = path.rpartition("/")[2]
    return ours(path, tag) or re.fullmatch(rf".+-[0-9]+-[0-9]+-{re.escape(tag)}[0-9a-f]{{8}}.*", name) is not None


def name_pattern(prefix: str, suffix: str, subtask: str = "[0-9]+") -> str:
    """Return the pattern of finished names: subtask and counter are its groups."""
    return rf"{re.escape(prefix)}-({subtask})-([0-9]{{1,18}})(?:-[0-9a-f]{{16}})?{re.escape(suffix)}"


def numbers_of(prefix: str, suffix: str, path: str) -> tuple[str, int] | None:
    """Return subtask and counter of a finished file, None if that is no such name."""
    match = re.fullmatch(name_pattern(prefix, suffix), path.rpartition("/")[2])
    return (match[1], int(match[2])) if match else None


def ours(path: str, tag: str) -> bool:
    """Return whether a path is a hidden file of this job's sink, or a temporary name the storage made for one."""
    name = re.sub(r"^\.tmp-[0-9a-f]+-", "", path.rpartition("/")[2])
    return re.fullmatch(rf"\..+\.(inprogress|merging)\.{re.escape(tag)}-.*", name) is not None


def made_for(path: str) -> str | None:
    """Return the name that a temporary file of a storage was made for, None where it is none."""
    match = re.fullmatch(r"\.tmp-[0-9a-f]+-(.+)", path.rpartition("/")[2])
    return match[1] if match else None


def bucket_fault(bucket: str) -> str | None:
    """Return why a text cannot be a bucket, or None. Readers must see the folder, and it must lie below the sink."""
    if bucket == "":
        return None
    if _UNSAFE.search(bucket):
        return f"bucket {bucket!r} has a control character or a backslash"
    for part in bucket.split("/"):
        if part == "":
            return f"bucket {bucket!r} has an empty folder name"
        if part.startswith(".") or (part.startswith("_") and "=" not in part):
            return f"bucket {bucket!r} would be hidden or leave the folder"
        try:
            if len(part.encode()) > _LONGEST:
                return f"bucket {bucket[:40]!r}… is longer than {_LONGEST} bytes"
        except UnicodeEncodeError:
            return f"bucket {bucket!r} is not Unicode text"
    if len(bucket.encode()) > _LONGEST_BUCKET:
        return f"bucket {bucket[:40]!r}… is longer than {_LONGEST_BUCKET} bytes"
    return None
