//! Text of PDF pages: the right characters, in the order in which they are read.

use encoding_rs::EUC_KR;
use mapae_document::document::Document;
use mapae_document::limits::Limits;

use crate::{make, patient, read, read_within};

async fn pdf(fonts: &str, content: &str) -> Document {
    read("a.pdf", &make::pdf(fonts, content.as_bytes(), &[])).await.unwrap()
}

fn utf16(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("{unit:04X}")).collect()
}

fn cp949(text: &str) -> String {
    make::hex(&EUC_KR.encode(text).0)
}

#[tokio::test]
async fn hangul_mixed_with_ascii_is_right_in_every_korean_character_map() {
    let text = "제3조 A4 용지 1,234원 (뷁)";
    for (map, codes) in [
        ("KSCms-UHC-H", cp949(text)),
        ("KSCms-UHC-HW-H", cp949(text)),
        ("UniKS-UCS2-H", utf16(text)),
        ("UniKS-UTF16-H", utf16(text)),
    ] {
        let document = pdf(&make::korean(map), &format!("BT /F1 12 Tf 50 700 Td <{codes}> Tj ET")).await;
        assert_eq!(document.text, text, "{map}");
    }
}

#[tokio::test]
async fn a_code_without_a_character_does_not_garble_what_follows() {
    for (map, codes, text) in [
        ("UniKS-UCS2-H", utf16("복지·교육 예산"), "복지·교육 예산"),
        ("UniKS-UCS2-H", utf16("가é나다"), "가\u{fffd}나다"),
        ("UniKS-UTF16-H", utf16("가é나다"), "가\u{fffd}나다"),
        ("UniKS-UTF16-H", utf16("가\u{20000}나다"), "가\u{fffd}\u{fffd}나다"),
        ("KSCms-UHC-H", format!("{}C9A1{}", cp949("가"), cp949("나다라")), "가\u{fffd}나다라"),
    ] {
        let document = pdf(&make::korean(map), &format!("BT /F1 12 Tf 50 700 Td <{codes}> Tj ET")).await;
        assert_eq!(document.text, text, "{map}");
    }
}

#[tokio::test]
async fn vertical_writing_reads_down_and_then_left() {
    let codes = |text| cp949(text);
    let content = format!(
        "BT /F1 12 Tf 1 0 0 1 500 700 Tm <{}> Tj 1 0 0 1 470 700 Tm <{}> Tj ET",
        codes("세로쓰기 문서"),
        codes("둘째 줄")
    );
    assert_eq!(pdf(&make::korean("KSCms-UHC-V"), &content).await.text, "세로쓰기 문서\n둘째 줄");
}

#[tokio::test]
async fn turned_text_reads_along_its_own_direction() {
    for matrix in
        ["0 1 -1 0 300 300", "-1 0 0 -1 300 300", "0 -1 1 0 300 300", "0.9986 0.0523 -0.0523 0.9986 50 300"]
    {
        let content = format!("BT /F1 12 Tf {matrix} Tm (first line) Tj 0 -16 Td (second line) Tj ET");
        assert_eq!(pdf(make::HELVETICA, &content).await.text, "first line\nsecond line", "{matrix}");
    }
}

#[tokio::test]
async fn text_that_is_filled_and_stroked_or_printed_twice_is_read_once() {
    let stroked = pdf(make::HELVETICA, "BT /F1 12 Tf 2 Tr 50 700 Td (all well) Tj ET").await;
    assert_eq!(stroked.text, "all well");
    let doubled = "BT /F1 12 Tf 1 0 0 1 50 700 Tm (all well) Tj 1 0 0 1 50.3 700 Tm (all well) Tj ET";
    assert_eq!(pdf(make::HELVETICA, doubled).await.text, "all well");
}

#[tokio::test]
async fn words_part_at_gaps_even_without_a_space() {
    let content = "BT /F1 10 Tf 50 700 Td [(one) -400 (two) -30 (three)] TJ ET";
    assert_eq!(pdf(make::HELVETICA, content).await.text, "one twothree");
}

