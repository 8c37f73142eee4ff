# pyright: strict
"""A typical program of the blocking world that runs threads: steps, durable functions, questions, recovery."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import assert_type

import holdfast.sync as holdfast

store = holdfast.open("agents.db", durability="process")


@dataclass(frozen=True)
class Order:
    """What a step returns; its annotation makes it storable."""

    number: int
    total: float


@holdfast.step(retries=2, ignore=("client",), raises=(KeyError, ValueError))
def fetch(client: object, number: int) -> Order:
    """A step by decoration keeps its signature."""
    assert client is not None
    return Order(number, 40.0)


@holdfast.step
def describe(order: Order) -> str:
    """A bare decorator works too."""
    return f"order {order.number}"


def charge(amount: float, *, idempotency_key: str) -> str:
    """An effect takes the key."""
    return f"{amount}:{len(idempotency_key) > 0}"


def was_charged(idempotency_key: str, amount: float) -> object:
    """Whether an effect in doubt happened."""
    return holdfast.Done(f"{amount}:{idempotency_key}")


@holdfast.durable(store=store, lease=10, labels={"app": "demo"})
def support(number: int, *, polite: bool = True) -> str:
    """A durable function: its result type is that of its run."""
    order = fetch(object(), number)
    assert_type(order, Order)
    text = describe(order)
    assert_type(text, str)
    holdfast.record(holdfast.Step(action="noted", tool_output=text))
    holdfast.checkpoint({"order": number}, phase="post_tool")
    holdfast.append("messages", text)
    answer = holdfast.ask("refund", {"amount": 40}, choices=("approve", "reject"), deadline=timedelta(days=1))
    assert_type(answer, holdfast.Answer)
    return f"{text}: {answer.choice}" + ("." if polite else "")


def run_by_hand() -> None:
    """Steps within a block: the type of a result is that of the function."""
    with store.run("essay", labels={"user": "ana"}, lease=timedelta(seconds=5), wait=1) as run:
        assert_type(run, holdfast.Run)
        assert_type(run.step("length", len, "kelp", raises=TypeError), int)
        assert_type(run.step("fetch", lambda: fetch(object(), 7)), Order)
        paid = run.step("pay", charge, 40.0, effect=True, on_doubt="verify", verify=was_charged, timeout=5)
        assert_type(paid, str)
        assert paid == "40.0:True"
        receipt = run.record(holdfast.Step(action="search"), key="search")
        receipt.wait()
        handle: holdfast.StepHandle = run.begin_step("by hand")
        run.complete_step(handle, [1, 2])
        run.checkpoint({"plan": ["search"]})
        run.append("plan", "write")
        run.sleep(0)
        assert (run.resumed, run.status, len(run.steps)) == (False, holdfast.Status.WORKING, 6)
        run.complete({"done": True})
    with store.run("essay") as again:
        assert (again.finished, again.result) == (True, {"done": True})


def pooled() -> None:
    """Steps on threads that know their run, with a value that is never written."""
    token = holdfast.Secret("hunter2")
    assert_type(token.reveal(), str)
    with store.run("pooled") as run, holdfast.pool(2) as pool:
        orders = list(pool.map(partial(fetch, token), range(3)))
        assert_type(orders, list[Order])
        assert len(run.steps) == 3


def ask_and_recover() -> None:
    """A question, its answer, and whoever goes on."""
    outcome = support.start("ticket-1", 7)
    assert_type(outcome, holdfast.Outcome)
    assert outcome.status is holdfast.Status.INPUT_REQUIRED
    page = store.requests()
    request: holdfast.Request = page.items[0]
    store.answer(request.id, "approve", by="ana", comment="fine")
    report: holdfast.Recovery = store.recover(max_attempts=2)
    assert report.completed == ("ticket-1",)
    result = support.resume("ticket-1")
    assert_type(result, str)
    assert result == "order 7: approve."
    try:
        support.run("ticket-2", 8, polite=False)
    except holdfast.Suspended as suspended:
        names = [request.name for request in suspended.requests]
    else:
        names = list[str]()
    assert names == ["refund"]
    store.cancel("ticket-2")


def main() -> None:
    """All of it."""
    with store:
        run_by_hand()
        pooled()
        ask_and_recover()


if __name__ == "__main__":
    main()
