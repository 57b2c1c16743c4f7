-- Batches: jobs that wait, due at no time, until their parts have ended. A job without either costs nothing. The
-- same as in migrations/sqlite/0011_batches.sql.

alter table mapae.jobs
    -- The job that this one is a part of. It may be gone by now.
    add column batch   uuid,
    add column gathers boolean not null default false;

create table mapae.batches (
    parent uuid    primary key references mapae.jobs on delete cascade,
    -- No part is added any more.
    sealed boolean not null,
    -- The parent has ended; looked at as long as some part may have not.
    over   boolean not null default false
);

create index batches_over on mapae.batches (parent) where over;

create table mapae.members (
    batch  uuid    not null references mapae.batches on delete cascade,
    number integer not null,
    job    uuid    not null unique,
    -- How it has ended; null while it has not. Kept when the job is gone.
    state  text    check (state in ('succeeded', 'failed', 'cancelled', 'stale')),
    primary key (batch, number)
);

create index members_open on mapae.members (batch) where state is null;

-- Those that wait for their batch: due in the year 2500 or later.
create index jobs_awaiting on mapae.jobs (id)
 where state = 'pending' and gathers and due_at >= timestamptz '2500-01-01 00:00:00+00';

-- In the transaction that ends a job, or redrives it, whichever statement that is. Each writes rows of its own only:
-- parts that end together do not wait for each other.
create function mapae.gather() returns trigger language plpgsql as $$
begin
    if new.batch is not null then
        update mapae.members set state = case when new.finished_at is not null then new.state end where job = new.id;
    end if;
    if new.gathers then
        update mapae.batches set over = new.finished_at is not null where parent = new.id;
    end if;
    return null;
end
$$;

create trigger gather after update of state on mapae.jobs
   for each row when ((new.batch is not null or new.gathers) and (new.finished_at is null) <> (old.finished_at is null))
   execute function mapae.gather();
