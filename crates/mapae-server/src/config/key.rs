//! Every configuration key there is: what it means, what it may be, what it is by default.
//!
//! The reader, the error texts, `config explain` and the reference page all read this table.

/// One key. A `*` in its path stands for a name the operator chooses.
#[derive(Debug)]
pub struct Key {
    pub path: &'static str,
    pub about: &'static str,
    /// What may be given, as an error text says it.
    pub possible: &'static str,
    /// As TOML; without one the key is optional.
    pub default: Option<&'static str>,
    /// Never shown whole, and may be given as `{ file = "…" }`.
    pub secret: bool,
}

const fn key(
    path: &'static str,
    default: Option<&'static str>,
    possible: &'static str,
    about: &'static str,
) -> Key {
    Key { path, about, possible, default, secret: false }
}

const fn secret(
    path: &'static str,
    default: Option<&'static str>,
    possible: &'static str,
    about: &'static str,
) -> Key {
    Key { path, about, possible, default, secret: true }
}

const TIME: &str = "a time such as \"250ms\", \"30s\", \"5m\", \"2h\" or \"7d\"";
const SIZE: &str = "a size such as \"512MiB\", \"2GB\" or a number of bytes";
const RATE: &str = "a number in a time, such as \"300/min\", \"10/s\", \"5/10s\" or \"1000/d\"";
const BACKOFF: &str = "the first wait and the longest, such as \"2s..10m\"";

