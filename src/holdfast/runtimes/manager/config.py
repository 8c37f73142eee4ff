"""When to checkpoint and what to recover: the table of hooks, and the settings, read and checked."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from holdfast.records.errors import ConfigurationError, missing_extra
from holdfast.records.words import Cause, Phase


class Rule(StrEnum):
    """When a hook saves under a strategy."""

    SAVES = "saves"
    NEVER = "-"
    IF_BEFORE_LLM = "if before_llm"
    IF_AFTER_TOOLS = "if after_tools"
    EVERY_N = "every N"
    CLEARS = "clears"


class Hook(msgspec.Struct, frozen=True):
    """A row of the table: the rule under each strategy, and the phase and type of the checkpoint."""

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
"""Decides which hook saves under which strategy."""


class RecoveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` does with the checkpoints it finds. `timeout` is the age in seconds at which they expire."""

    auto_resume: bool = False
    auto_resume_hitl: bool = False
    timeout: float = 3600


class CheckpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a `CheckpointManager`. `strategy` is event, interval or hybrid; `interval=0` means never."""

    enabled: bool = False
    strategy: str = "event"
    interval: int = 0
    after_tools: bool = False
    before_llm: bool = False
    recovery: RecoveryConfig = RecoveryConfig()

    @classmethod
    def load(cls, source: "Mapping[str, Any] | str | Path | CheckpointConfig") -> "CheckpointConfig":
        """Read the settings from a dict, or from a YAML or TOML file; a top key `checkpoint` is optional.

        `ConfigurationError`, with the field and the file, for invalid settings.
        """
        if isinstance(source, cls):
            return source.validate()
        origin = "" if isinstance(source, Mapping) else str(source)
        settings = dict(_checked(_parsed(source), cls, origin))
        if "recovery" in settings:
            settings["recovery"] = RecoveryConfig(**_checked(settings["recovery"], RecoveryConfig, origin, "recovery."))
        config = cls(**settings)
        if config.strategy == "interval" and not config.interval:
            place = f"{origin}: " if origin else ""
            raise ConfigurationError(
                f"{place}`interval` must be at least 1 with strategy 'interval', got 0: only approvals and errors would"
                " be saved; set interval, or use strategy 'event'"
            )
        return config

    def validate(self) -> "CheckpointConfig":
        """Return the settings; `ConfigurationError`, with the field, if one is invalid."""
        if not isinstance(self.recovery, RecoveryConfig):
            raise ConfigurationError(f"`recovery` must be a RecoveryConfig, got {self.recovery!r}")
        return self.load(msgspec.structs.asdict(self) | {"recovery": msgspec.structs.asdict(self.recovery)})

    def should_checkpoint(self, hook: str, iteration: int | None = None) -> bool:
        """True if this hook saves. `iteration_end` needs the number of the iteration, counted from 1."""
        if hook not in HOOKS:
            raise ConfigurationError(f"`hook` must be one of {', '.join(HOOKS)}, got {hook!r}")
        if self.strategy not in Hook.__struct_fields__:
            self.validate()
        rule: Rule = getattr(HOOKS[hook], self.strategy)
        if rule is Rule.EVERY_N and iteration is None:
            raise ConfigurationError(f"hook {hook!r} saves every N iterations; pass the iteration")
        return self.enabled and self._applies(rule, iteration or 0)

    def _applies(self, rule: Rule, iteration: int) -> bool:
        if rule is Rule.EVERY_N:
            return self.interval > 0 and iteration > 0 and iteration % self.interval == 0
        settings = {Rule.SAVES: True, Rule.IF_BEFORE_LLM: self.before_llm, Rule.IF_AFTER_TOOLS: self.after_tools}
        return settings.get(rule, False)

    # The settings as questions

    @property
    def is_enabled(self) -> bool:
        """True if hooks save."""
        return self.enabled

    @property
    def should_auto_resume(self) -> bool:
        """True if `recover` resumes tasks that were working."""
        return self.enabled and self.recovery.auto_resume

    @property
    def should_auto_resume_hitl(self) -> bool:
        """True if `recover` also resumes tasks that wait for input, with an empty input."""
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
        """True if each call of the model is preceded by a checkpoint."""
        return self.should_checkpoint("before_llm_call")

    @property
    def should_checkpoint_interval(self) -> bool:
        """True if some iterations are saved."""
        return self.enabled and self.strategy != "event" and self.interval > 0

    @property
    def recovery_timeout(self) -> timedelta:
        """The age at which a checkpoint expires."""
        return timedelta(seconds=self.recovery.timeout)


_FLAG = "true or false"
_KINDS: dict[str, tuple[str, Any]] = {
    "enabled": (_FLAG, lambda value: type(value) is bool),
    "strategy": ("'event', 'interval' or 'hybrid'", lambda value: value in ("event", "interval", "hybrid")),
    "interval": ("a whole number of iterations, 0 or more", lambda value: type(value) is int and value >= 0),
    "after_tools": (_FLAG, lambda value: type(value) is bool),
    "before_llm": (_FLAG, lambda value: type(value) is bool),
    "recovery": ("a table of settings", lambda value: isinstance(value, Mapping) or hasattr(value, "auto_resume")),
    "auto_resume": (_FLAG, lambda value: type(value) is bool),
    "auto_resume_hitl": (_FLAG, lambda value: type(value) is bool),
    "timeout": ("a number of seconds, 0 or more", lambda value: type(value) in {int, float} and 0 <= value < 1e10),
}
"""What each setting must be, in words and as a check."""


def _parsed(source: object) -> Any:
    """Return the settings of a mapping or a file, under the key `checkpoint` if there is one."""
    found = source if isinstance(source, Mapping) else _read(source)
    if isinstance(found, Mapping) and "checkpoint" in found:
        for name in _KINDS.keys() & found.keys():
            place = "" if found is source else f"{source}: "
            raise ConfigurationError(
                f"{place}{name} is next to `checkpoint`, where it would be ignored; move it into `checkpoint`"
            )
        found = found["checkpoint"]
    return {} if found is None else found


def _read(source: object) -> Any:
    if not isinstance(source, str | Path):
        raise ConfigurationError(f"`config` must be a CheckpointConfig, a dict or the path of a file, got {source!r}")
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot read the checkpoint configuration: {error}") from error
    if path.suffix == ".toml":
        return _read_toml(text, path)
    if path.suffix in {".yaml", ".yml"}:
        return _read_yaml(text, path)
    raise ConfigurationError(
        f"{path}: a checkpoint configuration must be a .yaml, .yml or .toml file, got {path.suffix!r}"
    )


def _read_toml(text: str, path: Path) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for numbers with too many digits
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from error


def _read_yaml(text: str, path: Path) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_extra(f"{path}: reading YAML needs PyYAML", "yaml") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Refuse a duplicate key: the base class would use the last one."""
            names = [key.value for key, _ in node.value]
            for index, (key, _) in enumerate(node.value):
                if key.value in names[:index]:
                    raise ValueError(f"{key.value} is set twice; the second is in line {key.start_mark.line + 1}")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # noqa: S506  a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not valid YAML: {error}") from error


def _checked(settings: object, shape: Any, origin: str, within: str = "") -> dict[str, Any]:
    """Return the settings for the fields of a structure; an error names the field and the file.

    A setting without a value gets its default.
    """
    place = f"{origin}: " if origin else ""
    if not isinstance(settings, Mapping):
        name = within.rstrip(".") or "checkpoint"
        raise ConfigurationError(f"{place}`{name}` must be a table of settings, got {settings!r}")
    for name in settings:
        if name not in shape.__struct_fields__:
            raise ConfigurationError(f"{place}unknown setting {within}{name}{_hint(name, shape, within)}")
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        words, is_valid = _KINDS[name]
        if not is_valid(value):
            raise ConfigurationError(f"{place}`{within}{name}` must be {words}, got {value!r}")
    return given


def _hint(name: object, shape: Any, within: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(name), shape.__struct_fields__, n=1)
    meant = f"; did you mean {within}{close[0]}?" if close else ";"
    return f"{meant} valid: {', '.join(shape.__struct_fields__)}"
