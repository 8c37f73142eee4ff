"""Registered classes: names, versions, migrations, and objects made again without running their code."""

import enum
import importlib
import os
import subprocess
import sys
from dataclasses import InitVar, dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import pydantic
import pytest

from codec import samples
from codec.exact import same
from holdfast.codec import decode, encode, migration, register, registry, storable
from holdfast.records.errors import CodecError, ConfigurationError, IncompatibleCheckpoint, UnknownType, UnstorableValue

pytestmark = pytest.mark.usefixtures("registry_as_before")


def stored(name: str, version: int, content: Any) -> bytes:
    """What another program, with other classes, would have stored."""
    kind = make_dataclass("Kind", [(key, Any) for key in content]) if isinstance(content, dict) else None
    assert kind is not None
    register(kind, name=name, version=version)
    data = encode(kind(**content))
    registry._by_class.pop(kind)
    registry._by_name.pop(name)
    return data


def test_the_default_name_is_module_and_qualified_name() -> None:
    assert b"codec.samples.Note" in encode(samples.Note("x"))
    assert registry.name_of(samples.Note) == "codec.samples.Note"
    assert registry.name_of(samples.Client) == "codec.samples.Client"


def test_a_given_name_is_stored_instead() -> None:
    data = encode(samples.Point(1))
    assert b"point" in data
    assert b"Point" not in data
    assert registry.name_of(samples.Point) == "point"


def test_the_stored_form_is_name_version_and_fields() -> None:
    data = encode(samples.Point(1, 2))
    assert data == b"\xc7\x0f\x05" + b"\x93\xa5point\x01" + b"\x82\xa1x\x01\xa1y\x02"


def test_register_returns_the_class_and_may_be_repeated() -> None:
    assert register(samples.Note) is samples.Note
    assert storable(samples.Note) is samples.Note
    assert register(samples.Point, name="point") is samples.Point


def test_a_name_belongs_to_one_class() -> None:
    @dataclass
    class Other:
        a: int

    with pytest.raises(ConfigurationError, match=r"'point' is taken by codec\.samples\.Point"):
        register(Other, name="point")


def test_a_class_has_one_name() -> None:
    with pytest.raises(ConfigurationError, match="already registered as 'point'"):
        register(samples.Point, name="place")


def test_a_reloaded_module_registers_its_classes_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import dataclasses, holdfast.codec\n@holdfast.codec.storable\n@dataclasses.dataclass\nclass Plan:\n  a: int\n"
    )
    (tmp_path / "reloadable.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("reloadable")
    old = module.Plan(1)
    data = encode(old)
    importlib.reload(module)
    assert type(decode(data)) is module.Plan
    with pytest.raises(UnstorableValue):
        encode(old)
    sys.modules.pop("reloadable")


@pytest.mark.parametrize("cls", [int, samples.Client, dict, tuple, object, Exception, "Note", 5, samples.Note("x")])
def test_other_classes_cannot_be_registered(cls: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be registered"):
        register(cls)


def test_a_dataclass_that_extends_a_builtin_cannot_be_registered() -> None:
    @dataclass
    class Bag(dict[str, int]):
        label: str = ""

    with pytest.raises(ConfigurationError, match="extends a built-in type"):
        register(Bag)


class Label(str):
    """A str of a class of its own."""

    __slots__ = ()


def test_a_name_may_be_any_str_and_nothing_else() -> None:
    class Named(NamedTuple):
        a: int = 1

    register(Named, name=Label("named"))
    assert type(registry.name_of(Named)) is str
    assert decode(encode(Named())) == Named()
    for name in (5, "", b"x", "\ud800"):
        with pytest.raises(ConfigurationError, match="`name` must be"):
            register(samples.Note, name=name)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, 2**64])
def test_a_version_counts_from_one(version: Any) -> None:
    with pytest.raises(ConfigurationError, match="version"):
        register(samples.Note, version=version)


def test_subclasses_are_not_registered_with_their_parent() -> None:
    class Child(samples.Note):
        pass

    class ChildMessage(samples.Message):
        pass

    for value in (Child("x"), ChildMessage(role="x")):
        with pytest.raises(UnstorableValue, match=r"holdfast\.register"):
            encode(value)
    register(Child)
    assert type(decode(encode(Child("x")))) is Child


def test_a_generic_model_is_registered_for_each_parameter() -> None:
    assert type(decode(encode(samples.IntBox(item=1)))) is samples.IntBox
    with pytest.raises(UnstorableValue):
        encode(samples.Box[str](item="x"))


def test_an_unknown_name_says_what_to_register() -> None:
    data = stored("elsewhere.Plan", 1, {"a": 1})
    with pytest.raises(UnknownType, match=r"holdfast\.register\(cls, name='elsewhere\.Plan'\)") as caught:
        decode(data)
    assert caught.value.name == "elsewhere.Plan"


