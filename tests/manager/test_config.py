"""The settings: defaults, files, the one table of hooks cell by cell, and one clear error for each mistake."""

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from holdfast import Cause, CheckpointConfig, ConfigurationError, Phase, RecoveryConfig
from holdfast.runtimes.manager.config import HOOKS

SAMPLE = """
checkpoint:
  enabled: true
  strategy: hybrid
  interval: 5
  after_tools: true
  before_llm: false
  recovery:
    auto_resume: true
    auto_resume_hitl: false
    timeout: 3600
"""
SAMPLE_TOML = """
[checkpoint]
enabled = true
strategy = "hybrid"
interval = 5
after_tools = true
before_llm = false
[checkpoint.recovery]
auto_resume = true
auto_resume_hitl = false
timeout = 3600
"""
MEANT = CheckpointConfig(
    enabled=True, strategy="hybrid", interval=5, after_tools=True, recovery=RecoveryConfig(auto_resume=True)
)

Cell = Callable[[CheckpointConfig, int], bool]
SAVES: Cell = lambda config, iteration: True  # noqa: E731  the cells of a table
NEVER: Cell = lambda config, iteration: False  # noqa: E731
IF_BEFORE_LLM: Cell = lambda config, iteration: config.before_llm  # noqa: E731
IF_AFTER_TOOLS: Cell = lambda config, iteration: config.after_tools  # noqa: E731
EVERY_N: Cell = lambda config, iteration: config.interval > 0 and iteration % config.interval == 0  # noqa: E731
TABLE: dict[str, tuple[Cell, Cell, Cell]] = {
    "before_llm_call": (IF_BEFORE_LLM, IF_BEFORE_LLM, IF_BEFORE_LLM),
    "after_llm_call": (SAVES, NEVER, SAVES),
    "before_tool": (SAVES, NEVER, SAVES),
    "after_tool": (IF_AFTER_TOOLS, IF_AFTER_TOOLS, IF_AFTER_TOOLS),
    "iteration_end": (NEVER, EVERY_N, EVERY_N),
    "tool_approval_required": (SAVES, SAVES, SAVES),
    "error": (SAVES, SAVES, SAVES),
    "complete": (NEVER, NEVER, NEVER),
}
"""The table of the public interface, written down a second time: `complete` clears, and saves nothing."""


# The table


@pytest.mark.parametrize(("strategy", "column"), [("event", 0), ("interval", 1), ("hybrid", 2)])
@pytest.mark.parametrize("hook", TABLE)
def test_each_hook_saves_under_exactly_the_settings_of_the_table(hook: str, strategy: str, column: int) -> None:
    for before_llm, after_tools, interval, iteration in product((False, True), (False, True), (1, 3), range(1, 8)):
        config = CheckpointConfig(
            enabled=True, strategy=strategy, interval=interval, before_llm=before_llm, after_tools=after_tools
        )
        assert config.should_checkpoint(hook, iteration) is TABLE[hook][column](config, iteration)


@pytest.mark.parametrize("strategy", ["event", "interval", "hybrid"])
@pytest.mark.parametrize("hook", TABLE)
def test_disabled_no_hook_saves(hook: str, strategy: str) -> None:
    config = CheckpointConfig(strategy=strategy, interval=1, before_llm=True, after_tools=True)
    assert not config.should_checkpoint(hook, 1)


def test_the_table_has_the_documents_phases_and_types() -> None:
    said = {name: (hook.phase, hook.checkpoint_type) for name, hook in HOOKS.items()}
    assert said == {
        "before_llm_call": (Phase.PRE_LLM, Cause.EVENT),
        "after_llm_call": (Phase.POST_LLM, Cause.EVENT),
        "before_tool": (Phase.TOOL_EXECUTION, Cause.EVENT),
        "after_tool": (Phase.POST_TOOL, Cause.EVENT),
        "iteration_end": (Phase.ITERATION_END, Cause.INTERVAL),
        "tool_approval_required": (Phase.TOOL_APPROVAL, Cause.EVENT),
        "error": (Phase.ERROR, Cause.ERROR),
        "complete": (None, None),
    }


