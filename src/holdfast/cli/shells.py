"""Completion in bash, which breaks words at `@`, `:` and `=`: the line is read whole, and the answer cut to fit.

readline replaces only what stands behind the last such character, so that much of each offer is left away.
"""

import os
import shlex
from contextlib import suppress

from click.shell_completion import BashComplete, add_completion_class

SCRIPT = """\
%(complete_func)s() {
    local line response kind value word head
    line="${COMP_LINE:0:COMP_POINT}"
    word="${line##*[[:space:]]}"
    head="${word%%"${word##*["$COMP_WORDBREAKS"]}"}"
    response=$(HOLDFAST_LINE="$line" %(complete_var)s=bash_complete "$1" 2>/dev/null)
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case "$kind" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$head"}") ;;
        esac
    done <<< "$response"
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """The words of the line up to the cursor, as a shell would split it; the last one is yet to be finished."""

    source_template = SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """All words but the first and the last, and the last."""
        line = os.environ.get("HOLDFAST_LINE", "")
        words = _split(line)
        if not line or line[-1].isspace():
            words.append("")
        return words[1:-1], words[-1]


def _split(line: str) -> list[str]:
    """The words, also if a quote is still open."""
    for closing in ("", "'", '"', " "):
        with suppress(ValueError):
            return shlex.split(line + closing)
    return line.split()


def use_own_scripts() -> None:
    """Have click know of it."""
    add_completion_class(Bash)
