-- What of an owner's is offered in a lane. The same as in migrations/sqlite/0009_offered.sql.

create index jobs_offered on mapae.jobs (lane, owner, turn, id) where state = 'pending' and hint > 0;
