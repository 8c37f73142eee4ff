-- These statements run on connections whose search_path we do not control: those of a user's pool, or behind a pooler. So
-- every function, operator and type is named with its schema; integer and bigint are keywords, and always pg_catalog's. An
-- unqualified name could call what another role put into a schema of the search_path, with the rights of our role.

-- name: read_version
SELECT version, id FROM {schema}.store

-- name: set_search_path
-- For the rest of a migration: names that its scripts do not qualify are pg_catalog's.
SET LOCAL search_path = pg_catalog, pg_temp

-- name: lock
-- Held until the transaction ends, not the session, so that it works through a pooler too.
SELECT pg_catalog.pg_advisory_xact_lock($1)

-- name: has_schema
-- CREATE SCHEMA IF NOT EXISTS would need rights on the database even if the schema exists.
SELECT pg_catalog.to_regnamespace($1) IS NOT NULL

-- name: create_schema
CREATE SCHEMA {schema}

-- name: create_store
CREATE TABLE IF NOT EXISTS {schema}.store (version integer NOT NULL, id bytea NOT NULL)

-- name: insert_version
INSERT INTO {schema}.store (version, id) VALUES (0, $1)

-- name: update_version
UPDATE {schema}.store SET version = $1

-- name: read_settings
SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('synchronous_commit'),
       pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'),
       pg_catalog.current_setting('synchronous_standby_names'),
       (SELECT pg_catalog.bool_and(c.relpersistence OPERATOR(pg_catalog.=) 'p') FROM pg_catalog.pg_class AS c
         WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace($1)::pg_catalog.oid
           AND c.relname OPERATOR(pg_catalog.=) ANY('{threads,rows,blobs,posts,agenda,buckets}'::pg_catalog.name[]))

-- name: swap_row
SELECT {schema}.swap_row($1, $2, $3, $4, $5, $6, $7::pg_catalog.bytea[], $8::integer, $9::integer, $10, $11, $12)

-- name: swap
SELECT {schema}.swap($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                     $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36)

-- name: is_store
-- A user's connection must lead to this very store.
SELECT 1 FROM {schema}.store WHERE id OPERATOR(pg_catalog.=) $1

-- name: read_heads
-- Rows without a thread are damage: threads are never removed.
SELECT k.key, t.thread, t.head,
       t.key IS NULL AND EXISTS (SELECT 1 FROM {schema}.rows AS r WHERE r.key OPERATOR(pg_catalog.=) k.key)
  FROM pg_catalog.unnest($1::pg_catalog.bytea[]) AS k(key)
  LEFT JOIN {schema}.threads AS t ON t.key OPERATOR(pg_catalog.=) k.key

-- name: read_rows
-- Read all rows that a restore of one row needs, in one range.
SELECT seq, base, digest, header, body FROM {schema}.rows
 WHERE key OPERATOR(pg_catalog.=) $1 AND seq OPERATOR(pg_catalog.<=) $2
   AND seq OPERATOR(pg_catalog.>=) (SELECT base FROM {schema}.rows
                                     WHERE key OPERATOR(pg_catalog.=) $1 AND seq OPERATOR(pg_catalog.=) $2)
 ORDER BY seq

-- name: read_index
SELECT seq, base, digest, header, ''::pg_catalog.bytea FROM {schema}.rows
 WHERE key OPERATOR(pg_catalog.=) $1 AND seq OPERATOR(pg_catalog.<) $2 ORDER BY seq DESC LIMIT $3

-- name: read_blobs
SELECT blob, data FROM {schema}.blobs
 WHERE key OPERATOR(pg_catalog.=) $1 AND blob OPERATOR(pg_catalog.=) ANY($2::pg_catalog.bytea[])

-- name: read_threads
SELECT born, key, thread, head, status, labels FROM {schema}.threads WHERE

-- name: count_threads
SELECT status, pg_catalog.count(*) FROM {schema}.threads
 WHERE substring(thread FROM 1 FOR $1::integer) OPERATOR(pg_catalog.=) $2 AND status OPERATOR(pg_catalog.<>) ''
 GROUP BY status

-- name: read_all_threads
SELECT born, key, thread, head, status, labels FROM {schema}.threads
 WHERE born OPERATOR(pg_catalog.<) $1 ORDER BY born DESC LIMIT $2

-- name: read_orphan
SELECT o.key FROM (SELECT r.key FROM {schema}.rows AS r UNION ALL SELECT a.key FROM {schema}.agenda AS a) AS o
 WHERE NOT EXISTS (SELECT 1 FROM {schema}.threads AS t WHERE t.key OPERATOR(pg_catalog.=) o.key) LIMIT 1

