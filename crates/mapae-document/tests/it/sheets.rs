//! Cells of spreadsheets: exact values at the right place, whatever the format, and sparse ones cheaply.

use encoding_rs::EUC_KR;
use mapae_document::document::{Cell, Document, Value};
use mapae_document::limits::Limits;

use crate::{make, patient, read, read_within};

fn cells(document: &Document) -> Vec<(u32, u32, &str)> {
    let tables = document.tables.iter().flatten();
    tables.flat_map(|t| &t.cells).map(|c| (c.row, c.col, c.text.as_str())).collect()
}

fn cell(document: &Document, row: u32, col: u32) -> &Cell {
    let mut cells = document.tables.iter().flatten().flat_map(|t| &t.cells);
    cells.find(|c| (c.row, c.col) == (row, col)).expect("the cell holds something")
}

#[tokio::test]
async fn two_cells_in_opposite_corners_are_two_cells() {
    let xlsx = make::xlsx(
        "<sheetData><row r=\"1\"><c r=\"A1\"><v>1</v></c></row>\
         <row r=\"1048576\"><c r=\"XFD1048576\"><v>2</v></c></row></sheetData>",
    );
    let limits = Limits { memory_bytes: 300 * 1024 * 1024, ..patient() };
    let document = read_within("a.xlsx", &xlsx, &limits).await.unwrap();
    assert_eq!(cells(&document), [(0, 0, "1"), (1_048_575, 16_383, "2")]);
    assert_eq!(document.sheets.unwrap()[0].rows, 1_048_576);
}

#[tokio::test]
async fn numbers_arrive_with_every_bit() {
    // Any doubles will do; these come from a generator without a library.
    let mut bits = 0x9e37_79b9_7f4a_7c15u64;
    let numbers: Vec<f64> = std::iter::repeat_with(|| {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        f64::from_bits((bits >> 12) | 0x3ff0_0000_0000_0000) - 1.0
    })
    .take(2000)
    .collect();
    let rows: String = numbers
        .iter()
        .enumerate()
        .map(|(i, n)| format!("<row r=\"{r}\"><c r=\"A{r}\"><v>{n}</v></c></row>", r = i + 1))
        .collect();
    let document = read("a.xlsx", &make::xlsx(&format!("<sheetData>{rows}</sheetData>"))).await.unwrap();
    for (i, number) in numbers.iter().enumerate() {
        assert_eq!(cell(&document, i as u32, 0).value, Some(Value::Number(*number)));
    }
}

#[tokio::test]
async fn a_table_may_begin_like_a_picture() {
    let document = read("a.csv", b"BMI,age\n22.5,40\n").await.unwrap();
    assert_eq!(cells(&document)[0], (0, 0, "BMI"));
}

#[tokio::test]
async fn an_xls_reads_like_any_other() {
    let document = read("a.xls", &make::xls(&[(0, 0, 1.5), (3, 2, -7.0)])).await.unwrap();
    assert_eq!(cells(&document), [(0, 0, "1.5"), (3, 2, "-7")]);
    assert_eq!(cell(&document, 3, 2).value, Some(Value::Integer(-7)));
}

