//! Makes pages with tables whose cells are known: styles, spans and noise, put together freely.

use mapae_document::table::sight::{ASCENT, DESCENT, Sight, Turn, Word};

use super::score::Cell;

pub(crate) const WIDTH: f64 = 600.0;
pub(crate) const HEIGHT: f64 = 800.0;

/// How a table shows its cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Style {
    /// Rules around every cell.
    Ruled,
    /// The same, open at both sides.
    Open,
    /// Rules above, below, and under the headings.
    Booktabs,
    /// A level rule under every row.
    RowRules,
    /// Upright rules and a frame; rows by white.
    ColumnRules,
    /// Upright rules among the headings only, level ones everywhere.
    HeadingRules,
    /// White only.
    Borderless,
}

pub(crate) const STYLES: [Style; 7] = [
    Style::Ruled,
    Style::Open,
    Style::Booktabs,
    Style::RowRules,
    Style::ColumnRules,
    Style::HeadingRules,
    Style::Borderless,
];

/// What a table has beside its plain cells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// A heading over the last columns.
    pub(crate) spanner: bool,
    /// Headings of two lines.
    pub(crate) tall_headings: bool,
    /// A label of two lines.
    pub(crate) long_label: bool,
    /// Rows that head others.
    pub(crate) sections: bool,
    /// Some cells hold nothing.
    pub(crate) holes: bool,
    /// Dots from label to number.
    pub(crate) leaders: bool,
    /// Currency signs apart from their numbers.
    pub(crate) currency: bool,
}

/// What is around a table, and how exactly it is set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noise {
    /// Running text above and below, in one column.
    pub(crate) prose: bool,
    pub(crate) title: bool,
    /// Points by which words stand off their place.
    pub(crate) jitter: f64,
    pub(crate) turn: Turn,
}

/// A page in the making, from its top left; it is turned at the end.
#[derive(Default)]
pub(crate) struct Canvas {
    words: Vec<(String, f64, f64, f64, f64)>,
    rules: Vec<[f64; 4]>,
    jitter: f64,
    seed: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Align {
    Left,
    Middle,
    Right,
}

/// Width of a character, ems.
const CHAR: f64 = 0.5;
const SPACE: f64 = 0.25;

impl Canvas {
    pub(crate) fn with_jitter(jitter: f64) -> Self {
        Self { jitter, seed: 7, ..Self::default() }
    }

    fn shake(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(self.seed >> 8) / f64::from(1u32 << 24) - 0.5) * 2.0 * self.jitter
    }

    /// Text with its baseline at `y` from the top.
    pub(crate) fn text(&mut self, x: f64, y: f64, size: f64, align: Align, text: &str) {
        let words: Vec<&str> = text.split(' ').collect();
        let long = |w: &str| w.chars().count() as f64 * CHAR * size;
        let width = words.iter().map(|w| long(w)).sum::<f64>() + SPACE * size * (words.len() - 1) as f64;
        let mut x = match align {
            Align::Left => x,
            Align::Middle => x - width / 2.0,
            Align::Right => x - width,
        };
        for word in words {
            let (dx, dy) = (self.shake(), self.shake() * 0.5);
            self.words.push((word.to_owned(), x + dx, x + dx + long(word), y + dy, size));
            x += long(word) + SPACE * size;
        }
    }

    pub(crate) fn rule(&mut self, x0: f64, y0: f64, x1: f64, y1: f64) {
        self.rules.push([x0 - 0.2, y0 - 0.2, x1 + 0.2, y1 + 0.2]);
    }

    /// Lines of running text from `y` on, between `x0` and `x1`; answers where it ends.
    pub(crate) fn prose(&mut self, x0: f64, x1: f64, y: f64, lines: usize) -> f64 {
        const WORDS: [&str; 9] =
            ["when", "the", "committee", "met", "again", "its", "members", "had", "changed"];
        let size = 10.0;
        for line in 0..lines {
            let mut text = String::new();
            let mut k = line * 4;
            loop {
                let word = WORDS[k % WORDS.len()];
                let longer = (text.len() + 1 + word.len()) as f64 * CHAR * size * 0.96;
                if longer > x1 - x0 {
                    break;
                }
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(word);
                k += 1;
            }
            self.text(x0, y + 13.0 * line as f64, size, Align::Left, &text);
        }
        y + 13.0 * lines as f64
    }

