//! `mapae analyze`: documents, here and now.
//!
//! Each file is a real job on an embedded runtime in a folder of its own: the same accept, broker, worker
//! and store as a server's.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use mapae::blob::{BlobName, PutLimits};
use mapae::job::State;
use mapae::job::name::{JobId, Kind, LabelName, Owner, SetName};
use mapae::job::record::{Job, NewJob, Output, Source};
use mapae::job::retry::Failure;
use mapae::store::contract::{Example, SET_EXAMPLES_MAX, Scope, TeachError};
use mapae_document::document::Document;
use mapae_document::output::chatbot::Form;
use mapae_document::output::workbook::{WorkbookError, workbook};
use serde_json::{Value, json};

use super::jobs::pages;
use super::{segment, submit};
use crate::config::{Config, Flag};
use crate::documents::KIND;
use crate::global::Global;
use crate::output::{Column, Line, print, say, table};
use crate::runtime::{Migrate, Runtime, WorkerError};
use crate::trouble::{Exit, Trouble};
use crate::upload::{Names, take};
use crate::{log, media, signals};

/// How often a job is looked at.
const LOOK: Duration = Duration::from_millis(50);

const COLUMNS: &[Column] = &[
    ("FILE", "file"),
    ("CLASS", "class"),
    ("PAGES", "pages"),
    ("SHEETS", "sheets"),
    ("TABLES", "tables"),
    ("INTENTS", "intents"),
    ("SECONDS", "seconds"),
    ("FAILURE", "failure"),
];

#[derive(Args)]
pub(crate) struct Analyze {
    /// Documents: PDF, HWP, HWPX, DOCX, PPTX, spreadsheets, HTML, Markdown, text, pictures
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The folder for results, one folder a file [default: results, or none with --json]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// One JSON object a file on stdout
    #[arg(long)]
    json: bool,
    /// The password of the files that have one
    #[arg(long)]
    password: Option<String>,
    /// The set of labels that decides on the class; `mapae labels` makes it
    #[arg(long, value_name = "NAME")]
    labels: Option<String>,
    /// Write the intents for chatbot builders, too: csv, rasa, dialogflow
    #[arg(long, value_name = "FORM,…", value_delimiter = ',', value_parser = form)]
    export: Vec<Form>,
    /// Write all tables of a file as one workbook, tables.xlsx, too
    #[arg(long, value_name = "FORM")]
    tables: Option<TablesForm>,
    /// How many files are worked on at the same time [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Where to keep database and files [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// In what one file all tables are written.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TablesForm {
    Xlsx,
}

fn form(text: &str) -> Result<Form, String> {
    Form::parse(text).ok_or_else(|| format!("one of {}", Form::ALL.map(Form::as_str).join(", ")))
}

/// A file and what has become of it.
struct Entry {
    path: PathBuf,
    /// What its folder of results is called.
    folder: String,
    state: Entered,
}

enum Entered {
    Job(JobId),
    Refused(Trouble),
}

/// How one file ended.
enum Ended {
    Document(Box<Document>),
    Failed { source: Value, failure: Value, message: String },
}

