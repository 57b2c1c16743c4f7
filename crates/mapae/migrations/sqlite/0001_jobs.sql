-- Jobs and what belongs to them. The same tables as in migrations/postgres/0001_jobs.sql.
-- Moments are microseconds since the Unix epoch, ids and tokens 16 bytes, flags 0 or 1, JSON is text.

create table jobs (
    id               blob        primary key,
    owner            text        not null,
    kind             text        not null,
    lane             text        not null,
    priority         integer     not null,
    params           text        not null,
    source           text,
    trace            text,

    state            text        not null default 'pending',
    attempt          integer     not null default 0,
    attempts_max     integer     not null,
    backoff_first_us integer     not null,
    backoff_max_us   integer     not null,
    throttled        integer     not null default 0,
    redrives         integer     not null default 0,
    cancel_asked     integer     not null default 0,
    delete_asked     integer     not null default 0,

    created_at       integer     not null,
    due_at           integer     not null,
    deadline         integer,
    started_at       integer,
    finished_at      integer,

    -- The lease: there while the job runs, and only then.
    holder           text,
    incarnation      blob,
    token            blob,
    leased_until     integer,
    epoch            integer     not null default 0,
    -- The token that settled the job last: a settle whose answer was lost is asked again by it.
    settled_by       blob,

    -- The bell: how often it rang since the job became pending, its place in the lane, and when to ring
    -- again. Zero and null while the row is still its own outbox.
    hint             integer     not null default 0,
    turn             integer,
    ring_at          integer,

    progress         text,
    failure          text,
    sequence         integer     not null default 1,

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
) strict;

-- Not rung yet: the outbox, by lane and owner for fairness, and by lane for what is due first.
create index jobs_outbox_owner on jobs (lane, owner, due_at, id) where state = 'pending' and hint = 0;
create index jobs_outbox_due   on jobs (lane, due_at, id)        where state = 'pending' and hint = 0;
-- Rung: the hot window, in the order it is claimed.
create index jobs_window       on jobs (lane, turn, id)          where state = 'pending' and hint > 0;
create index jobs_running      on jobs (leased_until)            where state = 'running';
create index jobs_deadline     on jobs (deadline)                where state = 'pending' and deadline is not null;
create index jobs_finished     on jobs (finished_at)             where finished_at is not null and state <> 'failed';
create index jobs_dead         on jobs (finished_at)             where state = 'failed';
create index jobs_deleted      on jobs (id)                      where delete_asked;
create index jobs_owner        on jobs (owner, id);
-- For lists of one outcome, newest first. Nothing to keep while a job is on its way.
create index jobs_ended        on jobs (state, id)               where state in ('succeeded', 'failed', 'cancelled', 'stale');

create table results (
    job       blob        primary key references jobs on delete cascade,
    output    text        not null,
    stored_at integer     not null
) strict;

-- Its rows stand in the order the stages were done: a stage that is done again is a new row.
create table checkpoints (
    job     blob        not null references jobs on delete cascade,
    stage   text        not null,
    output  text        not null,
    took_us integer     not null,
    at      integer     not null,
    primary key (job, stage)
) strict;

-- An event outlives its job until it has been sent.
create table events (
    job         blob        not null,
    sequence    integer     not null,
    owner       text        not null,
    kind        text        not null,
    event       text        not null,
    at          integer     not null,
    attempt     integer     not null default 0,
    worker      text,
    code        text,
    -- One transaction writes at a time, so the number alone is the order of commits. Never used twice.
    number      integer     primary key autoincrement,
    sent        integer     not null,
    unique (job, sequence)
) strict;

create index events_owner  on events (owner, number);
create index events_unsent on events (number) where not sent;

create table idempotency (
    owner      text        not null,
    key        text        not null,
    body       blob        not null,
    job        blob        not null,
    created_at integer     not null,
    primary key (owner, key)
) strict;

create index idempotency_age on idempotency (created_at);

create table tombstones (
    job   blob        primary key,
    owner text        not null,
    at    integer     not null
) strict;

create index tombstones_age on tombstones (at);

create table garbage (
    file  text        primary key,
    since integer     not null
) strict;

create table pauses (
    lane text        primary key,
    at   integer     not null
) strict;

create table workers (
    incarnation blob        primary key,
    name        text        not null,
    -- The name of the lock file that it holds while it lives.
    presence    text        not null,
    kinds       text        not null,
    slots       integer     not null,
    report      text        not null,
    started_at  integer     not null,
    seen_at     integer     not null
) strict;

create table keys (
    id         text        primary key,
    hash       blob        not null unique,
    owner      text,
    scopes     text        not null,
    created_at integer     not null,
    expires_at integer,
    revoked_at integer
) strict;
