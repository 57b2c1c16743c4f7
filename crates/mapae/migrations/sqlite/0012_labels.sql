-- Labelled examples that owners teach with. The same as in migrations/postgres/0012_labels.sql.

create table label_sets (
    owner      text        not null,
    name       text        not null,
    -- Another one after every change: what was learnt of the set is known by it.
    version    blob        not null,
    examples   integer     not null default 0,
    labels     integer     not null default 0,
    bytes      integer     not null default 0,
    changed_at integer     not null,
    primary key (owner, name)
) strict;

create table label_examples (
    owner     text        not null,
    set_name  text        not null,
    -- Made of the text: the same text again has another label, not two.
    id        blob        not null,
    label     text        not null,
    title     text        not null,
    text      text        not null,
    -- The text says what belongs under the label.
    describes integer     not null,
    primary key (owner, set_name, id),
    foreign key (owner, set_name) references label_sets (owner, name) on delete cascade
) strict, without rowid;
