ALTER TABLE sessions DROP COLUMN sandbox;
