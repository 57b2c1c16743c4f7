-- Work that others do. The same as in migrations/sqlite/0005_remote.sql.

-- What the outside calls the thing a job is about; it is looked up while the job runs.
alter table mapae.jobs add column business_key text;

create index jobs_awaited on mapae.jobs (kind, business_key) where state = 'running' and business_key is not null;

-- Clients that lease over HTTP, as they were last seen.
create table mapae.pullers (
    owner      text        not null,
    name       text        not null,
    kinds      text[]      not null,
    slots      integer     not null,
    started_at timestamptz not null,
    seen_at    timestamptz not null,
    primary key (owner, name)
);

-- Kinds whose service is left alone for a while, by every worker.
create table mapae.rests (
    kind  text        primary key,
    until timestamptz not null,
    code  text        not null
);
