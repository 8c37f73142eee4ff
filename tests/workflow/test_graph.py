"""Building a workflow: every mistake is named, with the executor, before anything runs."""

from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any, Literal, Never, TypedDict

import pytest

import holdfast
from holdfast import (
    ConfigurationError,
    Executor,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
    sync,
)
from holdfast.records.type_hints import fits, hint_name, may_meet
from holdfast.runtimes.workflow.workflow import WorkflowBuilder


@dataclass
class Order:
    """A message."""

    amount: int


class Text(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[str]) -> None: ...


class Numbers(Executor):
    @handler
    async def take(self, number: int, ctx: WorkflowContext[int | Order, str]) -> None: ...


class Orders(Executor):
    @handler
    async def take(self, order: Order, ctx: WorkflowContext[Never, str]) -> None: ...


class Lists(Executor):
    @handler
    async def take(self, texts: list[str], ctx: WorkflowContext) -> None: ...


def builder(start: Any = None, **options: Any) -> WorkflowBuilder:
    return holdfast.WorkflowBuilder(start or Text("start"), **options)


def yes(_message: Any) -> bool:
    return True


MISTAKES: dict[str, tuple[Any, str]] = {
    "unknown target": (
        lambda: builder().add_edge("start", "nobody").build(),
        r"edge: start -> nobody: unknown executor 'nobody'; known: 'start'",
    ),
    "a type that no handler of the target takes": (
        lambda: builder().add_edge("start", Numbers("n")).build(),
        "executor 'n' handles int, but executor 'start' sends it str; add a handler, or remove the edge",
    ),
    "a type that no target takes": (
        lambda: builder(Numbers("n")).add_edge("n", "n").build(),
        "executor 'n' sends Order, but no handler of 'n' accepts it",
    ),
    "a fan-in whose target takes no list": (
        lambda: builder().add_fan_out("start", [a := Text("a"), b := Text("b")]).add_fan_in([a, b], Text("c")).build(),
        r"executor 'c' handles str, but executor 'a' sends it list\[str\]",
    ),
    "a fan-in of other items": (
        lambda: (
            builder(Numbers("n"))
            .add_edge("n", Orders("o"), yes)
            .add_edge("n", "n")
            .add_fan_in(["n"], Lists("l"))
            .build()
        ),
        r"executor 'l' handles list\[str\], but executor 'n' sends it list\[int\] or list\[Order\]",
    ),
    "unreachable executor": (
        lambda: builder().add_edge(Text("a"), Text("b")).build(),
        "no message can reach executor 'a', 'b' from the start 'start'",
    ),
    "duplicate id": (
        lambda: builder().add_edge("start", Text("start")),
        "add_edge: two executors have the id 'start'; ids must be unique",
    ),
    "anonymous condition": (
        lambda: builder().add_edge("start", Text("a"), condition=lambda _: True),
        "add_edge: a condition after executor 'start' has no name.*pass name=, or use a def",
    ),
    "anonymous case": (
        lambda: builder().add_switch("start", [(partial(yes), Text("a"))]),
        "add_switch: a condition after executor 'start' has no name.*pass names=",
    ),
    "the same edge twice": (
        lambda: builder().add_edge("start", "start").add_edge("start", "start"),
        "add_edge: edge: start -> start exists already",
    ),
    "an executor without a handler": (
        lambda: builder(Executor("empty")).build(),
        "executor 'empty' has no handler; decorate a method",
    ),
    "a function that is no executor": (
        lambda: builder().add_edge("start", yes),  # type: ignore[arg-type]
        "is not an executor; decorate a function with @holdfast.executor",
    ),
    "a handler with other parameters": (
        lambda: builder(executor(yes)).build(),
        r"executor 'yes': yes must take \(message, ctx\), got \(_message\)",
    ),
    "a target twice": (
        lambda: builder().add_fan_out("start", [a := Text("a"), a]),
        "add_fan_out: executor 'a' is listed twice, so each message would arrive twice",
    ),
    "a source twice": (
        lambda: builder().add_fan_in(["start", "start"], Lists("l")),
        "add_fan_in: executor 'start' is listed twice",
    ),
    "a choice twice": (
        lambda: builder().add_multi_selection("start", [a := Text("a"), a], yes),
        "add_multi_selection: executor 'a' is listed twice",
    ),
    "an id of a sub-workflow's executor": (
        lambda: (
            builder()
            .add_edge("start", WorkflowExecutor(builder(Text("inner")).build(), id="sub"))
            .add_edge("sub", Text("sub/inner"))
            .build()
        ),
        "two executors have the id 'sub/inner'; ids must be unique",
    ),
    "no targets": (lambda: builder().add_fan_out("start", []), "add_fan_out needs a list of at least one executor"),
    "cases that are no pairs": (lambda: builder().add_switch("start", [yes]), "cases of add_switch must be pairs"),  # type: ignore[list-item]
    "names for other cases": (
        lambda: builder().add_switch("start", [(yes, Text("a"))], names=["a", "b"]),
        "`names` must have one name per case \\(1\\), got 2",
    ),
    "a condition that is no function": (
        lambda: builder().add_edge("start", Text("a"), condition=5),  # type: ignore[arg-type]
        "a condition after executor 'start' must be a function, got 5",
    ),
    "an unknown option": (lambda: builder(reducer={}), "unknown option 'reducer'; did you mean 'reducers'?"),
    "a wrong policy": (lambda: builder(on_incompatible="ask").build(), "`on_incompatible` must be 'raise' or 'fresh'"),
    "no supersteps": (
        lambda: builder(max_supersteps=0).build(),
        "`max_supersteps` must be an int of at least 1",
    ),
    "a reducer that is none": (lambda: builder(reducers={"a": 1}).build(), "`reducers` must map keys"),
    "a store of the other world": (lambda: builder(store=sync.MemoryStore()), "`store` must be a store from holdfast"),
    "a renaming that is none": (lambda: builder().migrate(renamed={1: "a"}), "`renamed` must map old ids"),  # type: ignore[dict-item]
    "a renaming to nothing": (
        lambda: builder().migrate(renamed={"old": "nobody"}).build(),
        "migrate: unknown executor 'nobody'; known: 'start'",
    ),
    "a renaming of two to one": (
        lambda: builder().migrate(renamed={"a": "start"}).migrate(renamed={"b": "start"}),
        "`renamed` maps 'a' and 'b' to one id",
    ),
    "a class": (lambda: builder(Text), "start_executor: Text is a class; pass an instance: Text"),
    "a sub-workflow that is none": (
        lambda: WorkflowExecutor(5),
        "`workflow` must be a Workflow, as",
    ),
    "an id that is none": (lambda: Text(5), "`id` must be"),  # type: ignore[arg-type]
    "a start that is none": (lambda: holdfast.WorkflowBuilder(None), "start_executor: None is not an executor"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_when_the_workflow_is_built(name: str) -> None:
    make, text = MISTAKES[name]
    with pytest.raises(ConfigurationError, match=text):
        make()


def test_an_executor_that_does_not_call_its_base_class_is_named() -> None:
    class Forgetful(Executor):
        def __init__(self) -> None:
            pass

    with pytest.raises(ConfigurationError, match=r"Forgetful has no id; call super\(\)"):
        holdfast.WorkflowBuilder(Forgetful())


def test_two_handlers_of_one_type_are_named() -> None:
    class Twice(Executor):
        @handler
        async def one(self, text: str, ctx: WorkflowContext[Any]) -> None: ...

        @handler
        async def two(self, given: int | str, ctx: WorkflowContext[Any]) -> None: ...

    class Answered(Text):
        @response_handler
        async def yes(self, request: str, response: bool, ctx: WorkflowContext[Any]) -> None: ...

        @response_handler
        async def no(self, request: str, response: bool, ctx: WorkflowContext[Any]) -> None: ...

    with pytest.raises(ConfigurationError, match="executor 'Twice': one and two both handle str; remove it from one"):
        holdfast.WorkflowBuilder(Twice()).build()
    with pytest.raises(ConfigurationError, match="executor 'Answered': yes and no both handle str and bool"):
        holdfast.WorkflowBuilder(Answered()).build()


def test_an_annotation_that_is_not_defined_is_named() -> None:
    class Late(Executor):
        @handler
        async def take(self, text: "Missing", ctx: WorkflowContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match=r"executor 'Late': .*take: an annotation names 'Missing'"):
        holdfast.WorkflowBuilder(Late()).build()


def test_messages_of_local_classes_are_registered_by_the_builder(memory_store: sync.Store) -> None:
    @dataclass
    class Local:
        name: str

    @executor
    def start(message: "Local", ctx: sync.WorkflowContext["Local", "Local"]) -> None:
        ctx.yield_output(Local(message.name * 2))

    flow = sync.WorkflowBuilder(start, memory_store).build()
    assert flow.run(Local("a")).outputs == [Local("aa")]


def test_a_graph_of_200_executors_is_built_quickly() -> None:
    texts = [Text(f"t{number}") for number in range(199)]
    names = [each.id for each in texts]

    def build() -> Any:
        chained = holdfast.WorkflowBuilder(texts[0]).add_chain(texts).add_edge("t198", "t0", condition=yes)
        return chained.add_fan_in(names, Lists("all")).build()

    build()  # what is loaded once is not part of it
    times = []
    for _ in range(5):
        started = process_time()
        built = build()
        times.append(process_time() - started)
    assert min(times) < 0.05
    assert len(built.graph.nodes) == 200


def test_ids_types_edges_and_names_of_conditions_make_the_signature() -> None:
    def signature(**changed: Any) -> str:
        start, other = Text("start"), changed.get("other", Text("other"))
        built = holdfast.WorkflowBuilder(start).add_edge(start, other, yes, name=changed.get("name"))
        return built.build().signature

    class Wide(Executor):
        @handler
        async def take(self, text: str | None, ctx: WorkflowContext[str]) -> None: ...

    assert signature() == signature()
    others = [signature(other=Text("x")), signature(name="no"), signature(other=Wide("other"))]
    assert len({signature(), *others}) == 4


FITS: list[tuple[Any, Any, bool]] = [
    (1, int, True),
    (1, str | int, True),
    (True, int, True),
    ("a", int, False),
    (["a"], list[str], True),
    ([1], list[str], False),
    ([], list[str], True),
    ({"a": 1}, dict[str, int], True),
    ({"a": "b"}, dict[str, int], False),
    ({1: 2}, dict[str, int], False),
    ((1, "a"), tuple[int, str], True),
    (("a", 1), tuple[int, str], False),
    ((1,), tuple[int, str], False),
    ((1, 2, 3), tuple[int, ...], True),
    (("a",), tuple[int, ...], False),
    (1, float, True),
    ([1, 1.5], list[float], True),
    ("a", float, False),
    (None, None, True),
    ("a", Literal["a"], True),
    (1, Literal[True], False),
    (1.5, Any, True),
    (1, Never, False),
]


@pytest.mark.parametrize(("value", "hint", "expected"), FITS, ids=str)
def test_a_handler_is_found_by_the_type_of_the_message(value: Any, hint: Any, expected: bool) -> None:
    assert fits(value, hint) is expected


class Point(TypedDict):
    x: int


def test_a_typed_dict_is_a_dict() -> None:
    assert fits({"x": 1}, Point)
    assert fits([{"x": 1}], list[Point])
    assert not fits("text", Point)
    assert not fits(["text"], list[Point])


def test_two_types_meet_if_a_message_can_be_of_both() -> None:
    assert may_meet(int | str, str)
    assert may_meet(bool, int)
    assert may_meet(int, float)
    assert may_meet(list, list[str])
    assert not may_meet(list[int], list[str])
    assert not may_meet(Order, str)
    assert hint_name(dict[str, list[Order]] | None) == "dict[str, list[Order]] | NoneType"
