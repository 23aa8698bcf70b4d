"""The syntax trees of the source, each parsed once in a process: what looks at them all is in several files of tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["syntax_tree"]


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the tree of a file of Python, which nobody may change."""
    return ast.parse(path.read_text(encoding="utf-8"))
