//! An English report of two pages: prose, a ruled table, a borderless table.

use super::pdf::{A4, Align, Font, Page, file};

const LEFT: f64 = 64.0;
const WIDTH: f64 = 467.0;
const SIZE: f64 = 10.5;

pub(crate) fn pdf() -> Vec<u8> {
    file("Garam City Library: Annual Report 2025", vec![first(), second()])
}

fn heading(page: &mut Page, y: f64, text: &str) -> f64 {
    page.text(Font::HelveticaBold, 13.0, (LEFT, y), Align::Left, text);
    y - 22.0
}

fn prose(page: &mut Page, y: f64, text: &str) -> f64 {
    page.paragraph(Font::Helvetica, SIZE, (LEFT, y), WIDTH, text) - 6.0
}

fn first() -> Page {
    let mut page = Page::default();
    page.text(
        Font::HelveticaBold,
        18.0,
        (LEFT, 772.0),
        Align::Left,
        "Garam City Library: Annual Report 2025",
    );
    let y = heading(&mut page, 730.0, "Summary");
    let y = prose(
        &mut page,
        y,
        "In 2025 the four branches of the library lent 412,600 items, 7.3% more than the year before. \
         Visits rose at every branch except the harbour branch, which was closed for repairs from March \
         to June. The collection grew by 9,840 titles, most of them electronic.",
    );
    let y = prose(
        &mut page,
        y,
        "Membership is free for everybody who lives, works or studies in the city. A card can be had at any \
         branch on showing proof of address; it is valid for three years.",
    );
    let y = heading(&mut page, y - 12.0, "Loans and visits by branch");
    const ROWS: [[&str; 5]; 6] = [
        ["Branch", "Loans 2024", "Loans 2025", "Change", "Visits 2025"],
        ["Central", "181,200", "197,450", "9.0%", "302,110"],
        ["Riverside", "96,340", "104,800", "8.8%", "148,920"],
        ["Harbour", "61,900", "54,150", "-12.5%", "70,480"],
        ["Hillside", "45,060", "56,200", "24.7%", "81,370"],
        ["All branches", "384,500", "412,600", "7.3%", "602,880"],
    ];
    let columns = [LEFT, LEFT + 110.0, LEFT + 200.0, LEFT + 290.0, LEFT + 375.0, LEFT + WIDTH];
    let row = |n: usize| y - 20.0 * n as f64;
    for n in 0..=ROWS.len() {
        page.line((columns[0], row(n)), (columns[5], row(n)));
    }
    for x in columns {
        page.line((x, row(0)), (x, row(ROWS.len())));
    }
    for (n, cells) in ROWS.iter().enumerate() {
        let font = if n == 0 { Font::HelveticaBold } else { Font::Helvetica };
        page.text(font, SIZE, (columns[0] + 6.0, row(n) - 14.0), Align::Left, cells[0]);
        for (i, text) in cells.iter().enumerate().skip(1) {
            page.text(font, SIZE, (columns[i + 1] - 6.0, row(n) - 14.0), Align::Right, text);
        }
    }
    page.text(Font::Helvetica, 9.0, (A4.0 / 2.0, 40.0), Align::Center, "1");
    page
}

fn second() -> Page {
    let mut page = Page::default();
    let y = heading(&mut page, 772.0, "Spending");
    const ROWS: [[&str; 4]; 6] = [
        ["Item (thousand won)", "2023", "2024", "2025"],
        ["Books and media", "412,000", "438,500", "471,200"],
        ["Electronic licences", "158,300", "176,900", "214,750"],
        ["Staff", "1,204,000", "1,251,600", "1,298,300"],
        ["Buildings", "326,400", "301,200", "388,900"],
        ["Total", "2,100,700", "2,168,200", "2,373,150"],
    ];
    let mut y = y - 6.0;
    for (n, cells) in ROWS.iter().enumerate() {
        let font = if n == 0 { Font::HelveticaBold } else { Font::Helvetica };
        page.text(font, SIZE, (LEFT, y), Align::Left, cells[0]);
        for (i, text) in cells.iter().enumerate().skip(1) {
            page.text(font, SIZE, (LEFT + 150.0 + 95.0 * i as f64, y), Align::Right, text);
        }
        y -= 18.0;
    }
    let y = heading(&mut page, y - 18.0, "Outlook");
    let y = prose(
        &mut page,
        y,
        "The harbour branch reopens in full in April 2026 with a reading room for children. Opening hours of \
         the central branch are extended to 21:00 on weekdays. Fines for late returns are abolished from \
         1 January 2026; lost items are still charged at their price.",
    );
    prose(
        &mut page,
        y,
        "Questions about this report are answered by the office of the director, library@garam.example.",
    );
    page.text(Font::Helvetica, 9.0, (A4.0 / 2.0, 40.0), Align::Center, "2");
    page
}