#[tokio::test]
async fn the_empty_rest_of_an_ods_costs_nothing() {
    let empty = "<table:table-cell table:number-columns-repeated=\"16384\"/>";
    let ods = make::ods(&format!(
        "<table:table table:name=\"S\">\
         <table:table-row><table:table-cell office:value-type=\"float\" office:value=\"2.5\" \
         table:number-columns-spanned=\"2\" table:number-rows-spanned=\"3\"><text:p>2,50</text:p></table:table-cell>\
         <table:covered-table-cell/><table:table-cell office:value-type=\"date\" office:date-value=\"2026-01-31\">\
         <text:p>31.1.</text:p></table:table-cell></table:table-row>\
         <table:table-row table:number-rows-repeated=\"1048570\">{empty}</table:table-row>\
         <table:table-row><table:table-cell office:value-type=\"string\" table:number-columns-repeated=\"3\">\
         <text:p>가<text:s text:c=\"2\"/>&amp;</text:p><text:p>나</text:p>\
         <office:annotation><text:p>a comment</text:p></office:annotation></table:table-cell></table:table-row>\
         </table:table>"
    ));
    let limits = Limits { memory_bytes: 300 * 1024 * 1024, ..patient() };
    let document = read_within("a.ods", &ods, &limits).await.unwrap();
    let text = "가  &\n나";
    let row = 1_048_571;
    assert_eq!(
        cells(&document),
        [(0, 0, "2.5"), (0, 2, "2026-01-31"), (row, 0, text), (row, 1, text), (row, 2, text)]
    );
    assert_eq!(cell(&document, 0, 2).value, Some(Value::Time("2026-01-31".into())));
    assert_eq!((cell(&document, 0, 0).rowspan, cell(&document, 0, 0).colspan), (3, 2));
    assert_eq!(document.sheets.unwrap()[0].merged, ["A1:B3"]);
}

#[tokio::test]
async fn a_repeated_cell_cannot_make_a_million_of_itself() {
    let ods = make::ods(
        "<table:table table:name=\"S\"><table:table-row table:number-rows-repeated=\"1000000\">\
         <table:table-cell office:value-type=\"float\" office:value=\"1\" \
         table:number-columns-repeated=\"16000\"/></table:table-row></table:table>",
    );
    assert_eq!(read("a.ods", &ods).await.unwrap_err().code(), "document-too-large");
}

