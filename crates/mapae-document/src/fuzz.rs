//! Every parser of ours as a function of bytes, for programs that try to break it: none may panic, run over its stack
//! or take without bound, whatever the bytes are.
//!
//! Where a format is packed, the bytes are the part inside: a packer's checksum would turn nearly every changed file
//! away at the door.

use std::io::{Cursor, Write};

use crate::detect::detect;
use crate::document::Span;
use crate::limits::Limits;
use crate::read::{Input, read, tables};
use crate::xml::Tree;
use crate::{archive, bombs, decrypt};

/// A parser under its name.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("detect", |data| {
        for name in ["a", "a.pdf", "a.xlsx", "a.hwp", "a.csv"] {
            let _ = detect(name, None, data);
        }
    }),
    ("archive", |data| {
        let _ = archive::check(data, &limits());
    }),
    ("bombs", |data| {
        let _ = bombs::defuse(&mut data.to_vec(), 100_000);
    }),
    ("xml", |data| {
        let _ = Tree::parse(&String::from_utf8_lossy(data)).map(|tree| tree.broken());
    }),
    ("decrypt", |data| drop(decrypt::package(data, Some("password")))),
    ("decrypt-info", |data| {
        let file = compound(&[("/EncryptionInfo", data), ("/EncryptedPackage", &[7; 4104])]);
        drop(decrypt::package(&file, Some("password")));
    }),
    ("hwp", |data| document("a.hwp", data)),
    ("hwp-body", |data| {
        let mut header = [0; 256];
        header[..17].copy_from_slice(b"HWP Document File");
        header[32..36].copy_from_slice(&[1, 0, 0, 5]);
        let file = compound(&[("/FileHeader", &header), ("/DocInfo", data), ("/BodyText/Section0", data)]);
        document("a.hwp", &file);
    }),
    ("hwpx", |data| {
        document("a.hwpx", &packed(&[("mimetype", b"application/hwp+zip"), ("Contents/section0.xml", data)]));
    }),
    ("docx", |data| {
        document("a.docx", &packed(&[("word/document.xml", data), ("word/numbering.xml", data)]))
    }),
    ("pptx", |data| {
        document("a.pptx", &packed(&[("ppt/presentation.xml", b"<p/>"), ("ppt/slides/slide1.xml", data)]));
    }),
    ("xlsx", |data| document("a.xlsx", &packed(&workbook(data)))),
    ("xls", |data| document("a.xls", data)),
    ("xls-stream", |data| document("a.xls", &compound(&[("/Workbook", &[data, &[0; 4096]].concat())]))),
    ("xlsb", |data| document("a.xlsb", data)),
    ("ods", |data| {
        let kind = b"application/vnd.oasis.opendocument.spreadsheet";
        document("a.ods", &packed(&[("mimetype", kind), ("content.xml", data)]));
    }),
    ("csv", |data| document("a.csv", data)),
    ("tsv", |data| document("a.tsv", data)),
    ("text", |data| document("a.txt", data)),
    ("html", |data| document("a.html", data)),
    ("markdown", |data| document("a.md", data)),
    ("pdf", |data| document("a.pdf", data)),
    ("pdf-tables", |data| drop(tables(input("a.pdf", data), Vec::new(), &limits()))),
];

/// The parser of this name.
///
/// # Panics
/// Where there is none.
pub fn target(name: &str) -> fn(&[u8]) {
    TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name").1
}

fn document(name: &str, data: &[u8]) {
    drop(read(input(name, data), &limits()));
}

fn input(name: &str, data: &[u8]) -> Input {
    Input { data: data.to_vec(), name: name.to_owned(), media_type: None, password: None, pages: Span::ALL }
}

/// Small, so that what goes over them is met soon; time is for whoever runs this to watch.
fn limits() -> Limits {
    const MIB: u64 = 1 << 20;
    Limits {
        pages: 50,
        page_operations: 20_000,
        text_bytes: 4 * MIB,
        cells: 20_000,
        unpacked_bytes: 16 * MIB,
        part_bytes: 4 * MIB,
        stream_bytes: 4 * MIB,
        cpu_seconds: 1_000_000_000,
        ..Limits::default()
    }
}

fn workbook(sheet: &[u8]) -> [(&'static str, &[u8]); 5] {
    const BOOK: &[u8] = br#"<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>"#;
    const RELATIONS: &[u8] = br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#;
    [
        ("[Content_Types].xml", b"<Types/>"),
        ("xl/workbook.xml", BOOK),
        ("xl/_rels/workbook.xml.rels", RELATIONS),
        ("xl/sharedStrings.xml", sheet),
        ("xl/worksheets/sheet1.xml", sheet),
    ]
}

fn packed(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        writer
            .start_file(*name, options)
            .and_then(|()| Ok(writer.write_all(bytes)?))
            .expect("memory takes it");
    }
    writer.finish().expect("memory takes it").into_inner()
}

fn compound(streams: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = cfb::CompoundFile::create(Cursor::new(Vec::new())).expect("memory takes it");
    for (name, bytes) in streams {
        if let Some((storage, _)) = name.rsplit_once('/').filter(|(storage, _)| !storage.is_empty()) {
            file.create_storage_all(storage).expect("memory takes it");
        }
        file.create_stream(name).and_then(|mut stream| stream.write_all(bytes)).expect("memory takes it");
    }
    file.into_inner().into_inner()
}
