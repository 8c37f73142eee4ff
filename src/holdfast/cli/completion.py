"""Shell completion: print the script of click that a shell needs."""

import click

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.session import Session

VARIABLE = "_HOLDFAST_COMPLETE"
"""Set by the scripts of click: it asks for completions where a command would run."""
RECIPES = {
    "bash": 'eval "$(holdfast completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)"   # in ~/.zshrc',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


@command("completion")
@click.argument("shell", type=click.Choice(list(RECIPES)))
def completion(_session: Session, shell: str) -> Answer:
    """Print the script that makes a shell complete commands, options and ids.

    In bash: eval "$(holdfast completion bash)"
    """
    from click.shell_completion import get_completion_class

    from holdfast.cli.group import main

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  click knows the shells of the choice above
    script = kind(main, {}, "holdfast", VARIABLE).source()
    return Answer({"shell": shell, "script": script, "use": RECIPES[shell]}, lambda _: [script])
