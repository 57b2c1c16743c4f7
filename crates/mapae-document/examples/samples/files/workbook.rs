//! A workbook of two sheets: merged headings, exact amounts, formulas with their values, dates, times,
//! truth values and an error.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;

/// Cell formats by their index in `STYLES`.
const PLAIN: u32 = 0;
const AMOUNT: u32 = 1;
const PERCENT: u32 = 2;
const DATE: u32 = 3;
const TIME: u32 = 4;

pub(crate) fn xlsx() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let parts = [
        ("[Content_Types].xml", CONTENT_TYPES.to_owned()),
        ("_rels/.rels", RELATIONS.to_owned()),
        ("xl/workbook.xml", WORKBOOK.to_owned()),
        ("xl/_rels/workbook.xml.rels", WORKBOOK_RELATIONS.to_owned()),
        ("xl/styles.xml", STYLES.to_owned()),
        ("xl/worksheets/sheet1.xml", budget()),
        ("xl/worksheets/sheet2.xml", payments()),
    ];
    for (name, text) in parts {
        zip.start_file(name, SimpleFileOptions::default()).expect("a sample has no duplicate parts");
        zip.write_all(text.as_bytes()).expect("writing to memory works");
    }
    zip.finish().expect("writing to memory works").into_inner()
}

enum Cell<'t> {
    Text(&'t str),
    Number(f64, u32),
    Formula(&'t str, f64, u32),
    Bool(bool),
    Error(&'t str),
    Empty,
}

use Cell::{Bool, Empty, Error, Formula, Number, Text};

fn budget() -> String {
    let mut rows: Vec<Vec<Cell<'_>>> = vec![
        vec![Text("2026년도 부서별 예산 (단위: 백만 원)")],
        vec![Text("부서"), Text("예산액"), Empty, Text("증감"), Empty, Text("확정")],
        vec![Empty, Text("2025년"), Text("2026년"), Text("금액"), Text("비율"), Empty],
    ];
    let departments: [(&str, f64, f64, bool); 6] = [
        ("복지정책과", 312_400.0, 338_900.0, true),
        ("교육지원과", 268_150.0, 285_300.0, true),
        ("도로교통과", 194_720.0, 198_640.0, true),
        ("상수도사업소", 121_030.0, 149_870.0, false),
        ("문화도서관과", 88_610.0, 97_250.0, true),
        ("환경녹지과", 191_090.0, 178_040.0, false),
    ];
    let formulas: Vec<(String, String)> =
        (4..=9).map(|row| (format!("C{row}-B{row}"), format!("D{row}/B{row}"))).collect();
    for ((name, before, after, settled), (difference, share)) in departments.iter().zip(&formulas) {
        rows.push(vec![
            Text(name),
            Number(*before, AMOUNT),
            Number(*after, AMOUNT),
            Formula(difference, after - before, AMOUNT),
            Formula(share, (after - before) / before, PERCENT),
            Bool(*settled),
        ]);
    }
    rows.push(vec![
        Text("합계"),
        Formula("SUM(B4:B9)", 1_176_000.0, AMOUNT),
        Formula("SUM(C4:C9)", 1_248_000.0, AMOUNT),
        Formula("C10-B10", 72_000.0, AMOUNT),
        Formula("D10/B10", 72_000.0 / 1_176_000.0, PERCENT),
        Empty,
    ]);
    sheet(&rows, &["A1:F1", "A2:A3", "B2:C2", "D2:E2", "F2:F3"])
}

fn payments() -> String {
    let rows = vec![
        vec![Text("번호"), Text("지급일"), Text("시각"), Text("적요"), Text("금액(원)"), Text("비고")],
        // Serial days: 2026-01-05 is 46027.
        vec![
            Number(1.0, PLAIN),
            Number(46_027.0, DATE),
            Number(0.395_833_333_333_333_3, TIME),
            Text("도서 구입, 1차"),
            Number(12_480_500.0, AMOUNT),
            Empty,
        ],
        vec![
            Number(2.0, PLAIN),
            Number(46_062.0, DATE),
            Number(0.604_166_666_666_666_6, TIME),
            Text("\"상수도\" 정비"),
            Number(98_000_000.5, AMOUNT),
            Text("분할 지급"),
        ],
        vec![
            Number(3.0, PLAIN),
            Number(46_081.0, DATE),
            Number(0.75, TIME),
            Text("환급"),
            Number(-350_000.0, AMOUNT),
            Error("#N/A"),
        ],
    ];
    sheet(&rows, &[])
}

fn sheet(rows: &[Vec<Cell<'_>>], merged: &[&str]) -> String {
    let mut out = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n\
         <worksheet xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\"><sheetData>",
    );
    for (row, cells) in rows.iter().enumerate() {
        let row = row + 1;
        out.push_str(&format!("<row r=\"{row}\">"));
        for (col, cell) in cells.iter().enumerate() {
            let place = format!("{}{row}", char::from(b'A' + col as u8));
            let place = place.as_str();
            out.push_str(&match cell {
                Text(text) => {
                    format!("<c r=\"{place}\" t=\"inlineStr\"><is><t>{}</t></is></c>", escaped(text))
                }
                Number(n, style) => format!("<c r=\"{place}\" s=\"{style}\"><v>{n}</v></c>"),
                Formula(f, n, style) => format!("<c r=\"{place}\" s=\"{style}\"><f>{f}</f><v>{n}</v></c>"),
                Bool(b) => format!("<c r=\"{place}\" t=\"b\"><v>{}</v></c>", u8::from(*b)),
                Error(e) => format!("<c r=\"{place}\" t=\"e\"><v>{e}</v></c>"),
                Empty => String::new(),
            });
        }
        out.push_str("</row>");
    }
    out.push_str("</sheetData>");
    if !merged.is_empty() {
        let ranges: String = merged.iter().map(|range| format!("<mergeCell ref=\"{range}\"/>")).collect();
        out.push_str(&format!("<mergeCells count=\"{}\">{ranges}</mergeCells>", merged.len()));
    }
    out + "</worksheet>"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const CONTENT_TYPES: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/><Override PartName="/xl/worksheets/sheet2.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/><Override PartName="/xl/styles.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"/></Types>"#;

const RELATIONS: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#;

const WORKBOOK: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="2026 예산" sheetId="1" r:id="rId1"/><sheet name="지급 내역" sheetId="2" r:id="rId2"/></sheets></workbook>"#;

const WORKBOOK_RELATIONS: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet2.xml"/><Relationship Id="rId3" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>"#;

/// Number formats 3 (`#,##0`), 10 (`0.00%`) and 20 (`h:mm`) are built in; the date is written as in Korea.
const STYLES: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><numFmts count="1"><numFmt numFmtId="164" formatCode="yyyy\-mm\-dd"/></numFmts><fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts><fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders><cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs><cellXfs count="5"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/><xf numFmtId="3" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/><xf numFmtId="10" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/><xf numFmtId="164" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/><xf numFmtId="20" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/></cellXfs></styleSheet>"#;
