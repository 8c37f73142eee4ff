"""The public surface: the same names and signatures in both worlds, typed, and light to import."""

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import sync, testing
from holdfast.stores.options import LocalOptions
from patience import GIVE_UP_SECONDS

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted((ROOT / "tests" / "programs").glob("*.py"))
METHODS = (
    *("save", "append", "latest", "load", "get", "history", "threads", "thread", "fork", "diff", "delete", "revive"),
    *("delete_checkpoint", "pin", "erase", "prune", "stats", "verify", "guarantee", "export", "import_", "backup"),
    *("rotate", "on_event", "close", "cancel", "requests", "answer", "retry", "settle"),
)
CLASSES = ("Store", "MemoryStore", "FileStore", "SQLiteStore")


def test_both_worlds_have_the_same_names() -> None:
    assert sorted(holdfast.__all__) == sorted(sync.__all__)
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    for module in (holdfast, sync):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_names_without_io_are_the_same_objects() -> None:
    of_their_own = {"FileStore", "MemoryStore", "SQLiteStore", "Store", "Page", "open", "Run", "Receipt", "durable"}
    of_their_own |= {"Agent", "agent", "append", "ask", "checkpoint", "confirm", "current", "record", "sleep"}
    of_their_own |= {"Handle", "Rate", "Loop", "Orchestrator", "Session", "SnapshotStore", "Worker"}
    of_their_own |= {"CheckpointHooks", "CheckpointManager", "Composite", "parallel", "repeat", "sequential"}
    of_their_own |= {"PostgresStore", "RedisStore", "S3Store"}
    of_their_own |= {"Workflow", "WorkflowBuilder", "WorkflowContext", "WorkflowStream"}
    of_their_own |= {"latest_workflow_checkpoint", "workflow_checkpoints"}
    for name in holdfast.__all__:
        if name not in of_their_own:
            assert getattr(holdfast, name) is getattr(sync, name), name


