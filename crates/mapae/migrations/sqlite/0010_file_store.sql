-- Which file store the jobs' files are in. The same as in migrations/postgres/0010_file_store.sql.

create table file_store (
    one integer     primary key check (one = 1),
    id  blob        not null
) strict;
