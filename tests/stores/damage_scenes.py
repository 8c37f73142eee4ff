"""A store full of things, every question that can be asked of it, and what may be answered after damage."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast import sync
from holdfast.records.errors import Corrupt, HoldfastError, NotFound
from holdfast.testing.exact import difference

THREADS = ("alpha", "beta", "gamma/δ")
CHECKPOINTS = 12
LISTINGS = ("threads", "threads by label", "threads by status")

Answer = Any
Question = Callable[[sync.Store], Answer]


def state_at(thread_id: str, number: int) -> dict[str, Any]:
    """What is saved as checkpoint `number` of a thread."""
    return {
        "who": thread_id,
        "n": number,
        "messages": [{"role": "user", "content": f"{thread_id} says {index} " * 4} for index in range(number * 2)],
        "large": "".join(f"{thread_id}{number // 4}{index}" for index in range(1500)),
        "typed": (number, {number}, {number: True}),
    }


def fill(store: sync.Store) -> None:
    """Three threads with history, labels, metadata, a pin, and a pruned past."""
    for thread_id in THREADS:
        for number in range(1, CHECKPOINTS + 1):
            labels = {"app": "demo", "thread": thread_id} if number == 1 else None
            store.save(thread_id, state_at(thread_id, number), metadata={"n": number, "who": thread_id}, labels=labels)
    store.pin(store.get("beta", 2).id)
    store.save(
        "beta", state_at("beta", CHECKPOINTS + 1), status="failed", metadata={"n": CHECKPOINTS + 1, "who": "beta"}
    )


def _page(page: Any) -> list[Any]:
    return [*page]


def _threads(page: Any) -> list[Any]:
    """The threads of a page; as from a store that reports no damaged head among the others, but raises for it."""
    for info in page:
        if info.damaged is not None:
            raise Corrupt(info.damaged, record=info.thread_id)
    return [*page]


def _stats(stats: Any) -> Any:
    if "damaged" in stats.statuses:
        raise Corrupt("a head is damaged", record="stats")
    return stats


def _checkpoint(checkpoint: Any) -> Any:
    return None if checkpoint is None else (checkpoint.id, checkpoint.seq, checkpoint.metadata, checkpoint.state)


def questions() -> Iterator[tuple[str, Question]]:
    """Everything that can be asked for, by name."""
    for thread_id in THREADS:
        yield f"latest {thread_id}", lambda store, thread_id=thread_id: _checkpoint(store.latest(thread_id))  # type: ignore[misc]
        yield f"history {thread_id}", lambda store, thread_id=thread_id: _page(store.history(thread_id))  # type: ignore[misc]
        yield f"thread {thread_id}", lambda store, thread_id=thread_id: store.thread(thread_id)  # type: ignore[misc]
        for seq in (1, 2, 5, CHECKPOINTS - 1, CHECKPOINTS):
            yield (
                f"get {thread_id} {seq}",
                lambda store, thread_id=thread_id, seq=seq: _checkpoint(store.get(thread_id, seq)),  # type: ignore[misc]
            )
    yield "threads", lambda store: _threads(store.threads())
    yield "threads by label", lambda store: _threads(store.threads(labels={"thread": "alpha"}))
    yield "threads by status", lambda store: _threads(store.threads(status="failed"))
    yield "stats", lambda store: _stats(store.stats())


def answers(store: sync.Store) -> dict[str, Answer]:
    """The right answers, from a sound store."""
    return {name: question(store) for name, question in questions()}


def judge(open_store: Callable[[], sync.Store], right: dict[str, Answer], *, has_indexes: bool = False) -> int:
    """Ask a damaged store everything: each answer is exactly right, or an error of ours that does not say "not found".

    Returns how many questions were refused. If any was, `verify` must find something too. In a file that `has_indexes`,
    damage to them can leave threads out of listings, or move them; that `verify` must find as well.
    """
    store = open_store()
    try:
        free = LISTINGS if has_indexes else ()
        refused = [name for name, question in questions() if not _is_right(store, name, question, right[name], free)]
        if refused:
            assert not _verifies(store), f"{refused} were refused, and verify finds nothing wrong"
        return len(refused)
    finally:
        store.close()


def _is_right(store: sync.Store, name: str, question: Question, right: Answer, free: tuple[str, ...]) -> bool:
    """True if the answer is right; False if it was refused, or is wrong where that is `free`."""
    try:
        answer = question(store)
    except NotFound as error:
        raise AssertionError(f"{name}: not found: {error}") from error
    except HoldfastError:
        return False
    found = difference(_plain(right), _plain(answer), name)
    assert found is None or name in free, f"wrong data: {found}"
    return found is None


def _plain(answer: Answer) -> Answer:
    """Structures compare by their own equality, states by ours."""
    return answer if isinstance(answer, tuple) else repr(answer)


def _verifies(store: sync.Store) -> bool:
    try:
        return store.verify().ok
    except HoldfastError:
        return False


def files_of(directory: Path) -> dict[Path, bytes]:
    """Every file below a directory."""
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def restore_files(directory: Path, files: dict[Path, bytes]) -> None:
    """Make the directory hold exactly these files."""
    for path in directory.rglob("*"):
        if path.is_file() and path not in files:
            path.unlink()
    for path, data in files.items():
        path.write_bytes(data)
