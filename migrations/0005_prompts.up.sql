-- Prompts: what is not text is kept once, by its hash; what waits for the next prompt; what agents take in one.

-- JSON, or NULL while no agent of the session has said it yet.
ALTER TABLE sessions ADD COLUMN prompt_abilities TEXT CHECK (prompt_abilities IS NULL OR json_valid(prompt_abilities));

CREATE TABLE blobs (
    sha256      TEXT    NOT NULL PRIMARY KEY,
    size        INTEGER NOT NULL,
    data        BLOB    NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;

-- Which messages refer to a blob, and what they call it. A blob goes with the last of them. The references are looked at
-- when the transaction ends, because messages are inserted many at a time, after what belongs to them.
CREATE TABLE message_blobs (
    row         INTEGER NOT NULL PRIMARY KEY,
    message_id  TEXT    NOT NULL REFERENCES messages (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sha256      TEXT    NOT NULL REFERENCES blobs (sha256) DEFERRABLE INITIALLY DEFERRED,
    mime_type   TEXT    NOT NULL,
    UNIQUE (message_id, sha256)
) STRICT;

CREATE INDEX message_blobs_by_blob ON message_blobs (sha256, row);
CREATE INDEX message_blobs_by_session ON message_blobs (session_id);

-- System messages that the agent gets before the next prompt.
CREATE TABLE waiting_messages (
    message_id  TEXT    NOT NULL PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE
) STRICT;

CREATE INDEX waiting_messages_by_session ON waiting_messages (session_id);
