-- Jobs and the user's own records in one transaction. PostgreSQL alone has this.

-- What the configuration says of a kind, for what happens within the database.
create table mapae.kinds (
    kind             text    primary key,
    attempts_max     integer not null,
    backoff_first_us bigint  not null,
    backoff_max_us   bigint  not null,
    -- Two jobs may be the same work, which only the program can tell.
    singular         boolean not null,
    -- What comes after its jobs, as in mapae.follows, by how they end.
    follows          jsonb   not null,
    -- Statements that run in the transaction that ends a job, by how it ends. $1 result, $2 params, $3 failure,
    -- $4 job, $5 owner, $6 attempt.
    writes           jsonb   not null
);

-- What holds for all kinds.
create table mapae.settings (
    sole   boolean primary key default true check (sole),
    -- Somebody takes events away.
    outbox boolean not null
);

-- The job is there if, and only if, the transaction of the caller commits. It runs as its own owner, so that a role
-- needs no right beside that of calling it.
create function mapae.submit(
    kind     text,
    params   jsonb       default '{}',
    key      text        default null,
    run_at   timestamptz default null,
    priority integer     default 5,
    owner    text        default 'default',
    deadline timestamptz default null
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    -- A UUIDv7 of this moment: ids made later sort later.
    made  uuid := (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
                   || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 3)
                   || '8' || substr(replace(gen_random_uuid()::text, '-', ''), 18, 15))::uuid;
    body  bytea;
    first record;
    plan  mapae.kinds;
    sent  boolean := not coalesce((select s.outbox from mapae.settings s), false);
begin
    if submit.kind is null or submit.kind !~ '^[a-z0-9._-]{1,64}$' then
        raise exception 'a kind is 1 to 64 characters of a-z, 0-9, ''.'', ''_'' and ''-''' using errcode = '22023';
    end if;
    if submit.owner is null or submit.owner !~ '^[a-zA-Z0-9._@:-]{1,64}$' then
        raise exception 'an owner is 1 to 64 characters of a-z, A-Z, 0-9, ''.'', ''_'', ''-'', ''@'' and '':'''
            using errcode = '22023';
    end if;
    if submit.key !~ '^[!-~]{1,255}$' then
        raise exception 'a key is 1 to 255 printable ASCII characters without spaces' using errcode = '22023';
    end if;
    if submit.priority is null or submit.priority not between 1 and 9 then
        raise exception 'a priority is 1 to 9' using errcode = '22023';
    end if;
    if submit.params is null or octet_length(submit.params::text) > 262144
       or jsonb_path_exists(submit.params, 'strict $.**{100 to last}') then
        raise exception 'params are at most 262144 bytes of JSON, nested 100 deep at most' using errcode = '22023';
    end if;
    if submit.run_at in ('infinity', '-infinity') or submit.deadline in ('infinity', '-infinity') then
        raise exception 'run_at and deadline are moments' using errcode = '22023';
    end if;
    select * into plan from mapae.kinds k where k.kind = submit.kind;
    if plan.singular then
        raise exception 'jobs of the kind % may be the same work, which cannot be told here', submit.kind
            using errcode = '0A000', hint = 'Submit it over HTTP, or take `unique` from the kind and give a key.';
    end if;
    if submit.key is not null then
        body := sha256(convert_to(jsonb_build_array('submit', submit.kind, submit.params, submit.priority,
                                                    submit.run_at, submit.deadline)::text, 'UTF8'));
        -- As over HTTP: a key whose job is gone is free. Only who could have seen that job may say so.
        insert into mapae.idempotency as i (owner, key, body, job, created_at)
        values (submit.owner, submit.key, body, made, now())
        on conflict on constraint idempotency_pkey do update
           set body = excluded.body, job = excluded.job, created_at = excluded.created_at
         where exists (select from mapae.idempotency seen
                        where seen.owner = i.owner and seen.key = i.key and seen.job = i.job)
           and not exists (select from mapae.jobs j where j.id = i.job and not j.delete_asked);
        if not found then
            select i.body, i.job into first
              from mapae.idempotency i where i.owner = submit.owner and i.key = submit.key;
            if not found then
                -- A snapshot older than the first submission under this key.
                raise exception 'the key was used by a transaction that this one cannot see' using errcode = '40001';
            end if;
            if first.body <> body then
                raise exception 'the idempotency key was used for another submission'
                    using errcode = 'MP409', hint = 'Give every submission a key of its own, and the same one only to try it again.';
            end if;
            return first.job;
        end if;
    end if;
    insert into mapae.jobs (id, owner, kind, lane, priority, params, attempts_max, backoff_first_us, backoff_max_us,
                            created_at, due_at, deadline, follows)
    values (made, submit.owner, submit.kind,
            submit.kind || case when submit.priority <= 3 then ':high' when submit.priority >= 7 then ':low' else '' end,
            submit.priority, submit.params, coalesce(plan.attempts_max, 5), coalesce(plan.backoff_first_us, 2000000),
            coalesce(plan.backoff_max_us, 600000000), now(), coalesce(submit.run_at, now()), submit.deadline,
            coalesce(plan.follows, '{}') <> '{}');
    insert into mapae.follows (job, after, next, sent)
    select made, f.key, f.value, sent from jsonb_each(coalesce(plan.follows, '{}')) f;
    insert into mapae.events (job, sequence, owner, kind, event, at, sent)
    values (made, 1, submit.owner, submit.kind, 'accepted', now(), sent);
    return made;
