//! The store through its own door: migrations, the writer, what it refuses.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions;

use super::*;
use crate::config::Config;
use crate::model::session::DirectoryIdentity;
use crate::model::{
    Chosen, Content, EventBody, MessageId, Peer, PermissionMode, Policy, Role, SessionContext, SessionId,
    SessionLimits, SessionStatus, Sight, Timestamp, TurnId, TurnStatus, WorkspaceId,
};

pub(super) fn options(directory: &Path) -> StoreOptions {
    StoreOptions {
        database: directory.join("state/acpd.db"),
        backups: directory.join("state/backups"),
        settings: Config::default().store,
    }
}

/// Nobody listens.
struct Nobody;

impl Audience for Nobody {
    fn keep(&self, _: Vec<Appended>) {}
    fn tell(&self, _: &[Head]) {}
}

struct Panicking;

impl Audience for Panicking {
    fn keep(&self, _: Vec<Appended>) {
        panic!("as a test");
    }

    fn tell(&self, _: &[Head]) {}
}

pub(super) async fn open(directory: &Path) -> (Store, Writer) {
    Store::open(&options(directory), Nobody, Arc::default()).await.expect("the store opens")
}

/// A session to write to.
pub(super) async fn session(writer: &Writer) -> SessionId {
    let (session, workspace_id) = (SessionId::new(), WorkspaceId::new());
    let profile = Config::default().agents["demo"].clone();
    let new = NewSession {
        workspace_id,
        workspace: format!("/{workspace_id}"),
        profile: profile.freeze(),
        mcp_servers: None,
        permissions: Policy::of(PermissionMode::Ask),
        title: "t".into(),
        tags: vec!["a".into()],
        limits: SessionLimits::default(),
        chosen: Chosen::default(),
        context: SessionContext::default(),
        owner_uid: None,
        by: None,
    };
    let identity = DirectoryIdentity { device: 1, inode: 2, born_at: None };
    let unit = Unit {
        catalogue: vec![
            Catalogue::AddWorkspace { id: workspace_id, path: format!("/{workspace_id}"), owner: None, identity },
            Catalogue::SetAgents(vec![profile]),
        ],
        ops: vec![(session, Op::CreateSession(Box::new(new)))],
    };
    writer.append(unit).await.expect("a session is created");
    session
}

pub(super) fn text(turn: Option<TurnId>, role: Role, text: &str) -> Op {
    Op::Message(NewMessage::new(MessageId::new(), turn, role, &Content::text(text)))
}

fn finished(turn: TurnId, status: TurnStatus) -> Op {
    Op::FinishTurn { turn, status, stop_reason: Some("x".into()), error: None, usage: None, at: None }
}

#[tokio::test]
async fn the_schema_goes_up_and_down_with_a_copy_before_each_change() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let up = migrate(&options, Direction::Up).await.unwrap();
    assert_eq!(up.from, 0);
    assert!(!options.backups.exists(), "an empty database needs no copy");
    assert_eq!(migrate(&options, Direction::Up).await.unwrap().from, up.to, "nothing is left to do");

    let down = migrate(&options, Direction::DownTo(0)).await.unwrap();
    assert_eq!((down.from, down.to), (up.to, 0));
    let copies: Vec<_> = std::fs::read_dir(&options.backups).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(copies.len(), 1);
    let mode = std::fs::metadata(&copies[0]).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(matches!(migrate(&options, Direction::DownTo(9)).await, Err(StoreError::Refused(_))));
    migrate(&options, Direction::Up).await.unwrap();
}

