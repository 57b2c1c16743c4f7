-- Putting off, uniqueness, follow-ups and schedules. The same as in migrations/sqlite/0004_plans.sql.

-- How often a handler put its own job off.
alter table mapae.jobs add column snoozed integer not null default 0;

-- Who holds a unique key: whether it still does is read off the job's own row. Gone with that row.
create table mapae.uniques (
    key    bytea       primary key,
    job    uuid        not null unique references mapae.jobs on delete cascade deferrable initially deferred,
    -- The states in which the job holds it, and until when at most.
    states text[]      not null,
    until  timestamptz
);

-- What comes after a job, by how it ends. Made by the trigger below, so in the transaction that ends the job,
-- whichever statement that is, and never otherwise.
alter table mapae.jobs
    -- The job that this one comes after. It may be gone by now.
    add column parent  uuid,
    add column follows boolean not null default false;

create table mapae.follows (
    job     uuid        not null references mapae.jobs on delete cascade,
    after   text        not null check (after in ('succeeded', 'failed', 'cancelled', 'stale')),
    -- The job to make: its columns by their names, what comes after it in `on`.
    next    jsonb       not null,
    -- Nobody takes events away.
    sent    boolean     not null,
    made    uuid,
    made_at timestamptz,
    primary key (job, after),
    check ((made is null) = (made_at is null))
);

create function mapae.follow() returns trigger language plpgsql as $$
declare
    f mapae.follows;
begin
    for f in
        update mapae.follows
           -- A UUIDv7 of this moment: ids made later sort later.
           set made = (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
                       || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 3)
                       || '8' || substr(replace(gen_random_uuid()::text, '-', ''), 18, 15))::uuid,
               made_at = new.finished_at
         where job = new.id and after = new.state and made is null
        returning *
    loop
        insert into mapae.jobs (id, owner, kind, lane, priority, params, trace, attempts_max, backoff_first_us,
                                backoff_max_us, created_at, due_at, parent, follows)
        values (f.made, new.owner, f.next->>'kind', f.next->>'lane', (f.next->>'priority')::smallint, f.next->'params',
                new.trace, (f.next->>'attempts_max')::integer, (f.next->>'backoff_first_us')::bigint,
                (f.next->>'backoff_max_us')::bigint, new.finished_at,
                new.finished_at + (f.next->>'delay_us')::bigint * interval '1 microsecond', new.id, f.next ? 'on');
        insert into mapae.follows (job, after, next, sent)
        select f.made, o.key, o.value, f.sent from jsonb_each(f.next->'on') o;
        insert into mapae.events (job, sequence, owner, kind, event, at, sent)
        values (f.made, 1, new.owner, f.next->>'kind', 'accepted', new.finished_at, f.sent);
    end loop;
    return null;
end
$$;

create trigger follow after update of state on mapae.jobs
   for each row when (new.follows and new.finished_at is not null and old.finished_at is null)
   execute function mapae.follow();

-- When each schedule ticks next; what it makes stands in the configuration of those who keep it.
create table mapae.schedules (
    name    text        primary key,
    owner   text        not null,
    kind    text        not null,
    cron    text        not null,
    zone    text        not null,
    missed  text        not null check (missed in ('skip', 'one', 'all')),
    -- Null where it never ticks again.
    next_at timestamptz,
    paused  boolean     not null default false
);

-- The job of each tick, for some days. No tick has two.
create table mapae.ticks (
    schedule text        not null references mapae.schedules on delete cascade,
    at       timestamptz not null,
    job      uuid        not null,
    primary key (schedule, at)
);
