//! Rows of the user's own tables that become jobs, by a trigger that submits one for each row that becomes pending.

use std::time::Duration;

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
    /// A job for each row that waits and has none yet, of the next rows by primary key: $1 is the key of the last
    /// row before, as text, or null; $2 how many. Answers how many rows there were and how many jobs were made, and
    /// the last row's key.
    pub backfill: String,
    pub undo: String,
    /// By which it is known whether the table was adopted before.
    function: String,
}

/// Most rows that become jobs in one transaction.
const PART: i64 = 5_000;

/// How long the trigger may keep writers waiting while it is made, and how often it is tried.
const TRIGGER_WAIT: &str = "500ms";
const TRIGGER_TRIES: u32 = 20;

/// Pause between two tries, in which those who waited behind it go on.
const TRIGGER_PAUSE: Duration = Duration::from_millis(500);

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
    #[error("the table was locked by others each time its trigger was to be made")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of some of the rows that wait.
struct Part {
    found: i64,
    made: u64,
    /// The key of the last of them.
    last: Option<Vec<String>>,
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
                   array(select format_type(a.atttypid, a.atttypmod) from pg_index i
                          cross join unnest(i.indkey) with ordinality k (number, place)
                           join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
                          where i.indrelid = c.oid and i.indisprimary order by k.place) as types,
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
        let types: Vec<String> = row.try_get("types").map_err(read)?;
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
        let each = |write: &dyn Fn((usize, &String)) -> String| -> String {
            columns.iter().enumerate().map(write).collect::<Vec<_>>().join(", ")
        };
        let keys = each(&|(_, column)| format!("r.{column}"));
        let texts = each(&|(_, column)| format!("r.{column}::text"));
        let last = each(&|(at, _)| format!("($1::text[])[{}]::{}", at + 1, types[at]));
        let backfill = format!(
            "with rows as materialized (
    select {of_row} as params, array[{texts}] as key, row_number() over (order by {keys}) as place
      from {name} r
     where ({pending}) and ($1::text[] is null or ({keys}) > ({last}))
     order by {keys} limit $2::bigint
), made as materialized (
    select mapae.submit('{kind}', p.params, owner => '{owner}') as job
      from (select params from rows
            except
            select j.params from mapae.jobs j
             where j.kind = '{kind}' and j.owner = '{owner}' and j.state in ('pending', 'running')) p
)
select (select count(*) from rows) as found, (select count(job) from made) as made,
       (select key from rows order by place desc limit 1) as last;
"
        );
        let undo =
            format!("drop trigger if exists {trigger} on {name};\ndrop function if exists {function}();\n");
        Ok(AdoptionPlan { apply, backfill, undo, function })
    }

    /// From now on each row that becomes pending has its job, and those that were before have theirs. Answers how
    /// many those were. Writers of the table wait only while the trigger is made, and for no longer than that may
    /// take; the rest is done beside them, some rows at a time. Again it does nothing more, also where it was
    /// stopped in the middle.
    pub async fn adopt(&self, plan: &AdoptionPlan) -> Result<u64, AdoptError> {
        let mut connection = self.for_long().await?;
        // A condition that is refused must be found before writers meet it in the trigger.
        self.backfill(&mut connection, plan, None, 0).await?;
        let known: Option<bool> = sqlx::query_scalar("select to_regproc($1) is not null")
            .bind(&plan.function)
            .fetch_one(&mut connection)
            .await
            .map_err(refused)?;
        self.make_trigger(&mut connection, plan).await?;
        // Whoever wrote without the trigger has committed: what waits from then on is seen here, or has its job.
        let (mut made, mut last) = (0, None);
        loop {
            let part = match self.backfill(&mut connection, plan, last, PART).await {
                Err(error @ AdoptError::Refused(_)) if known != Some(true) => {
                    // Rows like that one could not be written any more.
                    self.disown(plan).await?;
                    return Err(error);
                }
                part => part?,
            };
            made += part.made;
            if part.found < PART {
                return Ok(made);
            }
            last = part.last;
        }
    }

    /// The next part of the rows that wait.
    async fn backfill(
        &self,
        connection: &mut PgConnection,
        plan: &AdoptionPlan,
        last: Option<Vec<String>>,
        most: i64,
    ) -> Result<Part, AdoptError> {
        let statement = plan.backfill.trim().trim_end_matches(';').to_owned();
        let row = sqlx::query(AssertSqlSafe(statement))
            .bind(last)
            .bind(most)
            .fetch_one(connection)
            .await
            .map_err(refused)?;
        let read = |error: sqlx::Error| AdoptError::Store(error.into());
        Ok(Part {
            found: row.try_get("found").map_err(read)?,
            made: row.try_get::<i64, _>("made").map_err(read)?.unsigned_abs(),
            last: row.try_get("last").map_err(read)?,
        })
    }

    /// Waits for writers, who wait behind it meanwhile: a moment at a time.
    async fn make_trigger(
        &self,
        connection: &mut PgConnection,
        plan: &AdoptionPlan,
    ) -> Result<(), AdoptError> {
        for _ in 0..TRIGGER_TRIES {
            let mut transaction = connection.begin().await.map_err(refused)?;
            let wait = format!("set local lock_timeout = '{TRIGGER_WAIT}'");
            sqlx::query(AssertSqlSafe(wait)).execute(&mut *transaction).await.map_err(refused)?;
            match sqlx::raw_sql(AssertSqlSafe(plan.apply.clone())).execute(&mut *transaction).await {
                Ok(_) => return transaction.commit().await.map_err(refused),
                Err(error) if is_locked(&error) => drop(transaction.rollback().await),
                Err(error) => return Err(refused(error)),
            }
            tokio::time::sleep(TRIGGER_PAUSE).await;
        }
        Err(AdoptError::Busy)
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

fn is_locked(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|told| told.code().is_some_and(|code| code == "55P03"))
}

fn refused(error: sqlx::Error) -> AdoptError {
    match error.as_database_error() {
        Some(told) if told.code().is_some_and(|code| code.starts_with("42") || code.starts_with("22")) => {
            AdoptError::Refused(told.message().to_owned())
        }
        _ => AdoptError::Store(error.into()),
    }
}
