"""A job's plan as a picture: what is on it, and that nothing lies on anything else."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from poundlock import FileSink, FileSource, Job, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.cli.main import main
from poundlock.plan.picture import mermaid, svg

SVG = "{http://www.w3.org/2000/svg}"


def branches(folder: Path) -> Job:
    """A job of two sources that go into one union, with a window and three sinks."""
    job = Job("branches", checkpoint_dir=str(folder / "checkpoint"))
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="timestamp")
    one, two = (
        job.from_source(
            FileSource(str(folder / name), format="json", schema="timestamp bigint, event string"), times, name=name
        )
        for name in ("first", "second")
    )
    both = one.union(two, name="both")
    for name in ("left", "right"):
        both.where('timestamp < 9 and event <> "x"', name=f"for-{name}").sink_to(
            FileSink(str(folder / name), format="json"), name=name
        )
    counts = both.key_by("event").window(TumblingEventTimeWindows("1 min")).aggregate("count(*) as n", name="counts")
    counts.sink_to(FileSink(str(folder / "counts"), format="json"), name="counted")
    return job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return branches(tmp_path)


def test_mermaid_has_every_step_in_its_stage_and_every_line(job: Job) -> None:
    text = mermaid(job)
    assert text.startswith('flowchart TD\n  subgraph stage1["stage 1: source"]\n    s0([')
    names = dict(re.findall(r'^    (s\d+)[\[(]+"(.*?)<br>', text, re.MULTILINE))
    assert {"second", "both", "left", "right", "counts", "counted"} <= set(names.values())
    assert "timestamp #lt; 9 and event #lt;#gt; #quot;x#quot;" in text.replace("<br>", " ")
    lines = {(names[one], names[other]) for one, other in re.findall(r"^  (s\d+) --> (s\d+)$", text, re.MULTILINE)}
    assert {("both", "for-left"), ("both", "counts"), ("for-left", "left"), ("counts", "counted")} <= lines
    assert text.index("stage 1") < text.index('"both<br>') < text.index("stage 2: keyed") < text.index('"counts<br>')


def test_svg_has_every_step_and_they_do_not_lie_on_each_other(job: Job) -> None:
    pytest.importorskip("grandalf")
    drawn = svg(job)
    root = ElementTree.fromstring(drawn)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    boxes = []
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert left <= x
        assert x + w <= left + width
        assert top <= y
        assert y + h <= top + height
        boxes.append((x, y, x + w, y + h))
    for one, other in combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1], (one, other)
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"first", "second", "both", "counts", "counted"} <= set(words)
    assert "stage 2: keyed" in words
    arrows = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == mermaid(job).count(" --> ")
    assert svg(job) == drawn, "it is drawn the same each time"


def test_the_command_prints_it_or_writes_it(
    own_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.py").write_text(
        "from poundlock import DatagenSource, FileSink, Job\n"
        "job = Job('a', checkpoint_dir='c')\n"
        "job.from_source(DatagenSource(count=1), name='rows').sink_to(FileSink('out', row='value'), name='files')\n"
    )
    assert main(["explain", "job.py", "--mermaid"]) == 0
    assert "s0 --> s1" in capsys.readouterr().out
    assert main(["explain", "job.py", "--svg", "-o", "plan.svg"]) == 0
    assert capsys.readouterr().out == "made plan.svg\n"
    assert ElementTree.parse("plan.svg").getroot().tag == f"{SVG}svg"
    assert not Path("c").exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--svg", "--mermaid"], "--mermaid does not go with --svg"),
        (["--svg", "--json"], "--svg does not go with --json"),
        (["-o", "x.svg"], "-o is for a picture"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "job.py", *options]) == 2
    assert what in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from poundlock import DefinitionError

    monkeypatch.setitem(sys.modules, "grandalf.graphs", None)
    with pytest.raises(
        DefinitionError, match=r"explain --svg needs the package grandalf\nNext: .*poundlock\[picture\]"
    ):
        svg(job)
