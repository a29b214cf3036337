-- The context that tools give their sessions, and the keys by which a request that comes again is recognized.

ALTER TABLE sessions ADD COLUMN context TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(context));
-- Whether the agent has yet to be shown what the context names.
ALTER TABLE sessions ADD COLUMN links_owed INTEGER NOT NULL DEFAULT 0;
-- What a prompt names in place of it, for itself alone.
ALTER TABLE turns ADD COLUMN context TEXT CHECK (context IS NULL OR json_valid(context));

-- `scope` is the session that was asked, and empty when a session was made; `session_id` is the one that was meant or made.
CREATE TABLE idempotency_keys (
    uid         INTEGER NOT NULL,
    route       TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    body_hash   BLOB    NOT NULL,
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn_id     TEXT,
    message_id  TEXT,
    position    INTEGER NOT NULL,
    after       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (uid, route, scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_session ON idempotency_keys (session_id);
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (created_at);