pub const KEYS: &[Key] = &[
    secret(
        "database.url",
        Some("\"sqlite:mapae-data/mapae.db\""),
        "\"sqlite:PATH\", \"postgres://USER:PASSWORD@HOST/NAME\" or { file = \"PATH\" }",
        "Where jobs live.",
    ),
    secret(
        "broker.url",
        Some("\"embedded:\""),
        "\"embedded:\", \"valkey://HOST\", \"redis://HOST\", \"amqp://HOST\", \"kafka://HOST\" or { file = \"PATH\" }",
        "What tells workers that there is work; \"embedded:\" needs no server.",
    ),
    key(
        "broker.window",
        Some("1000"),
        "a number from 1 to 100000",
        "Most jobs of one lane that a broker holds at a time, whatever the backlog; \"embedded:\" holds none.",
    ),
    secret(
        "files.url",
        Some("\"file:mapae-data/files\""),
        "\"file:PATH\", \"s3://BUCKET/PREFIX\", \"gs://BUCKET/PREFIX\" or { file = \"PATH\" }",
        "Where uploads and results are kept.",
    ),
    key(
        "http.listen",
        Some("\"127.0.0.1:7070\""),
        "an address such as \"127.0.0.1:7070\" or \"[::]:7070\"",
        "Where the API listens.",
    ),
    key(
        "http.timeout",
        Some("\"30s\""),
        TIME,
        "The longest a request may take to be answered; for an upload, to send nothing.",
    ),
    key(
        "http.url",
        None,
        "an http:// or https:// address",
        "Where services and clients reach the API, for the addresses they are given; where it listens, if not given.",
    ),
    key(
        "http.wait",
        Some("\"60s\""),
        TIME,
        "The longest that `Prefer: wait=N` and the `wait` of a lease are honoured.",
    ),
    key(
        "worker.name",
        Some("\"host\""),
        "a name of 1 to 64 letters, digits, '.', '_' and '-'; \"host\" is the name of the host",
        "Stable over restarts, so that a worker finds again what it left; two workers never share it.",
    ),
    key("worker.slots", Some("4"), "a number from 1 to 1024", "How many jobs run at the same time."),
    key("worker.prefetch", Some("4"), "a number from 0 to 1024", "How many more jobs are held ready."),
    key(
        "worker.kinds",
        Some("[\"*\"]"),
        "a list of kinds, such as [\"document.analyze\", \"mail.*\"]",
        "Which kinds of job this worker runs.",
    ),
    key("worker.drain", Some("\"60s\""), TIME, "How long running jobs may take to end after a stop signal."),
    key(
        "worker.lease",
        Some("\"30s\""),
        TIME,
        "How long a job stays a worker's without a heartbeat; at least four heartbeats.",
    ),
    key("worker.heartbeat", Some("\"5s\""), TIME, "How often a worker renews its leases."),
    key(
        "rescan.after",
        Some("\"60s\""),
        TIME,
        "How long an offered job may go without being claimed before it is offered again.",
    ),
    key("kind.*.attempts", Some("5"), "a number from 1 to 1000", "How often a job of this kind is tried."),
    key("kind.*.timeout", Some("\"30m\""), TIME, "How long one attempt may take."),
    key(
        "kind.*.backoff",
        Some("\"2s..10m\""),
        BACKOFF,
        "The wait after a failed attempt, doubling from the first to the longest.",
    ),
    key(
        "kind.*.needs",
        Some("{}"),
        "a table of resources, such as { memory = \"64MiB + 8 * bytes\", convert = 1 }",
        "What a job of this kind takes of the resources while it runs; bytes are those of its file.",
    ),
    key(
        "kind.*.concurrent",
        None,
        "a number of at least 1",
        "How many jobs of this kind run at the same time, over all workers.",
    ),
    key("kind.*.rate", None, RATE, "How many jobs of this kind start in a time, over all workers."),
    key(
        "kind.*.per_owner",
        None,
        "a table such as { concurrent = 2, rate = \"10/min\", burst = 1 }",
        "How many jobs of this kind run and start for each owner, over all workers.",
    ),
    key(
        "kind.*.unique",
        None,
        "a table such as { by = [\"kind\", \"params.customer\"], period = \"1h\", states = [\"pending\", \"running\"] }",
        "When two jobs of this kind and of one owner are the same work: the second submission is answered with the first job.",
    ),
    key(
        "kind.*.on",
        Some("{}"),
        "a table by outcome, such as { succeeded = { kind = \"mail.send\", params = { to = \"ops\" }, delay = \"10m\" } }, or a statement: { failed = \"update records set state = 'FAILED' where id = :params->>'id'\" } with :result, :params, :failure, :job, :owner and :attempt",
        "The job that is made when one of this kind has succeeded, failed, gone stale or was cancelled; or, on PostgreSQL, the statement that runs in the transaction that ends it.",
    ),
    key(
        "schedule.*.cron",
        None,
        "minute, hour, day of month, month and day of week, as in \"30 2 * * MON-FRI\", with seconds first where there are six, or a name such as \"@daily\"",
        "When a job is made.",
    ),
    key(
        "schedule.*.zone",
        Some("\"UTC\""),
        "the name of a time zone, such as \"Asia/Seoul\"",
        "Whose clock the expression means.",
    ),
    key("schedule.*.kind", None, "the name of a kind", "What is made: a job of this kind."),
    key("schedule.*.params", Some("{}"), "a table", "The params of the job."),
    key("schedule.*.owner", Some("\"system\""), "the name of an owner", "Whose job it is."),
    key("schedule.*.priority", Some("5"), "1 (first) to 9 (last)", "How soon the job is taken."),
    key(
        "schedule.*.missed",
        Some("\"one\""),
        "\"skip\", \"one\" (for the latest tick) or \"all\" (at most 1000)",
        "The jobs that are made for ticks at which nothing ran, or ran more than a minute late.",
    ),
    key(
        "resource.*",
        None,
        "a size or a number, such as \"4GiB\" or 8, or a table such as { concurrent = 8, rate = \"300/min\", burst = 5, scope = \"global\" }",
        "How much of a resource there is and how often it may be begun to be used: in each worker process, or with scope \"global\" over all of them.",
    ),
    secret(
        "handler.*.url",
        None,
        "an http:// or https:// address, or { file = \"PATH\" }",
        "The service that does this kind's work, called with POST.",
    ),
    key(
        "handler.*.body",
        Some("\"job\""),
        "\"job\" (job and params) or \"raw\" (the params alone)",
        "What the service is sent.",
    ),
    key("handler.*.timeout", Some("\"30s\""), TIME, "How long one call may take."),
    key(
        "handler.*.concurrent",
        Some("16"),
        "a number from 1 to 1024",
        "How many calls this process makes to the service at the same time.",
    ),
    key(
        "handler.*.retry",
        None,
        "{ attempts = 5, backoff = \"10s..10m\" }",
        "The retry budget of the kind, beside its handler; the same as kind.*.attempts and kind.*.backoff.",
    ),
    key(
        "handler.*.accepted",
        Some("[202]"),
        "a list of statuses from 200 to 299, such as [202]; [] where none is",
        "Answers that mean accepted, not done: the service tells the end later.",
    ),
    key(
        "handler.*.deadline",
        Some("\"5m\""),
        TIME,
        "How long the service has to tell the end of what it accepted; then the attempt has failed.",
    ),
    secret(
        "handler.*.secret",
        None,
        "\"whsec_…\" (base64 of 24 to 64 bytes), a list of them while they are rotated, or { file = \"PATH\" }",
        "What calls are signed with (Standard Webhooks); hooks signed with it are believed.",
    ),
    key(
        "handler.*.complete.key",
        None,
        "a field of the params, such as \"params.contextId\"",
        "What the service calls the job by: a hook with it ends the job.",
    ),
    key(
        "handler.*.complete.callback",
        None,
        "{ path = \"/hooks/NAME\", key = \"$.contextId\", status = \"$.status\", done = [\"DONE\"], failed = [\"FAILED\"] }",
        "Where the service tells the end in its own words, signed with the secret or under a key with jobs:work.",
    ),
    key(
        "handler.*.complete.probe",
        None,
        "{ url = \"http://ai/contexts/{key}\", status = \"$.state\", done = [\"DONE\"], failed = [\"FAILED\"], every = \"15s\" }",
        "Where the service is asked, from time to time, how far it is with what it accepted.",
    ),
    secret(
        "events.to",
        Some("[]"),
        "a list of addresses, \"https://HOST/PATH\" or \"valkey://HOST/STREAM\", or { file = \"PATH\" } with one in each line",
        "Who is told of every event: CloudEvents, at least once, each job's in order.",
    ),
    secret(
        "events.secret",
        None,
        "\"whsec_…\" (base64 of 24 to 64 bytes), \"whsk_…\" (an ed25519 key), a list of them while they are rotated, or { file = \"PATH\" }",
        "What events are signed with (Standard Webhooks).",
    ),
    key(
        "events.timeout",
        Some("\"10s\""),
        "a time of at most \"30s\"",
        "How long a receiver may take for one event.",
    ),
    key(
        "events.backoff",
        Some("\"2s..30m\""),
        BACKOFF,
        "The wait after an event was not taken, doubling from the first to the longest.",
    ),
    key("events.give_up", Some("\"3d\""), TIME, "How long an event is offered before it is given up."),
    key(
        "events.backlog",
        Some("1000000"),
        "a number from 1000 to 100000000",
        "How many events may stand before one receiver, about: beyond it those that would be told first are given up. As many that were given up are kept.",
    ),
    secret(
        "receiver.*.url",
        None,
        "an http:// or https:// address, a stream (\"valkey://HOST/STREAM\", \"redis://…\"), or { file = \"PATH\" }",
        "Who is told of events, as events.to, with what it wants.",
    ),
    secret(
        "receiver.*.secret",
        None,
        "as events.secret",
        "What its events are signed with; events.secret, if not given.",
    ),
    key(
        "receiver.*.events",
        Some("[]"),
        "a list such as [\"succeeded\", \"failed\"]; [] for all",
        "Which events it is told of.",
    ),
    key(
        "receiver.*.kinds",
        Some("[]"),
        "a list of kinds, such as [\"document.analyze\", \"mail.*\"]; [] for all",
        "Of which kinds of job it is told.",
    ),
    key(
        "receiver.*.concurrent",
        Some("8"),
        "a number from 1 to 256",
        "How many events of different jobs each process tells it at the same time.",
    ),
    secret(
        "callback.secret",
        None,
        "as events.secret",
        "With it a job may have a callback. Each owner's callbacks are signed with a secret of its own, made from this one: `mapae events secret`.",
    ),
    key(
        "outgoing.allow",
        Some("[]"),
        "a list of hosts, domains and networks, such as [\"hooks.internal\", \"*.svc.local\", \"10.1.0.0/16\"]",
        "Where calls to the outside may go although it is private, reserved or not https.",
    ),
    key(
        "ai.providers",
        Some("[\"local\"]"),
        "a list of \"local\" and of names NAME of [ai.provider.NAME], each once",
        "Who is asked for intents, in this order; \"local\" is this program itself. What follows \"local\" is never asked.",
    ),
    secret(
        "ai.provider.*.url",
        None,
        "an http:// or https:// address such as \"https://HOST/v1\", or { file = \"PATH\" }",
        "A server that speaks OpenAI's chat API, up to what stands before /chat/completions. It may be private.",
    ),
    secret("ai.provider.*.key", None, "a key, or { file = \"PATH\" }", "What it is shown as the bearer of."),
    key("ai.provider.*.model", None, "a text", "The model that is asked for. Needed."),
    key("ai.provider.*.timeout", Some("\"60s\""), TIME, "How long one call may take."),
    key(
        "ai.provider.*.redact",
        Some("true"),
        "true or false",
        "Whether numbers of persons, businesses, cards and phones and mail addresses are taken out before a text is sent.",
    ),
    key(
        "ai.provider.*.schema",
        Some("\"strict\""),
        "strict, object or prompt",
        "How the form of an answer is asked for: by a JSON schema, as a JSON object, or in words only.",
    ),
    key(
        "ai.provider.*.answer_tokens",
        Some("2048"),
        "a number from 64 to 65536",
        "How long an answer may be; once, for one that was cut off, twice as long.",
    ),
    key("limits.upload", Some("\"4GiB\""), SIZE, "The largest file that is accepted."),
    key(
        "limits.uploads",
        Some("64"),
        "a number from 1 to 10000",
        "Most uploads at a time; more are answered with 503.",
    ),
    key(
        "limits.uploading",
        Some("\"16GiB\""),
        SIZE,
        "Most bytes of uploads under way, as announced; more are answered with 503.",
    ),
    key(
        "limits.pending",
        Some("100000"),
        "a number from 1 to 100000000",
        "Most jobs of one owner that wait in one lane; more are answered with 429.",
    ),
    key(
        "limits.streams",
        Some("1000"),
        "a number from 1 to 100000",
        "Most event streams open at a time; more are answered with 503.",
    ),
    key("retention.finished", Some("\"7d\""), TIME, "How long succeeded, cancelled and stale jobs are kept."),
    key("retention.failed", Some("\"90d\""), TIME, "How long dead letters are kept."),
    key(
        "retention.memory",
        Some("\"2d\""),
        TIME,
        "How long idempotency keys and the ids of deleted jobs are remembered.",
    ),
    key("log.level", Some("\"info\""), "error, warn, info, debug or trace", "How much is logged."),
    key(
        "log.format",
        Some("\"auto\""),
        "human, json or auto (human on a terminal)",
        "How log lines are written.",
    ),
];

