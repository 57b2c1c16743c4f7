//! A picture of what was seen on a page and of the tables found in it, for a person to look at.

mod png;

use std::fmt::Write;

use super::Seen;
use super::sight::{Box, Turn};
pub use png::png;

/// The page as SVG, as it is stored (before its rotation): words, rules and shades in grey, each table with
/// its cells and its confidence in a colour.
pub fn svg(seen: &Seen) -> String {
    let (sight, tables) = (&seen.sight, &seen.tables);
    let (width, height) = (sight.width, sight.height);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\">\n\
         <rect width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#fff\"/>"
    );
    for fill in &sight.fills {
        rect(&mut out, fill, height, "fill=\"#eef\"");
    }
    for rule in &sight.rules {
        rect(&mut out, rule, height, "fill=\"#999\"");
    }
    for word in &sight.words {
        rect(&mut out, &word.bbox, height, "fill=\"#f4f4f4\" stroke=\"#ddd\" stroke-width=\"0.3\"");
        let [left, bottom, right, top] = word.bbox;
        let (x, y, turn) = match word.turn {
            Turn::Level => (left, height - bottom - 0.21 * word.size, 0),
            Turn::Up => (right - 0.21 * word.size, height - bottom, -90),
            Turn::Over => (right, height - top + 0.21 * word.size, 180),
            Turn::Down => (left + 0.21 * word.size, height - top, 90),
        };
        let length = if turn % 180 == 0 { right - left } else { top - bottom };
        let _ = writeln!(
            out,
            "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{:.2}\" textLength=\"{:.2}\" \
             lengthAdjust=\"spacingAndGlyphs\" fill=\"#444\" transform=\"rotate({turn} {x:.2} {y:.2})\">{}</text>",
            word.size,
            length.max(0.1),
            escaped(&word.text)
        );
    }
    const COLOURS: [&str; 5] = ["#c22", "#26c", "#282", "#a2a", "#b60"];
    for (table, colour) in tables.iter().zip(COLOURS.iter().cycle()) {
        rect(
            &mut out,
            &table.bbox,
            height,
            &format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\""),
        );
        for cell in &table.cells {
            let heads = cell.row < table.header_rows;
            let opacity = if heads { 0.22 } else { 0.08 };
            let style = format!(
                "fill=\"{colour}\" fill-opacity=\"{opacity}\" stroke=\"{colour}\" stroke-width=\"0.4\""
            );
            rect(&mut out, &cell.bbox, height, &style);
        }
        let (x, y) = (table.bbox[0], height - table.bbox[3] - 2.0);
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"7\" fill=\"{colour}\">{} × {}, {:.0} %</text>",
            table.rows,
            table.columns,
            table.confidence * 100.0
        );
    }
    out.push_str("</svg>\n");
    out
}

fn rect(out: &mut String, [left, bottom, right, top]: &Box, height: f64, style: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{left:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" {style}/>",
        height - top,
        (right - left).max(0.2),
        (top - bottom).max(0.2)
    );
}

/// Text of a document as text of an XML element: no markup, no characters that XML forbids.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
