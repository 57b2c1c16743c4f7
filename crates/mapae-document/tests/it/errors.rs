//! Each way a document can be wrong has a code of its own.

use std::time::Duration;

use mapae_document::child::Request;
use mapae_document::error::{DocumentError, Excess, Language};
use mapae_document::limits::Limits;

use crate::{file, make, named, patient, read, read_within, reader};

async fn code(name: &str, bytes: &[u8]) -> &'static str {
    read(name, bytes).await.map_or_else(|error| error.code(), |_| "ok")
}

#[tokio::test]
async fn a_name_without_end_is_cut_and_still_says_what_the_file_is() {
    let document = read(&format!("{}.csv", "가".repeat(100_000)), b"a,b\n1,2\n").await.unwrap();
    assert_eq!(document.source.media_type, "text/csv");
    assert!(document.source.name.len() <= 4096);
}

#[tokio::test]
async fn an_encrypted_document_asks_for_its_password_and_opens_with_it() {
    let pdf = make::encrypted_pdf("secret text", "open sesame");
    assert_eq!(code("a.pdf", &pdf).await, "document-encrypted");
    let with = |password: &str| Request { password: Some(password.into()), ..named("a.pdf") };
    let limits = patient();
    let wrong = reader().parse(file(&pdf), with("wrong"), &limits).await;
    assert_eq!(wrong.unwrap_err(), DocumentError::PasswordWrong);
    let right = reader().parse(file(&pdf), with("open sesame"), &limits).await;
    assert_eq!(right.unwrap().text, "secret text");
    let needless = reader().parse(file(&make::encrypted_pdf("open text", "")), with("wrong"), &limits).await;
    assert_eq!(needless.unwrap().text, "open text");
}

#[tokio::test]
async fn a_damaged_document_is_called_damaged() {
    assert_eq!(code("a.pdf", b"%PDF-1.7\nnothing of use").await, "document-damaged");
    assert_eq!(code("a.pdf", &[0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3]).await, "document-damaged");
    let xlsx = make::xlsx("<sheetData><row r=\"1\"><c r=\"A1\"><v>1</v></c></row></sheetData>");
    assert_eq!(code("a.xlsx", &xlsx[..xlsx.len() / 2]).await, "document-damaged");
    assert_eq!(code("a.xlsx", &make::xlsx("<sheetData><row r=\"1\"><c r=\"A1\">")).await, "document-damaged");
    assert_eq!(code("a.ods", &make::ods("<table:table><table:table-row>")).await, "document-damaged");
    let xls = make::xls(&[(0, 0, 1.0)]);
    assert_eq!(code("a.xls", &xls[..700]).await, "document-damaged");
    // The directory's chain of sectors comes back to where it began.
    let mut round = xls.clone();
    let first = |at: usize| u32::from_le_bytes(xls[at..at + 4].try_into().unwrap()) as usize;
    let (table, directory) = (512 * (first(76) + 1), first(48));
    round[table + 4 * directory..][..4].copy_from_slice(&(directory as u32).to_le_bytes());
    assert_eq!(code("a.xls", &round).await, "document-damaged");
    // An offset of a sheet beyond the end of the stream.
    let at = xls.windows(4).position(|w| w == [0x85, 0, 9, 0]).unwrap() + 4;
    let elsewhere = [&xls[..at], &[0xff, 0xff, 0xff, 0x7f], &xls[at + 4..]].concat();
    assert_eq!(code("a.xls", &elsewhere).await, "document-damaged");
}

#[tokio::test]
async fn a_pdf_that_was_cut_off_says_so_and_is_damaged_where_nothing_is_left_of_it() {
    let whole = make::pdf(make::HELVETICA, b"BT /F1 12 Tf 50 700 Td (kept words) Tj ET", &[]);
    let at = |word: &[u8]| whole.windows(word.len()).position(|part| part == word).unwrap();
    let codes = async |bytes: &[u8]| {
        let document = read("a.pdf", bytes).await.unwrap();
        assert_eq!(document.text, "kept words");
        document.warnings.into_iter().map(|warning| warning.code).collect::<Vec<_>>()
    };
    assert!(codes(&whole).await.is_empty());
    assert_eq!(codes(&whole[..at(b"xref")]).await, ["cut-off"]);
    assert_eq!(code("a.pdf", &whole[..at(b"4 0 obj")]).await, "document-damaged");
}

