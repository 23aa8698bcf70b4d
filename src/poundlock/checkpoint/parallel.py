"""Work of several participants at once, on the driver.

The work of one participant is done by one thread at a time. Participants of one class share a thread too, because a connector may
keep a connection for all of its sinks; one that declares `CommitsMany` has said that threads are no harm and gets its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from poundlock.checkpoint.capabilities import CommitsMany, Early
from poundlock.checkpoint.participant import Participant, Prepared

_MOST = 16
Work = Callable[[], None]


def at_once(work: Mapping[str, Work], participants: Mapping[str, Participant]) -> None:
    """Do something for each of some participants; return, or raise, when all of it has ended.

    Args:
        work: by the participant's name; what is in the way of one must not keep others from theirs, so it should not raise.
        participants: by name.

    Raises:
        Exception: what a piece of work raised, the first in order. The rest of its thread's work is left out then.
    """
    threads: dict[object, list[Work]] = {}
    for name, each in work.items():
        participant = participants[name]
        threads.setdefault(name if isinstance(participant, CommitsMany) else type(participant), []).append(each)
    if len(threads) <= 1:
        for each in work.values():
            each()
        return
    with ThreadPoolExecutor(min(len(threads), _MOST), "poundlock-participants") as pool:
        running = [pool.submit(_in_turn, turn) for turn in threads.values()]
    for one in running:
        one.result()


def _in_turn(work: Sequence[Work]) -> None:
    for each in work:
        each()


def verify_all(participants: Mapping[str, Participant], prepared: Sequence[Prepared], checkpoint: int) -> None:
    """Have every participant verify what its tasks prepared, all of them at once.

    Args:
        participants: by name.
        prepared: of all of them.
        checkpoint: its number.

    Raises:
        TransientError, TerminalError: something cannot be committed; that of the first participant in order is raised when all
            have ended, so that what is aborted next is touched by nobody.
    """
    by_sink: dict[str, list[Prepared]] = {}
    for item in prepared:
        by_sink.setdefault(item.sink, []).append(item)
    failures: dict[str, Exception] = {}

    def work(name: str, participant: Participant) -> Work:
        def verify() -> None:
            try:
                if name in by_sink:
                    participant.verify(by_sink[name])
                elif isinstance(participant, Early):
                    participant.verify_nothing(checkpoint)
            except Exception as error:
                failures[name] = error

        return verify

    asked = {n: p for n, p in participants.items() if n in by_sink or isinstance(p, Early)}
    at_once({name: work(name, participant) for name, participant in asked.items()}, participants)
    for name in asked:
        if name in failures:
            raise failures[name]
