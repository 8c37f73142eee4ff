"""Many processes on one store: writers that are killed at random, readers, a pruner; nothing may be lost.

Run by `make soak`, or `python -m tests.soak --kills 100 --store sqlite`. Every writer appends numbered items to a
thread of its own and to one they all share, and tells each acknowledged number through a pipe. At the end every
acknowledged item must be there, in order, once, and the store must verify.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import holdfast.sync as holdfast

WRITERS = 4


def write(url: str, name: str, start: int) -> None:
    """Append for ever, and tell what was acknowledged."""
    store = holdfast.open(url)
    for number in range(start, 1 << 40):
        store.append(name, "items", number)
        store.append("shared", "items", [name, number])
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def prune(url: str) -> None:
    """Prune and verify for ever: a damaged record ends it with an error."""
    store = holdfast.open(url)
    while True:
        store.prune(holdfast.Retention(keep_last=20))
        report = store.verify()
        if not report.ok:
            raise SystemExit(f"damaged: {report.problems}")


class Writer(NamedTuple):
    """A writing process and where its acknowledgements go."""

    process: subprocess.Popen[bytes]
    log: Path


def start_writer(url: str, name: str, start: int, log: Path) -> Writer:
    """Begin a writer that tells of what it acknowledged in a file of its own."""
    with log.open("ab") as acknowledged:
        command = [sys.executable, "-m", "tests.soak", "--write", name, "--from", str(start), "--store", url]
        return Writer(subprocess.Popen(command, stdout=acknowledged), log)


def acknowledged(log: Path) -> list[int]:
    """Every number a writer told, over all its lives; a line cut short by a kill does not count."""
    lines = log.read_bytes().split(b"\n") if log.exists() else []
    return [int(line) for line in lines[:-1]]


def check(url: str, logs: dict[str, Path]) -> dict[str, int]:
    """Compare what was acknowledged with what is stored; raises if anything is missing or out of order."""
    store = holdfast.open(url)
    latest = store.latest("shared")
    shared = latest.state["items"] if latest else []
    total = 0
    for name, log in logs.items():
        told = acknowledged(log)
        own = store.latest(name)
        stored = own.state["items"] if own else []
        seen = [number for writer, number in shared if writer == name]
        for numbers, where in ((stored, name), (seen, "shared")):
            missing = set(told) - set(numbers)
            if missing or numbers != sorted(set(numbers)):
                raise SystemExit(
                    f"{where}: {len(missing)} acknowledged items of {name} are missing, or some are doubled"
                )
        total += len(told)
    report = store.verify()
    if not report.ok:
        raise SystemExit(f"damaged: {report.problems[:3]}")
    store.close()
    return {"acknowledged": total, "checked": report.checked}


def soak(url: str, scratch: Path, kills: int, seed: int) -> dict[str, int]:
    """Keep writers and a pruner running, killing one writer at random every so often; leave no process behind."""
    logs = {f"writer-{number}": scratch / f"writer-{number}.log" for number in range(WRITERS)}
    writers = {name: start_writer(url, name, 0, log) for name, log in logs.items()}
    pruner = subprocess.Popen([sys.executable, "-m", "tests.soak", "--prune", "--store", url])
    try:
        torment(url, logs, writers, random.Random(seed), kills)
        if pruner.poll() is not None:
            raise SystemExit(f"the pruner ended by itself with {pruner.returncode}")
    finally:
        for process in (*(writer.process for writer in writers.values()), pruner):
            process.kill()
            process.wait()
    return {"kills": kills, **check(url, logs)}


def torment(url: str, logs: dict[str, Path], writers: dict[str, Writer], chance: random.Random, kills: int) -> None:
    """Kill a writer at a random moment and start it again where its thread stopped, so many times."""
    for _ in range(kills):
        name = chance.choice(list(logs))
        try:
            code = writers[name].process.wait(timeout=chance.uniform(0.05, 0.6))
            raise SystemExit(f"{name} ended by itself with {code}")
        except subprocess.TimeoutExpired:
            writers[name].process.kill()
            writers[name].process.wait()
        writers[name] = start_writer(url, name, following(url, name), logs[name])


def following(url: str, name: str) -> int:
    """The number after the last one stored."""
    store = holdfast.open(url)
    latest = store.latest(name)
    store.close()
    return latest.state["items"][-1] + 1 if latest else 0


def main() -> None:
    """Parse the command line and run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--store", default="sqlite", help="sqlite or file; for the parts, a URL")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--write")
    parser.add_argument("--from", dest="start", type=int, default=0)
    parser.add_argument("--prune", action="store_true")
    options = parser.parse_args()
    if options.write:
        write(options.store, options.write, options.start)
    elif options.prune:
        prune(options.store)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            url = f"{options.store}:{scratch}/store"
            result = soak(url, Path(scratch), options.kills, options.seed)
        print(json.dumps({"seed": options.seed, **result}))  # noqa: T201


if __name__ == "__main__":
    main()
