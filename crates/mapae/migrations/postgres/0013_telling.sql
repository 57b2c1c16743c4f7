-- What stands before receivers stays within bounds. The same as in migrations/sqlite/0013_telling.sql.

-- What has stood too long is given up; what was given up long ago is forgotten.
drop index mapae.deliveries_age;
create index deliveries_since on mapae.deliveries (since)   where dead_at is null;
create index deliveries_old   on mapae.deliveries (dead_at) where dead_at is not null;

-- A line of callbacks is an owner's at a host: no owner shares another's fate.
update mapae.callbacks c set line = j.owner || ' ' || c.line from mapae.jobs j where j.id = c.job;
update mapae.deliveries set receiver = owner || ' ' || receiver where url is not null;
create index deliveries_calls on mapae.deliveries (owner, receiver, due_at) where dead_at is null and url is not null;

-- With which configurations of kinds processes run, and which of them mapae.kinds is of. PostgreSQL alone has this.
create table mapae.configurations (
    -- Of what it says.
    mark     text        primary key,
    -- A newer one takes the place of an older one, and not the other way round while some process has it.
    first_at timestamptz not null default now(),
    seen_at  timestamptz not null default now()
);
alter table mapae.settings add column mark text;