#[tokio::test]
async fn what_is_left_of_unfinished_copies_goes_at_the_start_and_counts_as_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.settings.backups = 2;
    migrate(&options, Direction::Up).await.unwrap();
    migrate(&options, Direction::DownTo(0)).await.unwrap();
    let names = || {
        let entries = std::fs::read_dir(&options.backups).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let whole = names();
    assert_eq!(whole.len(), 1);
    for left in [
        ".9-schema-7.db.x.partial",
        ".9-schema-7.db.x.partial-journal",
        ".9-schema-6.db.x.partial-journal",
        "9-schema-7.db",
        "9-schema-7.db-journal",
        "9-schema-8.db",
    ] {
        let text = if left == "9-schema-8.db" { "" } else { "left" };
        std::fs::write(options.backups.join(left), text).unwrap();
    }
    std::fs::write(options.backups.join("mine.db"), "").unwrap();
    migrate(&options, Direction::Up).await.unwrap();
    assert_eq!(
        names(),
        [whole[0].as_str(), "mine.db"],
        "an empty database was not copied, and nothing else was touched"
    );
    std::fs::remove_file(options.backups.join("mine.db")).unwrap();
    migrate(&options, Direction::DownTo(0)).await.unwrap();
    assert_eq!(names().len(), 2, "the whole one was not driven out");
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    migrate(&options, Direction::Up).await.unwrap();
    let mut connection = connect_options(&options.database, &options.settings).connect().await.unwrap();
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'x', 1, x'00', 0)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    let refused = Store::open(&options, Nobody, Arc::default()).await.unwrap_err();
    assert!(matches!(refused, StoreError::NewerSchema { found: 9999, .. }), "{refused}");
    assert!(refused.hint().contains("newer acpd"), "{}", refused.hint());
}

#[tokio::test]
async fn sequences_are_given_per_session_without_gaps_and_go_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (first, second) = (session(&writer).await, session(&writer).await);
    for round in 0..3 {
        for session in [first, second] {
            let committed = writer.append(Unit::one(session, text(None, Role::System, "x"))).await.unwrap();
            assert_eq!(committed.before, [1 + round], "where the log was before");
        }
    }
    store.close().await;
    writer.close().await;

    let (store, writer) = open(directory.path()).await;
    writer.append(Unit::one(first, text(None, Role::System, "y"))).await.unwrap();
    let events = store.events(EventScope::Session(first), 0, 100, 1 << 20).await.unwrap();
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let (messages, total) = store.messages(first, 0, None, 100).await.unwrap();
    assert_eq!((messages.iter().map(|message| message.sequence).collect::<Vec<_>>(), total), (vec![1, 2, 3, 4], 4));
}

#[tokio::test]
async fn a_unit_is_whole_or_not_at_all_and_does_not_fail_its_neighbours() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let session = session(&writer).await;
    let turn = TurnId::new();
    let bad = Unit {
        catalogue: Vec::new(),
        ops: vec![
            (session, text(None, Role::System, "never")),
            (session, Op::StartTurn { turn }), // there is no such turn
        ],
    };
    let good = |what: &str| Unit::one(session, text(None, Role::System, what));
    let (before, refused, after) = tokio::join!(writer.append(good("a")), writer.append(bad), writer.append(good("b")));
    assert!(before.is_ok() && after.is_ok());
    let Err(StoreError::NotCommitted(refused)) = refused else { panic!("{refused:?}") };
    assert!(matches!(*refused, StoreError::Refused(_)), "{refused}");
    let (messages, _) = store.messages(session, 0, None, 10).await.unwrap();
    let texts: Vec<&str> = messages.iter().map(|message| message.content.get()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_eq!(messages[1].sequence, 2, "what was rolled back leaves no gap");
}

#[tokio::test]
async fn a_turn_only_goes_forward_in_the_record_too() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let session = session(&writer).await;
    let turn = TurnId::new();
    let finish = |status| Unit::one(session, finished(turn, status));
    writer.append(Unit::one(session, Op::QueueTurn { turn, position: 0, by: None })).await.unwrap();
    assert!(writer.append(finish(TurnStatus::Completed)).await.is_err(), "a queued turn has not run");
    writer.append(Unit::one(session, Op::StartTurn { turn })).await.unwrap();
    assert!(writer.append(Unit::one(session, Op::StartTurn { turn })).await.is_err(), "nothing runs twice");
    writer.append(finish(TurnStatus::Completed)).await.unwrap();
    assert!(writer.append(finish(TurnStatus::Failed)).await.is_err(), "an end is final");
    assert_eq!(store.turn(session, turn).await.unwrap().unwrap().status, TurnStatus::Completed);
}

