//! Full-text search over messages, and the index that it needs.
//!
//! The index follows behind the messages, so that it costs the writing of messages nothing: it reaches up to
//! `maintenance.indexed_through`, in steps that the writer makes while it is idle. A search has the rest indexed first.
//!
//! A search never takes a connection from the other readers: it has one of its own, one search at a time, in turn
//! ([`super::search_turns`]). It ends when its client goes, or its time is over, and only when it has really ended does the
//! next one begin.

use std::cmp::Reverse;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::{ConnectOptions, Connection as _, QueryBuilder, Sqlite, SqliteConnection};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::connection::Connection;
use super::owners::{push_session_sight, push_sight};
use super::search_query::SearchQuery;
use super::search_turns::{SEARCHES_PER_USER_MAX, SearchTurn};
use super::{Store, StoreError, connect_options, health, row};
use crate::model::message::Role;
use crate::model::{MessageId, SessionId, Sight, Timestamp, TurnId, WorkspaceId};

/// Of more matches than this only the newest are ranked and counted: a word that is everywhere must not take seconds.
pub const MATCHES_MAX: usize = 10_000;
/// What takes longer is given up. A word that is in each of a hundred thousand messages takes a fraction of a second.
const TIME_MAX: Duration = Duration::from_secs(5);
/// How long a search waits for those before it.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// What one step indexes at the most: messages, and bytes of them.
const MESSAGES_PER_STEP: i64 = 32;
const BYTES_PER_STEP: i64 = 64 << 10;
/// Words in a snippet. FTS5 gives 64 at the most.
const SNIPPET_WORDS: u32 = 32;
/// A "word" may be a whole encoded file.
const SNIPPET_CHARS_MAX: usize = 600;
/// What is shown before the first match of a snippet that has to be cut.
const SNIPPET_LEAD_CHARS: usize = 100;

/// Holds one message that was found, so that its snippet costs as much as the message is long: a snippet out of the
/// index itself has the whole search done again for each. The tokenizer is the index's.
const CREATE_FOUND: &str =
    "CREATE VIRTUAL TABLE temp.found USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')";

/// Why a search that makes sense was not answered.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("took longer than {} seconds", TIME_MAX.as_secs())]
    TooBroad,
    #[error("other searches are running")]
    Busy,
    #[error("you already have {SEARCHES_PER_USER_MAX} searches running or waiting")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which messages a search is for.
#[derive(Clone, Debug, Default)]
pub struct SearchFilter {
    pub sight: Sight,
    /// The best first. A rank is reckoned from everybody's messages, and so tells of them: whoever may not see all of them
    /// gets the newest first.
    pub is_ranked: bool,
    pub workspace: Option<WorkspaceId>,
    pub agent: Option<String>,
    pub session: Option<SessionId>,
    pub role: Option<Role>,
    pub since: Option<Timestamp>,
    /// Not itself included.
    pub until: Option<Timestamp>,
}

/// A message that was found.
#[derive(Clone, Debug)]
pub struct Hit {
    pub session: SessionId,
    pub title: String,
    pub workspace: String,
    pub workspace_id: WorkspaceId,
    pub agent: String,
    pub message: MessageId,
    pub sequence: i64,
    pub turn: Option<TurnId>,
    pub role: Role,
    pub created_at: Timestamp,
    pub snippet: Snippet,
    /// Smaller is better.
    pub rank: Option<f64>,
}

/// What matches.
struct Match {
    row: i64,
    /// The row alone may be another message's by the time that it is shown: that of one deleted is given again.
    message: MessageId,
    rank: Option<f64>,
}

/// A piece of a message around what was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snippet {
    pub text: String,
    /// Where the matches are, from and up to which character.
    pub matches: Vec<(usize, usize)>,
}

/// What is indexed next.
#[derive(Debug)]
pub(super) struct Batch {
    after: i64,
    pub through: i64,
    pub messages: u64,
}

