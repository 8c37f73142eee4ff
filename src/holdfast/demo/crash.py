"""The agent is killed at the worst moment: its payment went out, and the result was not saved. Then it goes on."""

from typing import Any

from holdfast.demo.agent import CENTS, TICKET
from holdfast.demo.children import Child, World
from holdfast.demo.narration import follow, tell
from holdfast.demo.payments import read_ledger
from holdfast.demo.stage import Stage, counted, money

AMOUNT = money(CENTS["1042"])


def crash(stage: Stage, world: World, thread_id: str) -> dict[str, Any]:
    """Kill it, start it again, and compare what it did with what the payment service booked."""
    stage.say("A support agent plans, searches, refunds and replies. It is killed at the worst moment:")
    stage.say("the refund is paid, and the agent has not saved that yet.")
    first = _killed(stage, world, ("run", thread_id, TICKET))
    second = follow(stage, world, "It is started again,", "the same command", "run", thread_id, TICKET)
    summary = _summary(world, first, second)
    _show_summary(stage, summary)
    return summary


def without(stage: Stage, world: World, _thread_id: str) -> dict[str, Any]:
    """The same without Holdfast: everything is done again, the payment too. No promise, so none can be broken."""
    stage.say("The same agent without Holdfast, killed at the same moment.")
    _killed(stage, world, ("unprotected", TICKET))
    follow(stage, world, "It is started again,", "from the beginning", "unprotected", TICKET)
    booked = read_ledger(world.ledger)
    stage.say()
    for entry in booked:
        stage.line("ledger", money(entry["cents"]), f"refund {entry['receipt']} of order {entry['order']}", "bad")
    return {"refunds": len(booked), "ok": True}


def _killed(stage: Stage, world: World, task: tuple[str, ...]) -> Child:
    """The agent's first process, killed after the payment service has booked and before it has answered."""
    with world.worker(*task) as worker:
        stage.act("It works on a ticket,", f"process {worker.pid}: {TICKET}")
        while (line := worker.wait_for("step_done", "step_started"))["name"] != "refund":
            tell(stage, world, line)
        world.payments.wait_for("booked")
        worker.kill_at_work()
    stage.line("refund", "", f"sent; the payment service has booked {AMOUNT}, and is about to answer", "plain")
    stage.line("SIGKILL", "", "the agent is gone: the money is out, and it never heard", "bad")
    return worker


def _summary(world: World, first: Child, second: Child) -> dict[str, Any]:
    done = [line["name"] for line in first.told("step_done")]
    replayed, resumed = second.told("step_replayed"), second.told("taken_over")
    requests, booked, ended = world.payments.told("booked", "known"), read_ledger(world.ledger), second.told("ended")
    return {
        "steps_done_before_the_kill": len(done),
        "steps_from_the_checkpoint": len(replayed),
        "replay_milliseconds": round((replayed[-1]["at"] - resumed[0]["at"]) * 1e3, 2)
        if replayed and resumed
        else None,
        "seconds_saved": round(sum(line["seconds_saved"] for line in replayed), 2),
        "refund_requests": len(requests),
        "idempotency_keys": len({line["key"] for line in requests}),
        "refunds": len(booked),
        "result": ended[0]["result"] if ended else None,
        "ok": [line["name"] for line in replayed] == done == ["plan", "search"]
        and (len(requests), len({line["key"] for line in requests}), len(booked)) == (2, 1, 1)
        and [line["status"] for line in ended] == ["complete"],
    }


def _show_summary(stage: Stage, summary: dict[str, Any]) -> None:
    steps, requests, refunds = (summary[name] for name in ("steps_from_the_checkpoint", "refund_requests", "refunds"))
    spent, saved = summary["replay_milliseconds"], summary["seconds_saved"]
    stage.say()
    stage.line("steps", str(steps), f"came from the checkpoint in {spent} ms; {saved:.1f} s of work saved")
    stage.line("requests", str(requests), f"to refund, with {counted(summary['idempotency_keys'], 'key')}")
    stage.line("refunds", str(refunds), "in the payment service's own ledger", "good" if refunds == 1 else "bad")
