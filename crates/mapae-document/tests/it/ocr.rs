//! Pages and files that are pictures: what a reader of them would find is found, and nothing is lost where it is not.

use image::{GrayImage, ImageFormat, imageops};
use mapae::job::State;
use mapae::testing::{Delivered, Fault, Point};
use mapae_document::document::{Document, Table};
use mapae_document::handler::Analyze;
use mapae_document::ocr::Ocr;

use crate::jobs::{output, trial};
use crate::make::scan::{drawn, saved, scanned, skewed, stamped};
use crate::samples::sample;
use crate::{make, patient, reader};

/// Pages of a sample, drawn.
fn pages(name: &str, numbers: &[usize]) -> Vec<GrayImage> {
    let pdf = sample(name);
    numbers.iter().map(|&number| drawn(&pdf, number)).collect()
}

fn analyze() -> Analyze {
    Analyze { reader: reader(), limits: patient(), ocr: Ocr::new(2), ..Analyze::default() }
}

async fn read_by(analyze: Analyze, name: &str, file: &[u8]) -> Document {
    let trial = trial(analyze, name, file).await;
    assert!(matches!(trial.run().await, Delivered::Settled(State::Succeeded)));
    output(&trial).await
}

async fn read(name: &str, file: &[u8]) -> Document {
    read_by(analyze(), name, file).await
}

/// Share of the words of `truth` that are in `text`, each used once.
fn recall(text: &str, truth: &str) -> f64 {
    let mut there: Vec<&str> = text.split_whitespace().collect();
    let (mut found, mut all) = (0, 0);
    for word in truth.split_whitespace() {
        all += 1;
        if let Some(at) = there.iter().position(|there| *there == word) {
            there.swap_remove(at);
            found += 1;
        }
    }
    f64::from(found) / f64::from(all)
}

/// The text layer of the pages of a sample.
async fn truth(name: &str, numbers: &[usize]) -> String {
    let document = crate::read(name, &sample(name)).await.unwrap();
    let pages = document.pages.unwrap();
    numbers.iter().map(|&number| pages[number].text.clone()).collect::<Vec<_>>().join("\n")
}