/// Keys of the design that this version does not act on. They are refused: ignoring one would promise
/// what is not done.
const LATER: &[&str] = &["dashboard", "handler.*.complete.event"];

impl Key {
    /// Whether this key is what `path` names.
    pub fn is(&self, path: &[String]) -> bool {
        let mut pattern = self.path.split('.');
        path.iter().all(|part| pattern.next().is_some_and(|wanted| wanted == "*" || wanted == part))
            && pattern.next().is_none()
    }

    fn is_below(&self, path: &[String]) -> bool {
        let mut pattern = self.path.split('.');
        path.iter().all(|part| pattern.next().is_some_and(|wanted| wanted == "*" || wanted == part))
    }

    /// The environment variable that sets it; names with a chosen part have none.
    pub fn variable(&self) -> Option<String> {
        match self.path {
            path if path.contains('*') => None,
            "log.level" => Some("MAPAE_LOG".to_owned()),
            path => Some(format!("MAPAE_{}", path.replace('.', "_").to_uppercase())),
        }
    }
}

pub fn find(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.is(path))
}

/// Whether there are keys below `path`.
pub fn is_table(path: &[String]) -> bool {
    KEYS.iter().any(|key| key.is_below(path))
}

/// Whether `path`, or a table it stands in, belongs to a later version.
pub fn is_later(path: &[String]) -> bool {
    LATER.iter().any(|later| {
        let mut given = path.iter();
        later.split('.').all(|wanted| given.next().is_some_and(|part| wanted == "*" || wanted == part))
    })
}

/// `kind."document.analyze".attempts`: parts that hold a dot are quoted, as TOML wants it.
pub fn show(path: &[String]) -> String {
    let bare = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let parts: Vec<String> =
        path.iter().map(|part| if bare(part) { part.clone() } else { format!("{part:?}") }).collect();
    parts.join(".")
}

/// Reads what [`show`] writes. Without quotes, what stands between a table and its last part is one
/// name: `kind.document.analyze.attempts` means the same.
pub fn parse(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut part = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    if find(&parts).is_none() && parts.len() > 3 {
        let middle = parts[1..parts.len() - 1].join(".");
        let joined = vec![parts[0].clone(), middle, parts[parts.len() - 1].clone()];
        if find(&joined).is_some() {
            return joined;
        }
    }
    parts
}