def test_objects_are_made_without_running_their_code() -> None:
    calls = []

    @storable
    @dataclass(frozen=True)
    class Watched:
        a: int
        seed: InitVar[int]
        b: int = field(init=False)
        shared: ClassVar[int] = 5

        def __post_init__(self, seed: int) -> None:
            calls.append(seed)
            object.__setattr__(self, "b", seed)

    value = Watched(1, 7)
    assert decode(encode(value)) == value
    assert calls == [7]


def test_a_struct_is_made_without_its_post_init() -> None:
    value = samples.counted(5)
    copy = decode(encode([value, value]))[1]
    assert same(copy, value)
    assert type(copy) is samples.Counted
    assert copy.count == 5


@pytest.mark.parametrize("options", [{"frozen": True}, {"dict": True}, {"weakref": True}, {"gc": False}, {"tag": "t"}])
def test_structs_of_all_options_with_a_post_init_come_back(options: dict[str, Any]) -> None:
    def post_init(_self: Any) -> None:
        raise RuntimeError("not again")

    plain = msgspec.defstruct("Optional", [("a", Any)], **options)
    guarded: Any = msgspec.defstruct("Guarded", [], bases=(plain,), namespace={"__post_init__": post_init}, **options)
    register(guarded)
    shape: Any = registry._by_class[guarded].shape
    value = shape.make({"a": [1]})
    assert type(value) is guarded
    assert same(decode(encode(value)), value)


def test_named_tuples_are_taken_by_position_not_by_attribute() -> None:
    @storable
    class Odd(samples.Pair):
        @property
        def left(self) -> Any:
            return "other"

    value = Odd(1, 2)
    assert tuple(decode(encode(value))) == (1, 2)


def test_missing_fields_take_their_defaults() -> None:
    data = stored("note", 1, {"text": "x"})

    @storable(name="note")
    @dataclass
    class Longer:
        text: str
        count: int = 3
        log: list[int] = field(default_factory=list)

    assert decode(data) == Longer("x", 3, [])


def test_missing_fields_of_every_kind_take_their_defaults() -> None:
    class AsStruct(msgspec.Struct):
        text: str
        count: int = 3
        log: list[int] = msgspec.field(default_factory=list)

    class AsModel(pydantic.BaseModel):
        text: str
        count: int = 3
        log: list[int] = pydantic.Field(default_factory=list)
        _cache: dict[str, int] = pydantic.PrivateAttr(default_factory=dict)
        _unset: int = pydantic.PrivateAttr()

    class AsTuple(NamedTuple):
        text: str
        count: int = 3  # type: ignore[assignment]  # hides tuple.count, as a field may

    kinds: tuple[Any, ...] = (AsStruct, AsModel, AsTuple)
    for number, cls in enumerate(kinds):
        data = stored(f"kind {number}", 1, {"text": "x"})
        register(cls, name=f"kind {number}")
        value: Any = decode(data)
        assert type(value) is cls
        assert (value.text, value.count) == ("x", 3)
        if cls is AsModel:
            assert value.model_fields_set == {"text"}
            assert value.__pydantic_private__ == {"_cache": {}}


def test_a_new_field_without_a_default_asks_for_a_migration() -> None:
    class AsStruct(msgspec.Struct):
        text: str
        more: int

    class AsModel(pydantic.BaseModel):
        text: str
        more: int

    class Dependent(pydantic.BaseModel):
        text: str
        more: str = pydantic.Field(default_factory=lambda data: str(data["text"]))

    class AsTuple(NamedTuple):
        text: str
        more: int

    @dataclass
    class AsDataclass:
        text: str
        more: int

    for number, cls in enumerate((AsStruct, AsModel, Dependent, AsTuple, AsDataclass)):
        data = stored(f"kind {number}", 1, {"text": "x"})
        register(cls, name=f"kind {number}")
        with pytest.raises(CodecError, match=rf"new field 'more'.*@holdfast\.migration\({cls.__name__}, from_="):
            decode(data)


def test_a_field_that_is_gone_asks_for_a_migration() -> None:
    data = stored("pair", 1, {"left": 1, "right": 2, "middle": 3})
    register(make_dataclass("Pair", ["left", "right"]), name="pair")
    with pytest.raises(CodecError, match=r"no field 'middle' now.*@holdfast\.migration\(Pair"):
        decode(data)


def test_migrations_are_chained_up_to_the_version_of_the_class() -> None:
    data = stored("plan", 1, {"title": "x"})

    @storable(name="plan", version=3)
    @dataclass
    class Plan:
        name: str
        steps: list[str]

    @migration(Plan, from_=1)
    def renamed(fields: dict[str, Any]) -> dict[str, Any]:
        return {"name": fields["title"]}

    @migration("plan", from_=2)
    def with_steps(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "steps": []}

    assert decode(data) == Plan("x", [])
    assert renamed({"title": "y"}) == {"name": "y"}
    assert with_steps({}) == {"steps": []}
    assert decode(encode(Plan("y", ["z"]))) == Plan("y", ["z"])