    pub(crate) fn sight(self, turn: Turn) -> Sight {
        let place = |[x0, y0, x1, y1]: [f64; 4]| match turn {
            Turn::Level => [x0, HEIGHT - y1, x1, HEIGHT - y0],
            Turn::Up => [y0, x0, y1, x1],
            Turn::Over => [WIDTH - x1, y0, WIDTH - x0, y1],
            Turn::Down => [HEIGHT - y1, WIDTH - x1, HEIGHT - y0, WIDTH - x0],
        };
        let level = matches!(turn, Turn::Level | Turn::Over);
        let words = self.words.iter().map(|(text, x0, x1, y, size)| Word {
            text: text.clone(),
            bbox: place([*x0, y - ASCENT * size, *x1, y + DESCENT * size]),
            size: *size,
            turn,
        });
        Sight {
            page: 1,
            width: if level { WIDTH } else { HEIGHT },
            height: if level { HEIGHT } else { WIDTH },
            rotation: 0,
            words: words.collect(),
            rules: self.rules.iter().map(|r| place(*r)).collect(),
            fills: Vec::new(),
        }
    }
}

const LABELS: [&str; 8] =
    ["Households", "Schools", "Roads and bridges", "Water", "Public health", "Culture", "Housing", "Parks"];
const HEADINGS: [&str; 4] = ["Planned", "Spent", "Change", "Share"];
const SECOND: [&str; 4] = ["in 2025", "so far", "to plan", "of all"];

/// A page with one table of eight rows and five columns, and its true cells.
pub(crate) fn page(style: Style, features: Features, noise: Noise) -> (Sight, Vec<Cell>) {
    let mut canvas = Canvas::with_jitter(noise.jitter);
    let mut truth = Vec::new();
    let mut y = 60.0;
    if noise.prose {
        y = canvas.prose(60.0, 540.0, y, 5) + 20.0;
    }
    if noise.title {
        canvas.text(60.0, y, 11.0, Align::Left, "Table 4. What was planned and what was spent");
        y += 16.0;
    }
    let x = [60.0, 240.0, 315.0, 390.0, 465.0, 540.0];
    let (pitch, size) = (18.0, 10.0);
    let top = y;
    let mut lines = vec![top];
    let mut row = 0;
    let mut cell = |row: u32, col: u32, colspan: u32, text: &str| {
        truth.push(Cell { row, col, rowspan: 1, colspan, text: text.to_owned() });
    };
    let middle = |col: usize| (x[col] + x[col + 1]) / 2.0;
    let mut spanner_bottom = None;
    if features.spanner {
        canvas.text((x[3] + x[5]) / 2.0, y + 13.0, size, Align::Middle, "Compared");
        cell(row, 3, 2, "Compared");
        y += pitch;
        spanner_bottom = Some(y);
        lines.push(y);
        row += 1;
    }
    canvas.text(x[0] + 4.0, y + 13.0, size, Align::Left, "Purpose");
    cell(row, 0, 1, "Purpose");
    for (i, heading) in HEADINGS.iter().enumerate() {
        canvas.text(middle(i + 1), y + 13.0, size, Align::Middle, heading);
        let mut text = (*heading).to_owned();
        if features.tall_headings {
            canvas.text(middle(i + 1), y + 25.0, size, Align::Middle, SECOND[i]);
            text = format!("{text} {}", SECOND[i]);
        }
        cell(row, i as u32 + 1, 1, &text);
    }
    y += if features.tall_headings { pitch + 12.0 } else { pitch };
    row += 1;
    let body = y;
    lines.push(y);
    for (i, label) in LABELS.iter().enumerate() {
        if features.sections && i % 4 == 0 {
            let head = if i == 0 { "Running costs" } else { "Buildings" };
            canvas.text(x[0] + 4.0, y + 13.0, size, Align::Left, head);
            // Between level rules alone the row is one cell.
            cell(row, 0, if style == Style::HeadingRules { 5 } else { 1 }, head);
            (y, row) = (y + pitch, row + 1);
            lines.push(y);
        }
        let indent = if features.sections { 14.0 } else { 4.0 };
        canvas.text(x[0] + indent, y + 13.0, size, Align::Left, label);
        let mut text = (*label).to_owned();
        let at = y + 13.0;
        if features.leaders {
            let start = x[0] + indent + (label.chars().count() as f64 + 1.0) * CHAR * size;
            let dots = ((x[1] - 6.0 - start) / (CHAR * size)) as usize;
            canvas.text(start, at, size, Align::Left, &".".repeat(dots.max(4)));
        }
        if features.long_label && i == 2 {
            canvas.text(x[0] + indent, y + 25.0, size, Align::Left, "outside of the city");
            text.push_str(" outside of the city");
            y += 12.0;
        }
        cell(row, 0, 1, &text);
        for k in 0..4u32 {
            if features.holes && (i as u32 * 3 + k * 5).is_multiple_of(7) {
                continue;
            }
            let number = match k {
                2 => format!("{}.{}%", i + 2, k + i as u32),
                _ => format!("{},{:03}", i + 1 + k as usize * 3, (i * 137 + k as usize * 61) % 1000),
            };
            canvas.text(x[k as usize + 2] - 8.0, at, size, Align::Right, &number);
            let mut text = number;
            if features.currency && k == 0 && i == 0 {
                canvas.text(x[1] + 8.0, at, size, Align::Left, "$");
                text.insert(0, '$');
            }
            cell(row, k + 1, 1, &text);
        }
        (y, row) = (y + pitch, row + 1);
        lines.push(y);
    }
    let bottom = y;
    if features.spanner {
        // Beside the heading over several columns the others are two rows high.
        for cell in truth.iter_mut().filter(|cell| cell.row == 1 && cell.col < 3) {
            (cell.row, cell.rowspan) = (0, 2);
        }
    }
    draw(&mut canvas, style, &x, &lines, top, body, bottom, spanner_bottom);
    if noise.prose {
        canvas.prose(60.0, 540.0, bottom + 40.0, 6);
    }
    (canvas.sight(noise.turn), truth)
}

