"""Threads in a PostgreSQL database, over psycopg: a swap is one statement, and one round trip."""

from holdfast.stores.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
