# mypy: disable-error-code="empty-body"
"""Registration is recursive: whatever the annotations of a class or function name is registered with it."""

from __future__ import annotations

import enum
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import msgspec
import pydantic
import pytest
from typing_extensions import TypeAliasType

import holdfast
import holdfast.sync
from codec.exact import same
from holdfast.codec import decode, discovery, encode, migration, register, registry, storable
from holdfast.records.errors import ConfigurationError, UnknownType, UnstorableValue
from holdfast.sync import step

T = TypeVar("T")


pytestmark = pytest.mark.usefixtures("registry_as_before")


class Colour(enum.Enum):
    RED = 1


class Mood(enum.Enum):
    CALM = 1


class Place(NamedTuple):
    name: str
    colour: Colour


class Extra(TypedDict, total=False):
    place: Place
    moods: list[Literal[Mood.CALM]]


class Leaf(msgspec.Struct):
    extra: Extra


@dataclass
class Tree:
    leaf: Leaf | None = None
    children: list[Tree] = field(default_factory=list)


@dataclass
class Pair(Generic[T]):
    left: T
    right: T


class Item(pydantic.BaseModel):
    price: int


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    item: Item


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    next: Page[T] | None = None


class Zoo(pydantic.BaseModel, extra="allow"):
    __pydantic_extra__: dict[str, Item]
    animals: list[Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]]
    alias: int = pydantic.Field(alias="theAlias", default=1)
    _last: Tree | None = pydantic.PrivateAttr(default=None)


ItemId = NewType("ItemId", Item)
Nested = TypeAliasType("Nested", "Item | list[Nested]")

TREE = Tree(Leaf({"place": Place("x", Colour.RED), "moods": [Mood.CALM]}), [Tree()])
ZOO = Zoo.model_validate({"animals": [{"kind": "cat", "item": {"price": 1}}, {"kind": "dog"}], "more": {"price": 2}})
ZOO._last = TREE


def tree() -> Tree: ...
def optional() -> Optional[dict[str, tuple[Tree, ...]]]: ...  # noqa: UP045  the old form is one of the forms
def union() -> Union[int, list[Tree]]: ...  # noqa: UP007
def mapping() -> Mapping[str, Annotated[Tree, "note"]]: ...
async def stream() -> AsyncIterator[Tree]: ...
def typed_dict() -> Extra: ...
def pair() -> Pair[Item]: ...
def page() -> Page[Item]: ...
def zoo() -> Zoo: ...
def new_type() -> ItemId: ...
def alias() -> Nested: ...
def calls() -> Callable[[Colour], Item] | type[Tree]: ...


