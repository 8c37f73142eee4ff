-- The third schema: the agenda, with an entry for each thread that a worker may have to look at. An entry follows from the
-- thread's head, and changes in the swap that changes it; appends and renewals of a lease do not touch it. `place` is the
-- namespace and the queue. Times are microseconds since 1970; 1152921504606846976 means: only an answer makes it due.

CREATE TABLE {schema}.agenda (
    key bytea PRIMARY KEY,
    place bytea NOT NULL,
    route bytea NOT NULL,
    priority smallint NOT NULL,
    lane bytea NOT NULL,
    held boolean NOT NULL,
    due bigint NOT NULL
);
CREATE INDEX agenda_by_due ON {schema}.agenda (place, held, priority, due) INCLUDE (route);
CREATE INDEX agenda_by_lane ON {schema}.agenda (place, priority, lane, due)
 WHERE NOT held AND due < 1152921504606846976;

-- A rate is one number: the time at which what was granted is paid off.
CREATE TABLE {schema}.buckets (bucket bytea PRIMARY KEY, paid_off bigint NOT NULL) WITH (fillfactor = 50);

-- The time of the store, by which entries are due.
CREATE FUNCTION {schema}.moment() RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RETURN extract(epoch FROM clock_timestamp()) * 1000000;
END $body$;

