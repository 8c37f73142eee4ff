"""Every command: where it is, and its one line of help. Nothing is imported until a command is called."""

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command: `module:attribute` within this package, and what `holdfast --help` says about it."""

    target: str
    help: str


SECTIONS: Final[dict[str, dict[str, Entry]]] = {
    "Try": {
        "demo": Entry("demo:demo", "Watch an agent die and go on, in seconds."),
        "chaos": Entry("chaos:chaos", "Kill your own function at every effect, and compare."),
    },
    "Look": {
        "threads": Entry("threads:threads", "List threads, the newest first."),
        "show": Entry("threads:show", "Show a thread: how it stands, and its checkpoints."),
        "result": Entry("result:result", "Print the result of a thread, its error, or what it waits for."),
        "steps": Entry("states:steps", "List the steps a thread has recorded."),
        "state": Entry("states:state", "Print the state of a checkpoint."),
        "diff": Entry("states:diff", "Say what changed between two checkpoints."),
        "tail": Entry("tail:tail", "Follow what is written, in all threads."),
        "stats": Entry("threads:stats", "Say how much the store holds."),
    },
    "Answer": {
        "requests": Entry("requests:requests", "List what threads ask."),
        "answer": Entry("requests:answer", "Answer a request."),
        "approve": Entry("requests:approve", "Answer a request with `approve`."),
        "reject": Entry("requests:reject", "Answer a request with `reject`."),
    },
    "Go on": {
        "resume": Entry("runs:resume", "Resume a thread."),
        "recover": Entry("recover:recover", "Resume every thread that can be."),
        "retry": Entry("settling:retry", "Put failed threads back, for `recover` to resume."),
        "settle": Entry("settling:settle", "Say how a step in doubt ended."),
        "fork": Entry("states:fork", "Begin a new thread from a checkpoint."),
        "cancel": Entry("runs:cancel", "End a thread."),
    },
    "Keep": {
        "verify": Entry("upkeep:verify", "Read and check everything that is stored."),
        "doctor": Entry("doctor:doctor", "Examine a store, and say what to do about it."),
        "gc": Entry("upkeep:gc", "Remove what need not be kept."),
        "export": Entry("transfer:export", "Write a thread to a file."),
        "import": Entry("transfer:import_", "Read a thread from a file."),
        "delete": Entry("upkeep:delete", "Remove a thread, or one checkpoint."),
        "revive": Entry("upkeep:revive", "Free the id of a deleted thread."),
        "backup": Entry("transfer:backup", "Copy the whole store into a new SQLite file."),
        "copy": Entry("transfer:copy", "Copy all threads to another store."),
    },
    "Shell": {
        "completion": Entry("completion:completion", "Print the script for shell completion."),
    },
}
"""The commands by the section of the help page they stand in."""

COMMANDS: Final[dict[str, Entry]] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