#[tokio::test]
async fn a_csv_reads_in_every_encoding_that_korean_programs_write() {
    let text = "이름,금액\n\"김, 철수\",\"1,000\"\n뷁,007\n";
    let utf16 = |mark: u16, swap: bool| -> Vec<u8> {
        let units = std::iter::once(mark).chain(text.encode_utf16());
        units.flat_map(|u| if swap { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
    };
    for (encoding, bytes) in [
        ("UTF-8", text.as_bytes().to_vec()),
        ("UTF-8 with a mark", [b"\xef\xbb\xbf", text.as_bytes()].concat()),
        ("CP949", EUC_KR.encode(text).0.into_owned()),
        ("UTF-16 LE", utf16(0xfeff, false)),
        ("UTF-16 BE", utf16(0xfeff, true)),
        ("UTF-16 LE without a mark", utf16(0xfeff, false)[2..].to_vec()),
    ] {
        let document = read("명단.csv", &bytes).await.unwrap();
        assert_eq!(document.warnings, [], "{encoding}");
        assert_eq!(
            cells(&document),
            [
                (0, 0, "이름"),
                (0, 1, "금액"),
                (1, 0, "김, 철수"),
                (1, 1, "1,000"),
                (2, 0, "뷁"),
                (2, 1, "007")
            ],
            "{encoding}"
        );
        assert_eq!(cell(&document, 2, 1).value, None, "007 is not a number");
        assert_eq!(document.sheets.unwrap()[0].name, "명단");
    }
}

#[tokio::test]
async fn bytes_of_no_encoding_are_read_with_a_warning() {
    let document = read("a.csv", b"a,b\n\xff\xfe\xfd,1\n").await.unwrap();
    assert_eq!(document.warnings[0].code, "encoding-doubtful");
    assert_eq!(cell(&document, 1, 1).value, Some(Value::Integer(1)));
}

#[tokio::test]
async fn the_separator_is_found_and_a_name_can_fix_it() {
    let document = read("a.csv", b"a;b\n1,5;2\n").await.unwrap();
    assert_eq!(cells(&document), [(0, 0, "a"), (0, 1, "b"), (1, 0, "1,5"), (1, 1, "2")]);
    let document = read("a.tsv", b"a,b\tc\n").await.unwrap();
    assert_eq!(cells(&document), [(0, 0, "a,b"), (0, 1, "c")]);
    assert_eq!(document.source.media_type, "text/tab-separated-values");
}

#[tokio::test]
async fn plain_text_is_text_without_tables() {
    let document = read("a.txt", "안녕, 세상\n".as_bytes()).await.unwrap();
    assert_eq!((document.text.as_str(), document.tables, document.sheets), ("안녕, 세상\n", None, None));
}

#[tokio::test]
async fn cells_out_of_order_or_given_twice_end_up_in_their_place() {
    let xlsx = make::xlsx(
        "<sheetData><row r=\"2\"><c r=\"B2\"><v>4</v></c><c r=\"A2\"><v>3</v></c></row>\
         <row r=\"1\"><c r=\"A1\"><v>1</v></c><c r=\"A1\"><v>2</v></c></row></sheetData>",
    );
    let document = read("a.xlsx", &xlsx).await.unwrap();
    assert_eq!(cells(&document), [(0, 0, "2"), (1, 0, "3"), (1, 1, "4")]);
}

#[tokio::test]
async fn an_empty_workbook_has_sheets_and_no_tables() {
    let document = read("a.xlsx", &make::xlsx("<sheetData/>")).await.unwrap();
    assert_eq!(document.sheets.unwrap().len(), 1);
    assert_eq!(document.tables, Some(Vec::new()));
}

#[tokio::test]
async fn percent_and_currency_read_as_people_see_them_and_keep_their_values() {
    let styles = "<numFmts><numFmt numFmtId=\"164\" formatCode=\"&quot;₩&quot;#,##0\"/></numFmts>\
        <cellXfs><xf numFmtId=\"0\"/><xf numFmtId=\"10\"/><xf numFmtId=\"164\"/><xf numFmtId=\"4\"/></cellXfs>";
    let row = "<sheetData><row r=\"1\"><c r=\"A1\" s=\"1\"><v>0.085</v></c><c r=\"B1\" s=\"2\"><v>1248000</v></c>\
        <c r=\"C1\" s=\"3\"><v>1234.56789</v></c></row></sheetData>";
    let document = read("a.xlsx", &make::workbook("hidden", styles, row)).await.unwrap();
    assert_eq!(cells(&document), [(0, 0, "8.50%"), (0, 1, "₩1,248,000"), (0, 2, "1234.56789")]);
    assert_eq!(cell(&document, 0, 0).value, Some(Value::Number(0.085)));
    assert_eq!(cell(&document, 0, 1).value, Some(Value::Integer(1_248_000)));
    assert!(document.sheets.unwrap()[0].hidden);

    let ods = make::ods(
        "<table:table table:name=\"S\"><table:table-row><table:table-cell office:value-type=\"percentage\" \
         office:value=\"0.085\"><text:p>8,5 %</text:p></table:table-cell></table:table-row></table:table>",
    );
    let document = read("a.ods", &ods).await.unwrap();
    assert_eq!(cell(&document, 0, 0).text, "8,5 %");
    assert!(!document.sheets.unwrap()[0].hidden);
}

#[tokio::test]
async fn tables_side_by_side_and_below_each_other_are_tables_of_their_own() {
    let csv = "첫째 표,,,,\n구분,금액,,이름,부서\n복지,312,,김,총무\n교육,98,,이,예산\n,,,박,감사\n,,,,\n연도,합계,,,\n2025,410,,,\n";
    let document = read("a.csv", csv.as_bytes()).await.unwrap();
    let tables = document.tables.as_deref().unwrap();
    let found: Vec<_> =
        tables.iter().map(|t| (t.range.as_deref().unwrap(), t.rows, t.columns, t.header_rows)).collect();
    assert_eq!(found, [("A1:B4", 4, 2, 2), ("D2:E5", 4, 2, 1), ("A7:B8", 2, 2, 1)]);
    assert_eq!(tables[0].title.as_deref(), Some("첫째 표"));
    assert_eq!(tables[1].cells[2].text, "김");
    assert_eq!((tables[1].cells[2].row, tables[1].cells[2].col), (1, 0));
    assert_eq!(tables[2].cells[3].value, Some(Value::Integer(410)));
}
