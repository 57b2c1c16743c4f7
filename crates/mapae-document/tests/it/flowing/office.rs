//! DOCX and PPTX: order, spans by merging, notes, changes, slides as pages.

use mapae_document::child::Request;
use mapae_document::error::DocumentError;

use super::{cells, headings, tables};
use crate::{file, make, named, patient, read, reader};

fn p(text: &str) -> String {
    format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>")
}

fn tc(properties: &str, content: &str) -> String {
    format!("<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>")
}

fn docx(body: &str) -> Vec<u8> {
    let document = format!("<w:document xmlns:w=\"w\"><w:body>{body}</w:body></w:document>");
    let styles = "<w:styles xmlns:w=\"w\"><w:style w:styleId=\"a3\"><w:name w:val=\"heading 2\"/></w:style></w:styles>";
    let notes = "<w:footnotes xmlns:w=\"w\"><w:footnote w:id=\"0\" w:type=\"separator\"><w:p><w:r><w:t>선</w:t></w:r></w:p></w:footnote>\
        <w:footnote w:id=\"2\"><w:p><w:r><w:t>각주</w:t></w:r></w:p></w:footnote></w:footnotes>";
    let header = format!("<w:hdr xmlns:w=\"w\">{}</w:hdr>", p("머리말"));
    let footer = format!("<w:ftr xmlns:w=\"w\">{}</w:ftr>", p("꼬리말"));
    make::zip(&[
        ("[Content_Types].xml", b"<Types/>"),
        ("word/document.xml", document.as_bytes()),
        ("word/styles.xml", styles.as_bytes()),
        ("word/footnotes.xml", notes.as_bytes()),
        ("word/header1.xml", header.as_bytes()),
        ("word/footer1.xml", footer.as_bytes()),
    ])
}

#[tokio::test]
async fn a_document_of_word_comes_in_order() {
    let body = format!(
        "<w:p><w:pPr><w:pStyle w:val=\"a3\"/></w:pPr><w:r><w:t>제목</w:t></w:r></w:p>\
         <w:p><w:r><w:t>가</w:t><w:tab/><w:t>나</w:t><w:footnoteReference w:id=\"2\"/></w:r>\
         <w:del><w:r><w:delText>지운 글</w:delText></w:r></w:del><w:ins><w:r><w:t> 넣은 글</w:t></w:r></w:ins>\
         <w:r><w:instrText>PAGE</w:instrText></w:r></w:p>\
         <w:p><w:r><mc:AlternateContent xmlns:mc=\"m\"><mc:Choice><w:txbxContent>{0}</w:txbxContent></mc:Choice>\
         <mc:Fallback><w:txbxContent>{0}</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>\
         <w:sdt><w:sdtContent>{1}</w:sdtContent></w:sdt>",
        p("글상자"),
        p("끝")
    );
    let document = read("a.docx", &docx(&body)).await.unwrap();
    assert_eq!(document.text, "머리말\n제목\n가\t나 넣은 글\n각주\n글상자\n끝\n꼬리말");
    assert_eq!(headings(&document), [(2, "제목".to_owned())]);
    assert_eq!(tables(&document), []);
}