@pytest.mark.parametrize(
    ("function", "value"),
    [
        *[(function, [TREE]) for function in (tree, optional, union, mapping, stream)],
        (typed_dict, {"place": Place("x", Colour.RED), "moods": [Mood.CALM]}),
        (pair, Pair[Item](Item(price=1), Item(price=2))),
        (page, Page[Item](items=[Item(price=1)], next=Page[Item](items=[]))),
        (zoo, ZOO),
        (new_type, Item(price=3)),
        (alias, [[Item(price=3)]]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("decorator", ["step", "durable"])
def test_all_that_a_return_annotation_names_is_registered(decorator: str, function: Any, value: Any) -> None:
    with pytest.raises(UnstorableValue):
        encode(value)
    world = holdfast if function is stream else holdfast.sync
    getattr(world, decorator)(function)
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize("root", [Tree, Zoo, Page[Item], Pair])
def test_register_and_storable_register_what_the_fields_name(root: Any) -> None:
    storable(root)
    named: dict[Any, list[type]] = {
        Tree: [Leaf, Place, Colour, Mood],
        Zoo: [Cat, Dog, Item, Tree],
        Page[Item]: [Item],
        Pair: [],
    }
    for cls in named[root]:
        assert registry.entry_of(cls) is not None, cls


def test_classes_and_functions_in_an_annotation_are_not_what_it_holds() -> None:
    discovery.remember(discovery.Annotation("nothing", {}))
    classes, _ = discovery.classes_in(discovery.Annotation(Callable[[Colour], Item] | type[Tree], {}))
    assert not {Colour, Item, Tree} & set(classes)


@dataclass
class Early:
    later: Later | None = None  # type: ignore[name-defined]  # noqa: F821
    unknown: NeverDefined | None = None  # type: ignore[name-defined]  # noqa: F821


def early() -> list[Soon]: ...  # type: ignore[name-defined]  # noqa: F821


def test_a_class_that_is_defined_later_is_found_at_the_first_encoding() -> None:
    register(Early)
    step(early)
    names = globals()
    names["Later"] = dataclass(type("Later", (), {"__annotations__": {"soon": "Soon"}, "__module__": __name__}))
    names["Soon"] = msgspec.defstruct("Soon", [("colour", Colour)], module=__name__)
    try:
        value = [Early(names["Later"](names["Soon"](Colour.RED)))]
        assert same(decode(encode(value)), value)
    finally:
        del names["Later"], names["Soon"]


def test_a_class_that_is_defined_later_is_found_at_the_first_decoding(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(
        textwrap.dedent("""
            from __future__ import annotations
            import sys, dataclasses, holdfast.codec as codec
            from holdfast.sync import step
            @step
            def plan() -> list[Plan]: ...
            @dataclasses.dataclass
            class Plan:
                part: Part
            @dataclasses.dataclass
            class Part:
                size: int
            if sys.argv[1:]:
                print(codec.decode(bytes.fromhex(sys.argv[1])))
            else:
                print(codec.encode([Plan(Part(3))]).hex())
        """)
    )
    run = [sys.executable, str(tmp_path / "later.py")]
    data = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    again = subprocess.run([*run, data], capture_output=True, text=True, check=True).stdout.strip()
    assert again == "[Plan(part=Part(size=3))]"


def test_local_classes_are_found_although_annotations_are_texts() -> None:
    @dataclass
    class Inner:
        a: int

    @dataclass
    class Outer:
        inner: Inner

    @step
    def local() -> Outer | None: ...

    assert same(decode(encode(Outer(Inner(1)))), Outer(Inner(1)))


def test_generic_models_of_classes_with_the_same_name_do_not_clash() -> None:
    one, other = (pydantic.create_model("Same", __module__=module, a=(int, 1)) for module in ("one", "other"))
    for cls in (one, other):
        register(Page[cls])  # type: ignore[valid-type]
    assert Page[one].__qualname__ == Page[other].__qualname__  # type: ignore[valid-type]
    for cls in (one, other):
        value = Page[cls](items=[cls()])  # type: ignore[valid-type]
        assert same(decode(encode(value)), value)
    assert registry.name_of(Page[int]) == f"{__name__}.Page[int]"
    with pytest.raises(UnknownType):
        registry.restore(f"{__name__}.Page[Same]", 1, {"items": []})


def test_the_newest_of_two_classes_of_one_place_wins_and_the_other_is_refused_with_the_reason() -> None:
    def define() -> Any:
        @dataclass
        class Local:
            a: int

        @step
        def use() -> Local: ...

        return Local

    old, new = define(), define()
    assert same(decode(encode(new(1))), new(1))
    with pytest.raises(UnstorableValue, match=r"replaced by a newer class.*name=\.\.\."):
        encode([old(1)])


def test_a_name_that_another_class_has_is_refused_at_decoration() -> None:
    @dataclass
    class Squatter:
        a: int

    register(Squatter, name=f"{__name__}.Item")
    with pytest.raises(ConfigurationError, match=r"Item' is taken by .*Squatter; choose another one for .*Item"):
        step(new_type)
    register(Item, name="item")
    step(new_type)
    assert same(decode(encode(Item(price=1))), Item(price=1))


def test_a_module_and_a_class_of_one_name_do_not_share_what_they_hold() -> None:
    inner: Any = dataclass(type("C", (), {"__module__": "a.b", "__qualname__": "C"}))
    other: Any = dataclass(type("C", (), {"__module__": "a", "__qualname__": "b.C"}))
    register(inner)
    with pytest.raises(ConfigurationError, match=r"'a\.b\.C' is taken"):
        register(other)


def test_what_was_registered_with_another_class_can_be_given_a_name_and_a_version() -> None:
    register(Cat)
    data = encode(Item(price=1))
    register(Item, name="item", version=2)

    @migration("item", from_=1)
    def doubled(fields: dict[str, Any]) -> dict[str, Any]:
        return {"price": 2 * fields["price"]}

    assert b"test_discovery.Item" in data
    assert decode(data) == Item(price=2)
    assert b"item" in encode(Item(price=1))
    with pytest.raises(ConfigurationError, match="already registered as 'item'"):
        register(Item, name="thing")


def test_a_class_is_readable_under_its_default_name_whenever_it_got_another() -> None:
    @dataclass
    class Moved:
        a: int

    register(Moved, name="moved")
    name = f"{__name__}.{Moved.__qualname__}"
    assert registry.restore(name, 1, {"a": 1}) == Moved(1)


class Branch(TypedDict):
    branches: list[Branch]
    colour: Colour


def test_a_typed_dict_that_names_itself_is_followed_once() -> None:
    @step
    def grow() -> Branch: ...

    value: Branch = {"branches": [{"branches": [], "colour": Colour.RED}], "colour": Colour.RED}
    assert same(decode(encode(value)), value)


def test_a_long_chain_of_classes_is_followed_to_its_end() -> None:
    chain: Any = Colour
    for number in range(2000):
        chain = msgspec.defstruct(f"Link{number}", [("next", chain)])
    register(chain)
    assert encode(Colour.RED)


def test_a_pydantic_dataclass_is_exact() -> None:
    @pydantic.dataclasses.dataclass
    class Checked:
        item: Item
        count: int = 0

    register(Checked)
    assert same(decode(encode(Checked(Item(price=1)))), Checked(Item(price=1)))


def test_a_root_model_is_exact() -> None:
    class Names(pydantic.RootModel[list[Item]]):
        pass

    register(Names)
    value = Names([Item(price=1)])
    assert same(decode(encode(value)), value)


def test_private_and_other_attributes_of_a_model_are_exact() -> None:
    class Private(pydantic.BaseModel):
        a: int = 1
        _seen: dict[str, Item] = pydantic.PrivateAttr(default_factory=dict)

    register(Private)
    value = Private()
    value._seen["x"] = Item(price=1)
    bare = Private.model_construct()
    object.__setattr__(bare, "__pydantic_private__", None)
    for each in (value, bare):
        object.__setattr__(each, "_request_id", "req_1")
        assert same(decode(encode(each)), each)
        assert decode(encode(each))._request_id == "req_1"


def test_an_annotation_that_names_the_base_of_all_models_registers_nothing() -> None:
    """It has no fields of its own, and pydantic gives it no private attributes either."""

    @holdfast.step
    def any_model() -> pydantic.BaseModel:
        return Item(price=1)

    @holdfast.step
    def several() -> list[pydantic.BaseModel]:
        return []

    assert several() == []
    assert any_model() == Item(price=1)
    with pytest.raises(holdfast.ConfigurationError, match="cannot be registered"):
        holdfast.register(pydantic.BaseModel)
