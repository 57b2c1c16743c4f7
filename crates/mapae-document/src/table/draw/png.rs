//! The same picture as pixels, for where an SVG cannot be looked at. Words are bars: their text is in the SVG.

use std::io::Write;

use flate2::Crc;
use flate2::write::ZlibEncoder;

use super::super::Seen;
use super::super::sight::{ASCENT, Box, DESCENT, Turn, Word};

/// Pixels of a point.
const SCALE: f64 = 2.0;
/// Pixels of a side; a larger page is drawn smaller.
const SIDE_MAX: f64 = 4000.0;
/// Share of the size that small letters reach above the baseline.
const SMALL: f64 = 0.5;

const WHITE: Colour = [255, 255, 255];
const SHADE: Colour = [232, 232, 250];
const RULE: Colour = [150, 150, 150];
const WORD: Colour = [240, 240, 240];
const LETTERS: Colour = [120, 120, 120];
/// Those of the SVG.
const TABLES: [Colour; 5] = [[204, 34, 34], [34, 102, 204], [34, 136, 34], [170, 34, 170], [187, 102, 0]];

type Colour = [u8; 3];

/// The page as PNG, as it is stored (before its rotation).
pub fn png(seen: &Seen) -> Vec<u8> {
    let (sight, tables) = (&seen.sight, &seen.tables);
    let mut canvas = Canvas::new(sight.width, sight.height);
    sight.fills.iter().for_each(|fill| canvas.fill(fill, SHADE, 1.0));
    sight.rules.iter().for_each(|rule| canvas.fill(rule, RULE, 1.0));
    for word in &sight.words {
        canvas.fill(&word.bbox, WORD, 1.0);
        canvas.fill(&letters(word), LETTERS, 1.0);
    }
    for (table, colour) in tables.iter().zip(TABLES.iter().cycle()) {
        for cell in &table.cells {
            let strength = if cell.row < table.header_rows { 0.35 } else { 0.15 };
            canvas.fill(&cell.bbox, *colour, strength);
            canvas.frame(&cell.bbox, 1, *colour);
        }
        canvas.frame(&table.bbox, 3, *colour);
        let label = format!("{} x {}, {:.0} %", table.rows, table.columns, table.confidence * 100.0);
        canvas.label(table.bbox[0], table.bbox[3] + 2.0, &label, *colour);
    }
    canvas.encoded()
}

/// Where the small letters of a word stand.
fn letters(word: &Word) -> Box {
    let [left, bottom, right, top] = word.bbox;
    let (below, above) = (DESCENT * word.size, (ASCENT - SMALL) * word.size);
    match word.turn {
        Turn::Level => [left, bottom + below, right, top - above],
        Turn::Up => [left + above, bottom, right - below, top],
        Turn::Over => [left, bottom + above, right, top - below],
        Turn::Down => [left + below, bottom, right - above, top],
    }
}

struct Canvas {
    width: usize,
    height: usize,
    scale: f64,
    pixels: Vec<Colour>,
}

impl Canvas {
    fn new(width: f64, height: f64) -> Self {
        let scale = SCALE.min(SIDE_MAX / width.max(height).max(1.0));
        let side = |points: f64| (points * scale).clamp(1.0, SIDE_MAX) as usize;
        let (width, height) = (side(width), side(height));
        Self { width, height, scale, pixels: vec![WHITE; width * height] }
    }

    /// First and last-plus-one pixels of a box, at least one each way; of what lies outside, none.
    fn place(&self, [left, bottom, right, top]: &Box) -> [usize; 4] {
        let x = |at: f64| (at * self.scale).round().clamp(0.0, self.width as f64) as usize;
        let y =
            |at: f64| (self.height as f64 - at * self.scale).round().clamp(0.0, self.height as f64) as usize;
        let (x0, y0) = (x(*left), y(*top));
        [x0, x(*right).max(x0 + 1).min(self.width), y0, y(*bottom).max(y0 + 1).min(self.height)]
    }

    fn fill(&mut self, area: &Box, colour: Colour, strength: f64) {
        let place = self.place(area);
        self.paint(place, colour, strength);
    }

    fn paint(&mut self, [x0, x1, y0, y1]: [usize; 4], colour: Colour, strength: f64) {
        for row in y0..y1.min(self.height) {
            for pixel in &mut self.pixels[row * self.width..][x0.min(x1)..x1.min(self.width)] {
                for (old, new) in pixel.iter_mut().zip(colour) {
                    *old = (f64::from(*old) * (1.0 - strength) + f64::from(new) * strength) as u8;
                }
            }
        }
    }

    fn frame(&mut self, area: &Box, thick: usize, colour: Colour) {
        let [x0, x1, y0, y1] = self.place(area);
        for side in [
            [x0, x1, y0, y0 + thick],
            [x0, x1, y1.saturating_sub(thick), y1],
            [x0, x0 + thick, y0, y1],
            [x1.saturating_sub(thick), x1, y0, y1],
        ] {
            self.paint(side, colour, 1.0);
        }
    }

    /// Digits and a few signs, the lower left corner at a point of the page.
    fn label(&mut self, left: f64, bottom: f64, text: &str, colour: Colour) {
        const DOT: usize = 3;
        let [mut x, _, _, y] = self.place(&[left, bottom, left, bottom]);
        let y = y.saturating_sub(5 * DOT);
        for c in text.chars() {
            for (row, dots) in dots(c).into_iter().enumerate() {
                for col in (0..3).filter(|col| dots >> (2 - col) & 1 == 1) {
                    let (dot_x, dot_y) = (x + col * DOT, y + row * DOT);
                    self.paint([dot_x, dot_x + DOT, dot_y, dot_y + DOT], colour, 1.0);
                }
            }
            x += 4 * DOT;
        }
    }

    /// Eight bits a channel, no filter (the PNG specification, W3C, third edition).
    fn encoded(&self) -> Vec<u8> {
        let mut packed = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        for row in self.pixels.chunks(self.width) {
            let written = packed.write_all(&[0]).and_then(|()| packed.write_all(row.as_flattened()));
            written.expect("writing to memory works");
        }
        let mut header = Vec::new();
        header.extend((self.width as u32).to_be_bytes());
        header.extend((self.height as u32).to_be_bytes());
        header.extend([8, 2, 0, 0, 0]);
        let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
        chunk(&mut png, b"IHDR", &header);
        chunk(&mut png, b"IDAT", &packed.finish().expect("writing to memory works"));
        chunk(&mut png, b"IEND", &[]);
        png
    }
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    let mut sum = Crc::new();
    sum.update(kind);
    sum.update(data);
    png.extend((data.len() as u32).to_be_bytes());
    png.extend(kind);
    png.extend(data);
    png.extend(sum.sum().to_be_bytes());
}

/// Five rows of three dots.
fn dots(c: char) -> [u8; 5] {
    match c {
        '0' => [7, 5, 5, 5, 7],
        '1' => [2, 6, 2, 2, 7],
        '2' => [7, 1, 7, 4, 7],
        '3' => [7, 1, 7, 1, 7],
        '4' => [5, 5, 7, 1, 1],
        '5' => [7, 4, 7, 1, 7],
        '6' => [7, 4, 7, 5, 7],
        '7' => [7, 1, 2, 2, 2],
        '8' => [7, 5, 7, 5, 7],
        '9' => [7, 5, 7, 1, 7],
        'x' => [0, 5, 2, 5, 0],
        ',' => [0, 0, 0, 2, 4],
        '%' => [5, 1, 2, 4, 5],
        _ => [0; 5],
    }
}
