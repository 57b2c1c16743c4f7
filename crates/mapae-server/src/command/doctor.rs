//! `mapae doctor`: whether what the configuration names is there and works.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use mapae::blob::Blobs;
use mapae::broker::contract::BrokerError;
use mapae::broker::{self, BrokerPlan};
use mapae::store::contract::{Configuration, Queue, Store, StoreError};
use mapae_document::child::DocumentReader;
use mapae_document::ocr::Missing;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ai::Local;
use crate::ai::provider::call::{Caller, Question};
use crate::config::{Config, Provider, ProviderSettings, Shape, show_duration};
use crate::documents;
use crate::global::Global;
use crate::output;
use crate::runtime::open_store;
use crate::trouble::{Exit, Trouble};

/// A clock further off than this is told of. Nothing depends on it but what people read in logs.
const CLOCK_OFF_MS: u64 = 2_000;

/// A receiver that is behind by more is told of.
const LATE: Duration = Duration::from_secs(600);

/// Most lines that are looked at, and up to this what stands in each is counted.
const RECEIVERS_MAX: usize = 1_000;

#[derive(Args)]
pub(crate) struct Doctor {
    /// Ask each provider of models a short question, too, in each form that answers can be asked for in
    #[arg(long)]
    providers: bool,
}

impl Doctor {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        check(global, self.providers).await
    }
}

async fn check(global: &Global, ask: bool) -> Result<ExitCode, Trouble> {
    let config = global.configuration(&[])?;
    let mut findings = vec![ok("configuration", "right".to_owned()), timing(&config)];
    findings.push(kinds(&config));
    findings.push(needs(&config));
    let mut known = None;
    findings.extend(database(&config, &mut known).await);
    findings.push(files(&config, known).await);
    findings.extend(broker(&config).await);
    findings.push(models());
    findings.push(recognition(&config).await);
    findings.push(sandbox().await);
    for provider in config.providers.iter().filter(|_| ask) {
        if let Provider::Remote(settings) = provider {
            findings.push(self::provider(settings, &config).await);
        }
    }
    let columns = [("CHECK", "check"), ("", "status"), ("FOUND", "found"), ("HELP", "help")];
    output::list(global.output, &findings, &columns, "check")?;
    let failed = findings.iter().any(|finding| finding["status"] == "FAILED");
    Ok(if failed { ExitCode::from(Exit::Unavailable as u8) } else { ExitCode::SUCCESS })
}

/// What a provider can do: the strictest form of answers first.
async fn provider(settings: &ProviderSettings, config: &Config) -> Value {
    let check = format!("provider {}", settings.name);
    let (mut works, mut refused) = (Vec::new(), Vec::new());
    for (shape, name) in [(Shape::Strict, "strict"), (Shape::Object, "object"), (Shape::Prompt, "prompt")] {
        match probe(&ProviderSettings { shape, ..settings.clone() }, config).await {
            Ok(()) => works.push(name),
            Err(class) => refused.push(format!("{name}: {class}")),
        }
    }
    let right = match settings.shape {
        Shape::Strict => "strict",
        Shape::Object => "object",
        Shape::Prompt => "prompt",
    };
    if works.contains(&right) {
        return ok(&check, format!("answers in the forms {}", works.join(", ")));
    }
    let found = format!("no use in the form {right} ({})", refused.join(", "));
    match works.first() {
        Some(other) => {
            let help = format!("set ai.provider.{}.schema = \"{other}\"", settings.name);
            finding(&check, "warning", found, &help)
        }
        None => finding(&check, "FAILED", found, "check its url, key and model"),
    }
}

/// Whether it answers a question of ours in its form.
async fn probe(settings: &ProviderSettings, config: &Config) -> Result<(), &'static str> {
    let caller = Caller::new(settings.clone(), config.operators()).map_err(|_| "tls")?;
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["word"],
        "properties": { "word": { "type": "string" } },
    });
    let question =
        Question { task: "Give the word that the user says.", text: "blue", name: "word", schema: &schema };
    let answer = caller.ask(&question, settings.timeout).await.map_err(|_| "timeout")?;
    let answer = answer.map_err(|refusal| refusal.class.as_str())?;
    if answer["word"].is_string() { Ok(()) } else { Err("malformed") }
}

