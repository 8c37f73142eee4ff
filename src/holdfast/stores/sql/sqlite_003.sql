-- The first released schema has the number 3. A thread has a number: a hash of its key below 2^28, or the next number
-- that is free. A row's id is number << 28 | seq, so the rows of a thread are adjacent, in order, and need no index; its
-- keyframe is `back` rows before it.
--
-- The head is stored after the last row, under the next seq. So it shares a page with the newest rows, and a commit
-- writes one page. A commit puts the new row in the head's place and the new head after it: a thread grows at its end,
-- where SQLite fills page after page. A head has its own seq in `back`, and no digest. The last row of a thread is its
-- head, or the file is damaged. While a thread has only messages, its head is one zero byte: one flipped bit in the size
-- of a head can make it empty, but not this.

CREATE TABLE threads (
    number INTEGER PRIMARY KEY,
    thread BLOB NOT NULL,
    labels BLOB NOT NULL,
    status TEXT NOT NULL,
    birth INTEGER NOT NULL
);
CREATE UNIQUE INDEX threads_by_birth ON threads (birth);
CREATE INDEX threads_by_status ON threads (status, birth);

CREATE TABLE labels (token BLOB NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (token, number)) WITHOUT ROWID;

CREATE TABLE rows (
    id INTEGER PRIMARY KEY,
    back INTEGER NOT NULL,
    digest BLOB NOT NULL,
    header BLOB NOT NULL,
    body BLOB NOT NULL
);

CREATE TABLE blobs (number INTEGER NOT NULL, blob BLOB NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX blobs_by_thread ON blobs (number, blob);

CREATE TABLE posts (number INTEGER NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (number, key)) WITHOUT ROWID;

-- The commit of one row is one statement, an insert into this view: it replaces the head if it is the expected one, and
-- adds the row. One statement instead of four is what makes a save cost little more than a bare insert.
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
