//! Tables: every layout that a rule of the extraction is for, on pages made here, so that the truth is known.

pub(crate) mod score;
pub(crate) mod synth;

use mapae_document::table::sight::{Sight, Turn};
use mapae_document::table::tuning::Tuning;
use mapae_document::table::{Found, extract};
use score::{Cell, Count, cells, compare, harmonic};
use synth::{Align, Canvas, Features, Noise, STYLES, Style, page};

fn tables(sight: &Sight) -> Vec<Found> {
    extract(sight, &Tuning::default())
}

fn count(style: Style, features: Features, noise: Noise) -> Count {
    let (sight, truth) = page(style, features, noise);
    let found: Vec<Vec<Cell>> = tables(&sight).iter().map(cells).collect();
    compare(&[truth], &found)
}

/// Every feature alone, and all of them.
fn features() -> Vec<(&'static str, Features)> {
    let none = Features::default();
    vec![
        ("plain", none),
        ("spanner", Features { spanner: true, ..none }),
        ("tall headings", Features { tall_headings: true, ..none }),
        ("long label", Features { long_label: true, ..none }),
        ("sections", Features { sections: true, ..none }),
        ("holes", Features { holes: true, ..none }),
        ("leaders", Features { leaders: true, ..none }),
        ("currency", Features { currency: true, ..none }),
        ("spanner and tall headings", Features { spanner: true, tall_headings: true, ..none }),
        ("sections and holes", Features { sections: true, holes: true, ..none }),
    ]
}

fn noises() -> Vec<(&'static str, Noise)> {
    let none = Noise::default();
    vec![
        ("alone", none),
        ("in prose", Noise { prose: true, title: true, ..none }),
        ("jitter", Noise { prose: true, title: true, jitter: 0.6, ..none }),
        ("turned up", Noise { turn: Turn::Up, ..none }),
        ("turned down", Noise { turn: Turn::Down, ..none }),
        ("upside down", Noise { turn: Turn::Over, ..none }),
    ]
}

#[test]
fn the_synthetic_set_stays_above_its_floor() {
    let (mut pages, mut low) = (0u32, Vec::new());
    let (mut precision, mut recall) = (0.0, 0.0);
    for style in STYLES {
        for (feature, features) in features() {
            for (noise_name, noise) in noises() {
                let count = count(style, features, noise);
                precision += count.precision();
                recall += count.recall();
                pages += 1;
                if count.f1() < 0.9 {
                    low.push(format!("{style:?}, {feature}, {noise_name}: {:.3}", count.f1()));
                }
            }
        }
    }
    let f1 = harmonic(precision / f64::from(pages), recall / f64::from(pages));
    println!("synthetic tables: {pages} pages, F1 {f1:.4}, {} below 0.9", low.len());
    assert!(f1 >= 0.97, "F1 {f1:.4}; low ones:\n{}", low.join("\n"));
    assert!(low.is_empty(), "{}", low.join("\n"));
}

fn only(sight: &Sight) -> Found {
    let found = tables(sight);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

fn rows(table: &Found) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new(); table.columns as usize]; table.rows as usize];
    for cell in &table.cells {
        rows[cell.row as usize][cell.col as usize] = cell.text.clone();
    }
    rows
}

#[test]
fn prose_in_two_columns_is_no_table() {
    let mut canvas = Canvas::default();
    canvas.prose(50.0, 290.0, 60.0, 40);
    canvas.prose(310.0, 550.0, 60.0, 40);
    assert_eq!(tables(&canvas.sight(Turn::Level)), []);
}

#[test]
fn a_list_with_marks_is_no_table() {
    let mut canvas = Canvas::default();
    for n in 0..8 {
        let y = 100.0 + 16.0 * f64::from(n);
        canvas.text(60.0, y, 10.0, Align::Left, "•");
        canvas.text(
            80.0,
            y,
            10.0,
            Align::Left,
            ["see to the roof", "ask for an offer of work", "pay"][n as usize % 3],
        );
    }
    assert_eq!(tables(&canvas.sight(Turn::Level)), []);
}

#[test]
fn a_frame_around_text_is_no_table() {
    let mut canvas = Canvas::default();
    canvas.prose(60.0, 540.0, 100.0, 6);
    for (x0, y0, x1, y1) in [
        (50.0, 80.0, 550.0, 80.0),
        (50.0, 190.0, 550.0, 190.0),
        (50.0, 80.0, 50.0, 190.0),
        (550.0, 80.0, 550.0, 190.0),
    ] {
        canvas.rule(x0, y0, x1, y1);
    }
    assert_eq!(tables(&canvas.sight(Turn::Level)), []);
}