end
$$;

revoke execute on function mapae.submit from public;

-- Said after the commit: what was submitted is looked for at once. In the transaction itself it would make all
-- commits wait for each other.
create function mapae.ring() returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select pg_notify('mapae_ring', '') $$;

revoke execute on function mapae.ring from public;

-- The result on its way to a statement of mapae.kinds; null in every row that is kept.
alter table mapae.jobs add column output jsonb check (output is null);

create function mapae.write_back() returns trigger language plpgsql as $$
declare
    writes jsonb;
    wrote  bigint;
    state  text;
    meant  text := new.state;
begin
    select k.writes into writes from mapae.kinds k where k.kind = new.kind;
    if writes is not null and writes ? new.state then
        begin
            if new.output ? 'file' then
                raise exception 'the result is a file' using errcode = '22001';
            end if;
            execute writes->>new.state
              using new.output->'inline', new.params, new.failure, new.id, new.owner, new.attempt;
            get diagnostics wrote = row_count;
            if wrote = 0 and new.state in ('succeeded', 'failed') then
                new.state := 'stale';
                new.failure := jsonb_build_object('code', 'record-gone', 'class', 'stale', 'attempt', new.attempt,
                                                  'message', 'No record was there to be written.');
            end if;
        exception when others then
            get stacked diagnostics state = returned_sqlstate;
            -- Another try may go well: the whole transaction is asked again.
            if state in ('40001', '40P01', '55P03', '57014') or left(state, 2) = '53' or state like '57P0_' then
                raise;
            end if;
            new.state := 'failed';
            new.failure := jsonb_build_object('code', 'write-back-failed', 'class', 'terminal', 'attempt', new.attempt,
                                              'message', 'The statement that writes the end back was refused (SQLSTATE '
                                                         || state || ').');
        end;
    end if;
    -- It has ended otherwise than it was meant to: the record is to say so, too.
    if new.state <> meant and writes ? new.state then
        begin
            execute writes->>new.state
              using null::jsonb, new.params, new.failure, new.id, new.owner, new.attempt;
        exception when others then
            get stacked diagnostics state = returned_sqlstate;
            if state in ('40001', '40P01', '55P03', '57014') or left(state, 2) = '53' or state like '57P0_' then
                raise;
            end if;
        end;
    end if;
    new.output := null;
    return new;
end
$$;

create trigger write_back before update of state on mapae.jobs
   for each row when (new.finished_at is not null and old.finished_at is null)
   execute function mapae.write_back();

-- Only while some kind writes back.
alter table mapae.jobs disable trigger write_back;
