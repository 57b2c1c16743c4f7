//! The folder that a document becomes.

use mapae_document::document::{Document, Table};
use mapae_document::output;

use crate::read;

#[tokio::test]
async fn a_document_becomes_a_folder_of_files_that_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let document = read("budget-2026.xlsx", &crate::samples::sample("budget-2026.xlsx")).await.unwrap();
    output::write(&document, folder.path()).unwrap();
    let file = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(serde_json::from_str::<Document>(&file("document.json")).unwrap(), document);
    assert_eq!(serde_json::from_str::<Table>(&file("tables/02.json")).unwrap(), document.tables.unwrap()[1]);
    assert_eq!(file("intents.json").trim(), "null");
    assert_eq!(file("text.md"), document.text);
    let csv = file("tables/02.csv");
    assert_eq!(csv.lines().nth(1), Some("1,2026-01-05,09:30:00,\"도서 구입, 1차\",12480500,"));

    let pdf = read("library-report.pdf", &crate::samples::sample("library-report.pdf")).await.unwrap();
    output::write(&pdf, folder.path()).unwrap();
    assert!(!folder.path().join("tables").exists(), "tables of an earlier document are gone");
    assert!(file("text.md").starts_with("<!-- page 1 -->\n\nGaram City Library"));
}

#[tokio::test]
async fn the_markdown_of_a_flowing_document_has_its_headings_and_tables() {
    let folder = tempfile::tempdir().unwrap();
    let document = read("board-minutes.docx", &crate::samples::sample("board-minutes.docx")).await.unwrap();
    output::write(&document, folder.path()).unwrap();
    let markdown = std::fs::read_to_string(folder.path().join("text.md")).unwrap();
    assert!(markdown.starts_with("Garam City Library\n\n# Minutes of the Library Board\n\n12 January"));
    let table = "Table 1. Budget by branch\n\n| Branch | Budget (thousand) |  | Owner |\n| --- | --- | --- | --- |\n|  | 2025 | 2026 |  |\n";
    assert!(markdown.contains(table), "{markdown}");
    assert!(
        markdown.ends_with("## Decision\n\nThe board approves the budget without a vote against it.\n\n")
    );
    // What was written reads the same again.
    let again = read("text.md", markdown.as_bytes()).await.unwrap();
    assert_eq!(again.text.replace("\t\t", "\t"), document.text);
}
