"""Runs a command as several processes at a time. Arguments: COUNT STOP PROGRAM WORD…, in which `{process}` stands for 0, 1, ….

Once there is a file STOP they are asked to end, by SIGTERM; "" = they end by themselves. If one fails the others are ended too,
and the exit code is 1.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def main(count: int, stop: str, words: list[str]) -> int:
    """Run them, return the exit code."""
    processes = [
        subprocess.Popen([word.replace("{process}", str(number)) for word in words], stdin=subprocess.DEVNULL)
        for number in range(count)
    ]
    while None in (codes := [process.poll() for process in processes]):
        if any(codes) or (stop and Path(stop).exists()):
            break
        time.sleep(0.1)
    for process in processes:
        process.terminate()
    codes = [process.wait() for process in processes]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
