"""What an answer must be: its fields, their types, and who may give it."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pytest
from msgspec import Struct
from pydantic import BaseModel

from holdfast import Executor, InvalidAnswer, WorkflowContext, handler, response_handler, sync
from patience import GIVE_UP_SECONDS
from runs.worlds import World
from workflow.flows import Builder


@dataclass
class Line:
    count: int


class Place(TypedDict, total=False):
    city: str


@dataclass
class Decision:
    approved: bool
    limit: int = 100
    line: Line | None = None
    lines: list[Line] = field(default_factory=list)
    place: Place | None = None


class Verdict(Struct):
    approved: bool
    limit: int = 100


class Ruling(BaseModel):
    approved: bool
    limit: int = 100


class Judge(Executor):
    def __init__(self, kind: Any) -> None:
        super().__init__("judge")
        self.kind = kind

    @handler
    async def take(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.request_info(text, self.kind)

    @response_handler
    async def answered(self, request: str, response: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(response)


@pytest.mark.parametrize("kind", [Decision, Verdict, Ruling])
async def test_an_answer_with_a_field_that_its_class_does_not_have_is_refused(world: World, kind: type) -> None:
    flow = Builder(world, Judge(kind)).build()
    (request,) = (await flow.run("x", thread_id="t")).requests
    unknown = f"{kind.__name__} has no field 'limt'; its fields are approved, limit"
    with pytest.raises(InvalidAnswer, match=unknown):
        await world.store.answer(request.id, value={"approved": True, "limt": 5})
    await world.store.answer(request.id, value={"approved": True, "limit": 5})
    assert (await flow.run(thread_id="t")).outputs == [kind(approved=True, limit=5)]


@pytest.mark.parametrize(
    ("kind", "wrong", "why"),
    [
        (int, True, "True is a bool"),
        (list[float], [1, True], "True is a bool"),
        (Decision, {"approved": 1}, "Expected `bool`, got `int`"),
        (Decision, {"approved": True, "limit": True}, "True is a bool"),
        (Decision, {"approved": True, "limit": "5"}, "Expected `int`, got `str`"),
        (Decision, {"approved": True, "line": {"cuont": 5}}, "Line has no field 'cuont'; its fields are count"),
        (Decision, {"approved": True, "place": {"town": "Rome"}}, "Place has no field 'town'; its fields are city"),
        (Decision | None, {"approved": True, "lines": [{"count": 5}, {"n": 1}]}, "Line has no field 'n'"),
    ],
)
async def test_an_answer_is_checked_to_its_innermost_field(world: World, kind: Any, wrong: Any, why: str) -> None:
    flow = Builder(world, Judge(kind)).build()
    (request,) = (await flow.run("x", thread_id="t")).requests
    with pytest.raises(InvalidAnswer, match=why):
        await world.store.answer(request.id, value=wrong)


@pytest.mark.parametrize(
    ("kind", "right", "taken"),
    [
        (int | bool, True, True),
        (dict[str, Any], {"limt": True}, {"limt": True}),
        (Decision | None, {"approved": True, "line": {"count": 5}}, Decision(approved=True, line=Line(5))),
        (Decision, Decision(approved=True, limit="many"), Decision(approved=True, limit="many")),  # type: ignore[arg-type]
    ],
)
async def test_an_answer_that_fits_is_taken_and_an_object_as_it_is(
    world: World, kind: Any, right: Any, taken: Any
) -> None:
    flow = Builder(world, Judge(kind)).build()
    (request,) = (await flow.run("x", thread_id="t")).requests
    await world.store.answer(request.id, value=right)
    assert (await flow.run(thread_id="t")).outputs == [taken]


async def test_a_request_says_what_it_takes_and_is_returned_answered(world: World) -> None:
    flow = Builder(world, Judge(Verdict)).build()
    (request,) = (await flow.run("x", thread_id="t")).requests
    assert (request.takes, request.status) == ("Verdict(approved: bool, limit: int)", "open")
    answered = await world.store.answer(request.id, value={"approved": True}, by="ana")
    assert (answered.id, answered.status) == (request.id, "answered")
    assert answered.answer is not None
    assert (answered.answer.value, answered.answer.by) == (Verdict(approved=True), "ana")


ORDERS = """
from dataclasses import dataclass
from typing import Any
import holdfast.sync as holdfast

@dataclass
class Limit:
    cents: int

@dataclass
class Decision:
    approved: bool
    limit: Limit

class Judge(holdfast.Executor):
    @holdfast.handler
    def take(self, text: str, ctx: holdfast.WorkflowContext[Any, str]) -> None:
        ctx.request_info(text, Decision | None)

    @holdfast.response_handler
    def answered(self, request: str, response: Decision | None, ctx: holdfast.WorkflowContext[Any, str]) -> None:
        ctx.yield_output(repr(response))

def flow(store):
    return holdfast.WorkflowBuilder(Judge("judge"), store, name="orders").build()
"""


def program(folder: Path, module: str, text: str) -> str:
    """What a new process prints that imports a module as `orders`."""
    code = f"import holdfast.sync as holdfast, {module} as orders\nstore = holdfast.open('o.db')\n{text}\nstore.close()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=GIVE_UP_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASK = "print(orders.flow(store).run('x', thread_id='t').requests[0].id)"
RESUME = "print(orders.flow(store).run(thread_id='t').outputs[0])"


def test_a_program_that_only_imports_the_class_may_answer_with_an_object(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(ORDERS)
    request = program(tmp_path, "orders", ASK)
    program(tmp_path, "orders", f"store.answer({request!r}, value=orders.Decision(True, orders.Limit(5)))")
    assert program(tmp_path, "orders", RESUME) == "Decision(approved=True, limit=Limit(cents=5))"


def test_a_class_that_moved_to_another_module_still_answers(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(ORDERS)
    request = program(tmp_path, "orders", ASK)
    (tmp_path / "orders.py").rename(tmp_path / "moved.py")
    program(
        tmp_path,
        "moved",
        f"orders.flow(store)\nstore.answer({request!r}, value=orders.Decision(True, orders.Limit(5)))",
    )
    assert program(tmp_path, "moved", RESUME) == "Decision(approved=True, limit=Limit(cents=5))"


def test_a_plain_value_of_a_union_is_taken_without_the_class(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(ORDERS)
    request = program(tmp_path, "orders", ASK)
    with sync.open(tmp_path / "o.db") as store:
        with pytest.raises(InvalidAnswer, match="takes a value of type") as refused:
            store.answer(request, value="x" * 5000)
        assert len(str(refused.value)) < 1000
        store.answer(request, value=None)
    assert program(tmp_path, "orders", RESUME) == "None"


def test_an_object_of_another_class_is_not_registered_by_an_answer() -> None:
    @dataclass
    class Other:
        approved: bool

    with sync.open("memory:") as store:

        class Asking(Executor):
            @handler
            def take(self, text: str, ctx: sync.WorkflowContext[Any, Any]) -> None:
                ctx.request_info(text, Verdict)

            @response_handler
            def answered(self, request: str, response: Verdict, ctx: sync.WorkflowContext[Any, Any]) -> None: ...

        (request,) = sync.WorkflowBuilder(Asking(), store).build().run("x").requests
        with pytest.raises(InvalidAnswer, match="takes a value of type Verdict"):
            store.answer(request.id, value=Other(approved=True))
