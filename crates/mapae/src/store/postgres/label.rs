//! Labelled examples.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use super::Postgres;
use super::ask::{Ask, within};
use crate::job::name::{Owner, SetName};
use crate::store::contract::{
    Example, ExampleId, LabelSet, Labels, SETS_MAX, StoreError, TeachError, distinct,
};
use crate::store::row::{example_row, label_set_row};

#[async_trait]
impl Labels for Postgres {
    async fn teach(
        &self,
        owner: &Owner,
        set: &SetName,
        examples: &[Example],
    ) -> Result<LabelSet, TeachError> {
        let rows = distinct(examples);
        let mut connection = within(self.pool.acquire()).await?;
        let mut transaction = within(connection.begin()).await?;
        // The set's row is held from here on, so that two who teach do so one after the other.
        let there = sqlx::query(
            "
            insert into mapae.label_sets (owner, name, version, changed_at)
            select $1, $2, $3, now()
             where (select count(*) from mapae.label_sets where owner = $1 and name <> $2) < $4
            on conflict (owner, name) do update set changed_at = excluded.changed_at
            ",
        )
        .bind(owner.as_str())
        .bind(set.as_str())
        .bind(Uuid::now_v7())
        .bind(i64::try_from(SETS_MAX).unwrap_or(i64::MAX))
        .done(&mut *transaction)
        .await?;
        if there.rows_affected() == 0 {
            return Err(TeachError::TooManySets);
        }
        sqlx::query(
            "
            insert into mapae.label_examples (owner, set_name, id, label, title, text, describes)
            select $1, $2, g.*
              from unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::boolean[]) g
            on conflict (owner, set_name, id) do update
               set label = excluded.label, text = excluded.text, title = excluded.title
            ",
        )
        .bind(owner.as_str())
        .bind(set.as_str())
        .bind(rows.iter().map(|(id, _)| id.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, e)| e.label.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, e)| e.title.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, e)| e.text.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, e)| e.describes).collect::<Vec<_>>())
        .done(&mut *transaction)
        .await?;
        // What is too much is rolled back.
        let told = counted(&mut transaction, owner, set).await?.within_bounds()?;
        within(transaction.commit()).await?;
        Ok(told)
    }

    async fn unteach(&self, owner: &Owner, set: &SetName, id: ExampleId) -> Result<bool, StoreError> {
        let mut connection = within(self.pool.acquire()).await?;
        let mut transaction = within(connection.begin()).await?;
        // The set's row first, as whoever teaches: nobody waits for another in a circle.
        sqlx::query("select from mapae.label_sets where owner = $1 and name = $2 for update")
            .bind(owner.as_str())
            .bind(set.as_str())
            .done(&mut *transaction)
            .await?;
        let gone =
            sqlx::query("delete from mapae.label_examples where owner = $1 and set_name = $2 and id = $3")
                .bind(owner.as_str())
                .bind(set.as_str())
                .bind(id.0)
                .done(&mut *transaction)
                .await?;
        if gone.rows_affected() == 0 {
            return Ok(false);
        }
        counted(&mut transaction, owner, set).await?;
        within(transaction.commit()).await?;
        Ok(true)
    }

    async fn forget(&self, owner: &Owner, set: &SetName) -> Result<bool, StoreError> {
        let gone = sqlx::query("delete from mapae.label_sets where owner = $1 and name = $2")
            .bind(owner.as_str())
            .bind(set.as_str())
            .done(&self.pool)
            .await?;
        Ok(gone.rows_affected() > 0)
    }

    async fn label_sets(&self, owner: &Owner) -> Result<Vec<LabelSet>, StoreError> {
        let rows = sqlx::query(
            "
            select name, version, examples, labels, bytes,
                   (extract(epoch from changed_at) * 1000000)::bigint as changed_at
              from mapae.label_sets where owner = $1 order by name
            ",
        )
        .bind(owner.as_str())
        .rows(&self.views)
        .await?;
        rows.iter().map(label_set).collect()
    }

    async fn label_set(&self, owner: &Owner, set: &SetName) -> Result<Option<LabelSet>, StoreError> {
        let row = sqlx::query(
            "
            select name, version, examples, labels, bytes,
                   (extract(epoch from changed_at) * 1000000)::bigint as changed_at
              from mapae.label_sets where owner = $1 and name = $2
            ",
        )
        .bind(owner.as_str())
        .bind(set.as_str())
        .maybe(&self.views)
        .await?;
        row.as_ref().map(label_set).transpose()
    }

    async fn examples(
        &self,
        owner: &Owner,
        set: &SetName,
        after: Option<ExampleId>,
        limit: usize,
    ) -> Result<Vec<Example>, StoreError> {
        let rows = sqlx::query(
            "
            select label, title, text, describes
              from mapae.label_examples
             where owner = $1 and set_name = $2 and id > $3
             order by id limit $4
            ",
        )
        .bind(owner.as_str())
        .bind(set.as_str())
        // No text has the id of all zeros.
        .bind(after.map_or(Uuid::nil(), |id| id.0))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .rows(&self.views)
        .await?;
        rows.iter().map(example).collect()
    }
}

/// The set, told what it has by now.
async fn counted(on: &mut PgConnection, owner: &Owner, set: &SetName) -> Result<LabelSet, StoreError> {
    let row = sqlx::query(
        "
        update mapae.label_sets
           set (examples, labels, bytes) =
                   (select count(*), count(distinct e.label),
                           coalesce(sum(octet_length(e.title) + octet_length(e.text)), 0)
                      from mapae.label_examples e where e.owner = $1 and e.set_name = $2),
               version = $3, changed_at = now()
         where owner = $1 and name = $2
        returning name, version, examples, labels, bytes,
                  (extract(epoch from changed_at) * 1000000)::bigint as changed_at
        ",
    )
    .bind(owner.as_str())
    .bind(set.as_str())
    .bind(Uuid::now_v7())
    .one(on)
    .await?;
    label_set(&row)
}

fn label_set(row: &PgRow) -> Result<LabelSet, StoreError> {
    label_set_row!(row)
}

fn example(row: &PgRow) -> Result<Example, StoreError> {
    example_row!(row)
}
