-- Events told outside. The same as in migrations/postgres/0006_deliveries.sql.

-- Where a job's own events are told, beside the receivers that the configuration names.
create table callbacks (
    job    blob not null primary key references jobs on delete cascade,
    url    text not null,
    -- Its host: what stands before one host is told in one line.
    line   text not null,
    events text not null
) strict;

-- What of an event still has to be told to whom. A copy of the event, which may go with its job.
create table deliveries (
    id       integer primary key autoincrement,
    receiver text    not null,
    -- Of a callback.
    url      text,
    job      blob    not null,
    sequence integer not null,
    owner    text    not null,
    kind     text    not null,
    event    text    not null,
    at       integer not null,
    attempt  integer not null,
    worker   text,
    code     text,

    tries    integer not null default 0,
    since    integer not null,
    -- While it is being told, when another may take it.
    due_at   integer not null,
    -- Who tells it says so by this.
    token    blob,
    -- Why it was not taken the last time.
    refusal  text,
    dead_at  integer,

    unique (receiver, job, sequence),
    check (dead_at is null or (token is null and refusal is not null))
) strict;

create index deliveries_due   on deliveries (receiver, due_at, id) where dead_at is null;
create index deliveries_dead  on deliveries (id)                   where dead_at is not null;
create index deliveries_owner on deliveries (owner, id)            where dead_at is not null;
create index deliveries_at    on deliveries (receiver, id)         where dead_at is not null;
create index deliveries_age   on deliveries (since);
