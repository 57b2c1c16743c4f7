//! The kind `document.analyze`: a file to its document, stage by stage.
//!
//! | stage | gives | |
//! |---|---|---|
//! | `convert` | pages or sheets, text, language; the tables of sheets | in a child process |
//! | `ocr` | text of pages that are pictures | only where there are any; kept every few pages |
//! | `tables` | the tables of pages | in another child process: what goes wrong there costs no text |
//! | `classify` | the class | `null` without an [`Understand`] |
//! | `keywords` | keywords | likewise |
//! | `intents` | chatbot intents | likewise |
//!
//! Each is checkpointed: an attempt after a crash begins with the first that is not done. The first two and `tables` are
//! kept in parts where a document has many pages (`handler/long.rs`, `handler/scans.rs`).
//!
//! A document that its reader does not survive, by a crash, time or memory, is read once more for its text alone. What
//! comes of that carries the warning [`TEXT_ONLY`], and nothing further is made of it: what broke one reader is not
//! to be the work of three more stages. Where that fails, too, the job fails with what went wrong first.

mod long;
mod scans;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mapae::handler::{Context, Handler};
use mapae::job::name::SetName;
use mapae::job::record::Source;
use mapae::job::retry::Failure;
use mapae::metrics::Metrics;
use serde::Deserialize;

use crate::child::{DocumentReader, Request};
use crate::document::{Converted, Document, PageTables, Span, Stage, Warning};
use crate::error::{DocumentError, Language, Loss};
use crate::limits::Limits;
use crate::ocr::Ocr;
use crate::table::sight::Sight;
use crate::understand::Understand;

/// What a file is submitted as where nobody says otherwise.
pub const KIND: &str = "document.analyze";

/// The code of the warning that only the text could be read.
pub const TEXT_ONLY: &str = "text-only";

/// Analyses documents.
#[derive(Default)]
pub struct Analyze {
    pub reader: DocumentReader,
    pub limits: Limits,
    pub ocr: Ocr,
    /// Without one nothing is understood, and what would be is `null`.
    pub understand: Option<Arc<dyn Understand>>,
    /// Where lost readers are counted, by class and by what they were reading.
    pub metrics: Option<Arc<Metrics>>,
}

/// What a job of this kind takes beside its file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Input {
    /// For files that are protected by one.
    password: Option<String>,
    /// `ko` for failures in Korean; otherwise they are in English.
    language: Option<String>,
    /// The owner's set of labels that is to decide on the class.
    labels: Option<SetName>,
}

#[async_trait]
impl Handler for Analyze {
    const KIND: &'static str = KIND;
    type Input = Option<Input>;
    type Output = Document;

    async fn run(&self, input: Option<Input>, ctx: &Context) -> Result<Document, Failure> {
        let input = input.unwrap_or_default();
        let language = match input.language.as_deref() {
            Some("ko") => Language::Korean,
            _ => Language::English,
        };
        let begun = Instant::now();
        let (password, labels) = (input.password.clone(), input.labels);
        let Converted { mut document, scans, .. } = self.converted(ctx, password.as_ref(), language).await?;
        document.stages = vec![stage("convert", ctx, begun)];

        let text_only = is_text_only(&document);
        let mut sights = Vec::new();
        if !scans.is_empty() && !text_only {
            let begun = Instant::now();
            sights = self.recognise(ctx, &scans, password.as_ref(), &mut document).await?;
            document.stages.push(stage("ocr", ctx, begun));
        }

        let begun = Instant::now();
        let has_pages = pages_without_tables(&document) && !text_only;
        let pages = document.pages.as_ref().map_or(0, |pages| pages.len());
        let tables = if has_pages && pages > long::PAGES {
            Some(self.tables_in_parts(ctx, password.as_ref(), &sights, pages).await?)
        } else {
            let work = || async {
                match has_pages {
                    true => self.tables(ctx, password.as_ref(), &sights, Span::ALL).await.map(Some),
                    false => Ok(None),
                }
            };
            ctx.stage("tables", work).await?
        };
        if let Some(found) = tables {
            document.tables = Some(found.tables);
            document.warnings.extend(found.warnings);
        }
        document.stages.push(stage("tables", ctx, begun));

        let Some(understand) = self.understand.as_ref().filter(|_| !text_only) else {
            for name in ["classify", "keywords", "intents"] {
                let begun = Instant::now();
                ctx.stage(name, || async { Ok(()) }).await?;
                document.stages.push(stage(name, ctx, begun));
            }
            return Ok(document);
        };
        let shared = Arc::new(document);
        let begun = Instant::now();
        let class = ctx.stage("classify", || understand.class(&shared, labels.as_ref(), ctx)).await?;
        let mut stages = vec![stage("classify", ctx, begun)];

        let begun = Instant::now();
        let keywords = ctx.stage("keywords", || understand.keywords(&shared, ctx)).await?;
        stages.push(stage("keywords", ctx, begun));

        let begun = Instant::now();
        let intents = ctx.stage("intents", || understand.intents(&shared, ctx)).await?;
        stages.push(stage("intents", ctx, begun));

        let mut document = Arc::unwrap_or_clone(shared);
        for warning in [class.warnings, keywords.warnings, intents.warnings].into_iter().flatten() {
            // What several parts lack is told once.
            if !document.warnings.contains(&warning) {
                document.warnings.push(warning);
            }
        }
        (document.class, document.keywords, document.intents) =
            (Some(class.value), Some(keywords.value), Some(intents.value));
        document.stages.extend(stages);
        Ok(document)
    }
}