#[tokio::test]
async fn an_empty_file_is_called_empty() {
    for name in ["a.pdf", "a.xlsx", "a.csv", "a.hwp", ""] {
        assert_eq!(code(name, b"").await, "document-empty", "{name}");
    }
}

#[tokio::test]
async fn what_is_not_read_is_called_unsupported() {
    let doc = make::compound(&[("/WordDocument", b"a document of Word 97")]);
    assert_eq!(code("a.doc", &doc).await, "document-unsupported");
    let odt =
        make::zip(&[("mimetype", b"application/vnd.oasis.opendocument.text"), ("content.xml", b"<o/>")]);
    assert_eq!(code("a.odt", &odt).await, "document-unsupported");
    assert_eq!(code("a.gif", b"GIF89a\x01\0\x01\0\0\0\0").await, "document-unsupported");
    assert_eq!(code("a.png", b"\x89PNG\r\n\x1a\n").await, "document-damaged");
    assert_eq!(code("a", b"just text").await, "document-unsupported");
    assert_eq!(code("a.xml", b"<a></a>").await, "document-unsupported");
}

#[tokio::test]
async fn a_form_that_its_programs_gave_up_is_called_old() {
    let hwp3 = b"HWP Document File V3.00 \x1a\x01\x02\x03\x04\x05";
    assert_eq!(code("a.hwp", hwp3).await, "document-format-old");
    assert_eq!(code("a.pdf", hwp3).await, "document-mismatch");
    assert_eq!(code("a.xls", &[0x09, 0x04, 0x06, 0x00, 0, 0, 0x10, 0]).await, "document-format-old");
}

#[tokio::test]
async fn a_name_that_contradicts_the_bytes_is_refused() {
    let xlsx = make::xlsx("<sheetData/>");
    let pdf = make::pdf(make::HELVETICA, b"", &[]);
    let docx = make::zip(&[("word/document.xml", b"<w/>")]);
    for (name, bytes) in [
        ("a.pdf", xlsx.as_slice()),
        ("a.xlsx", &pdf),
        ("a.xls", &xlsx),
        ("a.xlsx", &docx),
        ("a.hwp", &pdf),
        ("a.xls", b"<html><table></table></html>"),
        ("a.pdf", b"\x89PNG\r\n\x1a\n"),
    ] {
        assert_eq!(code(name, bytes).await, "document-mismatch", "{name}");
    }
}

#[tokio::test]
async fn the_bytes_decide_where_the_name_says_nothing() {
    let pdf = make::pdf(make::HELVETICA, b"BT /F1 9 Tf 50 50 Td (hello) Tj ET", &[]);
    for name in ["upload", "upload.bin", "../../etc/passwd", ""] {
        let document = read(name, &pdf).await.unwrap();
        assert_eq!(document.source.media_type, "application/pdf");
    }
    assert_eq!(read("../../etc/passwd", &pdf).await.unwrap().source.name, "passwd");
    let declared = Request { media_type: Some("text/csv; charset=utf-8".into()), ..named("upload") };
    let document = reader().parse(file(b"a,b\n1,2\n"), declared, &patient()).await.unwrap();
    assert_eq!(document.source.media_type, "text/csv");
}

#[tokio::test]
async fn a_protected_workbook_asks_for_its_password_and_opens_with_it() {
    let workbook = crate::samples::sample("budget-2026.xlsx");
    let protected = make::protected(&workbook, "열려라 참깨");
    assert_eq!(code("a.xlsx", &protected).await, "document-encrypted");
    let with = |password: &str| Request { password: Some(password.into()), ..named("a.xlsx") };
    let limits = patient();
    let wrong = reader().parse(file(&protected), with("wrong"), &limits).await;
    assert_eq!(wrong.unwrap_err(), DocumentError::PasswordWrong);
    let right = reader().parse(file(&protected), with("열려라 참깨"), &limits).await.unwrap();
    let open = read("a.xlsx", &workbook).await.unwrap();
    assert_eq!(right.tables, open.tables);
    assert_eq!(right.source.bytes, protected.len() as u64, "the source is the file that came");
    assert_ne!(right.source.sha256, open.source.sha256);
}

