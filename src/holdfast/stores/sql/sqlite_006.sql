-- The first schema: versions before this one were never released. A thread has a number: a hash of its key below 2^28, or the next number
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

-- The agenda: which threads are due, for processes that look for work. An entry follows from the thread's head, and is
-- written in the swap that changes it; appends and renewals of a lease do not touch it. `place` is the namespace and the
-- queue. Times are microseconds since 1970; 1152921504606846976 means: only an answer makes it due. A look searches for
-- its own routes alone: what other programs have queued costs it nothing.
CREATE TABLE agenda (
    number INTEGER PRIMARY KEY,
    place BLOB NOT NULL,
    route BLOB NOT NULL,
    priority INTEGER NOT NULL,
    lane BLOB NOT NULL,
    held INTEGER NOT NULL,
    due INTEGER NOT NULL
);
CREATE INDEX agenda_by_due ON agenda (place, route, due) WHERE held = 0;
CREATE INDEX agenda_by_lane ON agenda (place, route, priority, lane, due) WHERE held = 0 AND due < 1152921504606846976;
CREATE INDEX agenda_held ON agenda (place, due, route, lane) WHERE held = 1;

-- A rate that processes share: the time at which it is paid off, in microseconds since 1970.
CREATE TABLE buckets (bucket BLOB PRIMARY KEY, paid_off INTEGER NOT NULL) WITHOUT ROWID;

-- Every thread with its head: nothing where the last row is none.
CREATE VIEW heads AS
    SELECT number, thread, status, labels, birth, rows.id AS head_id, rows.header AS head
      FROM threads LEFT JOIN rows
        ON rows.id = (SELECT last.id FROM rows AS last
                       WHERE last.id BETWEEN number << 28 AND number << 28 | 268435455 ORDER BY last.id DESC LIMIT 1)
       AND rows.back = rows.id & 268435455 AND rows.digest = x'' AND typeof (rows.header) = 'blob';
