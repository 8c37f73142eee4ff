-- The first schema. A thread's key is the hash of its name: rows, blobs and messages are found by it alone, and a thread
-- whose name or key was damaged can be detected. Only the head of a thread ever changes; no index contains a column that
-- an append changes, so PostgreSQL replaces the head within its page.

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

-- Replace each head that is the expected one. All writers use the same order, so they do not deadlock. Rows without a head
-- are damage, and are not replaced. Returns the keys, with NULL where the head was not as expected. Waits for the disk if
-- that is demanded and the session would not.
CREATE FUNCTION {schema}.replace_heads(
    demanded boolean, keys bytea[], threads bytea[], expected bytea[], heads bytea[], statuses text[],
    tokens bytea[], token_ends integer[]
) RETURNS bytea[] LANGUAGE plpgsql AS $body$
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
) RETURNS void LANGUAGE plpgsql AS $body$
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
) RETURNS void LANGUAGE plpgsql AS $body$
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

-- Make a batch of swaps in one call; true where the head was replaced.
CREATE FUNCTION {schema}.swap(
    demanded boolean, keys bytea[], threads bytea[], expected bytea[], heads bytea[], statuses text[],
    tokens bytea[], token_ends integer[],
    row_items integer[], seqs integer[], bases integer[], digests bytea[], headers bytea[], bodies bytea[],
    blob_items integer[], blobs bytea[], data bytea[]
) RETURNS boolean[] LANGUAGE plpgsql AS $body$
DECLARE
    accepted bytea[];
BEGIN
    accepted := {schema}.replace_heads(demanded, keys, threads, expected, heads, statuses, tokens, token_ends);
    PERFORM {schema}.add(accepted, row_items, seqs, bases, digests, headers, bodies, blob_items, blobs, data);
    RETURN ARRAY(SELECT key IS NOT NULL FROM unnest(accepted) WITH ORDINALITY AS a(key, place) ORDER BY place);
END $body$;

-- Make a batch of swaps that also remove something, before anything is added.
CREATE FUNCTION {schema}.swap_and_remove(
    demanded boolean, keys bytea[], threads bytea[], expected bytea[], heads bytea[], statuses text[],
    tokens bytea[], token_ends integer[],
    row_items integer[], seqs integer[], bases integer[], digests bytea[], headers bytea[], bodies bytea[],
    blob_items integer[], blobs bytea[], data bytea[],
    emptied integer[], range_items integer[], starts bigint[], stops bigint[],
    gone_items integer[], gone bytea[], post_items integer[], posts bytea[]
) RETURNS boolean[] LANGUAGE plpgsql AS $body$
DECLARE
    accepted bytea[];
BEGIN
    accepted := {schema}.replace_heads(demanded, keys, threads, expected, heads, statuses, tokens, token_ends);
    PERFORM {schema}.remove(accepted, emptied, range_items, starts, stops, gone_items, gone, post_items, posts);
    PERFORM {schema}.add(accepted, row_items, seqs, bases, digests, headers, bodies, blob_items, blobs, data);
    RETURN ARRAY(SELECT key IS NOT NULL FROM unnest(accepted) WITH ORDINALITY AS a(key, place) ORDER BY place);
END $body$;

-- Make the most common swap, one row onto an existing head. It costs a third less than the call for a batch.
CREATE FUNCTION {schema}.swap_row(
    demanded boolean, key_ bytea, thread_ bytea, expected bytea, head_ bytea, status_ text, labels_ bytea[],
    seq_ integer, base_ integer, digest_ bytea, header_ bytea, body_ bytea
) RETURNS boolean LANGUAGE plpgsql AS $body$
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
