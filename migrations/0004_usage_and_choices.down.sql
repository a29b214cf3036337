DROP TABLE announced;
ALTER TABLE messages DROP COLUMN model;
ALTER TABLE sessions DROP COLUMN chosen;
ALTER TABLE sessions DROP COLUMN model;
ALTER TABLE sessions DROP COLUMN mode;
ALTER TABLE sessions DROP COLUMN paused;
ALTER TABLE turns DROP COLUMN usage;
ALTER TABLE sessions DROP COLUMN usage_basis;
ALTER TABLE sessions DROP COLUMN usage;
