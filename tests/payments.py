"""A payment service for crash tests, in this process."""


class Outside:
    """A payment service that honours keys."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.payments: dict[str, int] = {}

    def pay(self, amount: int, idempotency_key: str) -> int:
        return self.payments.setdefault(idempotency_key, amount)

    def check(self) -> None:
        assert list(self.payments.values()) == [40]
