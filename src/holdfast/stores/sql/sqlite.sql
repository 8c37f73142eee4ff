-- A row's id is the number of its thread << 28 | its seq; 268435455 is the largest seq. See sqlite_006.sql for heads.

-- name: find_thread
-- A thread has one of the 16 numbers from its hash on.
SELECT number, thread, head_id, head, labels, status FROM heads WHERE number BETWEEN ?1 AND ?1 + 15 ORDER BY number

-- name: find_orphan
-- Rows without a thread are damage: threads are never removed.
SELECT id >> 28 FROM rows WHERE id >= ?1 << 28 AND id < (?1 + 16) << 28
   AND id >> 28 NOT IN (SELECT number FROM threads WHERE number BETWEEN ?1 AND ?1 + 15) LIMIT 1

-- name: read_all_heads
SELECT number, thread, head, status, labels, typeof (birth) = 'integer' AND birth < 4611686018427387904 FROM heads

-- name: count_threads
SELECT status, count(*) FROM threads WHERE substr(thread, 1, ?) = ? AND status <> '' GROUP BY status

-- name: insert_thread
-- A birth of 2^62 or more, or of another type, was changed by another program: do not continue from it.
INSERT INTO threads (number, thread, labels, status, birth)
VALUES (?, ?, ?, ?, (SELECT coalesce(CAST (max(birth) AS INTEGER), 0) + 1 FROM threads WHERE birth < 4611686018427387904))

-- name: update_thread
UPDATE threads SET labels = ?, status = ? WHERE number = ?

-- name: mend_birth
UPDATE threads
   SET birth = (SELECT coalesce(CAST (max(birth) AS INTEGER), 0) + 1 FROM threads WHERE birth < 4611686018427387904)
 WHERE number = ? AND NOT (typeof (birth) = 'integer' AND birth < 4611686018427387904)

-- name: drop_label
DELETE FROM labels WHERE token = ? AND number = ?

-- name: drop_labels
DELETE FROM labels WHERE number = ?

-- name: find_misplaced
SELECT number FROM threads WHERE thread = ? AND number IS NOT ?

-- name: drop_thread
DELETE FROM threads WHERE number = ?

-- name: read_labels
SELECT token, number FROM labels

-- name: insert_label
INSERT OR IGNORE INTO labels (token, number) VALUES (?, ?)

-- name: drop_row
DELETE FROM rows WHERE id = ?

-- name: replace_head
-- Put the first new row, or the new head, where the head is, if it is the expected one.
UPDATE rows SET back = ?, digest = ?, header = ?, body = ? WHERE id = ? AND digest = x'' AND header = ?

-- name: insert_row
INSERT INTO rows (id, back, digest, header, body) VALUES (?, ?, ?, ?, ?)

-- name: put_row
INSERT OR REPLACE INTO rows (id, back, digest, header, body) VALUES (?, ?, ?, ?, ?)

-- name: insert_blob
INSERT OR REPLACE INTO blobs (number, blob, data) VALUES (?, ?, ?)

-- name: drop_rows
DELETE FROM rows WHERE id >= ? AND id < ?

-- name: drop_blob
DELETE FROM blobs WHERE number = ? AND blob = ?

-- name: drop_blobs
DELETE FROM blobs WHERE number = ?

-- name: drop_posts
DELETE FROM posts WHERE number = ?

-- name: drop_post
DELETE FROM posts WHERE number = ? AND key = ?

-- name: read_rows
-- Read all rows that a restore of one row needs, in one range; a head is not a row. A value changed to another type is
-- read as bytes too, so that its digest reveals the damage.
SELECT id, CAST(back AS INTEGER), CAST(digest AS BLOB), CAST(header AS BLOB), CAST(body AS BLOB) FROM rows
 WHERE id BETWEEN (SELECT id - back FROM rows WHERE id = ?1 AND digest <> x'') AND ?1 ORDER BY id

-- name: read_index
-- Read all rows but the last, which is the head.
SELECT id, CAST(back AS INTEGER), CAST(digest AS BLOB), CAST(header AS BLOB), x'' FROM rows
 WHERE id >= ?1 AND id < min(?2, (SELECT id FROM rows WHERE id <= ?1 | 268435455 ORDER BY id DESC LIMIT 1))
 ORDER BY id DESC LIMIT ?3

-- name: read_blob
SELECT CAST(data AS BLOB) FROM blobs WHERE number = ? AND blob = ?

-- name: insert_post
INSERT OR IGNORE INTO posts (number, key, value) VALUES (?, ?, ?)

-- name: read_posts
SELECT key, value FROM posts WHERE number = ? ORDER BY key

-- name: put_entry
INSERT OR REPLACE INTO agenda (number, place, route, priority, lane, held, due) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: drop_entry
DELETE FROM agenda WHERE number = ?

-- name: read_entry
SELECT place, route, priority, lane, held, due FROM agenda WHERE number = ?

-- name: read_entries
SELECT thread, place, route, priority, lane, held, due FROM agenda JOIN threads USING (number)
 WHERE substr(thread, 1, ?) = ?

-- name: read_held
SELECT thread, head FROM agenda JOIN heads USING (number) WHERE held = 1 AND substr(thread, 1, ?) = ?

-- name: next_free
SELECT due FROM agenda WHERE place = ? AND route = ? AND held = 0 AND due >= ? ORDER BY due LIMIT 1

-- name: next_held
SELECT due, route FROM agenda WHERE place = ? AND held = 1 AND due >= ? ORDER BY due

-- name: due_held
SELECT number, thread, head, place, route, priority, lane, held, due FROM agenda JOIN heads USING (number)
 WHERE place = ? AND held = 1 AND due BETWEEN ? AND ? ORDER BY due, thread

-- name: due_free
SELECT number, thread, head, place, route, priority, lane, held, due FROM agenda JOIN heads USING (number)
 WHERE place = ? AND route = ? AND held = 0 AND due BETWEEN ? AND ? LIMIT ?

-- name: next_lane
SELECT lane FROM agenda WHERE place = ? AND route = ? AND held = 0 AND due < 1152921504606846976 AND priority = ? AND lane >= ?
 ORDER BY lane LIMIT 1

-- name: due_in_lane
SELECT number, thread, head, place, route, priority, lane, held, due FROM agenda JOIN heads USING (number)
 WHERE place = ? AND route = ? AND held = 0 AND due < 1152921504606846976 AND priority = ? AND lane = ?
   AND due BETWEEN ? AND ? ORDER BY due

-- name: measure_queue
SELECT count(*) FILTER (WHERE NOT held AND due <= ?1),
       count(*) FILTER (WHERE NOT held AND due > ?1 AND due < 1152921504606846976),
       count(*) FILTER (WHERE held),
       count(*) FILTER (WHERE NOT held AND due >= 1152921504606846976),
       coalesce(min(due) FILTER (WHERE NOT held AND due <= ?1), 0)
  FROM agenda WHERE place = ?2

-- name: count_held
SELECT lane, count(*) FROM agenda WHERE place = ? AND held = 1 GROUP BY lane

-- name: read_bucket
SELECT paid_off FROM buckets WHERE bucket = ?

-- name: put_bucket
INSERT OR REPLACE INTO buckets (bucket, paid_off) VALUES (?, ?)

-- name: drop_paid_buckets
DELETE FROM buckets WHERE paid_off < ?