def test_the_guide_shows_the_table_as_it_is() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "manager.md").read_text()
    for name, hook in HOOKS.items():
        cells = [name, hook.event, hook.interval, hook.hybrid, hook.phase or "", hook.checkpoint_type or ""]
        assert " ".join(f"| {cell}".strip() for cell in cells) + " |" in guide.replace("`", ""), name


def test_an_iteration_is_never_saved_without_an_interval() -> None:
    assert not CheckpointConfig(enabled=True, strategy="hybrid").should_checkpoint("iteration_end", 5)


def test_an_unknown_hook_or_strategy_and_a_missing_iteration_are_clear_errors() -> None:
    config = CheckpointConfig(enabled=True, strategy="interval", interval=2)
    with pytest.raises(ConfigurationError, match=r"`hook` must be one of before_llm_call, .*, got 'after_lunch'"):
        config.should_checkpoint("after_lunch")
    with pytest.raises(ConfigurationError, match="pass the iteration"):
        config.should_checkpoint("iteration_end")
    with pytest.raises(ConfigurationError, match="`strategy` must be 'event', 'interval' or 'hybrid', got 'events'"):
        CheckpointConfig(enabled=True, strategy="events").should_checkpoint("error")


# The document's defaults and questions


def test_the_defaults_are_the_documents() -> None:
    assert CheckpointConfig() == CheckpointConfig(
        enabled=False,
        strategy="event",
        interval=0,
        after_tools=False,
        before_llm=False,
        recovery=RecoveryConfig(auto_resume=False, auto_resume_hitl=False, timeout=3600),
    )
    assert CheckpointConfig.load({}) == CheckpointConfig()


def test_the_documents_questions_are_answered() -> None:
    assert MEANT.is_enabled
    assert MEANT.should_auto_resume
    assert not MEANT.should_auto_resume_hitl
    assert MEANT.should_checkpoint_after_tools
    assert [MEANT.should_checkpoint_at_iteration(number) for number in (0, 1, 4, 5, 10)] == [
        *(False, False, False, True, True)
    ]
    assert not MEANT.should_checkpoint_before_llm
    assert MEANT.should_checkpoint_interval
    assert MEANT.recovery_timeout == timedelta(hours=1)


def test_disabled_every_question_is_answered_with_no() -> None:
    recovery = RecoveryConfig(auto_resume=True, auto_resume_hitl=True)
    config = CheckpointConfig(strategy="hybrid", interval=1, after_tools=True, before_llm=True, recovery=recovery)
    answers = [config.is_enabled, config.should_auto_resume, config.should_auto_resume_hitl]
    answers += [config.should_checkpoint_after_tools, config.should_checkpoint_at_iteration(1)]
    answers += [config.should_checkpoint_before_llm, config.should_checkpoint_interval]
    assert not any(answers)


def test_interval_checkpoints_need_a_strategy_and_an_interval() -> None:
    assert not CheckpointConfig(enabled=True, strategy="event", interval=5).should_checkpoint_interval
    assert not CheckpointConfig(enabled=True, strategy="hybrid").should_checkpoint_interval
    assert CheckpointConfig(enabled=True, strategy="interval", interval=1).should_checkpoint_interval


