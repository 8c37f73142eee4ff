"""The agent: it plans, searches, refunds and replies. Its model and its tools are scripted, the rest is real."""

import os
import re
import time
from typing import Any

import holdfast.sync as holdfast
from holdfast.demo import payments

TICKET = "I was charged twice for order 1042."
LARGE_TICKET = "I was charged twice for order 2077."
CENTS = {"1042": 40_00, "2077": 319_00}
NEEDS_APPROVAL = 100_00
PACE = float(os.environ.get("HOLDFAST_DEMO_PACE", "1"))


@holdfast.step
def plan(ticket: str) -> list[str]:
    """Decide what to do about a ticket, as a model would."""
    think(1.5)
    wanted = "refund what was charged twice" if "charged twice" in ticket else "explain"
    return ["search the order", wanted, "reply"]


@holdfast.step
def search(ticket: str) -> dict[str, Any]:
    """Find the order that a ticket is about."""
    think(1.0)
    order = re.findall(r"order (\S+)\.", ticket)[0]
    return {"order": order, "charged": 2, "cents": CENTS.get(order, 40_00)}


@holdfast.step(effect=True)
def refund(order: str, cents: int, *, idempotency_key: str = "") -> str:
    """Pay a customer back: the effect that must not happen twice."""
    return payments.refund(order, cents, idempotency_key)


@holdfast.step
def reply(order: str, receipt: str) -> str:
    """Write to the customer, as a model would."""
    think(0.5)
    return f"Order {order}: " + (f"your refund {receipt} is on its way." if receipt else "there is nothing to refund.")


@holdfast.durable
def support(ticket: str) -> str:
    """Answer a ticket. Killed anywhere, it resumes after its last finished step."""
    todo = plan(ticket)
    found = search(ticket)
    holdfast.checkpoint({"ticket": ticket, "plan": todo, "found": found, "messages": []})
    message = reply(found["order"], refund(found["order"], found["cents"]) if is_due(found) else "")
    holdfast.append("messages", message)
    return message


def is_due(found: dict[str, Any]) -> bool:
    """True if there is something to refund; a large refund needs an approval."""
    if found["charged"] < 2:
        return False
    return found["cents"] < NEEDS_APPROVAL or holdfast.confirm("refund", found)


def unprotected(ticket: str) -> str:
    """Answer a ticket without Holdfast: the steps are plain calls, and nothing is saved."""
    plan(ticket)
    found = search(ticket)
    return reply(found["order"], refund(found["order"], found["cents"]))


def think(seconds: float) -> None:
    """Take as long as a model would."""
    time.sleep(seconds * PACE)
