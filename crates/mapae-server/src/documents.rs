//! The kind `document.analyze`: a PDF or a spreadsheet to its pages, tables and text.
//!
//! The document is read in a child process ([`mapae_document::child`]); here are the stages, and what an
//! error of reading means for the job.

use async_trait::async_trait;
use mapae::handler::{Context, Handler};
use mapae::job::retry::Failure;
use mapae_document::child::{DocumentReader, Request};
use mapae_document::document::Document;
use mapae_document::error::{DocumentError, Language};
use mapae_document::limits::Limits;
use serde::Deserialize;

/// What a file is submitted as where nobody says otherwise.
pub const KIND: &str = "document.analyze";

/// Reads documents.
pub struct Analyze {
    reader: DocumentReader,
    limits: Limits,
}

/// The handler of this program, which is its own child.
pub fn handler() -> Analyze {
    Analyze { reader: DocumentReader::new(), limits: Limits::default() }
}

impl Analyze {
    /// With another program as the child.
    pub fn with_reader(reader: DocumentReader) -> Self {
        Self { reader, limits: Limits::default() }
    }
}

/// What a job of this kind takes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Input {
    password: Option<String>,
    /// `ko` for failures in Korean.
    language: Option<String>,
}

#[async_trait]
impl Handler for Analyze {
    const KIND: &'static str = KIND;
    type Input = Input;
    type Output = Document;

    async fn run(&self, input: Input, ctx: &Context) -> Result<Document, Failure> {
        let language = match input.language.as_deref() {
            Some("ko") => Language::Korean,
            _ => Language::English,
        };
        let Some(source) = ctx.job().source.clone() else {
            return Err(Failure::terminal("source-none", "The job has no file to work on."));
        };
        let request =
            Request { name: source.name, media_type: Some(source.media_type), password: input.password };
        ctx.stage("convert", || async {
            let file = ctx.source().await?;
            tokio::select! {
                read = self.reader.parse(file, request, &self.limits) => read.map_err(|error| failure(error, language)),
                // Dropping the reading kills its child.
                () = ctx.stopped() => Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
            }
        })
        .await
    }
}

fn failure(error: DocumentError, language: Language) -> Failure {
    let (code, message) = (error.code(), error.message(language));
    if error.is_terminal() { Failure::terminal(code, message) } else { Failure::retryable(code, message) }
}
