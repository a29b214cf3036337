//! Agent profiles: those of the configuration, which sessions refer to, and those that were made over the API.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use rusqlite::params;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::apply::{Apply, to_json};
use super::owners::push_sight;
use super::read::MESSAGES_BYTES_MAX;
use super::{Store, StoreError, row};
use crate::model::profile::{MadeProfile, Status};
use crate::model::{AgentId, AgentProfile, Sight, Timestamp};

/// What the record knows of a profile of the configuration beside the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    pub id: AgentId,
    pub created_at: Timestamp,
    /// When it was last another than before.
    pub updated_at: Timestamp,
}

impl Store {
    /// The profiles that are configured, by their slugs.
    pub async fn registered_agents(&self) -> Result<BTreeMap<String, Registered>, StoreError> {
        let rows = sqlx::query(
            "SELECT slug, id, created_at, updated_at FROM agents WHERE status = 'active' AND id IS NOT NULL",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::database("reading the configured agents"))?;
        rows.iter().map(registered).collect()
    }

    pub async fn profile_by_slug(&self, slug: &str) -> Result<Option<MadeProfile>, StoreError> {
        self.made_profile("SELECT * FROM profiles WHERE slug = ?", slug).await
    }

    pub async fn profile_by_id(&self, id: AgentId) -> Result<Option<MadeProfile>, StoreError> {
        self.made_profile("SELECT * FROM profiles WHERE id = ?", &id.to_string()).await
    }

    async fn made_profile(&self, sql: &'static str, name: &str) -> Result<Option<MadeProfile>, StoreError> {
        let row = sqlx::query(sql)
            .bind(name)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading a profile"))?;
        row.as_ref().map(made).transpose()
    }

    /// Those in sight, by slug, and how many there are in all; fewer than `limit` when they are large, but never none when there
    /// are any.
    pub async fn profiles(
        &self,
        sight: Sight,
        with_archived: bool,
        limit: i64,
        offset: i64,
    ) -> Result<(Vec<MadeProfile>, i64), StoreError> {
        let condition = |query: &mut QueryBuilder<Sqlite>| {
            if !with_archived {
                query.push(" AND status = 'active'");
            }
            push_sight(query, "owner_uid", sight);
        };
        let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM profiles WHERE TRUE");
        condition(&mut query);
        query.push(" ORDER BY slug LIMIT ").push_bind(limit).push(" OFFSET ").push_bind(offset);
        let mut rows = query.build().fetch(&self.pool);
        let (mut profiles, mut bytes) = (Vec::new(), 0);
        while bytes < MESSAGES_BYTES_MAX
            && let Some(row) = rows.try_next().await.map_err(StoreError::database("listing profiles"))?
        {
            bytes += row::column::<String>(&row, "definition")?.len();
            profiles.push(made(&row)?);
        }
        drop(rows);
        let mut count = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM profiles WHERE TRUE");
        condition(&mut count);
        let total = count.build_query_scalar().fetch_one(&self.pool).await;
        let total: i64 = total.map_err(StoreError::database("counting profiles"))?;
        Ok((profiles, total))
    }
}

fn registered(row: &SqliteRow) -> Result<(String, Registered), StoreError> {
    let (created_at, updated_at) = (row::time(row, "created_at")?, row::time(row, "updated_at")?);
    Ok((row::column(row, "slug")?, Registered { id: row::parsed(row, "id")?, created_at, updated_at }))
}

fn made(row: &SqliteRow) -> Result<MadeProfile, StoreError> {
    Ok(MadeProfile {
        id: row::parsed(row, "id")?,
        slug: row::column(row, "slug")?,
        owner_uid: row::column(row, "owner_uid")?,
        definition: row::from_json(row, "definition")?,
        status: row::parsed(row, "status")?,
        created_at: row::time(row, "created_at")?,
        updated_at: row::time(row, "updated_at")?,
        archived_at: row::column::<Option<i64>>(row, "archived_at")?.map(Timestamp::from_millis),
    })
}