#[tokio::test]
async fn a_workbook_protected_without_a_password_of_its_own_just_opens() {
    let protected = make::protected(&crate::samples::sample("budget-2026.xlsx"), "VelvetSweatshop");
    assert!(read("a.xlsx", &protected).await.is_ok());
}

#[tokio::test]
async fn encryption_that_cannot_be_opened_is_not_called_damage() {
    let package = make::compound(&[("/EncryptionInfo", &[9; 64]), ("/EncryptedPackage", &[0; 64])]);
    assert_eq!(code("a.xlsx", &package).await, "document-encryption-unsupported");
    let manifest = b"<manifest:manifest><manifest:encryption-data/></manifest:manifest>";
    let ods = make::zip(&[
        ("mimetype", b"application/vnd.oasis.opendocument.spreadsheet"),
        ("META-INF/manifest.xml", manifest),
        ("content.xml", b"\x17\x02"),
    ]);
    assert_eq!(code("a.ods", &ods).await, "document-encryption-unsupported");
}

#[tokio::test]
async fn bombs_are_refused_before_they_go_off() {
    let spaces = " ".repeat(20 * 1024 * 1024);
    let spread = "<c/>".repeat(5 * 1024 * 1024);
    for (what, xlsx) in [
        (Excess::String, make::xlsx(&spaces)),
        (Excess::Unpacked, make::xlsx(&format!("<sheetData>{spread}</sheetData>"))),
        (Excess::Cells, make::xls(&[(0, 0, 1.0), (65_535, 65_535, 2.0)])),
    ] {
        let name = if what == Excess::Cells { "a.xls" } else { "a.xlsx" };
        assert_eq!(read(name, &xlsx).await.unwrap_err(), DocumentError::TooLarge(what));
    }
    let limits = Limits { archive_entries: 4, ..patient() };
    let many = read_within("a.xlsx", &make::xlsx("<sheetData/>"), &limits).await;
    assert_eq!(many.unwrap_err(), DocumentError::TooLarge(Excess::Unpacked));
}

#[tokio::test]
async fn a_stream_that_unpacks_to_more_than_allowed_is_left_out_and_the_rest_is_read() {
    let form = make::stream(
        "/Type /XObject /Subtype /Form /BBox [0 0 1 1] /Filter /FlateDecode",
        &make::zeros_packed(800),
    );
    let pdf = make::pdf(make::HELVETICA, b"BT /F1 9 Tf 50 50 Td (honest) Tj ET /X Do", &[form]);
    assert!(pdf.len() < 2_000_000, "the bomb is small");
    let limits = Limits { memory_bytes: 400 * 1024 * 1024, ..patient() };
    let document = read_within("a.pdf", &pdf, &limits).await.unwrap();
    assert_eq!((document.text.as_str(), document.warnings[0].code.as_str()), ("honest", "stream-limit"));
    // Where it is allowed what does not fit ends its reader.
    let trusting = Limits { stream_bytes: u64::MAX, ..limits };
    let error = read_within("a.pdf", &pdf, &trusting).await.unwrap_err();
    assert_eq!(error, DocumentError::TooLarge(Excess::Memory));
}

#[tokio::test]
async fn a_page_that_draws_for_ever_ends_in_time_and_those_before_it_are_read() {
    // Forms that draw each other ten times, nine deep, and nothing else.
    let form = |next: usize| {
        let draw = "/N Do ".repeat(10);
        let entries = format!(
            "/Type /XObject /Subtype /Form /BBox [0 0 600 800] /Resources << /XObject << /N {next} 0 R >> >>"
        );
        make::stream(&entries, draw.as_bytes())
    };
    let forms: Vec<Vec<u8>> = (11..21).map(form).collect();
    let pdf = make::pdf(make::HELVETICA, b"BT /F1 9 Tf 50 50 Td (before) Tj ET /X Do", &forms);
    let limits = Limits { cpu_seconds: 4, page_operations: u64::MAX, ..patient() };
    let ended = tokio::time::timeout(Duration::from_secs(120), read_within("a.pdf", &pdf, &limits)).await;
    let document = ended.expect("processor time ends it long before the clock").unwrap();
    assert_eq!((document.text.as_str(), document.warnings[0].code.as_str()), ("before", "page-limit"));
}

