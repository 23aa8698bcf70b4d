"""A Struct of a job's own file is in the tasks what it is here."""

import json
import subprocess
import sys
from typing import ClassVar

import msgspec

from poundlock.spark.pickled_functions import shipped


class Payment(msgspec.Struct):
    card: str
    amount: float
    kind: str = "card"


class Renamed(msgspec.Struct, rename={"money": "amount"}, tag="renamed"):
    card: str
    money: float
    notes: list = msgspec.field(default_factory=list)
    rate: ClassVar[int] = 5

    def twice(self):
        return Renamed(self.card, self.money * 2)


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    card: str
    amount: float = 0.0


class Checked(Renamed):
    fee: float = 0.0

    def __post_init__(self):
        self.fee += self.rate


def made():
    notes = Renamed("a", 1.0)
    notes.notes.append("of this object alone")
    rows = [
        *map(Payment, ["a"], [1.0]),
        Renamed("a", 2.0),
        Checked("a", 1.0).twice(),
        Keyed(card="a"),
        Checked("a", 1.0),
    ]
    return [*map(repr, rows), msgspec.json.encode(Checked("a", 1.0)).decode(), len({Keyed(card="a"), Keyed(card="a")})]


def test_structs_have_their_fields_defaults_and_settings_in_another_process():
    script = "import json, pickle, sys; print(json.dumps(pickle.loads(sys.stdin.buffer.read())()))"
    done = subprocess.run([sys.executable, "-c", script], input=shipped(made), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == made()
    assert made()[0] == "Payment(card='a', amount=1.0, kind='card')"
