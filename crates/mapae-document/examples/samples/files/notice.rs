//! A Korean notice as HWPX: outline headings, a table with merged headings and a table inside, a footnote, a header.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;

/// Shapes of paragraphs in `HEADER`.
const BODY: u32 = 0;
const CHAPTER: u32 = 1;

pub(crate) fn hwpx() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let section = section();
    let parts = [
        ("mimetype", "application/hwp+zip"),
        ("META-INF/container.xml", CONTAINER),
        ("Contents/content.hpf", PACKAGE),
        ("Contents/header.xml", HEADER),
        ("Contents/section0.xml", &section),
    ];
    for (name, text) in parts {
        zip.start_file(name, SimpleFileOptions::default()).expect("a sample has no duplicate parts");
        zip.write_all(text.as_bytes()).expect("writing to memory works");
    }
    zip.finish().expect("writing to memory works").into_inner()
}

fn run(content: &str) -> String {
    format!("<hp:run charPrIDRef=\"0\">{content}</hp:run>")
}

fn text(text: &str) -> String {
    run(&format!("<hp:t>{text}</hp:t>"))
}

fn paragraph(shape: u32, runs: &str) -> String {
    format!("<hp:p id=\"0\" paraPrIDRef=\"{shape}\" styleIDRef=\"0\">{runs}</hp:p>")
}

fn body(words: &str) -> String {
    paragraph(BODY, &text(words))
}

fn list(content: &str) -> String {
    format!("<hp:subList id=\"\" textDirection=\"HORIZONTAL\">{content}</hp:subList>")
}

/// A cell at a row and column that spans so many of them.
fn cell([row, col, rows, cols]: [u32; 4], content: &str) -> String {
    format!(
        "<hp:tc name=\"\" header=\"0\">{}<hp:cellAddr colAddr=\"{col}\" rowAddr=\"{row}\"/>\
         <hp:cellSpan colSpan=\"{cols}\" rowSpan=\"{rows}\"/></hp:tc>",
        list(content)
    )
}

fn table(rows: u32, columns: u32, content: &[String]) -> String {
    let rows_of_cells: String = content.iter().map(|row| format!("<hp:tr>{row}</hp:tr>")).collect();
    run(&format!("<hp:tbl id=\"0\" rowCnt=\"{rows}\" colCnt=\"{columns}\">{rows_of_cells}</hp:tbl>"))
}

fn section() -> String {
    let header = run(&format!(
        "<hp:ctrl><hp:header id=\"1\">{}</hp:header></hp:ctrl>",
        list(&body("가람시 공고 제2026-41호"))
    ));
    let note = format!(
        "<hp:ctrl><hp:footNote number=\"1\">{}</hp:footNote></hp:ctrl>",
        list(&body("가람시 도서관 조례 제12조에 따른다."))
    );
    let rooms = table(
        2,
        2,
        &[
            [cell([0, 0, 1, 1], &body("열람실")), cell([0, 1, 1, 1], &body("120석"))].concat(),
            [cell([1, 0, 1, 1], &body("회의실")), cell([1, 1, 1, 1], &body("3실"))].concat(),
        ],
    );
    let branches = table(
        4,
        4,
        &[
            [
                cell([0, 0, 2, 1], &body("분관")),
                cell([0, 1, 1, 2], &body("운영 시간")),
                cell([0, 3, 2, 1], &body("시설")),
            ]
            .concat(),
            [cell([1, 1, 1, 1], &body("평일")), cell([1, 2, 1, 1], &body("주말"))].concat(),
            [
                cell([2, 0, 1, 1], &body("중앙분관")),
                cell([2, 1, 1, 1], &body("09:00~22:00")),
                cell([2, 2, 1, 1], &body("09:00~18:00")),
                cell([2, 3, 1, 1], &paragraph(BODY, &rooms)),
            ]
            .concat(),
            [
                cell([3, 0, 1, 1], &body("항구분관")),
                cell([3, 1, 1, 1], &body("10:00~20:00")),
                cell([3, 2, 1, 1], &body("휴관")),
                cell([3, 3, 1, 1], &body("열람실 60석")),
            ]
            .concat(),
        ],
    );
    let opening = run(&format!(
        "<hp:t>가람시 도서관은 2026년 3월 2일부터 운영 시간을 다음과 같이 바꾼다.</hp:t>{note}"
    ));
    let content = [
        paragraph(BODY, &[header, text("도서관 운영 시간 변경 공고")].concat()),
        paragraph(CHAPTER, &text("변경 내용")),
        paragraph(BODY, &opening),
        body("표 1. 분관별 운영 시간"),
        paragraph(BODY, &branches),
        paragraph(CHAPTER, &text("문의")),
        body("기획운영과<hp:tab/>전화 02-0000-0000"),
    ]
    .concat();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?><hs:sec \
         xmlns:hs=\"http://www.hancom.co.kr/hwpml/2011/section\" \
         xmlns:hp=\"http://www.hancom.co.kr/hwpml/2011/paragraph\">{content}</hs:sec>"
    )
}

const CONTAINER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
<ocf:container xmlns:ocf=\"urn:oasis:names:tc:opendocument:xmlns:container\"><ocf:rootfiles>\
<ocf:rootfile full-path=\"Contents/content.hpf\" media-type=\"application/hwpml-package+xml\"/>\
</ocf:rootfiles></ocf:container>";

const PACKAGE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
<opf:package xmlns:opf=\"http://www.idpf.org/2007/opf/\"><opf:manifest>\
<opf:item id=\"header\" href=\"Contents/header.xml\" media-type=\"application/xml\"/>\
<opf:item id=\"section0\" href=\"Contents/section0.xml\" media-type=\"application/xml\"/></opf:manifest>\
<opf:spine><opf:itemref idref=\"header\"/><opf:itemref idref=\"section0\"/></opf:spine></opf:package>";

const HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
<hh:head xmlns:hh=\"http://www.hancom.co.kr/hwpml/2011/head\" version=\"1.4\" secCnt=\"1\"><hh:refList>\
<hh:paraProperties itemCnt=\"2\"><hh:paraPr id=\"0\"><hh:heading type=\"NONE\" idRef=\"0\" level=\"0\"/></hh:paraPr>\
<hh:paraPr id=\"1\"><hh:heading type=\"OUTLINE\" idRef=\"0\" level=\"0\"/></hh:paraPr></hh:paraProperties>\
</hh:refList></hh:head>";
