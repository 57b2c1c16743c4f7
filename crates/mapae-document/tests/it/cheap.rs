//! A document that its reader does not survive is read once more for its text, and how readers were lost is counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::stream;
use mapae::blob::{BlobName, PutLimits};
use mapae::handler::Handlers;
use mapae::job::State;
use mapae::job::record::{Job, Source};
use mapae::metrics::Metrics;
use mapae::testing::{Delivered, Trial, job};
use mapae_document::child::DocumentReader;
use mapae_document::document::Document;
use mapae_document::handler::{Analyze, KIND, TEXT_ONLY};
use mapae_document::limits::Limits;

use crate::{file, make, named, patient, reader};

/// What became of a job.
struct Ended {
    state: State,
    job: Job,
    document: Option<Document>,
    /// Lost readers, by class and reading.
    lost: Vec<(String, u64)>,
}

/// Analyses a document whose first line may tell its reader how to end.
async fn analyze(name: &str, bytes: &[u8]) -> Ended {
    let limits = Limits { memory_bytes: 300 << 20, cpu_seconds: 2, ..patient() };
    let metrics = Arc::new(Metrics::default());
    let mut handlers = Handlers::default();
    let reader = DocumentReader::with_program(env!("CARGO_BIN_EXE_document-probe"));
    handlers.add(Analyze { reader, limits, metrics: Some(metrics.clone()), ..Analyze::default() });
    let mut new = job(KIND, serde_json::Value::Null);
    let blob = BlobName::original(new.id.0);
    new.source = Some(Source {
        name: name.to_owned(),
        bytes: bytes.len() as u64,
        sha256: String::new(),
        media_type: String::new(),
        file: blob.as_str().to_owned(),
    });
    let trial = Trial::new(handlers, new).await;
    let body = stream::iter([Ok(bytes.to_vec().into())]);
    trial.blobs().put(&blob, body, PutLimits { bytes_max: 1 << 30 }).await.unwrap();
    let Delivered::Settled(state) = trial.run().await else { panic!("the job was not settled") };
    let document = trial.output().await.map(|output| serde_json::from_value(output).unwrap());
    let lost = metrics.counts().into_iter().filter(|((name, _), _)| *name == "mapae_reader_losses_total");
    let lost = lost.map(|((_, label), count)| (label, count)).collect();
    Ended { state, job: trial.job().await, document, lost }
}

#[tokio::test]
async fn what_breaks_a_whole_reading_gives_its_text_in_the_same_attempt() {
    for (verb, class) in
        [("abort", "crash"), ("overflow", "crash"), ("hang", "timeout"), ("allocate", "memory")]
    {
        let bytes = format!("probe when document {verb}\nname,count\nbooks,12\n");
        let ended = analyze("a.csv", bytes.as_bytes()).await;
        let document = ended.document.unwrap();
        assert_eq!((ended.state, ended.job.attempt), (State::Succeeded, 1), "{verb}");
        assert_eq!(document.text, "a\nname\tcount\nbooks\t12\n", "{verb}");
        assert_eq!((document.tables, document.class), (None, None), "{verb}");
        assert_eq!(document.warnings[0].code, TEXT_ONLY, "{verb}");
        assert_eq!(ended.lost, [(format!("{class}/document"), 1)], "{verb}");
    }
}

#[tokio::test]
async fn what_breaks_every_reading_fails_as_it_did_at_first_and_is_not_tried_a_third_time() {
    for (verb, class, code) in [
        ("abort", "crash", "document-crashed"),
        ("hang", "timeout", "document-too-slow"),
        ("allocate", "memory", "document-too-large"),
    ] {
        let bytes = format!("probe when document,text {verb}\nname,count\n");
        let ended = analyze("a.csv", bytes.as_bytes()).await;
        assert_eq!((ended.state, ended.job.attempt), (State::Failed, 1), "{verb}");
        assert_eq!(ended.job.failure.unwrap().code, code, "{verb}");
        assert_eq!(ended.lost, [(format!("{class}/document"), 1), (format!("{class}/text"), 1)], "{verb}");
    }
}

#[tokio::test]
async fn what_attacks_its_reader_gets_no_second_one() {
    let ended = analyze("a.csv", b"probe when document spawn /bin/true\nname,count\n").await;
    assert_eq!(ended.state, State::Failed);
    assert_eq!(ended.job.failure.unwrap().code, "document-forbidden");
    assert_eq!(ended.lost, [("forbidden/document".to_owned(), 1)]);
}

#[tokio::test]
async fn tables_that_break_their_reader_cost_no_text() {
    let pdf = make::pdf(make::HELVETICA, b"BT /F1 9 Tf 50 50 Td (all of it) Tj ET", &[]);
    let ended = analyze("a.pdf", &[b"probe when tables abort\n", &pdf[..]].concat()).await;
    let document = ended.document.unwrap();
    assert_eq!((ended.state, document.text.as_str()), (State::Succeeded, "all of it"));
    assert_eq!(document.warnings[0].code, "tables-failed");
    assert_eq!(ended.lost, [("crash/tables".to_owned(), 1)]);
}

#[tokio::test]
async fn a_cheap_reading_has_every_word_and_no_table() {
    for name in ["budget-2026.pdf", "budget-2026.xlsx", "library-notice.hwpx", "board-minutes.docx"] {
        let bytes = crate::samples::sample(name);
        let read = async |limits: &Limits| reader().parse(file(&bytes), named(name), limits).await.unwrap();
        let (whole, cheap) = (read(&patient()).await, read(&patient().cheap()).await);
        let words = |document: &Document| -> BTreeSet<String> {
            document.text.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words(&cheap), words(&whole), "{name}");
        assert_eq!(cheap.tables, None, "{name}");
    }
}
