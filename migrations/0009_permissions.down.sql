-- What rules forbade would be allowed without them, and older versions know three modes only: such a session asks.
UPDATE sessions SET permissions = 'ask'
    WHERE permissions NOT IN ('ask', 'allow', 'deny')
        OR (permissions = 'allow' AND coalesce(json_array_length(policy, '$.rules'), 0) > 0);
DROP TABLE permission_rules;
DROP TABLE permissions;
ALTER TABLE sessions DROP COLUMN policy;
