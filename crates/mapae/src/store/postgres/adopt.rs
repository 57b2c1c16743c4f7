//! Rows of the user's own tables that become jobs, by a trigger that submits one for each row that becomes pending.

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::Postgres;
use crate::job::name::{Kind, Owner};
use crate::store::contract::StoreError;

/// What is to become jobs.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// As in a statement: `contexts`, `app.contexts`.
    pub table: String,
    /// Which rows wait, over the table's columns: `status = 'PENDING'`. The operator's own SQL.
    pub pending: String,
    pub kind: Kind,
    pub owner: Owner,
}

/// The statements of an adoption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionPlan {
    /// The trigger and its function. Run twice it changes nothing more.
    pub apply: String,
    /// A job for each row that waits and has none yet.
    pub backfill: String,
    pub undo: String,
}

/// Why a table is not adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("there is no such table")]
    NoTable,
    #[error("the table has no primary key, by which a job could name its row")]
    NoKey,
    #[error("the condition is empty, or more than one")]
    NoCondition,
    /// The server's own words: about the table and the condition, not about what is in rows.
    #[error("the database refused it: {0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Postgres {
    /// What would be run. Nothing is changed.
    pub async fn adoption(&self, adoption: &Adoption) -> Result<AdoptionPlan, AdoptError> {
        let pending = adoption.pending.trim();
        if pending.is_empty() || pending.contains([';', '\0', '$']) {
            return Err(AdoptError::NoCondition);
        }
        let mut connection = self.for_long().await?;
        let row = sqlx::query(
            "
            select quote_ident(n.nspname) || '.' || quote_ident(c.relname) as name,
                   array(select quote_literal(a.attname) from pg_index i
                          cross join unnest(i.indkey) with ordinality k (number, place)
                           join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
                          where i.indrelid = c.oid and i.indisprimary order by k.place) as literals,
                   array(select quote_ident(a.attname) from pg_index i
                          cross join unnest(i.indkey) with ordinality k (number, place)
                           join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
                          where i.indrelid = c.oid and i.indisprimary order by k.place) as columns,
                   left(md5(n.nspname || '.' || c.relname || ' ' || $2), 12) as mark
              from pg_class c
              join pg_namespace n on n.oid = c.relnamespace
             where c.oid = to_regclass($1) and c.relkind in ('r', 'p')
            ",
        )
        .bind(&adoption.table)
        .bind(adoption.kind.as_str())
        .fetch_optional(&mut connection)
        .await
        .map_err(refused)?
        .ok_or(AdoptError::NoTable)?;
        let read = |error: sqlx::Error| AdoptError::Store(error.into());
        let name: String = row.try_get("name").map_err(read)?;
        let mark: String = row.try_get("mark").map_err(read)?;
        let literals: Vec<String> = row.try_get("literals").map_err(read)?;
        let columns: Vec<String> = row.try_get("columns").map_err(read)?;
        if columns.is_empty() {
            return Err(AdoptError::NoKey);
        }
        let params = |of: &str| -> String {
            let fields =
                literals.iter().zip(&columns).map(|(literal, column)| format!("{literal}, {of}.{column}"));
            format!("jsonb_build_object({})", fields.collect::<Vec<_>>().join(", "))
        };
        let (kind, owner) = (&adoption.kind, &adoption.owner);
        let (function, trigger) = (format!("mapae.adopt_{mark}"), format!("mapae_adopt_{mark}"));
        let of_new = params("new");
        let of_row = params("r");
        // As whoever writes the row: the condition is evaluated with no other rights.
        let apply = format!(
            "create or replace function {function}() returns trigger language plpgsql as $adopt$
begin
    if tg_op = 'UPDATE' then
        if exists (select from (select old.*) r where ({pending})) then
            return null;
        end if;
    end if;
    if exists (select from (select new.*) r where ({pending})) then
        perform mapae.submit('{kind}', {of_new}, owner => '{owner}');
    end if;
    return null;
end
$adopt$;
create or replace trigger {trigger} after insert or update on {name}
   for each row execute function {function}();
"
        );
        let backfill = format!(
            "select count(mapae.submit('{kind}', p.params, owner => '{owner}')) as made
  from (select {of_row} as params from {name} r where ({pending})) p
 where not exists (select from mapae.jobs j
                    where j.kind = '{kind}' and j.owner = '{owner}' and j.state in ('pending', 'running')
                      and j.params = p.params);
"
        );
        let undo =
            format!("drop trigger if exists {trigger} on {name};\ndrop function if exists {function}();\n");
        Ok(AdoptionPlan { apply, backfill, undo })
    }

    /// From now on each row that becomes pending has its job, and those that were before have theirs. Answers how
    /// many those were. All or nothing; again it does nothing more.
    pub async fn adopt(&self, plan: &AdoptionPlan) -> Result<u64, AdoptError> {
        let mut connection = self.for_long().await?;
        let mut transaction = connection.begin().await.map_err(refused)?;
        // It keeps writers out until the commit, so no row comes between.
        sqlx::raw_sql(AssertSqlSafe(plan.apply.clone())).execute(&mut *transaction).await.map_err(refused)?;
        let made = sqlx::query(AssertSqlSafe(plan.backfill.trim().trim_end_matches(';').to_owned()))
            .fetch_one(&mut *transaction)
            .await
            .map_err(refused)?;
        let made: i64 = made.try_get("made").map_err(|error| AdoptError::Store(error.into()))?;
        transaction.commit().await.map_err(refused)?;
        Ok(made.unsigned_abs())
    }

    /// No row becomes a job any more. Jobs that were made stay.
    pub async fn disown(&self, plan: &AdoptionPlan) -> Result<(), AdoptError> {
        let mut connection = self.for_long().await?;
        sqlx::raw_sql(AssertSqlSafe(plan.undo.clone())).execute(&mut connection).await.map_err(refused)?;
        Ok(())
    }

    /// A connection whose statements may take longer than any other's.
    async fn for_long(&self) -> Result<PgConnection, AdoptError> {
        let mut connection = PgConnection::connect_with(&self.options).await.map_err(refused)?;
        sqlx::query("set statement_timeout = '10min'").execute(&mut connection).await.map_err(refused)?;
        Ok(connection)
    }
}

fn refused(error: sqlx::Error) -> AdoptError {
    match error.as_database_error() {
        Some(told) if told.code().is_some_and(|code| code.starts_with("42") || code.starts_with("22")) => {
            AdoptError::Refused(told.message().to_owned())
        }
        _ => AdoptError::Store(error.into()),
    }
}
