//! The folder that a document becomes.

use std::io::Cursor;

use calamine::{Data, Dimensions, Reader, Xlsx};
use mapae_document::document::{Cell, Document, Table, Value};
use mapae_document::output;
use mapae_document::output::workbook::{WorkbookError, workbook};

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

#[tokio::test]
async fn all_tables_become_one_workbook_with_numbers_and_spans() {
    let name = "budget-2026.pdf";
    let mut document = read(name, &crate::samples::sample(name)).await.unwrap();
    assert!(matches!(workbook(&document), Err(WorkbookError::NoTables)));
    let file = crate::file(&crate::samples::sample(name));
    let found = crate::reader().tables(file, crate::named(name), &[], &crate::patient()).await.unwrap();
    document.tables = Some(found.tables);
    let tables = document.tables.as_mut().unwrap();
    tables[0].title = Some("'2026' [draft]: income/costs, and more of it than a name may hold".to_owned());
    tables[0].cells[0].text = "=HYPERLINK(\"http://x\")".to_owned();
    let typed =
        |row, value| Cell { row, col: 6, rowspan: 1, colspan: 1, text: "-".to_owned(), value: Some(value) };
    let day = Value::Time("2026-01-31".to_owned());
    tables[0].cells.extend([typed(2, Value::Integer(-7)), typed(3, Value::Bool(true)), typed(4, day)]);

    let mut book: Xlsx<_> = Xlsx::new(Cursor::new(workbook(&document).unwrap())).unwrap();
    let names = book.sheet_names();
    assert_eq!(names.len(), document.tables.as_ref().unwrap().len());
    assert_eq!(names[0], "1 2026 draft income costs, and");
    let formulas = book.worksheet_formula(&names[0]).unwrap();
    assert!(formulas.used_cells().next().is_none(), "text is never a formula");
    let sheet = book.worksheet_range(&names[0]).unwrap();
    let at = |row, col| sheet.get_value((row, col)).unwrap().clone();
    assert_eq!(at(0, 0), Data::String("=HYPERLINK(\"http://x\")".to_owned()));
    assert_eq!(at(2, 0), Data::String("복지정책과".to_owned()));
    assert_eq!((at(2, 1), at(2, 4)), (Data::Float(312_400.0), Data::Float(0.085)));
    assert_eq!((at(2, 6), at(3, 6)), (Data::Float(-7.0), Data::Bool(true)));
    assert!(matches!(at(4, 6), Data::DateTime(day) if day.as_f64() == 46_053.0));
    let merged: Vec<Dimensions> = book.merge_cells_by_sheet_name(&names[0]).unwrap();
    assert!(merged.contains(&Dimensions { start: (0, 0), end: (1, 0) }), "{merged:?}");
    assert!(merged.contains(&Dimensions { start: (0, 1), end: (0, 2) }), "{merged:?}");
}
