"""Turns whatever ended a query into one PoundlockError: the cause first, in one line, with what to type next.

Exceptions are known by class name and text, not by type, so nothing of Spark is imported here; an error this package
raised in a task or in the driver comes back as what it was.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from traceback import format_exception
from typing import Any

from poundlock.connectors.base import ExplainsErrors
from poundlock.errors import CODE_NOTE, DefinitionError, PoundlockError, TerminalError, TransientError, pip_install
from poundlock.redaction import redact_text

_LONGEST = 600


class UserCodeError(PoundlockError):
    """A function of the user's failed on a record. Restarted as the strategy says, but not for ever without progress."""


def explain(exception: BaseException, sources: Sequence[Any] = ()) -> PoundlockError:
    """Return the error to show for an exception out of Spark, Py4J or Python; sources that explain errors are asked first."""
    for link in _chain(exception):
        if isinstance(link, PoundlockError):
            return link
    text = _text(exception)
    for source in sources:
        answer = source.explain_error(text) if isinstance(source, ExplainsErrors) else None
        if isinstance(answer, PoundlockError):
            return answer
    crash = _last_python_crash(text)
    if crash is not None:
        ours = _own_error(crash)
        if ours is not None:
            return ours
    kind = type(exception).__name__
    message = f"{crash.kind}: {crash.message}" if crash else _messages(text) or kind
    for pattern, known, what, next in _RULES:
        if (match := re.search(pattern, message, re.IGNORECASE)) is not None:
            return known(_short(what.format(line=_line_of(message, match)) + _place(crash)), next=next)
    if kind in ("AnalysisException", "ParseException"):
        return DefinitionError(
            _short(f"Spark cannot plan the job: {_HIDDEN.sub('', _first_line(text))}{_expression(text)}"),
            next="mend the expression, schema or path it names",
        )
    if crash is not None:
        return _from_crash(crash)
    cause = _jvm_cause(text) or _first_line(text) or kind
    name = "" if kind in ("StreamingQueryException", "Py4JJavaError") or cause.startswith(kind) else f"{kind}: "
    return PoundlockError(_short(f"{name}{cause}"), next="see the log for the stack trace")


def as_caught(exception: BaseException) -> BaseException:
    """Return what to log as the cause: an exception of Spark's asks its JVM for its text, which may be gone by then."""
    if any(type(link).__module__.startswith(("pyspark.", "py4j.")) for link in _chain(exception)):
        return RuntimeError("".join(format_exception(exception)))
    return exception


@dataclass(frozen=True, kw_only=True)
class _Crash:
    """The last Python traceback in a text."""

    frames: Sequence[tuple[str, int, str]]
    kind: str
    message: str


