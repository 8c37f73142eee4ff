"""How a run stops to wait: a private BaseException, so that no `except Exception` of a user can swallow it."""


class Suspension(BaseException):
    """The run waits for answers, or for a moment. Sticky: every later call on the run raises it again."""

    def __init__(self) -> None:
        super().__init__("the run waits; it goes on when it is run again")