def test_everything_public_is_in_all() -> None:
    public = {
        name
        for name, value in vars(holdfast).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "").startswith("holdfast")
    }
    assert public <= set(holdfast.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        holdfast.nonsense  # noqa: B018


def public_methods(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(cls)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


def parameters_of(function: Callable[..., Any]) -> list[tuple[str, Any, Any, str]]:
    return [
        (parameter.name, parameter.kind, parameter.default, str(parameter.annotation))
        for parameter in inspect.signature(function).parameters.values()
    ]


def test_the_names_of_the_contract_are_there() -> None:
    named = {
        *("open", "MemoryStore", "FileStore", "SQLiteStore", "Store", "Checkpoint", "CheckpointInfo", "ThreadInfo"),
        *("Page", "Retention", "KeyRing", "Step", "Change", "Status", "Phase", "Cause", "Durability", "Event", "Freed"),
        *("Report", "Stats", "Guarantee", "storable", "register", "migration", "codec"),
        *("HoldfastError", "StoreError", "CodecError"),
    }
    assert named <= set(holdfast.__all__)
    assert holdfast.codec.decode(holdfast.codec.encode((1, {2}))) == (1, {2})


def test_the_store_has_the_methods_of_the_contract() -> None:
    for module in (holdfast, sync):
        assert set(METHODS) <= set(public_methods(module.Store))


def test_both_stores_have_the_same_methods() -> None:
    known = {"retention"}  # a property in one world, an attribute in the other
    assert set(public_methods(holdfast.Store)) | known == set(public_methods(sync.Store)) | known


def test_both_runs_have_the_same_methods_and_signatures() -> None:
    of_one_world = {"over", "scope"}  # for the code that connects the worlds
    awaitable, blocking = public_methods(holdfast.Run), public_methods(sync.Run)
    assert set(awaitable) - of_one_world == set(blocking)
    for name, method in blocking.items():
        if inspect.isfunction(method):
            assert [each[:3] for each in parameters_of(awaitable[name])] == [each[:3] for each in parameters_of(method)]


WITHOUT_STARTERS = {"CheckpointHooks", "Composite", "Session", "Workflow", "WorkflowContext", "WorkflowStream"}
"""Classes that programs do not make themselves."""


@pytest.mark.parametrize(
    "name",
    [
        *("CheckpointManager", "Loop", "Orchestrator", "SnapshotStore", "Worker", "WorkflowBuilder"),
        *sorted(WITHOUT_STARTERS),
    ],
)
def test_both_runtimes_have_the_same_methods_and_signatures(name: str) -> None:
    awaitable, blocking = getattr(holdfast, name), getattr(sync, name)
    methods = public_methods(blocking)
    assert set(public_methods(awaitable)) == set(methods)
    for method, value in methods.items():
        assert value.__doc__
        if inspect.isfunction(value):
            twin = getattr(awaitable, method)
            assert [each[:3] for each in parameters_of(twin)] == [each[:3] for each in parameters_of(value)]
    if name not in WITHOUT_STARTERS:
        assert [each[:3] for each in parameters_of(awaitable)] == [each[:3] for each in parameters_of(blocking)]


@pytest.mark.parametrize("name", METHODS)
def test_the_signatures_of_both_worlds_are_equal(name: str) -> None:
    awaitable, blocking = getattr(holdfast.Store, name), getattr(sync.Store, name)
    assert parameters_of(awaitable) == parameters_of(blocking)
    if name != "on_event":
        assert inspect.iscoroutinefunction(awaitable)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize(
    "name", ["MemoryStore", "FileStore", "SQLiteStore", "PostgresStore", "RedisStore", "S3Store", "open"]
)
def test_the_ways_to_open_are_equal(name: str) -> None:
    assert parameters_of(getattr(holdfast, name)) == parameters_of(getattr(sync, name))


def test_open_takes_what_the_contract_says() -> None:
    options = set(LocalOptions.__annotations__)
    assert options == {
        "durability",
        "keys",
        "compress",
        "retention",
        "sweep",
        "namespace",
        "inline",
        "inputs",
        "limits",
        "engine",
    }
    for module in (holdfast, sync):
        with pytest.raises(holdfast.ConfigurationError, match="unknown option 'retentions'; did you mean 'retention'"):
            module.open("memory:", retentions=None)


def test_every_public_method_says_what_it_promises() -> None:
    for module in (holdfast, sync):
        for name in CLASSES:
            cls = getattr(module, name)
            assert cls.__doc__
            for method, value in public_methods(cls).items():
                assert value.__doc__, f"{module.__name__}.{name}.{method}"


def test_every_error_has_the_one_root() -> None:
    errors = [
        value
        for name in holdfast.__all__
        if inspect.isclass(value := getattr(holdfast, name))
        and issubclass(value, BaseException)
        and not issubclass(value, Warning)
    ]
    assert len(errors) > 30
    for error in errors:
        assert issubclass(error, holdfast.HoldfastError)
    assert issubclass(holdfast.InvalidId, ValueError)
    assert issubclass(holdfast.NotFound, LookupError)


def test_the_backend_to_write_ones_own_store_with_is_there() -> None:
    from holdfast import stores
    from holdfast.stores.backend import Backend
    from holdfast.stores.objects import ObjectBackend
    from holdfast.testing import conformance

    assert stores.Backend is Backend
    assert stores.ObjectBackend is ObjectBackend
    assert {"BackendConformance", "StoreConformance", "check", "check_store"} <= set(conformance.__all__)


# Weight


def run(code: str, *flags: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout


HEAVY = {
    *("asyncio", "sqlite3", "socket", "ssl", "subprocess", "multiprocessing", "http", "email", "unittest"),
    *("cryptography", "pydantic", "hypothesis", "backports.zstd", "click", "pytest"),
}
THIRD_PARTY = {"holdfast", "msgspec", "ormsgpack", "typing_extensions"}
"""All that an import may load beside the standard library; msgspec takes the last one where it is installed."""


def loaded_by(module: str) -> set[str]:
    """What an import adds to the modules of an interpreter that has just started."""
    code = f"import sys; bare = set(sys.modules); import {module}; print(*set(sys.modules) - bare)"
    return set(run(code).split())


@pytest.mark.parametrize("module", ["holdfast", "holdfast.sync"])
def test_an_import_loads_nothing_heavy(module: str) -> None:
    loaded = loaded_by(module)
    assert not HEAVY & loaded
    assert not [name for name in loaded if name.startswith("holdfast.testing")]


@pytest.mark.parametrize("module", ["holdfast", "holdfast.sync"])
def test_an_import_loads_no_third_party_but_the_encoders(module: str) -> None:
    packages = {name.partition(".")[0] for name in loaded_by(module) if not name.startswith("_sysconfigdata")}
    assert packages - sys.stdlib_module_names <= THIRD_PARTY


@pytest.mark.parametrize(("module", "most"), [("holdfast", 120), ("holdfast.sync", 230)])
def test_an_import_stays_small(module: str, most: int) -> None:
    """How long it takes is a figure of the benchmarks; how much it loads is the same on every machine."""
    loaded = loaded_by(module)
    assert len(loaded) <= most, sorted(loaded)


def test_the_core_has_at_most_four_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 4
    assert project["requires-python"] == ">=3.11"
    assert set(project["optional-dependencies"]) >= {
        "redis",
        "postgres",
        "s3",
        "crypto",
        "yaml",
        "dashboard",
        "otel",
        "all",
    }


# Types


@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_typical_program_runs(program: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "error", program], cwd=tmp_path, check=True, timeout=GIVE_UP_SECONDS)


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(holdfast.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("module", [holdfast, sync, testing])
def test_what_is_loaded_later_is_no_stranger_to_type_checkers(module: ModuleType) -> None:
    """They read the imports below `if TYPE_CHECKING`; a name that is only in the table would be Any to them."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [each for block in blocks for each in block.body if isinstance(each, ast.ImportFrom)]
    assert {name.name: each.module for each in imports for name in each.names} == module._LATER


def test_a_prompt_completes_every_name_also_before_its_first_use() -> None:
    for module in (holdfast, holdfast.sync):
        assert set(module.__all__) == set(dir(module))


# What a user's editor offers


def visible(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def executor_of(module: Any) -> Any:
    return module.executor(id="start")(lambda message, ctx: ctx.yield_output(message))


async def awaitable_objects() -> dict[str, set[str]]:
    async with holdfast.MemoryStore() as store:
        names = {"store": visible(store), "agent": visible(holdfast.Agent(lambda task: task, store=store))}

        @holdfast.durable(store=store)
        async def awaited() -> None:
            pass

        names["durable"] = visible(awaited)
        async with store.run("a") as run:
            names["run"] = visible(run)
        async with store.session("b") as session:
            names["session"] = visible(session)
        names["manager"] = visible(holdfast.CheckpointManager({}, store))
        names["composite"] = visible(holdfast.sequential([len]))
        names["workflow"] = visible(holdfast.WorkflowBuilder(executor_of(holdfast), store).build())
        return names | {"orchestrator": visible(holdfast.Orchestrator("a", "b", store))}


def blocking_objects() -> dict[str, set[str]]:
    with sync.MemoryStore() as store:
        names = {"store": visible(store), "agent": visible(sync.Agent(lambda task: task, store=store))}

        @sync.durable(store=store)
        def called() -> None:
            pass

        names["durable"] = visible(called)
        with store.run("a") as run:
            names["run"] = visible(run)
        with store.session("b") as session:
            names["session"] = visible(session)
        names["manager"] = visible(sync.CheckpointManager({}, store))
        names["composite"] = visible(sync.sequential([len]))
        names["workflow"] = visible(sync.WorkflowBuilder(executor_of(sync), store).build())
        return names | {"orchestrator": visible(sync.Orchestrator("a", "b", store))}


def test_objects_show_the_same_names_in_both_worlds_and_nothing_of_their_inside() -> None:
    names = asyncio.run(awaitable_objects())
    assert names == blocking_objects()
    assert names["durable"] == {"name", "options", "resume", "run", "start", "submit"}
    assert names["agent"] == {"name", "options", "resume", "run", "start", "stream", "submit", "summary"}
    assert names["orchestrator"] == {"session", "summary"}
    assert names["workflow"] >= {"checkpoints", "graph", "latest", "name", "resume", "run", "signature"}
    assert names["composite"] == {"name", "resume", "run", "sub_agents"}
    assert names["manager"].isdisjoint({"tasks", "core", "held", "store"})
    assert names["run"].isdisjoint({"ledger", "ports", "reader", "scope", "over"})
