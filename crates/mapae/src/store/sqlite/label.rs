//! Labelled examples.

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::writer::Transaction;
use super::{Sqlite, hex, limit, one};
use crate::job::name::{Owner, SetName};
use crate::store::contract::{
    Example, ExampleId, LabelSet, Labels, SETS_MAX, StoreError, TeachError, distinct,
};
use crate::store::row::{example_row, label_set_row};

#[async_trait]
impl Labels for Sqlite {
    async fn teach(
        &self,
        owner: &Owner,
        set: &SetName,
        examples: &[Example],
    ) -> Result<LabelSet, TeachError> {
        let (owner, set) = (String::from(owner.clone()), String::from(set.clone()));
        let rows: Vec<Value> = distinct(examples)
            .into_iter()
            .map(|(id, e)| json!([hex(id.0), e.label, e.title, e.text, e.describes]))
            .collect();
        self.write(async move |tx| {
            let query = sqlx::query(
                "
                insert into label_sets (owner, name, version, changed_at)
                select $1, $2, $3, $4
                 where (select count(*) from label_sets where owner = $1 and name <> $2) < $5
                on conflict (owner, name) do update set changed_at = excluded.changed_at
                ",
            )
            .bind(owner.clone())
            .bind(set.clone())
            .bind(Uuid::now_v7())
            .bind(tx.now)
            .bind(limit(SETS_MAX));
            if tx.run(query).await? == 0 {
                return Err(TeachError::TooManySets);
            }
            let query = sqlx::query(
                "
                insert into label_examples (owner, set_name, id, label, title, text, describes)
                select $1, $2, unhex(g.value->>0), g.value->>1, g.value->>2, g.value->>3, g.value->>4
                  from json_each($3) g where true
                on conflict (owner, set_name, id) do update
                   set label = excluded.label, text = excluded.text, title = excluded.title
                ",
            )
            .bind(owner.clone())
            .bind(set.clone())
            .bind(Value::from(rows));
            tx.run(query).await?;
            // What is too much is rolled back.
            counted(tx, owner, set).await?.within_bounds()
        })
        .await
    }

    async fn unteach(&self, owner: &Owner, set: &SetName, id: ExampleId) -> Result<bool, StoreError> {
        let (owner, set) = (String::from(owner.clone()), String::from(set.clone()));
        self.write(async move |tx| {
            let query =
                sqlx::query("delete from label_examples where owner = $1 and set_name = $2 and id = $3")
                    .bind(owner.clone())
                    .bind(set.clone())
                    .bind(id.0);
            if tx.run(query).await? == 0 {
                return Ok(false);
            }
            counted(tx, owner, set).await?;
            Ok(true)
        })
        .await
    }

    async fn forget(&self, owner: &Owner, set: &SetName) -> Result<bool, StoreError> {
        let (owner, set) = (String::from(owner.clone()), String::from(set.clone()));
        self.write(async move |tx| {
            let query =
                sqlx::query("delete from label_sets where owner = $1 and name = $2").bind(owner).bind(set);
            Ok(tx.run(query).await? > 0)
        })
        .await
    }

    async fn label_sets(&self, owner: &Owner) -> Result<Vec<LabelSet>, StoreError> {
        let query = sqlx::query(
            "
            select name, version, examples, labels, bytes, changed_at
              from label_sets where owner = $1 order by name
            ",
        )
        .bind(String::from(owner.clone()));
        self.rows(query).await?.iter().map(label_set).collect()
    }

    async fn label_set(&self, owner: &Owner, set: &SetName) -> Result<Option<LabelSet>, StoreError> {
        let query = sqlx::query(
            "
            select name, version, examples, labels, bytes, changed_at
              from label_sets where owner = $1 and name = $2
            ",
        )
        .bind(String::from(owner.clone()))
        .bind(String::from(set.clone()));
        self.row(query).await?.as_ref().map(label_set).transpose()
    }

    async fn examples(
        &self,
        owner: &Owner,
        set: &SetName,
        after: Option<ExampleId>,
        limit: usize,
    ) -> Result<Vec<Example>, StoreError> {
        let query = sqlx::query(
            "
            select label, title, text, describes
              from label_examples
             where owner = $1 and set_name = $2 and id > $3
             order by id limit $4
            ",
        )
        .bind(String::from(owner.clone()))
        .bind(String::from(set.clone()))
        // Nothing is before the empty one.
        .bind(after.map_or_else(Vec::new, |id| id.0.as_bytes().to_vec()))
        .bind(super::limit(limit));
        self.rows(query).await?.iter().map(example).collect()
    }
}

/// The set, told what it has by now.
async fn counted(tx: &mut Transaction<'_>, owner: String, set: String) -> Result<LabelSet, StoreError> {
    let query = sqlx::query(
        "
        update label_sets
           set (examples, labels, bytes) =
                   (select count(*), count(distinct e.label),
                           coalesce(sum(octet_length(e.title) + octet_length(e.text)), 0)
                      from label_examples e where e.owner = $1 and e.set_name = $2),
               version = $3, changed_at = $4
         where owner = $1 and name = $2
        returning name, version, examples, labels, bytes, changed_at
        ",
    )
    .bind(owner)
    .bind(set)
    .bind(Uuid::now_v7())
    .bind(tx.now);
    label_set(&one(tx.row(query).await?)?)
}

fn label_set(row: &SqliteRow) -> Result<LabelSet, StoreError> {
    label_set_row!(row)
}

fn example(row: &SqliteRow) -> Result<Example, StoreError> {
    example_row!(row)
}
