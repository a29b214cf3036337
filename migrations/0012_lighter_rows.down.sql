CREATE TABLE turns_by_id (
    id                   TEXT    NOT NULL PRIMARY KEY,
    session_id           TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    status               TEXT    NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled', 'interrupted')),
    stop_reason          TEXT,
    error_code           TEXT,
    error_message        TEXT,
    queued_at            INTEGER NOT NULL,
    started_at           INTEGER,
    cancel_requested_at  INTEGER,
    finished_at          INTEGER,
    usage                TEXT    CHECK (usage IS NULL OR json_valid(usage)),
    context              TEXT    CHECK (context IS NULL OR json_valid(context)),
    started_sequence     INTEGER,
    finished_sequence    INTEGER
) STRICT;

INSERT INTO turns_by_id (rowid, id, session_id, status, stop_reason, error_code, error_message, queued_at, started_at,
        cancel_requested_at, finished_at, usage, context, started_sequence, finished_sequence)
    SELECT row, id, session_id, status, stop_reason, error_code, error_message, queued_at, started_at,
        cancel_requested_at, finished_at, usage, context, started_sequence, finished_sequence
    FROM turns ORDER BY row;
DROP TABLE turns;
ALTER TABLE turns_by_id RENAME TO turns;

CREATE INDEX turns_by_session ON turns (session_id, id);
CREATE INDEX turns_open ON turns (status) WHERE status IN ('queued', 'running');
CREATE TRIGGER turns_are_compacted_later AFTER UPDATE OF status ON turns
WHEN new.status NOT IN ('queued', 'running')
BEGIN
    INSERT INTO compaction (session_id, due, seen_through, compacted_through) VALUES (new.session_id, 1, 0, 0)
        ON CONFLICT (session_id) DO UPDATE SET due = 1 WHERE due = 0;
END;

CREATE INDEX messages_by_turn ON messages (turn_id);

PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(replace(sql,
    'content       TEXT    NOT NULL', 'content       TEXT    NOT NULL CHECK (json_valid(content))'),
    'turn_id       TEXT', 'turn_id       TEXT    REFERENCES turns (id) ON DELETE CASCADE')
    WHERE type = 'table' AND name = 'messages';
UPDATE sqlite_schema SET sql = replace(sql, 'PRIMARY KEY', 'PRIMARY KEY AUTOINCREMENT')
    WHERE type = 'table' AND name = 'events';
PRAGMA writable_schema = RESET;

DELETE FROM sqlite_sequence WHERE name = 'events';
INSERT INTO sqlite_sequence (name, seq)
    SELECT 'events', max(purged_through, coalesce((SELECT max(id) FROM events), 0)) FROM maintenance;
DROP TRIGGER sessions_leave_their_ids;
ALTER TABLE maintenance DROP COLUMN purged_through;
