-- Who looks after a dead letter. The same as in migrations/postgres/0002_assignee.sql.

alter table jobs add column assignee text check (assignee is null or state = 'failed');
