//! Minutes of a meeting as DOCX: headings, a table with merged cells, a footnote, a header, tracked changes.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;

const W: &str = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";

pub(crate) fn docx() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let header = format!("<w:hdr xmlns:w=\"{W}\">{}</w:hdr>", body("Garam City Library"));
    let parts = [
        ("[Content_Types].xml", CONTENT_TYPES.to_owned()),
        ("_rels/.rels", RELATIONS.to_owned()),
        ("word/_rels/document.xml.rels", PARTS.to_owned()),
        ("word/document.xml", document()),
        ("word/styles.xml", styles()),
        ("word/footnotes.xml", footnotes()),
        ("word/header1.xml", header),
    ];
    for (name, text) in parts {
        zip.start_file(name, SimpleFileOptions::default()).expect("a sample has no duplicate parts");
        zip.write_all(text.as_bytes()).expect("writing to memory works");
    }
    zip.finish().expect("writing to memory works").into_inner()
}

fn run(text: &str) -> String {
    format!("<w:r><w:t xml:space=\"preserve\">{text}</w:t></w:r>")
}

fn body(text: &str) -> String {
    format!("<w:p>{}</w:p>", run(text))
}

fn styled(style: &str, text: &str) -> String {
    format!("<w:p><w:pPr><w:pStyle w:val=\"{style}\"/></w:pPr>{}</w:p>", run(text))
}

fn cell(properties: &str, text: &str) -> String {
    format!("<w:tc><w:tcPr><w:tcW w:w=\"0\" w:type=\"auto\"/>{properties}</w:tcPr>{}</w:tc>", body(text))
}

fn row(heading: bool, cells: &[String]) -> String {
    let properties = if heading { "<w:trPr><w:tblHeader/></w:trPr>" } else { "" };
    format!("<w:tr>{properties}{}</w:tr>", cells.concat())
}

fn table() -> String {
    let plain = |text: &str| cell("", text);
    let rows = [
        row(
            true,
            &[
                cell("<w:vMerge w:val=\"restart\"/>", "Branch"),
                cell("<w:gridSpan w:val=\"2\"/>", "Budget (thousand)"),
                cell("<w:vMerge w:val=\"restart\"/>", "Owner"),
            ],
        ),
        row(true, &[cell("<w:vMerge/>", ""), plain("2025"), plain("2026"), cell("<w:vMerge/>", "")]),
        row(false, &[plain("Central"), plain("88,610"), plain("97,250"), plain("Kim")]),
        row(false, &[plain("Harbour"), plain("31,400"), plain("29,900"), plain("Lee")]),
        row(false, &[plain("Hill"), plain("18,200"), plain("22,150"), plain("Park")]),
    ];
    let grid = "<w:gridCol/>".repeat(4);
    format!(
        "<w:tbl><w:tblPr><w:tblStyle w:val=\"TableGrid\"/></w:tblPr><w:tblGrid>{grid}</w:tblGrid>{}</w:tbl>",
        rows.concat()
    )
}

fn document() -> String {
    let changed = format!(
        "<w:p>{}<w:ins w:id=\"1\" w:author=\"Kim\">{}</w:ins><w:del w:id=\"2\" w:author=\"Kim\"><w:r>\
         <w:delText>on Mondays</w:delText></w:r></w:del>{}<w:r><w:footnoteReference w:id=\"2\"/></w:r></w:p>",
        run("The harbour branch will close "),
        run("on Sundays"),
        run(" from March.")
    );
    let content = [
        styled("Title", "Minutes of the Library Board"),
        body("12 January 2026, room 3. Present: Kim, Lee, Park."),
        styled("Heading1", "Opening hours"),
        changed,
        styled("Heading1", "Budget"),
        body("Table 1. Budget by branch"),
        table(),
        styled("Heading2", "Decision"),
        body("The board approves the budget without a vote against it."),
    ];
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?><w:document xmlns:w=\"{W}\"><w:body>{}\
         <w:sectPr><w:pgSz w:w=\"11906\" w:h=\"16838\"/></w:sectPr></w:body></w:document>",
        content.concat()
    )
}

fn styles() -> String {
    let style = |(id, name): (&str, &str)| {
        format!("<w:style w:type=\"paragraph\" w:styleId=\"{id}\"><w:name w:val=\"{name}\"/></w:style>")
    };
    let all: String =
        [("Title", "Title"), ("Heading1", "heading 1"), ("Heading2", "heading 2")].map(style).concat();
    format!(
        "<w:styles xmlns:w=\"{W}\">{all}<w:style w:type=\"table\" w:styleId=\"TableGrid\"><w:name w:val=\"Table Grid\"/></w:style></w:styles>"
    )
}

fn footnotes() -> String {
    let line =
        "<w:footnote w:type=\"separator\" w:id=\"0\"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>";
    format!(
        "<w:footnotes xmlns:w=\"{W}\">{line}<w:footnote w:id=\"2\">{}</w:footnote></w:footnotes>",
        body("Article 12 of the library by-law.")
    )
}

const CONTENT_TYPES: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\
<Types xmlns=\"http://schemas.openxmlformats.org/package/2006/content-types\">\
<Default Extension=\"rels\" ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>\
<Default Extension=\"xml\" ContentType=\"application/xml\"/>\
<Override PartName=\"/word/document.xml\" ContentType=\"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml\"/>\
<Override PartName=\"/word/styles.xml\" ContentType=\"application/vnd.openxmlformats-officedocument.wordprocessingml.styles+xml\"/>\
<Override PartName=\"/word/footnotes.xml\" ContentType=\"application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml\"/>\
<Override PartName=\"/word/header1.xml\" ContentType=\"application/vnd.openxmlformats-officedocument.wordprocessingml.header+xml\"/></Types>";

const RELATIONS: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\
<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">\
<Relationship Id=\"rId1\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument\" Target=\"word/document.xml\"/></Relationships>";

const PARTS: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\
<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">\
<Relationship Id=\"rId1\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles\" Target=\"styles.xml\"/>\
<Relationship Id=\"rId2\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes\" Target=\"footnotes.xml\"/>\
<Relationship Id=\"rId3\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/header\" Target=\"header1.xml\"/></Relationships>";
