-- Jobs and what belongs to them. The same tables as in migrations/sqlite/0001_jobs.sql.

create schema if not exists mapae;

create table mapae.jobs (
    id               uuid        primary key,
    owner            text        not null,
    kind             text        not null,
    lane             text        not null,
    priority         smallint    not null,
    params           jsonb       not null,
    source           jsonb,
    trace            text,

    state            text        not null default 'pending',
    attempt          integer     not null default 0,
    attempts_max     integer     not null,
    backoff_first_us bigint      not null,
    backoff_max_us   bigint      not null,
    throttled        integer     not null default 0,
    redrives         integer     not null default 0,
    cancel_asked     boolean     not null default false,
    delete_asked     boolean     not null default false,

    created_at       timestamptz not null,
    due_at           timestamptz not null,
    deadline         timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz,

    -- The lease: there while the job runs, and only then.
    holder           text,
    incarnation      uuid,
    token            uuid,
    leased_until     timestamptz,
    epoch            bigint      not null default 0,
    -- The token that settled the job last: a settle whose answer was lost is asked again by it.
    settled_by       uuid,

    -- The bell: how often it rang since the job became pending, its place in the lane, and when to ring
    -- again. Zero and null while the row is still its own outbox.
    hint             integer     not null default 0,
    turn             bigint,
    ring_at          timestamptz,

    progress         jsonb,
    failure          jsonb,
    sequence         bigint      not null default 1,

    check (state in ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'stale')),
    check ((state = 'running') = (token is not null)),
    check ((token is null) = (holder is null) and (token is null) = (incarnation is null)
           and (token is null) = (leased_until is null)),
    check ((state in ('pending', 'running')) = (finished_at is null)),
    check (attempt between 0 and attempts_max and attempts_max > 0),
    check (state <> 'pending' or attempt < attempts_max),
    check (state <> 'pending' or not (cancel_asked or delete_asked)),
    check (state <> 'running' or (attempt > 0 and epoch > 0)),
    check (priority between 1 and 9),
    check ((hint > 0) = (turn is not null) and (hint > 0) = (ring_at is not null)),
    check (hint = 0 or state = 'pending'),
    check (sequence > 0)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

-- Not rung yet: the outbox, by lane and owner for fairness, and by lane for what is due first.
create index jobs_outbox_owner on mapae.jobs (lane, owner, due_at, id) where state = 'pending' and hint = 0;
create index jobs_outbox_due   on mapae.jobs (lane, due_at, id)        where state = 'pending' and hint = 0;
-- Rung: the hot window, in the order it is claimed.
create index jobs_window       on mapae.jobs (lane, turn, id)      where state = 'pending' and hint > 0;
create index jobs_running      on mapae.jobs (leased_until)        where state = 'running';
create index jobs_deadline     on mapae.jobs (deadline)            where state = 'pending' and deadline is not null;
create index jobs_finished     on mapae.jobs (finished_at)         where finished_at is not null and state <> 'failed';
create index jobs_dead         on mapae.jobs (finished_at)         where state = 'failed';
create index jobs_deleted      on mapae.jobs (id)                  where delete_asked;
create index jobs_owner        on mapae.jobs (owner, id);
-- For lists of one outcome, newest first. Nothing to keep while a job is on its way.
create index jobs_ended        on mapae.jobs (state, id)           where state in ('succeeded', 'failed', 'cancelled', 'stale');

create table mapae.results (
    job       uuid        primary key references mapae.jobs on delete cascade,
    output    jsonb       not null,
    stored_at timestamptz not null
);

create table mapae.checkpoints (
    job     uuid        not null references mapae.jobs on delete cascade,
    stage   text        not null,
    output  jsonb       not null,
    took_us bigint      not null,
    at      timestamptz not null,
    primary key (job, stage)
);

-- An event outlives its job until it has been sent.
create table mapae.events (
    job         uuid        not null,
    sequence    bigint      not null,
    owner       text        not null,
    kind        text        not null,
    event       text        not null,
    at          timestamptz not null,
    attempt     integer     not null default 0,
    worker      text,
    code        text,
    -- The order of commits cannot be known while they are under way: a reader takes what no
    -- transaction still running can come before.
    transaction xid8        not null default pg_current_xact_id(),
    number      bigserial   not null,
    sent        boolean     not null,
    primary key (job, sequence)
);

create index events_position on mapae.events (transaction, number);
create index events_owner    on mapae.events (owner, transaction, number);
create index events_unsent   on mapae.events (number) where not sent;

create table mapae.idempotency (
    owner      text        not null,
    key        text        not null,
    body       bytea       not null,
    job        uuid        not null,
    created_at timestamptz not null,
    primary key (owner, key)
);

create index idempotency_age on mapae.idempotency (created_at);

create table mapae.tombstones (
    job   uuid        primary key,
    owner text        not null,
    at    timestamptz not null
);

create index tombstones_age on mapae.tombstones (at);

create table mapae.garbage (
    file  text        primary key,
    since timestamptz not null
);

create table mapae.pauses (
    lane text        primary key,
    at   timestamptz not null
);

create table mapae.workers (
    incarnation uuid        primary key,
    name        text        not null,
    -- The advisory lock its presence connection holds; null while it holds none, and then says nothing.
    presence    bigint,
    kinds       text[]      not null,
    slots       integer     not null,
    report      jsonb       not null,
    started_at  timestamptz not null,
    seen_at     timestamptz not null
);

create table mapae.keys (
    id         text        primary key,
    hash       bytea       not null unique,
    owner      text,
    scopes     text[]      not null,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz
);