#[allow(clippy::too_many_arguments, reason = "the places of one drawing")]
fn draw(
    canvas: &mut Canvas,
    style: Style,
    x: &[f64; 6],
    lines: &[f64],
    top: f64,
    body: f64,
    bottom: f64,
    spanner: Option<f64>,
) {
    let level = |canvas: &mut Canvas, y: f64| canvas.rule(x[0], y, x[5], y);
    // Under a heading over several columns the rule is as long as those columns.
    let all = |canvas: &mut Canvas| {
        for &y in lines {
            if Some(y) == spanner { canvas.rule(x[3], y, x[5], y) } else { level(canvas, y) }
        }
    };
    let upright = |canvas: &mut Canvas, i: usize, to: f64| {
        let from = if i == 4 { spanner.unwrap_or(top) } else { top };
        canvas.rule(x[i], from, x[i], to);
    };
    match style {
        Style::Ruled => {
            all(canvas);
            (0..6).for_each(|i| upright(canvas, i, bottom));
        }
        Style::Open => {
            all(canvas);
            (1..5).for_each(|i| upright(canvas, i, bottom));
        }
        Style::Booktabs | Style::RowRules => {
            if let Some(y) = spanner {
                canvas.rule(x[3] + 3.0, y, x[5], y);
            }
            if style == Style::Booktabs {
                [top, body, bottom].into_iter().for_each(|y| level(canvas, y));
            } else {
                lines.iter().filter(|y| Some(**y) != spanner).for_each(|&y| level(canvas, y));
            }
        }
        Style::ColumnRules => {
            [top, body, bottom].into_iter().for_each(|y| level(canvas, y));
            if let Some(y) = spanner {
                canvas.rule(x[3], y, x[5], y);
            }
            (0..6).for_each(|i| upright(canvas, i, bottom));
        }
        Style::HeadingRules => {
            all(canvas);
            [0, 5].into_iter().for_each(|i| upright(canvas, i, bottom));
            (1..5).for_each(|i| upright(canvas, i, body));
        }
        Style::Borderless => {}
    }
}
