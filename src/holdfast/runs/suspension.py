"""How a run stops to wait: a private BaseException, so that no `except Exception` of a user can swallow it."""


class Suspension(BaseException):
    """The run waits for answers, or for a moment. Sticky: every later call on the run raises it again."""

    def __init__(self, wake_at: int = 0) -> None:
        super().__init__("the run waits; it goes on when it is run again")
        self.wake_at = wake_at
        """When to go on without an answer, in microseconds since 1970; 0 for never."""
