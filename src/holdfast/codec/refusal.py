"""How the parts of the codec tell each other that a value cannot be stored."""


class Refused(Exception):
    """A value that cannot be stored, and why. `step` leads from the value to the part that is at fault."""

    def __init__(self, reason: str, *, step: str = "") -> None:
        super().__init__(reason)
        self.step = step
