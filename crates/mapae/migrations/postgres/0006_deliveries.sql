-- Events told outside. The same as in migrations/sqlite/0006_deliveries.sql.

-- Where a job's own events are told, beside the receivers that the configuration names.
create table mapae.callbacks (
    job    uuid   primary key references mapae.jobs on delete cascade,
    url    text   not null,
    -- Its host: what stands before one host is told in one line.
    line   text   not null,
    events text[] not null
);

-- What of an event still has to be told to whom. A copy of the event, which may go with its job.
create table mapae.deliveries (
    id       bigserial   primary key,
    receiver text        not null,
    -- Of a callback.
    url      text,
    job      uuid        not null,
    sequence bigint      not null,
    owner    text        not null,
    kind     text        not null,
    event    text        not null,
    at       timestamptz not null,
    attempt  integer     not null,
    worker   text,
    code     text,

    tries    integer     not null default 0,
    since    timestamptz not null default now(),
    -- While it is being told, when another may take it.
    due_at   timestamptz not null default now(),
    -- Who tells it says so by this.
    token    uuid,
    -- Why it was not taken the last time.
    refusal  text,
    dead_at  timestamptz,

    unique (receiver, job, sequence),
    check (dead_at is null or (token is null and refusal is not null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

create index deliveries_due   on mapae.deliveries (receiver, due_at, id) where dead_at is null;
create index deliveries_dead  on mapae.deliveries (id)                   where dead_at is not null;
create index deliveries_owner on mapae.deliveries (owner, id)            where dead_at is not null;
create index deliveries_at    on mapae.deliveries (receiver, id)         where dead_at is not null;
create index deliveries_age   on mapae.deliveries (since);