#[tokio::test]
async fn nesting_without_end_is_an_answer_not_a_crash() {
    let deep = b"[".repeat(200_000);
    let inside = make::pdf("", &deep, &[]);
    assert!(read("a.pdf", &inside).await.is_ok());
    let object = make::pdf("", b"", &[deep]);
    assert!(!matches!(read("a.pdf", &object).await, Err(DocumentError::Crashed)));
    let states = make::pdf("", &b"q ".repeat(1_000_000), &[]);
    assert!(!matches!(read("a.pdf", &states).await, Err(DocumentError::Crashed)));
    let ods = make::ods(&format!(
        "<table:table><table:table-row><table:table-cell>{}</table:table-cell></table:table-row></table:table>",
        "<text:span>".repeat(100_000)
    ));
    assert_eq!(read("a.ods", &ods).await.unwrap_err(), DocumentError::Damaged);
}

#[tokio::test]
async fn every_limit_has_its_answer() {
    let two_pages = crate::samples::sample("budget-2026.pdf");
    let sheets = crate::samples::sample("budget-2026.xlsx");
    let limits = patient;
    for (name, bytes, limits, excess) in [
        ("a.pdf", &two_pages, Limits { pages: 1, ..limits() }, Excess::Pages),
        ("a.pdf", &two_pages, Limits { input_bytes: 100, ..limits() }, Excess::File),
        ("a.pdf", &two_pages, Limits { output_bytes: 1000, ..limits() }, Excess::Output),
        ("a.xlsx", &sheets, Limits { cells: 10, ..limits() }, Excess::Cells),
        ("a.xlsx", &sheets, Limits { sheets: 1, ..limits() }, Excess::Sheets),
        ("a.xlsx", &sheets, Limits { unpacked_bytes: 3000, ..limits() }, Excess::Unpacked),
        ("a.xlsx", &sheets, Limits { text_bytes: 100, ..limits() }, Excess::Output),
    ] {
        let error = read_within(name, bytes, &limits).await.unwrap_err();
        assert_eq!(error, DocumentError::TooLarge(excess));
        assert_eq!(error.code(), "document-too-large");
    }
}

#[test]
fn every_error_speaks_korean_and_english_and_only_an_unavailable_reader_is_tried_again() {
    let excesses = [
        Excess::File,
        Excess::Pages,
        Excess::Sheets,
        Excess::Cells,
        Excess::String,
        Excess::Unpacked,
        Excess::Memory,
        Excess::Output,
    ];
    let errors = [
        DocumentError::Encrypted,
        DocumentError::PasswordWrong,
        DocumentError::EncryptionUnsupported,
        DocumentError::Damaged,
        DocumentError::Empty,
        DocumentError::Unsupported,
        DocumentError::FormatOld,
        DocumentError::Mismatch,
        DocumentError::TooSlow,
        DocumentError::Crashed,
        DocumentError::Forbidden,
        DocumentError::Unavailable,
    ];
    let mut messages = std::collections::HashSet::new();
    for error in errors.into_iter().chain(excesses.map(DocumentError::TooLarge)) {
        let (korean, english) = (error.message(Language::Korean), error.message(Language::English));
        assert!(korean.contains(|c: char| ('가'..='힣').contains(&c)), "{korean}");
        assert!(english.is_ascii() && english.ends_with('.'), "{english}");
        assert!(messages.insert(english), "{english} is said of two things");
        assert_eq!(error.to_string(), english);
        assert_eq!(error.is_terminal(), error != DocumentError::Unavailable);
        assert!(error.code().starts_with("document-"));
    }
}
