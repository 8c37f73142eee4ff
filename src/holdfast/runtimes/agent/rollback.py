"""Rollbacks: choose the checkpoint, compensate the steps after it, restore the thread."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, Escalated, StepFailed, StepInDoubt
from holdfast.records.failure import FailureType
from holdfast.records.identity import CheckpointId
from holdfast.runs.driver import Driver, Past, Pruned, Rollback
from holdfast.runtimes.agent.classifier import doing
from holdfast.runtimes.agent.memory import Compensator, Failure, Memory
from holdfast.runtimes.agent.recorder import LocalCompensators


class RollbackImpossible(Exception):
    """A rollback is impossible; the text says why."""


def good_step_count(steps: list[Step]) -> int:
    """Count the steps before the failing one. A last step recorded with an error is the failing one."""
    return len(steps) - 1 if steps and steps[-1].error is not None else len(steps)


def progress_of(steps: list[Step]) -> int:
    """Count the distinct actions before the failing step. Repeating an action is not progress."""
    return len(set(map(doing, steps[: good_step_count(steps)])))


def choose_target(
    past: Past, steps: list[Step], failure: FailureType, earlier: list[Failure], rollbacks: list[Rollback]
) -> int:
    """Return the newest checkpoint before the failing step; after a useless rollback, one before its target."""
    good = good_step_count(steps)
    if (last := _useless_rollback(earlier, failure, progress_of(steps), rollbacks)) is not None:
        older = next((seq for seq in past.lineage(last.target) if seq < last.target), None)
        return past.beginning() if older is None else older
    for seq in past.lineage():
        if past.at(seq).step_count <= good:
            return seq
    return past.beginning()


def _useless_rollback(
    earlier: list[Failure], failure: FailureType, progress: int, rollbacks: list[Rollback]
) -> Rollback | None:
    """Return the last rollback if only failures of the same type followed it, without progress; else None."""
    streak = list(takewhile(lambda each: each.type == failure.value, reversed(earlier)))
    if not streak or progress > max(each.progress for each in streak):
        return None
    since = rollbacks[streak[-1].rollbacks :]
    return since[-1] if since else None


async def named_target(driver: Driver, checkpoint_id: str) -> int:
    """Return the seq of the checkpoint an action names. It must belong to the thread and still be current."""
    named = CheckpointId.parse(checkpoint_id)
    if named.thread_id != driver.thread_id:
        raise ConfigurationError(f"checkpoint {checkpoint_id} does not belong to thread {driver.thread_id!r}")
    then = await driver.ports.perform(driver.past().at, named.seq, named.life)
    since = driver.record.rollbacks[then.rollback_count :]
    if any(each.target < named.seq for each in since):
        raise ConfigurationError(f"checkpoint {checkpoint_id} was undone by a rollback; choose an earlier one")
    return named.seq


async def roll_back(
    driver: Driver,
    memory: Memory,
    failure: Failure,
    functions: Mapping[str, Callable[..., Any]],
    local: LocalCompensators,
) -> None:
    """Compensate the steps after the target, newest first, and restore the thread to the target."""
    try:
        then = await driver.ports.perform(driver.past().at_latest, failure.target)
    except Pruned as reason:
        raise Escalated(f"{driver.thread_id!r} cannot be rolled back: {reason}") from None
    undone, numbers = _undone(memory, driver.record.rollbacks, then.step_count), Counter[tuple[int, str]]()
    for each in undone:
        numbers[each.step, each.name] += 1
        name = f"{failure.attempt}:{each.step}:{each.name}:{numbers[each.step, each.name]}"
        await _compensate(driver, name, each, local.function(each) or functions.get(each.name))
    await driver.restore(then, {"attempt": failure.attempt})
    details = {"attempt": failure.attempt, "target": then.seq, "compensated": len(undone)}
    await driver.emit("rolled_back", **details)


def _undone(memory: Memory, rollbacks: list[Rollback], kept: int) -> list[Compensator]:
    """Return the open compensators of the steps after the first `kept`, newest step and newest compensator first."""
    found = [each for each in memory.compensators() if each.step >= kept]
    open_ones = [each for each in reversed(found) if not each.is_undone(rollbacks)]
    return sorted(open_ones, key=lambda each: -each.step)


async def check_compensated(driver: Driver, memory: Memory, target: int) -> None:
    """Raise `RollbackImpossible` if a step that the rollback would undo needs a compensator and has none."""
    then = await driver.ports.perform(driver.past().at_latest, target)
    covered = {each.step for each in _undone(memory, driver.record.rollbacks, then.step_count)}
    for step in driver.lazy_steps[then.step_count :]:
        if step.error is None and not step.idempotent and step.index not in covered:
            raise RollbackImpossible(
                f"step {step.action!r} (index {step.index}) of {driver.thread_id!r} has no compensator"
            )


async def _compensate(driver: Driver, name: str, each: Compensator, function: Callable[..., Any] | None) -> None:
    """Call a compensator as a step with an effect: once recorded, it is never called again."""
    step = _step_name(driver, each)
    if function is None:
        raise Escalated(
            f"{step} must be undone by {each.name!r}, which this process does not have;"
            f" pass compensators={{{each.name!r}: function}} to the agent and run it again"
        )
    try:
        await driver.step("compensate", name, function, *each.arguments, effect=True)
    except StepInDoubt as error:
        raise Escalated(
            f"compensator {each.name!r} of {step} was started and its outcome is unknown: add an idempotency_key"
            " parameter to it, so that it can be called again, and run the agent again"
        ) from error
    except StepFailed as error:
        raise Escalated(f"compensator {each.name!r} of {step} failed: {error}") from error


def _step_name(driver: Driver, undone: Compensator) -> str:
    return f"step {driver.lazy_steps[undone.step].action!r} (index {undone.step}) of {driver.thread_id!r}"
