-- Which directory a workspace was when it was last worked in: its path alone does not tell when another one is put there.
-- `born_at` is in nanoseconds since the epoch, where the file system knows it. Workspaces from before have none of it, and
-- get it with the next process.

ALTER TABLE workspaces ADD COLUMN device INTEGER;
ALTER TABLE workspaces ADD COLUMN inode INTEGER;
ALTER TABLE workspaces ADD COLUMN born_at INTEGER;
