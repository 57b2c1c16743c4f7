-- Which file store the jobs' files are in. The same as in migrations/sqlite/0010_file_store.sql.

create table mapae.file_store (
    one boolean     primary key default true check (one),
    id  uuid        not null
);
