-- The agenda: which threads are due, for processes that look for work. An entry follows from the thread's head, and is
-- written in the swap that changes it; appends and renewals of a lease do not touch it. `due` is in microseconds since 1970.
CREATE TABLE agenda (
    number INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    route BLOB NOT NULL,
    priority INTEGER NOT NULL,
    lane BLOB NOT NULL,
    held INTEGER NOT NULL,
    due INTEGER NOT NULL
);
CREATE INDEX agenda_by_due ON agenda (queue, held, priority DESC, due, route);
CREATE INDEX agenda_by_lane ON agenda (queue, priority, lane, due, route) WHERE held = 0;
-- A rate that processes share: the time at which it is paid off, in microseconds since 1970.
CREATE TABLE buckets (bucket BLOB PRIMARY KEY, paid_off INTEGER NOT NULL) WITHOUT ROWID;
