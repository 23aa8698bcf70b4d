"""What an HDFS cluster answers, as the errors that a local file system gives.

hdfs-native says most failures as one RuntimeError with the Java class in its text; no such error leaves `translated`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

# By the class of the exception that the namenode answered with. None as a text = the system's own.
_ANSWERS: dict[str, tuple[int, str | None]] = {
    "AccessControlException": (errno.EACCES, None),
    "NSQuotaExceededException": (errno.EDQUOT, "the quota of names is used up"),
    "DSQuotaExceededException": (errno.EDQUOT, "the quota of space is used up"),
    "QuotaByStorageTypeExceededException": (errno.EDQUOT, "the quota of space is used up"),
    "QuotaExceededException": (errno.EDQUOT, "the quota is used up"),
    "SafeModeException": (errno.EAGAIN, "the namenode is in safe mode"),
    "RetriableException": (errno.EAGAIN, "the namenode is starting"),
    "StandbyException": (errno.EAGAIN, "the namenode is on standby"),
    "FileNotFoundException": (errno.ENOENT, None),
    "LeaseExpiredException": (errno.ENOENT, "the file was taken away, or taken over, while it was written"),
    "FileAlreadyExistsException": (errno.EEXIST, None),
    "AlreadyBeingCreatedException": (errno.EEXIST, None),
    "ParentNotDirectoryException": (errno.ENOTDIR, None),
    "PathIsNotDirectoryException": (errno.ENOTDIR, None),
    "PathIsNotEmptyDirectoryException": (errno.ENOTEMPTY, None),
    "PathComponentTooLongException": (errno.ENAMETOOLONG, None),
    "InvalidPathException": (errno.EINVAL, None),
}
_CLASS = re.compile(r"\b(?:[a-z_0-9]+\.)+(\w+Exception)\b")
_CODE = re.compile(r"\bos error (\d+)\b")
_ADDRESS = re.compile(r"\bUrlParseError\((\w+)\)")
_PLACES = re.compile(r"There are (\d+) datanode\(s\) running and (\w+) node\(s\) are excluded")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Let what a block raises be an OSError as of a local file system: its number, the cause in one line, and the path as a person writes it."""
    try:
        yield
    except OSError as error:
        raise _of_system(error, path) from None
    except (RuntimeError, ValueError) as error:
        raise _of_answer(str(error), path) from None


def _of_system(error: OSError, path: str) -> OSError:
    if error.errno is not None:
        return error
    for kind, number in ((FileNotFoundError, errno.ENOENT), (FileExistsError, errno.EEXIST)):
        if isinstance(error, kind):
            return kind(number, os.strerror(number), path)
    if isinstance(error, IsADirectoryError):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    message = _first_line(str(error))
    code = _CODE.search(message)
    if code:
        number = int(code[1])
        return OSError(number, f"{os.strerror(number)} (HDFS)", path)
    return _of_answer(message, path)


def _of_answer(message: str, path: str) -> OSError:
    name = _CLASS.search(message)
    number, text = _ANSWERS.get(name[1], (0, None)) if name else (0, None)
    if number:
        return OSError(number, text or os.strerror(number), path)
    if address := _ADDRESS.search(message):
        return OSError(errno.EINVAL, f"this is no address of HDFS ({address[1]}): write hdfs://HOST:PORT/FOLDER", path)
    if "No fs.defaultFS setting found" in message:
        return OSError(errno.EINVAL, "it names no host, and no fs.defaultFS is set in HADOOP_CONF_DIR", path)
    if places := _PLACES.search(message):
        if int(places[1]) > 0 and places[2] in ("no", "0"):
            return OSError(errno.ENOSPC, "no datanode has room for another block", path)
        return OSError(errno.EHOSTDOWN, f"no datanode takes a block ({places[0]})", path)
    code = _CODE.search(message)
    number = int(code[1]) if code else errno.EIO
    return OSError(number, f"HDFS: {_first_line(message)}", path)


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.replace("\\n", "\n").replace("\\t", " ").splitlines() if line.strip()]
    return lines[0][:300] if lines else "it gave no reason"
