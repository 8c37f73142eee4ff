"""Holdfast's own records that a result or a state may hold: registered when one of them is met."""

from holdfast.records.checkpoint import Change, Step
from holdfast.records.failure import AgentSummary, FailureType
from holdfast.records.loop import Deferred, LoopState, Snapshot
from holdfast.records.outcome import Outcome, Recovery
from holdfast.records.request import Answer, Request
from holdfast.records.turn import SessionSummary, Turn, TurnResult
from holdfast.records.usage import ModelPricing, UsageSnapshot
from holdfast.records.words import Cause, Durability, Phase, Status

OWN: tuple[type, ...] = (
    *(AgentSummary, Answer, Cause, Change, Durability, FailureType, ModelPricing, Outcome, Phase, Recovery, Request),
    *(Deferred, LoopState, Snapshot),
    *(SessionSummary, Status, Step, Turn, TurnResult, UsageSnapshot),
)
