DROP TABLE events;
DROP TABLE heartbeat;
DROP TABLE messages;
DROP TABLE turns;
DROP TABLE sessions;
DROP TABLE agents;
DROP TABLE workspaces;
