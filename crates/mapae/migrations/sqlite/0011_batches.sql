-- Batches: jobs that wait, due at no time, until their parts have ended. A job without either costs nothing. The
-- same as in migrations/postgres/0011_batches.sql.

-- The job that this one is a part of. It may be gone by now.
alter table jobs add column batch blob;
alter table jobs add column gathers integer not null default 0;

create table batches (
    parent blob    primary key references jobs on delete cascade,
    -- No part is added any more.
    sealed integer not null,
    -- The parent has ended; looked at as long as some part may have not.
    over   integer not null default 0
) strict;

create index batches_over on batches (parent) where over;

create table members (
    batch  blob    not null references batches on delete cascade,
    number integer not null,
    job    blob    not null unique,
    -- How it has ended; null while it has not. Kept when the job is gone.
    state  text    check (state in ('succeeded', 'failed', 'cancelled', 'stale')),
    primary key (batch, number)
) strict;

create index members_open on members (batch) where state is null;

-- Those that wait for their batch: due in the year 2500 or later.
create index jobs_awaiting on jobs (id) where state = 'pending' and gathers and due_at >= 16725225600000000;

-- In the transaction that ends a job, or redrives it, whichever statement that is.
create trigger gather_part after update of state on jobs
  when new.batch is not null and (new.finished_at is null) <> (old.finished_at is null)
begin
    update members set state = case when new.finished_at is not null then new.state end where job = new.id;
end;

create trigger gather_whole after update of state on jobs
  when new.gathers and (new.finished_at is null) <> (old.finished_at is null)
begin
    update batches set over = new.finished_at is not null where parent = new.id;
end;
