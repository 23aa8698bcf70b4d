"""Draws the pictures of the docs: every module of tools/pictures with a function `draw` is one, and the picture is a function of it alone.

A test holds what is checked in against what is drawn.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "pictures"
NAMES = ("architecture", "gates", "windows")


def drawn() -> dict[Path, str]:
    """Return the pictures as SVG, by the files they belong into."""
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    folder: Path = import_module("drawing").PICTURES
    return {folder / f"{name}.svg": import_module(name).draw() for name in NAMES}


def main() -> int:
    """Write the pictures; return an exit code."""
    for path, picture in drawn().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