#[test]
fn the_axis_of_a_diagram_makes_no_table_of_its_numbers() {
    let mut canvas = Canvas::default();
    for (n, year) in ["2001", "2005", "2010", "2015"].iter().enumerate() {
        let y = 100.0 + 30.0 * n as f64;
        canvas.text(60.0, y, 9.0, Align::Left, year);
        for (k, x) in [150.0, 260.0, 380.0].into_iter().enumerate() {
            canvas.text(x, y, 9.0, Align::Left, &format!("{}.{}", 20 + n * 7 + k * 3, k));
        }
    }
    for k in 0..6 {
        canvas.text(100.0 + 70.0 * f64::from(k), 225.0, 9.0, Align::Left, &format!("{}%", k * 20));
    }
    assert_eq!(tables(&canvas.sight(Turn::Level)), []);
}

#[test]
fn two_tables_on_a_page_are_two_tables() {
    let mut canvas = Canvas::default();
    for (top, name) in [(80.0, "first"), (400.0, "second")] {
        canvas.text(60.0, top, 11.0, Align::Left, &format!("Table {name}"));
        for n in 0..6 {
            let y = top + 20.0 + 14.0 * f64::from(n);
            canvas.text(60.0, y, 10.0, Align::Left, ["alpha", "beta", "gamma"][n as usize % 3]);
            canvas.text(300.0, y, 10.0, Align::Right, &format!("{}", n * 17 + 3));
            canvas.text(400.0, y, 10.0, Align::Right, &format!("{}.5", n * 9 + 2));
        }
    }
    let found = tables(&canvas.sight(Turn::Level));
    assert_eq!(found.iter().map(|t| (t.rows, t.columns)).collect::<Vec<_>>(), [(6, 3), (6, 3)]);
}

#[test]
fn headings_that_repeat_begin_a_new_table() {
    let mut canvas = Canvas::default();
    for n in 0..12 {
        let y = 80.0 + 14.0 * f64::from(n);
        let part = n % 6;
        for (k, x) in [60.0, 200.0, 300.0].into_iter().enumerate() {
            let text = match part {
                0 => ["Region", "North", "South"][k].to_owned(),
                _ => format!("{}", n * 10 + k as i32),
            };
            canvas.text(x, y, 10.0, Align::Left, &text);
        }
    }
    let found = tables(&canvas.sight(Turn::Level));
    assert_eq!(found.iter().map(|t| t.rows).collect::<Vec<_>>(), [6, 6]);
}

#[test]
fn rows_of_hyphens_rule_as_lines_do() {
    let mut canvas = Canvas::default();
    canvas.text(60.0, 100.0, 10.0, Align::Left, &"-".repeat(80));
    for (x, text) in [(60.0, "Item"), (250.0, "Made"), (380.0, "Sold")] {
        canvas.text(x, 112.0, 10.0, Align::Left, text);
    }
    canvas.text(60.0, 122.0, 10.0, Align::Left, &"-".repeat(80));
    for n in 0..4 {
        let y = 134.0 + 13.0 * f64::from(n);
        canvas.text(60.0, y, 10.0, Align::Left, ["pots", "pans", "cups", "jugs"][n as usize]);
        canvas.text(270.0, y, 10.0, Align::Right, &format!("{}", n * 30 + 11));
        canvas.text(400.0, y, 10.0, Align::Right, &format!("{}", n * 20 + 7));
    }
    let table = only(&canvas.sight(Turn::Level));
    assert_eq!((table.rows, table.columns, table.header_rows), (5, 3, 1));
    assert!(!table.cells.iter().any(|c| c.text.contains("--")));
}

#[test]
fn labels_beside_ruled_rows_go_to_the_rows_they_stand_beside() {
    let mut canvas = Canvas::default();
    let x = [60.0, 200.0, 300.0, 400.0];
    for n in 0..7 {
        let y = 100.0 + 20.0 * f64::from(n);
        if n < 6 {
            canvas.text(x[0] + 5.0, y + 14.0, 10.0, Align::Left, ["Rent", "Heat", "Light"][n as usize % 3]);
            canvas.text(x[2] - 8.0, y + 14.0, 10.0, Align::Right, &format!("{}", n * 11 + 5));
            canvas.text(x[3] - 8.0, y + 14.0, 10.0, Align::Right, &format!("{}", n * 7 + 2));
        }
        let from = if n == 0 || n == 6 { x[0] } else { x[1] };
        canvas.rule(from, y, x[3], y);
    }
    x.iter().for_each(|&x| canvas.rule(x, 100.0, x, 220.0));
    let table = only(&canvas.sight(Turn::Level));
    assert_eq!((table.rows, table.columns), (6, 3));
    assert_eq!(rows(&table)[4], ["Heat", "49", "30"]);
}

