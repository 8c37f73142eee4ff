-- name: read_version
SELECT version, id FROM {schema}.store

-- name: lock
-- Held until the transaction ends: it needs no session of its own, so that it works through a pooler too.
SELECT pg_advisory_xact_lock($1)

-- name: create_store
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.store (version integer NOT NULL, id bytea NOT NULL)

-- name: insert_version
INSERT INTO {schema}.store (version, id) VALUES (0, $1)

-- name: update_version
UPDATE {schema}.store SET version = $1

-- name: read_settings
SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
       (SELECT bool_and(relpersistence = 'p') FROM pg_class
         WHERE relnamespace = to_regnamespace($1) AND relname IN ('threads', 'rows', 'blobs', 'posts'))

-- name: swap_row
SELECT {schema}.swap_row($1, $2, $3, $4, $5, $6, $7::bytea[], $8::integer, $9::integer, $10, $11, $12)

-- name: swap
SELECT {schema}.swap($1, $2, $3, $4, $5, $6, $7::bytea[], $8::integer[],
                     $9::integer[], $10::integer[], $11::integer[], $12::bytea[], $13::bytea[], $14::bytea[],
                     $15::integer[], $16::bytea[], $17::bytea[])

-- name: swap_and_remove
SELECT {schema}.swap_and_remove($1, $2, $3, $4, $5, $6, $7::bytea[], $8::integer[],
                                $9::integer[], $10::integer[], $11::integer[], $12::bytea[], $13::bytea[], $14::bytea[],
                                $15::integer[], $16::bytea[], $17::bytea[],
                                $18::integer[], $19::integer[], $20::bigint[], $21::bigint[],
                                $22::integer[], $23::bytea[], $24::integer[], $25::bytea[])

-- name: is_store
-- A connection that a user brings must lead to this very store.
SELECT 1 FROM {schema}.store WHERE id = $1

-- name: read_heads
-- A thread that is not there and has rows is damage, since threads are never removed.
SELECT k.key, t.thread, t.head, t.key IS NULL AND EXISTS (SELECT 1 FROM {schema}.rows AS r WHERE r.key = k.key)
  FROM unnest($1::bytea[]) AS k(key) LEFT JOIN {schema}.threads AS t ON t.key = k.key

-- name: read_rows
-- Everything a restore of one row reads, in one range.
SELECT seq, base, digest, header, body FROM {schema}.rows
 WHERE key = $1 AND seq BETWEEN (SELECT base FROM {schema}.rows WHERE key = $1 AND seq = $2) AND $2 ORDER BY seq

-- name: read_index
SELECT seq, base, digest, header, ''::bytea FROM {schema}.rows WHERE key = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3

-- name: read_blobs
SELECT blob, data FROM {schema}.blobs WHERE key = $1 AND blob = ANY($2::bytea[])

-- name: read_threads
SELECT born, key, thread, head, status, labels FROM {schema}.threads WHERE

-- name: count_threads
SELECT status, count(*) FROM {schema}.threads
 WHERE substring(thread FROM 1 FOR $1::integer) = $2 AND status <> '' GROUP BY status

-- name: read_all_threads
SELECT born, key, thread, head, status, labels FROM {schema}.threads WHERE born < $1 ORDER BY born DESC LIMIT $2

-- name: read_orphan
SELECT r.key FROM {schema}.rows AS r WHERE NOT EXISTS (SELECT 1 FROM {schema}.threads AS t WHERE t.key = r.key) LIMIT 1

-- name: insert_post
INSERT INTO {schema}.posts (key, name, value) VALUES ($1, $2, $3) ON CONFLICT (key, name) DO NOTHING RETURNING 1

-- name: read_posts
SELECT key, name, value FROM {schema}.posts WHERE key = ANY($1::bytea[]) ORDER BY name
