UPDATE events SET data = (
    SELECT json_object(
        'id', messages.id, 'sessionId', messages.session_id, 'sequence', messages.sequence, 'turnId', messages.turn_id,
        'role', messages.role, 'content', json(messages.content), 'toolCallId', messages.tool_call_id,
        'createdAt', strftime('%Y-%m-%dT%H:%M:%fZ', messages.created_at / 1000.0, 'unixepoch'))
    FROM messages WHERE messages.session_id = events.session_id AND messages.sequence = events.message_sequence)
    WHERE message_sequence IS NOT NULL;
ALTER TABLE events DROP COLUMN message_sequence;

DROP INDEX sessions_by_time;
CREATE INDEX sessions_by_time ON sessions (created_at);

CREATE TABLE messages_unnumbered (
    id            TEXT    NOT NULL PRIMARY KEY,
    session_id    TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL,
    turn_id       TEXT    REFERENCES turns (id) ON DELETE CASCADE,
    role          TEXT    NOT NULL CHECK (role IN ('user', 'agent', 'tool_call', 'tool_result', 'system')),
    content       TEXT    NOT NULL CHECK (json_valid(content)),
    tool_call_id  TEXT,
    created_at    INTEGER NOT NULL,
    UNIQUE (session_id, sequence)
) STRICT;

INSERT INTO messages_unnumbered (id, session_id, sequence, turn_id, role, content, tool_call_id, created_at)
    SELECT id, session_id, sequence, turn_id, role, content, tool_call_id, created_at FROM messages ORDER BY row;
DROP TABLE messages;
ALTER TABLE messages_unnumbered RENAME TO messages;

CREATE INDEX messages_by_time ON messages (session_id, created_at);
CREATE INDEX messages_by_turn ON messages (turn_id);