fn finding(check: &str, status: &str, found: String, help: &str) -> Value {
    json!({ "check": check, "status": status, "found": found, "help": help })
}

fn ok(check: &str, found: String) -> Value {
    finding(check, "ok", found, "")
}

fn failed(check: &str, trouble: Trouble) -> Value {
    finding(check, "FAILED", trouble.sentence, &trouble.help)
}

fn timing(config: &Config) -> Value {
    let timing = &config.worker.timing;
    let words = format!(
        "a lost host is noticed after {}; give a stopping process more than {}",
        show_duration(timing.lease),
        show_duration(timing.drain)
    );
    ok("timing", words)
}

fn kinds(config: &Config) -> Value {
    let names: Vec<String> = crate::runtime::kinds(config).iter().map(ToString::to_string).collect();
    if names.is_empty() {
        let found = "worker.kinds names no kind that this program runs: a worker here would run nothing";
        return finding("kinds", "warning", found.into(), "correct worker.kinds, or run the work elsewhere");
    }
    ok("kinds", names.join(", "))
}

fn needs(config: &Config) -> Value {
    let undefined = config.undefined_needs();
    if undefined.is_empty() {
        return ok("needs", "every resource is defined".into());
    }
    let named: Vec<String> =
        undefined.iter().map(|(kind, resource)| format!("{resource} (needed by {kind})")).collect();
    let found = format!("not defined, and so not limited: {}", named.join(", "));
    finding("needs", "warning", found, "say under [resource] how much of it there is")
}

/// This machine's clock.
fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How far `there`, told between `asked` and `answered`, is off for certain: a slow answer is no wrong clock.
fn off_ms(asked: u64, there: u64, answered: u64) -> u64 {
    asked.saturating_sub(there).max(there.saturating_sub(answered))
}

/// `files` becomes the file store that the database knows, if it knows one.
async fn database(config: &Config, files: &mut Option<Uuid>) -> Vec<Value> {
    if let Some(file) = missing_file(config.database.reveal()) {
        let found = format!("there is no {} yet", file.display());
        return vec![finding("database", "warning", found, "`mapae dev` and `mapae migrate` make it")];
    }
    let store = match open_store(config).await {
        Ok(store) => store,
        Err(error) => return vec![failed("database", error.into())],
    };
    let findings = database_findings(config, &*store).await;
    *files = store.files().await.unwrap_or_default();
    store.close().await;
    findings
}

/// The file of a SQLite database that nobody has made yet.
fn missing_file(url: &str) -> Option<&Path> {
    let file = Path::new(url.strip_prefix("sqlite:")?.split('?').next()?);
    (file != Path::new(":memory:") && !file.exists()).then_some(file)
}

async fn database_findings(config: &Config, store: &dyn Store) -> Vec<Value> {
    let (began, asked) = (Instant::now(), clock_ms());
    let now = match store.now().await {
        Ok(now) => now,
        Err(error) => return vec![failed("database", error.into())],
    };
    let took = began.elapsed().as_millis();
    let mut findings = vec![ok("database", format!("{} answered in {took} ms", config.database))];
    let off = off_ms(asked, u64::try_from(now.micros() / 1000).unwrap_or_default(), clock_ms());
    findings.push(if off > CLOCK_OFF_MS {
        finding("clock", "warning", format!("{off} ms off the database's"), "set this machine's clock")
    } else {
        ok("clock", format!("{off} ms off the database's"))
    });
    match store.schema().await {
        Err(error) => return [findings, vec![failed("schema", error.into())]].concat(),
        Ok(schema) if schema.found < schema.known => {
            let found = format!("{} of {}", schema.found, schema.known);
            return [findings, vec![finding("schema", "FAILED", found, "run `mapae migrate`")]].concat();
        }
        Ok(schema) if schema.found > schema.known => {
            let found = format!("{}, newer than this program's {}", schema.found, schema.known);
            return [findings, vec![finding("schema", "FAILED", found, "use a newer mapae")]].concat();
        }
        Ok(schema) => findings.push(ok("schema", format!("{}", schema.found))),
    }
    findings.push(match store.sees_presence().await {
        Ok(true) => ok("presence", "a lost worker is noticed at once".into()),
        Ok(false) => finding(
            "presence",
            "warning",
            "sessions of the database are shared: a lost worker's jobs wait for the end of their leases"
                .into(),
            "connect directly, or through a pooler in session mode",
        ),
        Err(error) => failed("presence", error.into()),
    });
    findings.push(match store.workers().await {
        Ok(workers) if workers.is_empty() => {
            finding("workers", "warning", "none".into(), "start `mapae work`")
        }
        Ok(workers) => ok("workers", format!("{}", workers.len())),
        Err(error) => failed("workers", error.into()),
    });
    findings.push(match store.stats().await {
        Ok(stats) if stats.dead > 0 => {
            finding("dead letters", "warning", format!("{}", stats.dead), "look at `mapae dead list`")
        }
        Ok(_) => ok("dead letters", "none".into()),
        Err(error) => failed("dead letters", error.into()),
    });
    match store.configurations().await {
        Ok(known) => findings.extend(configurations(&known)),
        Err(error) => findings.push(failed("configurations", error.into())),
    }
    findings.push(match queues(config, store).await {
        Ok(queues) => told(config, &queues),
        Err(error) => failed("events", error.into()),
    });
    findings
}

