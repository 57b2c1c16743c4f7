//! The nearest of the known words, for whoever mistyped one.

/// The known word with the fewest changed letters, if it is near enough to have been meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any key: not mistyped, something else.
    if word.len() > 200 {
        return None;
    }
    let reach = (word.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete or exchange (Levenshtein), one row of the table at a time.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (at, other) in right.iter().enumerate() {
            let cost = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = cost.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_finds_its_neighbour_and_a_strange_one_finds_none() {
        let known = ["database.url", "broker.url", "worker.slots"];
        assert_eq!(nearest("databse.url", known), Some("database.url"));
        assert_eq!(nearest("worker.slot", known), Some("worker.slots"));
        assert_eq!(nearest("weather", known), None);
    }
}
