ALTER TABLE messages DROP COLUMN made_by;
ALTER TABLE turns DROP COLUMN cancel_requested_by;
DROP INDEX sessions_by_owner;

-- A directory has one row again: that of whoever registered it first.
UPDATE sessions SET workspace_id = (
    SELECT min(first.id) FROM workspaces JOIN workspaces AS first ON first.path = workspaces.path
    WHERE workspaces.id = sessions.workspace_id);

PRAGMA defer_foreign_keys = ON;
CREATE TABLE workspaces_kept AS SELECT min(id) AS id, path, created_at, device, inode, born_at FROM workspaces GROUP BY path;
DROP TABLE workspaces;
CREATE TABLE workspaces (
    id          TEXT    NOT NULL PRIMARY KEY,
    path        TEXT    NOT NULL UNIQUE,
    created_at  INTEGER NOT NULL
, device INTEGER, inode INTEGER, born_at INTEGER) STRICT;
INSERT INTO workspaces (id, path, created_at, device, inode, born_at)
    SELECT id, path, created_at, device, inode, born_at FROM workspaces_kept ORDER BY id;
DROP TABLE workspaces_kept;