impl Analyze {
    async fn convert(
        &self,
        ctx: &Context,
        password: Option<&String>,
        pages: Span,
        language: Language,
    ) -> Result<Converted, Failure> {
        let Some(source) = ctx.job().source.clone() else {
            return Err(Failure::terminal("source-none", "The job has no file to work on."));
        };
        let request = request(source, password, pages);
        let lost = match self.parse(ctx, request.clone(), &self.limits).await? {
            Ok(converted) => return Ok(converted),
            Err(error) => error,
        };
        let Some(loss) = self.count(&lost, "document").filter(|loss| loss.may_be_read_cheaply()) else {
            return Err(failure(lost, language));
        };
        match self.parse(ctx, request, &self.limits.cheap()).await? {
            Ok(mut converted) => {
                converted.document.warnings.insert(0, text_only(loss));
                Ok(converted)
            }
            Err(error) => {
                self.count(&error, "text");
                Err(failure(if error.is_terminal() { lost } else { error }, language))
            }
        }
    }

    /// One reading; the outer error is that the job is to stop.
    async fn parse(
        &self,
        ctx: &Context,
        request: Request,
        limits: &Limits,
    ) -> Result<Result<Converted, DocumentError>, Failure> {
        let file = ctx.source().await?;
        tokio::select! {
            read = self.reader.convert(file, request, limits) => Ok(read),
            // Dropping the reading kills its child.
            () = ctx.stopped() => Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
        }
    }

    /// Counts a reader that was lost, and says how it was.
    fn count(&self, error: &DocumentError, reading: &str) -> Option<Loss> {
        let loss = error.loss()?;
        if let Some(metrics) = &self.metrics {
            metrics.count("mapae_reader_losses_total", format!("{}/{reading}", loss.class()), 1);
        }
        Some(loss)
    }
}

impl Analyze {
    /// The tables of pages. A document whose tables cannot be found keeps its text, with a warning.
    async fn tables(
        &self,
        ctx: &Context,
        password: Option<&String>,
        scans: &[Sight],
        pages: Span,
    ) -> Result<PageTables, Failure> {
        let Some(source) = ctx.job().source.clone() else { return Ok(PageTables::default()) };
        let file = ctx.source().await?;
        let request = request(source, password, pages);
        let found = tokio::select! {
            found = self.reader.tables(file, request, scans, &self.limits) => found,
            () = ctx.stopped() => return Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
        };
        match found {
            Err(error) if error.is_terminal() => {
                self.count(&error, "tables");
                let message = "Tables could not be looked for in this document; its text is complete.";
                let warnings = vec![Warning::new("tables-failed", None, message)];
                Ok(PageTables { warnings, ..PageTables::default() })
            }
            found => found.map_err(|error| failure(error, Language::English)),
        }
    }
}

fn request(source: Source, password: Option<&String>, pages: Span) -> Request {
    Request { name: source.name, media_type: Some(source.media_type), password: password.cloned(), pages }
}

/// Whether tables are still to be looked for: slides come with theirs.
fn pages_without_tables(document: &Document) -> bool {
    document.pages.is_some() && document.tables.is_none()
}

/// Whether nothing further is to be made of it.
fn is_text_only(document: &Document) -> bool {
    document.warnings.iter().any(|warning| warning.code == TEXT_ONLY)
}

fn text_only(loss: Loss) -> Warning {
    let why = match loss {
        Loss::Crash | Loss::Forbidden => "its reader broke down on it",
        Loss::Timeout => "it took longer than allowed",
        Loss::Memory => "it took more memory than allowed",
    };
    let message = format!("Only the text was read, without tables, class, keywords and intents: {why}.");
    Warning::new(TEXT_ONLY, None, message)
}

/// How long a stage took: in this attempt, and what of it was kept by earlier ones.
fn stage(name: &str, ctx: &Context, begun: Instant) -> Stage {
    let part =
        |stage: &str| stage.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let earlier: Duration = ctx.done().iter().filter(|done| part(&done.stage)).map(|done| done.took).sum();
    let took = earlier + begun.elapsed();
    Stage { name: name.to_owned(), seconds: took.as_secs_f64() }
}

fn failure(error: DocumentError, language: Language) -> Failure {
    let (code, message) = (error.code(), error.message(language));
    if error.is_terminal() { Failure::terminal(code, message) } else { Failure::retryable(code, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_came_with_the_pages_are_not_looked_for_again() {
        let document = |pages: &str, tables: &str| -> Document {
            let source = r#"{"name":"a","bytes":1,"sha256":"","media_type":""}"#;
            let json = format!(
                r#"{{"format":"mapae-document/1","source":{source},"pages":{pages},"tables":{tables},"text":"","warnings":[],"stages":[]}}"#
            );
            serde_json::from_str(&json).expect("a document")
        };
        assert!(pages_without_tables(&document("[]", "null")), "a PDF");
        assert!(!pages_without_tables(&document("[]", "[]")), "slides");
        assert!(!pages_without_tables(&document("null", "[]")), "a sheet");
    }
}
