DROP TABLE permission_rules;
DROP TABLE permissions;
ALTER TABLE sessions DROP COLUMN policy;
