//! The client commands, one file each: what it takes, what it asks of the daemon, what it prints.

pub mod agents;
pub mod answer;
pub mod archive;
pub mod attach;
pub mod backup;
pub mod cancel;
pub mod choice;
pub mod doctor;
pub mod gc;
pub mod ls;
pub mod messages;
pub mod new;
pub mod permissions;
pub mod prompt;
pub mod resume;
pub mod rm;
pub mod rules;
pub mod run;
pub mod search;
pub mod show;
pub mod socket;
pub mod status;
pub mod turns;
pub mod workspaces;
