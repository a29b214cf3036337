-- Lighter rows: what every prompt and every answer writes and nobody reads is gone. A commit writes whole pages of 4 KiB, and
-- an index that is touched is a page; so are the books that AUTOINCREMENT keeps.
--
-- Constraints are taken out of the schema's text, as https://www.sqlite.org/lang_altertable.html#otheralter allows where no
-- row has to change: a store has gigabytes of messages. RESET has this connection read the schema again.
PRAGMA writable_schema = ON;
-- The content is made by one JSON writer and nothing else; to parse it again kept the end of a long answer waiting. Messages
-- go with their session, and turns are never deleted without it.
UPDATE sqlite_schema SET sql = replace(replace(sql,
    'content       TEXT    NOT NULL CHECK (json_valid(content))', 'content       TEXT    NOT NULL'),
    'turn_id       TEXT    REFERENCES turns (id) ON DELETE CASCADE', 'turn_id       TEXT')
    WHERE type = 'table' AND name = 'messages';
UPDATE sqlite_schema SET sql = replace(sql, 'PRIMARY KEY AUTOINCREMENT', 'PRIMARY KEY')
    WHERE type = 'table' AND name = 'events';
PRAGMA writable_schema = RESET;

DROP INDEX messages_by_turn;

-- An event's id is the cursor over all sessions and must never be given twice. Ids are given by the writer, above the
-- greatest in the log and above this, which is as high as the log was when a session was last deleted. Compaction does not
-- take the newest event.
ALTER TABLE maintenance ADD COLUMN purged_through INTEGER NOT NULL DEFAULT 0;
UPDATE maintenance SET purged_through = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0);
DELETE FROM sqlite_sequence WHERE name = 'events';

CREATE TRIGGER sessions_leave_their_ids BEFORE DELETE ON sessions
BEGIN
    UPDATE maintenance SET purged_through = max(purged_through, coalesce((SELECT max(id) FROM events), 0));
END;

-- A turn is looked for in its session, so one index does. `row` is the order in which turns were accepted, whatever the
-- clock did.
CREATE TABLE turns_in_sessions (
    row                  INTEGER NOT NULL PRIMARY KEY,
    id                   TEXT    NOT NULL,
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
    finished_sequence    INTEGER,
    UNIQUE (session_id, id)
) STRICT;

INSERT INTO turns_in_sessions
    SELECT rowid, id, session_id, status, stop_reason, error_code, error_message, queued_at, started_at,
        cancel_requested_at, finished_at, usage, context, started_sequence, finished_sequence
    FROM turns ORDER BY rowid;
DROP TABLE turns;
ALTER TABLE turns_in_sessions RENAME TO turns;

CREATE INDEX turns_open ON turns (status) WHERE status IN ('queued', 'running');
CREATE TRIGGER turns_are_compacted_later AFTER UPDATE OF status ON turns
WHEN new.status NOT IN ('queued', 'running')
BEGIN
    INSERT INTO compaction (session_id, due, seen_through, compacted_through) VALUES (new.session_id, 1, 0, 0)
        ON CONFLICT (session_id) DO UPDATE SET due = 1 WHERE due = 0;
END;
