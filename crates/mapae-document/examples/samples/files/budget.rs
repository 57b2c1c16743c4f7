//! A Korean budget report of two pages: prose, a ruled table with merged headings, a borderless table.

use super::pdf::{A4, Align, Font, Page, file};

const LEFT: f64 = 60.0;
const WIDTH: f64 = 475.0;
const SIZE: f64 = 10.5;

pub(crate) fn pdf() -> Vec<u8> {
    file("2026년도 가람시 예산 보고서", vec![first(), second()])
}

fn heading(page: &mut Page, y: f64, text: &str) -> f64 {
    page.text(Font::Korean, 13.0, (LEFT, y), Align::Left, text);
    y - 24.0
}

fn first() -> Page {
    let mut page = Page::default();
    page.text(Font::Korean, 20.0, (A4.0 / 2.0, 770.0), Align::Center, "2026년도 가람시 예산 보고서");
    page.text(Font::Korean, SIZE, (A4.0 / 2.0, 742.0), Align::Center, "기획예산과 · 2025년 12월 15일");

    let y = heading(&mut page, 700.0, "1. 개요");
    let y = page.paragraph(
        Font::Korean,
        SIZE,
        (LEFT, y),
        WIDTH,
        "2026년도 가람시 예산은 총 1조 2,480억 원으로 전년보다 6.1% 늘었다. 복지와 교육에 전체의 절반을 \
         배정하였고, 노후 상수도 정비와 도서관 확충을 새로 반영하였다. 일반회계는 1조 650억 원, \
         특별회계는 1,830억 원이다.",
    );
    let y = page.paragraph(
        Font::Korean,
        SIZE,
        (LEFT, y - 6.0),
        WIDTH,
        "예산안은 2025년 11월 20일 시의회에 제출되어 12월 12일 의결되었다. 집행은 2026년 1월 1일부터이며, \
         분기마다 집행 실적을 공개한다.",
    );
    let y = heading(&mut page, y - 18.0, "2. 부서별 예산 현황");
    page.text(Font::Korean, 9.0, (LEFT + WIDTH, y + 6.0), Align::Right, "(단위: 백만 원)");
    ruled(&mut page, y);
    page.text(Font::Korean, 9.0, (A4.0 / 2.0, 40.0), Align::Center, "- 1 -");
    page
}

/// Two rows of headings: the first column spans both, the amounts share one heading.
fn ruled(page: &mut Page, top: f64) {
    const ROWS: [[&str; 5]; 7] = [
        ["복지정책과", "312,400", "338,900", "26,500", "8.5%"],
        ["교육지원과", "268,150", "285,300", "17,150", "6.4%"],
        ["도로교통과", "194,720", "198,640", "3,920", "2.0%"],
        ["상수도사업소", "121,030", "149,870", "28,840", "23.8%"],
        ["문화도서관과", "88,610", "97,250", "8,640", "9.8%"],
        ["환경녹지과", "191,090", "178,040", "-13,050", "-6.8%"],
        ["합계", "1,176,000", "1,248,000", "72,000", "6.1%"],
    ];
    let columns = [LEFT, LEFT + 115.0, LEFT + 215.0, LEFT + 315.0, LEFT + 400.0, LEFT + WIDTH];
    let height = 22.0;
    let row = |n: usize| top - height * n as f64;
    let baseline = |n: usize| row(n) - 15.0;
    let rows = ROWS.len() + 2;
    for n in (0..=rows).filter(|n| *n != 1) {
        page.line((columns[0], row(n)), (columns[5], row(n)));
    }
    // Under the shared headings only.
    page.line((columns[1], row(1)), (columns[5], row(1)));
    for (i, x) in columns.iter().enumerate() {
        let from = if matches!(i, 2 | 4) { row(1) } else { row(0) };
        page.line((*x, from), (*x, row(rows)));
    }
    let middle = |a: usize, b: usize| (columns[a] + columns[b]) / 2.0;
    page.text(Font::Korean, SIZE, (middle(0, 1), row(1) - 4.0), Align::Center, "부서");
    page.text(Font::Korean, SIZE, (middle(1, 3), baseline(0)), Align::Center, "예산액");
    page.text(Font::Korean, SIZE, (middle(3, 5), baseline(0)), Align::Center, "증감");
    for (i, text) in ["2025년", "2026년", "금액", "비율"].into_iter().enumerate() {
        page.text(Font::Korean, SIZE, (middle(i + 1, i + 2), baseline(1)), Align::Center, text);
    }
    for (n, cells) in ROWS.iter().enumerate() {
        page.text(Font::Korean, SIZE, (columns[0] + 8.0, baseline(n + 2)), Align::Left, cells[0]);
        for (i, text) in cells.iter().enumerate().skip(1) {
            page.text(Font::Korean, SIZE, (columns[i + 1] - 8.0, baseline(n + 2)), Align::Right, text);
        }
    }
}

fn second() -> Page {
    let mut page = Page::default();
    let y = heading(&mut page, 770.0, "3. 분기별 집행 계획");
    page.text(Font::Korean, 9.0, (LEFT + WIDTH, y + 6.0), Align::Right, "(단위: 백만 원)");
    const ROWS: [[&str; 5]; 6] = [
        ["분야", "1분기", "2분기", "3분기", "4분기"],
        ["복지", "101,670", "84,725", "84,725", "67,780"],
        ["교육", "85,590", "71,325", "71,325", "57,060"],
        ["교통", "39,728", "59,592", "59,592", "39,728"],
        ["상수도", "22,480", "44,961", "52,455", "29,974"],
        ["문화", "19,450", "29,175", "29,175", "19,450"],
    ];
    let mut y = y - 16.0;
    for cells in ROWS {
        page.text(Font::Korean, SIZE, (LEFT, y), Align::Left, cells[0]);
        for (i, text) in cells.iter().enumerate().skip(1) {
            page.text(Font::Korean, SIZE, (LEFT + 95.0 * (i + 1) as f64 - 10.0, y), Align::Right, text);
        }
        y -= 20.0;
    }

    let y = heading(&mut page, y - 20.0, "4. 신청과 문의");
    let y = page.paragraph(
        Font::Korean,
        SIZE,
        (LEFT, y),
        WIDTH,
        "보조금 신청은 2026년 2월 2일부터 2월 27일까지 시청 누리집에서 받는다. 신청서와 사업계획서를 \
         함께 내야 하며, 결과는 3월 20일에 알린다.",
    );
    page.paragraph(
        Font::Korean,
        SIZE,
        (LEFT, y - 6.0),
        WIDTH,
        "예산에 관한 문의는 기획예산과(전화 02-000-0000, budget@garam.example)에서 평일 9시부터 \
         18시까지 받는다.",
    );
    page.text(Font::Korean, 9.0, (A4.0 / 2.0, 40.0), Align::Center, "- 2 -");
    page
}