_HIDDEN = re.compile(r", `__\w+`|`__\w+`, ")  # poundlock's own columns, where Spark lists what there is
# Pattern, kind, what happened with the line in which the pattern stands, and what to type next. The first that matches says it,
# so the more exact ones come first.
_RULES: tuple[tuple[str, type[PoundlockError], str, str], ...] = (
    (r"DUPLICATE_SOURCE_NAMES[^']*'[^']*'", DefinitionError,
     "a function given to apply uses one DataFrame in two places, and Spark keeps one position for each",
     "give it the stream twice: events.apply(lambda a, b: …, events)"),
    (r"No space left on device|\[Errno (?:28|122)\]|Disk quota exceeded", TransientError, "the disk is full: {line}",
     "free some space; the job goes on from its last checkpoint and nothing is lost"),
    (r"(?:DS|NS)?Quota(?:ByStorageType)?ExceededException|The (?:DiskSpace|NameSpace) quota", TransientError,
     "the quota of a folder is used up: {line}",
     "raise the quota or free some of it; the job goes on from its last checkpoint and nothing is lost"),
    (r"could only be written to 0 of the|SafeModeException|name ?node is (?:in safe mode|starting|on standby)"
     r"|RetriableException|StandbyException|no datanode |All datanodes? .* bad|BlockMissingException"
     r"|Could not obtain block|\[Errno 5\] HDFS: |End of File Exception between", TransientError,
     "HDFS does not answer as it should: {line}",
     "look at its namenode and datanodes; the job is started again as its restart strategy says"),
    (r"AccessControlException", TerminalError, "HDFS refuses this user: {line}",
     "give this user the right to write there, or choose another folder"),
    (r"the bucket .* does not exist|there is no bucket|NoSuchBucket|UnknownStoreException", TerminalError,
     "a bucket is gone: {line}", "create the bucket, or correct the path or AWS_ENDPOINT_URL"),
    (r"the credentials are not accepted|no credentials were found|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken"
     r"|NoAuthWithAWSException|NoAwsCredentialsException|access denied: 's3|fs\.s3a?\..*AccessDenied"
     r"|AccessDeniedException: (?:s3a|PUT|HEAD|GET|getFileStatus|list)", TerminalError,
     "S3 refuses these credentials: {line}",
     "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or AWS_PROFILE, and at what they may do there"),
    (r"the store does not answer|the store answered|AWSClientIOException|AWSServiceIOException|AWSStatus500Exception"
     r"|AWSServiceThrottledException|SdkClientException|ApiCallTimeoutException", TransientError,
     "S3 does not answer as it should: {line}",
     "look at the server or the network; the job is started again as its restart strategy says"),
    (r"\[Errno (?:20|21|36|40)\]", DefinitionError, "a path cannot be used: {line}",
     "correct the path: something else is there, or its name is too long"),
    (r"\[Errno (?:13|30)\]|Permission denied|Read-only file system", TerminalError,
     "a file or folder is not writable: {line}", "give this user the right to write there, or choose another folder"),
    (r"Address already in use|BindException", DefinitionError, "a port is taken: {line}",
     "stop the program that holds the port, or choose another one"),
    (r"UnsupportedClassVersionError|requires Java \d+", DefinitionError, "this Java is too old for Spark: {line}",
     f"install Java 17, 21 or 25, or {pip_install('poundlock[jre]')}"),
    (r"JAVA_GATEWAY_EXITED|Unable to locate a Java Runtime|JAVA_HOME is not set|No such file or directory: '[^']*java'",
     DefinitionError, "Java could not be started: {line}", "type: poundlock doctor"),
    (r"Java heap space|GC overhead limit exceeded|java\.lang\.OutOfMemoryError", TransientError,
     "the JVM ran out of memory: {line}", "give it more, such as -D driver_memory=4g"),
    (r"Python worker exited unexpectedly|Python worker failed to connect|ExecutorLostFailure|SparkContext was shut ?down",
     TransientError, "a worker process died: {line}",
     "if it happens again, memory is the usual cause: lower the parallelism or give the machine more"),
    (r"Answer from Java side is empty|Error while sending or receiving|Py4JNetworkError"
     r"|An error occurred while trying to connect to the Java server"
     # An answer that names no exception, where a living JVM adds a full stop and its own error.
     r"|(?m:An error occurred while calling [\w:.]+\w$)", TransientError,
     "the JVM of this job is gone: {line}", "see the JVM's log; if it was killed, the machine may be short of memory"),
    (r"Connection refused|ConnectionRefusedError|Connection reset|Broken pipe|Network is unreachable|UnknownHostException"
     r"|No route to host|could not be established|DisconnectException|BrokerNotAvailable|NotLeaderOrFollower",
     TransientError, "a server could not be reached: {line}",
     "check that it runs and that its address is right; the job is started again as its restart strategy says"),
    (r"TimeoutException|TimeoutError|timed out|Timeout expired|Timeout of \d+ ?ms expired", TransientError,
     "a server did not answer in time: {line}",
     "check that it runs and is not overloaded; the job is started again as its restart strategy says"),
)  # fmt: skip