#[tokio::test]
async fn lists_of_word_are_numbered() {
    let level = |number: u32, form: &str, text: &str, style: &str| {
        format!(
            "<w:lvl w:ilvl=\"{number}\"><w:start w:val=\"1\"/><w:numFmt w:val=\"{form}\"/>{style}<w:lvlText w:val=\"{text}\"/></w:lvl>"
        )
    };
    let numbering = format!(
        "<w:numbering xmlns:w=\"w\"><w:abstractNum w:abstractNumId=\"0\">{}{}</w:abstractNum>\
         <w:abstractNum w:abstractNumId=\"1\">{}</w:abstractNum><w:num w:numId=\"1\"><w:abstractNumId w:val=\"0\"/></w:num>\
         <w:num w:numId=\"2\"><w:abstractNumId w:val=\"0\"/><w:lvlOverride w:ilvl=\"0\"><w:startOverride w:val=\"1\"/></w:lvlOverride></w:num>\
         <w:num w:numId=\"3\"><w:abstractNumId w:val=\"1\"/></w:num></w:numbering>",
        level(0, "decimal", "제%1조", "<w:pStyle w:val=\"a3\"/>"),
        level(1, "ganada", "%2)", ""),
        level(0, "bullet", "*", "")
    );
    let styles = "<w:styles xmlns:w=\"w\"><w:style w:styleId=\"a3\"><w:name w:val=\"heading 1\"/><w:pPr><w:numPr><w:numId w:val=\"1\"/>\
        </w:numPr></w:pPr></w:style></w:styles>";
    let item = |list: u32, level: u32, text: &str| {
        format!(
            "<w:p><w:pPr><w:numPr><w:ilvl w:val=\"{level}\"/><w:numId w:val=\"{list}\"/></w:numPr></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"
        )
    };
    let heading = |text: &str| {
        format!("<w:p><w:pPr><w:pStyle w:val=\"a3\"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
    };
    let body = [
        heading("목적"),
        item(1, 1, "가나"),
        item(1, 1, "다라"),
        heading("정의"),
        item(1, 1, "마"),
        item(2, 0, "새로"),
        item(3, 0, "점"),
    ];
    let document = format!("<w:document xmlns:w=\"w\"><w:body>{}</w:body></w:document>", body.concat());
    let docx = make::zip(&[
        ("word/document.xml", document.as_bytes()),
        ("word/styles.xml", styles.as_bytes()),
        ("word/numbering.xml", numbering.as_bytes()),
    ]);
    let document = read("a.docx", &docx).await.unwrap();
    assert_eq!(document.text, "제1조 목적\n가) 가나\n나) 다라\n제2조 정의\n가) 마\n제1조 새로\n점");
    assert_eq!(headings(&document)[1], (1, "제2조 정의".to_owned()));
}

#[tokio::test]
async fn merged_cells_of_word_are_spans() {
    let table = format!(
        "{}<w:tbl><w:tr><w:trPr><w:tblHeader/></w:trPr>{}{}</w:tr><w:tr>{}{}{}</w:tr><w:tr>{}{}{}</w:tr></w:tbl>",
        p("표 1. 예산"),
        tc("<w:vMerge w:val=\"restart\"/>", &p("구분")),
        tc("<w:gridSpan w:val=\"2\"/>", &p("금액")),
        tc("<w:vMerge/>", "<w:p/>"),
        tc("", &p("작년")),
        tc("", &p("올해")),
        tc("", &p("복지")),
        tc("", &p("312")),
        tc("", &p("338")),
    );
    let document = read("a.docx", &docx(&table)).await.unwrap();
    let [table] = tables(&document) else { panic!("one table") };
    assert_eq!(
        cells(table),
        [
            (0, 0, 2, 1, "구분"),
            (0, 1, 1, 2, "금액"),
            (1, 1, 1, 1, "작년"),
            (1, 2, 1, 1, "올해"),
            (2, 0, 1, 1, "복지"),
            (2, 1, 1, 1, "312"),
            (2, 2, 1, 1, "338"),
        ]
    );
    assert_eq!((table.rows, table.columns, table.header_rows), (3, 3, 1));
    assert_eq!(table.title.as_deref(), Some("표 1. 예산"));
}

#[tokio::test]
async fn a_protected_document_of_word_opens_with_its_password() {
    let protected = make::protected(&docx(&p("비밀")), "열려라");
    assert_eq!(read("a.docx", &protected).await.unwrap_err(), DocumentError::Encrypted);
    let request = Request { password: Some("열려라".into()), ..named("a.docx") };
    let document = reader().parse(file(&protected), request, &patient()).await.unwrap();
    assert!(document.text.contains("비밀"));
}

fn slide(shapes: &str) -> String {
    format!("<p:sld xmlns:p=\"p\" xmlns:a=\"a\"><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>")
}

fn shape(holder: &str, text: &str) -> String {
    format!(
        "<p:sp><p:nvSpPr><p:nvPr>{holder}</p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
    )
}

#[tokio::test]
async fn slides_are_pages_in_the_order_they_are_shown() {
    let presentation = "<p:presentation xmlns:p=\"p\" xmlns:r=\"r\"><p:sldIdLst><p:sldId id=\"256\" r:id=\"rId9\"/>\
        <p:sldId id=\"257\" r:id=\"rId1\"/></p:sldIdLst><p:sldSz cx=\"9144000\" cy=\"6858000\"/></p:presentation>";
    let relations = "<Relationships><Relationship Id=\"rId1\" Type=\"t/slide\" Target=\"slides/slide1.xml\"/>\
        <Relationship Id=\"rId9\" Type=\"t/slide\" Target=\"/ppt/slides/slide2.xml\"/></Relationships>";
    let of_slide = "<Relationships><Relationship Id=\"rId2\" Type=\"t/notesSlide\" Target=\"../notesSlides/notesSlide1.xml\"/></Relationships>";
    let cell = |attributes: &str, text: &str| {
        format!("<a:tc {attributes}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>")
    };
    let first = slide(&format!(
        "{}<p:graphicFrame><a:tbl><a:tblPr firstRow=\"1\"/><a:tr>{}{}</a:tr><a:tr>{}{}</a:tr></a:tbl></p:graphicFrame>",
        shape("<p:ph type=\"sldNum\"/>", "7"),
        cell("gridSpan=\"2\"", "머리"),
        cell("hMerge=\"1\"", ""),
        cell("", "가"),
        cell("", "1"),
    ));
    let second = slide(&shape("<p:ph type=\"title\"/>", "제목"));
    let notes = slide(&shape("", "발표 노트"));
    let pptx = make::zip(&[
        ("ppt/presentation.xml", presentation.as_bytes()),
        ("ppt/_rels/presentation.xml.rels", relations.as_bytes()),
        ("ppt/slides/slide1.xml", first.as_bytes()),
        ("ppt/slides/_rels/slide1.xml.rels", of_slide.as_bytes()),
        ("ppt/slides/slide2.xml", second.as_bytes()),
        ("ppt/notesSlides/notesSlide1.xml", notes.as_bytes()),
    ]);
    let document = read("a.pptx", &pptx).await.unwrap();
    assert_eq!(document.text, "제목\n머리\n가\t1\n발표 노트");
    assert_eq!(headings(&document), [(1, "제목".to_owned())]);
    let [table] = tables(&document) else { panic!("one table") };
    assert_eq!(cells(table), [(0, 0, 1, 2, "머리"), (1, 0, 1, 1, "가"), (1, 1, 1, 1, "1")]);
    assert_eq!((table.page, table.header_rows), (Some(2), 1));
    let pages = document.pages.unwrap();
    assert_eq!((pages[0].text.as_str(), pages[0].width, pages[0].height), ("제목", 720.0, 540.0));
    assert_eq!(pages[1].text, "머리\n가\t1\n발표 노트");
}
