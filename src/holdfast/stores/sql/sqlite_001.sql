-- The first schema. Threads have a number: a hash of their key below 2^28, moved up past the numbers taken by others.
-- A row's id is number << 28 | seq, so a thread's rows lie together, in order, and need no index; its keyframe is `back`
-- rows before it. The head is kept behind the last row, under the largest seq of all: so it shares a page with the
-- newest rows, and a commit writes one page.

CREATE TABLE threads (
    number INTEGER PRIMARY KEY,
    thread BLOB NOT NULL,
    labels BLOB NOT NULL,
    status TEXT NOT NULL,
    born INTEGER NOT NULL
);
CREATE UNIQUE INDEX threads_by_birth ON threads (born);
CREATE INDEX threads_by_status ON threads (status, born);

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

-- The commit of one row is one statement, an insert into this view: it replaces the head if it is the expected one (and
-- neither labels nor status change), and adds the row. One statement instead of four is what makes a save cost little
-- more than a bare insert.
CREATE VIEW swaps AS
    SELECT 0 AS number, x'' AS expected, x'' AS head, x'' AS labels, '' AS status,
           0 AS id, 0 AS back, x'' AS digest, x'' AS header, x'' AS body;

CREATE TRIGGER swap_head INSTEAD OF INSERT ON swaps BEGIN
    UPDATE rows SET header = NEW.head
     WHERE id = (NEW.number << 28 | 268435455) AND header = NEW.expected
       AND EXISTS (SELECT 1 FROM threads WHERE number = NEW.number AND labels = NEW.labels AND status = NEW.status);
    SELECT RAISE (ABORT, 'refused') WHERE changes () = 0;
    INSERT OR REPLACE INTO rows (id, back, digest, header, body)
    VALUES (NEW.id, NEW.back, NEW.digest, NEW.header, NEW.body);
END;
