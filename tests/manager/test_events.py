"""The events of a session: what every agent said, in order, whichever process it said it in."""

import pytest

from holdfast import ConfigurationError, Corrupt, Event, KeyReused, UnstorableValue, find_agent_to_run
from manager.tasks import manager
from manager.test_composition import COORDINATOR, RESEARCHER, ROOT
from runs.worlds import World

SESSION = ("shop", "ana", "chat-1")


async def test_events_are_kept_in_their_order_over_processes(world: World) -> None:
    said = [
        Event("user", "hi"),
        Event("coordinator", {"exact": (1,)}),
        Event("researcher", "x", True, "root.researcher"),
    ]
    assert await manager(world).events(*SESSION) == []
    for event in said:
        await manager(world).add_event(*SESSION, event)
    assert await manager(world).events(*SESSION) == said
    assert await manager(world).events("shop", "bob", "chat-1") == []
    with pytest.raises(ConfigurationError, match=r"`event` must be a holdfast\.Event"):
        await manager(world).add_event(*SESSION, {"author": "user"})


async def test_an_event_is_added_once_under_its_key(world: World) -> None:
    made, event = manager(world), Event("user", "hi")
    await world.gather(*(made.add_event(*SESSION, event, key="message-1") for _ in range(3)))
    await made.add_event(*SESSION, Event("user", "hi"), key="message-2")
    await made.add_event(*SESSION, Event("user", "hi"))
    await made.add_event(*SESSION, event, key="message-1")
    assert await made.events(*SESSION) == [event] * 3
    with pytest.raises(KeyReused, match="idempotency key 'message-1' of thread 'shop/ana/chat-1' was used for other"):
        await made.add_event(*SESSION, Event("user", "other words"), key="message-1")
    with pytest.raises(ConfigurationError, match="`idempotency_key` must be"):
        await made.add_event(*SESSION, event, key="")


async def test_the_documents_recovery_flow_resumes_the_researcher_with_full_context(world: World) -> None:
    """User, coordinator, researcher; the researcher needs an approval; after a restart it is the one to resume."""
    from manager.tasks import APPROVAL, TASK, state_of

    made = manager(world)
    for event in (Event("user", "refund me"), Event("coordinator", "ask"), Event("researcher", "may I?")):
        await made.add_event(*SESSION, event)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)

    restarted, resumed = manager(world), []

    async def callback(state: object, user_input: str) -> None:
        events = await restarted.events(*SESSION)
        resumed.append((find_agent_to_run(events, ROOT), len(events), user_input))
        await restarted.add_event(*SESSION, Event("researcher", "done", final=True))

    restarted.on_resume(callback)
    await restarted.resume(*TASK, user_input="approve")
    assert resumed == [(RESEARCHER, 3, "approve")]
    assert find_agent_to_run(await restarted.events(*SESSION), ROOT) is COORDINATOR


async def test_many_write_to_one_session_and_nothing_is_lost(world: World) -> None:
    made = manager(world)
    await world.gather(*(made.add_event(*SESSION, Event("agent", number)) for number in range(12)))
    assert sorted(event.content for event in await made.events(*SESSION)) == list(range(12))


@pytest.mark.parametrize("state", [None, [], {}, {"events": 1}, {"events": [1]}, {"events": [{"author": 1}]}])
async def test_a_state_that_is_not_that_of_a_session_or_a_task_is_damage(world: World, state: object) -> None:
    made = manager(world)
    for thread_id in ("shop/ana/chat-1", "shop/ana/chat-1/task-1"):
        await world.store.save(thread_id, state)
    with pytest.raises(Corrupt, match="not the fields of SessionEvents"):
        await made.events(*SESSION)
    if state == {}:
        assert await made.load(*SESSION, "task-1") is None, "steps may be recorded before the first save"
        return
    with pytest.raises(Corrupt, match="not the fields of ExecutionState"):
        await made.load(*SESSION, "task-1")


async def test_an_event_that_could_not_be_read_again_is_refused_and_the_session_stays_readable(world: World) -> None:
    made = manager(world)
    await made.add_event(*SESSION, Event("user", "hi"))
    for event in (Event(5, "x"), Event("agent", final=1), Event("agent", branch=None)):  # type: ignore[arg-type]
        with pytest.raises(UnstorableValue, match="this event could not be loaded again"):
            await made.add_event(*SESSION, event)
    assert await made.events(*SESSION) == [Event("user", "hi")]
