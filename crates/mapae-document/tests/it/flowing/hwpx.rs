//! HWPX: order, spans, nesting, notes, headings; passwords; odd packages.

use mapae_document::child::Request;
use mapae_document::error::{DocumentError, Excess};
use mapae_document::limits::Limits;

use super::{cells, headings, slice, tables};
use crate::{file, make, named, patient, read, read_within, reader};

fn text(text: &str) -> String {
    format!("<hp:p paraPrIDRef=\"0\"><hp:run><hp:t>{text}</hp:t></hp:run></hp:p>")
}

fn cell(row: u32, col: u32, rows: u32, cols: u32, content: &str) -> String {
    format!(
        "<hp:tc><hp:subList>{content}</hp:subList><hp:cellAddr colAddr=\"{col}\" rowAddr=\"{row}\"/>\
         <hp:cellSpan colSpan=\"{cols}\" rowSpan=\"{rows}\"/></hp:tc>"
    )
}

fn table(content: &str) -> String {
    format!("<hp:p><hp:run><hp:tbl rowCnt=\"2\" colCnt=\"2\">{content}</hp:tbl></hp:run></hp:p>")
}

fn section(content: &str) -> String {
    format!("<?xml version=\"1.0\"?><hs:sec xmlns:hs=\"s\" xmlns:hp=\"p\">{content}</hs:sec>")
}

fn hwpx(content: &str) -> Vec<u8> {
    let header = "<hh:head xmlns:hh=\"h\"><hh:paraPr id=\"7\"><hh:heading type=\"OUTLINE\" level=\"1\"/></hh:paraPr></hh:head>";
    make::zip(&[
        ("mimetype", b"application/hwp+zip"),
        ("Contents/header.xml", header.as_bytes()),
        ("Contents/section0.xml", section(content).as_bytes()),
    ])
}

#[tokio::test]
async fn tables_keep_their_spans_and_a_table_in_a_cell_is_one_too() {
    let inner = table(&format!(
        "<hp:tr>{}{}</hp:tr>",
        cell(0, 0, 1, 1, &text("속1")),
        cell(0, 1, 1, 1, &text("속2"))
    ));
    let outer = table(&format!(
        "<hp:tr>{}</hp:tr><hp:tr>{}{}</hp:tr>",
        cell(0, 0, 1, 2, &text("제목")),
        cell(1, 0, 1, 1, &format!("{}{inner}", text("앞"))),
        cell(1, 1, 1, 1, &text("끝"))
    ));
    let document =
        read("a.hwpx", &hwpx(&format!("{}{outer}{}", text("처음"), text("마지막")))).await.unwrap();
    assert_eq!(document.source.media_type, "application/hwp+zip");
    assert_eq!(document.text, "처음\n제목\n앞 속1 속2\t끝\n마지막");
    let [outer, inner] = tables(&document) else { panic!("two tables") };
    assert_eq!(cells(outer), [(0, 0, 1, 2, "제목"), (1, 0, 1, 1, "앞\n속1\t속2"), (1, 1, 1, 1, "끝")]);
    assert_eq!((outer.id, outer.inside, inner.id, inner.inside), (1, None, 2, Some(1)));
    assert_eq!(cells(inner), [(0, 0, 1, 1, "속1"), (0, 1, 1, 1, "속2")]);
    assert_eq!(slice(&document, outer.at.unwrap()), "제목\n앞 속1 속2\t끝");
}

#[tokio::test]
async fn headers_notes_shapes_and_headings_come_in_order() {
    let content = "<hp:p><hp:run><hp:ctrl><hp:header><hp:subList><hp:p><hp:run><hp:t>머리말</hp:t></hp:run></hp:p>\
         </hp:subList></hp:header></hp:ctrl></hp:run></hp:p>\
         <hp:p paraPrIDRef=\"7\"><hp:run><hp:t>개요</hp:t></hp:run></hp:p>\
         <hp:p><hp:run><hp:t>가<hp:tab/>나<hp:lineBreak/>다 &amp; <hp:deleteBegin/>지운 글<hp:deleteEnd/>라</hp:t></hp:run>\
         <hp:run><hp:ctrl><hp:footNote><hp:subList><hp:p><hp:run><hp:t>각주</hp:t></hp:run></hp:p></hp:subList></hp:footNote></hp:ctrl>\
         <hp:t>마</hp:t></hp:run>\
         <hp:run><hp:container><hp:rect><hp:drawText><hp:subList><hp:p><hp:run><hp:t>사각형</hp:t></hp:run></hp:p></hp:subList>\
         </hp:drawText></hp:rect></hp:container></hp:run></hp:p>";
    let document = read("a.hwpx", &hwpx(content)).await.unwrap();
    assert_eq!(document.text, "머리말\n개요\n가\t나\n다 & 라마\n각주\n사각형");
    assert_eq!(headings(&document), [(2, "개요".to_owned())]);
    assert_eq!(document.warnings, []);
}

