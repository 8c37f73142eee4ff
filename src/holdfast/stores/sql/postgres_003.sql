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

-- Charge a bucket, and return 0; or return how long to wait: see Agenda.spend.
CREATE FUNCTION {schema}.spend(bucket_ bytea, cost bigint, burst bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    now_ bigint := {schema}.moment();
BEGIN
    INSERT INTO {schema}.buckets AS b (bucket, paid_off) VALUES (bucket_, now_ + cost)
        ON CONFLICT (bucket) DO UPDATE SET paid_off = greatest(b.paid_off, now_) + cost
     WHERE b.paid_off - burst <= now_;
    IF FOUND THEN
        RETURN 0;
    END IF;
    RETURN (SELECT greatest(1, b.paid_off - burst - now_) FROM {schema}.buckets AS b WHERE b.bucket = bucket_);
END $body$;

-- When the first entry from `low` on is due; those that are held are searched for from `low_held` on. Among entries that are
-- not due yet, a hundred are compared with the routes: an early answer costs a look, and to read all of them costs more.
CREATE FUNCTION {schema}.next_due(place_ bytea, routes bytea[], low bigint, low_held bigint, now_ bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RETURN (
        SELECT coalesce(min(n.due), 1152921504606846976)
          FROM unnest('{-2,-1,0,1,2}'::smallint[]) AS p(priority), unnest('{true,false}'::boolean[]) AS h(held),
               LATERAL (
                   (SELECT a.due FROM {schema}.agenda AS a
                     WHERE a.place = place_ AND a.held = h.held AND a.priority = p.priority
                       AND a.due BETWEEN CASE WHEN h.held THEN low_held ELSE low END AND now_ AND a.route = ANY(routes)
                     ORDER BY a.due LIMIT 1)
                   UNION ALL
                   (SELECT f.due
                      FROM (SELECT a.due, a.route, row_number() OVER (ORDER BY a.due) AS position
                              FROM {schema}.agenda AS a
                             WHERE a.place = place_ AND a.held = h.held AND a.priority = p.priority
                               AND a.due > now_ AND a.due < 1152921504606846976
                             ORDER BY a.due LIMIT 100) AS f
                     WHERE f.route = ANY(routes) OR f.position = 100 LIMIT 1)
               ) AS n
    );
END $body$;

-- Lock up to `room` due entries that nobody holds: by priority, then lanes in turn from the one after `after` on. `busy` has
-- the lane of each entry that is held: a lane gets at most `each_`.
CREATE FUNCTION {schema}.pick(
    place_ bytea, routes bytea[], room bigint, after bytea, low bigint, now_ bigint, busy bytea[], each_ integer
) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    keys bytea[] := '{}';
    first_lane bytea;
    lane_ bytea;
    key_ bytea;
    wraps integer;
BEGIN
    IF routes = '{}' THEN
        RETURN keys;
    END IF;
    FOR level IN REVERSE 2 .. -2 LOOP
        first_lane := after || '\x00';
        wraps := 0;
        WHILE wraps < 2 AND cardinality(keys) < room LOOP
            SELECT a.lane INTO lane_ FROM {schema}.agenda AS a
             WHERE a.place = place_ AND NOT a.held AND a.priority = level AND a.lane >= first_lane
               AND a.due < 1152921504606846976
             ORDER BY a.lane, a.due LIMIT 1;
            IF NOT FOUND THEN
                first_lane := '';
                wraps := wraps + 1;
                CONTINUE;
            END IF;
            first_lane := lane_ || '\x00';
            CONTINUE WHEN cardinality(array_positions(busy, lane_)) >= each_;
            SELECT a.key INTO key_ FROM {schema}.agenda AS a
             WHERE a.place = place_ AND NOT a.held AND a.priority = level AND a.due < 1152921504606846976
               AND (a.lane, a.due) >= (lane_, low) AND (a.lane, a.due) <= (lane_, now_)
               AND a.route = ANY(routes) AND a.key <> ALL(keys)
             ORDER BY a.lane, a.due LIMIT 1 FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                keys := keys || key_;
                busy := busy || lane_;
                wraps := 0;
            END IF;
        END LOOP;
    END LOOP;
    RETURN keys;
END $body$;

-- Lock the free entries that limits allow. All takers of a queue with limits count one after the other what is held: under a
-- lock, in a snapshot that is taken after it. Charges the bucket for each one whose route is in `unbegun`.
CREATE FUNCTION {schema}.pick_within_limits(
    place_ bytea, routes bytea[], room integer, after bytea, low bigint, now_ bigint,
    lock_ bigint, concurrency integer, each_ integer, bucket_ bytea, cost bigint, burst bigint, unbegun bytea[],
    OUT keys bytea[], OUT paid bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    busy bytea[];
    found_ record;
    count_ integer := 0;
    charge bigint := 0;
BEGIN
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE EXCEPTION 'limits of a queue need the isolation level READ COMMITTED';
    END IF;
    PERFORM pg_advisory_xact_lock(lock_);
    busy := ARRAY(SELECT a.lane FROM {schema}.agenda AS a WHERE a.place = place_ AND a.held);
    room := least(room, concurrency - cardinality(busy));
    IF bucket_ IS NULL THEN
        keys := {schema}.pick(place_, routes, room, after, low, now_, busy, each_);
        RETURN;
    END IF;
    SELECT b.paid_off INTO paid FROM {schema}.buckets AS b WHERE b.bucket = bucket_ FOR UPDATE;
    paid := greatest(paid, now_);
    keys := {schema}.pick(place_, ARRAY(SELECT r FROM unnest(routes) AS r WHERE r <> ALL(unbegun)), room, after, low, now_,
                          busy, each_)
         || {schema}.pick(place_, ARRAY(SELECT r FROM unnest(routes) AS r WHERE r = ANY(unbegun)),
                          least(room, CASE WHEN paid - burst <= now_ THEN (burst - paid + now_) / cost + 1 ELSE 0 END),
                          after, low, now_, busy, each_);
    FOR found_ IN
        SELECT a.key, a.lane, a.route = ANY(unbegun) AS begins FROM {schema}.agenda AS a WHERE a.key = ANY(keys)
         ORDER BY a.priority DESC, row_number() OVER (PARTITION BY a.priority, a.lane ORDER BY a.due),
                  a.lane <= after, a.lane
    LOOP
        IF count_ >= room OR cardinality(array_positions(busy, found_.lane)) >= each_ THEN
            keys := array_remove(keys, found_.key);
            CONTINUE;
        END IF;
        busy := busy || found_.lane;
        count_ := count_ + 1;
        charge := charge + CASE WHEN found_.begins THEN cost ELSE 0 END;
    END LOOP;
    paid := paid + charge;
    IF charge > 0 THEN
        INSERT INTO {schema}.buckets AS b (bucket, paid_off) VALUES (bucket_, paid)
            ON CONFLICT (bucket) DO UPDATE SET paid_off = greatest(b.paid_off, now_) + charge;
    END IF;
END $body$;

-- Take due entries: see Agenda.take. They are marked as held for two seconds. Returns a row for each, as it was before, then
-- one without a thread, with the time of the next look. All queries follow the order of an index, whatever the statistics
-- say: a plan that sorts would read the whole backlog. Entries due before `low` are not searched for, so that a look passes
-- none of the dead entries that an old snapshot keeps; those that are held are searched for from a minute before it.
-- The mark may be lost in a crash of the server, which then has an entry that is early; so its commit does not wait.
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
    next_ bigint := {schema}.next_due(place_, routes, low, low_held, now_);
    keys bytea[] := '{}';
    free record;
    paid bigint;
BEGIN
    IF next_ <= now_ THEN
        FOR level IN REVERSE 2 .. -2 LOOP
            keys := keys || ARRAY(
                SELECT a.key FROM {schema}.agenda AS a
                 WHERE a.place = place_ AND a.held AND a.priority = level AND a.due BETWEEN low_held AND now_
                   AND a.route = ANY(routes)
                 ORDER BY a.due LIMIT most - cardinality(keys) FOR UPDATE SKIP LOCKED);
        END LOOP;
        IF lock_ IS NULL THEN
            keys := keys || {schema}.pick(place_, routes, most - cardinality(keys), after, low, now_, '{}', NULL);
        ELSE
            SELECT * INTO free FROM {schema}.pick_within_limits(
                place_, routes, most - cardinality(keys), after, low, now_,
                lock_, concurrency, each_, bucket_, cost, burst, unbegun);
            keys := keys || free.keys;
            paid := free.paid;
        END IF;
        RETURN QUERY SELECT t.thread, t.head, a.route, a.priority, a.lane, a.held, a.due
                       FROM {schema}.agenda AS a JOIN {schema}.threads AS t USING (key) WHERE a.key = ANY(keys);
        PERFORM set_config('synchronous_commit', 'off', true);
        UPDATE {schema}.agenda AS a SET held = true, due = now_ + 2000000 WHERE a.key = ANY(keys);
        next_ := {schema}.next_due(place_, routes, low, low_held, now_);
        IF next_ <= now_ AND cardinality(keys) < most THEN
            -- Limits hold back what is due, or somebody else is taking it.
            next_ := least({schema}.next_due(place_, routes, now_ + 1, now_ + 1, now_),
                           CASE WHEN lock_ IS NULL THEN now_ + 2000000 END,
                           CASE WHEN paid - burst > now_ THEN paid - burst END,
                           (SELECT min(n.due) FROM unnest('{-2,-1,0,1,2}'::smallint[]) AS p(priority), LATERAL (
                                SELECT a.due FROM {schema}.agenda AS a
                                 WHERE a.place = place_ AND a.held AND a.priority = p.priority AND a.due > now_
                                 ORDER BY a.due LIMIT 1) AS n));
        END IF;
    END IF;
    due_ := next_;
    RETURN NEXT;
END $body$;
