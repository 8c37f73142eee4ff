"""The scenes with one agent: a crash, an approval, a fork. Each prints what happens, and returns what it found."""

from typing import Any

import holdfast.sync as holdfast
from holdfast.demo.agent import CENTS, LARGE_TICKET, TICKET
from holdfast.demo.children import Child, World
from holdfast.demo.payments import read_ledger
from holdfast.demo.stage import Stage

CHARGED_ONCE = {"order": "1042", "charged": 1, "cents": 40_00}
"""What the search finds in the fork."""


def money(cents: int) -> str:
    """Format an amount."""
    return f"{cents / 100:.2f}"


def follow(stage: Stage, world: World, title: str, note: str, *task: str) -> Child:
    """Run a process to its end, and print its steps as they are done."""
    with world.worker(*task) as worker:
        stage.act(title, f"process {worker.pid}: {note}")
        for line in worker.lines():
            _show_step(stage, world, line)
        worker.check_ended()
        return worker


def _show_step(stage: Stage, world: World, line: dict[str, Any]) -> None:
    if line["kind"] == "step_replayed":
        stage.line(line["name"], "0 s", "from the checkpoint")
    elif line["kind"] == "step_done":
        saved = "saved" if "step" in line else "done, and nowhere saved"
        text = _refunded(world) if line["name"] == "refund" else saved
        seconds = line["seconds"]
        stage.line(line["name"], f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms", text)


def _refunded(world: World) -> str:
    """Say what the payment service did with the refund."""
    before = {line["order"] for line in world.payments.said("booked")}
    line = world.payments.wait_for("known", "booked")
    if line["kind"] == "known":
        return "sent again with the same key: the service knows it, and books nothing"
    return "BOOKED ONCE MORE" if line["order"] in before else "booked, saved"


def crash(stage: Stage, world: World, thread_id: str) -> dict[str, Any]:
    """Kill the agent after its payment and before the result is saved, start it again, and check the ledger."""
    stage.say("A support agent plans, searches, refunds and replies. It is killed at the worst moment:")
    stage.say("the refund is paid, and the agent has not saved that yet.")
    first = _killed(stage, world, "run", thread_id, TICKET)
    second = follow(stage, world, "It is started again,", "the same command", "run", thread_id, TICKET)
    summary = _compared(world, first, second)
    spent, saved = summary["replay_milliseconds"], summary["seconds_saved"]
    requests, keys, refunds = (summary[name] for name in ("refund_requests", "idempotency_keys", "refunds"))
    steps = str(summary["steps_from_the_checkpoint"])
    stage.say()
    stage.line("steps", steps, f"came from the checkpoint in {spent} ms; {saved:.1f} s of work saved")
    stage.line("requests", str(requests), f"to refund, with {keys} {'key' if keys == 1 else 'keys'}")
    stage.line("refunds", str(refunds), "in the payment service's own ledger", "good" if refunds == 1 else "bad")
    return summary


def without(stage: Stage, world: World, _thread_id: str) -> dict[str, Any]:
    """Do the same without Holdfast: everything is done again, the payment too."""
    stage.say("The same agent without Holdfast, killed at the same moment.")
    _killed(stage, world, "unprotected", TICKET)
    follow(stage, world, "It is started again,", "from the beginning", "unprotected", TICKET)
    booked = read_ledger(world.ledger)
    stage.say()
    for entry in booked:
        stage.line("ledger", money(entry["cents"]), f"refund {entry['receipt']} of order {entry['order']}", "bad")
    return {"refunds": len(booked), "ok": True}


def _killed(stage: Stage, world: World, *task: str) -> Child:
    """Kill the agent after the payment service has booked and before it has answered."""
    with world.worker(*task) as worker:
        stage.act("It works on a ticket,", f"process {worker.pid}: {TICKET}")
        while (line := worker.wait_for("step_done", "step_started"))["name"] != "refund":
            _show_step(stage, world, line)
        world.payments.wait_for("booked")
        worker.kill_at_work()
    amount = money(CENTS["1042"])
    stage.line("refund", "", f"sent; the payment service has booked {amount}, and is about to answer", "plain")
    stage.line("SIGKILL", "", "the agent is gone: the money is out, and it never heard", "bad")
    return worker


def _compared(world: World, first: Child, second: Child) -> dict[str, Any]:
    done = [line["name"] for line in first.said("step_done")]
    replayed, resumed, ended = (second.said(kind) for kind in ("step_replayed", "taken_over", "ended"))
    requests, booked = world.payments.said("booked", "known"), read_ledger(world.ledger)
    keys = {line["key"] for line in requests}
    spent = replayed[-1]["at"] - resumed[0]["at"] if replayed and resumed else None
    return {
        "steps_done_before_the_kill": len(done),
        "steps_from_the_checkpoint": len(replayed),
        "replay_milliseconds": None if spent is None else round(spent * 1e3, 2),
        "seconds_saved": round(sum(line["seconds_saved"] for line in replayed), 2),
        "refund_requests": len(requests),
        "idempotency_keys": len(keys),
        "refunds": len(booked),
        "result": ended[0]["result"] if ended else None,
        "ok": [line["name"] for line in replayed] == done == ["plan", "search"]
        and (len(requests), len(keys), len(booked)) == (2, 1, 1)
        and [line["status"] for line in ended] == ["complete"],
    }


def approve(stage: Stage, world: World, thread_id: str) -> dict[str, Any]:
    """Ask in one process, answer in a second, resume in a third; between them nothing runs."""
    stage.say("A large refund needs a person's approval. The agent asks, and does not wait in memory.")
    asking = follow(stage, world, "It works on a ticket,", LARGE_TICKET, "run", thread_id, LARGE_TICKET)
    request = str(asking.said("ended")[0]["requests"][0])
    stage.line("asks", "", f"refund {money(CENTS['2077'])}? {request}", "plain")
    stage.line("ends", "", f"process {asking.pid} is gone: nothing runs, the question is in the store", "plain")
    answering = world.done("answer", request, "approve")
    stage.act("A person answers,", f"process {answering.pid}: it could be days later")
    stage.line("ana", "", f"approves {request}")
    resuming = follow(stage, world, "The agent resumes,", "all it needs is the thread's id", "resume", thread_id)
    booked, replayed = read_ledger(world.ledger), resuming.said("step_replayed")
    stage.say()
    stage.line("refunds", str(len(booked)), "in the payment service's own ledger")
    return {
        "request": request,
        "processes": len({asking.pid, answering.pid, resuming.pid}),
        "steps_from_the_checkpoint": len(replayed),
        "refunds": len(booked),
        "ok": [line["name"] for line in replayed] == ["plan", "search"]
        and [line["name"] for line in resuming.said("step_done")] == ["refund", "reply"]
        and len(booked) == 1,
    }


def fork(stage: Stage, world: World, thread_id: str) -> dict[str, Any]:
    """Run the agent, fork it at a step with another result, run the fork, and show what differs."""
    stage.say("What would the agent have done if its search had found something else?")
    first = follow(stage, world, "It works on a ticket,", TICKET, "run", thread_id, TICKET)
    stage.line("result", "", first.said("ended")[0]["result"], "plain")
    with holdfast.open(world.store) as store:
        found = [info for info in store.history(thread_id) if str(info.metadata.get("step", "")).startswith("search:")]
        forked = store.fork(found[0].id, to=f"{thread_id}-charged-once", results={"search": CHARGED_ONCE})
    stage.act("A fork of it, from the search on:", "what if the order was charged only once?")
    stage.line("forked", "", f"{found[0].id} -> {forked}")
    other = follow(stage, world, "The fork resumes,", "only what follows the search is done", "run", forked, TICKET)
    stage.line("result", "", other.said("ended")[0]["result"], "plain")
    stage.act("What differs:", f"holdfast diff {thread_id} {forked}")
    changes = _changes(world.store, thread_id, forked)
    for line in world.printed("diff", thread_id, forked):
        stage.say(f"  {line}")
    booked = read_ledger(world.ledger)
    return {
        "fork": forked,
        "changes": [list(change.path) for change in changes],
        "refunds": len(booked),
        "ok": [change.path for change in changes] == [("found", "charged"), ("messages", 0)]
        and [line["name"] for line in other.said("step_done")] == ["reply"]
        and len(booked) == 1,
    }


def _changes(url: str, one: str, other: str) -> list[holdfast.Change]:
    with holdfast.open(url) as store:
        ids = [end.id for end in map(store.latest, (one, other)) if end is not None]
        return store.diff(ids[0], ids[1])
