//! The sample documents that the project ships are what its program makes, and read as they were written.

#[path = "../../examples/samples/files/mod.rs"]
mod files;

use std::path::Path;

use mapae_document::document::Value;

use crate::read;

pub(crate) fn sample(name: &str) -> Vec<u8> {
    files::all().into_iter().find(|(n, _)| *n == name).unwrap().1
}

#[test]
fn the_samples_in_the_repository_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (name, bytes) in files::all() {
        let kept = std::fs::read(folder.join(name)).unwrap();
        assert!(kept == bytes, "run `cargo run -p mapae-document --example samples` for {name}");
    }
}

#[tokio::test]
async fn the_korean_budget_report_reads_line_by_line() {
    let document = read("budget-2026.pdf", &sample("budget-2026.pdf")).await.unwrap();
    assert_eq!(document.language.as_deref(), Some("ko"));
    assert_eq!(document.warnings, []);
    let pages = document.pages.unwrap();
    assert_eq!(pages.len(), 2);
    let has = |page: usize, line: &str| assert!(pages[page].text.lines().any(|l| l == line), "{line}");
    has(0, "2026년도 가람시 예산 보고서");
    has(0, "기획예산과 · 2025년 12월 15일");
    has(0, "복지정책과 312,400 338,900 26,500 8.5%");
    has(0, "합계 1,176,000 1,248,000 72,000 6.1%");
    has(1, "분야 1분기 2분기 3분기 4분기");
    has(1, "상수도 22,480 44,961 52,455 29,974");
}

#[tokio::test]
async fn the_english_report_reads_line_by_line() {
    let document = read("library-report.pdf", &sample("library-report.pdf")).await.unwrap();
    assert_eq!(document.language.as_deref(), Some("en"));
    for line in [
        "Garam City Library: Annual Report 2025",
        "Branch Loans 2024 Loans 2025 Change Visits 2025",
        "Harbour 61,900 54,150 -12.5% 70,480",
        "Electronic licences 158,300 176,900 214,750",
    ] {
        assert!(document.text.lines().any(|l| l == line), "{line}");
    }
}

#[tokio::test]
async fn the_workbook_keeps_merged_cells_dates_and_exact_values() {
    let document = read("budget-2026.xlsx", &sample("budget-2026.xlsx")).await.unwrap();
    assert_eq!(document.pages, None);
    let sheets = document.sheets.unwrap();
    let names: Vec<&str> = sheets.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["2026 예산", "지급 내역"]);
    assert_eq!((sheets[0].rows, sheets[0].columns), (10, 6));
    assert_eq!(sheets[0].merged, ["A1:F1", "A2:A3", "B2:C2", "D2:E2", "F2:F3"]);
    let tables = document.tables.unwrap();
    assert_eq!((tables[0].header_rows, tables[1].header_rows), (3, 1));
    let cell = |table: usize, row, col| {
        tables[table].cells.iter().find(|c| (c.row, c.col) == (row, col)).expect("the cell holds something")
    };
    assert_eq!((cell(0, 0, 0).rowspan, cell(0, 0, 0).colspan), (1, 6));
    assert_eq!((cell(0, 1, 0).rowspan, cell(0, 1, 1).colspan), (2, 2));
    assert_eq!(cell(0, 3, 2).value, Some(Value::Integer(338_900)));
    assert_eq!(cell(0, 3, 5).value, Some(Value::Bool(true)));
    assert_eq!(cell(0, 8, 3).value, Some(Value::Integer(-13_050)));
    assert_eq!(cell(1, 1, 1).value, Some(Value::Time("2026-01-05".into())));
    assert_eq!(cell(1, 1, 2).value, Some(Value::Time("09:30:00".into())));
    assert_eq!(cell(1, 2, 4).value, Some(Value::Number(98_000_000.5)));
    assert_eq!(cell(1, 3, 5).value, Some(Value::Error { error: "#N/A".into() }));
    assert_eq!(cell(1, 2, 3).text, "\"상수도\" 정비");
}

#[tokio::test]
async fn the_korean_notice_keeps_its_order_its_spans_and_the_table_inside() {
    let document = read("library-notice.hwpx", &sample("library-notice.hwpx")).await.unwrap();
    assert_eq!(document.language.as_deref(), Some("ko"));
    let lines: Vec<&str> = document.text.lines().collect();
    assert_eq!(lines[..3], ["가람시 공고 제2026-41호", "도서관 운영 시간 변경 공고", "변경 내용"]);
    assert_eq!(lines[4], "가람시 도서관 조례 제12조에 따른다.");
    assert_eq!(lines.last(), Some(&"기획운영과\t전화 02-0000-0000"));
    let tables = document.tables.unwrap();
    assert_eq!(tables[0].title.as_deref(), Some("표 1. 분관별 운영 시간"));
    assert_eq!((tables[0].rows, tables[0].columns, tables[1].inside), (4, 4, Some(1)));
    assert_eq!((tables[0].cells[0].rowspan, tables[0].cells[1].colspan), (2, 2));
    assert_eq!(tables[0].cells[8].text, "열람실\t120석\n회의실\t3실");
}

#[tokio::test]
async fn the_minutes_show_what_was_decided_not_what_was_struck_out() {
    let document = read("board-minutes.docx", &sample("board-minutes.docx")).await.unwrap();
    let lines: Vec<&str> = document.text.lines().collect();
    assert_eq!(lines[4], "The harbour branch will close on Sundays from March.");
    assert_eq!(lines[5], "Article 12 of the library by-law.");
    let table = &document.tables.unwrap()[0];
    assert_eq!((table.rows, table.columns, table.header_rows), (5, 4, 2));
    assert_eq!(document.headings.unwrap().iter().map(|h| h.level).collect::<Vec<_>>(), [1, 1, 1, 2]);
}
