//! Pieces of rules to whole ones: programs draw a rule cell by cell, twice, or as a row of dashes.

use super::geometry::Area;

/// How far pieces of one rule may lie apart across it.
const ACROSS: f64 = 1.2;
/// The same along it: dashes, and cells with white between them.
const ALONG: f64 = 3.0;
/// Rules shorter than this part nothing.
const SHORT: f64 = 4.0;

/// A level or an upright rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rule {
    /// Its place across: y of a level rule, x of an upright one.
    pub(super) at: f64,
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Rule {
    pub(super) fn length(&self) -> f64 {
        self.to - self.from
    }
}

/// The rules of a frame.
#[derive(Default)]
pub(super) struct Rules {
    /// From top to bottom.
    pub(super) level: Vec<Rule>,
    /// From left to right.
    pub(super) upright: Vec<Rule>,
}

pub(super) fn whole(pieces: &[Area]) -> Rules {
    let level = pieces.iter().filter(|p| p.width() >= p.height());
    let upright = pieces.iter().filter(|p| p.width() < p.height());
    Rules {
        level: joined(level.map(|p| Rule { at: p.middle().1, from: p.x0, to: p.x1 }).collect()),
        upright: joined(upright.map(|p| Rule { at: p.middle().0, from: p.y0, to: p.y1 }).collect()),
    }
}

fn joined(mut pieces: Vec<Rule>) -> Vec<Rule> {
    pieces.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut rules = Vec::new();
    // Pieces at one place across are joined along.
    let mut rest = pieces.as_mut_slice();
    while let Some(first) = rest.first() {
        let end = rest.partition_point(|p| p.at - first.at <= ACROSS);
        let (same, others) = rest.split_at_mut(end);
        same.sort_by(|a, b| a.from.total_cmp(&b.from));
        let mut open: Option<Rule> = None;
        for piece in same.iter() {
            match &mut open {
                Some(rule) if piece.from - rule.to <= ALONG => rule.to = rule.to.max(piece.to),
                _ => rules.extend(open.replace(*piece)),
            }
        }
        rules.extend(open);
        rest = others;
    }
    rules.retain(|rule| rule.length() >= SHORT);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_drawn_cell_by_cell_and_twice_is_one_rule() {
        let pieces = [
            Area::new(10.0, 99.8, 60.0, 100.2),
            Area::new(60.0, 99.8, 110.0, 100.2),
            Area::new(10.0, 100.3, 110.0, 100.7),
            Area::new(200.0, 99.8, 260.0, 100.2),
        ];
        let rules = whole(&pieces);
        assert_eq!(rules.level.len(), 2, "what stands apart stays apart");
        assert_eq!((rules.level[0].from, rules.level[0].to), (10.0, 110.0));
    }
}
