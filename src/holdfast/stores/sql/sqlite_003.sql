-- The third schema: the head is behind the last row not under the largest seq of all, but under the next. A commit makes
-- the head's place that of the new row, and puts the head behind it. So a thread grows at its end, where SQLite fills
-- page after page; before, every row was put between others, and one commit in three had to share out several pages.
--
-- A head has its own seq in `back`, and no digest. The last row of a thread is its head, or the file is damaged. Where
-- only messages were left so far, it is one zero byte: nothing at all is what one flipped bit can make of a head.
--
-- A column has another name, so that a process of an older version, which would put heads elsewhere, makes no thread.

UPDATE rows SET back = 1 + coalesce(
    (SELECT last.id & 268435455 FROM rows AS last WHERE last.id >= (rows.id >> 28) << 28 AND last.id < rows.id
      ORDER BY last.id DESC LIMIT 1), 0)
 WHERE id & 268435455 = 268435455;
UPDATE rows SET id = (id >> 28) << 28 | back, header = CASE header WHEN x'' THEN x'00' ELSE header END
 WHERE id & 268435455 = 268435455;

ALTER TABLE threads RENAME COLUMN born TO birth;

DROP VIEW swaps;

CREATE VIEW swaps AS
    SELECT x'' AS expected, x'' AS head, 0 AS id, 0 AS back, x'' AS digest, x'' AS header, x'' AS body;

CREATE TRIGGER swap_head INSTEAD OF INSERT ON swaps BEGIN
    UPDATE rows SET back = NEW.back, digest = NEW.digest, header = NEW.header, body = NEW.body
     WHERE id = NEW.id AND header = NEW.expected;
    SELECT RAISE (ABORT, 'refused') WHERE changes () = 0;
    INSERT INTO rows (id, back, digest, header, body)
    VALUES (NEW.id + 1, (NEW.id + 1) & 268435455, x'', NEW.head, x'');
END;

-- Every thread with its head: nothing where the last row is none.
CREATE VIEW heads AS
    SELECT number, thread, status, labels, birth, rows.id AS head_id, rows.header AS head
      FROM threads LEFT JOIN rows
        ON rows.id = (SELECT last.id FROM rows AS last
                       WHERE last.id BETWEEN number << 28 AND number << 28 | 268435455 ORDER BY last.id DESC LIMIT 1)
       AND rows.back = rows.id & 268435455 AND rows.digest = x'' AND typeof (rows.header) = 'blob';
