"""The application of a user: a durable function that asks before it pays."""

from dataclasses import dataclass

import holdfast.sync as holdfast


@holdfast.storable(name="shop.Order")
@dataclass
class Order:
    number: int
    goods: set[str]


def pay(amount: int, idempotency_key: str) -> dict[str, int]:
    return {"paid": amount}


@holdfast.durable
def refund(amount: int) -> str:
    run = holdfast.current()
    order = run.step("find", lambda: {"amount": amount})
    run.checkpoint({"order": order}, phase="post_tool")
    if not run.confirm("refund", order):
        return "refused"
    run.step("pay", pay, order["amount"], effect=True)
    return f"paid {amount}"


@holdfast.durable
def other() -> None:
    """Another function."""


store = holdfast.open("holdfast.db", retention=holdfast.Retention(keep_last=1))