/// All that a batch can hold of turns and sessions, more than one of each; and one of them that does not go forward.
#[tokio::test]
async fn a_batch_of_many_turns_is_written_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let sessions = [session(&writer).await, session(&writer).await];
    let turns = [TurnId::new(), TurnId::new(), TurnId::new()];
    let unit = |ops: Vec<Op>| {
        let ops = ops.into_iter().enumerate().map(|(index, op)| (sessions[index % 2], op));
        Unit { catalogue: Vec::new(), ops: ops.collect() }
    };
    let queue = turns.iter().map(|turn| Op::QueueTurn { turn: *turn, position: 0, by: None });
    writer.append(unit(queue.collect())).await.unwrap();
    let start = turns.iter().map(|turn| Op::StartTurn { turn: *turn });
    writer.append(unit(start.collect())).await.unwrap();
    let cancel = turns.iter().map(|turn| Op::RequestCancel { turn: *turn, by: None });
    writer.append(unit(cancel.collect())).await.unwrap();
    let twice = unit([turns[0], turns[1], turns[1]].map(|turn| finished(turn, TurnStatus::Completed)).into());
    assert!(writer.append(twice).await.is_err(), "no turn ends twice");
    let unknown = unit([turns[0], TurnId::new()].map(|turn| finished(turn, TurnStatus::Completed)).into());
    assert!(writer.append(unknown).await.is_err(), "nor does one that is not there");
    writer.append(unit(turns.map(|turn| finished(turn, TurnStatus::Cancelled)).into())).await.unwrap();
    for (index, turn) in turns.into_iter().enumerate() {
        let turn = store.turn(sessions[index % 2], turn).await.unwrap().unwrap();
        assert_eq!((turn.status, turn.stop_reason.as_deref()), (TurnStatus::Cancelled, Some("x")));
    }
}

#[tokio::test]
async fn purging_deletes_everything_of_a_session_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (gone, kept) = (session(&writer).await, session(&writer).await);
    for session in [gone, kept] {
        let turn = TurnId::new();
        writer.append(Unit::one(session, Op::QueueTurn { turn, position: 0, by: None })).await.unwrap();
        writer.append(Unit::one(session, text(Some(turn), Role::User, "x"))).await.unwrap();
    }
    let head = store.head(EventScope::All).await.unwrap();
    writer.append(Unit::one(gone, Op::Purge)).await.unwrap();
    assert!(store.session(gone).await.unwrap().is_none());
    assert!(store.events(EventScope::Session(gone), 0, 10, 1 << 20).await.unwrap().is_empty());
    assert_eq!(store.messages(gone, 0, None, 10).await.unwrap().1, 0);
    assert_eq!(store.turns(gone, 10, 0).await.unwrap().1, 0);
    assert_eq!(store.messages(kept, 0, None, 10).await.unwrap().1, 1);
    let event = Op::Event { turn: None, body: EventBody::TurnStarted {} };
    assert!(writer.append(Unit::one(gone, event)).await.is_err(), "nothing can be written to it");
    let event = Op::Event { turn: None, body: EventBody::TurnStarted {} };
    writer.append(Unit::one(kept, event)).await.unwrap();
    assert!(store.head(EventScope::All).await.unwrap() > head, "a cursor is never given twice");
}

#[tokio::test]
async fn filters_and_counts_agree() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (first, _second) = (session(&writer).await, session(&writer).await);
    let archive =
        Op::SetStatus { from: SessionStatus::Active, to: SessionStatus::Archived, reason: "archive", by: None };
    writer.append(Unit::one(first, archive)).await.unwrap();
    let count = async |statuses: &[SessionStatus]| {
        let filter = SessionFilter { statuses: statuses.to_vec(), ..SessionFilter::default() };
        store.sessions(&filter, 10, 0).await.unwrap().1
    };
    assert_eq!(count(&[]).await, 2);
    assert_eq!(count(&[SessionStatus::Archived]).await, 1);
    let counts = store.count_by_status(Sight::All).await.unwrap();
    assert_eq!((counts["active"], counts["archived"], counts["error"]), (1, 1, 0));
    let tagged = SessionFilter { tag: Some("a".into()), ..SessionFilter::default() };
    assert_eq!(store.sessions(&tagged, 10, 0).await.unwrap().1, 2);
}

