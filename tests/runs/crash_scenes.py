"""Agents to be killed at every point: all that a run can do, in both worlds, and the world outside that they act on."""

import asyncio
from contextlib import suppress
from typing import Any

import holdfast
from holdfast import Conflict, Done, NotDone, Step, sync
from holdfast.records.request import Request


class Outside:
    """What no crash can undo: a payment service that honours keys, one that does not, and a search that fails once."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.payments: dict[str, int] = {}
        self.parcels: list[str] = []
        self.searches = 0

    def pay(self, amount: int, idempotency_key: str) -> int:
        return self.payments.setdefault(idempotency_key, amount)

    def send(self, name: str) -> str:
        self.parcels.append(name)
        return f"sent {name}"

    def was_sent(self, _key: str, name: str) -> Any:
        return Done(f"sent {name}") if name in self.parcels else NotDone

    def search(self) -> list[str]:
        self.searches += 1
        if self.searches == 1:
            raise TimeoutError("the first search takes too long")
        return ["kelp", "rock"]

    def check(self) -> None:
        """One payment and one parcel for each of the two threads."""
        assert sorted(self.payments.values()) == [40, 40], f"paid {list(self.payments.values())}"
        assert sorted(self.parcels) == ["refund", "refund-2"], f"sent {self.parcels}"


outside = Outside()


def answer(request: Request) -> Any:
    """The person who is asked."""
    return "approve" if request.choices else f"{request.payload} please"


@sync.step
def plan(question: str) -> list[str]:
    return [question, "answer"]


@holdfast.step
async def read(page: int) -> int:
    await asyncio.sleep(0)
    return page * page


def blocking_agent(store: sync.Store, question: str, *, fork: bool = True) -> list[Any]:
    """Everything a run can do, then a fork of its first checkpoint that does it again."""

    def body(question: str) -> list[Any]:
        run = sync.current()
        steps = plan(question)
        found = run.step("search", outside.search, retries=2)
        sync.record(Step(action="look", tool_output=found))
        sync.append("messages", question)
        paid = run.step("pay", outside.pay, 40, effect=True)
        sync.sleep(5)
        parcel = "refund" if run.thread_id == "ticket" else "refund-2"
        sent = run.step("send", outside.send, parcel, effect=True, on_doubt="verify", verify=outside.was_sent)
        who = sync.ask("name", "who", deadline=86400).value
        sync.append("messages", who)
        sync.sleep(3600)
        refund = sync.confirm("refund", {"amount": paid})
        sync.checkpoint({**run.state, "refund": refund})
        return [steps, found, sent, who, refund]

    durable = sync.durable(store=store)(body)
    first = durable.run("ticket", question)
    if not fork:
        return first
    origin = store.history("ticket", limit=1000).items[-1].id
    with suppress(Conflict):
        store.fork(origin, to="fork", results={"plan": ["other"]})
    return [first, durable.resume("fork")]


async def awaitable_agent(store: holdfast.Store, question: str, *, fork: bool = True) -> list[Any]:
    """The same with parallel branches, of which two ask."""

    async def branch(number: int) -> bool:
        run = holdfast.current()
        await run.step(f"part-{number}", read.__wrapped__, number)  # type: ignore[attr-defined]
        approved = await holdfast.confirm(f"branch-{number}", number)
        await holdfast.append("approved", approved, key=f"approved-{number}")
        return approved

    async def body(question: str) -> list[Any]:
        run = holdfast.current()
        steps = plan(question)
        pages = await asyncio.gather(*map(read, range(3)), run.step("search", outside.search, retries=2))
        receipt = holdfast.record(Step(action="look", tool_output=pages))
        await holdfast.append("messages", question)
        await receipt
        paid = await run.step("pay", outside.pay, 40, effect=True)
        await holdfast.sleep(5)
        parcel = "refund" if run.thread_id == "ticket" else "refund-2"
        sent = await run.step("send", outside.send, parcel, effect=True, on_doubt="verify", verify=outside.was_sent)
        both = await asyncio.gather(branch(1), branch(2), return_exceptions=True)
        holdfast.record(Step(action="asked"))
        await holdfast.sleep(3600)
        refund = await holdfast.confirm("refund", {"amount": paid})
        await holdfast.checkpoint({**run.state, "refund": refund})
        return [steps, pages, sent, both, refund]

    durable = holdfast.durable(store=store)(body)
    first = await durable.run("ticket", question)
    if not fork:
        return first
    origin = (await store.history("ticket", limit=1000)).items[-1].id
    with suppress(Conflict):
        await store.fork(origin, to="fork", results={"plan": ["other"]})
    return [first, await durable.resume("fork")]


def block_with_keys(store: sync.Store) -> list[Any]:
    """No durable function: a block whose author gives a key to everything."""
    with store.run("block", labels={"user": "ana"}) as run:
        first = run.step("first", lambda: len(sync.idempotency_key()))
        paid = run.step("pay", outside.pay, 40, effect=True)
        handle = run.begin_step("by hand", 7, effect=False)
        run.complete_step(handle, "made")
        run.record(Step(action="look"), key="look")
        run.append("messages", "hello", key="hello")
        run.checkpoint({**run.state, "paid": paid}, key="paid")
        who = run.ask("name", "who").value
        run.append("messages", who, key="who")
        run.complete([first, paid, who])
    with store.run("block") as run:
        return [run.result, run.state, len(run.steps)]


def short_block(store: sync.Store) -> list[Any]:
    """A step, an effect, an append and a question."""
    with store.run("block") as run:
        first = run.step("first", lambda: len(sync.idempotency_key()))
        paid = run.step("pay", outside.pay, 40, effect=True)
        run.append("messages", "hello", key="hello")
        run.complete([first, paid, run.confirm("sure")])
        return [first, paid, run.state]


def block_that_asks_in_doubt(store: sync.Store) -> str:
    """An effect without a key and without a way to find out: a person is asked."""
    with store.run("doubt") as run:
        return run.step("send", outside.send, "refund", effect=True, on_doubt="ask")


def save_then_run(store: sync.Store) -> Any:
    """What is saved under a key before a run, though the run that died may still hold the thread."""
    store.save("thread", {"items": [1]}, idempotency_key="first")
    with store.run("thread") as run:
        run.append("items", 2, key="two")
        run.checkpoint({**run.state, "more": "text" * 1000}, key="more")
        return run.state


def two_threads(store: sync.Store) -> list[int]:
    """Two runs of one process at once."""
    with store.run("one") as one, store.run("other") as other:
        paid = [one.step("pay", outside.pay, 1, effect=True), other.step("pay", outside.pay, 2, effect=True)]
        one.complete(paid[0])
        other.complete(paid[1])
        return paid


@holdfast.durable
async def task_group() -> list[int]:
    """Branches that sleep, append and pay, and one that asks, under a task group."""

    async def branch(number: int) -> int:
        await holdfast.sleep(number * 10)
        await holdfast.append(("branches", str(number)), number)
        holdfast.record(Step(action=f"branch {number}"))
        return await holdfast.current().step(f"pay-{number}", outside.pay, number, effect=True)

    async with asyncio.TaskGroup() as group:
        branches = [group.create_task(branch(number)) for number in range(3)]
        group.create_task(holdfast.ask("who"))
    return [task.result() for task in branches]


@holdfast.durable
async def steps_within_steps() -> list[Any]:
    """A step whose function has an effect and a question of its own."""

    async def outer(number: int) -> list[Any]:
        paid = await holdfast.current().step("inner", outside.pay, number, effect=True)
        return [paid, (await holdfast.ask("within", number)).value]

    return [await holdfast.current().step("outer", outer, 1), plan("again")]
