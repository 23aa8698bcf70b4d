from __future__ import annotations

from support.torture import Struck, TortureReport, kept_ahead, plan_kills


def test_the_plan_depends_on_the_seed_alone() -> None:
    assert plan_kills(7, 50) == plan_kills(7, 50)
    assert plan_kills(7, 50) != plan_kills(8, 50)
    assert plan_kills(7, 20) == plan_kills(7, 50)[:20]


def test_a_plan_strikes_every_part_and_also_start_up() -> None:
    plan = plan_kills(7, 50)
    assert {kill.victim for kill in plan} == {"driver", "jvm", "worker"}
    assert {kill.anchor for kill in plan} == {"start", "checkpoint"}
    assert all(0 <= kill.after_s <= 12 and 0 <= kill.choice < 1 for kill in plan)


def test_the_report_says_how_to_run_it_again() -> None:
    plan = plan_kills(7, 2)
    report = TortureReport(7, struck=[Struck(k, k.victim, 1) for k in plan], lives=2, recovery_s=[1.0, 9.5])
    assert str(report).startswith("seed 7: 2 kills (")
    assert str(report).endswith("2 lives, slowest recovery 9.5 s")


def test_what_is_produced_waits_for_a_slow_job() -> None:
    produced: list[int] = []
    read = 0
    produce = kept_ahead(lambda: produced.append(1), lambda: len(produced) - read, most=3)
    for _ in range(9):
        produce()
    assert len(produced) == 3
    read = 2
    for _ in range(9):
        produce()
    assert len(produced) == 5
