-- The second schema: no function looks up a name in the caller's search_path. Through that path, another role could define
-- a function that fits the arguments better than PostgreSQL's own, such as cardinality(bytea[]), and it would run with
-- the rights of the role that saves. Our own names are qualified in the functions already.

ALTER FUNCTION {schema}.replace_heads SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION {schema}.add SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION {schema}.remove SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION {schema}.swap SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION {schema}.swap_and_remove SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION {schema}.swap_row SET search_path = pg_catalog, pg_temp;