#[tokio::test]
async fn columns_of_prose_are_read_one_after_the_other_and_tables_row_by_row() {
    let mut columns = String::from("BT /F1 10 Tf ");
    let mut table = columns.clone();
    for n in 0..6 {
        let y = 700 - 14 * n;
        columns.push_str(&format!("1 0 0 1 50 {y} Tm (left column with words {n}) Tj "));
        columns.push_str(&format!("1 0 0 1 320 {y} Tm (right column with words {n}) Tj "));
        table.push_str(&format!("1 0 0 1 50 {y} Tm (row {n}) Tj 1 0 0 1 320 {y} Tm ({n}00) Tj "));
    }
    let text = pdf(make::HELVETICA, &(columns + "ET")).await.text;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[5], "left column with words 5");
    assert_eq!(lines[6], "right column with words 0");
    let text = pdf(make::HELVETICA, &(table + "ET")).await.text;
    assert_eq!(text.lines().nth(1), Some("row 1 100"));
}

#[tokio::test]
async fn raised_marks_stay_on_their_line() {
    let content = "BT /F1 10 Tf 50 700 Td (note) Tj /F1 6 Tf 4 Ts (1) Tj 0 Ts /F1 10 Tf ( follows) Tj ET";
    assert_eq!(pdf(make::HELVETICA, content).await.text, "note1 follows");
}

#[tokio::test]
async fn text_outside_of_the_page_is_not_on_it() {
    let content = "BT /F1 10 Tf 1 0 0 1 50 700 Tm (inside) Tj 1 0 0 1 50 900 Tm (above) Tj 1 0 0 1 -200 700 Tm (left) Tj ET";
    assert_eq!(pdf(make::HELVETICA, content).await.text, "inside");
}

#[tokio::test]
async fn characters_that_cannot_be_known_are_marked_and_warned_of() {
    let font = "/F1 << /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [ \
                << /Type /Font /Subtype /CIDFontType2 /BaseFont /X \
                /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >> ] >>";
    let document = pdf(font, "BT /F1 10 Tf 50 700 Td <00410042> Tj ET").await;
    assert_eq!(document.text, "\u{fffd}\u{fffd}");
    assert_eq!(document.warnings[0].code, "unknown-characters");
    assert_eq!(document.warnings[0].page, Some(1));
}

#[tokio::test]
async fn a_page_over_its_budget_is_cut_there_and_the_next_one_is_whole() {
    let limits = Limits { page_operations: 200, ..patient() };
    let document =
        read_within("a.pdf", &crate::samples::sample("library-report.pdf"), &limits).await.unwrap();
    let pages = document.pages.unwrap();
    assert!(pages[0].text.starts_with("Garam City Library"));
    assert!(!pages[0].text.contains("All branches"), "what comes after the limit is left out");
    assert_eq!(document.warnings[0].code, "page-limit");
    assert_eq!(pages.len(), 2);
}

#[tokio::test]
async fn a_page_without_text_says_so() {
    let document = pdf("", "10 10 100 100 re f").await;
    assert_eq!(document.text, "");
    assert_eq!(document.warnings[0].code, "no-text");
}

#[tokio::test]
async fn a_document_has_what_its_kind_has_and_null_for_the_rest() {
    let document = pdf(make::HELVETICA, "BT /F1 10 Tf 50 700 Td (hello) Tj ET").await;
    let json = serde_json::to_value(&document).unwrap();
    assert_eq!(json["format"], "mapae-document/1");
    for part in ["sheets", "tables", "class", "keywords", "intents"] {
        assert!(json[part].is_null(), "{part}");
    }
    assert_eq!(json["pages"][0]["number"], 1);
    assert_eq!(
        (json["pages"][0]["width"].as_f64(), json["pages"][0]["ocr"].as_bool()),
        (Some(600.0), Some(false))
    );
    assert_eq!(json["stages"][0]["name"], "convert");
    assert_eq!(json["source"]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(serde_json::from_value::<Document>(json).unwrap(), document);
}
