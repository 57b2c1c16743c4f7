//! What has to be one step on the server. Only commands of Redis 7.0 are used, which Valkey has as well.
//!
//! Entries are answered as `{lane, id, fields}`, where `lane` counts the keys from 1.

use std::sync::LazyLock;

use redis::Script;

/// KEYS streams in the order to ask; ARGV group, consumer, how many. Never waits.
pub(super) static READ: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        local out, left = {}, tonumber(ARGV[3])
        for at, key in ipairs(KEYS) do
            if left <= 0 then break end
            local got = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', left, 'STREAMS', key, '>')
            if got then
                for _, entry in ipairs(got[1][2]) do
                    out[#out + 1] = {at, entry[1], entry[2]}
                    left = left - 1
                end
            end
        end
        return out",
    )
});

/// KEYS one stream; ARGV group, consumer, how many. What this consumer has and has not settled, oldest
/// first. An entry that was deleted under it is acknowledged: there is nothing left to do for it.
pub(super) static OWN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        local out = {}
        for _, held in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[3], ARGV[2])) do
            local entry = redis.call('XRANGE', KEYS[1], held[1], held[1])
            if entry[1] then
                out[#out + 1] = {1, held[1], entry[1][2]}
            else
                redis.call('XACK', KEYS[1], ARGV[1], held[1])
            end
        end
        return out",
    )
});

/// KEYS one stream; ARGV group, consumer, its name with the slash, how many. Takes over what earlier lives
/// of the name have not settled, and forgets those that have nothing left.
pub(super) static INHERIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        local out, left, life = {}, tonumber(ARGV[4]), #ARGV[3] + 36
        for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
            local it = {}
            for at = 1, #row, 2 do it[row[at]] = row[at + 1] end
            local mine = #it.name == life and string.sub(it.name, 1, #ARGV[3]) == ARGV[3] and it.name ~= ARGV[2]
            if mine and it.pending == 0 then
                redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], it.name)
            elseif mine and left > 0 then
                local claim = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0}
                for _, held in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', left, it.name)) do
                    claim[#claim + 1] = held[1]
                    left = left - 1
                end
                for _, entry in ipairs(redis.call(unpack(claim))) do
                    if entry then out[#out + 1] = {1, entry[1], entry[2]} end
                end
            end
        end
        return out",
    )
});

/// KEYS one stream; ARGV group, milliseconds. Forgets consumers that own nothing and have not been heard of
/// for so long. In one step: a consumer that is deleted takes what it owns with it.
pub(super) static FORGET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        local gone = 0
        for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
            local it = {}
            for at = 1, #row, 2 do it[row[at]] = row[at + 1] end
            if it.pending == 0 and it.idle > tonumber(ARGV[2]) then
                redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], it.name)
                gone = gone + 1
            end
        end
        return gone",
    )
});

/// KEYS streams; ARGV group, consumer, then a number of a key and an entry for each. 1 where it is held.
pub(super) static HOLD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        local out = {}
        for at = 3, #ARGV, 2 do
            local key, id = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
            local held = redis.pcall('XPENDING', key, ARGV[1], id, id, 1)
            local mine = not held.err and held[1] and held[1][2] == ARGV[2]
            if mine then redis.call('XCLAIM', key, ARGV[1], ARGV[2], 0, id, 'JUSTID') end
            out[#out + 1] = mine and 1 or 0
        end
        return out",
    )
});

/// KEYS streams and, last, where to park; ARGV group, consumer, how many may be parked, then for each
/// entry the number of its key, its id, and why it is parked or nothing. 1 where it was this consumer's.
pub(super) static SETTLE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        local out = {}
        for at = 4, #ARGV, 3 do
            local key, id, why = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2]
            local held = redis.pcall('XPENDING', key, ARGV[1], id, id, 1)
            local mine = not held.err and held[1] and held[1][2] == ARGV[2]
            if mine then
                if why ~= '' then
                    local entry = redis.call('XRANGE', key, id, id)
                    if entry[1] then
                        redis.call('XADD', KEYS[#KEYS], 'MAXLEN', '~', ARGV[3], '*',
                            'why', why, 'from', key, unpack(entry[1][2]))
                    end
                end
                redis.call('XACK', key, ARGV[1], id)
                redis.call('XDEL', key, id)
            end
            out[#out + 1] = mine and 1 or 0
        end
        return out",
    )
});

/// KEYS streams; ARGV group, consumer, then a number of a key and an entry for each. Another may read it
/// now, as an entry of its own.
pub(super) static HAND_BACK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        for at = 3, #ARGV, 2 do
            local key, id = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
            local held = redis.pcall('XPENDING', key, ARGV[1], id, id, 1)
            if not held.err and held[1] and held[1][2] == ARGV[2] then
                local entry = redis.call('XRANGE', key, id, id)
                if entry[1] then redis.call('XADD', key, '*', unpack(entry[1][2])) end
                redis.call('XACK', key, ARGV[1], id)
                redis.call('XDEL', key, id)
            end
        end",
    )
});

/// KEYS streams; ARGV group, consumer. The consumer is gone from wherever it owns nothing.
pub(super) static LEAVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "
        for _, key in ipairs(KEYS) do
            local held = redis.pcall('XPENDING', key, ARGV[1], '-', '+', 1, ARGV[2])
            if not held.err and not held[1] then
                redis.call('XGROUP', 'DELCONSUMER', key, ARGV[1], ARGV[2])
            end
        end",
    )
});
