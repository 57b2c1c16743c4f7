-- Putting off, uniqueness, follow-ups and schedules. The same as in migrations/postgres/0004_plans.sql.

-- How often a handler put its own job off.
alter table jobs add column snoozed integer not null default 0;

-- Who holds a unique key: whether it still does is read off the job's own row. Gone with that row.
create table uniques (
    key    blob        primary key,
    job    blob        not null unique references jobs on delete cascade deferrable initially deferred,
    -- The states in which the job holds it, and until when at most.
    states text        not null,
    until  integer
) strict;

-- What comes after a job, by how it ends. Made by the trigger below, so in the transaction that ends the job,
-- whichever statement that is, and never otherwise.
-- The job that this one comes after. It may be gone by now.
alter table jobs add column parent blob;
alter table jobs add column follows integer not null default 0;

create table follows (
    job     blob        not null references jobs on delete cascade,
    after   text        not null check (after in ('succeeded', 'failed', 'cancelled', 'stale')),
    -- The job to make: its columns by their names, what comes after it in `on`.
    next    text        not null,
    -- Nobody takes events away.
    sent    integer     not null,
    made    blob,
    made_at integer,
    primary key (job, after),
    check ((made is null) = (made_at is null))
) strict;

create trigger follow after update of state on jobs
  when new.follows and new.finished_at is not null and old.finished_at is null
begin
    update follows
       -- A UUIDv7 of this moment: ids made later sort later.
       set made = unhex(printf('%012x', new.finished_at / 1000)
                        || '7' || substr(hex(randomblob(2)), 1, 3) || '8' || substr(hex(randomblob(8)), 1, 15)),
           made_at = new.finished_at
     where job = new.id and after = new.state and made is null;
    -- One that was made before is there already, or is gone for good.
    insert or ignore into jobs (id, owner, kind, lane, priority, params, trace, attempts_max, backoff_first_us,
                                backoff_max_us, created_at, due_at, parent, follows)
    select f.made, new.owner, f.next->>'kind', f.next->>'lane', f.next->>'priority', f.next->'params',
           new.trace, f.next->>'attempts_max', f.next->>'backoff_first_us', f.next->>'backoff_max_us',
           new.finished_at, new.finished_at + (f.next->>'delay_us'), new.id, f.next->'on' is not null
      from follows f
     where f.job = new.id and f.after = new.state and f.made_at = new.finished_at;
    insert or ignore into follows (job, after, next, sent)
    select f.made, o.key, o.value, f.sent
      from follows f
     cross join json_each(f.next->'on') o
     where f.job = new.id and f.after = new.state and f.made_at = new.finished_at;
    insert or ignore into events (job, sequence, owner, kind, event, at, sent)
    select f.made, 1, new.owner, f.next->>'kind', 'accepted', new.finished_at, f.sent
      from follows f
     where f.job = new.id and f.after = new.state and f.made_at = new.finished_at;
end;

-- When each schedule ticks next; what it makes stands in the configuration of those who keep it.
create table schedules (
    name    text        primary key,
    owner   text        not null,
    kind    text        not null,
    cron    text        not null,
    zone    text        not null,
    missed  text        not null check (missed in ('skip', 'one', 'all')),
    -- Null where it never ticks again.
    next_at integer,
    paused  integer     not null default 0
) strict;

-- The job of each tick, for some days. No tick has two.
create table ticks (
    schedule text        not null references schedules on delete cascade,
    at       integer     not null,
    job      blob        not null,
    primary key (schedule, at)
) strict;