#[tokio::test]
async fn a_session_is_found_by_its_title_and_by_either_end_of_its_id() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (one, other) = (session(&writer).await, session(&writer).await);
    for (session, title) in [(one, "fix the test"), (other, "100% of it")] {
        writer
            .append(Unit::one(
                session,
                Op::ChangeSession(SessionChange { title: Some(title.to_owned()), ..Default::default() }),
            ))
            .await
            .unwrap();
    }
    let found = async |name: &str| {
        let filter = SessionFilter { name: Some(name.to_owned()), ..SessionFilter::default() };
        let (sessions, total) = store.sessions(&filter, 10, 0).await.unwrap();
        assert_eq!(i64::try_from(sessions.len()).unwrap(), total);
        sessions.iter().map(|session| session.id).collect::<Vec<_>>()
    };
    let id = one.to_string();
    let bare = id.replace('-', "");
    for name in ["fix the test", &id, &bare, &id[24..], &id[24..32], &id[18..], &bare[20..], &id[24..].to_uppercase()] {
        assert_eq!(found(name).await, [one], "{name}");
    }
    assert_eq!(found(&id[..8]).await, [other, one], "both were made in the same moment");
    assert_eq!(found("100% of it").await, [other]);
    for name in ["", "t", "fix the", "Fix the test", "%", "100%", "____", "----", &id[33..], &id[19..30]] {
        assert_eq!(found(name).await, [], "{name}");
    }
}

#[tokio::test]
async fn a_mark_is_of_one_stay_in_a_status_and_sweeps_are_noted() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (first, second) = (session(&writer).await, session(&writer).await);
    assert!(store.retention_candidates(None, 10).await.unwrap().is_empty(), "active sessions never expire");
    for session in [first, second] {
        let status =
            Op::SetStatus { from: SessionStatus::Active, to: SessionStatus::Suspended, reason: "shutdown", by: None };
        writer.append(Unit::one(session, status)).await.unwrap();
    }
    let turn = TurnId::new();
    writer.append(Unit::one(second, Op::QueueTurn { turn, position: 0, by: None })).await.unwrap();
    let page = store.retention_candidates(None, 1).await.unwrap();
    assert_eq!((page.len(), page[0].id, page[0].queued_turns), (1, first, 0));
    let next = store.retention_candidates(Some(first), 10).await.unwrap();
    assert_eq!((next.len(), next[0].id, next[0].queued_turns), (1, second, 1));

    let seen_at = Some(Timestamp::from_millis(7));
    let mark =
        |session, status_changed_at| Unit::catalogue(Catalogue::MarkExpired { session, status_changed_at, seen_at });
    let marks = async || {
        let page = store.retention_candidates(None, 10).await.unwrap();
        page.into_iter().map(|candidate| candidate.expired_seen_at).collect::<Vec<_>>()
    };
    writer.append(mark(first, page[0].status_changed_at)).await.unwrap();
    writer.append(mark(second, Timestamp::from_millis(1))).await.unwrap();
    assert_eq!(marks().await, [seen_at, None], "a session that has changed since is left alone");
    let resume =
        Op::SetStatus { from: SessionStatus::Suspended, to: SessionStatus::Active, reason: "resume", by: None };
    writer.append(Unit::one(first, resume)).await.unwrap();
    assert_eq!(marks().await, [None], "the mark goes with the status");

    assert_eq!(store.last_sweep().await.unwrap(), None);
    for at in [Timestamp::from_millis(5), Timestamp::from_millis(3)] {
        writer.append(Unit::catalogue(Catalogue::Swept { at })).await.unwrap();
        assert_eq!(store.last_sweep().await.unwrap(), Some(at));
    }
}

