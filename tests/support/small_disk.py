"""A file system of its own that is full when a test wants it to be: of bytes, and of names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]

_BALLAST = "ballast"
_PIECE = 4096  # bytes: a tmpfs gives no fewer


@dataclass(frozen=True)
class SmallDisk:
    """A tmpfs that is mounted on a folder. Any process may fill and free it."""

    path: Path

    def mount(self, options: str) -> None:
        """Mount it, or change it with "remount,…". Raises subprocess.CalledProcessError."""
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)

    def fill(self) -> None:
        """Leave room for nothing: no byte in a file that is there, and no further name, not even of an empty file."""
        folder = self.path / _BALLAST
        folder.mkdir(exist_ok=True)
        try:
            with open(folder / "bytes", "ab", buffering=0) as ballast:
                while True:
                    ballast.write(b"\0" * _PIECE)
        except OSError:
            pass
        try:
            for number in range(1 << 20):
                (folder / f"name-{number}").touch(exist_ok=False)
        except FileExistsError:
            raise AssertionError("it was filled before") from None
        except OSError:
            pass

    @property
    def is_filled(self) -> bool:
        return (self.path / _BALLAST).exists()

    def free(self) -> None:
        """Remove what fills it."""
        folder = self.path / _BALLAST
        for name in os.listdir(folder):
            (folder / name).unlink()
        folder.rmdir()


@contextmanager
def small_disk(path: Path, options: str = "size=8m,nr_inodes=2000") -> Iterator[SmallDisk]:
    """Yield a disk that is mounted on a new folder; skip the test where that needs more rights than there are."""
    path.mkdir(exist_ok=True)
    disk = SmallDisk(path)
    try:
        disk.mount(options)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"full disk: mounting a tmpfs needs more rights than this machine gives ({error})")
    try:
        yield disk
    finally:
        disk.unmount()
