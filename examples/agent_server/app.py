"""An agent server: FastAPI in front of a tool-calling loop with a fake model. Kill it at any moment, and restart it.

Every task is worked on in one place, the resume callback: a new task is saved and then resumed, like one that a crash
left behind. The model's history is in the checkpoint; what clients see is in the events of the session.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import holdfast
from holdfast import AgentState, CheckpointConfig, Event, ExecutionState, PendingToolCall, RecoveryConfig

APP = "support"
PAYMENTS = Path(os.environ.get("PAYMENTS", "payments.txt"))
SECONDS_PER_CALL = float(os.environ.get("SECONDS_PER_CALL", "0.05"))

store = holdfast.open(os.environ.get("HOLDFAST_STORE", "agents.db"), durability=os.environ.get("DURABILITY"))
config = CheckpointConfig(enabled=True, after_tools=True, recovery=RecoveryConfig(auto_resume=True, timeout=86400))
manager = holdfast.CheckpointManager(config, store)
background: set[asyncio.Task[Any]] = set()


# The agent: a fake model and its tools


async def model(history: list[dict[str, Any]]) -> dict[str, Any]:
    """What a model would say: look up the order, look up the rules, refund, answer."""
    await asyncio.sleep(SECONDS_PER_CALL)
    plan = [("find_order", {"text": history[0]["content"]}), ("read_rules", {}), ("refund", {"amount": 40})]
    done = [message["tool"] for message in history if "tool" in message]
    for name, arguments in plan:
        if name not in done:
            return {"tool": name, "arguments": arguments}
    return {"answer": f"The refund was {history[-1]['result']}."}


async def find_order(text: str) -> str:
    """A tool without effects."""
    return f"the order in {text!r}"


async def read_rules() -> str:
    """Another one."""
    return "refunds of up to 50 need an approval"


def refund(amount: int, idempotency_key: str) -> str:
    """A payment service that honours keys: a file with a line for each payment."""
    paid = PAYMENTS.read_text().splitlines() if PAYMENTS.exists() else []
    if idempotency_key not in paid:
        with PAYMENTS.open("a") as file:
            file.write(f"{idempotency_key}\n")
    return f"paid ({amount})"


@manager.on_resume
async def work(state: ExecutionState, user_input: str) -> None:
    """The agent loop, from wherever the last checkpoint left it."""
    run, task = holdfast.current(), state.task_id
    session = (APP, state.user_id, state.session_id)
    history = list(state.agent_state.history) if state.agent_state else [{"content": state.query}]
    if state.pending_tool_call is not None:
        call, result = state.pending_tool_call, "refused"
        if user_input == "approve":
            result = await run.step("refund", refund, call.arguments["amount"], effect=True)
        history.append({"tool": call.name, "result": result})
        state = state.with_agent_state(AgentState(iteration=len(history), history=history))
        await manager.hooks.after_tool(state, call.name)
    while "answer" not in (reply := await model(history)):
        name, arguments = reply["tool"], reply["arguments"]
        state = state.with_agent_state(AgentState(iteration=len(history), history=history))
        if name == "refund":
            pending = PendingToolCall(id=f"{task}-refund", name=name, arguments=arguments, requires_approval=True)
            await manager.hooks.tool_approval_required(state, pending)
            return
        result = await {"find_order": find_order, "read_rules": read_rules}[name](**arguments)
        await manager.add_event(*session, Event("agent", {"task": task, "tool": name}))
        history = [*history, {"tool": name, "result": result}]
        await manager.hooks.after_tool(state.with_agent_state(AgentState(history=history)), name)
    if await answer_of(*session, task) is None:
        await manager.add_event(*session, Event("agent", {"task": task, "answer": reply["answer"]}, final=True))
    await manager.hooks.complete(*session, task)


async def answer_of(app: str, user: str, session: str, task: str) -> str | None:
    """The answer to a task, once there is one."""
    said = [event.content for event in await manager.events(app, user, session) if event.final]
    return next((content["answer"] for content in said if content["task"] == task), None)


# The server


def spawn(coroutine: Any) -> None:
    """Work in the background until it is done or the server stops."""
    task = asyncio.create_task(coroutine)
    background.add(task)
    task.add_done_callback(background.discard)


async def resume_quietly(*ids: str) -> None:
    """Resume a new task, unless another server holds it. Its error is stored with the task."""
    try:
        await manager.resume(*ids)
    except Exception as error:  # the status of the task shows it
        print("task", ids[-1], "failed:", error)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Recover what a dead server left; at the end stop the work, which leaves each task at its last checkpoint."""
    async with store:
        spawn(manager.recover(APP))
        yield
        for task in list(background):
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)


app = FastAPI(lifespan=lifespan)


class Message(BaseModel):
    """What a user writes."""

    text: str


@app.post("/webhooks/{user}/{session}", status_code=202)
async def webhook(
    user: str, session: str, message: Message, idempotency_key: Annotated[str, Header()]
) -> dict[str, str]:
    """Start a task, once for each `Idempotency-Key`, however often the sender repeats itself."""
    ids = (APP, user, session, idempotency_key)

    async def accept(text: str) -> None:
        if await manager.load(*ids) is None and await answer_of(*ids) is None:
            await manager.save(ExecutionState(idempotency_key, session, user, APP, query=text, agent_name="agent"))

    try:
        async with store.run(f"webhook/{manager.thread_id(*ids)}") as run:
            is_new = not run.finished
            await run.step("accept", accept, message.text)
            await run.complete()
    except holdfast.KeyReused as error:
        raise HTTPException(409, f"Idempotency-Key {idempotency_key!r} came with another message") from error
    if is_new:
        spawn(resume_quietly(*ids))
    return {"task": idempotency_key}


@app.get("/tasks/{user}/{session}/{task}")
async def status(user: str, session: str, task: str) -> dict[str, Any]:
    """Return the progress of a task: done with its answer, or its status, phase and pending call."""
    answer = await answer_of(APP, user, session, task)
    if answer is not None:
        return {"status": "done", "answer": answer}
    state = await manager.load(APP, user, session, task)
    if state is None:
        raise HTTPException(404, f"there is no task {task!r}")
    try:
        info = await store.thread(manager.thread_id(APP, user, session, task))
    except holdfast.NotFound:  # it was completed in the meantime
        return await status(user, session, task)
    pending = state.pending_tool_call.to_dict() if state.pending_tool_call else None
    return {"status": info.status, "phase": state.phase, "pending": pending, "error": info.error}


@app.post("/tasks/{user}/{session}/{task}/approval")
async def approve(user: str, session: str, task: str, message: Message) -> dict[str, Any]:
    """Approve or refuse the pending call: once, 409 afterwards."""
    try:
        await manager.resume(APP, user, session, task, user_input=message.text)
    except holdfast.NotFound as error:
        raise HTTPException(404, str(error)) from error
    except (holdfast.Conflict, holdfast.InvalidAnswer, holdfast.LeaseHeld) as error:
        raise HTTPException(409, str(error)) from error
    return await status(user, session, task)


@app.get("/tasks/{user}/{session}/{task}/stream")
async def stream(user: str, session: str, task: str) -> StreamingResponse:
    """The progress of a task as server-sent events, from its beginning to its answer."""

    async def lines() -> AsyncIterator[str]:
        seen = 0
        while True:
            events = await manager.events(APP, user, session)
            for event in events[seen:]:
                if event.content["task"] == task:
                    yield f"data: {json.dumps(event.content)}\n\n"
                    if event.final:
                        return
            seen = len(events)
            await asyncio.sleep(0.1)

    return StreamingResponse(lines(), media_type="text/event-stream")