#[test]
fn a_title_is_found_above_its_table() {
    let (sight, _) =
        page(Style::Booktabs, Features::default(), Noise { prose: true, title: true, ..Noise::default() });
    assert_eq!(only(&sight).title.as_deref(), Some("Table 4. What was planned and what was spent"));
}

#[test]
fn heading_rows_are_counted() {
    for style in [Style::Ruled, Style::Booktabs, Style::Borderless] {
        for (spanner, rows) in [(false, 1), (true, 2)] {
            let (sight, _) = page(style, Features { spanner, ..Features::default() }, Noise::default());
            assert_eq!(only(&sight).header_rows, rows, "{style:?}");
        }
    }
}

#[test]
fn a_table_without_rules_is_less_sure_than_a_ruled_one() {
    let sure = only(&page(Style::Ruled, Features::default(), Noise::default()).0).confidence;
    let less =
        only(&page(Style::Borderless, Features { holes: true, ..Features::default() }, Noise::default()).0)
            .confidence;
    assert!(sure > less, "{sure} {less}");
}

#[tokio::test]
async fn the_tables_of_the_korean_sample_come_out_of_its_pages() {
    let file = crate::file(&crate::samples::sample("budget-2026.pdf"));
    let found = crate::reader()
        .tables(file, crate::named("budget-2026.pdf"), &[], &Default::default())
        .await
        .unwrap();
    assert_eq!(found.warnings, []);
    let first = &found.tables[0];
    assert_eq!((first.page, first.rows, first.columns, first.header_rows), (Some(1), 9, 5, 2));
    let cell = |row, col| first.cells.iter().find(|c| (c.row, c.col) == (row, col)).unwrap();
    assert_eq!((cell(0, 1).text.as_str(), cell(0, 1).colspan), ("예산액", 2));
    assert_eq!((cell(8, 0).text.as_str(), cell(8, 2).text.as_str()), ("합계", "1,248,000"));
    assert_eq!(found.tables[1].page, Some(2));
}

#[test]
fn a_page_drawn_is_xml_whatever_its_words_are() {
    let mut canvas = Canvas::default();
    canvas.text(60.0, 100.0, 10.0, Align::Left, "<b>&\u{1}");
    let sight = canvas.sight(Turn::Level);
    let seen = mapae_document::table::Seen { tables: tables(&sight), sight };
    let drawn = mapae_document::table::draw::svg(&seen);
    assert!(drawn.contains("&lt;b&gt;&amp;\u{fffd}"));
    assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"));
}

#[tokio::test]
async fn a_page_drawn_in_pixels_shows_the_frame_of_its_table() {
    let sample = crate::file(&crate::samples::sample("budget-2026.pdf"));
    let limits = Default::default();
    let seen = crate::reader().seen(sample, crate::named("budget-2026.pdf"), Some(1), &limits).await.unwrap();
    let png = mapae_document::table::draw::png(&seen[0]);
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
    let (width, height) = (number(16), number(20));
    assert_eq!((width, height), (1190, 1684));
    // The header takes 33 bytes; then comes the chunk with all pixels, a byte before each row.
    let data = &png[41..41 + number(33)];
    let mut rows = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(data), &mut rows).unwrap();
    assert_eq!(rows.len(), height * (1 + 3 * width));
    let pixel = |x: f64, y: f64| {
        let (x, y) = ((x * 2.0).round() as usize, height - (y * 2.0).round() as usize);
        &rows[y * (1 + 3 * width) + 1 + 3 * x..][..3]
    };
    let [left, bottom, right, top] = seen[0].tables[0].bbox;
    assert_eq!(pixel(left, top), [204, 34, 34]);
    assert_eq!(pixel(right - 1.0, (bottom + top) / 2.0), [204, 34, 34]);
    assert_eq!(pixel(10.0, 10.0), [255, 255, 255]);
}
