-- Search and compaction: an index of what messages say, and how far the log has been compacted.

-- How far the work that is done in the background has come: one row.
CREATE TABLE maintenance (
    id                 INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Messages up to this row are in the index, and no others. It is 0 or the row of a message that is there: rows of
    -- deleted messages are given again, but only above the last one.
    indexed_through    INTEGER NOT NULL,
    -- Up to this event over all sessions, deltas may have been removed.
    compacted_through  INTEGER NOT NULL,
    -- The setting with which sessions were last looked through.
    replay_turns       INTEGER NOT NULL
) STRICT;

INSERT INTO maintenance (id, indexed_through, compacted_through, replay_turns) VALUES (1, 0, 0, 0);

-- What a message says to people, without the JSON around it. The index is made of exactly this, and needs exactly this to
-- take a message out again: whoever changes the view must have the index made anew ('delete-all', and indexed_through = 0;
-- FTS5's own 'rebuild' does not take a view over json_tree). The length is bounded, because a message is indexed in one
-- piece while others wait for the writer.
CREATE VIEW message_texts (row, text) AS
    SELECT messages.row, substr(coalesce(CASE messages.content ->> 'type'
        WHEN 'text' THEN messages.content ->> 'text'
        WHEN 'thought' THEN messages.content ->> 'text'
        WHEN 'notice' THEN messages.content ->> 'text'
        WHEN 'plan' THEN (
            SELECT group_concat(step.value ->> 'content', char(10)) FROM json_each(messages.content, '$.steps') AS step)
        WHEN 'tool_call' THEN (
            SELECT group_concat(leaf.atom, char(10)) FROM json_tree(messages.content) AS leaf
            WHERE leaf.type = 'text' AND leaf.fullkey NOT IN ('$.type', '$.id', '$.kind'))
        -- Tool results and blocks: every text in them but the words of the protocol, and what is no text for people.
        ELSE (
            SELECT group_concat(leaf.atom, char(10)) FROM json_tree(messages.content) AS leaf
            WHERE leaf.type = 'text' AND leaf.fullkey <> '$.status'
            AND leaf.key NOT IN ('type', 'mimeType', 'data', 'blob', 'sha256', 'terminalId'))
        END, ''), 1, 65536)
    FROM messages;

-- The texts stay where they are: the index has only words and places. Beginnings of words, of two and of three characters,
-- are in it as words are: without them, what begins with two letters is put together from thousands of words.
CREATE VIRTUAL TABLE message_index USING fts5 (
    text, content = 'message_texts', content_rowid = 'row', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '2 3'
);

CREATE TRIGGER messages_leave_the_index BEFORE DELETE ON messages
WHEN old.row <= (SELECT indexed_through FROM maintenance)
BEGIN
    INSERT INTO message_index (message_index, rowid, text)
        SELECT 'delete', row, text FROM message_texts WHERE row = old.row;
    UPDATE maintenance SET indexed_through = coalesce((SELECT max(row) FROM messages WHERE row < old.row), 0)
        WHERE indexed_through = old.row;
END;

-- How far each session's log has been looked through and compacted.
CREATE TABLE compaction (
    session_id         TEXT    NOT NULL PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    -- Whether a turn has ended since it was looked at.
    due                INTEGER NOT NULL CHECK (due IN (0, 1)),
    seen_through       INTEGER NOT NULL,
    -- Up to this event, deltas may have been removed; from there on the log is complete.
    compacted_through  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX compaction_due ON compaction (due) WHERE due = 1;

INSERT INTO compaction (session_id, due, seen_through, compacted_through) SELECT id, 1, 0, 0 FROM sessions;

CREATE TRIGGER turns_are_compacted_later AFTER UPDATE OF status ON turns
WHEN new.status NOT IN ('queued', 'running')
BEGIN
    INSERT INTO compaction (session_id, due, seen_through, compacted_through) VALUES (new.session_id, 1, 0, 0)
        ON CONFLICT (session_id) DO UPDATE SET due = 1;
END;

-- Where turns begin and end in the log. Few events are in it, so that it costs the others nothing.
CREATE INDEX events_turn_marks ON events (session_id, sequence, type) WHERE type IN ('turn.started', 'turn.completed');
