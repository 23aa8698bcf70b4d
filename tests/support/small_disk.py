"""A file system of a test's own that is small enough to become full; mounting it needs the rights to mount."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]


class SmallDisk:
    """A tmpfs of a size that can be changed.

    Args:
        path: a folder that is made and mounted on.
        size: as `mount` takes it, such as "600k".
    """

    def __init__(self, path: Path, size: str) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self._mount(f"size={size}")

    def resize(self, size: str) -> None:
        """Give it another size."""
        self._mount(f"remount,size={size}")

    def fill(self) -> Path:
        """Leave no room on it; return the file that takes it."""
        filler = self.path / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as handle:
            while True:
                handle.write(bytes(4096))
        return filler

    def unmount(self) -> None:
        """Let it go with what is on it."""
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)

    def _mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Let a small disk be there for as long as the block lasts; the test is skipped where nothing can be mounted."""
    try:
        disk = SmallDisk(path, size)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"full disk: mounting a tmpfs needs more rights than this machine gives ({error})")
    try:
        yield disk
    finally:
        disk.unmount()