impl Analyze {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let temporary = tempfile::tempdir()?;
        let data = self.data.as_deref().unwrap_or(temporary.path());
        let mut config = global.configuration(&self.flags(data)?)?;
        // What comes at set times is a server's to make.
        config.schedules.clear();
        // So is telling what became of a server's jobs.
        (config.events.receivers, config.events.callbacks) = (Vec::new(), None);
        log::start(&crate::config::Log { level: crate::config::Level::Error, ..config.log });
        let stop = signals::stop_token()?;
        let runtime = Runtime::open(&config, Migrate::Always).await?;
        runtime.own_files().await?;
        if let Some(name) = &self.labels {
            borrow(global, name, &runtime).await?;
        }
        let keeper = runtime.start_keeper(&config).map_err(WorkerError::from)?;
        let worker = runtime.start_worker(&config, stop.clone()).await?;
        let done = stop.run_until_cancelled(self.all(&config, &runtime)).await;
        worker.drain().await;
        keeper.stop().await;
        runtime.store.close().await;
        // Interrupted: what a shell expects of an interrupted program.
        done.unwrap_or(Ok(ExitCode::from(130)))
    }

    /// Everything on a database and files of its own, and quick to let go.
    fn flags(&self, data: &Path) -> Result<Vec<Flag>, Trouble> {
        let Some(folder) = data.to_str() else {
            let help = "choose a folder whose name is UTF-8, by --data or TMPDIR";
            return Err(Trouble::usage("data-folder", "The name of the folder for data is not UTF-8.", help));
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(processors).min(self.files.len());
        Ok(vec![
            ("database.url", format!("sqlite:{folder}/mapae.db"), "--data"),
            ("files.url", format!("file:{folder}/files"), "--data"),
            ("broker.url", "embedded:".to_owned(), "--data"),
            ("worker.slots", jobs.max(1).to_string(), "--jobs"),
            ("worker.kinds", KIND.to_owned(), "--data"),
            ("worker.name", "analyze".to_owned(), "--data"),
            ("worker.drain", "1s".to_owned(), "--data"),
        ])
    }

    async fn all(&self, config: &Config, runtime: &Arc<Runtime>) -> Result<ExitCode, Trouble> {
        let began = Instant::now();
        let mut entries = Vec::new();
        for path in &self.files {
            let folder = self.folder_name(path, &entries);
            let state = match self.submit(config, runtime, path).await {
                Ok(id) => Entered::Job(id),
                Err(trouble) => Entered::Refused(trouble),
            };
            entries.push(Entry { path: path.clone(), folder, state });
        }
        let mut line = Line::default();
        let mut rows = Vec::new();
        let mut succeeded = 0;
        for (at, entry) in entries.iter().enumerate() {
            let ended = self.wait(runtime, entry, |job| {
                line.show(&format!("{}/{} {}", at + 1, entries.len(), stage(job)));
            });
            let ended = ended.await?;
            line.clear();
            succeeded += usize::from(matches!(ended, Ended::Document(_)));
            rows.push(self.report(entry, ended).await?);
        }
        if !self.json {
            print(&table(&rows, COLUMNS))?;
            if let Some(out) = self.out().filter(|_| succeeded > 0) {
                let seconds = began.elapsed().as_secs_f64();
                say(&format!(
                    "{succeeded} of {} in {seconds:.1} s; results are in {}",
                    rows.len(),
                    out.display()
                ));
            }
        }
        Ok(match succeeded {
            0 => ExitCode::from(Exit::Failed as u8),
            some if some < rows.len() => ExitCode::from(Exit::Partly as u8),
            _ => ExitCode::SUCCESS,
        })
    }

    fn out(&self) -> Option<PathBuf> {
        let default = (!self.json).then(|| PathBuf::from("results"));
        self.out.clone().or(default)
    }

    /// The file's own name; a second file of that name gets a number.
    fn folder_name(&self, path: &Path, entries: &[Entry]) -> String {
        let name = media::clean_name(&path.file_name().unwrap_or_default().to_string_lossy());
        let taken = |candidate: &str| entries.iter().any(|entry| entry.folder == candidate);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        std::iter::once(name.clone()).chain(numbered).find(|candidate| !taken(candidate)).unwrap_or(name)
    }

    async fn submit(&self, config: &Config, runtime: &Runtime, path: &Path) -> Result<JobId, Trouble> {
        let (file, _) = submit::open(path).await?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let body = tokio_util::io::ReaderStream::new(file);
        let limits = PutLimits { bytes_max: config.limits.upload };
        let kind = Kind::new(KIND).expect("a valid kind");
        let owner = owner();
        let mut params = json!({ "language": language() });
        if let Some(password) = &self.password {
            params["password"] = json!(password);
        }
        if let Some(labels) = &self.labels {
            params["labels"] = json!(labels);
        }
        let mut job = NewJob::new(owner, kind, params);
        job.retry = config.retry(&job.kind);
        // Whether a name fits its file is for the handler to say, in its own words.
        let taken = take(&runtime.blobs, job.id, &name, Names::Believed, body, limits).await;
        let mut taken = taken.map_err(|error| {
            let help = "check the file, and that there is room for a copy of it";
            Trouble::new(Exit::Unavailable, "file-unreadable", format!("{error}"), help)
        })?;
        job.source = Some(taken.source.clone());
        taken.keep();
        let accepted = runtime.accept.accept(job).await;
        accepted.map(|accepted| accepted.id).map_err(|error| {
            Trouble::new(Exit::Unavailable, "not-accepted", format!("{error}."), "check that there is room")
        })
    }

    async fn wait(
        &self,
        runtime: &Runtime,
        entry: &Entry,
        mut told: impl FnMut(&Job),
    ) -> Result<Ended, Trouble> {
        let id = match &entry.state {
            Entered::Job(id) => *id,
            Entered::Refused(trouble) => {
                let failure = json!({
                    "code": trouble.code, "class": "terminal", "message": trouble.sentence, "attempt": 0,
                });
                return Ok(Ended::Failed {
                    source: json!({ "name": entry.folder }),
                    failure,
                    message: trouble.sentence.clone(),
                });
            }
        };
        loop {
            let job = runtime.store.job(&Scope::All, id).await?;
            let job = job.ok_or_else(|| unreadable("The job is gone."))?;
            match job.state {
                State::Pending | State::Running => told(&job),
                State::Succeeded => return Ok(Ended::Document(Box::new(document(runtime, id).await?))),
                _ => return Ok(failed(&job)),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes and prints what became of one file; answers its row of the summary.
    async fn report(&self, entry: &Entry, ended: Ended) -> Result<Value, Trouble> {
        match ended {
            Ended::Document(document) => {
                if self.json {
                    let text = serde_json::to_string(&document).expect("a document is JSON");
                    print(&format!("{text}\n"))?;
                }
                let row = summary(entry, &document);
                if let Some(out) = self.out() {
                    let (folder, forms) = (out.join(&entry.folder), self.export.clone());
                    let as_workbook = self.tables == Some(TablesForm::Xlsx);
                    let written = tokio::task::spawn_blocking(move || {
                        mapae_document::output::write(&document, &folder)?;
                        write_workbook(as_workbook.then_some(&*document), &folder)?;
                        let intents = document.intents.as_deref().unwrap_or_default();
                        forms.into_iter().filter(|form| *form != Form::Json).try_for_each(|form| {
                            let bytes = form.write(intents, document.language.as_deref());
                            std::fs::write(folder.join(form.file()), bytes)
                        })
                    });
                    written.await.map_err(|_| unreadable("Writing the result ended early."))?.map_err(
                        |error| {
                            let sentence = format!("The results cannot be written: {}.", error.kind());
                            Trouble::new(
                                Exit::Unavailable,
                                "results-unwritable",
                                sentence,
                                "check --out and its room",
                            )
                        },
                    )?;
                }
                Ok(row)
            }
            Ended::Failed { source, failure, message } => {
                let code = failure["code"].as_str().unwrap_or_default().to_owned();
                if self.json {
                    print(&format!("{}\n", json!({ "source": source, "failure": failure })))?;
                } else {
                    say(&format!("{}: {message} ({code})", entry.path.display()));
                }
                Ok(json!({ "file": entry.folder, "failure": code }))
            }
        }
    }
}

/// Of an earlier run none is left where there are no tables now.
fn write_workbook(document: Option<&Document>, folder: &Path) -> std::io::Result<()> {
    let path = folder.join("tables.xlsx");
    match document.map(workbook) {
        None => Ok(()),
        Some(Ok(bytes)) => std::fs::write(path, bytes),
        Some(Err(WorkbookError::Write(error))) => Err(std::io::Error::other(error)),
        Some(Err(none)) => {
            say(&format!("{}: no tables.xlsx: {none}", folder.display()));
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        }
    }
}

/// Whose the jobs are, and what they are taught by.
fn owner() -> Owner {
    Owner::new("local").expect("a valid owner")
}

/// The set of labels as it stands on the server or in the database of the configuration, for the database of these
/// jobs.
async fn borrow(global: &Global, name: &str, runtime: &Runtime) -> Result<(), Trouble> {
    let unusable = |error: &dyn std::fmt::Display| {
        Trouble::usage("labels-unusable", format!("{error}."), "see the set with `mapae labels show`")
    };
    let set = SetName::new(name).map_err(|error| unusable(&error))?;
    let client = global.client().await?;
    let path = format!("/v1/labels/{}", segment(name));
    let items = pages(&*client, &path, &[], SET_EXAMPLES_MAX).await?;
    let mut examples = Vec::new();
    for item in &items {
        let text = |field: &str| item[field].as_str().unwrap_or_default();
        let label = LabelName::new(text("label")).map_err(|error| unusable(&error))?;
        let describes = item["description"].is_string();
        let of = if describes { "description" } else { "text" };
        examples.extend(Example::new(label, text("title"), text(of), describes));
    }
    // What an earlier run left in --data is not what the set is now.
    runtime.store.forget(&owner(), &set).await?;
    match runtime.store.teach(&owner(), &set, &examples).await {
        Ok(_) => Ok(()),
        Err(TeachError::Store(error)) => Err(error.into()),
        Err(full) => Err(unusable(&full)),
    }
}

fn stage(job: &Job) -> String {
    let name = job.source.as_ref().map(|source| source.name.as_str()).unwrap_or_default();
    let stage = job.progress.as_ref().map(|progress| progress.stage.as_str()).unwrap_or("waiting");
    format!("{name}: {stage}")
}

fn failed(job: &Job) -> Ended {
    let failure = job.failure.clone().unwrap_or_else(|| Failure::terminal("unknown", "It failed."));
    let public = |source: &Source| {
        json!({
            "name": source.name, "bytes": source.bytes, "sha256": source.sha256, "media_type": source.media_type,
        })
    };
    Ended::Failed {
        source: job.source.as_ref().map(public).unwrap_or_default(),
        failure: json!({
            "code": failure.code,
            "class": failure.class.as_str(),
            "message": failure.message,
            "attempt": failure.attempt,
        }),
        message: failure.message,
    }
}

async fn document(runtime: &Runtime, id: JobId) -> Result<Document, Trouble> {
    let output = runtime.store.output(&Scope::All, id).await?;
    let read = match output.ok_or_else(|| unreadable("The result is gone."))? {
        Output::Inline(value) => serde_json::from_value(value),
        Output::File { name, .. } => {
            let name = BlobName::parse(&name).map_err(|_| unreadable("The result has no name."))?;
            let file = runtime.blobs.open_local(&name).await?;
            let read = tokio::task::spawn_blocking(|| serde_json::from_reader(std::io::BufReader::new(file)));
            read.await.map_err(|_| unreadable("Reading the result ended early."))?
        }
    };
    read.map_err(|_| unreadable("The result is no document."))
}

fn unreadable(sentence: &str) -> Trouble {
    Trouble::new(Exit::Unavailable, "result-unreadable", sentence, "run it again, and report it")
}

fn summary(entry: &Entry, document: &Document) -> Value {
    let seconds: f64 = document.stages.iter().map(|stage| stage.seconds).sum();
    json!({
        "file": entry.folder,
        "class": document.class.as_ref().map(|class| &class.label),
        "pages": document.pages.as_ref().map(Vec::len),
        "sheets": document.sheets.as_ref().map(Vec::len),
        "tables": document.tables.as_ref().map(Vec::len),
        "intents": document.intents.as_ref().map(Vec::len),
        "seconds": format!("{seconds:.2}"),
    })
}

/// The language that the person's programs speak.
fn language() -> &'static str {
    let set = ["LC_ALL", "LC_MESSAGES", "LANG"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty());
    if set.is_some_and(|value| value.starts_with("ko")) { "ko" } else { "en" }
}
