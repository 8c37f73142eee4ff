"""Real server processes: run as a script, with a store, a scene and a log file that survives them."""

import os
import signal
import sys
import time
from pathlib import Path

from holdfast import CheckpointConfig, ExecutionState, RecoveryConfig, sync

CONFIG = CheckpointConfig(enabled=True, after_tools=True, recovery=RecoveryConfig(auto_resume=True, timeout=86400))


def write_line(log: Path, text: str) -> None:
    """One line in one write, so that no line of two processes is mixed."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def state_of(number: int) -> ExecutionState:
    """The state of a task."""
    return ExecutionState(f"task-{number}", "chat", f"user-{number % 7}", "shop", agent_name="support")


def abandon(store: sync.Store, log: Path, count: float) -> None:
    """Save some tasks, and die."""
    manager = sync.CheckpointManager(CONFIG, store)
    for number in range(int(count)):
        manager.save(state_of(number))
    os.kill(os.getpid(), signal.SIGKILL)


def recover(store: sync.Store, log: Path, start_at: float) -> None:
    """Start together with others, and resume what is there."""
    manager = sync.CheckpointManager(CONFIG, store)

    def callback(state: ExecutionState, user_input: str) -> None:
        write_line(log, state.task_id)
        manager.hooks.after_tool(state, "search")

    manager.on_resume(callback)
    manager.pending("shop", "nobody")  # the store is open
    time.sleep(max(0.0, start_at - time.time()))
    report = manager.recover("shop")
    sys.stdout.write(f"{len(report.resumed)} {len(report.failed)}\n")


def die_at_work(store: sync.Store, log: Path, _count: float) -> None:
    """Hold a task, save it, and die."""
    manager = sync.CheckpointManager(CONFIG, store)
    with manager.hold("shop", "user-0", "chat", "task-0"):
        manager.save(state_of(0))
        os.kill(os.getpid(), signal.SIGKILL)


def refund_and_die(store: sync.Store, log: Path, lives: float) -> None:
    """Start or recover a task whose decorated effect is recorded, and die after it; live on if `lives` is set."""
    manager = sync.CheckpointManager(CONFIG, store, max_attempts=9)

    @sync.step(effect=True)
    def refund(amount: int, *, idempotency_key: str = "") -> None:
        write_line(log, f"{amount}:{idempotency_key}")

    def work(state: ExecutionState, user_input: str) -> None:
        refund(40)
        if not lives:
            os.kill(os.getpid(), signal.SIGKILL)
        manager.hooks.complete("shop", "user-0", "chat", "task-0")

    manager.on_resume(work)
    if not manager.recover("shop").resumed:
        with manager.hold("shop", "user-0", "chat", "task-0"):
            work(manager.save(state_of(0)), "")


def main() -> None:
    """Play a scene."""
    url, scene, log, number = sys.argv[1:]
    with sync.open(url, durability="process") as store:
        scenes = {each.__name__: each for each in (abandon, recover, die_at_work, refund_and_die)}
        scenes[scene](store, Path(log), float(number))


if __name__ == "__main__":
    main()
