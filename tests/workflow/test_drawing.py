"""Drawings of workflows: what is on them, that no line runs through a box, and that no id breaks out of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from holdfast import ConfigurationError, Executor, WorkflowBuilder, WorkflowExecutor, executor, handler, sync

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    '"]; click n0 "javascript:alert(1)"\n    n0 --> n9',
    "</text><script>alert(1)</script>",
    "]]> <!-- &lt; &#0; #quot; #35;",
    '" onload="alert(1)',
    "`**bold**` _a_ __init__ 1. - [x](http://a.b)",
    "nul\0 escape\x1b[31m bidi\u202e \ufffe",
    "end",
    "日本語" * 100,
]


@dataclass
class Ask:
    question: str


class Judge(Executor):
    @handler
    async def judge(self, text: str, ctx: Any) -> None: ...

    async def answered(self, request: Ask, response: bool, ctx: Any) -> None: ...


def node(id_: str) -> Executor:
    @executor(id=id_)
    async def take(message: Any, ctx: Any) -> None: ...

    return take


def is_small(message: Any) -> bool:
    return True


def is_big(message: Any) -> bool:
    return True


def choose(message: Any, targets: list[str]) -> list[str]:
    return targets


def everything() -> WorkflowBuilder:
    """A switch, a choice, a fan-in, a loop, a way back, a line that skips layers, and a sub-workflow."""
    a, b, c, d, e = map(node, "abcde")
    inner = WorkflowBuilder(node("first")).add_edge("first", node("second"), is_big).build()
    builder = WorkflowBuilder(a).add_switch(a, [(is_small, b), (is_big, c)], default=d)
    builder.add_multi_selection(d, [e, b], choose).add_edge(c, c, is_small).add_edge(e, a).add_edge(a, e)
    return builder.add_fan_in([b, c], WorkflowExecutor(inner, "sub")).add_edge("sub", node("last"))


def random_workflow(seed: int) -> WorkflowBuilder:
    source = Random(seed)
    nodes = [node(f"e{number}") for number in range(source.randint(2, 30))]
    builder = WorkflowBuilder(nodes[0])
    pairs = {(source.randrange(number), number) for number in range(1, len(nodes))}
    pairs |= {(source.randrange(len(nodes)), source.randrange(len(nodes))) for _ in range(20)}
    for one, other in sorted(pairs):
        builder.add_edge(nodes[one], nodes[other], is_small if source.random() < 0.3 else None)
    return builder


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


def test_mermaid_shows_executors_conditions_and_sub_workflows() -> None:
    assert everything().build().draw("mermaid") == MERMAID


def test_mermaid_is_the_default() -> None:
    assert everything().build().draw().startswith("flowchart TD\n")


def test_svg_shows_the_same_names() -> None:
    shown = texts(everything().build().draw("svg"))
    for name in ["a", "b", "c", "d", "e", "sub", "first", "second", "last", "is_small", "is_big", "default", "choose"]:
        assert name in shown


def test_a_request_shows_what_is_asked() -> None:
    class Asker(Judge):
        @sync.response_handler
        async def answered(self, request: Ask, response: bool, ctx: Any) -> None: ...

    workflow = WorkflowBuilder(Asker("judge")).build()
    assert texts(workflow.draw("svg")) == ["start", "judge", "str", "asks Ask -> bool"]


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'mermaid' or 'svg', got 'png'"):
        everything().build().draw("png")  # type: ignore[arg-type]


def test_a_drawing_is_the_same_in_both_worlds_and_each_time() -> None:
    blocking = sync.WorkflowBuilder(node("a")).add_edge("a", node("b")).build()
    awaitable = WorkflowBuilder(node("a")).add_edge("a", node("b")).build()
    assert blocking.draw("svg") == awaitable.draw("svg") == awaitable.draw("svg")


@pytest.mark.parametrize("id_", HOSTILE)
def test_no_id_breaks_out_of_a_drawing(id_: str) -> None:
    inner = WorkflowBuilder(node(id_)).build()
    builder = WorkflowBuilder(node("start")).add_edge("start", node(id_), is_small, name=id_)
    workflow = builder.add_switch("start", [(is_big, WorkflowExecutor(inner, f"sub {id_}"))], names=[id_]).build()
    svg = workflow.draw("svg")
    tags = {each.tag.rpartition("}")[2] for each in ET.fromstring(svg).iter()}
    attributes = {name for each in ET.fromstring(svg).iter() for name in each.attrib}
    assert tags == {"svg", "marker", "g", "rect", "path", "text"}
    assert not {name for name in attributes if name.startswith("on") or "href" in name}
    svg.encode()
    for line in workflow.draw("mermaid").splitlines():
        assert re.fullmatch(MERMAID_LINE, line), line


MERMAID_LINE = (
    r'flowchart TD| +end| +subgraph n\d+\["{0}"\]| +n\d+(\["{0}"\]|\(\("{0}"\)\)|\{{"{0}"\}})'
    r'| +n\d+ (-->|-\.->)(\|"{0}"\|)? n\d+'
).format(r"(#\d+;|[^\W_]|[ _/-])*")


@pytest.mark.parametrize("seed", range(8))
def test_no_line_runs_through_a_box_or_a_label(seed: int) -> None:
    assert_clear(ET.fromstring(random_workflow(seed).build().draw("svg")))


def test_no_line_runs_through_a_sub_workflow() -> None:
    assert_clear(ET.fromstring(everything().build().draw("svg")))


def assert_clear(picture: ET.Element) -> None:
    """Boxes lie apart; a line touches only its ends, and its own label in the middle. The same in sub-workflows."""
    boxes = [Rectangle(each) for each in picture.findall(f"{SVG}rect") if each.get("x")]
    for one, other in combinations(boxes, 2):
        assert one.right < other.left or other.right < one.left or one.bottom < other.top or other.bottom < one.top
    for path in picture.findall(f"{SVG}path"):
        for x, y in points(path.attrib["d"]):
            for box in boxes:
                is_within = box.left + 1 < x < box.right - 1 and box.top + 1 < y < box.bottom - 1
                assert not is_within or (box.is_label and abs(x - (box.left + box.right) / 2) < 1)
    for inner in picture.findall(f"{SVG}g"):
        assert_clear(inner)


class Rectangle:
    def __init__(self, element: ET.Element) -> None:
        self.left, self.top, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
        self.right, self.bottom = self.left + width, self.top + height
        self.is_label = element.get("fill") == "#ffffff"


def points(path: str) -> Iterator[tuple[float, float]]:
    """Points along a path of lines and curves, close to each other."""
    here = (0.0, 0.0)
    for command, numbers in re.findall(r"([MLC]) ([^MLC]+)", path):
        places = [(float(x), float(y)) for x, y in re.findall(r"(\S+) (\S+)", numbers)]
        ends = [here, *places] if command == "C" else [here, here, places[0], places[0]]
        if command != "M":
            for at in (step / 12 for step in range(13)):
                weights = [(1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3]
                x, y = (sum(weight * end[axis] for weight, end in zip(weights, ends, strict=True)) for axis in (0, 1))
                yield x, y
        here = places[-1]


MERMAID = """flowchart TD
    n0(("start"))
    n1["a"]
    n2["b"]
    n3["c"]
    n4["d"]
    n5["e"]
    subgraph n6["sub"]
        n7(("start"))
        n8["first"]
        n9["second"]
        n7 --> n8
        n8 -.->|"is_big"| n9
    end
    n10["last"]
    n11{"switch"}
    n12{"choose"}
    n13(("all"))
    n0 --> n1
    n1 --> n11
    n11 -.->|"is_small"| n2
    n11 -.->|"is_big"| n3
    n11 -.->|"default"| n4
    n4 --> n12
    n12 -.-> n5
    n12 -.-> n2
    n3 -.->|"is_small"| n3
    n5 --> n1
    n1 --> n5
    n2 --> n13
    n3 --> n13
    n13 --> n6
    n6 --> n10
"""
