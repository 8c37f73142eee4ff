"""When to checkpoint and what to recover: the settings, and the one table that says which hook saves when."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.records.words import Cause, Phase
from holdfast.runtimes.manager.config_file import checked, parsed


class Rule(StrEnum):
    """Whether a hook saves under a strategy."""

    SAVES = "saves"
    NEVER = "-"
    IF_BEFORE_LLM = "if before_llm"
    IF_AFTER_TOOLS = "if after_tools"
    EVERY_N = "every N"
    CLEARS = "clears"


class Hook(msgspec.Struct, frozen=True):
    """A row of the table: the rule under each strategy, and what the checkpoint then says of itself."""

    event: Rule
    interval: Rule
    hybrid: Rule
    phase: Phase | None
    checkpoint_type: Cause | None


HOOKS: dict[str, Hook] = {
    "before_llm_call": Hook(Rule.IF_BEFORE_LLM, Rule.IF_BEFORE_LLM, Rule.IF_BEFORE_LLM, Phase.PRE_LLM, Cause.EVENT),
    "after_llm_call": Hook(Rule.SAVES, Rule.NEVER, Rule.SAVES, Phase.POST_LLM, Cause.EVENT),
    "before_tool": Hook(Rule.SAVES, Rule.NEVER, Rule.SAVES, Phase.TOOL_EXECUTION, Cause.EVENT),
    "after_tool": Hook(Rule.IF_AFTER_TOOLS, Rule.IF_AFTER_TOOLS, Rule.IF_AFTER_TOOLS, Phase.POST_TOOL, Cause.EVENT),
    "iteration_end": Hook(Rule.NEVER, Rule.EVERY_N, Rule.EVERY_N, Phase.ITERATION_END, Cause.INTERVAL),
    "tool_approval_required": Hook(Rule.SAVES, Rule.SAVES, Rule.SAVES, Phase.TOOL_APPROVAL, Cause.EVENT),
    "error": Hook(Rule.SAVES, Rule.SAVES, Rule.SAVES, Phase.ERROR, Cause.ERROR),
    "complete": Hook(Rule.CLEARS, Rule.CLEARS, Rule.CLEARS, None, None),
}
"""Which hook saves under which strategy. Nothing else decides it."""


class RecoveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` does with the checkpoints it finds. `timeout`: the oldest that is resumed, in seconds."""

    auto_resume: bool = False
    auto_resume_hitl: bool = False
    timeout: float = 3600


class CheckpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a `CheckpointManager`. `strategy`: event, interval or hybrid. `interval`: 0 for never."""

    enabled: bool = False
    strategy: str = "event"
    interval: int = 0
    after_tools: bool = False
    before_llm: bool = False
    recovery: RecoveryConfig = RecoveryConfig()

    @classmethod
    def load(cls, source: "Mapping[str, Any] | str | Path | CheckpointConfig") -> "CheckpointConfig":
        """Read the settings from a dict, or from a YAML or TOML file; a top key `checkpoint` is optional.

        `ConfigurationError`, naming the field and the file, for settings that make no sense.
        """
        if isinstance(source, cls):
            return source.validate()
        origin = "" if isinstance(source, Mapping) else str(source)
        settings = dict(checked(parsed(source), cls, origin))
        if "recovery" in settings:
            settings["recovery"] = RecoveryConfig(**checked(settings["recovery"], RecoveryConfig, origin, "recovery."))
        config = cls(**settings)
        if config.strategy == "interval" and not config.interval:
            place = f"{origin}: " if origin else ""
            raise ConfigurationError(
                f"{place}interval must be at least 1 with strategy 'interval', got 0: nothing would be saved between"
                " approvals and errors; set interval, or use strategy 'event'"
            )
        return config

    def validate(self) -> "CheckpointConfig":
        """Raise `ConfigurationError`, naming the field, for settings that make no sense; else return the settings."""
        if not isinstance(self.recovery, RecoveryConfig):
            raise ConfigurationError(f"recovery must be a RecoveryConfig, got {self.recovery!r}")
        return self.load(msgspec.structs.asdict(self) | {"recovery": msgspec.structs.asdict(self.recovery)})

    def should_checkpoint(self, hook: str, iteration: int | None = None) -> bool:
        """True if this hook saves. `iteration_end` needs the number of the iteration, counted from 1."""
        if hook not in HOOKS:
            raise ConfigurationError(f"there is no hook {hook!r}; hooks are {', '.join(HOOKS)}")
        if self.strategy not in Hook.__struct_fields__:
            self.validate()
        rule: Rule = getattr(HOOKS[hook], self.strategy)
        if rule is Rule.EVERY_N and iteration is None:
            raise ConfigurationError(f"hook {hook!r} saves every N iterations: give the iteration")
        return self.enabled and self._applies(rule, iteration or 0)

    def _applies(self, rule: Rule, iteration: int) -> bool:
        if rule is Rule.EVERY_N:
            return self.interval > 0 and iteration > 0 and iteration % self.interval == 0
        settings = {Rule.SAVES: True, Rule.IF_BEFORE_LLM: self.before_llm, Rule.IF_AFTER_TOOLS: self.after_tools}
        return settings.get(rule, False)

    # The document's questions

    @property
    def is_enabled(self) -> bool:
        """True if hooks save at all."""
        return self.enabled

    @property
    def should_auto_resume(self) -> bool:
        """True if `recover` resumes the tasks that were at work."""
        return self.enabled and self.recovery.auto_resume

    @property
    def should_auto_resume_hitl(self) -> bool:
        """True if `recover` resumes the tasks that wait for input too, without input."""
        return self.enabled and self.recovery.auto_resume_hitl

    @property
    def should_checkpoint_after_tools(self) -> bool:
        """True if tool results are saved."""
        return self.should_checkpoint("after_tool")

    def should_checkpoint_at_iteration(self, iteration: int) -> bool:
        """True if the end of this iteration, counted from 1, is saved."""
        return self.should_checkpoint("iteration_end", iteration)

    @property
    def should_checkpoint_before_llm(self) -> bool:
        """True if a checkpoint is taken before each call of the model."""
        return self.should_checkpoint("before_llm_call")

    @property
    def should_checkpoint_interval(self) -> bool:
        """True if iterations are saved at all."""
        return self.enabled and self.strategy != "event" and self.interval > 0

    @property
    def recovery_timeout(self) -> timedelta:
        """The age at which a checkpoint is expired."""
        return timedelta(seconds=self.recovery.timeout)
