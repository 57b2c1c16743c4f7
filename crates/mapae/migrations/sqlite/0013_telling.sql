-- What stands before receivers stays within bounds. The same as in migrations/postgres/0013_telling.sql.

-- What has stood too long is given up; what was given up long ago is forgotten.
drop index deliveries_age;
create index deliveries_since on deliveries (since)   where dead_at is null;
create index deliveries_old   on deliveries (dead_at) where dead_at is not null;

-- A line of callbacks is an owner's at a host: no owner shares another's fate.
update callbacks set line = (select j.owner from jobs j where j.id = callbacks.job) || ' ' || line;
update deliveries set receiver = owner || ' ' || receiver where url is not null;
create index deliveries_calls on deliveries (owner, receiver, due_at) where dead_at is null and url is not null;
