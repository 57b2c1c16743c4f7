//! `mapae tables`: the tables on a page, and a picture of what was seen there.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use mapae_document::child::{DocumentReader, Request};
use mapae_document::error::{DocumentError, Language};
use mapae_document::limits::Limits;
use mapae_document::table::{Seen, draw};
use serde_json::json;

use super::submit;
use crate::global::Global;
use crate::output::{self, Column};
use crate::trouble::{Exit, Trouble};

const COLUMNS: &[Column] = &[
    ("PAGE", "page"),
    ("TABLE", "table"),
    ("ROWS", "rows"),
    ("COLUMNS", "columns"),
    ("HEADINGS", "header_rows"),
    ("CONFIDENCE", "confidence"),
    ("TITLE", "title"),
];

#[derive(Args)]
pub(crate) struct Tables {
    /// A PDF file
    file: PathBuf,
    /// The page to look at, from 1
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Where to draw what was seen (.svg or .png): words, rules, cells, confidence
    #[arg(long, value_name = "FILE")]
    draw: Option<PathBuf>,
    /// The password of a file that has one
    #[arg(long)]
    password: Option<String>,
}

impl Tables {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let drawn = self.draw.as_deref().map(drawing).transpose()?;
        let (file, _) = submit::open(&self.file).await?;
        let name = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let request = Request { name, password: self.password.clone(), ..Request::default() };
        let reader = DocumentReader::new();
        let seen = reader.seen(file.into_std().await, request, Some(self.page), &Limits::default()).await;
        let seen = seen.map_err(unread)?;
        let Some(seen) = seen.into_iter().next() else {
            let sentence = format!("The file has no page {}.", self.page);
            return Err(Trouble::new(
                Exit::NotFound,
                "page-unknown",
                sentence,
                "give --page a page of a PDF",
            ));
        };
        if let (Some(path), Some(drawn)) = (&self.draw, drawn) {
            tokio::fs::write(path, drawn(&seen)).await.map_err(|error| {
                let sentence = format!("The drawing cannot be written: {}.", error.kind());
                Trouble::new(Exit::Unavailable, "drawing-unwritable", sentence, "check --draw and its room")
            })?;
        }
        output::list(global.output, &items(&seen), COLUMNS, "table")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What draws a file of this name.
fn drawing(path: &Path) -> Result<fn(&Seen) -> Vec<u8>, Trouble> {
    match path.extension().map(|extension| extension.to_ascii_lowercase()) {
        Some(extension) if extension == "svg" => Ok(|seen| draw::svg(seen).into_bytes()),
        Some(extension) if extension == "png" => Ok(draw::png),
        _ => {
            let help = "give --draw a name that ends in .svg or .png";
            Err(Trouble::usage("drawing-unsupported", "Pages are drawn as SVG or PNG.", help))
        }
    }
}

fn items(seen: &Seen) -> Vec<serde_json::Value> {
    let items = seen.tables.iter().zip(1..).map(|(table, number)| {
        let mut item = json!(table);
        item["page"] = json!(seen.sight.page);
        item["table"] = json!(number);
        item
    });
    items.collect()
}

fn unread(error: DocumentError) -> Trouble {
    let message = error.message(Language::English);
    let (sentence, help) = message.split_once(". ").unwrap_or((message, "check the file"));
    Trouble::new(Exit::Failed, error.code(), format!("{}.", sentence.trim_end_matches('.')), help)
}