impl Store {
    /// The last message's row when it is not in the index yet.
    pub async fn unindexed_through(&self) -> Result<Option<i64>, StoreError> {
        let (indexed, last): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT indexed_through FROM maintenance), coalesce((SELECT max(row) FROM messages), 0)",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::database("reading how far messages are indexed"))?;
        Ok((indexed < last).then_some(last))
    }

    /// How many messages in sight are not in the index.
    pub async fn unindexed_messages(&self, sight: Sight) -> Result<i64, StoreError> {
        let mut count = QueryBuilder::<Sqlite>::new(
            "SELECT count(*) FROM messages WHERE row > (SELECT indexed_through FROM maintenance)",
        );
        // The plus keeps the plan with the rows: few are not indexed, and one user may have many.
        push_session_sight(&mut count, "+messages.session_id", sight);
        let counted = count.build_query_scalar().fetch_one(&self.pool).await;
        counted.map_err(StoreError::database("counting messages that are not indexed"))
    }

    /// Messages that match, best first and then newest first, with how many there are, up to [`MATCHES_MAX`]. `user` is
    /// whoever looks for them.
    pub async fn search(
        &self,
        user: u32,
        query: &SearchQuery,
        filter: &SearchFilter,
        limit: usize,
        offset: usize,
    ) -> Result<(Vec<Hit>, usize), SearchError> {
        let place = self.searching.line_up(user).ok_or(SearchError::TooMany)?;
        let turn = timeout(WAIT_MAX, place.turn()).await.map_err(|_| SearchError::Busy)?;
        // Dropping this, when the client goes or the time is over, ends the statement that runs.
        let end = self.guard.abandoned.child_token();
        let _end = end.clone().drop_guard();
        let searching = async {
            let mut connection = self.searcher(end, turn).await?;
            let found = find(&mut connection, query, filter, limit, offset).await;
            // It only read.
            drop(connection.close().await);
            found
        };
        match timeout(TIME_MAX, searching).await {
            Err(_) => Err(SearchError::TooBroad),
            Ok(Err(_)) if self.guard.abandoned.is_cancelled() => Err(StoreError::Closed.into()),
            Ok(found) => Ok(found?),
        }
    }

    /// A connection of its own, which keeps the turn until it is closed. When it is dropped in the middle of a statement,
    /// that is after the statement has ended.
    async fn searcher(&self, end: CancellationToken, turn: SearchTurn) -> Result<SqliteConnection, StoreError> {
        let failed = StoreError::opening(&self.guard.database);
        let options = connect_options(&self.guard.database, &self.guard.settings).read_only(true);
        let mut connection = options.pragma("temp_store", "MEMORY").connect().await.map_err(failed)?;
        health::end_with_and_hold(&mut connection, end, turn).await.map_err(failed)?;
        Ok(connection)
    }
}

async fn find(
    connection: &mut SqliteConnection,
    query: &SearchQuery,
    filter: &SearchFilter,
    limit: usize,
    offset: usize,
) -> Result<(Vec<Hit>, usize), StoreError> {
    let mut matches = matches(connection, query, filter).await?;
    // Without ranks all are equal but for their age.
    matches.sort_by(|one, other| {
        let [rank, other_rank] = [one, other].map(|found| found.rank.unwrap_or(0.0));
        rank.total_cmp(&other_rank).then(Reverse(one.row).cmp(&Reverse(other.row)))
    });
    let total = matches.len();
    let creating = StoreError::database("preparing the search results");
    sqlx::query(CREATE_FOUND).execute(&mut *connection).await.map_err(creating)?;
    let mut hits = Vec::new();
    // Each in a read of its own, so that none holds the write-ahead log for long. What was deleted meanwhile is left out.
    for found in matches.into_iter().skip(offset).take(limit) {
        hits.extend(hit(connection, query, filter, &found).await?);
    }
    Ok((hits, total))
}

/// The newest matches.
async fn matches(
    connection: &mut SqliteConnection,
    query: &SearchQuery,
    filter: &SearchFilter,
) -> Result<Vec<Match>, StoreError> {
    let rank = if filter.is_ranked { "bm25(message_index)" } else { "NULL" };
    // CROSS JOIN keeps the order: the index is asked first, and the rest is looked up by row.
    let mut select = QueryBuilder::<Sqlite>::new(format!(
        "SELECT messages.row, messages.id, {rank} AS rank FROM message_index \
         CROSS JOIN messages ON messages.row = message_index.rowid \
         CROSS JOIN sessions ON sessions.id = messages.session_id WHERE message_index MATCH ",
    ));
    select.push_bind(query.expression());
    push_filter(&mut select, filter);
    select.push(" ORDER BY message_index.rowid DESC LIMIT ");
    select.push_bind(i64::try_from(MATCHES_MAX).unwrap_or(i64::MAX));
    let mut rows = select.build().fetch(connection);
    let mut matches = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(StoreError::database("searching"))? {
        matches.push(Match {
            row: row::column(&row, "row")?,
            message: row::parsed(&row, "id")?,
            rank: row::column(&row, "rank")?,
        });
    }
    Ok(matches)
}