-- Replace the entries of threads whose heads were replaced, and delete those of `gone`.
CREATE FUNCTION {schema}.move(
    accepted bytea[], gone integer[],
    items integer[], places bytea[], routes bytea[], priorities integer[], lanes bytea[], held boolean[], dues bigint[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    item integer;
BEGIN
    FOREACH item IN ARRAY gone LOOP
        DELETE FROM {schema}.agenda AS a WHERE a.key = accepted[item];
    END LOOP;
    INSERT INTO {schema}.agenda AS a (key, place, route, priority, lane, held, due)
    SELECT accepted[n.item], n.place, n.route, n.priority, n.lane, n.held, n.due
      FROM unnest(items, places, routes, priorities, lanes, held, dues)
           AS n(item, place, route, priority, lane, held, due)
     WHERE accepted[n.item] IS NOT NULL
        ON CONFLICT (key) DO UPDATE
       SET place = excluded.place, route = excluded.route, priority = excluded.priority, lane = excluded.lane,
           held = excluded.held, due = excluded.due;
END $body$;

-- Make a batch of swaps of which some change the agenda, or remove something.
CREATE FUNCTION {schema}.swap_and_move(
    demanded boolean, keys bytea[], threads bytea[], expected bytea[], heads bytea[], statuses text[],
    tokens bytea[], token_ends integer[],
    row_items integer[], seqs integer[], bases integer[], digests bytea[], headers bytea[], bodies bytea[],
    blob_items integer[], blobs bytea[], data bytea[],
    emptied integer[], range_items integer[], starts bigint[], stops bigint[],
    gone_items integer[], gone bytea[], post_items integer[], posts bytea[],
    ended integer[], move_items integer[], places bytea[], routes bytea[], priorities integer[], lanes bytea[],
    held boolean[], dues bigint[]
) RETURNS boolean[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    accepted bytea[];
BEGIN
    accepted := {schema}.replace_heads(demanded, keys, threads, expected, heads, statuses, tokens, token_ends);
    PERFORM {schema}.move(accepted, ended, move_items, places, routes, priorities, lanes, held, dues);
    IF cardinality(emptied) + cardinality(range_items) + cardinality(gone_items) + cardinality(post_items) > 0 THEN
        PERFORM {schema}.remove(accepted, emptied, range_items, starts, stops, gone_items, gone, post_items, posts);
    END IF;
    PERFORM {schema}.add(accepted, row_items, seqs, bases, digests, headers, bodies, blob_items, blobs, data);
    RETURN ARRAY(SELECT key IS NOT NULL FROM unnest(accepted) WITH ORDINALITY AS a(key, place) ORDER BY place);
END $body$;

-- Charge a bucket. Returns 0, or how long to wait before anything is granted.
CREATE FUNCTION {schema}.spend(bucket_ bytea, cost bigint, burst bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    now_ bigint := {schema}.moment();
BEGIN
    INSERT INTO {schema}.buckets AS b (bucket, paid_off) VALUES (bucket_, now_ + greatest(cost, -burst))
        ON CONFLICT (bucket) DO UPDATE SET paid_off = greatest(greatest(b.paid_off, now_) + cost, now_ - burst)
     WHERE b.paid_off - burst <= now_;
    RETURN CASE WHEN FOUND THEN 0
                ELSE (SELECT greatest(1, b.paid_off - burst - now_) FROM {schema}.buckets AS b WHERE b.bucket = bucket_) END;
END $body$;

-- When the first entry from `low` on is due, of those that are held or not. Among entries that are not due yet, only a
-- hundred are looked at for these routes: an early answer costs a look, and reading all of them costs more.
CREATE FUNCTION {schema}.next_due(place_ bytea, routes bytea[], held_ boolean, low bigint, now_ bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    found_due bigint;
    next_ bigint := 1152921504606846976;
BEGIN
    FOR level IN -2 .. 2 LOOP
        SELECT a.due INTO found_due FROM {schema}.agenda AS a
         WHERE a.place = place_ AND a.held = held_ AND a.priority = level AND a.due BETWEEN low AND now_
           AND a.route = ANY(routes)
         ORDER BY a.due LIMIT 1;
        IF NOT FOUND THEN
            SELECT n.due INTO found_due
              FROM (SELECT a.due, a.route, row_number() OVER (ORDER BY a.due) AS position FROM {schema}.agenda AS a
                     WHERE a.place = place_ AND a.held = held_ AND a.priority = level AND a.due > now_
                       AND a.due < 1152921504606846976
                     ORDER BY a.due LIMIT 100) AS n
             WHERE n.route = ANY(routes) OR n.position = 100 LIMIT 1;
        END IF;
        next_ := least(next_, found_due);
    END LOOP;
    RETURN next_;
END $body$;

-- Lock up to `room` due entries that nobody holds: by priority, then lanes in turn from the one after `after` on. `busy` has
-- the lane of each entry that is held: no lane gets more than `each_`. At most `units` of them have a route of `unbegun`.
CREATE FUNCTION {schema}.pick_in_turn(
    place_ bytea, routes bytea[], room integer, after bytea, low bigint, now_ bigint,
    busy bytea[], each_ integer, unbegun bytea[], units bigint
) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    keys bytea[] := '{}';
    begun bytea[] := ARRAY(SELECT r FROM unnest(routes) AS r WHERE r <> ALL(unbegun));
    start_ bytea;
    lane_ bytea;
    picked record;
    wraps integer;
BEGIN
    FOR level IN REVERSE 2 .. -2 LOOP
        start_ := after || '\x00';
        wraps := 0;
        WHILE wraps < 2 AND cardinality(keys) < room LOOP
            SELECT a.lane INTO lane_ FROM {schema}.agenda AS a
             WHERE a.place = place_ AND NOT a.held AND a.priority = level AND a.lane >= start_
               AND a.due < 1152921504606846976 AND a.due BETWEEN low AND now_
               AND a.route = ANY(CASE WHEN units = 0 THEN begun ELSE routes END) AND a.key <> ALL(keys)
             ORDER BY a.lane, a.due LIMIT 1;
            IF NOT FOUND THEN
                start_ := '';
                wraps := wraps + 1;
                CONTINUE;
            END IF;
            start_ := lane_ || '\x00';
            CONTINUE WHEN cardinality(array_positions(busy, lane_)) >= each_;
            SELECT a.key, a.route INTO picked FROM {schema}.agenda AS a
             WHERE a.place = place_ AND NOT a.held AND a.priority = level AND a.lane >= lane_ AND a.lane < start_
               AND a.due < 1152921504606846976 AND a.due BETWEEN low AND now_
               AND a.route = ANY(CASE WHEN units = 0 THEN begun ELSE routes END) AND a.key <> ALL(keys)
             ORDER BY a.lane, a.due LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                keys := keys || picked.key;
                busy := busy || lane_;
                units := units - (picked.route = ANY(unbegun))::integer;
                wraps := 0;
            END IF;
        END LOOP;
    END LOOP;
    RETURN keys;
END $body$;

-- Take due entries: see Agenda.take. They are marked as held for two seconds. Returns a row for each, as it was before, then
-- one without a thread, which is due when to look again. With limits (`lock_` is given), takers of a queue count one after
-- the other what is held. All queries follow the order of an index, whatever the statistics say: a plan that sorts reads
-- the whole backlog. Entries due before `low` are not searched for, so that a look passes none of the dead entries that
-- an old snapshot keeps; those that are held are searched for from a minute before it.
CREATE FUNCTION {schema}.take(
    place_ bytea, routes bytea[], most integer, after bytea, low bigint,
    lock_ bigint, concurrency integer, each_ integer, bucket_ bytea, cost bigint, burst bigint, unbegun bytea[]
) RETURNS TABLE (thread_ bytea, head_ bytea, route_ bytea, priority_ smallint, lane_ bytea, held_ boolean, due_ bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $body$
DECLARE
    now_ bigint := {schema}.moment();
    low_held bigint := low - 60000000;
    keys bytea[] := '{}';
    busy bytea[] := '{}';
    room integer;
    paid bigint;
    units bigint;
    spent bigint;
    free_due bigint;
BEGIN
    FOR level IN REVERSE 2 .. -2 LOOP
        keys := keys || ARRAY(
            SELECT a.key FROM {schema}.agenda AS a
             WHERE a.place = place_ AND a.held AND a.priority = level AND a.due BETWEEN low_held AND now_
               AND a.route = ANY(routes)
             ORDER BY a.due LIMIT most - cardinality(keys) FOR UPDATE SKIP LOCKED);
    END LOOP;
    room := most - cardinality(keys);
    free_due := {schema}.next_due(place_, routes, false, low, now_);
    IF room > 0 AND free_due <= now_ THEN
        IF lock_ IS NOT NULL THEN
            PERFORM pg_advisory_xact_lock(lock_);
        END IF;
    END IF;
END $body$;
