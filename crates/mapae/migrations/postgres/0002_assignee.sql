-- Who looks after a dead letter. The same as in migrations/sqlite/0002_assignee.sql.

alter table mapae.jobs
    add column assignee text,
    add constraint jobs_assignee_check check (assignee is null or state = 'failed');
