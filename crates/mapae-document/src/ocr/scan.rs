//! A picture and its words to a page as a text layer would have given it.

use hayro_interpret::kurbo::{Point, Rect, Vec2};

use super::picture::{Picture, Pose};
use super::{Ask, Scan, rules, skew, straight, words};
use crate::document::Warning;
use crate::error::DocumentError;
use crate::pdf;

/// Mean confidence under which a page is doubtful.
const DOUBTFUL: f64 = 60.0;

/// Reads a page by its picture, and places what is read as on the picture made level. `ask` gives what the recogniser says about one, nothing where it failed.
pub(crate) fn scan(
    number: u32,
    mut picture: Picture,
    pose: Pose,
    ask: &mut Ask<'_>,
) -> Result<Scan, DocumentError> {
    let slope = skew::slope(&picture);
    if slope != 0.0 {
        picture = skew::level(&picture, slope);
    }
    let said = ask(&picture.to_pgm())?;
    let mut warnings = Vec::new();
    let mut warn = |code, message: &str| warnings.push(Warning::new(code, Some(number), message));
    if said.is_empty() {
        warn("ocr-failed", "The picture of the page could not be read.");
    }
    let words = words::parse(&String::from_utf8_lossy(&said));
    let confidence = match words.len() {
        0 => 0.0,
        n => words.iter().map(|word| word.confidence).sum::<f64>() / n as f64,
    };
    if !words.is_empty() && confidence < DOUBTFUL {
        warn("ocr-doubtful", "The picture of the page is hard to read; its text has errors.");
    }
    let middle = picture.middle();
    let (lie, placed) = straight::straight(words, &picture);
    let (along, down) = (lie.along(), lie.down());
    let spans = placed.into_iter().map(|word| pdf::Recognised {
        origin: pose.point(middle + along * word.along[0] + down * word.baseline),
        direction: unit(pose.direction(along)),
        advance: (word.along[1] - word.along[0]) * pose.scale,
        size: word.size * pose.scale,
        text: word.text,
    });
    let rules = rules::rules(&picture, 72.0 / pose.scale);
    let on_page = |r: Rect| Rect::from_points(pose.point(r.origin()), pose.point(Point::new(r.x1, r.y1)));
    let rules = rules.into_iter().map(on_page).collect();
    let (page, sight) = pdf::recognised(number, pose.page, pose.rotation, spans, rules);
    Ok(Scan { page, sight, confidence, warnings })
}

fn unit(v: Vec2) -> Vec2 {
    v / v.hypot().max(f64::MIN_POSITIVE)
}
