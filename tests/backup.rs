//! Backups of the store, made while it is in use: complete, checked, private, and restored as docs/operations.md says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod documents;
mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use documents::Page;
use harness::{Daemon, Disk, Reader, echo, within};
use serde_json::{Value, json};

/// An image of one pixel.
const PIXEL: &[u8] = b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0";

fn flooding() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"flood": {"count": 5000, "text": "chunk {} "}}, {"gate": "end"}
    ]}]}])
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn gapless(numbers: impl Iterator<Item = i64>) -> usize {
    let numbers: Vec<i64> = numbers.collect();
    assert_eq!(numbers, (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>(), "without a gap");
    numbers.len()
}

#[tokio::test]
async fn a_copy_made_in_the_middle_of_a_flood_is_good_to_go_on_from() {
    let mut daemon = Daemon::builder().agent("flooding", flooding()).start().await;
    let session = daemon.create_session("flooding").await;
    let mut stream = daemon.events(&session, None).await;
    let running = daemon.prompt(&session, "first").await;
    let queued = daemon.prompt(&session, "second").await;
    stream.until("message.delta").await;
    let copy = daemon.root().join("copy.db");
    let made = daemon.post("/v1/backup", json!({"path": copy})).await.expect_status(201);
    let metadata = std::fs::metadata(&copy).unwrap();
    assert_eq!((&made["path"], &made["bytes"]), (&json!(copy), &json!(metadata.len())));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(made["schemaVersion"].as_i64().unwrap() > 0 && made["durationMs"].is_u64(), "{made}");
    // The daemon went on meanwhile, and does.
    daemon.gate("flooding").reached("end").await.open().await;
    assert_eq!(daemon.wait_turn(&session, running["turnId"].as_str().unwrap()).await["status"], "completed");
    daemon.kill().await;

    let state = daemon.state_dir().to_owned();
    let aside = daemon.root().join("aside");
    std::fs::create_dir(&aside).unwrap();
    for name in names(&state).into_iter().filter(|name| name.starts_with("acpd.db")) {
        std::fs::rename(state.join(&name), aside.join(&name)).unwrap();
    }
    std::fs::copy(&copy, state.join("acpd.db")).unwrap();
    daemon.restart().await;
    let turn = daemon.wait_turn(&session, running["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "interrupted", "it was running when the copy was made: {turn}");
    daemon.gate("flooding").reached("end").await.open().await;
    let turn = daemon.wait_turn(&session, queued["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(&session).await;
    gapless(messages.iter().map(|message| message["sequence"].as_i64().unwrap()));
    let prompts: Vec<&Value> = messages
        .iter()
        .filter(|message| message["role"] == "user")
        .map(|message| &message["content"]["text"])
        .collect();
    assert_eq!(prompts, ["first", "second"]);
    let events = daemon.events_so_far(&session, None).await;
    assert!(gapless(events.iter().map(|event| event.id)) > messages.len());
    daemon.logged("the database has no errors").await;
}

/// The commands of a section of docs/operations.md.
fn documented(section: &str) -> Vec<String> {
    let blocks = Page::read("docs/operations.md").blocks().into_iter();
    let blocks = blocks.filter(|block| block.section == section && block.language == "sh");
    blocks.map(|block| block.text).collect()
}

/// Runs commands in a shell of a reader's, who has the demo agent as the default agent.
async fn shell(reader: &Reader, commands: &str) -> std::process::Output {
    let mut sh = reader.command("sh");
    sh.args(["-eu", "-c", commands]).env("ACPD_SESSIONS_AGENT", "demo").stdin(Stdio::null());
    within(commands, sh.output()).await.unwrap()
}

async fn typed(reader: &Reader, commands: &str) -> String {
    let output = shell(reader, commands).await;
    assert!(output.status.success(), "{commands}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Each session with everything that its export has, except its status.
async fn exports(reader: &Reader) -> Vec<Value> {
    let list: Value = serde_json::from_str(&typed(reader, "acpd ls --all --json").await).unwrap();
    let mut exports = Vec::new();
    for session in list["sessions"].as_array().unwrap() {
        let id = session["id"].as_str().unwrap();
        let mut export: Value = serde_json::from_str(&typed(reader, &format!("acpd export {id}")).await).unwrap();
        export["session"] = json!(id);
        exports.push(export);
    }
    exports
}

#[tokio::test]
async fn a_damaged_store_is_restored_with_the_documented_commands() {
    let reader = Reader::new();
    std::fs::write(reader.home().join("pixel.gif"), PIXEL).unwrap();
    typed(&reader, "acpd run hello; acpd checkpoint create - half --state '{}'").await;
    // The demo agent takes no images, so the turn fails (exit code 4). The image is stored with the prompt, because the
    // agent has not yet started and said so; else the prompt would be refused.
    typed(&reader, "acpd prompt $(acpd new --lazy) --attach pixel.gif look || test $? = 4").await;
    let before = exports(&reader).await;
    assert!(before.len() == 2 && before.iter().any(|export| export["blobs"][0]["size"] == PIXEL.len()), "{before:?}");
    let [back_up] = documented("Back up").try_into().expect("one block makes a backup");
    let backup = typed(&reader, &format!("{back_up}echo; echo $BACKUP")).await.lines().last().unwrap().to_owned();

    // Work that the backup does not have.
    typed(&reader, "acpd prompt - 'after the backup'; acpd run 'after the backup, too'").await;
    assert_ne!(exports(&reader).await, before);
    let [stop, replace, start] = documented("Restore a backup").try_into().expect("three blocks restore a backup");
    typed(&reader, &stop).await;
    let state = reader.home().join(".local/state/acpd");
    let database = std::fs::OpenOptions::new().write(true).open(state.join("acpd.db")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&database, &[0x55; 4096], 0).unwrap();
    let refused = shell(&reader, &start).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not a database"), "{refused:?}");

    typed(&reader, &format!("BACKUP={backup}\n{replace}")).await;
    assert_eq!(std::fs::metadata(state.join("acpd.db")).unwrap().permissions().mode() & 0o777, 0o600);
    typed(&reader, &start).await;
    assert_eq!(exports(&reader).await, before);
    typed(&reader, "acpd prompt - 'go on'").await;
}

#[tokio::test]
async fn the_command_makes_the_path_absolute_and_tells_what_was_written() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let told = daemon.cli(&["backup", "copy.db"]).await.success();
    let path = daemon.workspace().join("copy.db");
    assert!(told.starts_with(&format!("{} (", path.display())) && told.contains("schema version"), "{told}");
    let made = daemon.cli(&["backup", "other.db", "--json"]).await.json();
    assert_eq!(made["path"], json!(daemon.workspace().join("other.db")));
    let before = std::fs::read(&path).unwrap();
    let again = daemon.cli(&["backup", "copy.db"]).await;
    assert!(again.code == 1 && again.stderr.contains("already exists"), "{again:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before, "nothing is replaced");
    assert_eq!(names(daemon.workspace()), ["copy.db", "other.db"], "nothing else is left");
}

#[tokio::test]
async fn a_copy_that_cannot_be_made_is_refused_and_leaves_nothing() {
    let daemon = Daemon::start().await;
    let directory = daemon.root().join("copies");
    std::fs::create_dir(&directory).unwrap();
    let there = directory.join("there");
    std::fs::write(&there, "mine").unwrap();
    std::os::unix::fs::symlink("/nowhere", directory.join("link")).unwrap();
    let refusals = [
        (json!({"path": "copy.db"}), 400, "invalid_request"),
        (json!({"path": "/"}), 400, "invalid_request"),
        (json!({"path": directory.join("missing/copy.db")}), 400, "invalid_request"),
        (json!({"path": there.join("copy.db")}), 400, "invalid_request"),
        (json!({"path": directory.join("copy.db"), "force": true}), 400, "invalid_request"),
        (json!({}), 400, "invalid_request"),
        (json!({"path": there}), 409, "file_exists"),
        (json!({"path": directory.join("link")}), 409, "file_exists"),
    ];
    for (body, status, error) in refusals {
        let refused = daemon.post("/v1/backup", body).await.expect_status(status);
        assert_eq!(refused["error"], error, "{refused}");
        assert!(!refused["hint"].as_str().unwrap().is_empty());
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
    assert_eq!(names(&directory), ["link", "there"]);
}

#[tokio::test]
async fn a_copy_without_room_for_it_is_507_and_leaves_nothing() {
    let daemon = Daemon::start().await;
    let directory = daemon.root().join("small");
    std::fs::create_dir(&directory).unwrap();
    let Some(_disk) = Disk::mount(&directory, "32k") else { return };
    let refused = daemon.post("/v1/backup", json!({"path": directory.join("copy.db")})).await.expect_status(507);
    assert_eq!(refused["error"], "insufficient_storage");
    assert_eq!(refused["details"]["directory"], json!(directory));
    assert!(refused["hint"].as_str().unwrap().contains("another disk"), "{refused}");
    assert!(names(&directory).is_empty());
}

#[tokio::test]
async fn a_migration_without_room_for_its_copy_is_refused_and_leaves_nothing() {
    let builder = Daemon::builder().config("[store]\nfree_min = \"1MiB\"\nreserve = 0\n").agent("echo", echo());
    let Some(disk) = Disk::mount(builder.state_dir(), "24m") else { return };
    let mut daemon = builder.start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    daemon.sql("CREATE TABLE ballast AS SELECT randomblob(4 << 20) AS bytes".to_owned()).await;
    daemon.terminate().await;
    let (state, filler) = (daemon.state_dir().to_owned(), daemon.state_dir().join("others"));
    // Enough for the copy, and not for as much again.
    std::fs::write(&filler, vec![1; 13 << 20]).unwrap();
    let migrate = ["migrate", "--down", "6", "--state-dir", state.to_str().unwrap()];
    let refused = daemon.cli(&migrate).await;
    assert_eq!(refused.code, 8, "{refused:?}");
    assert!(
        refused.stderr.contains("the migration of the database needs")
            && refused.stderr.contains("hint: free some space")
    );
    assert!(names(&state.join("backups")).is_empty(), "nothing of the copy is left");
    std::fs::remove_file(&filler).unwrap();
    daemon.cli(&migrate).await.success();
    let copies = names(&state.join("backups"));
    assert!(copies.len() == 1 && !copies[0].contains("partial"), "{copies:?}");
    daemon.restart().await;
    assert_eq!(daemon.messages(&session).await.len(), 2);
    // The directory that the daemon deletes must no longer be a mount point.
    drop(disk);
}
