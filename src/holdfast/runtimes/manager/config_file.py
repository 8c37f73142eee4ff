"""Settings as people write them: a dict, YAML or TOML, checked field by field before anything is made of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.records.errors import ConfigurationError

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
"""What each setting must be, in words and as a test."""


def parsed(source: object) -> Any:
    """Return the settings in a mapping or a file, below the key `checkpoint` if there is one."""
    found = source if isinstance(source, Mapping) else _read(source)
    if isinstance(found, Mapping) and "checkpoint" in found:
        for name in _KINDS.keys() & found.keys():
            place = "" if found is source else f"{source}: "
            raise ConfigurationError(f"{place}{name} stands beside checkpoint, where it is not read; move it below")
        found = found["checkpoint"]
    return {} if found is None else found


def _read(source: object) -> Any:
    if not isinstance(source, str | Path):
        raise ConfigurationError(f"a checkpoint configuration is a dict or the path of a file, got {source!r}")
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot read the checkpoint configuration: {error}") from error
    if path.suffix == ".toml":
        return _read_toml(text, path)
    if path.suffix in {".yaml", ".yml"}:
        return _read_yaml(text, path)
    raise ConfigurationError(f"{path}: a checkpoint configuration is a .yaml, .yml or .toml file, not {path.suffix!r}")


def _read_toml(text: str, path: Path) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of very many digits
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from error


def _read_yaml(text: str, path: Path) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigurationError(f"{path}: reading YAML needs PyYAML: pip install 'holdfast[yaml]'") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Refuse a key that is written twice: the base would take the last one."""
            written = set[str]()
            for key, _ in node.value:
                if key.id == "scalar" and key.value in written:
                    raise ValueError(f"{key.value} is set twice, the second time in line {key.start_mark.line + 1}")
                written.add(str(key.value))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # noqa: S506  it makes plain values only
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not valid YAML: {error}") from error


def checked(settings: object, shape: Any, origin: str, within: str = "") -> dict[str, Any]:
    """Return the settings of a structure's fields; an error names the field, and the file that it stands in.

    A setting that is written down without a value has its default.
    """
    place = f"{origin}: " if origin else ""
    if not isinstance(settings, Mapping):
        name = within.rstrip(".") or "checkpoint"
        raise ConfigurationError(f"{place}{name} must be a table of settings, got {settings!r}")
    for name in settings:
        if name not in shape.__struct_fields__:
            raise ConfigurationError(f"{place}unknown setting {within}{name}{_hint(name, shape, within)}")
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        words, is_valid = _KINDS[name]
        if not is_valid(value):
            raise ConfigurationError(f"{place}{within}{name} must be {words}, got {value!r}")
    return given


def _hint(name: object, shape: Any, within: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(name), shape.__struct_fields__, n=1)
    meant = f"; did you mean {within}{close[0]}?" if close else ";"
    return f"{meant} settings here are {', '.join(shape.__struct_fields__)}"
