"""A job's plan as a picture: as text for Mermaid, or as SVG. Both show the steps that `explain` names, each in its stage."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poundlock.errors import required
from poundlock.plan.explain import StepText, stage_texts

if TYPE_CHECKING:
    from poundlock.job import Job

_WIDEST = 44  # letters in a line
_LETTER, _LINE, _PAD = 7.2, 16, 10  # pixels of a monospaced letter at 12 px, of a line, and around the text
_GAP_X, _GAP_Y = 36, 40
_SHAPES = {"source": ("([", "])"), "sink": ("[(", ")]")}
_STYLE = """\
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1b1f24 }
.name { font-weight: 700 } .stage { fill: #57606a }
rect, path { stroke: #57606a; fill: none } rect { fill: #fff }
.spark rect { fill: #fff1e5 } .keyed rect { fill: #e6f0ff } .partitioned rect { fill: #eafbea }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .stage { fill: #9aa4af } rect, path { stroke: #9aa4af } rect { fill: #1b1f24 }
  .spark rect { fill: #3d2a1a } .keyed rect { fill: #16263f } .partitioned rect { fill: #17301d }
}"""


@dataclass(frozen=True)
class _Box:
    """A step: what is written in it, in which stage it is, and of which kind."""

    step: StepText
    stage: int
    kind: str
    lines: Sequence[str]

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PAD


class _View:
    """What the layout asks of a step, and gives it: its size and the middle of it."""

    def __init__(self, width: float, height: float) -> None:
        self.w, self.h, self.xy = width, height, (0.0, 0.0)


def mermaid(job: Job) -> str:
    """Return the plan as a flowchart of Mermaid, which GitHub and many wikis draw. Raises DefinitionError if the job cannot be planned."""
    boxes = _boxes(job)
    names = {box.step.id: f"s{number}" for number, box in enumerate(boxes)}
    lines = ["flowchart TD"]
    for stage in sorted({box.stage for box in boxes}):
        inside = [box for box in boxes if box.stage == stage]
        lines.append(f'  subgraph stage{stage}["stage {stage}: {inside[0].kind}"]')
        for box in inside:
            text = "<br>".join(map(_for_mermaid, [box.step.id, *box.lines[2:]]))
            left, right = _SHAPES.get(box.step.mark, ("[", "]"))
            lines.append(f'    {names[box.step.id]}{left}"{text}"{right}')
        lines.append("  end")
    lines += [f"  {names[one]} --> {names[other]}" for one, other in _edges(boxes)]
    return "\n".join(lines) + "\n"


def _for_mermaid(text: str) -> str:
    """Return a text with Mermaid's own names for what would be markup: https://mermaid.js.org/syntax/flowchart.html."""
    return "".join(
        {'"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "#": "#35;"}.get(each, each) for each in text
    )


def svg(job: Job) -> str:
    """Return the plan as SVG, light or dark as the page around it.

    Raises:
        DefinitionError: the job cannot be planned, or grandalf, which lays the steps out, is not installed.
    """
    boxes = _boxes(job)
    views, routes = _laid_out(boxes)
    left = min(view.xy[0] - view.w / 2 for view in views.values()) - _PAD
    top = min(view.xy[1] - view.h / 2 for view in views.values()) - _PAD
    points = [point for route in routes for point in route]
    left = min([left, *(x - _PAD for x, _ in points)])
    right = max([*(view.xy[0] + view.w / 2 for view in views.values()), *(x for x, _ in points)]) + _PAD
    below = max(view.xy[1] + view.h / 2 for view in views.values()) + _PAD
    width, height = right - left, below - top
    title = html.escape(f"job {job.name}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} {top:g} {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img">',
        f"<title>{title}</title><style>{_STYLE}</style>",
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    for route in routes:
        path = " ".join(f"{x:g},{y:g}" for x, y in route)
        lines.append(f'<path d="M{path}" marker-end="url(#to)"/>')
    lines += [_drawn(box, views[box.step.id]) for box in boxes]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _drawn(box: _Box, view: _View) -> str:
    x, y = view.xy[0] - view.w / 2, view.xy[1] - view.h / 2
    corner = {"source": view.h / 2, "sink": 0}.get(box.step.mark, 6)
    rect = f'<rect x="{x:g}" y="{y:g}" width="{view.w:g}" height="{view.h:g}" rx="{min(corner, 20):g}"/>'
    texts = [
        f'<text x="{x + _PAD:g}" y="{y + _PAD + _LINE * (number + 0.8):g}"{_classes(number)}>{html.escape(line)}</text>'
        for number, line in enumerate(box.lines)
    ]
    return f'<g class="{box.kind}">{rect}{"".join(texts)}</g>'


def _classes(line: int) -> str:
    return {0: ' class="name"', 1: ' class="stage"'}.get(line, "")


def _boxes(job: Job) -> list[_Box]:
    """Return the steps in order; one whose rows come from several stages is shown in the last of them."""
    boxes: dict[str, _Box] = {}
    for number, (kind, steps) in enumerate(stage_texts(job), 1):
        for step in steps:
            lines = [step.id, f"stage {number}: {kind}", *textwrap.wrap(step.what, _WIDEST)]
            boxes[step.id] = _Box(step, number, kind, lines)
    return list(boxes.values())


def _edges(boxes: Sequence[_Box]) -> list[tuple[str, str]]:
    known = {box.step.id for box in boxes}
    return [(one, box.step.id) for box in boxes for one in dict.fromkeys(box.step.inputs) if one in known]


def _laid_out(boxes: Sequence[_Box]) -> tuple[dict[str, _View], list[list[tuple[float, float]]]]:
    """Return where each step is, and the points of the lines between them; parts without a line between them stand side by side."""
    graphs: Any = required("grandalf.graphs", "explain --svg", "picture", "grandalf")
    layouts: Any = required("grandalf.layouts", "explain --svg", "picture", "grandalf")
    routing: Any = required("grandalf.routing", "explain --svg", "picture", "grandalf")
    vertices = {box.step.id: graphs.Vertex(box.step.id) for box in boxes}
    views = {box.step.id: _View(box.width, box.height) for box in boxes}
    for id, vertex in vertices.items():
        vertex.view = views[id]
    edges = [graphs.Edge(vertices[one], vertices[other]) for one, other in _edges(boxes)]
    for edge in edges:
        edge.view = routing.EdgeViewer()
    beside = 0.0
    for part in graphs.Graph(list(vertices.values()), edges).C:
        layout = layouts.SugiyamaLayout(part)
        layout.xspace, layout.yspace, layout.route_edge = _GAP_X, _GAP_Y, routing.route_with_lines
        layout.init_all()
        layout.draw()
        inside = [vertex.view for vertex in part.sV]
        shift = beside - min(view.xy[0] - view.w / 2 for view in inside)
        for view in inside:
            view.xy = (view.xy[0] + shift, view.xy[1])
        for edge in part.sE:
            edge.view._pts = [(x + shift, y) for x, y in edge.view._pts]
        beside = max(view.xy[0] + view.w / 2 for view in inside) + _GAP_X
    return views, [edge.view._pts for edge in edges]