# Files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", SAMPLE),
        ("a.yml", re.sub("^  ", "", SAMPLE.replace("checkpoint:\n", ""), flags=re.MULTILINE)),
        ("a.toml", SAMPLE_TOML),
        ("a.toml", SAMPLE_TOML.replace("[checkpoint]\n", "").replace("checkpoint.", "")),
        ("a.yaml", "server: {port: 80}" + SAMPLE),
    ],
)
def test_the_documents_sample_is_read_from_yaml_and_toml_with_or_without_its_top_key(
    name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert CheckpointConfig.load(tmp_path / name) == MEANT
    assert CheckpointConfig.load(str(tmp_path / name)) == MEANT


def test_a_setting_without_a_value_has_its_default(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("checkpoint:\n  enabled: true\n  interval:\n  recovery:\n")
    assert CheckpointConfig.load(tmp_path / "a.yaml") == CheckpointConfig(enabled=True)
    (tmp_path / "a.yaml").write_text("checkpoint:\n")
    assert CheckpointConfig.load(tmp_path / "a.yaml") == CheckpointConfig()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"enabled": "yes"}, "`enabled` must be true or false, got 'yes'"),
    ({"after_tools": 1}, "`after_tools` must be true or false, got 1"),
    ({"strategy": "events"}, "`strategy` must be 'event', 'interval' or 'hybrid', got 'events'"),
    ({"strategy": ["event"]}, "`strategy` must be 'event', 'interval' or 'hybrid', got ['event']"),
    ({"interval": -1}, "`interval` must be a whole number of iterations, 0 or more, got -1"),
    ({"interval": True}, "`interval` must be a whole number of iterations, 0 or more, got True"),
    ({"interval": 2.5}, "`interval` must be a whole number of iterations, 0 or more, got 2.5"),
    ({"strategy": "interval"}, "`interval` must be at least 1 with strategy 'interval', got 0"),
    ({"intervall": 5}, "unknown setting intervall; did you mean interval?"),
    ({"recovery": {"timeout": -1}}, "`recovery.timeout` must be a number of seconds, 0 or more, got -1"),
    ({"recovery": {"timeout": "1h"}}, "`recovery.timeout` must be a number of seconds, 0 or more, got '1h'"),
    ({"recovery": {"auto_resum": True}}, "unknown setting recovery.auto_resum; did you mean recovery.auto_resume?"),
    ({"recovery": True}, "`recovery` must be a table of settings, got True"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=str)
def test_a_wrong_setting_is_one_error_that_names_the_field(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}"):
        CheckpointConfig.load(settings)


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=str)
def test_a_wrong_setting_in_a_file_names_the_file_too(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    import yaml  # type: ignore[import-untyped]

    path = tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump({"checkpoint": settings}))
    with pytest.raises(ConfigurationError, match=f"^{re.escape(f'{path}: {message}')}"):
        CheckpointConfig.load(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "checkpoint: [1, 2]", "`checkpoint` must be a table of settings, got [1, 2]"),
        ("a.yaml", "checkpoint: {", "not valid YAML"),
        ("a.yaml", "interval: 1\ninterval: 2", "interval is set twice; the second is in line 2"),
        ("a.yaml", "checkpoint:\n  enabled: true\nrecovery: {timeout: 5}", "recovery is next to `checkpoint`"),
        ("a.toml", "checkpoint = {", "not valid TOML"),
        ("a.ini", "", "a .yaml, .yml or .toml file, got '.ini'"),
        ("missing.yaml", None, "cannot read the checkpoint configuration"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_clear_error(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(message)) as refused:
        CheckpointConfig.load(tmp_path / name)
    assert str(tmp_path / name) in str(refused.value)


def test_settings_made_in_code_are_checked_by_validate_and_by_the_manager() -> None:
    from holdfast import CheckpointManager

    wrong = CheckpointConfig(enabled=True, strategy="interval")
    for check in (wrong.validate, lambda: CheckpointManager(wrong)):
        with pytest.raises(ConfigurationError, match="`interval` must be at least 1"):
            check()
    with pytest.raises(ConfigurationError, match=r"`recovery\.timeout` must be"):
        CheckpointConfig(recovery=RecoveryConfig(timeout=-1)).validate()
    with pytest.raises(ConfigurationError, match="`recovery` must be a RecoveryConfig"):
        CheckpointConfig(recovery={"timeout": 3}).validate()  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a dict or the path of a file, got 7"):
        CheckpointConfig.load(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["c.toml", "c.yaml"])
@pytest.mark.parametrize("value", ["9" * 5000, "[" * 800])
def test_a_file_that_no_parser_can_read_is_named(tmp_path: Path, name: str, value: str) -> None:
    (tmp_path / name).write_text(f"interval {'=' if name.endswith('toml') else ':'} {value}\n")
    with pytest.raises(ConfigurationError, match=name):
        CheckpointConfig.load(tmp_path / name)
