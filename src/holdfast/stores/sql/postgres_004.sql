-- The first schema: versions before this one were never released. A thread's key is the hash of its name: rows, blobs and
-- messages are found by it alone, and a thread whose name or key was damaged can be detected. Only the head of a thread
-- ever changes; no index contains a column that an append changes, so PostgreSQL replaces the head within its page.
--
-- No function looks up a name in the caller's search_path. Through that path, another role could define a function that
-- fits the arguments better than PostgreSQL's own, such as cardinality(bytea[]), and it would run with the rights of the
-- role that saves.

CREATE TABLE {schema}.threads (
    key bytea PRIMARY KEY,
    thread bytea NOT NULL,
    head bytea NOT NULL,
    status text COLLATE "C" NOT NULL,
    labels bytea[] NOT NULL,
    born bigint GENERATED ALWAYS AS IDENTITY
) WITH (fillfactor = 60);
CREATE UNIQUE INDEX threads_by_birth ON {schema}.threads (born);
CREATE INDEX threads_by_status ON {schema}.threads (status, born);
CREATE INDEX threads_by_label ON {schema}.threads USING gin (labels) WHERE labels <> '{}';

CREATE TABLE {schema}.rows (
    key bytea NOT NULL,
    seq integer NOT NULL,
    base integer NOT NULL,
    digest bytea NOT NULL,
    header bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (key, seq)
);

CREATE TABLE {schema}.blobs (key bytea NOT NULL, blob bytea NOT NULL, data bytea NOT NULL, PRIMARY KEY (key, blob));

CREATE TABLE {schema}.posts (key bytea NOT NULL, name bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (key, name));

-- Stored content is already compressed or encrypted: compressing it again would only cost time.
ALTER TABLE {schema}.rows ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {schema}.blobs ALTER COLUMN data SET STORAGE EXTERNAL;
-- Keep on the page what fits there.
ALTER TABLE {schema}.rows SET (toast_tuple_target = 8160);
ALTER TABLE {schema}.blobs SET (toast_tuple_target = 8160);

-- The agenda: an entry for each thread that a worker may have to look at. An entry follows from the thread's head, and
-- changes in the swap that changes it; appends and renewals of a lease do not touch it. `place` is the namespace and the
-- queue. Times are microseconds since 1970; 1152921504606846976 means: only an answer makes it due. A look searches for its
-- own routes alone: what other programs have queued costs it nothing.
CREATE TABLE {schema}.agenda (
    key bytea PRIMARY KEY,
    place bytea NOT NULL,
    route bytea NOT NULL,
    priority smallint NOT NULL,
    lane bytea NOT NULL,
    held boolean NOT NULL,
    due bigint NOT NULL
);
CREATE INDEX agenda_by_due ON {schema}.agenda (place, route, due) WHERE NOT held;
CREATE INDEX agenda_by_lane ON {schema}.agenda (place, route, priority, lane, due)
 WHERE NOT held AND due < 1152921504606846976;
CREATE INDEX agenda_held ON {schema}.agenda (place, due) INCLUDE (route, lane) WHERE held;

-- A rate is one number: the time at which what was granted is paid off.
CREATE TABLE {schema}.buckets (bucket bytea PRIMARY KEY, paid_off bigint NOT NULL) WITH (fillfactor = 50);

-- The time of the store, by which entries are due.
CREATE FUNCTION {schema}.moment() RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RETURN extract(epoch FROM clock_timestamp()) * 1000000;
END $body$;

-- Replace each head that is the expected one. All writers use the same order, so they do not deadlock. Rows without a head
-- are damage, and are not replaced. Returns the keys, with NULL where the head was not as expected. Waits for the disk if
-- that is demanded and the session would not.
CREATE FUNCTION {schema}.replace_heads(
    demanded boolean, keys bytea[], threads bytea[], expected bytea[], heads bytea[], statuses text[],
    tokens bytea[], token_ends integer[]
) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    accepted bytea[] := keys;
    token_start integer := 1;
