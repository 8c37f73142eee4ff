"""The data that every contender stores: seeded, English-like, and as hard to compress as an agent's own.

A step is a dict as agents keep them (role, tool, arguments, content, id, time). Its text is drawn from a vocabulary of
four thousand words with a Zipf distribution, so that zstd finds in it about what it finds in real text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Any

import ormsgpack

SEED = 20261115
THREAD = "user-42:essay"
WIDE_KEY_COUNT = 200
WIDE_VALUE_BYTES = 5_000
SAVED_STATE_BYTES = 2_000

State = dict[str, Any]
Script = Callable[[int], State]
"""What the state is at step i: each contender has a script of its own, called once per step, in order."""

_COMMON = """
the of and to in a is that for it as was with be by on not he i this are or his from at which but have an had they you
were there one all we can her has been if more when will would who so no out up into than them then some
"""
_ONSETS = ("b", "br", "c", "ch", "cl", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "pr")
_MORE_ONSETS = ("qu", "r", "s", "sh", "sl", "sp", "st", "str", "t", "th", "tr", "v", "w", "wh", "y", "z", "")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "io", "oo", "ou")
_CODAS = (
    "",
    "",
    "",
    "l",
    "m",
    "n",
    "nd",
    "ng",
    "nt",
    "r",
    "rd",
    "rm",
    "s",
    "ss",
    "st",
    "t",
    "tion",
    "ment",
    "ly",
    "ed",
)
_TOOLS = ("search_orders", "read_file", "run_query", "send_mail", "fetch_page", "list_tickets", "write_note", "plan")
_ROLES = (
    "planner",
    "executor",
    "executor",
    "reviewer",
)  # not chat roles: langgraph would turn those steps into messages
_VOCABULARY_SIZE = 4_000
_FIRST_STEP_AT = 1_794_700_000.0


def encoded(value: Any) -> bytes:
    """The value as plain msgpack: the size that "new bytes" are counted in."""
    return ormsgpack.packb(value)


def agent_steps(count: int, mean_bytes: int, seed: int = SEED) -> list[State]:
    """`count` steps whose encodings are `mean_bytes` long on average, a third of them much shorter or longer."""
    source = random.Random(f"{seed}:steps:{mean_bytes}")
    sizes = [mean_bytes * source.triangular(0.6, 1.4, 1.0) for _ in range(count)]
    correction = mean_bytes * count / sum(sizes) if count else 1.0
    return [_agent_step(source, index, round(size * correction)) for index, size in enumerate(sizes)]


def replaced_states(count: int, seed: int = SEED) -> list[State]:
    """W1 and W5: small states of about 2 KB, each wholly new."""
    source = random.Random(f"{seed}:replaced")
    return [_replaced_state(source, index) for index in range(count)]


def wide_values(count: int, seed: int = SEED) -> list[str]:
    """W3: texts of 5 KB."""
    source = random.Random(f"{seed}:wide")
    return [_text(source, WIDE_VALUE_BYTES) for _ in range(count)]


def growing(steps: list[State]) -> Script:
    """W2: a conversation that gains one step per save."""
    state = empty_conversation()

    def state_at(index: int) -> State:
        state["steps"].append(steps[index])
        return state

    return state_at


def replacing(states: list[State]) -> Script:
    """W1: another state each time."""
    return lambda index: states[index % len(states)]


def widening(values: list[str]) -> Script:
    """W3: two hundred keys, of which one changes per save; the first save holds them all."""
    state: State = {f"document_{key:03d}": values[key] for key in range(WIDE_KEY_COUNT)}

    def state_at(index: int) -> State:
        if index:
            state[f"document_{index % WIDE_KEY_COUNT:03d}"] = values[(WIDE_KEY_COUNT + index) % len(values)]
        return state

    return state_at


def empty_conversation() -> State:
    return {"goal": "answer the customer and close the ticket", "steps": []}


def _agent_step(source: random.Random, index: int, size: int) -> State:
    step: State = {
        "index": index,
        "role": source.choice(_ROLES),
        "tool": source.choice(_TOOLS),
        "arguments": {
            "query": _text(source, 40),
            "limit": source.choice((5, 10, 20)),
            "order": _identifier(source, 10),
        },
        "content": "",
        "id": f"call_{_identifier(source, 20)}",
        "at": round(_FIRST_STEP_AT + index * 2.5 + source.random(), 6),
    }
    step["content"] = _text(source, max(40, size - len(encoded(step)) - 2))
    return step


def _replaced_state(source: random.Random, index: int) -> State:
    state: State = {"turn": index, "draft": "", "notes": [_text(source, 200) for _ in range(3)]}
    state["id"] = _identifier(source, 20)
    state["draft"] = _text(source, SAVED_STATE_BYTES - len(encoded(state)) - 2)
    return state


def _identifier(source: random.Random, length: int) -> str:
    return f"{source.getrandbits(4 * length):0{length}x}"


def _text(source: random.Random, length: int) -> str:
    """Sentences, cut at `length` characters."""
    words, weights = _vocabulary()
    drawn = source.choices(words, cum_weights=weights, k=length // 3 + 8)
    sentences: list[str] = []
    while drawn:
        sentence_length = source.randint(5, 18)
        sentences.append(" ".join(drawn[:sentence_length]).capitalize() + source.choice((".", ".", ".", "?", ";")))
        drawn = drawn[sentence_length:]
    return " ".join(sentences)[:length]


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """The words, the commonest first, and their cumulative Zipf weights."""
    source = random.Random(f"{SEED}:vocabulary")
    words = dict.fromkeys(_COMMON.split())
    while len(words) < _VOCABULARY_SIZE:
        words[_word(source)] = None
    return list(words), list(accumulate(1 / (rank + 2.7) for rank in range(_VOCABULARY_SIZE)))


def _word(source: random.Random) -> str:
    syllables = source.choice((1, 2, 2, 2, 3, 3))
    onsets = _ONSETS + _MORE_ONSETS
    parts = (source.choice(onsets) + source.choice(_VOWELS) for _ in range(syllables))
    return "".join(parts) + source.choice(_CODAS)
