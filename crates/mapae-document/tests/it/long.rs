//! Documents of many pages, which are read and kept in parts.

use std::fmt::Write;

use mapae::job::State;
use mapae::testing::{Delivered, Fault, Point};
use mapae_document::child::DocumentReader;
use mapae_document::handler::Analyze;

use crate::jobs::{marking, output, trial};
use crate::{file, make, named, patient, reader};

/// A page that is a piece of one long table.
fn page(number: usize) -> String {
    let mut content = String::from("BT /F1 9 Tf ");
    for row in 0..38 {
        let y = 780 - 20 * row;
        for (x, text) in
            [(50, format!("item {number}")), (300, format!("{row}")), (450, format!("{}", row + 7))]
        {
            write!(content, "1 0 0 1 {x} {y} Tm ({text}) Tj ").unwrap();
        }
    }
    content + "ET"
}

#[tokio::test]
async fn a_killed_worker_repeats_only_the_pages_it_had_in_hand() {
    let pdf = make::pages(&(1..=204).map(page).collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    let (program, marks) = (folder.path().join("child"), folder.path().join("marks"));
    marking(&program, &marks, &format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_document-child")));
    let children = || std::fs::read_dir(&marks).unwrap().count();
    let analyze =
        Analyze { reader: DocumentReader::with_program(&program), limits: patient(), ..Analyze::default() };
    let trial = trial(analyze, "long.pdf", &pdf).await;

    let crashed = trial.run_with(Fault::Crash, Point::AfterStage("convert.1")).await;
    assert!(matches!(crashed, Delivered::Crashed));
    assert_eq!(children(), 2);
    trial.expire_lease();
    let crashed = trial.run_with(Fault::Crash, Point::AfterStage("tables.0")).await;
    assert!(matches!(crashed, Delivered::Crashed));
    assert_eq!(children(), 4, "the last part of the text, and the first of the tables");
    trial.expire_lease();
    assert!(matches!(trial.run().await, Delivered::Settled(State::Succeeded)));
    assert_eq!(children(), 6);

    // In parts or as a whole, it is the same document.
    let document = output(&trial).await;
    let whole = reader().parse(file(&pdf), named("long.pdf"), &patient()).await.unwrap();
    assert_eq!((&document.text, &document.pages), (&whole.text, &whole.pages));
    assert_eq!((document.language, document.warnings), (whole.language, whole.warnings));
    let tables = reader().tables(file(&pdf), named("long.pdf"), &[], &patient()).await.unwrap().tables;
    assert_eq!(tables.len(), 204);
    assert_eq!(tables[100].continues, Some(100), "the test is about tables that go on");
    assert!(document.tables.unwrap() == tables);
}