def _chain(exception: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = exception
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _text(exception: BaseException) -> str:
    """Return all the text of an exception, its Java side included; a JVM that is gone must not hide it."""
    parts: list[str] = []
    for link in _chain(exception):
        try:
            parts.append(str(link))
        except Exception:  # str of a Py4JJavaError asks the JVM
            parts.append(type(link).__name__)
        captured = getattr(link, "_cause", None)
        while captured is not None and len(parts) < 20:
            parts.append(str(getattr(captured, "_desc", None) or captured))
            captured = getattr(captured, "_cause", None)
    if not any(parts):
        parts.append(type(exception).__name__)
    return "\n".join(dict.fromkeys(parts))


_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
_END = re.compile(r"^\s*SQLSTATE|^=== |^\s+at |^Caused by:|^\s*$|^Traceback |^Driver stacktrace")


def _last_python_crash(text: str) -> _Crash | None:
    _head, mark, tail = text.rpartition("Traceback (most recent call last):")
    if not mark:
        return None
    frames: list[tuple[str, int, str]] = []
    lines = tail.splitlines()[1:]
    for number, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame:
            frames.append((frame["file"], int(frame["line"]), frame["function"]))
        elif line and not line[0].isspace():
            raised = _RAISED.match(line)
            if raised is None:
                break
            message = [raised["message"] or ""]
            for more in lines[number + 1 :]:
                if _END.match(more):
                    break
                message.append(more)
            crash = _Crash(frames=frames, kind=raised["kind"], message="\n".join(message))
            # An exception of Spark's own is the shell of a Java error, not the cause.
            return None if crash.kind.startswith(("pyspark.", "py4j.")) else crash
    return None


_CODE = re.compile(rf"\n{CODE_NOTE}(PL-\d{{4}}).*")


def _own_error(crash: _Crash) -> PoundlockError | None:
    """Rebuild an error of ours from its printed form."""
    module, _, name = crash.kind.rpartition(".")
    if not module.startswith("poundlock."):
        return None
    try:
        kind = getattr(importlib.import_module(module), name, None)
    except ImportError:
        kind = None
    if not (isinstance(kind, type) and issubclass(kind, PoundlockError)):
        return None  # one of ours, but not raised on purpose
    message, code = _CODE.sub("", crash.message), _CODE.search(crash.message)
    what, _, next = message.partition("\nNext: ")
    return kind(what, next=re.sub(r"\s*SQLSTATE: \w+.*$", "", next), code=code[1] if code else "")


_NOT_THE_USERS = re.compile(
    r"/site-packages/|/dist-packages/|/lib/python3[.\d]*/|pyspark\.zip|py4j-.*\.zip|^<|/poundlock/"
)


def _from_crash(crash: _Crash) -> PoundlockError:
    raised = f"{crash.kind}: {crash.message}" if crash.message else crash.kind
    frame = _users_frame(crash)
    if frame is not None:
        file, line, function = frame
        return UserCodeError(
            _short(f"{file}:{line} in {function}: {raised}"),
            next='mend the function, leave such records out before it with filter, or give on_error="bad_record"',
        )
    place = ""
    if crash.frames:
        file, line, function = crash.frames[-1]
        place = f" (in {'/'.join(file.split('/')[-2:])}:{line} {function})"
    return PoundlockError(_short(f"{raised}{place}"), next="see the log for the stack trace")


def _users_frame(crash: _Crash) -> tuple[str, int, str] | None:
    return next((frame for frame in reversed(crash.frames) if not _NOT_THE_USERS.search(frame[0])), None)


def _place(crash: _Crash | None) -> str:
    frame = _users_frame(crash) if crash else None
    return f" ({frame[0]}:{frame[1]} in {frame[2]})" if frame else ""


def _jvm_cause(text: str) -> str:
    """Return the innermost Java cause that says something."""
    causes = [line.removeprefix("Caused by: ").strip() for line in text.splitlines() if line.startswith("Caused by: ")]
    for cause in reversed(causes):
        kind, _, message = cause.partition(": ")
        if message:
            return f"{kind.rpartition('.')[2]}: {message}"
    return ""


def _first_line(text: str) -> str:
    """Return what an error of Spark says, without the wrapping of stream and callback, ids and SQLSTATE."""
    text = text.partition("\n=== Streaming Query ===")[0]
    text = re.sub(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ", "", text.lstrip())
    text = re.sub(r"\s*SQLSTATE: \w+", "", text)
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _expression(text: str) -> str:
    """Return the SQL that Spark could not parse; its message gives only a line and a position in it."""
    sql = re.search(r"^== SQL ==\n(?P<sql>.+?)\n-*\^\^\^", text, re.MULTILINE | re.DOTALL)
    return f" in {sql['sql']!r}" if sql else ""


def _messages(text: str) -> str:
    """Return the lines that are messages: no stack frames, no source lines, no plan, any of which may hold any word."""
    text = text.replace("\n=== Streaming Query ===", "\n\x00=== ")
    kept: list[str] = []
    for part in text.split("\n"):
        if part.startswith("\x00"):
            break
        if part and not part[0].isspace():
            kept.append(re.sub(r"\s*SQLSTATE: \w+", "", part))
    return "\n".join(kept)


_CLASS = re.compile(r"(?:[a-z]\w*\.)+(?=[A-Z]\w*(?:Exception|Error)\b)")


def _line_of(text: str, match: re.Match[str]) -> str:
    """Return the line that a match is on, from the exception nearest before it."""
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    line = text[start : end if end >= 0 else len(text)]
    names = [each for each in _CLASS.finditer(line) if each.start() <= match.start() - start]
    if names:
        line = line[names[-1].end() :]
    return line.removeprefix("Caused by: ").partition(" Consider setting")[0].strip()


def _short(text: str) -> str:
    text = redact_text(" ".join(text.split()))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
