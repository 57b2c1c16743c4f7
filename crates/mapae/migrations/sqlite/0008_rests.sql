-- A service that is left alone is a gate that is shut, like any other. The same as in migrations/postgres/0008_rests.sql.

insert into gates (name, shut_until)
select 'kind/' || kind, until from rests where true
on conflict (name, owner) do update set shut_until = max(coalesce(gates.shut_until, 0), excluded.shut_until);

-- The table stays for programs of before that still run; nothing else reads it.
