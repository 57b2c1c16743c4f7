//! The crate from outside: real files in, through a real child, documents or errors out.

#![allow(clippy::unwrap_used, reason = "a helper of a test that cannot go on stops the test")]

mod beside;
mod cheap;
mod child;
mod errors;
mod flowing;
mod fuzz;
mod jobs;
mod long;
mod make;
mod ocr;
mod output;
mod pages;
mod samples;
mod sandbox;
mod sheets;
mod tables;

use std::io::Write;
use std::time::Duration;

use mapae_document::child::{DocumentReader, Request};
use mapae_document::document::Document;
use mapae_document::error::DocumentError;
use mapae_document::limits::Limits;

/// The helper program of the crate as child.
fn reader() -> DocumentReader {
    DocumentReader::with_program(env!("CARGO_BIN_EXE_document-child"))
}

fn named(name: &str) -> Request {
    Request { name: name.to_owned(), ..Request::default() }
}

/// A file of these bytes without a name, gone when closed.
fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

async fn read(name: &str, bytes: &[u8]) -> Result<Document, DocumentError> {
    read_within(name, bytes, &patient()).await
}

/// The limits as they are but for time: a slow machine is not what a document is tested for.
fn patient() -> Limits {
    Limits { cpu_seconds: 3600, wall: Duration::from_secs(3600), ..Limits::default() }
}

async fn read_within(name: &str, bytes: &[u8], limits: &Limits) -> Result<Document, DocumentError> {
    reader().parse(file(bytes), named(name), limits).await
}
