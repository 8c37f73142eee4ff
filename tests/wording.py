"""The words that our prose does not use, each with what to say instead. `make lint` runs this over all text we ship.

Run by hand: `python -m tests.wording [PATH ...]`. An exception is a file and a phrase, with its reason.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXTS = ("src/**/*.py", "src/**/*.sql", "src/**/*.lua", "docs/**/*.md", "docs/**/*.py", "examples/**/*.py", "*.md")
INSTEAD = {
    r"go(es|ing|ne)? on with": "resume",
    r"continu\w+ anew|anew": "again",
    r"(giv(e|es|en|ing)|gave) back|let(s|ting)? go": "release",
    r"whoever( comes later)?|comes? next": "the next process; take over",
    r"(is|are|be|been|being|was|were) told": "notify, report, get",
    r"overtak(e|es|en|ing)|overtook": "conflict",
    r"all the time": "repeatedly",
    r"nobody knows|what became of it": "unknown outcome",
    r"from before": "recorded, replayed",
    r"so (many|much|long)(?! as\b)": "a count, 'up to n'",
    r"borne in|bears? (it|them)\b": "retry",
    r"stands? so": "in this status",
    r"of one's own": "own",
    r"how-manieth": "the number of",
    r"(somebody|someone|another|others?) (was|were) faster": "a conflicting write",
}
EXCEPTIONS: dict[tuple[str, str], str] = {}
"""The phrases that a file may use, by its name and the phrase in lower case, each with its reason."""


def found_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the phrase and what to say instead, for each phrase that we do not use; also across lines."""
    for pattern, instead in INSTEAD.items():
        for match in re.finditer(rf"\b({pattern})\b".replace(" ", r"[\s#]+"), text, re.IGNORECASE):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead


def main(paths: list[Path]) -> int:
    """Print what was found; 1 if it was anything."""
    problems = 0
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        for line, phrase, instead in sorted(found_in(path.read_text(encoding="utf-8"))):
            if (name, phrase.lower()) not in EXCEPTIONS:
                sys.stdout.write(f"{name}:{line}: {phrase!r}; say: {instead}\n")
                problems += 1
    return min(problems, 1)


if __name__ == "__main__":
    given = [Path(each).resolve() for each in sys.argv[1:]]
    sys.exit(main(given or [path for texts in TEXTS for path in sorted(ROOT.glob(texts))]))