#[tokio::test]
async fn closing_commits_what_was_appended_and_refuses_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let session = session(&writer).await;
    let appends = futures_util::future::join_all(
        (0..50).map(|number| writer.append(Unit::one(session, text(None, Role::System, &number.to_string())))),
    );
    let (outcomes, ()) = tokio::join!(appends, writer.close());
    assert!(outcomes.iter().all(Result::is_ok), "what was queued before the close is committed");
    let late = writer.append(Unit::one(session, text(None, Role::System, "late"))).await;
    assert!(matches!(late, Err(StoreError::Closed)));
    assert_eq!(store.messages(session, 0, None, 1).await.unwrap().1, 50);
}

#[tokio::test]
async fn a_full_disk_is_survived() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    migrate(&options, Direction::Up).await.unwrap();
    let space = Arc::new(reserve::Space::new(&options));
    space.start();
    // A database that may not grow fails in the same way as a disk that is full, and SQLite rolls back by itself.
    let small = |durability| {
        let connection = Connection::open(&options.database, &options.settings, durability).unwrap();
        connection.first("", "PRAGMA max_page_count = 200", [], |_| Ok(())).unwrap();
        connection
    };
    let connections = Connections { durable: small(Durability::Full), quick: small(Durability::Normal) };
    let writer = Writer::start(connections, 0, &options.settings, Arc::clone(&space), Nobody, Arc::default()).unwrap();
    let (filled, kept) = (session(&writer).await, session(&writer).await);
    let large = "x".repeat(50_000);
    let full = loop {
        if let Err(error) = writer.append(Unit::one(filled, text(None, Role::System, &large))).await {
            break error;
        }
    };
    assert!(crate::model::error::chain(&full).contains("full"), "{full:?}");
    assert_eq!(full.fault(), Fault::Full);
    assert!(matches!(space.check(), Err(StoreError::ShortOfSpace { .. })), "nothing new is begun");
    assert!(!space.is_writable());
    assert_eq!(std::fs::metadata(directory.path().join("state/reserve")).unwrap().len(), 0, "released the reserve");
    writer.append(Unit::one(filled, Op::Purge)).await.expect("what needs no space still works");
    writer.append(Unit::one(kept, text(None, Role::System, &large))).await.expect("enough disk space again");
    assert!(space.is_writable());
    writer.close().await;
}

#[tokio::test]
async fn suspending_all_meets_whatever_was_changed_before() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (archived, active) = (session(&writer).await, session(&writer).await);
    let archive =
        Op::SetStatus { from: SessionStatus::Active, to: SessionStatus::Archived, reason: "archive", by: None };
    let suspend =
        Catalogue::SetStatusOfAll { from: SessionStatus::Active, to: SessionStatus::Suspended, reason: "shutdown" };
    let (first, second) =
        tokio::join!(writer.append(Unit::one(archived, archive)), writer.append(Unit::catalogue(suspend)));
    assert!(first.is_ok() && second.is_ok());
    let status = async |session| store.session(session).await.unwrap().unwrap().status;
    assert_eq!(status(archived).await, SessionStatus::Archived, "archived is final");
    assert_eq!(status(active).await, SessionStatus::Suspended);
    let last = store.events(EventScope::Session(active), 0, 10, 1 << 20).await.unwrap().pop().unwrap();
    assert_eq!(last.kind, "session.status");
}

#[tokio::test]
async fn a_copy_that_is_abandoned_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let session = session(&writer).await;
    let ops = (0..2000).map(|number| (session, text(None, Role::System, &number.to_string())));
    writer.append(Unit { catalogue: Vec::new(), ops: ops.collect() }).await.unwrap();
    let copies = directory.path().join("copies");
    std::fs::create_dir(&copies).unwrap();
    let count = || std::fs::read_dir(&copies).unwrap().count();

    let gone = futures_util::FutureExt::now_or_never(store.back_up(&copies.join("gone.db")));
    assert!(gone.is_none(), "a client that goes in the middle of it");
    assert_eq!(count(), 0);
    let made = store.back_up(&copies.join("made.db")).await.unwrap();
    assert!(made.bytes > 0);
    store.abandon();
    let abandoned = store.back_up(&copies.join("abandoned.db")).await.unwrap_err();
    assert!(matches!(abandoned, BackupError::Abandoned), "{abandoned:?}");
    assert_eq!(count(), 1);
    store.close().await;
    writer.close().await;
}

