//! In which order a worker asks its lanes, wherever they are: in the store or in a broker.

use std::collections::VecDeque;

use super::name::{Class, Lane};

/// Classes by their weight, kinds in turn within a class, and first of all lanes that
/// others kept from being asked.
pub struct Rota<T> {
    /// For each class its lanes, in the order they are asked next.
    classes: [VecDeque<(Lane, T)>; Class::ALL.len()],
    credit: [u32; Class::ALL.len()],
    first: Vec<Lane>,
}

impl<T: Clone> Rota<T> {
    pub fn new(lanes: Vec<(Lane, T)>) -> Self {
        let of = |class| lanes.iter().filter(|(lane, _)| lane.class == class).cloned().collect();
        Self { classes: Class::ALL.map(of), credit: [0; Class::ALL.len()], first: Vec::new() }
    }

    /// Every lane once, in the order to ask them this time.
    pub fn order(&mut self) -> Vec<(Lane, T)> {
        // Smooth weighted round robin: each class earns its weight, the richest leads and pays for all.
        let all: u32 = Class::ALL.iter().map(|class| class.weight()).sum();
        for (credit, class) in self.credit.iter_mut().zip(Class::ALL) {
            *credit += class.weight();
        }
        let richest = (0..Class::ALL.len()).max_by_key(|at| (self.credit[*at], usize::MAX - at)).unwrap_or(0);
        self.credit[richest] = self.credit[richest].saturating_sub(all);
        let leading = self.classes[richest].iter();
        let others =
            self.classes.iter().enumerate().filter(|(at, _)| *at != richest).flat_map(|(_, lanes)| lanes);
        let mut lanes: Vec<(Lane, T)> = leading.chain(others).cloned().collect();
        lanes.sort_by_key(|(lane, _)| !self.first.contains(lane));
        // A kind's turn passes when its class has led, whatever the other classes do.
        self.classes[richest].rotate_left(1.min(self.classes[richest].len()));
        lanes
    }

    /// These go first next time.
    pub fn first(&mut self, lanes: Vec<Lane>) {
        self.first = lanes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rota(lanes: &[&str]) -> Rota<()> {
        Rota::new(lanes.iter().map(|lane| (lane.parse().unwrap(), ())).collect())
    }

    #[test]
    fn classes_lead_by_their_weight_and_none_is_forgotten() {
        let mut rota = rota(&["a:high", "a", "a:low"]);
        let leaders: Vec<String> = (0..12).map(|_| rota.order()[0].0.to_string()).collect();
        let count = |lane: &str| leaders.iter().filter(|leader| *leader == lane).count();
        assert_eq!((count("a:high"), count("a"), count("a:low")), (8, 3, 1));
    }

    #[test]
    fn every_lane_leads_however_many_kinds_there_are() {
        for kinds in 1..=5 {
            let lanes: Vec<String> = (0..kinds)
                .flat_map(|kind| ["", ":high", ":low"].map(|class| format!("k{kind}{class}")))
                .collect();
            let mut rota = rota(&lanes.iter().map(String::as_str).collect::<Vec<_>>());
            let led: std::collections::BTreeSet<String> =
                (0..12 * kinds).map(|_| rota.order()[0].0.to_string()).collect();
            assert_eq!(led.len(), lanes.len(), "{kinds} kinds");
        }
    }

    #[test]
    fn kinds_of_one_class_take_rota() {
        let mut rota = rota(&["a", "b"]);
        let leaders: std::collections::BTreeSet<String> =
            (0..4).map(|_| rota.order()[0].0.to_string()).collect();
        assert_eq!(leaders.len(), 2);
    }

    #[test]
    fn a_lane_that_was_shut_out_goes_first() {
        let mut rota = rota(&["a:high", "b:low"]);
        rota.first(vec!["b:low".parse().unwrap()]);
        assert_eq!(rota.order()[0].0.to_string(), "b:low");
    }
}