impl Apply<'_> {
    /// Profiles of the API are not touched: their rows are here for sessions to refer to.
    pub(super) fn set_agents(&self, profiles: &[AgentProfile]) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        let slugs: Vec<&str> = profiles.iter().map(|profile| profile.slug.as_str()).collect();
        self.connection.run(
            "archiving removed agents",
            "UPDATE agents SET status = 'archived', updated_at = ?1 WHERE status = 'active' AND id IS NOT NULL \
             AND slug NOT IN (SELECT value FROM json_each(?2))",
            params![now, to_json(&slugs)?],
        )?;
        for profile in profiles {
            let frozen = to_json(&profile.freeze())?;
            self.connection.run(
                "storing an agent",
                "INSERT INTO agents (slug, name, description, status, profile, created_at, updated_at, id) \
                 VALUES (?1, ?2, ?3, 'active', ?4, ?5, ?5, ?6) ON CONFLICT (slug) DO UPDATE SET \
                 name = ?2, description = ?3, status = 'active', profile = ?4, updated_at = ?5, id = ifnull(id, ?6) \
                 WHERE id IS NULL OR status <> 'active' OR profile <> ?4 OR name <> ?2 OR description <> ?3",
                params![profile.slug, profile.name, profile.description, frozen, now, AgentId::new().to_string()],
            )?;
        }
        Ok(())
    }

    /// Two requests may want the same slug at once; the first one has it.
    pub(super) fn add_profile(&self, profile: &MadeProfile) -> Result<(), StoreError> {
        let definition = to_json(&profile.definition)?;
        // What an earlier profile of this name left behind is what its sessions refer to, and stays.
        self.connection.run(
            "storing an agent",
            "INSERT INTO agents (slug, name, description, status, profile, created_at, updated_at) \
             VALUES (?1, ?2, ?3, 'archived', '{}', ?4, ?4) ON CONFLICT (slug) DO NOTHING",
            params![profile.slug, profile.definition.name, profile.definition.description, self.now.as_millis()],
        )?;
        self.connection.run(
            "creating a profile",
            "INSERT INTO profiles (id, slug, owner_uid, definition, status, created_at, updated_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) ON CONFLICT DO NOTHING",
            params![
                profile.id.to_string(),
                profile.slug,
                profile.owner_uid,
                definition,
                profile.status.as_str(),
                self.now.as_millis(),
            ],
        )?;
        Ok(())
    }

    pub(super) fn change_profile(&self, profile: &MadeProfile) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        let archived_at = match profile.status {
            Status::Active => None,
            Status::Archived => Some(profile.archived_at.map_or(now, Timestamp::as_millis)),
        };
        self.connection.run(
            "changing a profile",
            "UPDATE profiles SET definition = ?2, status = ?3, archived_at = ?4, updated_at = ?5 WHERE id = ?1",
            params![profile.id.to_string(), to_json(&profile.definition)?, profile.status.as_str(), archived_at, now,],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{open, options, session};
    use super::super::{Catalogue, Direction, Unit, migrate};
    use super::*;
    use crate::config::Config;
    use crate::model::PermissionMode;
    use crate::model::profile::{Definition, Program};

    fn profile(slug: &str, owner_uid: Option<u32>) -> MadeProfile {
        let definition = Definition::new(slug, Program::Base("demo".to_owned()));
        let now = Timestamp::now();
        let (status, slug) = (Status::Active, slug.to_owned());
        MadeProfile {
            id: AgentId::new(),
            slug,
            owner_uid,
            definition,
            status,
            created_at: now,
            updated_at: now,
            archived_at: None,
        }
    }

    #[tokio::test]
    async fn profiles_of_the_api_are_left_alone_by_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let (store, writer) = open(directory.path()).await;
        let append = async |change| writer.append(Unit::catalogue(change)).await.unwrap();
        let demo = Config::default().agents["demo"].clone();
        append(Catalogue::SetAgents(vec![demo.clone()])).await;
        let first = store.registered_agents().await.unwrap()["demo"];
        let (mine, theirs) = (profile("mine", None), profile("theirs", Some(1000)));
        append(Catalogue::AddProfile(Box::new(mine.clone()))).await;
        append(Catalogue::AddProfile(Box::new(theirs))).await;
        append(Catalogue::AddProfile(Box::new(profile("mine", Some(1000))))).await;
        let (seen, total) = store.profiles(Sight::Own(None), false, 10, 0).await.unwrap();
        assert_eq!((seen.len(), total, seen[0].id), (1, 1, mine.id), "the first has the name");
        assert_eq!(store.profiles(Sight::All, false, 1, 1).await.unwrap().0[0].slug, "theirs");

        // The configuration takes the name, and gives it back.
        let namesake = AgentProfile::new("mine");
        append(Catalogue::SetAgents(vec![demo.clone(), namesake])).await;
        let registered = store.registered_agents().await.unwrap();
        assert_ne!(registered["mine"].id, mine.id);
        append(Catalogue::SetAgents(vec![demo])).await;
        let registered = store.registered_agents().await.unwrap();
        assert_eq!(registered.keys().collect::<Vec<_>>(), ["demo"]);
        assert_eq!(
            (registered["demo"].id, registered["demo"].updated_at),
            (first.id, first.updated_at),
            "it is the same"
        );
        let kept = store.profile_by_slug("mine").await.unwrap().unwrap();
        assert_eq!((kept.id, kept.status, kept.definition), (mine.id, Status::Active, mine.definition));
        store.close().await;
        writer.close().await;
    }

    #[tokio::test]
    async fn going_back_to_a_version_without_bases_widens_no_session() {
        let directory = tempfile::tempdir().unwrap();
        let (store, writer) = open(directory.path()).await;
        let id = session(&writer).await;
        writer.append(Unit::catalogue(Catalogue::AddProfile(Box::new(profile("mine", None))))).await.unwrap();
        store.close().await;
        writer.close().await;
        let connection = rusqlite::Connection::open(options(directory.path()).database).unwrap();
        let sql = "UPDATE sessions SET profile = json_set(profile, '$.basePermissions', json('{\"mode\":\"deny\"}'))";
        connection.execute(sql, []).unwrap();
        drop(connection);
        migrate(&options(directory.path()), Direction::DownTo(15)).await.unwrap();
        let (store, writer) = open(directory.path()).await;
        let kept = store.session(id).await.unwrap().unwrap().profile;
        assert_eq!(kept.permissions.map(|policy| policy.mode), Some(PermissionMode::Deny));
        assert_eq!(kept.base_permissions, None);
        let registered = store.registered_agents().await.unwrap();
        assert!(registered.contains_key("demo"), "it has an id, and one that is a UUID: {registered:?}");
        store.close().await;
        writer.close().await;
    }
}
