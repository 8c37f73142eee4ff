"""A session as typical programs have it, blocking: typed strictly, and run."""

from collections.abc import Iterator

import holdfast.sync as holdfast
from holdfast.sync import ModelPricing, Orchestrator, SQLiteStore, UsageSnapshot


def call_model(prompt: str) -> str:
    return f"a text about {prompt}"


def stream_model(prompt: str) -> Iterator[str]:
    yield from call_model(prompt).split()


def used(text: str) -> UsageSnapshot:
    return UsageSnapshot(input_tokens=20, output_tokens=len(text.split()))


def main() -> None:
    with SQLiteStore("talks.db") as store:
        orchestrator = Orchestrator(
            role="writer",
            phase="draft",
            store=store,
            budget_usd=1,
            max_turns=20,
            pricing={"model-a": ModelPricing(input_per_million=3, output_per_million=15)},
        )
        with orchestrator.session(thread_id="user-42:essay", labels={"user": "42"}) as session:
            draft, usage = session.run_turn(
                lambda: call_model("kelp"), model="model-a", usage=used, idempotency_key="draft", fingerprint="kelp"
            )
            words: list[str] = draft.split()
            tokens: int = usage.tokens
            session.hand_over("editor", "review")
            result = session.run_turn(lambda: session.step("count", len, words), model="model-a", timeout=60)
            count: int = result.value
            chunks = session.run_turn_stream(
                lambda: stream_model("rock"), model="model-a", usage=lambda chunks: used(" ".join(chunks))
            )
            text: str = " ".join(chunks)
            keys: list[str | None] = [turn.idempotency_key for turn in session.turns]
            cost: float = session.cost_usd
        summary: holdfast.SessionSummary = orchestrator.summary("user-42:essay")
        assert (count, text, keys, summary.turn_count) == (4, "a text about rock", ["draft", None, None], 3)
        assert tokens == 24
        assert cost == summary.cost_usd > 0


main()
