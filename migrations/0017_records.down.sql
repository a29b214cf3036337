DROP TABLE record_moments;
DROP TABLE record_observations;
DROP TABLE record_entities;
ALTER TABLE sessions DROP COLUMN restored_from;
DROP TABLE checkpoints;
