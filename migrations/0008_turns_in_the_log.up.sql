-- Where a turn begins and ends in its session's log is on the turn itself, which is written then anyway: an index of its own
-- over the log cost a page in every commit of a prompt.
ALTER TABLE turns ADD COLUMN started_sequence INTEGER;
ALTER TABLE turns ADD COLUMN finished_sequence INTEGER;

UPDATE turns SET
    started_sequence = (
        SELECT max(sequence) FROM events INDEXED BY events_turn_marks
        WHERE events.session_id = turns.session_id AND type IN ('turn.started', 'turn.completed')
            AND type = 'turn.started' AND events.turn_id = turns.id),
    finished_sequence = (
        SELECT max(sequence) FROM events INDEXED BY events_turn_marks
        WHERE events.session_id = turns.session_id AND type IN ('turn.started', 'turn.completed')
            AND type = 'turn.completed' AND events.turn_id = turns.id);

DROP INDEX events_turn_marks;

-- A session that is due already is not made so again.
DROP TRIGGER turns_are_compacted_later;
CREATE TRIGGER turns_are_compacted_later AFTER UPDATE OF status ON turns
WHEN new.status NOT IN ('queued', 'running')
BEGIN
    INSERT INTO compaction (session_id, due, seen_through, compacted_through) VALUES (new.session_id, 1, 0, 0)
        ON CONFLICT (session_id) DO UPDATE SET due = 1 WHERE due = 0;
END;
