"""Agents made of agents: resumed at the stage, at the iteration, and in the unfinished branches only."""

from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest

from holdfast import AgentContext, ConfigurationError, Corrupt, Event, KeyReused, Status, find_agent_to_run, sync
from holdfast.codec import encode
from holdfast.runs.driver import Driver, Terms, claim, note
from patience import GIVE_UP_SECONDS
from runs.worlds import BlockingWorld, Calls, World, plain


class Kit:
    """Composites of a world, made of agents that note their calls."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[str] = []
        self.fails: set[str] = set()

    def agent(self, name: str, stops_at: int = 0) -> Callable[..., Any]:
        """An agent that adds its name to its input, and fails while it is told to."""

        async def agent(given: str, ctx: AgentContext) -> str:
            self.calls.append(f"{name}{ctx.loop_iteration or ''}")
            if f"{name}{ctx.loop_iteration or ''}" in self.fails:
                raise ConnectionError(name)
            if stops_at and ctx.loop_iteration == stops_at:
                ctx.stop()
            return f"{given}{name}"

        agent.__name__ = name
        return plain(agent) if isinstance(self.world, BlockingWorld) else agent

    def make(self, kind: str, *args: Any, **named: Any) -> Any:
        """A composite of the world's own."""
        module = sync if isinstance(self.world, BlockingWorld) else self.world.api
        return getattr(module, kind)(*args, **named)

    async def run(self, composite: Any, given: Any = "", thread_id: str = "t") -> Any:
        """Run it on the world's store."""
        if isinstance(self.world, BlockingWorld):
            return await Calls(composite).run(given, thread_id=thread_id, store=self.world.store._inner)  # type: ignore[attr-defined]
        return await composite.run(given, thread_id=thread_id, store=self.world.store)

    def called(self) -> list[str]:
        """Who was called since this was asked last."""
        calls, self.calls = self.calls, []
        return calls


async def test_a_sequence_hands_each_output_to_the_next_and_is_resumed_at_its_stage(world: World) -> None:
    kit = Kit(world)
    pipeline = kit.make("sequential", [kit.agent(name) for name in "abcd"])
    kit.fails = {"c"}
    with pytest.raises(ConnectionError):
        await kit.run(pipeline)
    assert kit.called() == ["a", "b", "c"]
    assert (await world.store.thread("t")).status is Status.FAILED
    kit.fails = set()
    assert await kit.run(pipeline) == "abcd"
    assert kit.called() == ["c", "d"]
    assert await kit.run(pipeline) == "abcd"
    assert kit.called() == []


async def test_parallel_branches_are_resumed_where_they_are_not_finished(world: World) -> None:
    """Theirs starts a parallel workflow from the beginning."""
    kit = Kit(world)
    search = kit.make("parallel", [kit.agent(name) for name in "abcd"])
    kit.fails = {"b", "c"}
    with pytest.raises(ConnectionError, match="b"):
        await kit.run(search, ">")
    assert sorted(kit.called()) == ["a", "b", "c", "d"]
    kit.fails = {"c"}
    with pytest.raises(ConnectionError, match="c"):
        await kit.run(search, ">")
    assert sorted(kit.called()) == ["b", "c"]
    kit.fails = set()
    assert await kit.run(search, ">") == [">a", ">b", ">c", ">d"]
    assert kit.called() == ["c"]


async def test_a_repetition_is_resumed_at_its_iteration(world: World) -> None:
    kit = Kit(world)
    polish = kit.make("repeat", kit.agent("a"), max_iterations=4)
    kit.fails = {"a3"}
    with pytest.raises(ConnectionError):
        await kit.run(polish)
    assert kit.called() == ["a1", "a2", "a3"]
    kit.fails = set()
    assert await kit.run(polish) == "aaaa"
    assert kit.called() == ["a3", "a4"]


async def test_an_agent_ends_the_repetition_around_it_and_a_replay_ends_it_there_too(world: World) -> None:
    kit = Kit(world)
    inner = kit.make("sequential", [kit.agent("a", stops_at=2), kit.agent("b")])
    whole = kit.make("sequential", [kit.make("repeat", inner, max_iterations=9), kit.agent("c")])
    kit.fails = {"c"}
    with pytest.raises(ConnectionError):
        await kit.run(whole)
    assert kit.called() == ["a1", "b1", "a2", "b2", "c"]
    kit.fails = set()
    assert await kit.run(whole) == "ababc"
    assert kit.called() == ["c"]


