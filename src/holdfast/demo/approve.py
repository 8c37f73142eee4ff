"""The agent asks before a large refund, and its process ends. Another answers, and a third one goes on."""

from typing import Any

from holdfast.demo.agent import CENTS, LARGE_TICKET
from holdfast.demo.children import Child, World
from holdfast.demo.narration import follow
from holdfast.demo.payments import read_ledger
from holdfast.demo.stage import Stage, money

AMOUNT = money(CENTS["2077"])


def approve(stage: Stage, world: World, thread_id: str) -> dict[str, Any]:
    """Three processes, one after the other; between them nothing runs."""
    stage.say("A large refund needs somebody's approval. The agent asks, and does not wait in memory.")
    asking = follow(stage, world, "It works on a ticket,", LARGE_TICKET, "run", thread_id, LARGE_TICKET)
    request = _asked(stage, asking)
    answering = world.done("answer", request, "approve")
    stage.act("Somebody answers,", f"process {answering.pid}: it could be days later")
    stage.line("ana", "", f"approves {request}")
    going_on = follow(stage, world, "The agent goes on,", "all it needs is the thread's id", "resume", thread_id)
    booked, replayed = read_ledger(world.ledger), going_on.told("step_replayed")
    stage.say()
    stage.line("refunds", str(len(booked)), "in the payment service's own ledger")
    return {
        "request": request,
        "processes": len({asking.pid, answering.pid, going_on.pid}),
        "steps_from_the_checkpoint": len(replayed),
        "refunds": len(booked),
        "ok": [line["name"] for line in replayed] == ["plan", "search"]
        and [line["name"] for line in going_on.told("step_done")] == ["refund", "reply"]
        and len(booked) == 1,
    }


def _asked(stage: Stage, worker: Child) -> str:
    request = str(worker.told("ended")[0]["requests"][0])
    stage.line("asks", "", f"refund {AMOUNT}? {request}", "plain")
    stage.line("ends", "", f"process {worker.pid} is gone: nothing runs, the question is in the store", "plain")
    return request
