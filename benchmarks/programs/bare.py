"""The limit: a new interpreter with sqlite3 that reads as many rows and inserts one."""

import sqlite3

from told import Clock, main, result_of


def opened(directory: str) -> sqlite3.Connection:
    """A database that survives power loss."""
    connection = sqlite3.connect(f"{directory}/bare.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS steps (id INTEGER PRIMARY KEY, result TEXT)")
    return connection


def prepare(directory: str, count: int) -> None:
    """All rows."""
    with opened(directory) as connection:
        connection.executemany("INSERT INTO steps (result) VALUES (?)", [(str(result_of(i)),) for i in range(count)])


def resume(directory: str, _count: int) -> None:
    """Read them, insert one."""
    clock = Clock()
    with opened(directory) as connection:
        clock.enter()
        done = len(connection.execute("SELECT result FROM steps").fetchall())
        clock.replay_ends()
        connection.execute("INSERT INTO steps (result) VALUES (?)", (str(result_of(done)),))
        connection.commit()
        clock.tell()


if __name__ == "__main__":
    main(prepare, resume)
