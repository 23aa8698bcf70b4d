"""The driver's half of the Redis sink: staged rows become keys by one script a piece, which leaves a marker in the same transaction.

Whether the marker is there says what became of a commit that nobody answered.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.participant import Committed
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.redis.script import COMMIT
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.values import span_ms

if TYPE_CHECKING:
    from poundlock.connectors.redis.sink import RedisSink

_STAGED, _DONE = "poundlock:staged:", "poundlock:done:"
_kept: dict[tuple[int, str, str | None, str | None], Any] = {}  # clients of this process


class StagedKeys(SinkValue, frozen=True):
    """The rows of one task, on their way.

    Args:
        gid: the name of what is staged, and of its markers.
        pieces: how many items the list of each piece has.
        type: what keys they become.
        names: of the values.
        deletes: whether rows say that they are deletions.
    """

    gid: str
    pieces: tuple[int, ...]
    rows: int
    type: str
    names: tuple[str, ...] = ()
    deletes: bool = False


def staged_key(name: str, piece: int) -> str:
    """Return the key of a list of rows on their way."""
    return f"{_STAGED}{name}:{piece}"


def _client(sink: RedisSink) -> Any:
    key = (os.getpid(), sink.url, sink.user, sink.password)
    if key not in _kept:
        _kept[key] = sink.login.connect()
    return _kept[key]


def close(sink: RedisSink) -> None:
    """Close this process's connections."""
    client = _kept.pop((os.getpid(), sink.url, sink.user, sink.password), None)
    if client is not None:
        client.close()


def look(sink: RedisSink) -> None:
    """Raise unless the server can keep what is decided; see RedisSink.preflight."""
    close(sink)
    with sink.login.errors("looking at the server"):
        client = _client(sink)
        about = client.info("server") | client.info("cluster")
        version = str(about.get("redis_version", "0"))
        if int(version.split(".")[0]) < 6:
            raise DefinitionError(f"Redis at {sink.login.place} is version {version}", next="use Redis 6 or newer")
        if about.get("cluster_enabled"):
            raise DefinitionError(
                f"Redis at {sink.login.place} is a cluster, whose nodes share no transaction",
                next="use a server that is not part of a cluster",
            )
    if not sink.accept_loss:
        _look_at_durability(sink)


def _look_at_durability(sink: RedisSink) -> None:
    else_say = "or say accept_loss=True: what Redis loses with its machine is then lost"
    try:
        with sink.login.errors("looking at its settings"):
            answers = _client(sink).config_get("append*", "maxmemory-policy")
    except (DefinitionError, TerminalError) as error:
        raise DefinitionError(
            f"whether Redis at {sink.login.place} keeps what it answered cannot be seen: {error.what}",
            next=f"let this user run CONFIG GET, {else_say}",
        ) from None
    if answers.get("appendonly") != "yes" or answers.get("appendfsync") != "always":
        raise DefinitionError(
            f"Redis at {sink.login.place} may lose what it answered: appendonly is {answers.get('appendonly')}, appendfsync {answers.get('appendfsync')}",
            next=f"CONFIG SET appendonly yes, and appendfsync always, {else_say}",
        )
    if str(answers.get("maxmemory-policy", "")).startswith("allkeys"):
        raise DefinitionError(
            f"Redis at {sink.login.place} removes any key when its memory is full: maxmemory-policy is {answers['maxmemory-policy']}",
            next=f"CONFIG SET maxmemory-policy noeviction, {else_say}",
        )


def verify(sink: RedisSink, staged: Sequence[StagedKeys]) -> None:
    """Raise TransientError unless all that tasks staged is there."""
    with sink.login.errors("looking at staged rows"):
        pipe = _client(sink).pipeline(transaction=False)
        wanted = [(item, piece, items) for item in staged for piece, items in enumerate(item.pieces)]
        for item, piece, _ in wanted:
            pipe.llen(staged_key(item.gid, piece))
        answers = pipe.execute() if wanted else []
    for (item, piece, items), there in zip(wanted, answers, strict=True):
        if there != items:
            raise TransientError(
                f"of {staged_key(item.gid, piece)} {there} of {items} items are in Redis",
                next="let nobody remove keys that begin with poundlock:; the checkpoint is repeated",
            )


def commit(sink: RedisSink, staged: StagedKeys) -> Committed:
    """Write staged rows, or see that they are written.

    Raises:
        CommitUnknown: the server does not answer.
        TerminalError: the rows are gone, or a key is of another kind.
    """
    given = [
        staged.type,
        "",
        int(staged.deletes),
        0 if sink.expire is None else span_ms(sink.expire),
        sink.max_length or 0,
        span_ms(sink.keep_markers),
        *staged.names,
    ]
    for piece, items in enumerate(staged.pieces):
        keys = [staged_key(staged.gid, piece), f"{_DONE}{staged.gid}:{piece}"]
        given[1] = items
        with sink.login.errors("writing decided rows", "commit"):
            outcome, detail = (_text(each) for each in _run(_client(sink), keys, given))
        if outcome == "gone":
            raise TerminalError(
                f"{staged.rows} decided rows are gone from Redis at {sink.login.place}: {keys[0]} has {detail} of {items} items",
                next="restore Redis from its newest copy, or start the job over into an empty database",
            )
        if outcome == "other":
            raise TerminalError(
                f"Redis at {sink.login.place} does not take {staged.rows} decided rows as {staged.type}: key {detail}",
                next="rename or remove that key, then start the job again: it writes the rows first",
            )
    return Committed({"transaction": staged.gid, "rows": staged.rows})


def _run(client: Any, keys: Sequence[str], given: Sequence[Any]) -> Any:
    return client.eval(COMMIT, len(keys), *keys, *given)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def abort(sink: RedisSink, staged: StagedKeys) -> None:
    """Remove staged rows."""
    with sink.login.errors("removing staged rows"):
        _client(sink).unlink(*(staged_key(staged.gid, piece) for piece in range(len(staged.pieces))))


def leftovers(sink: RedisSink) -> list[tuple[str, int, int]]:
    """Return what attempts of this job staged: keys, their bytes, and when they were last touched, ms since the epoch."""
    with sink.login.errors("looking for staged rows"):
        client = _client(sink)
        keys = list(client.scan_iter(match=f"{_STAGED}{sink.prefix}*", count=1000))
        pipe = client.pipeline(transaction=False)
        for key in keys:
            pipe.memory_usage(key)
            pipe.object("IDLETIME", key)
        answers = pipe.execute() if keys else []
        seconds, _ = client.time()
    return [
        (_text(key), int(size or 0), (int(seconds) - int(idle or 0)) * 1000)
        for key, size, idle in zip(keys, answers[::2], answers[1::2], strict=True)
    ]


def remove(sink: RedisSink, keys: Sequence[str]) -> None:
    """Remove keys."""
    with sink.login.errors("removing staged rows"):
        _client(sink).unlink(*keys)