/// Adds which messages of which sessions are wanted.
fn push_filter(select: &mut QueryBuilder<Sqlite>, filter: &SearchFilter) {
    push_sight(select, "sessions.owner_uid", filter.sight);
    if let Some(workspace) = filter.workspace {
        select.push(" AND sessions.workspace_id = ").push_bind(workspace.to_string());
    }
    if let Some(agent) = &filter.agent {
        select.push(" AND sessions.agent = ").push_bind(agent);
    }
    if let Some(session) = filter.session {
        select.push(" AND messages.session_id = ").push_bind(session.to_string());
    }
    if let Some(role) = filter.role {
        select.push(" AND messages.role = ").push_bind(role.as_str());
    }
    if let Some(since) = filter.since {
        select.push(" AND messages.created_at >= ").push_bind(since.as_millis());
    }
    if let Some(until) = filter.until {
        select.push(" AND messages.created_at < ").push_bind(until.as_millis());
    }
}

async fn hit(
    connection: &mut SqliteConnection,
    query: &SearchQuery,
    filter: &SearchFilter,
    found: &Match,
) -> Result<Option<Hit>, StoreError> {
    let mut select = QueryBuilder::<Sqlite>::new(
        "SELECT messages.session_id, messages.sequence, messages.turn_id, messages.role, \
         messages.created_at, sessions.title, sessions.agent, sessions.workspace_id, workspaces.path AS workspace, \
         (SELECT text FROM message_texts WHERE message_texts.row = messages.row) AS text FROM messages \
         CROSS JOIN sessions ON sessions.id = messages.session_id \
         CROSS JOIN workspaces ON workspaces.id = sessions.workspace_id WHERE messages.row = ",
    );
    select.push_bind(found.row).push(" AND messages.id = ").push_bind(found.message.to_string());
    push_filter(&mut select, filter);
    let row = select.build().fetch_optional(&mut *connection).await;
    let Some(row) = row.map_err(StoreError::database("reading the search results"))? else { return Ok(None) };
    let Some(snippet) = snippet(connection, query, row::column(&row, "text")?).await? else { return Ok(None) };
    Ok(Some(Hit {
        session: row::parsed(&row, "session_id")?,
        title: row::column(&row, "title")?,
        workspace: row::column(&row, "workspace")?,
        workspace_id: row::parsed(&row, "workspace_id")?,
        agent: row::column(&row, "agent")?,
        message: found.message,
        sequence: row::column(&row, "sequence")?,
        turn: row::parsed_option(&row, "turn_id")?,
        role: row::parsed(&row, "role")?,
        created_at: row::time(&row, "created_at")?,
        snippet,
        rank: found.rank,
    }))
}

/// The piece of a text around what was looked for; none when the text does not match.
async fn snippet(
    connection: &mut SqliteConnection,
    query: &SearchQuery,
    text: &str,
) -> Result<Option<Snippet>, StoreError> {
    let cutting = "cutting a snippet";
    // Nobody can have written these into a message.
    let [begin, end] = ["begin", "end"].map(|which| format!("\u{fdd0}{which} {}\u{fdd1}", Uuid::now_v7()));
    let insert = sqlx::query("INSERT INTO temp.found (text) VALUES (?)").bind(text);
    insert.execute(&mut *connection).await.map_err(StoreError::database(cutting))?;
    let marked: Option<String> =
        sqlx::query_scalar("SELECT snippet(found, 0, ?, ?, '…', ?) FROM temp.found WHERE found MATCH ?")
            .bind(&begin)
            .bind(&end)
            .bind(SNIPPET_WORDS)
            .bind(query.expression())
            .fetch_optional(&mut *connection)
            .await
            .map_err(StoreError::database(cutting))?;
    let delete = sqlx::query("DELETE FROM temp.found");
    delete.execute(&mut *connection).await.map_err(StoreError::database(cutting))?;
    Ok(marked.map(|marked| Snippet::new(&marked, &begin, &end).cut()))
}

impl Snippet {
    /// Takes the marks out and notes where they were.
    fn new(marked: &str, begin: &str, end: &str) -> Self {
        let mut snippet = Self::default();
        let mut length = 0;
        for (index, piece) in marked.split(begin).enumerate() {
            let (inside, after) = if index == 0 { ("", piece) } else { piece.split_once(end).unwrap_or((piece, "")) };
            let start = length;
            length += inside.chars().count();
            if index > 0 {
                snippet.matches.push((start, length));
            }
            length += after.chars().count();
            snippet.text.push_str(inside);
            snippet.text.push_str(after);
        }
        snippet
    }

    /// Within its bound, with its first match.
    fn cut(self) -> Self {
        let length = self.text.chars().count();
        if length <= SNIPPET_CHARS_MAX {
            return self;
        }
        let first = self.matches.first().map_or(0, |(start, _)| *start);
        let start = first.saturating_sub(SNIPPET_LEAD_CHARS);
        let end = length.min(start + SNIPPET_CHARS_MAX);
        let (before, after) = (if start > 0 { "…" } else { "" }, if end < length { "…" } else { "" });
        let kept: String = self.text.chars().skip(start).take(end - start).collect();
        let shift = before.chars().count();
        let matches = self.matches.iter().filter(|(from, _)| *from < end);
        Self {
            matches: matches.map(|(from, to)| (from - start + shift, (*to).min(end) - start + shift)).collect(),
            text: format!("{before}{kept}{after}"),
        }
    }
}

