"""Types that msgspec meets in two threads at once: without a lock the process crashes or hangs, as a driver did in its recovery."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = '''
import sys, threading, types
from poundlock.storage.json_record import typed

TEXT = """
from __future__ import annotations
import msgspec
class Piece(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    places: tuple[tuple[int, int], ...] = ()
class Whole(msgspec.Struct, frozen=True, kw_only=True):
    a: str
    pieces: tuple[Piece, ...]
    left: Piece | None = None
    more: dict[str, Piece] = {}
"""

def first_use(module, barrier, made):
    barrier.wait()
    made.append(typed({"a": "x", "pieces": [{"path": "p", "bytes": 1}]}, module.Whole))

sys.setswitchinterval(1e-6)
for number in range(200):
    module = types.ModuleType(f"types{number}")
    sys.modules[module.__name__] = module
    exec(TEXT, module.__dict__)
    barrier, made = threading.Barrier(3), []
    threads = [threading.Thread(target=first_use, args=(module, barrier, made)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3 and made[0] == made[1] == made[2]
'''


def test_a_type_is_met_by_several_threads_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