def test_a_missing_migration_is_named() -> None:
    data = stored("plan", 1, {"a": 1})
    register(make_dataclass("Plan", ["a"]), name="plan", version=2)
    with pytest.raises(IncompatibleCheckpoint, match=r"@holdfast\.migration\(Plan, from_=1\)"):
        decode(data)


def test_a_newer_version_than_the_programs_is_incompatible() -> None:
    data = stored("plan", 3, {"a": 1})
    register(make_dataclass("Plan", ["a"]), name="plan", version=2)
    with pytest.raises(IncompatibleCheckpoint, match=r"version 3 of plan, but this program has version 2"):
        decode(data)


def test_one_migration_for_each_step() -> None:
    @migration("plan", from_=1)
    def first(fields: dict[str, Any]) -> dict[str, Any]:
        return fields

    assert migration("plan", from_=1)(first) is first

    def second(fields: dict[str, Any]) -> dict[str, Any]:
        return fields

    with pytest.raises(ConfigurationError, match="already has a migration from version 1"):
        migration("plan", from_=1)(second)


@pytest.mark.parametrize("error", [KeyError("title"), UnknownType("x", name="y")])
def test_a_failing_migration_is_named(error: Exception) -> None:
    data = stored("plan", 1, {"a": 1})
    register(make_dataclass("Plan", ["a"]), name="plan", version=2)

    @migration("plan")
    def fails(_fields: dict[str, Any]) -> dict[str, Any]:
        raise error

    with pytest.raises(CodecError) as caught:
        decode(data)
    assert caught.value is error or caught.value.__cause__ is error


def test_members_of_an_enum_are_stored_by_name_and_may_change_their_value() -> None:
    data = encode(samples.Colour.RED)

    class Colour(enum.Enum):
        RED = 99

    Colour.__module__, Colour.__qualname__ = samples.Colour.__module__, samples.Colour.__qualname__
    register(Colour)
    assert decode(data) is Colour.RED


def test_a_member_that_is_gone_can_be_migrated() -> None:
    data = encode([samples.Colour.RED, samples.Permission.WRITE])
    for old in (samples.Colour, samples.Permission):
        registry._by_name.pop(registry.name_of(old))

    class Colour(enum.Enum):
        CRIMSON = 1

    class Permission(enum.Flag):
        ALL = 8

    register(Colour, name="codec.samples.Colour")
    register(Permission, name="codec.samples.Permission")
    with pytest.raises(CodecError, match=r"no member 'RED' now; raise its version"):
        decode(data)
    register(Colour, name="codec.samples.Colour", version=2)
    migration(Colour)(lambda fields: {"name": {"RED": "CRIMSON"}[fields["name"]]})
    with pytest.raises(CodecError, match="no member 2 now"):
        decode(data)
    register(Permission, name="codec.samples.Permission", version=2)
    migration(Permission)(lambda fields: {"value": fields["value"] * 4})
    assert decode(data) == [Colour.CRIMSON, Permission.ALL]


def test_a_migrated_model_knows_which_fields_were_set() -> None:
    @storable(name="settings")
    class Settings(pydantic.BaseModel, extra="allow"):
        a: int = 1
        b: int = 2

    complete, partial = encode(Settings(a=1, b=2)), encode(Settings.model_validate({"a": 5, "z": 9}))
    registry._by_name.pop("settings")

    @storable(name="settings", version=2)
    class Newer(pydantic.BaseModel, extra="allow"):
        a: int = 1
        b: int = 2
        c: int = 3

    migration(Newer)(lambda fields: {**fields, "c": 4})
    assert decode(complete).model_fields_set == {"a", "b", "c"}
    value = decode(partial)
    assert value.model_fields_set == {"a", "c", "z"}
    assert (value.a, value.b, value.c, value.model_extra) == (5, 2, 4, {"z": 9})


def test_recursive_types_come_back() -> None:
    tree: Any = None
    for number in range(60):
        tree = samples.Note(str(number), rest=tree)
    assert same(decode(encode(tree)), tree)


def test_a_model_is_made_without_validation() -> None:
    value = samples.Message.model_construct(role=5, content=None)
    assert decode(encode(value)).role == 5


SCRIPT = """
from dataclasses import dataclass
import holdfast.sync as holdfast

@holdfast.storable
@dataclass
class Plan:
    goal: str

if __name__ == "__main__":
    import planner  # the same file once more, as a module
    with holdfast.open("plans.db") as store:
        store.save("t", {"mine": Plan("swim"), "theirs": planner.Plan("dive")})
"""


def test_a_class_of_a_script_is_stored_under_the_name_that_others_import_it_by(tmp_path: Path) -> None:
    (tmp_path / "planner.py").write_text(SCRIPT)
    read = "import planner, holdfast.sync as h; print(h.open('plans.db').latest('t').state)"
    for arguments in (["planner.py"], ["-c", read]):
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
    assert ran.stdout.strip() == "{'mine': Plan(goal='swim'), 'theirs': Plan(goal='dive')}"