BEGIN
    IF demanded AND current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    FOR i IN 1 .. cardinality(keys) LOOP
        IF expected[i] = '' THEN
            INSERT INTO {schema}.threads (key, thread, head, status, labels)
            SELECT keys[i], threads[i], heads[i], statuses[i], tokens[token_start : token_ends[i]]
             WHERE NOT EXISTS (SELECT 1 FROM {schema}.rows AS r WHERE r.key = keys[i])
            ON CONFLICT (key) DO NOTHING;
        ELSE
            UPDATE {schema}.threads AS t
               SET head = heads[i], status = statuses[i], labels = tokens[token_start : token_ends[i]]
             WHERE t.key = keys[i] AND t.head = expected[i] AND t.thread = threads[i];
        END IF;
        IF NOT FOUND THEN
            accepted[i] := NULL;
        END IF;
        token_start := token_ends[i] + 1;
    END LOOP;
    RETURN accepted;
END $body$;

CREATE FUNCTION {schema}.add(
    accepted bytea[],
    row_items integer[], seqs integer[], bases integer[], digests bytea[], headers bytea[], bodies bytea[],
    blob_items integer[], blobs bytea[], data bytea[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF cardinality(seqs) > 0 THEN
        INSERT INTO {schema}.rows AS r (key, seq, base, digest, header, body)
        SELECT accepted[n.item], n.seq, n.base, n.digest, n.header, n.body
          FROM unnest(row_items, seqs, bases, digests, headers, bodies) AS n(item, seq, base, digest, header, body)
         WHERE accepted[n.item] IS NOT NULL
            ON CONFLICT (key, seq) DO UPDATE
           SET base = excluded.base, digest = excluded.digest, header = excluded.header, body = excluded.body;
    END IF;
    IF cardinality(blobs) > 0 THEN
        INSERT INTO {schema}.blobs AS b (key, blob, data)
        SELECT accepted[n.item], n.blob, n.data
          FROM unnest(blob_items, blobs, data) AS n(item, blob, data)
         WHERE accepted[n.item] IS NOT NULL
            ON CONFLICT (key, blob) DO UPDATE SET data = excluded.data;
    END IF;
END $body$;

CREATE FUNCTION {schema}.remove(
    accepted bytea[], emptied integer[],
    range_items integer[], starts bigint[], stops bigint[],
    blob_items integer[], blobs bytea[],
    post_items integer[], posts bytea[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    item integer;
BEGIN
    FOREACH item IN ARRAY emptied LOOP
        DELETE FROM {schema}.rows AS r WHERE r.key = accepted[item];
        DELETE FROM {schema}.blobs AS b WHERE b.key = accepted[item];
        DELETE FROM {schema}.posts AS p WHERE p.key = accepted[item];
    END LOOP;
    DELETE FROM {schema}.rows AS r USING unnest(range_items, starts, stops) AS n(item, start, stop)
     WHERE r.key = accepted[n.item] AND r.seq >= n.start AND r.seq < n.stop;
    DELETE FROM {schema}.blobs AS b USING unnest(blob_items, blobs) AS n(item, blob)
     WHERE b.key = accepted[n.item] AND b.blob = n.blob;
    DELETE FROM {schema}.posts AS p USING unnest(post_items, posts) AS n(item, name)
     WHERE p.key = accepted[n.item] AND p.name = n.name;
END $body$;

-- Replace the entries of threads whose heads were replaced, and delete those of `gone`. A message that the writer of one of
-- `listeners` has not heard makes the thread due, unless it only asks for a wake-up of another one.
CREATE FUNCTION {schema}.move(
    accepted bytea[], gone integer[],
    items integer[], places bytea[], routes bytea[], priorities integer[], lanes bytea[], held boolean[], dues bigint[],
    listeners integer[], heard_items integer[], heard bytea[]
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
    FOREACH item IN ARRAY listeners LOOP
        UPDATE {schema}.agenda AS a SET due = least(a.due, {schema}.moment())
         WHERE a.key = accepted[item] AND EXISTS (
                   SELECT 1 FROM {schema}.posts AS p
                    WHERE p.key = accepted[item] AND substring(p.name FROM 1 FOR 5) <> 'tell:'
                      AND p.name NOT IN (SELECT h.name FROM unnest(heard_items, heard) AS h(listener, name)
                                          WHERE h.listener = item));
    END LOOP;
END $body$;

-- Make a batch of swaps in one call; true where the head was replaced. What goes is removed before anything is added.
CREATE FUNCTION {schema}.swap(
    demanded boolean, keys bytea[], threads bytea[], expected bytea[], heads bytea[], statuses text[],
    tokens bytea[], token_ends integer[],
    row_items integer[], seqs integer[], bases integer[], digests bytea[], headers bytea[], bodies bytea[],
    blob_items integer[], blobs bytea[], data bytea[],
    emptied integer[], range_items integer[], starts bigint[], stops bigint[],
    gone_items integer[], gone bytea[], post_items integer[], posts bytea[],
    ended integer[], move_items integer[], places bytea[], routes bytea[], priorities integer[], lanes bytea[],
    held boolean[], dues bigint[], listeners integer[], heard_items integer[], heard bytea[]
) RETURNS boolean[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    accepted bytea[];
BEGIN
    accepted := {schema}.replace_heads(demanded, keys, threads, expected, heads, statuses, tokens, token_ends);
    IF cardinality(emptied) + cardinality(range_items) + cardinality(gone_items) + cardinality(post_items) > 0 THEN
        PERFORM {schema}.remove(accepted, emptied, range_items, starts, stops, gone_items, gone, post_items, posts);
    END IF;
    IF cardinality(ended) + cardinality(move_items) > 0 THEN
        PERFORM {schema}.move(accepted, ended, move_items, places, routes, priorities, lanes, held, dues,
                              listeners, heard_items, heard);
    END IF;
    PERFORM {schema}.add(accepted, row_items, seqs, bases, digests, headers, bodies, blob_items, blobs, data);
    RETURN ARRAY(SELECT key IS NOT NULL FROM unnest(accepted) WITH ORDINALITY AS a(key, place) ORDER BY place);
END $body$;

-- Make the most common swap, one row onto an existing head. It costs a third less than the call for a batch.
CREATE FUNCTION {schema}.swap_row(
    demanded boolean, key_ bytea, thread_ bytea, expected bytea, head_ bytea, status_ text, labels_ bytea[],
    seq_ integer, base_ integer, digest_ bytea, header_ bytea, body_ bytea
) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF demanded AND current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE {schema}.threads SET head = head_, status = status_, labels = labels_
     WHERE key = key_ AND head = expected AND thread = thread_;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.rows (key, seq, base, digest, header, body)
    VALUES (key_, seq_, base_, digest_, header_, body_)
        ON CONFLICT (key, seq) DO UPDATE
       SET base = excluded.base, digest = excluded.digest, header = excluded.header, body = excluded.body;
    RETURN true;
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

-- When the first entry from `low` on is due.
CREATE FUNCTION {schema}.next_due(place_ bytea, routes bytea[], low bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RETURN least(
        (SELECT a.due FROM {schema}.agenda AS a
          WHERE a.place = place_ AND a.held AND a.due >= low AND a.route = ANY(routes) ORDER BY a.due LIMIT 1),
        (SELECT min(n.due) FROM unnest(routes) AS r(route), LATERAL (
             SELECT a.due FROM {schema}.agenda AS a
              WHERE a.place = place_ AND a.route = r.route AND NOT a.held AND a.due >= low
              ORDER BY a.due LIMIT 1) AS n),
        1152921504606846976);
END $body$;

-- The first due entry that nobody holds, of one priority, by lane from `from_` on and then by due time; not one of `passed`.
-- With `ready`, only these are looked at.
CREATE FUNCTION {schema}.first_free(
    place_ bytea, routes bytea[], level integer, from_ bytea, low bigint, now_ bigint, ready bytea[], passed bytea[],
    OUT key bytea, OUT lane bytea, OUT route bytea
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    lane_ bytea := from_;
BEGIN
    IF ready IS NOT NULL THEN
        SELECT a.key, a.lane, a.route INTO key, lane, route FROM {schema}.agenda AS a
         WHERE a.key = ANY(ready) AND a.key <> ALL(passed) AND a.priority = level AND a.lane >= from_
           AND a.route = ANY(routes)
         ORDER BY a.lane, a.due LIMIT 1;
        RETURN;
    END IF;
    LOOP
        SELECT n.lane INTO lane_ FROM unnest(routes) AS r(route), LATERAL (
            SELECT a.lane FROM {schema}.agenda AS a
             WHERE a.place = place_ AND a.route = r.route AND NOT a.held AND a.due < 1152921504606846976
               AND a.priority = level AND a.lane >= lane_
             ORDER BY a.lane LIMIT 1) AS n ORDER BY n.lane LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT n.key, lane_, r.route INTO key, lane, route FROM unnest(routes) AS r(route), LATERAL (
            SELECT a.key, a.due FROM {schema}.agenda AS a
             WHERE a.place = place_ AND a.route = r.route AND NOT a.held AND a.due < 1152921504606846976
               AND a.priority = level AND (a.lane, a.due) >= (lane_, low) AND (a.lane, a.due) <= (lane_, now_)
               AND a.key <> ALL(passed)
             ORDER BY a.lane, a.due LIMIT 1) AS n ORDER BY n.due LIMIT 1;
        EXIT WHEN FOUND;
        lane_ := lane_ || '\x00';
    END LOOP;
END $body$;

-- Lock up to `room` due entries that nobody holds, if they still are: by priority, then one of each lane in turn from the one
-- after `after` on. A lane gets no more than `each_`, if `busy` has the lane of each entry that is held; after `units` have
-- begun, only those that had begun are taken. If no more is due than fits, only those entries are read, not all lanes.
CREATE FUNCTION {schema}.pick(
    place_ bytea, routes bytea[], room integer, after bytea, low bigint, now_ bigint,
    busy bytea[], each_ integer, units bigint, unbegun bytea[]
) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    keys bytea[] := '{}';
    passed bytea[] := '{}';
    found_ record;
    ready bytea[];
    from_ bytea;
    is_fruitful boolean;
BEGIN
    ready := ARRAY(SELECT n.key FROM unnest(routes) AS r(route), LATERAL (
                       SELECT a.key FROM {schema}.agenda AS a
                        WHERE a.place = place_ AND a.route = r.route AND NOT a.held AND a.due BETWEEN low AND now_
                        ORDER BY a.due LIMIT room + 1) AS n LIMIT room + 1);
    IF cardinality(ready) > room THEN
        ready := NULL;
    END IF;
    FOR level IN REVERSE 2 .. -2 LOOP
        from_ := after || '\x00';
        is_fruitful := true;
        WHILE cardinality(keys) < room LOOP
            IF units <= 0 THEN
                routes := ARRAY(SELECT r.route FROM unnest(routes) AS r(route) WHERE r.route <> ALL(unbegun));
            END IF;
            SELECT * INTO found_ FROM {schema}.first_free(place_, routes, level, from_, low, now_, ready, keys || passed);
            IF found_.key IS NOT NULL THEN
                from_ := found_.lane || '\x00';
                CONTINUE WHEN cardinality(array_positions(busy, found_.lane)) >= each_;
                PERFORM 1 FROM {schema}.agenda AS a
                  WHERE a.key = found_.key AND NOT a.held AND a.due <= now_ FOR UPDATE SKIP LOCKED;
                is_fruitful := true;
                IF NOT FOUND THEN
                    passed := passed || found_.key;
                    CONTINUE;
                END IF;
                keys := keys || found_.key;
                busy := busy || found_.lane;
                units := units - CASE WHEN found_.route = ANY(unbegun) THEN 1 ELSE 0 END;
            ELSIF is_fruitful AND from_ <> '' THEN
                from_ := '';
                is_fruitful := false;
            ELSE
                EXIT;
            END IF;
        END LOOP;
    END LOOP;
    RETURN keys;
END $body$;

-- Take due entries: see Agenda.take, and choosing.py for the model. They are marked as held for two seconds. Returns a row
-- for each, as it was before, then one without a thread: when to look next, and in `held_` whether due entries are left.
-- All queries follow the order of an index, whatever the statistics say: a plan that sorts would read the whole backlog.
-- Entries due before `low` are not searched for, so that a look passes none of the dead entries that an old snapshot keeps.
-- `lock_` is for queues with limits: their takers count one after the other what is held, each in a snapshot that is taken
-- after it has the lock. The mark may be lost in a crash of the server, which then has an entry that is early; so its commit
-- does not wait.
CREATE FUNCTION {schema}.take(
    place_ bytea, routes bytea[], most integer, after bytea, low bigint,
    lock_ bigint, concurrency integer, each_ integer, bucket_ bytea, cost bigint, burst bigint, unbegun bytea[]
) RETURNS TABLE (thread_ bytea, head_ bytea, route_ bytea, priority_ smallint, lane_ bytea, held_ boolean, due_ bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $body$
DECLARE
    now_ bigint := {schema}.moment();
    next_ bigint := {schema}.next_due(place_, routes, low);
    keys bytea[] := '{}';
    busy bytea[] := '{}';
    room integer := most;
    units bigint := most;
    paid bigint := 0;
BEGIN
    IF next_ <= now_ THEN
        IF lock_ IS NOT NULL THEN
            IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
                RAISE EXCEPTION 'limits of a queue need the isolation level READ COMMITTED';
            END IF;
            PERFORM pg_advisory_xact_lock(lock_);
            busy := ARRAY(SELECT a.lane FROM {schema}.agenda AS a WHERE a.place = place_ AND a.held);
            room := CASE WHEN concurrency IS NULL THEN most ELSE greatest(0, concurrency - cardinality(busy)) END;
        END IF;
        IF bucket_ IS NOT NULL THEN
            SELECT b.paid_off INTO paid FROM {schema}.buckets AS b WHERE b.bucket = bucket_ FOR UPDATE;
            paid := greatest(paid, now_);
            units := CASE WHEN paid - burst <= now_ THEN (burst - paid + now_) / cost + 1 ELSE 0 END;
        END IF;
        keys := ARRAY(
            SELECT a.key FROM {schema}.agenda AS a
             WHERE a.place = place_ AND a.held AND a.due BETWEEN low AND now_ AND a.route = ANY(routes)
             ORDER BY a.due LIMIT most FOR UPDATE SKIP LOCKED);
        keys := keys || {schema}.pick(
            place_, routes, least(room, most - cardinality(keys)), after, low, now_, busy, each_, units, unbegun);
        RETURN QUERY SELECT t.thread, t.head, a.route, a.priority, a.lane, a.held, a.due
                       FROM unnest(keys) WITH ORDINALITY AS k(key, place)
                       JOIN {schema}.agenda AS a USING (key) JOIN {schema}.threads AS t USING (key) ORDER BY k.place;
        IF bucket_ IS NOT NULL THEN
            paid := paid + cost * (SELECT count(*) FROM {schema}.agenda AS a
                                    WHERE a.key = ANY(keys) AND NOT a.held AND a.route = ANY(unbegun));
            INSERT INTO {schema}.buckets AS b (bucket, paid_off) VALUES (bucket_, paid)
                ON CONFLICT (bucket) DO UPDATE SET paid_off = paid WHERE b.paid_off <> paid;
        END IF;
        PERFORM set_config('synchronous_commit', 'off', true);
        UPDATE {schema}.agenda AS a SET held = true, due = now_ + 2000000 WHERE a.key = ANY(keys);
        next_ := {schema}.next_due(place_, routes, low);
        held_ := next_ <= now_;
        IF held_ AND cardinality(keys) < most THEN
            -- Limits hold back what is due, or somebody else is taking it.
            next_ := least({schema}.next_due(place_, routes, now_ + 1),
                           CASE WHEN lock_ IS NULL THEN now_ + 2000000 END,
                           CASE WHEN paid - burst > now_ THEN paid - burst END,
                           (SELECT a.due FROM {schema}.agenda AS a
                             WHERE a.place = place_ AND a.held AND a.due > now_ ORDER BY a.due LIMIT 1));
        END IF;
    END IF;
    due_ := next_;
    RETURN NEXT;
END $body$;
