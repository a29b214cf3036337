-- The data of media is in the copy that is made before a migration; messages keep its name and size.
DROP TABLE waiting_messages;
DROP TABLE message_blobs;
DROP TABLE blobs;
ALTER TABLE sessions DROP COLUMN prompt_abilities;
