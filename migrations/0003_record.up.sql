-- The record: messages have a number that a copy of the database keeps, and the log does not repeat them.

-- `row` is what other tables can refer to: rowids that nobody names are given anew when a database is copied by VACUUM.
CREATE TABLE messages_numbered (
    row           INTEGER NOT NULL PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    session_id    TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL,
    turn_id       TEXT    REFERENCES turns (id) ON DELETE CASCADE,
    role          TEXT    NOT NULL CHECK (role IN ('user', 'agent', 'tool_call', 'tool_result', 'system')),
    content       TEXT    NOT NULL CHECK (json_valid(content)),
    tool_call_id  TEXT,
    created_at    INTEGER NOT NULL,
    UNIQUE (session_id, sequence)
) STRICT;

INSERT INTO messages_numbered (id, session_id, sequence, turn_id, role, content, tool_call_id, created_at)
    SELECT id, session_id, sequence, turn_id, role, content, tool_call_id, created_at FROM messages ORDER BY rowid;
DROP TABLE messages;
ALTER TABLE messages_numbered RENAME TO messages;

-- There is none by time any more: messages are read by their sequence, and every index is written with every prompt.
CREATE INDEX messages_by_turn ON messages (turn_id);

-- With the id, by which sessions of one millisecond are ordered: a list is then read in its order.
DROP INDEX sessions_by_time;
CREATE INDEX sessions_by_time ON sessions (created_at, id);

-- A `message.created` event names its message, whose row has the rest; `data` is then empty.
ALTER TABLE events ADD COLUMN message_sequence INTEGER;
