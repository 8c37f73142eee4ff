"""A database in which another role has put its own names into the schema `public`, to have a store call them."""

from typing import Any

import psycopg

from servers.postgres import new_schema, shared_server

TRAP = """
CREATE TABLE public.caught (who name, what text);
GRANT INSERT ON public.caught TO PUBLIC;
CREATE FUNCTION public.catch(what text) RETURNS void LANGUAGE sql
    AS 'INSERT INTO public.caught VALUES (current_user, what)';
"""

BETTER_MATCHES = """
CREATE FUNCTION public.cardinality(bytea[]) RETURNS integer LANGUAGE sql
    AS $$ SELECT public.catch('cardinality'); SELECT pg_catalog.cardinality($1) $$;
CREATE FUNCTION public.cardinality(integer[]) RETURNS integer LANGUAGE sql
    AS $$ SELECT public.catch('cardinality'); SELECT pg_catalog.cardinality($1) $$;
CREATE FUNCTION public.unnest(bytea[]) RETURNS SETOF bytea LANGUAGE sql
    AS $$ SELECT public.catch('unnest'); SELECT pg_catalog.unnest($1) $$;
CREATE FUNCTION public.overlaps(bytea[], bytea[]) RETURNS boolean LANGUAGE sql
    AS $$ SELECT public.catch('&&'); SELECT $1 OPERATOR(pg_catalog.&&) $2 $$;
CREATE OPERATOR public.&& (FUNCTION = public.overlaps, LEFTARG = bytea[], RIGHTARG = bytea[]);
CREATE FUNCTION public.is_namespace(oid, regnamespace) RETURNS boolean LANGUAGE sql
    AS $$ SELECT public.catch('oid = regnamespace'); SELECT $1 OPERATOR(pg_catalog.=) $2::oid $$;
CREATE OPERATOR public.= (FUNCTION = public.is_namespace, LEFTARG = oid, RIGHTARG = regnamespace);
"""
"""What fits the types of our arguments better than the polymorphic names of pg_catalog does: no search_path but one
without this schema keeps them from being called."""

SHADOWS = """
DO $do$
DECLARE
    used oid[] := ARRAY['bytea', 'text', 'int2', 'int4', 'int8', 'oid', 'name', '"char"', 'bool', 'bytea[]', 'text[]',
                        'int4[]', 'int8[]', 'regnamespace']::regtype[]::oid[];
    each record;
BEGIN
    FOR each IN
        SELECT o.oprname AS sign, o.oprleft::regtype AS l, o.oprright::regtype AS r, o.oprresult::regtype AS result
          FROM pg_operator AS o WHERE o.oprkind = 'b' AND o.oprleft = ANY(used) AND o.oprright = ANY(used)
         UNION
        SELECT o.oprname, a.oid::regtype, a.oid::regtype, 'bool' FROM pg_operator AS o, pg_type AS a
         WHERE o.oprleft = 'anyarray'::regtype AND o.oprright = 'anyarray'::regtype AND o.oprresult = 'bool'::regtype
           AND a.oid = ANY(used) AND a.typcategory = 'A'
    LOOP
        EXECUTE format('CREATE FUNCTION public.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS
                        $$ BEGIN RAISE EXCEPTION %L; END $$', 'sign' || each.sign, each.l, each.r, each.result,
                       'caught: ' || replace(each.sign, '%', '%%'));
        EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.%I, LEFTARG = %s, RIGHTARG = %s)',
                       each.sign, 'sign' || each.sign, each.l, each.r);
    END LOOP;
    FOR each IN
        SELECT DISTINCT p.proname AS name, oidvectortypes(p.proargtypes) AS arguments
          FROM pg_proc AS p WHERE p.prokind = 'f' AND p.pronamespace = 'pg_catalog'::regnamespace AND p.provariadic = 0
           AND (SELECT coalesce(bool_and(t = ANY(used)), true) FROM unnest(p.proargtypes::oid[]) AS t)
         UNION SELECT 'cardinality', 'bytea[]' UNION SELECT 'unnest', 'bytea[]' UNION SELECT 'count', ''
         UNION SELECT 'bool_and', 'boolean'
    LOOP
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS integer LANGUAGE plpgsql AS
                        $$ BEGIN RAISE EXCEPTION %L; END $$', each.name, each.arguments, 'caught: ' || each.name);
    END LOOP;
END $do$;
CREATE DOMAIN public.bytea AS pg_catalog.bytea CHECK (VALUE OPERATOR(public.=) VALUE);
CREATE DOMAIN public.text AS pg_catalog.text CHECK (VALUE OPERATOR(public.=) VALUE);
CREATE DOMAIN public.oid AS pg_catalog.oid CHECK (VALUE OPERATOR(public.=) VALUE);
CREATE DOMAIN public.name AS pg_catalog.name CHECK (VALUE OPERATOR(public.=) VALUE);
"""
"""Every function and operator on the types we use, and the types themselves: where the search_path has this schema
before pg_catalog, an unqualified name calls one of these, and they raise."""


class HostileDatabase:
    """A database with an application's role, and another role that may create what it likes in `public`."""

    def __init__(self, trap: str, search_path: str) -> None:
        self.name, server = new_schema(), shared_server()
        self.app, self.mallory = f"app_{self.name}", f"mallory_{self.name}"
        server.execute(f"CREATE DATABASE {self.name}")
        server.execute(f"CREATE ROLE {self.app} LOGIN; CREATE ROLE {self.mallory} LOGIN")
        server.execute(f"GRANT CREATE ON DATABASE {self.name} TO {self.app}")
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"GRANT CREATE ON SCHEMA public TO {self.mallory}".encode())
        with psycopg.connect(self.conninfo(self.mallory), autocommit=True) as connection:
            connection.execute(trap.encode())
        server.execute(f"ALTER ROLE {self.app} IN DATABASE {self.name} SET search_path = {search_path}")

    def conninfo(self, user: str | None = None, **parameters: Any) -> str:
        """What to connect with, as the application if no other role is named."""
        return shared_server().conninfo(dbname=self.name, user=user or self.app, **parameters)

    def caught(self) -> list[tuple[Any, ...]]:
        """Which of our statements called a name of the other role's, and with whose rights."""
        with psycopg.connect(self.conninfo("postgres")) as connection:
            return connection.execute("SELECT DISTINCT who, what FROM public.caught").fetchall()