/// What stands before receivers: before each that is configured, however many lines of callbacks there are.
async fn queues(config: &Config, store: &dyn Store) -> Result<Vec<Queue>, StoreError> {
    let names: Vec<String> =
        config.events.receivers.iter().map(|receiver| receiver.to.name.clone()).collect();
    let mut queues = store.queues(Some(&names), RECEIVERS_MAX).await?;
    let others = store.queues(None, RECEIVERS_MAX).await?;
    queues.extend(others.into_iter().filter(|queue| !names.contains(&queue.receiver)));
    Ok(queues)
}

/// Which kinds the database goes by, where processes say so.
fn configurations(known: &[Configuration]) -> Option<Value> {
    let in_force = known.iter().find(|one| one.in_force);
    Some(match (known, in_force) {
        ([], _) => return None,
        ([_], Some(one)) => ok("configurations", format!("every process has the one in force, {}", one.mark)),
        (_, Some(one)) => {
            let found = format!(
                "processes have {} of them; in force is {}, since {}",
                known.len(),
                one.mark,
                one.first_at
            );
            let help = "give every process the same [kind] and [handler] tables; the newest is in force";
            finding("configurations", "warning", found, help)
        }
        (_, None) => {
            let found = "the kinds of no process that runs are in force".to_owned();
            finding("configurations", "warning", found, "it passes within two minutes")
        }
    })
}

/// What stands before receivers. Callbacks' hosts are their owners', and are not named.
fn told(config: &Config, queues: &[Queue]) -> Value {
    let of_jobs = |queue: &&Queue| queue.receiver.contains('/');
    let known = |queue: &&Queue| {
        let configured = config.events.receivers.iter().any(|receiver| receiver.to.name == queue.receiver);
        configured || (of_jobs(queue) && config.events.callbacks.is_some())
    };
    let names = |all: Vec<&Queue>| {
        let calls = all.iter().filter(|queue| of_jobs(queue)).count();
        let named = all.iter().filter(|queue| !of_jobs(queue)).map(|queue| queue.receiver.clone());
        named.chain((calls > 0).then(|| format!("callbacks ({calls})"))).collect::<Vec<_>>().join(", ")
    };
    let of = |wanted: fn(&Queue) -> bool| {
        queues.iter().filter(known).filter(|queue| wanted(queue)).collect::<Vec<_>>()
    };
    let unknown: Vec<&Queue> = queues.iter().filter(|queue| !known(queue) && queue.waiting > 0).collect();
    if !unknown.is_empty() {
        let found = format!("not told by this configuration, and something waits: {}", names(unknown));
        let help = "give every process the same [events] and [receiver]; after events.give_up it is given up";
        return finding("events", "warning", found, help);
    }
    let late = of(|queue| queue.oldest.is_some_and(|oldest| oldest > LATE));
    if !late.is_empty() {
        let found = format!("behind by more than {}: {}", show_duration(LATE), names(late));
        return finding("events", "warning", found, "`mapae events receivers` says how much stands there");
    }
    let dead = of(|queue| queue.dead > 0);
    if !dead.is_empty() {
        let help = "look at `mapae events dead`, then `mapae events resend`";
        return finding("events", "warning", format!("given up: {}", names(dead)), help);
    }
    ok("events", if config.events.any() { "told in time".into() } else { "nobody is told".into() })
}