-- name: bury
-- Replace a lost head by a tombstone: one that is empty, has another thread's name, or is missing while there are rows.
-- Returns nothing if the head is sound. Waits for the disk if that is demanded and the session would not.
WITH replaced AS (
    UPDATE {schema}.threads SET thread = $2, head = $3, status = '', labels = '{}'
     WHERE key OPERATOR(pg_catalog.=) $1 AND (thread OPERATOR(pg_catalog.<>) $2 OR head OPERATOR(pg_catalog.=) '')
    RETURNING key
), made AS (
    INSERT INTO {schema}.threads (key, thread, head, status, labels)
    SELECT $1::pg_catalog.bytea, $2::pg_catalog.bytea, $3::pg_catalog.bytea, '', '{}'
     WHERE NOT EXISTS (SELECT 1 FROM {schema}.threads AS t WHERE t.key OPERATOR(pg_catalog.=) $1)
        ON CONFLICT (key) DO NOTHING
    RETURNING key
), buried AS (
    SELECT key FROM replaced UNION ALL SELECT key FROM made
), without_rows AS (
    DELETE FROM {schema}.rows AS r USING buried AS b WHERE r.key OPERATOR(pg_catalog.=) b.key
), without_blobs AS (
    DELETE FROM {schema}.blobs AS r USING buried AS b WHERE r.key OPERATOR(pg_catalog.=) b.key
), without_posts AS (
    DELETE FROM {schema}.posts AS r USING buried AS b WHERE r.key OPERATOR(pg_catalog.=) b.key
), without_entry AS (
    DELETE FROM {schema}.agenda AS r USING buried AS b WHERE r.key OPERATOR(pg_catalog.=) b.key
)
SELECT CASE WHEN $4 AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off'
            THEN pg_catalog.set_config('synchronous_commit', 'on', true) END
  FROM buried

-- name: find_misplaced
-- Every entry whose key is not the hash of its thread. Reads the whole table.
SELECT key, thread FROM {schema}.threads
 WHERE key OPERATOR(pg_catalog.<>) substring(pg_catalog.sha256(thread) FROM 1 FOR $1::integer)

-- name: drop_misplaced
WITH gone AS (
    DELETE FROM {schema}.threads WHERE key OPERATOR(pg_catalog.=) $1 AND thread OPERATOR(pg_catalog.=) $2 RETURNING key
), without_rows AS (
    DELETE FROM {schema}.rows AS r USING gone AS g WHERE r.key OPERATOR(pg_catalog.=) g.key
), without_blobs AS (
    DELETE FROM {schema}.blobs AS r USING gone AS g WHERE r.key OPERATOR(pg_catalog.=) g.key
), without_posts AS (
    DELETE FROM {schema}.posts AS r USING gone AS g WHERE r.key OPERATOR(pg_catalog.=) g.key
), without_entry AS (
    DELETE FROM {schema}.agenda AS r USING gone AS g WHERE r.key OPERATOR(pg_catalog.=) g.key
)
SELECT key FROM gone

-- name: insert_post
INSERT INTO {schema}.posts (key, name, value) VALUES ($1, $2, $3) ON CONFLICT (key, name) DO NOTHING RETURNING 1

-- name: read_posts
SELECT key, name, value FROM {schema}.posts WHERE key OPERATOR(pg_catalog.=) ANY($1::pg_catalog.bytea[]) ORDER BY name

-- name: take
SELECT * FROM {schema}.take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: lock_head
-- No swap changes the head, and with it the entry, until the transaction ends.
SELECT head FROM {schema}.threads
 WHERE key OPERATOR(pg_catalog.=) $1 AND thread OPERATOR(pg_catalog.=) $2 FOR UPDATE

-- name: move
SELECT {schema}.move($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: measure_queue
SELECT pg_catalog.count(*) FILTER (WHERE NOT a.held AND a.due OPERATOR(pg_catalog.<=) $2),
       pg_catalog.count(*) FILTER (WHERE NOT a.held AND a.due OPERATOR(pg_catalog.>) $2
                                     AND a.due OPERATOR(pg_catalog.<) 1152921504606846976),
       pg_catalog.count(*) FILTER (WHERE a.held),
       pg_catalog.count(*) FILTER (WHERE NOT a.held AND a.due OPERATOR(pg_catalog.>=) 1152921504606846976),
       COALESCE(pg_catalog.min(a.due) FILTER (WHERE NOT a.held AND a.due OPERATOR(pg_catalog.<=) $2), 0)
  FROM {schema}.agenda AS a WHERE a.place OPERATOR(pg_catalog.=) $1

-- name: lock_entry
SELECT place, route, priority, lane, held, due FROM {schema}.agenda WHERE key OPERATOR(pg_catalog.=) $1 FOR UPDATE

-- name: postpone
UPDATE {schema}.agenda SET held = false, due = $2 WHERE key OPERATOR(pg_catalog.=) ANY($1::pg_catalog.bytea[]) RETURNING 1

-- name: read_entries
SELECT t.thread, a.place, a.route, a.priority, a.lane, a.held, a.due
  FROM {schema}.agenda AS a JOIN {schema}.threads AS t ON t.key OPERATOR(pg_catalog.=) a.key
 WHERE substring(t.thread FROM 1 FOR $1::integer) OPERATOR(pg_catalog.=) $2

-- name: spend
SELECT {schema}.spend($1, $2, $3)

-- name: drop_paid_buckets
-- A bucket that is paid off is as good as none. One that is just being charged is skipped.
DELETE FROM {schema}.buckets AS b
 WHERE b.bucket OPERATOR(pg_catalog.=) ANY(ARRAY(
           SELECT p.bucket FROM {schema}.buckets AS p
            WHERE p.paid_off OPERATOR(pg_catalog.<) {schema}.moment() FOR UPDATE SKIP LOCKED))
RETURNING 1

-- name: read_clock
SELECT {schema}.moment()

-- name: notify
SELECT pg_catalog.pg_notify($1, '')