#[tokio::test]
async fn a_writer_that_panics_is_lost_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (_store, writer) = Store::open(&options(directory.path()), Panicking, Arc::default()).await.unwrap();
    assert!(matches!(writer.append(Unit::catalogue(Catalogue::Heartbeat)).await, Err(StoreError::Closed)));
    writer.lost().await;
    assert!(matches!(writer.append(Unit::default()).await, Err(StoreError::Closed)));
    assert!(matches!(writer.upkeep(Goal::Everything, Duration::ZERO).await, Err(StoreError::Closed)));
    writer.close().await;
}

#[tokio::test]
async fn lighter_rows_keep_all_that_there_was_on_the_way_back_and_forth() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let (mut store, mut writer) = open(directory.path()).await;
    let (kept, gone) = (session(&writer).await, session(&writer).await);
    let turns = [TurnId::new(), TurnId::new()];
    for (position, turn) in turns.into_iter().enumerate().rev() {
        let ops = [Op::QueueTurn { turn, position, by: None }, text(Some(turn), Role::User, "x")];
        let ops = ops.into_iter().map(|op| (kept, op)).collect();
        writer.append(Unit { catalogue: vec![], ops }).await.unwrap();
    }
    writer.append(Unit::one(kept, Op::StartTurn { turn: turns[1] })).await.unwrap();
    // The newest ids are a deleted session's, and not to be seen in the log any more.
    writer.append(Unit::one(gone, text(None, Role::System, "y"))).await.unwrap();
    writer.append(Unit::one(gone, Op::Purge)).await.unwrap();
    let head = store.head(EventScope::All).await.unwrap();
    for version in [11, 12] {
        store.close().await;
        writer.close().await;
        migrate(&options, Direction::DownTo(version)).await.unwrap();
        (store, writer) = open(directory.path()).await;
        let read: Vec<_> = store.open_turns(kept).await.unwrap().into_iter().map(|turn| turn.id).collect();
        assert_eq!(read, [turns[1], turns[0]], "in the order in which they were accepted");
        assert_eq!(store.messages(kept, 0, None, 10).await.unwrap().1, 2);
        assert_eq!(store.head(EventScope::All).await.unwrap(), head, "no cursor is given twice");
        let heavy = "SELECT count(*) FROM sqlite_schema WHERE name = 'messages' AND sql LIKE '%json_valid(content)%' \
             OR name = 'events' AND sql LIKE '%AUTOINCREMENT%' OR name = 'messages_by_turn'";
        assert_eq!(sqlx::query_scalar::<_, i64>(heavy).fetch_one(&store.pool).await.unwrap(), 0);
    }
    writer.append(Unit::one(kept, finished(turns[1], TurnStatus::Completed))).await.unwrap();
    assert_eq!(store.head(EventScope::All).await.unwrap(), head + 1);
    store.close().await;
    writer.close().await;
}

#[tokio::test]
async fn going_back_to_a_version_without_rules_widens_no_session() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let (store, writer) = open(directory.path()).await;
    let sessions = [session(&writer).await, session(&writer).await, session(&writer).await];
    let rule = r#"{"mode":"allow","rules":[{"decision":"deny","commands":["rm"]}]}"#;
    let policies =
        [serde_json::from_str(rule).unwrap(), Policy::of(PermissionMode::Edit), Policy::of(PermissionMode::Deny)];
    for (session, policy) in sessions.iter().zip(policies) {
        let change = SessionChange { permissions: Some(policy), ..SessionChange::default() };
        writer.append(Unit::one(*session, Op::ChangeSession(change))).await.unwrap();
    }
    store.close().await;
    writer.close().await;
    migrate(&options, Direction::DownTo(8)).await.unwrap();
    let (store, writer) = open(directory.path()).await;
    let mut modes = Vec::new();
    for session in sessions {
        modes.push(store.session(session).await.unwrap().unwrap().permissions.mode);
    }
    assert_eq!(modes, [PermissionMode::Ask, PermissionMode::Ask, PermissionMode::Deny]);
    store.close().await;
    writer.close().await;
}

