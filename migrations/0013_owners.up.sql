-- Whose workspaces are, and who did what.

-- A directory is registered once for each user who works in it; no user is the daemon's own. SQLite drops no constraint, so
-- the table is made anew. Sessions refer to it, and until it is filled again they refer to nothing: that is looked at when
-- the transaction ends.
PRAGMA defer_foreign_keys = ON;

CREATE TABLE workspaces_kept AS SELECT id, path, created_at, device, inode, born_at FROM workspaces;
DROP TABLE workspaces;
CREATE TABLE workspaces (
    id          TEXT    NOT NULL PRIMARY KEY,
    path        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    device      INTEGER,
    inode       INTEGER,
    born_at     INTEGER,
    owner_uid   INTEGER
) STRICT;
-- Whose sessions are in it has it: the daemon's own user, if that is one of them or there are none.
INSERT INTO workspaces (id, path, created_at, device, inode, born_at, owner_uid)
    SELECT id, path, created_at, device, inode, born_at, (
        SELECT owner_uid FROM sessions WHERE workspace_id = workspaces_kept.id ORDER BY owner_uid NULLS FIRST LIMIT 1)
    FROM workspaces_kept ORDER BY id;
DROP TABLE workspaces_kept;

-- Nobody is a user like any other here: two NULLs would be two.
CREATE UNIQUE INDEX workspaces_by_path ON workspaces (path, ifnull(owner_uid, -1));
CREATE INDEX workspaces_by_owner ON workspaces (owner_uid, id);

-- The others get one each: its id is of the same time, and has an end of its own.
INSERT INTO workspaces (id, path, created_at, device, inode, born_at, owner_uid)
    SELECT substr(firsts.id, 1, 24) || lower(hex(randomblob(6))), firsts.path, firsts.created_at, firsts.device,
        firsts.inode, firsts.born_at, others.owner_uid
    FROM (SELECT DISTINCT workspace_id, owner_uid FROM sessions) AS others
    JOIN workspaces AS firsts ON firsts.id = others.workspace_id AND firsts.owner_uid IS NOT others.owner_uid;
UPDATE sessions SET workspace_id = (
    SELECT theirs.id FROM workspaces AS firsts JOIN workspaces AS theirs ON theirs.path = firsts.path
    WHERE firsts.id = sessions.workspace_id AND theirs.owner_uid IS sessions.owner_uid)
WHERE owner_uid IS NOT (SELECT owner_uid FROM workspaces WHERE workspaces.id = sessions.workspace_id);

-- All that a list of one user's sessions is chosen and counted by, in its order.
CREATE INDEX sessions_by_owner ON sessions (owner_uid, created_at, id, status);

-- Whoever wanted a turn to end, for the event that tells of its end: that may come from the next daemon.
ALTER TABLE turns ADD COLUMN cancel_requested_by TEXT
    CHECK (cancel_requested_by IS NULL OR json_valid(cancel_requested_by));

-- Whoever added a message by hand. A prompt's is in `turn.queued`.
ALTER TABLE messages ADD COLUMN made_by TEXT CHECK (made_by IS NULL OR json_valid(made_by));
