-- Limits that hold over all processes. The same as in migrations/postgres/0003_resources.sql.

-- A gate is a resource, a kind, or one owner within a kind. What it lets through is a matter of
-- configuration; here stands what every process has to know of it.
create table gates (
    name       text        not null,
    -- Empty where the gate is not one of a single owner.
    owner      text        not null default '',
    -- When the next start is due, were all starts spread evenly.
    next_at    integer,
    -- A downstream asked to be left alone until then.
    shut_until integer,
    primary key (name, owner)
) strict;

-- What a running job has of a gate. It counts while its token stands in the job's row and the lease lives;
-- once that is over it means nothing, and the next claim at the gate removes it.
create table shares (
    gate   text    not null,
    owner  text    not null default '',
    job    blob    not null,
    token  blob    not null,
    amount integer not null check (amount >= 0),
    primary key (gate, token)
) strict;
