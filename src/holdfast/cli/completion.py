"""Shell completion: the script that a shell needs."""

import click

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.session import Session

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

    from holdfast.cli.group import COMPLETING, main
    from holdfast.cli.shells import use_own_scripts

    use_own_scripts()
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  click knows the shells of the choice above
    script = kind(main, {}, "holdfast", COMPLETING).source()
    return Answer({"shell": shell, "script": script, "use": RECIPES[shell]}, lambda _: [script])
