"""The error inside of the codec for a value that cannot be stored."""


class Refused(Exception):
    """A value cannot be stored. `step` leads from the value to the part at fault."""

    def __init__(self, reason: str, *, step: str = "") -> None:
        super().__init__(reason)
        self.step = step
