"""Errors that a step raises as themselves, and options that are wrong."""

from typing import Any, NoReturn

import pytest

import holdfast
from holdfast import sync
from holdfast.codec import encode
from holdfast.history.entries import StepError
from holdfast.records.naming import name_of
from holdfast.runs.failures import rebuilt
from runs.worlds import World


class RateLimited(Exception):
    """An error as SDKs have them: its constructor needs what cannot be stored."""

    def __init__(self, message: str, *, response: object, body: dict[str, Any]) -> None:
        super().__init__(message)
        self.response = response
        self.body = body
        self.status_code = 429


class Slower(RateLimited):
    """A class below the one that is given."""


def limited(cls: type[RateLimited] = RateLimited) -> NoReturn:
    raise cls("slow down", response=object(), body={"retry_after": 3})


async def test_an_error_of_a_given_class_is_raised_as_itself_and_replayed_as_itself(world: World) -> None:
    for _ in range(2):
        async with world.open().run("t") as run:
            with pytest.raises(RateLimited, match="slow down") as caught:
                await run.step("ask", limited, raises=RateLimited)
        error = caught.value
        assert type(error) is RateLimited
        assert error.args == ("slow down",)
        assert (error.body, error.status_code) == ({"retry_after": 3}, 429)
        assert error.__notes__ == ["raised by step 'ask' after 1 attempt(s)"]


class Coded(Exception):
    """A class that made a property of what was an attribute."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.__dict__["code"] = 7

    @property
    def code(self) -> int:
        return 8


async def test_an_attribute_that_the_class_does_not_let_be_set_is_no_obstacle(world: World) -> None:
    async def fail() -> None:
        raise Coded("no")

    for _ in range(2):
        async with world.open().run("t") as run:
            with pytest.raises(Coded, match="no") as caught:
                await run.step("ask", fail, raises=Coded)
        assert (caught.value.code, vars(caught.value)["code"]) == (8, 7)


async def test_an_import_error_keeps_the_name_of_its_module(world: World) -> None:
    async def fail() -> None:
        raise ImportError("no", name="kelp")

    for _ in range(2):
        async with world.open().run("t") as run:
            with pytest.raises(ImportError, match="no") as caught:
                await run.step("ask", fail, raises=ImportError)
        assert caught.value.name == "kelp"


async def test_an_error_that_cannot_be_made_again_fails_the_step_from_the_first_time_on(world: World) -> None:
    async def fail() -> None:
        raise ExceptionGroup("both", [ValueError(1), ValueError(2)])

    for _ in range(2):
        async with world.open().run("t") as run:
            with pytest.raises(holdfast.StepFailed, match="both"):
                await run.step("ask", fail, raises=ExceptionGroup)


@pytest.mark.parametrize("attributes", [{"args": 5}, {"characters_written": "a"}, {"code": 7}, {"with_traceback": 1}])
def test_stored_attributes_call_nothing_and_break_nothing(attributes: dict[str, Any]) -> None:
    raised = encode([[name_of(Coded)], ["no"], attributes])
    memo = StepError("a", b"", "a", "Coded", "no", 1, 0, raised=raised)
    error = rebuilt(memo, (Coded,))
    assert (type(error), str(error)) == (Coded, "no")


async def test_a_decorated_step_raises_it_too(world: World) -> None:
    @world.step(raises=(KeyError, ValueError))
    async def look(word: str) -> str:
        calls.append(word)
        raise KeyError(word, 7)

    calls: list[str] = []
    for _ in range(2):
        async with world.open().run("t"):
            with pytest.raises(KeyError) as caught:
                await look("kelp")
        assert caught.value.args == ("kelp", 7)
    assert calls == ["kelp"]


async def test_other_errors_stay_step_failed(world: World) -> None:
    for first in (True, False):
        async with world.open().run("t") as run:
            with pytest.raises(holdfast.StepFailed, match="division") as caught:
                await run.step("divide", lambda: 1 / 0, raises=(RateLimited, ValueError))
        assert caught.value.type == "ZeroDivisionError"
        assert isinstance(caught.value.__cause__, ZeroDivisionError) is first


async def test_retries_come_first(world: World) -> None:
    attempts: list[int] = []

    def flaky() -> None:
        attempts.append(1)
        raise ValueError("no")

    async with world.store.run("t") as run:
        with pytest.raises(ValueError, match="no") as caught:
            await run.step("flaky", flaky, raises=ValueError, retries=2, backoff=0)
    assert len(attempts) == 3
    assert caught.value.__notes__ == ["raised by step 'flaky' after 3 attempt(s)"]


async def test_an_error_that_left_the_block_is_executed_again(world: World) -> None:
    results: Any = iter([ValueError("no"), 7])

    def flaky() -> Any:
        result = next(results)
        if isinstance(result, ValueError):
            raise result
        return result

    with pytest.raises(ValueError, match="no"):
        async with world.store.run("t") as run:
            await run.step("flaky", flaky, raises=ValueError)
    async with world.store.run("t") as run:
        assert await run.step("flaky", flaky, raises=ValueError) == 7


async def test_a_class_below_the_given_one_is_replayed_as_itself(world: World) -> None:
    for _ in range(2):
        async with world.open().run("t") as run:
            with pytest.raises(RateLimited) as caught:
                await run.step("ask", lambda: limited(Slower), raises=RateLimited)
            assert type(caught.value) is Slower


async def test_a_class_that_is_no_longer_given_is_replayed_as_step_failed(world: World) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(RateLimited):
            await run.step("ask", limited, raises=RateLimited)
        with pytest.raises(holdfast.StepFailed) as caught:
            await run.step("ask", limited)
        assert caught.value.type == "RateLimited"


async def test_errors_of_python_keep_the_fields_that_are_no_attributes(world: World) -> None:
    def read() -> None:
        open("/nowhere/at/all")  # noqa: PTH123, SIM115  as users do

    def parse() -> str:
        return b"\xff".decode()

    for _ in range(2):
        async with world.open().run("t") as run:
            with pytest.raises(FileNotFoundError, match="/nowhere/at/all") as missing:
                await run.step("read", read, raises=OSError)
            assert (missing.value.errno, missing.value.filename) == (2, "/nowhere/at/all")
            with pytest.raises(UnicodeDecodeError, match="position 0"):
                await run.step("parse", parse, raises=ValueError)


@pytest.mark.parametrize("raises", ["ValueError", (ValueError, 3), ValueError("x")])
def test_raises_takes_exception_classes(raises: Any) -> None:
    with pytest.raises(holdfast.ConfigurationError, match="`raises`"):
        holdfast.step(raises=raises)


# Options


def test_a_typo_in_an_option_lists_the_valid_names() -> None:
    misspelt: Any = {"retrys": 3}
    expected = r"unknown option 'retrys'; did you mean 'retries'\? valid: effect, .*retries, .*timeout"
    with pytest.raises(holdfast.ConfigurationError, match=expected):
        holdfast.step(**misspelt)
    with sync.MemoryStore() as store, store.run("t") as run:
        with pytest.raises(holdfast.ConfigurationError, match=expected):
            run.step("a", list, **misspelt)
        with pytest.raises(holdfast.ConfigurationError, match=r"unknown option 'zzz'; valid: .*connection"):
            run.step("a", list, zzz=1)  # type: ignore[call-arg]
