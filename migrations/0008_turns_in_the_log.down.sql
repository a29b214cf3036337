DROP TRIGGER turns_are_compacted_later;
CREATE TRIGGER turns_are_compacted_later AFTER UPDATE OF status ON turns
WHEN new.status NOT IN ('queued', 'running')
BEGIN
    INSERT INTO compaction (session_id, due, seen_through, compacted_through) VALUES (new.session_id, 1, 0, 0)
        ON CONFLICT (session_id) DO UPDATE SET due = 1;
END;
CREATE INDEX events_turn_marks ON events (session_id, sequence, type) WHERE type IN ('turn.started', 'turn.completed');
ALTER TABLE turns DROP COLUMN finished_sequence;
ALTER TABLE turns DROP COLUMN started_sequence;
