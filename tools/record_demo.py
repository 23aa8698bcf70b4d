"""Records `make demo` as docs/pictures/demo.svg: the terminal as the demo leaves it.

It runs the demo, with a real broker and its kills, in a folder of its own. The picture asks for no fonts from elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from poundlock.demo.program import run_demo

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "demo.svg"
COLUMNS = 110
_FONT = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)


def main() -> int:
    """Run the demo and write the picture; return an exit code."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        report = run_demo(console=console)
    PICTURE.write_text(_FONT.sub("", console.export_svg(title="make demo")), encoding="utf-8")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
