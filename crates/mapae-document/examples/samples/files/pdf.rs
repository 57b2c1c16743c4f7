//! The least of a PDF writer that the samples need: text, rules, pages. Fonts are named, not embedded, so
//! that no font has to be shipped; Hangul goes through a predefined character map.

use std::fmt::Write;

/// Width and height of A4, points.
pub(crate) const A4: (f64, f64) = (595.0, 842.0);

/// The fonts of the samples.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Font {
    /// A Korean gothic, Hangul and Latin.
    Korean,
    Helvetica,
    HelveticaBold,
}

impl Font {
    fn name(self) -> &'static str {
        match self {
            Self::Korean => "K",
            Self::Helvetica => "H",
            Self::HelveticaBold => "B",
        }
    }

    /// Width of `text` at size 1.
    pub(crate) fn width(self, text: &str) -> f64 {
        let width = |c: char| match self {
            Self::Korean if c.is_ascii() => 500,
            Self::Korean => 1000,
            // The bold is a little wider; for placing headings the regular is near enough.
            Self::Helvetica | Self::HelveticaBold => {
                let index = (c as usize).wrapping_sub(32);
                HELVETICA.get(index).copied().unwrap_or(556)
            }
        };
        text.chars().map(width).sum::<u32>() as f64 / 1000.0
    }

    fn string(self, text: &str) -> String {
        match self {
            Self::Korean => {
                let hex = text.encode_utf16().fold(String::new(), |mut hex, unit| {
                    let _ = write!(hex, "{unit:04X}");
                    hex
                });
                format!("<{hex}>")
            }
            _ => {
                let mut string = String::from("(");
                for c in text.chars() {
                    if matches!(c, '(' | ')' | '\\') {
                        string.push('\\');
                    }
                    string.push(c);
                }
                string + ")"
            }
        }
    }
}

/// Widths of the printable ASCII characters, from the metrics of the standard font.
#[rustfmt::skip]
const HELVETICA: [u32; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
    556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
    1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
    333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
    556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];

/// Which side of a place the text is put on.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Center,
    Right,
}

/// The marks of one page.
#[derive(Default)]
pub(crate) struct Page {
    operators: String,
}

impl Page {
    pub(crate) fn text(&mut self, font: Font, size: f64, (x, y): (f64, f64), align: Align, text: &str) {
        let width = font.width(text) * size;
        let x = match align {
            Align::Left => x,
            Align::Center => x - width / 2.0,
            Align::Right => x - width,
        };
        let _ = writeln!(
            self.operators,
            "BT /{} {size} Tf {x:.2} {y:.2} Td {} Tj ET",
            font.name(),
            font.string(text)
        );
    }

    /// Breaks `text` between words into lines of `width`; answers where the next line would go.
    pub(crate) fn paragraph(
        &mut self,
        font: Font,
        size: f64,
        (x, y): (f64, f64),
        width: f64,
        text: &str,
    ) -> f64 {
        let mut y = y;
        let mut line = String::new();
        for word in text.split(' ') {
            let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            if !line.is_empty() && font.width(&longer) * size > width {
                self.text(font, size, (x, y), Align::Left, &line);
                y -= size * 1.6;
                line = word.to_owned();
            } else {
                line = longer;
            }
        }
        self.text(font, size, (x, y), Align::Left, &line);
        y - size * 1.6
    }

    pub(crate) fn line(&mut self, (x0, y0): (f64, f64), (x1, y1): (f64, f64)) {
        let _ = writeln!(self.operators, "0.6 w {x0:.2} {y0:.2} m {x1:.2} {y1:.2} l S");
    }
}

/// A file of these pages.
pub(crate) fn file(title: &str, pages: Vec<Page>) -> Vec<u8> {
    // Objects 1 to 8 are fixed; every page has two more.
    let page_id = |i: usize| 9 + 2 * i;
    let kids: Vec<String> = (0..pages.len()).map(|i| format!("{} 0 R", page_id(i))).collect();
    let title: String = title.encode_utf16().fold("FEFF".to_owned(), |hex, unit| format!("{hex}{unit:04X}"));
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()),
        "<< /Font << /K 4 0 R /H 6 0 R /B 7 0 R >> >>".to_owned(),
        "<< /Type /Font /Subtype /Type0 /BaseFont /HYGoThic-Medium-UniKS-UTF16-H /Encoding /UniKS-UTF16-H \
         /DescendantFonts [5 0 R] >>"
            .to_owned(),
        "<< /Type /Font /Subtype /CIDFontType0 /BaseFont /HYGoThic-Medium /DW 1000 /W [1 95 500] \
         /CIDSystemInfo << /Registry (Adobe) /Ordering (Korea1) /Supplement 1 >> \
         /FontDescriptor << /Type /FontDescriptor /FontName /HYGoThic-Medium /Flags 4 \
         /FontBBox [0 -148 1000 880] /ItalicAngle 0 /Ascent 880 /Descent -148 /CapHeight 880 /StemV 80 >> >>"
            .to_owned(),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >>".to_owned(),
        format!("<< /Title <{title}> >>"),
    ];
    for (i, page) in pages.iter().enumerate() {
        let (width, height) = A4;
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Resources 3 0 R /Contents {} 0 R >>",
            page_id(i) + 1
        ));
        objects.push(format!("<< /Length {} >>\nstream\n{}endstream", page.operators.len(), page.operators));
    }
    let mut out = String::from("%PDF-1.7\n");
    let mut offsets = Vec::new();
    for (i, object) in objects.iter().enumerate() {
        offsets.push(out.len());
        let _ = write!(out, "{} 0 obj\n{object}\nendobj\n", i + 1);
    }
    let xref = out.len();
    let _ = write!(out, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for offset in offsets {
        let _ = writeln!(out, "{offset:010} 00000 n ");
    }
    let size = objects.len() + 1;
    let _ = write!(out, "trailer\n<< /Size {size} /Root 1 0 R /Info 8 0 R >>\nstartxref\n{xref}\n%%EOF\n");
    out.into_bytes()
}
