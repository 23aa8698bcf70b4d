"""The examples with keyed steps do what they say, with a real Spark."""

from __future__ import annotations

import json
import random
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from poundlock import Job
from poundlock.cli.job_loader import load_job
from poundlock.driver.driver import run
from support.jobs_in_threads import Running, settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests/conformance/data/seed_events.json").read_text())["cases"]
BASE = 1_545_184_220_000


def example(name: str, patch: pytest.MonkeyPatch, **environment: str) -> Job:
    for key, value in environment.items():
        patch.setenv(f"{name.upper()}_{key}", value)
    return load_job(str(ROOT / f"examples/{name}.py"))


def visible(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of finished files."""
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def as_set(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def write(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{number:03d}.jsonl"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{number:03d}.jsonl")


def test_sales_come_out_by_month_as_flink_published_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in CASES if case["kind"] == "sales_windows")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        job = example("sales", monkeypatch, PORT=port, TO=str(tmp_path / "out"), WINDOW="700 ms")
        running = Running(job, settings(tmp_path))
        listening.settimeout(60)
        connection, _ = listening.accept()
        with connection:
            written: Counter[str] = Counter()
            for pane in case["panes"]:
                # One piece, so that one checkpoint has all of it; the next goes only when this one's window is out.
                connection.sendall("".join(f"{row}\n" for row in case["rows"][slice(*pane["rows"])]).encode())
                names = ("month", "product", "category", "profit", "sales")
                wanted = as_set([dict(zip(names, row, strict=True)) for row in pane["expected"]])
                before = sum(written.values())
                running.until(lambda: len(visible(tmp_path / "out")) >= before + sum(wanted.values()))  # noqa: B023
                found = as_set(visible(tmp_path / "out"))
                assert found - written == wanted
                written = found
            connection.sendall("".join(f"{row}\n" for row in case["rows"][slice(*case["rows_never_emitted"])]).encode())
        running.end()
    assert running.progress.state == "FINISHED", "the peer hung up"
    assert sum(written.values()) == 43
    left = as_set(visible(tmp_path / "out")) - written
    assert not left or sum(json.loads(row)["sales"] for row in left.elements()) == 7, "all of the last pane or nothing"


def test_fraud_is_told_within_a_minute_and_forgotten_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(5)
    payments = [
        {"card": f"c{made.randrange(4)}", "amount": made.choice([0.5, 20.0, 900.0]), "paid_at": BASE + 7_000 * n}
        for n in range(120)
    ]
    for number in range(6):
        write(tmp_path / "in", number, payments[20 * number : 20 * number + 20])
    wanted, small = [], {}
    for payment in payments:
        at = small.pop(payment["card"], None)
        if at is not None and payment["amount"] > 500 and payment["paid_at"] - at <= 60_000:
            wanted.append(payment)
        if payment["amount"] < 1:
            small[payment["card"]] = payment["paid_at"]
    job = example("fraud", monkeypatch, FROM=str(tmp_path / "in"), TO=str(tmp_path / "out"), FILES="1")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    assert wanted
    assert as_set(visible(tmp_path / "out")) == as_set(wanted)


def test_sessions_and_late_clicks_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = [0, 20_000, 45_000, 100_000, 200_000]
    rows = [{"user": "u", "page": f"p{n % 2}", "at": BASE + ms} for n, ms in enumerate(at)]
    late = {"user": "u", "page": "late", "at": BASE + 50_000}
    write(tmp_path / "in", 0, rows[:3])
    write(tmp_path / "in", 1, rows[3:4])
    write(tmp_path / "in", 2, [{**late, "at": BASE + 60_000, "user": "v"}, rows[4]])
    write(tmp_path / "in", 3, [late])
    job = example("sessions", monkeypatch, FROM=str(tmp_path / "in"), TO=str(tmp_path / "out"), FILES="1")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    sessions = {(row["user"], row["window_start"][11:19]): row for row in visible(tmp_path / "out/sessions")}
    assert {key: (row["clicks"], row["pages"], row["lasted_ms"]) for key, row in sessions.items()} == {
        ("u", "01:50:20"): (3, 2, 45_000),
        ("u", "01:52:00"): (1, 1, 0),
        ("u", "01:53:40"): (1, 1, 0),
        ("v", "01:51:20"): (1, 1, 0),
    }
    assert visible(tmp_path / "out/late") == [{**late, "event_time": "2018-12-19T01:51:10Z"}]


def test_rules_hold_for_payments_before_and_after_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pay(country: str, amount: float, card: str = "c") -> dict[str, Any]:
        return {"card": card, "country": country, "amount": float(amount)}

    given, out = tmp_path / "in", tmp_path / "out"
    write(given / "payments", 0, [pay("NO", 50), pay("NO", 150, "d"), pay("SE", 70)])
    (given / "limits").mkdir()
    job = example("rules", monkeypatch, FROM=str(given), TO=str(out), WATCH="1")
    job.checkpoint_interval = "100 ms"
    running = Running(job, settings(tmp_path))
    running.until(lambda: running.progress.rows_read >= 3)
    assert not visible(out)
    write(given / "limits", 0, [{"country": "NO", "limit": 100}])
    running.until(lambda: running.progress.rows_read >= 4)
    write(given / "payments", 1, [pay("NO", 99), pay("NO", 101)])
    running.until(lambda: running.progress.rows_read >= 6)
    write(given / "limits", 1, [{"country": "NO", "limit": 10}, {"country": "SE", "limit": 100}])
    running.until(lambda: running.progress.rows_read >= 8)
    write(given / "payments", 2, [pay("NO", 11)])
    running.until(lambda: running.progress.rows_read >= 9)
    running.requests.trigger("savepoint", directory=str(tmp_path / "saved"), then="stop", drain=True)
    running.end()
    wanted = [{**pay("NO", 150, "d"), "limit": 100.0}, {**pay("NO", 101), "limit": 100.0}]
    assert as_set(visible(out)) == as_set([*wanted, {**pay("NO", 11), "limit": 10.0}])
