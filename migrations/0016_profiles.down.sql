-- Sessions keep what they have of their profiles, and go on. The older program knows two policies, the profile's and the session's:
-- what the base granted takes the profile's place, so that nothing is widened beyond the configuration. A session that has not
-- another policy has its profile's already.
UPDATE sessions SET profile = json_remove(
    json_set(profile, '$.permissions', json_extract(profile, '$.basePermissions')), '$.basePermissions')
WHERE json_extract(profile, '$.basePermissions') IS NOT NULL;

ALTER TABLE sessions DROP COLUMN instructions_owed;
DROP TABLE profiles;
DROP INDEX agents_by_id;
ALTER TABLE agents DROP COLUMN id;