async fn files(config: &Config, known: Option<Uuid>) -> Value {
    let checked = async {
        let blobs = Blobs::open(config.files.reveal())?;
        if let Some(known) = known {
            blobs.expect(known);
            blobs.verify().await?;
        }
        blobs.check().await
    };
    match checked.await {
        Ok(()) => ok("files", format!("{} keeps what it is given", config.files)),
        Err(error) => failed("files", error.into()),
    }
}

fn models() -> Value {
    match Local::open() {
        Err(error) => finding("models", "FAILED", error.to_string(), "`mapae models verify` says which"),
        Ok(local) => match local.embedder() {
            Some(embedder) => ok("models", format!("embeddings by {}", embedder.id())),
            None => {
                let found = "no embeddings: the pack of the encoder is not there".to_owned();
                finding("models", "warning", found, "`mapae models list` says where it is looked for")
            }
        },
    }
}

/// What holds where documents are read, seen by a process that would read one.
async fn sandbox() -> Value {
    const CHECK: &str = "document sandbox";
    match documents::protection().await {
        Ok(protection) if protection.missing().is_empty() => {
            ok(CHECK, protection.parts().map(|(name, _)| name).join(", "))
        }
        Ok(protection) => {
            let found = format!("documents are read without {}", protection.missing().join(", "));
            finding(CHECK, "warning", found, documents::PROTECTION_HELP)
        }
        Err(error) => finding(CHECK, "FAILED", error.to_string(), "allow this program to start processes"),
    }
}

/// Whether text on pictures can be read.
async fn recognition(config: &Config) -> Value {
    const INSTALL: &str = "apt-get install tesseract-ocr tesseract-ocr-kor";
    let ocr = documents::ocr(config);
    if ocr.is_off() {
        return ok("ocr", "switched off by resource.ocr".to_owned());
    }
    let lacking = |found: &str| finding("ocr", "warning", found.to_owned(), INSTALL);
    match DocumentReader::new().recogniser(&ocr.tesseract).await {
        Err(Missing::Program) => lacking("tesseract is not there: scans and pictures give no text"),
        Err(Missing::Languages) => {
            lacking("tesseract has no data of a language: scans and pictures give no text")
        }
        Ok(installed) => match installed.languages_missing()[..] {
            [] => ok("ocr", format!("by {}", installed.program().display())),
            ["kor", ..] => lacking("tesseract cannot read Korean"),
            _ => lacking("tesseract cannot read English"),
        },
    }
}

async fn broker(config: &Config) -> Vec<Value> {
    let plan = BrokerPlan {
        url: config.broker.url.reveal().to_owned(),
        database_url: config.database.reveal().to_owned(),
    };
    let broken =
        |error: BrokerError| vec![finding("broker", "FAILED", error.to_string(), "correct broker.url")];
    let broker = match broker::open(&plan) {
        Ok(broker) => broker,
        Err(error) => return broken(error),
    };
    match broker.check().await {
        Ok(concerns) if concerns.is_empty() => vec![ok("broker", broker.name().to_owned())],
        Ok(concerns) => concerns
            .into_iter()
            .map(|concern| finding("broker", "warning", concern.what, &concern.help))
            .collect(),
        Err(error @ BrokerError::Transient(_)) => vec![finding(
            "broker",
            "FAILED",
            error.to_string(),
            "start it, or correct broker.url; jobs are accepted meanwhile and wait",
        )],
        Err(error) => broken(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_by_what_a_slow_answer_does_not_explain() {
        assert_eq!(off_ms(1_000, 1_000, 1_000), 0);
        assert_eq!(off_ms(1_000, 5_000, 9_000), 0);
        assert_eq!(off_ms(1_000, 400, 9_000), 600);
        assert_eq!(off_ms(1_000, 9_700, 9_000), 700);
    }
}