async def test_a_tree_of_composites_is_resumed_in_its_depth_and_not_from_its_root(world: World) -> None:
    kit = Kit(world)
    search = kit.make("parallel", [kit.agent("maps"), kit.make("repeat", kit.agent("news"), max_iterations=3)])
    root = kit.make("sequential", [kit.agent("plan"), search, kit.agent("write")], name="root")
    kit.fails = {"news2"}
    with pytest.raises(ConnectionError):
        await kit.run(root)
    assert sorted(kit.called()) == ["maps", "news1", "news2", "plan"]
    kit.fails = set()
    assert await kit.run(root) == "['planmaps', 'plannewsnewsnews']write"
    assert kit.called() == ["news2", "news3", "write"]


async def test_a_row_and_the_state_say_where_the_workflow_stands(world: World) -> None:
    kit = Kit(world)
    root = kit.make(
        *("sequential", [kit.agent("a"), kit.make("repeat", kit.agent("b"), max_iterations=2, name="loop")]),
        name="root",
    )
    await kit.run(root)
    rows = list(await world.store.history("t"))[::-1]
    assert [(row.metadata["agent"], row.metadata["branch"]) for row in rows] == [
        ("a", "root.a"),
        ("b", "root.loop.b"),
        ("b", "root.loop.b"),
    ]
    assert [row.metadata["loop_iteration"] for row in rows] == [0, 1, 2]
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {
        "agent_name": "b",
        "agent_state": {
            "branch": "root.loop.b",
            "workflow_type": "loop",
            "workflow_stage": 0,
            "loop_iteration": 2,
            "loop_max_iterations": 2,
        },
    }
    assert [step.action for step in latest.steps] == ["a", "b", "b"]
    assert (await world.store.thread("t")).labels == {"workflow": "root"}


async def test_another_input_or_other_agents_are_refused_on_a_known_thread(world: World) -> None:
    kit = Kit(world)
    await kit.run(kit.make("sequential", [kit.agent("a")]))
    with pytest.raises(KeyReused, match="its input or agents differed"):
        await kit.run(kit.make("sequential", [kit.agent("a")]), "other")
    with pytest.raises(KeyReused, match="its input or agents differed"):
        await kit.run(kit.make("sequential", [kit.agent("a"), kit.agent("b")]))


async def test_an_abandoned_composite_is_resumed_by_a_recovery(world: World) -> None:
    kit = Kit(world)
    pipeline = kit.make("sequential", [kit.agent("a"), kit.agent("b")], name="pipeline")
    kit.fails = {"b"}
    with pytest.raises(ConnectionError):
        await kit.run(pipeline, ">")
    kit.fails = set()
    await world.store.retry("t")

    async def handler(run: Any) -> Any:
        inner = run._inner if isinstance(run, Calls) else run
        result = pipeline.resume(inner)
        return result if isinstance(world, BlockingWorld) else await result

    report = await world.store.recover(handler, labels={"workflow": "pipeline"})
    assert report.completed == ("t",)
    assert (await world.store.outcome("t")).result == ">ab"
    assert kit.called() == ["a", "b", "b"]


async def test_an_agent_that_can_be_retried_is_a_part_with_a_thread_of_its_own(world: World) -> None:
    kit, tries = Kit(world), []

    async def shaky(task: str, **_: Any) -> str:
        tries.append(task)
        return f"{task}!"

    blocking = isinstance(world, BlockingWorld)
    store = world.store._inner if blocking else world.store  # type: ignore[attr-defined]
    api: Any = sync if blocking else world.api
    agent = api.Agent(plain(shaky) if blocking else shaky, store=store, name="shaky")
    pipeline = kit.make("sequential", [agent, kit.agent("b")])
    kit.fails = {"b"}
    with pytest.raises(ConnectionError):
        await kit.run(pipeline, "x")
    kit.fails = set()
    assert await kit.run(pipeline, "x") == "x!b"
    assert tries == ["x"]


