-- A service that is left alone is a gate that is shut, like any other. The same as in migrations/sqlite/0008_rests.sql.

insert into mapae.gates as g (name, shut_until)
select 'kind/' || kind, until from mapae.rests
on conflict (name, owner) do update set shut_until = greatest(g.shut_until, excluded.shut_until);

-- The table stays for programs of before that still run; nothing else reads it.