fn codes(document: &Document) -> Vec<&str> {
    document.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// The first table of a page of a sample, by its text layer.
async fn true_table(name: &str, page: u32) -> Table {
    let file = crate::file(&sample(name));
    let found = reader().tables(file, crate::named(name), &[], &patient()).await.unwrap();
    found.tables.into_iter().find(|table| table.page == Some(page)).unwrap()
}

/// Share of the cells of `truth` that are in the best of `tables` at the same place with the same text.
fn alike(tables: &[Table], truth: &Table) -> f64 {
    let has = |table: &Table| {
        let mut cells = truth.cells.iter();
        cells
            .by_ref()
            .filter(|t| table.cells.iter().any(|c| (c.row, c.col, &c.text) == (t.row, t.col, &t.text)))
            .count()
    };
    tables.iter().map(has).max().unwrap_or(0) as f64 / truth.cells.len() as f64
}

#[tokio::test]
async fn a_scanned_english_report_gives_its_words_and_its_table() {
    // A stamp is no text layer.
    let stamp = "BT /F1 9 Tf 400 20 Td (Received 7 March) Tj ET";
    let document = read("scan.pdf", &stamped(&pages("library-report.pdf", &[0]), stamp)).await;
    assert!(document.text.contains("Received 7 March"), "{}", document.text);
    let found = recall(&document.text, &truth("library-report.pdf", &[0]).await);
    assert!(found > 0.95, "{found}: {}", document.text);
    let page = &document.pages.as_ref().unwrap()[0];
    assert!(page.ocr);
    assert_eq!(codes(&document), Vec::<&str>::new());
    assert_eq!(document.language.as_deref(), Some("en"));
    assert_eq!(
        document.stages.iter().map(|s| s.name.as_str()).take(3).collect::<Vec<_>>(),
        ["convert", "ocr", "tables"]
    );
    let tables = document.tables.unwrap();
    let same = alike(&tables, &true_table("library-report.pdf", 1).await);
    assert!(same > 0.9, "{same}: {}", document.text);
}

#[tokio::test]
async fn a_scanned_korean_report_gives_its_words_and_its_table() {
    let document = read("scan.pdf", &scanned(&pages("budget-2026.pdf", &[0]))).await;
    let found = recall(&document.text, &truth("budget-2026.pdf", &[0]).await);
    assert!(found > 0.7, "{found}: {}", document.text);
    assert_eq!(document.language.as_deref(), Some("ko"));
    let tables = document.tables.unwrap();
    let same = alike(&tables, &true_table("budget-2026.pdf", 1).await);
    assert!(same > 0.7, "{same}: {}", document.text);
}

#[tokio::test]
async fn turned_and_skewed_pages_read_as_straight_ones() {
    let page = pages("library-report.pdf", &[0]).remove(0);
    let turned = [
        imageops::rotate90(&page),
        imageops::rotate180(&page),
        skewed(&page, 0.03),
        skewed(&imageops::rotate270(&page), -0.02),
    ];
    let document = read("scan.pdf", &scanned(&turned)).await;
    let truth = truth("library-report.pdf", &[0]).await;
    let table = true_table("library-report.pdf", 1).await;
    let tables = document.tables.unwrap();
    for page in document.pages.unwrap() {
        let found = recall(&page.text, &truth);
        assert!(found > 0.9, "page {}: {found}: {}", page.number, page.text);
        let on_page: Vec<Table> =
            tables.iter().filter(|table| table.page == Some(page.number)).cloned().collect();
        let same = alike(&on_page, &table);
        assert!(same > 0.8, "page {}: {same}: {}", page.number, page.text);
    }
}

#[tokio::test]
async fn pictures_are_documents_of_one_page() {
    let page = pages("library-report.pdf", &[0]).remove(0);
    let truth = truth("library-report.pdf", &[0]).await;
    let upper = imageops::crop_imm(&page, 0, 0, page.width(), page.height() / 4).to_image();
    for (name, format) in [
        ("a.png", ImageFormat::Png),
        ("a.jpg", ImageFormat::Jpeg),
        ("a.tif", ImageFormat::Tiff),
        ("a.webp", ImageFormat::WebP),
    ] {
        let document = read(name, &saved(&upper, format)).await;
        let page = &document.pages.as_ref().unwrap()[0];
        assert!(
            page.ocr && page.text.contains("Garam City Library: Annual Report 2025"),
            "{name}: {}",
            page.text
        );
        assert!(recall(&truth, &page.text) > 0.9, "{name}: {}", page.text);
    }
}

#[tokio::test]
async fn a_text_layer_of_unknown_characters_is_read_from_the_picture() {
    // A font of drawn letters without names: a frame with a bar is an "H" to whoever looks, and nothing to a parser.
    let glyph =
        make::stream("", b"700 0 0 0 700 700 d1 50 0 100 700 re 450 0 100 700 re 50 300 500 100 re f");
    let font = "/F1 << /Type /Font /Subtype /Type3 /FontBBox [0 0 700 700] /FontMatrix [.001 0 0 .001 0 0] \
                /CharProcs << /g1 10 0 R >> /Encoding << /Differences [65 /g1] >> /FirstChar 65 /LastChar 65 \
                /Widths [700] >>";
    let content = "BT /F1 40 Tf 50 700 Td (AAAA) Tj 0 -80 Td (AAAAAA) Tj ET";
    let document = read("a.pdf", &make::pdf(font, content.as_bytes(), &[glyph])).await;
    assert_eq!(document.text.replace('\n', " "), "HHHH HHHHHH");
    assert!(document.pages.as_ref().unwrap()[0].ocr);
    assert_eq!(codes(&document), Vec::<&str>::new());
}

#[tokio::test]
async fn without_the_program_the_document_says_so_and_keeps_what_it_has() {
    let mut ocr = Ocr::new(2);
    ocr.tesseract.path = Some("/nonexistent".into());
    let analyze = Analyze { ocr, ..analyze() };
    let document = read_by(analyze, "a.pdf", &make::pdf("", b"10 10 100 100 re f", &[])).await;
    assert_eq!(codes(&document), ["no-text", "ocr-missing"]);
    assert!(document.warnings[1].message.contains("tesseract"), "{}", document.warnings[1].message);
    let off = Analyze { ocr: Ocr::new(0), ..self::analyze() };
    let document = read_by(off, "a.png", &saved(&GrayImage::new(40, 40), ImageFormat::Png)).await;
    assert_eq!(codes(&document), ["no-text", "ocr-off"]);
}

#[tokio::test]
async fn a_program_that_fails_costs_the_text_of_its_pages_only() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tesseract");
    std::fs::write(&program, "#!/bin/sh\n[ \"$1\" = --list-langs ] && { echo eng; exit; }\nexit 1\n")
        .unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut ocr = Ocr::new(2);
    ocr.tesseract.path = Some(folder.path().into());
    let analyze = Analyze { ocr, ..analyze() };
    let document = read_by(analyze, "a.pdf", &make::pdf("", b"10 10 100 100 re f", &[])).await;
    assert_eq!(codes(&document), ["no-text", "ocr-language-missing", "ocr-failed"]);
}

#[tokio::test]
async fn an_attempt_after_a_crash_reads_only_the_pages_that_were_not_kept() {
    let line = crate::make::pdf(make::HELVETICA, b"BT /F1 24 Tf 50 700 Td (Readable words) Tj ET", &[]);
    let pages: Vec<GrayImage> = std::iter::repeat_n(drawn(&line, 0), 10).collect();
    // A recogniser that reads one word on whatever it is given.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tesseract");
    let reads = |word: &str| {
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --list-langs ] && {{ echo eng; exit; }}\n\
             printf 'level\\t2\\t3\\t4\\t5\\t6\\t7\\t8\\t9\\t10\\t11\\ttext\\n5\\t1\\t1\\t1\\t1\\t1\\t100\\t200\\t90\\t30\\t90\\t{word}\\n'\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    reads("first");
    let mut ocr = Ocr::new(1);
    ocr.tesseract.path = Some(folder.path().into());
    let trial = trial(Analyze { ocr, ..analyze() }, "scan.pdf", &scanned(&pages)).await;
    let crashed = trial.run_with(Fault::Crash, Point::AfterStage("ocr.0")).await;
    assert!(matches!(crashed, Delivered::Crashed));
    reads("second");
    trial.expire_lease();
    assert!(matches!(trial.run().await, Delivered::Settled(State::Succeeded)));
    let document = output(&trial).await;
    let words: Vec<&str> = document.text.split_whitespace().collect();
    assert_eq!(words, [["first"; 8].as_slice(), &["second"; 2]].concat(), "the first part is not read again");
}