async def test_a_note_that_is_not_what_its_kind_says_is_damage(world: World) -> None:
    kit = Kit(world)
    pipeline = kit.make("sequential", [kit.agent("a"), kit.agent("b")])
    kit.fails = {"a"}
    with pytest.raises(ConnectionError):
        await kit.run(pipeline)
    inner = world.store._inner._store if isinstance(world, BlockingWorld) else world.store  # type: ignore[attr-defined]
    async with claim(inner, "t", Terms()) as run:
        key = Driver.key("agent", "0.0")
        await Driver(run).write(note("agent_done", {}, 1, key=key, value=encode("forged"), action="a"))
    with pytest.raises(Corrupt, match="a note of kind 'agent_done' cannot be read"):
        await kit.run(pipeline)


async def test_what_is_no_agent_is_a_clear_error(world: World) -> None:
    kit = Kit(world)
    wrongs: list[Any] = [[], "abc", None]
    for wrong in wrongs:
        with pytest.raises(ConfigurationError, match="must be a list of at least one agent"):
            kit.make("sequential", wrong)
    with pytest.raises(ConfigurationError, match=r"an agent must be a function .*, got 7"):
        kit.make("parallel", [7])
    with pytest.raises(ConfigurationError, match="`max_iterations` must be"):
        kit.make("repeat", kit.agent("a"), max_iterations=0)


# Who is to speak next


class Named:
    """An agent of a program's own."""

    def __init__(self, name: str, *sub_agents: "Named") -> None:
        self.name = name
        self.sub_agents = sub_agents


RESEARCHER, WRITER = Named("researcher"), Named("writer")
COORDINATOR = Named("coordinator", RESEARCHER, WRITER)
ROOT = Named("root", COORDINATOR)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], ROOT),
        ([Event("user", "hi")], ROOT),
        ([Event("user", "hi"), Event("coordinator", "ask"), Event("researcher", "wait")], RESEARCHER),
        ([Event("coordinator", "ask"), Event("researcher", "found", final=True)], COORDINATOR),
        ([Event("coordinator", "ask"), Event("researcher", "wait"), Event("user", "approved")], RESEARCHER),
        ([Event("researcher", "one"), Event("researcher", "two", final=True)], ROOT),
        ([Event("researcher", "one", final=True), Event("researcher", "two")], RESEARCHER),
        ([Event("stranger", "hi"), Event("writer", "text"), Event("stranger", "bye")], WRITER),
        ([Event("w", "text", branch="root.coordinator.writer")], WRITER),
    ],
)
def test_the_last_author_in_the_tree_that_has_not_finished_is_resumed(events: list[Event], expected: Named) -> None:
    assert find_agent_to_run(events, ROOT) is expected


def test_agents_of_one_name_are_told_apart_by_their_branch() -> None:
    left, right = Named("left", Named("search")), Named("right", Named("search"))
    root = Named("root", left, right)
    assert find_agent_to_run([Event("search", "?", branch="root.right.search")], root) is right.sub_agents[0]
    assert find_agent_to_run([Event("search", "?")], root) is left.sub_agents[0]


def test_functions_and_composites_are_agents_of_a_tree_too() -> None:
    def draft(given: str, ctx: AgentContext) -> str:
        return given

    root = sync.sequential([sync.parallel([draft], name="both")], name="root")
    assert find_agent_to_run([Event("draft", "?")], root) is draft
    assert find_agent_to_run([Event("both", "?")], root) is root.sub_agents[0]


async def test_a_durable_function_is_not_taken_for_an_agent(world: World) -> None:
    def greet(name: str) -> str:
        return name

    durable = sync.durable(name="greet_in_a_composite")(greet)
    with pytest.raises(ConfigurationError, match="greet_in_a_composite is a durable function"):
        Kit(world).make("sequential", [durable])


async def test_a_composite_refuses_a_store_that_is_none(world: World) -> None:
    composite = Kit(world).make("sequential", [lambda given, _: given])
    with pytest.raises(ConfigurationError, match="`store` must be a store from holdfast"):
        await (Calls(composite) if isinstance(world, BlockingWorld) else composite).run("x", store="agents.db")


def test_in_the_blocking_world_the_agents_of_a_parallel_composite_run_at_the_same_time() -> None:
    both = Barrier(2, timeout=GIVE_UP_SECONDS)

    def first(given: str, _context: AgentContext) -> str:
        both.wait()
        return f"{given} one"

    def second(given: str, _context: AgentContext) -> str:
        both.wait()
        return f"{given} two"

    with sync.MemoryStore() as store:
        result = sync.parallel([first, second], name="root").run("x", thread_id="t", store=store)
    assert result == ["x one", "x two"]