/// Somebody's session in a directory of its own.
async fn owned_session(writer: &Writer, owner: u32) -> (SessionId, WorkspaceId) {
    let session = session(writer).await;
    let workspace = WorkspaceId::new();
    let identity = DirectoryIdentity { device: 1, inode: 2, born_at: None };
    let add = Catalogue::AddWorkspace { id: workspace, path: "/shared".into(), owner: Some(owner), identity };
    writer.append(Unit::catalogue(add)).await.unwrap();
    (session, workspace)
}

#[tokio::test]
async fn workspaces_are_each_owners_own_and_their_migration_keeps_every_session_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (first, firsts) = owned_session(&writer, 1000).await;
    let (second, seconds) = owned_session(&writer, 1001).await;
    owned_session(&writer, 1001).await;
    let found = store.workspace_by_path("/shared", Some(1001)).await.unwrap().unwrap();
    assert_eq!((found.id, found.owner_uid), (seconds, Some(1001)), "the first one names it");
    assert!(store.workspace_by_path("/shared", None).await.unwrap().is_none());
    let (own, total) = store.workspaces(Sight::Own(Some(1000)), 10, 0).await.unwrap();
    assert_eq!((own.len(), total, own[0].id), (1, 1, firsts));
    assert_eq!(store.workspaces(Sight::All, 10, 0).await.unwrap().1, 5);
    let before = store.session(first).await.unwrap().unwrap().workspace;
    store.close().await;
    writer.close().await;

    let options = options(directory.path());
    let sql = async |statement: String| {
        let mut connection = connect_options(&options.database, &options.settings).connect().await.unwrap();
        let outcome = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await;
        sqlx::Connection::close(connection).await.unwrap();
        outcome.map(drop)
    };
    sql(format!("UPDATE sessions SET workspace_id = '{seconds}' WHERE id = '{second}'")).await.unwrap();
    migrate(&options, Direction::DownTo(11)).await.unwrap();
    let orphan = format!("UPDATE sessions SET workspace_id = 'none' WHERE id = '{second}'");
    assert!(sql(orphan.clone()).await.is_err(), "the reference is still one");
    migrate(&options, Direction::Up).await.unwrap();
    assert!(sql(orphan).await.is_err());
    let (store, writer) = open(directory.path()).await;
    let session = store.session(second).await.unwrap().unwrap();
    assert_eq!((session.workspace_id, session.workspace), (firsts, "/shared".to_owned()), "one row for one directory");
    assert_eq!(store.session(first).await.unwrap().unwrap().workspace, before);
    assert_eq!(store.workspaces(Sight::All, 10, 0).await.unwrap().1, 4);
    store.close().await;
    writer.close().await;
}

#[tokio::test]
async fn whoever_cancels_a_turn_is_named_at_its_end_even_by_another_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let (store, writer) = open(directory.path()).await;
    let (session, turn) = (session(&writer).await, TurnId::new());
    let by = |uid| Some(Arc::new(Peer { uid, pid: Some(7), program: Some("cat".into()) }));
    let cancel = |uid| Op::RequestCancel { turn, by: by(uid) };
    for op in [Op::QueueTurn { turn, position: 0, by: by(1) }, Op::StartTurn { turn }, cancel(2), cancel(3)] {
        writer.append(Unit::one(session, op)).await.unwrap();
    }
    writer.append(Unit::one(session, finished(turn, TurnStatus::Cancelled))).await.unwrap();
    let events = store.events(EventScope::Session(session), 0, 100, 1 << 20).await.unwrap();
    let by = |kind: &str| {
        let event = events.iter().find(|event| event.kind == kind).unwrap();
        serde_json::from_str::<serde_json::Value>(event.data.get()).unwrap()["by"].clone()
    };
    assert_eq!(by("turn.queued"), serde_json::json!({"uid": 1, "pid": 7, "program": "cat"}));
    assert_eq!(by("turn.completed")["uid"], 2, "the first one's intent is what ends it");
    assert_eq!(by("session.created"), serde_json::Value::Null);
}
