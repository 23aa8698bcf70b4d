"""architecture.svg: the loop of the driver, the stages of its Spark job, and what each of them writes."""

from __future__ import annotations

from drawing import AMBER, BLUE, GREEN, GREY, arrow, box, page, text

WIDTH, HEIGHT = 960, 560


def driver() -> list[str]:
    """Return the driver's part: the five steps of a checkpoint, and the way back to the first."""
    steps = [
        ("PLAN", ("a range of every", "split; watermarks,", "clock, manifest")),
        ("RUN", ("one Spark job;", "reports come back,", "no rows")),
        ("VERIFY", ("every participant", "can still commit", "what is prepared")),
        ("DECIDE", ("one record, created", "exclusively: the", "point of truth")),
        ("COMMIT", ("idempotent, until", "every outcome", "is known")),
    ]
    parts = [
        '<rect x="20" y="20" width="920" height="170" rx="10" fill="none" stroke="#888" stroke-dasharray="4 3"/>',
        text(34, 42, "driver: the checkpoint loop", bold=True, anchor="start"),
    ]
    for number, (title, lines) in enumerate(steps):
        x = 40 + 180 * number
        parts.append(box(x, 60, 150, 92, title, lines, AMBER if title == "DECIDE" else BLUE))
        if number:
            parts.append(arrow(x - 30, 106, x - 3, 106))
    parts += [
        '<path d="M 835 152 V 174 H 115 V 156" fill="none" stroke="#444" stroke-width="1.5" marker-end="url(#head)"/>',
        text(475, 186, "the next RUN may go on beside this COMMIT; the next DECIDE waits", size=11),
    ]
    return parts


def tasks() -> list[str]:
    """Return the tasks' part: the two stages of a keyed job, and the exchange between them."""
    return [
        '<rect x="20" y="230" width="920" height="150" rx="10" fill="none" stroke="#888" stroke-dasharray="4 3"/>',
        text(34, 252, "tasks: Arrow batches, outside the JVM", bold=True, anchor="start"),
        box(40, 270, 130, 90, "read", ("a split: topic,", "partition, from, to;", "file, range"), GREEN),
        box(200, 270, 130, 90, "decode", ("once, whatever", "hangs on it"), GREEN),
        box(360, 270, 130, 90, "operators", ("functions, filters,", "partial aggregates"), GREEN),
        box(
            600,
            270,
            150,
            90,
            "keyed operators",
            ("windows, processes,", "timers over the", "state of their groups"),
            GREEN,
        ),
        box(790, 270, 130, 90, "writers", ("hidden output,", "named by attempt"), GREEN),
        arrow(170, 315, 197, 315),
        arrow(330, 315, 357, 315),
        arrow(490, 315, 597, 315, "exchange"),
        text(550, 332, "by key group", size=11),
        arrow(750, 315, 787, 315),
        arrow(230, 152, 230, 228, ""),
        text(240, 214, "directive", size=11, anchor="start"),
        arrow(860, 268, 420, 194, "", dashed=True),
        text(700, 226, "committables, positions, counts", size=11),
    ]


def stores() -> list[str]:
    """Return what outlives every process."""
    return [
        box(40, 430, 170, 90, "source", ("Kafka, files,", "PostgreSQL, …"), GREY),
        box(280, 430, 190, 90, "ledger", ("decisions, one file each;", "the only log"), AMBER),
        box(510, 430, 190, 90, "state", ("immutable runs;", "a decision names them"), GREY),
        box(740, 430, 180, 90, "sinks", ("hidden or prepared,", "then visible"), GREY),
        arrow(105, 428, 105, 362),
        arrow(620, 428, 660, 362),
        arrow(700, 362, 660, 428),
        arrow(855, 362, 835, 428),
        '<path d="M 655 154 V 200 H 505 V 405 H 375 V 427" fill="none" stroke="#444" stroke-width="1.5" '
        'marker-end="url(#head)"/>',
    ]


def draw() -> str:
    """Return the picture as SVG."""
    title = "A checkpoint of poundlock: the driver's loop, the tasks, and what they keep"
    return page(title, WIDTH, HEIGHT, [*driver(), *tasks(), *stores()])
