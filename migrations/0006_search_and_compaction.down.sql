DROP INDEX events_turn_marks;
DROP TRIGGER turns_are_compacted_later;
DROP TABLE compaction;
DROP TRIGGER messages_leave_the_index;
DROP TABLE message_index;
DROP VIEW message_texts;
DROP TABLE maintenance;
