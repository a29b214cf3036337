ALTER TABLE workspaces DROP COLUMN born_at;
ALTER TABLE workspaces DROP COLUMN inode;
ALTER TABLE workspaces DROP COLUMN device;
