"""`holdfast doctor`: the examinations in their order, and the report."""

from collections.abc import Iterator
from textwrap import wrap

import click

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.examinations import EXAMINATIONS, Finding, Patient, Verdict
from holdfast.cli.exits import EXIT_ERROR
from holdfast.cli.screen import COLOURS, Screen
from holdfast.cli.session import Session, refuse_missing
from holdfast.cli.text import printable
from holdfast.records.errors import HoldfastError


@command("doctor")
@click.option("--no-probe", is_flag=True, help="Write nothing: leave out the probes of claims and of comparing writes.")
def doctor(session: Session, no_probe: bool) -> Answer:
    """Examine a store: can it be reached, what does it promise, do claims work, is anything left undone.

    Exit code 1 if anything failed. The probes write to a thread of their own, in the namespace `holdfast-doctor`, and
    remove it again.
    """
    refuse_missing(session.url)
    findings = list(_examine(Patient(session, probe=not no_probe)))
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    document = {"ok": not failed, "findings": findings}
    return Answer(document, lambda screen: _lines(screen, findings), EXIT_ERROR if failed else 0)


def _examine(patient: Patient) -> Iterator[Finding]:
    """All findings; what cannot be reached need not be examined further."""
    for name, examine in EXAMINATIONS:
        try:
            yield from (Finding(name, *rest) for rest in examine(patient))
        except HoldfastError as error:
            yield Finding(name, Verdict.FAIL, printable(str(error)), "")
            if name == "reachable":
                return


def _lines(screen: Screen, findings: list[Finding]) -> Iterator[str]:
    width = max(len(finding.name) for finding in findings)
    indent = " " * (width + 8)
    for finding in findings:
        first, *others = wrap(printable(finding.found), screen.width - len(indent))
        yield f"{screen.style(finding.verdict.ljust(4), fg=COLOURS[finding.verdict])}  {finding.name:<{width}}  {first}"
        for line in [*others, *wrap(f"→ {finding.advice}" if finding.advice else "", screen.width - len(indent))]:
            yield indent + line
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    yield ""
    yield ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
