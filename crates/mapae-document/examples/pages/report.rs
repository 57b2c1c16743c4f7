//! A long report: on each page a heading, prose, and a ruled table of figures.

use std::fmt::Write as _;
use std::io::Write as _;

const WORDS: [&str; 24] = [
    "the", "budget", "of", "city", "was", "raised", "by", "council", "for", "roads", "schools", "and",
    "water", "while", "income", "from", "fees", "fell", "slightly", "compared", "with", "year", "before",
    "overall",
];
const LINES: usize = 32;
const ROWS: usize = 10;
const COLUMNS: usize = 5;

/// The same bytes every time.
pub(super) fn pdf(pages: usize) -> Vec<u8> {
    let kids: String = (0..pages).map(|n| format!("{} 0 R ", 4 + 2 * n)).collect();
    let mut objects = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        format!("<< /Type /Pages /Kids [{kids}] /Count {pages} >>").into_bytes(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_vec(),
    ];
    for number in 0..pages {
        let page = format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {} 0 R \
             /Resources << /Font << /F1 3 0 R >> >> >>",
            5 + 2 * number
        );
        objects.push(page.into_bytes());
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(content(number).as_bytes()).expect("memory takes all");
        let packed = packer.finish().expect("memory takes all");
        let head = format!("<< /Length {} /Filter /FlateDecode >>\nstream\n", packed.len());
        objects.push([head.as_bytes(), &packed, b"\nendstream"].concat());
    }
    let mut out = b"%PDF-1.7\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (object, id) in objects.iter().zip(1..) {
        let _ = writeln!(table, "{:010} 00000 n ", out.len());
        out.extend(format!("{id} 0 obj\n").bytes());
        out.extend(object);
        out.extend(b"\nendobj\n");
    }
    let (at, size) = (out.len(), objects.len() + 1);
    out.extend(format!("{table}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{at}\n%%EOF\n").bytes());
    out
}

fn content(page: usize) -> String {
    let mut seed = page as u32 + 1;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % below
    };
    let mut out = format!("BT /F1 16 Tf 60 780 Td (Section {}) Tj ET\n", page + 1);
    for line in 0..LINES {
        let words: Vec<&str> = (0..13).map(|_| WORDS[next(WORDS.len())]).collect();
        let y = 750 - 14 * line;
        let _ = writeln!(out, "BT /F1 10 Tf 60 {y} Td ({}.) Tj ET", words.join(" "));
    }
    let (left, top, width, height) = (60, 280, 95, 18);
    for row in 0..=ROWS {
        let y = top - height * row;
        let _ = writeln!(out, "{left} {y} m {} {y} l S", left + width * COLUMNS);
    }
    for column in 0..=COLUMNS {
        let x = left + width * column;
        let _ = writeln!(out, "{x} {top} m {x} {} l S", top - height * ROWS);
    }
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let (x, y) = (left + width * column + 4, top - height * row - 13);
            let text = match (row, column) {
                (0, _) => ["Item", "2023", "2024", "2025", "Change"][column].to_owned(),
                (_, 0) => format!("Item {row}"),
                _ => format!("{},{:03}", next(900), next(1000)),
            };
            let _ = writeln!(out, "BT /F1 9 Tf {x} {y} Td ({text}) Tj ET");
        }
    }
    out
}