#[tokio::test]
async fn numbers_that_the_program_sets_are_told() {
    let header = "<hh:head xmlns:hh=\"h\"><hh:numbering id=\"1\"><hh:paraHead level=\"1\" start=\"1\" numFormat=\"DIGIT\">제^1조\
        </hh:paraHead></hh:numbering><hh:numbering id=\"2\"><hh:paraHead level=\"1\" start=\"3\" numFormat=\"HANGUL_SYLLABLE\">^1.\
        </hh:paraHead></hh:numbering><hh:paraPr id=\"1\"><hh:heading type=\"OUTLINE\" idRef=\"0\" level=\"0\"/></hh:paraPr>\
        <hh:paraPr id=\"2\"><hh:heading type=\"NUMBER\" idRef=\"2\" level=\"0\"/></hh:paraPr></hh:head>";
    let paragraph = |shape: u32, words: &str| {
        format!("<hp:p paraPrIDRef=\"{shape}\"><hp:run><hp:t>{words}</hp:t></hp:run></hp:p>")
    };
    let start = "<hp:p><hp:run><hp:secPr outlineShapeIDRef=\"1\"/></hp:run></hp:p>";
    let words = [(1, "목적"), (2, "하나"), (2, "둘"), (2, " "), (1, "정의"), (2, "셋")];
    let content: String = words.iter().map(|(shape, words)| paragraph(*shape, words)).collect();
    let hwpx = make::zip(&[
        ("Contents/header.xml", header.as_bytes()),
        ("Contents/section0.xml", section(&format!("{start}{content}")).as_bytes()),
    ]);
    let document = read("a.hwpx", &hwpx).await.unwrap();
    assert_eq!(document.text, "제1조 목적\n다. 하나\n라. 둘\n제2조 정의\n바. 셋");
    assert_eq!(headings(&document), [(1, "제1조 목적".to_owned()), (1, "제2조 정의".to_owned())]);
}

#[tokio::test]
async fn sections_alone_are_enough_and_come_by_number() {
    let one = |word: &str| section(&text(word));
    let (second, tenth) = (one("둘"), one("열"));
    let bare = make::zip(&[
        ("Contents/section10.xml", tenth.as_bytes()),
        ("Contents/section2.xml", second.as_bytes()),
    ]);
    assert_eq!(read("a.hwpx", &bare).await.unwrap().text, "둘\n열");
    let broken = section(&text("앞")).replace("</hs:sec>", "<hp:p><hp:run><hp:t>뒤");
    let cut = read("a.hwpx", &make::zip(&[("Contents/section0.xml", broken.as_bytes())])).await.unwrap();
    assert_eq!((cut.text.as_str(), cut.warnings[0].code.as_str()), ("앞\n뒤", "part-broken"));
    let none = make::zip(&[("mimetype", b"application/hwp+zip"), ("Contents/content.hpf", b"<a/>")]);
    assert_eq!(read("a.hwpx", &none).await.unwrap_err(), DocumentError::Damaged);
}

#[tokio::test]
async fn a_password_opens_what_it_protects() {
    let protected = make::protected_part("Contents/section0.xml", section(&text("비밀")).as_bytes());
    let open = |password: &str| {
        let request =
            Request { password: (!password.is_empty()).then(|| password.into()), ..named("a.hwpx") };
        let protected = file(&protected);
        async move { reader().parse(protected, request, &patient()).await }
    };
    assert_eq!(open("").await.unwrap_err(), DocumentError::Encrypted);
    assert_eq!(open("닫혀라").await.unwrap_err(), DocumentError::PasswordWrong);
    assert_eq!(open("열려라").await.unwrap().text, "비밀");
}

#[tokio::test]
async fn bombs_end_in_an_answer() {
    let nested = "<hp:p><hp:run><hp:tbl><hp:tr><hp:tc><hp:subList>".repeat(60);
    let deep = read("a.hwpx", &hwpx(&format!("{nested}<hp:p><hp:run><hp:t>속</hp:t></hp:run></hp:p>")))
        .await
        .unwrap();
    assert!(deep.text.contains('속') && tables(&deep).len() == 16);
    let deeper = hwpx(&"<hp:p>".repeat(200_000));
    assert_eq!(read("a.hwpx", &deeper).await.unwrap_err(), DocumentError::Damaged);
    let many = hwpx(&table(&format!("<hp:tr>{}</hp:tr>", cell(0, 0, 1, 1, &text("가")).repeat(50))));
    let limits = Limits { cells: 10, ..patient() };
    let error = read_within("a.hwpx", &many, &limits).await.unwrap_err();
    assert_eq!(error, DocumentError::TooLarge(Excess::Cells));
    let spaces = hwpx(&" ".repeat(20 * 1024 * 1024));
    assert_eq!(read("a.hwpx", &spaces).await.unwrap_err(), DocumentError::TooLarge(Excess::String));
}