/// The next messages to index, within the bounds of a step but never none; none when all are indexed.
pub(super) fn next_batch(connection: &Connection) -> Result<Option<Batch>, StoreError> {
    let rows = connection.all(
        "looking for messages to index",
        "SELECT (SELECT indexed_through FROM maintenance), row, octet_length(content) FROM messages \
         WHERE row > (SELECT indexed_through FROM maintenance) ORDER BY row LIMIT ?1",
        [MESSAGES_PER_STEP],
        |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?)),
    )?;
    let Some(&(after, first, _)) = rows.first() else { return Ok(None) };
    let mut batch = Batch { after, through: first, messages: 0 };
    let mut bytes = 0;
    for (_, row, length) in rows {
        if batch.messages > 0 && bytes + length > BYTES_PER_STEP {
            break;
        }
        bytes += length;
        batch.through = row;
        batch.messages += 1;
    }
    Ok(Some(batch))
}

/// Indexes a batch. To be called in a transaction.
pub(super) fn index(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    connection.run(
        "indexing messages",
        "INSERT INTO message_index (rowid, text) SELECT row, text FROM message_texts WHERE row > ?1 AND row <= ?2",
        [batch.after, batch.through],
    )?;
    let sql = "UPDATE maintenance SET indexed_through = ?1";
    connection.run("storing the index position", sql, [batch.through])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{open, session, text};
    use super::super::{Goal, Op, Unit};
    use super::*;

    #[tokio::test]
    async fn a_row_that_is_given_again_shows_nobody_elses_message() {
        let directory = tempfile::tempdir().unwrap();
        let (store, writer) = open(directory.path()).await;
        let (bait, victim) = (session(&writer).await, session(&writer).await);
        writer.append(Unit::one(bait, text(None, Role::System, "the bait"))).await.unwrap();
        writer.upkeep(Goal::Everything, TIME_MAX).await.unwrap();
        let turn = store.searching.line_up(1).unwrap().turn().await;
        let mut connection = store.searcher(CancellationToken::new(), turn).await.unwrap();
        sqlx::query(CREATE_FOUND).execute(&mut connection).await.unwrap();
        let (query, filter) = (SearchQuery::parse("the").unwrap(), SearchFilter::default());
        let found = matches(&mut connection, &query, &filter).await.unwrap();
        let shown = hit(&mut connection, &query, &filter, &found[0]).await.unwrap();
        assert_eq!(shown.map(|hit| hit.snippet.text).as_deref(), Some("the bait"));
        // It is deleted before it is read, and its row is another's.
        writer.append(Unit::one(bait, Op::Purge)).await.unwrap();
        writer.append(Unit::one(victim, text(None, Role::System, "the secret"))).await.unwrap();
        writer.upkeep(Goal::Everything, TIME_MAX).await.unwrap();
        let row = matches(&mut connection, &query, &filter).await.unwrap()[0].row;
        assert_eq!(row, found[0].row, "the row is given again");
        assert!(hit(&mut connection, &query, &filter, &found[0]).await.unwrap().is_none());
        // Nor is anything shown that is not, or not any more, what was asked for.
        let found = matches(&mut connection, &query, &filter).await.unwrap();
        let strangers = SearchFilter { sight: Sight::Own(Some(1)), ..SearchFilter::default() };
        assert!(hit(&mut connection, &query, &strangers, &found[0]).await.unwrap().is_none());
    }

    #[test]
    fn a_snippet_tells_where_its_matches_are() {
        let snippet = Snippet::new("…größer als <foo>, und <bär>", "<", ">");
        assert_eq!(snippet.text, "…größer als foo, und bär");
        assert_eq!(snippet.matches, [(12, 15), (21, 24)]);
        assert_eq!(Snippet::new("nothing", "<", ">").matches, []);
        assert_eq!(snippet.clone().cut(), snippet);
    }

    #[test]
    fn a_long_snippet_is_cut_around_its_first_match() {
        let long = format!("{}<{}> tail", "x".repeat(1000), "ü".repeat(1000));
        let cut = Snippet::new(&long, "<", ">").cut();
        assert_eq!(cut.text.chars().count(), SNIPPET_CHARS_MAX + 2);
        assert_eq!(cut.matches, [(SNIPPET_LEAD_CHARS + 1, SNIPPET_CHARS_MAX + 1)]);
        let matched: String = cut.text.chars().skip(101).take(500).collect();
        assert!(matched.chars().all(|character| character == 'ü'));
    }
}
