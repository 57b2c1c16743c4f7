//! HWP 5: files made record by record, open, for distribution only, and protected.

use mapae_document::child::Request;
use mapae_document::error::DocumentError;

use super::{cells, headings, tables};
use crate::make::hwp::{Hwp, record};
use crate::{file, named, patient, read, reader};

/// A paragraph at a level: its header, its characters, the controls anchored in it.
fn paragraph(level: u32, shape: u16, units: &[u16], controls: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 24];
    header[8..10].copy_from_slice(&shape.to_le_bytes());
    let bytes: Vec<u8> = units.iter().chain(&[13]).flat_map(|unit| unit.to_le_bytes()).collect();
    [record(66, level, &header), record(67, level + 1, &bytes), controls.to_vec()].concat()
}

fn words(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

/// The place of a control in the characters.
fn anchor(code: u16) -> Vec<u16> {
    vec![code, 0, 0, 0, 0, 0, 0, code]
}

fn cell(level: u32, [row, col, rows, cols]: [u16; 4], content: &[u8]) -> Vec<u8> {
    let mut list = vec![1, 0, 0, 0, 0, 0, 0, 0];
    [col, row, cols, rows].iter().for_each(|n| list.extend(n.to_le_bytes()));
    [record(72, level, &list), content.to_vec()].concat()
}

fn control(level: u32, id: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let id: Vec<u8> = id.iter().rev().copied().collect();
    [record(71, level, &id), content.to_vec()].concat()
}

fn body() -> Vec<u8> {
    let plain = |level, text: &str| paragraph(level, 0, &words(text), &[]);
    let inner =
        control(3, b"tbl ", &[record(77, 4, &[0; 8]), cell(4, [0, 0, 1, 1], &plain(4, "속"))].concat());
    let nested = paragraph(2, 0, &[words("앞"), anchor(11)].concat(), &inner);
    let cells = [
        record(72, 2, &[0; 8]),
        plain(2, "표 제목"),
        record(77, 2, &[0; 8]),
        cell(2, [0, 0, 1, 2], &plain(2, "머리")),
        cell(2, [1, 0, 1, 1], &nested),
        cell(2, [1, 1, 1, 1], &plain(2, "끝")),
    ]
    .concat();
    let note = control(1, b"fn  ", &[record(72, 2, &[0; 8]), plain(2, "각주")].concat());
    let shape =
        control(1, b"gso ", &[record(76, 2, &[0; 8]), record(72, 3, &[0; 8]), plain(3, "글상자")].concat());
    [
        paragraph(0, 1, &words("개요"), &[]),
        paragraph(0, 0, &anchor(11), &control(1, b"tbl ", &cells)),
        paragraph(
            0,
            0,
            &[words("가"), anchor(9), words("나"), anchor(17), words("다"), anchor(11)].concat(),
            &[note, shape].concat(),
        ),
    ]
    .concat()
}

/// Two shapes of paragraphs, the second one numbered as an outline of the second level.
fn shapes() -> Vec<u8> {
    [record(25, 0, &[0; 8]), record(25, 0, &(1u32 << 23 | 1 << 25).to_le_bytes())].concat()
}

fn hwp() -> Hwp {
    Hwp { properties: 1, shapes: shapes(), body: body() }
}

const TEXT: &str = "개요\n표 제목\n머리\n앞 속\t끝\n가\t나다\n각주\n글상자";

#[tokio::test]
async fn words_headings_and_tables_come_in_order() {
    for properties in [0, 1] {
        let document = read("a.hwp", &Hwp { properties, ..hwp() }.bytes()).await.unwrap();
        assert_eq!(document.text, TEXT);
        assert_eq!(headings(&document), [(2, "개요".to_owned())]);
        let [outer, inner] = tables(&document) else { panic!("two tables") };
        assert_eq!(cells(outer), [(0, 0, 1, 2, "머리"), (1, 0, 1, 1, "앞\n속"), (1, 1, 1, 1, "끝")]);
        assert_eq!((outer.title.as_deref(), inner.inside), (Some("표 제목"), Some(1)));
        assert_eq!(document.warnings, []);
    }
}

#[tokio::test]
async fn numbers_that_the_program_sets_are_told() {
    let level = |form: u32, template: &str| {
        let template: Vec<u8> = words(template).iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let length = (template.len() / 2) as u16;
        [&(0xc | form << 5).to_le_bytes()[..], &[0; 8], &length.to_le_bytes(), &template].concat()
    };
    let mut list = [level(0, "^1."), level(8, "^2)")].concat();
    list.extend((2..7).flat_map(|_| level(0, "")));
    list.extend([0, 0]);
    list.extend([5u32, 1, 1, 1, 1, 1, 1].iter().flat_map(|start| start.to_le_bytes()));
    let numbered = |level: u32| {
        let mut shape = vec![0; 34];
        shape[..4].copy_from_slice(&(2 << 23 | level << 25).to_le_bytes());
        shape[30] = 1;
        record(25, 0, &shape)
    };
    let shapes = [record(23, 0, &list), record(25, 0, &[0; 34]), numbered(0), numbered(1)].concat();
    let told = [(1, "하나"), (2, "속"), (2, "속"), (0, "글"), (1, "둘"), (2, "속")];
    let body: Vec<u8> =
        told.iter().flat_map(|(shape, text)| paragraph(0, *shape, &words(text), &[])).collect();
    let document = read("a.hwp", &Hwp { properties: 1, shapes, body }.bytes()).await.unwrap();
    assert_eq!(document.text, "5. 하나\n가) 속\n나) 속\n글\n6. 둘\n가) 속");
}

#[tokio::test]
async fn a_document_for_distribution_reads_like_any_other() {
    let document = read("a.hwp", &Hwp { properties: 5, ..hwp() }.bytes()).await.unwrap();
    assert_eq!((document.text.as_str(), document.warnings.len()), (TEXT, 0));
}

#[tokio::test]
async fn a_password_opens_what_it_protects() {
    // The stream of shapes begins with what tells a right password from a wrong one.
    let shapes = [record(16, 0, &[0; 26]), shapes()].concat();
    let protected = Hwp { properties: 3, shapes, ..hwp() }.bytes();
    let open = |bytes: &[u8], password: &str| {
        let (sealed, request) = (file(bytes), Request { password: Some(password.into()), ..named("a.hwp") });
        async move { reader().parse(sealed, request, &patient()).await }
    };
    assert_eq!(read("a.hwp", &protected).await.unwrap_err(), DocumentError::Encrypted);
    assert_eq!(open(&protected, "12345").await.unwrap_err(), DocumentError::PasswordWrong);
    assert_eq!(open(&protected, "123456").await.unwrap().text, TEXT);
    // What is not packed comes out as something under any password.
    let plain = Hwp { properties: 2, shapes: record(16, 0, &[0; 26]), body: body() }.bytes();
    assert_eq!(open(&plain, "12345").await.unwrap_err(), DocumentError::PasswordWrong);
    assert!(open(&plain, "123456").await.unwrap().text.starts_with("개요"));
    // Another way of encrypting.
    let header = [&Hwp::header(2)[..44], &[1, 0, 0, 0], &[0; 208]].concat();
    let other = crate::make::compound(&[("/FileHeader", &header)]);
    assert_eq!(open(&other, "123456").await.unwrap_err(), DocumentError::EncryptionUnsupported);
}

#[tokio::test]
async fn where_nothing_else_is_written_objects_speak_for_themselves() {
    let mut described = vec![0; 40];
    described.extend(3u16.to_le_bytes());
    described.extend(words("그림임").iter().flat_map(|unit| unit.to_le_bytes()));
    let id: Vec<u8> = b"gso ".iter().rev().copied().chain(described).collect();
    let picture = paragraph(0, 0, &anchor(11), &record(71, 1, &id));
    let alone = read("a.hwp", &Hwp { body: picture.clone(), ..hwp() }.bytes()).await.unwrap();
    assert_eq!(alone.text, "그림임");
    let beside = [picture, paragraph(0, 0, &words("본문"), &[])].concat();
    assert_eq!(read("a.hwp", &Hwp { body: beside, ..hwp() }.bytes()).await.unwrap().text, "본문");
}

#[tokio::test]
async fn what_breaks_off_is_read_up_to_there_and_says_so() {
    let mut cut = body();
    cut.truncate(cut.len() - 3);
    let document = read("a.hwp", &Hwp { body: cut, ..hwp() }.bytes()).await.unwrap();
    assert!(document.text.starts_with("개요\n표 제목"));
    assert_eq!(document.warnings[0].code, "part-broken");
    let torn = &hwp().bytes()[..700];
    assert_eq!(read("a.hwp", torn).await.unwrap_err(), DocumentError::Damaged);
    assert_eq!(read("a.pdf", torn).await.unwrap_err(), DocumentError::Mismatch);
    let nothing = crate::make::compound(&[("/FileHeader", &Hwp::header(0))]);
    assert_eq!(read("a.hwp", &nothing).await.unwrap_err(), DocumentError::Damaged);
}
