//! What an English word is counted as: its stem by the rules of Porter (1980), so that `queue`, `queues` and
//! `queued` are one.

const STEP2: [(&str, &str); 20] = [
    ("ational", "ate"),
    ("ization", "ize"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("entli", "ent"),
    ("ousli", "ous"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("alli", "al"),
    ("ator", "ate"),
    ("eli", "e"),
];
const STEP3: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
];
const STEP4: [&str; 19] = [
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ion", "ism", "ate", "iti", "ous", "ive",
    "ize", "al", "er", "ic", "ou",
];

/// No English word is longer; what is, is its own stem, which also bounds the work.
const BYTES_MAX: usize = 64;

/// The stem of a word in lower case. A word that is not of ASCII letters is its own stem.
pub(crate) fn stem(word: &str) -> String {
    if !(3..=BYTES_MAX).contains(&word.len()) || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut word = plural(word).to_owned();
    past(&mut word);
    if let Some(rest) = word.strip_suffix('y').filter(|rest| has_vowel(rest)) {
        word = format!("{rest}i");
    }
    for table in [&STEP2[..], &STEP3[..]] {
        if let Some((end, new)) = table.iter().find(|(end, _)| word.ends_with(end)) {
            let rest = &word[..word.len() - end.len()];
            if measure(rest) > 0 {
                word = format!("{rest}{new}");
            }
        }
    }
    if let Some(end) = STEP4.iter().find(|end| word.ends_with(*end)) {
        let rest = &word[..word.len() - end.len()];
        if measure(rest) > 1 && (*end != "ion" || rest.ends_with(['s', 't'])) {
            word.truncate(rest.len());
        }
    }
    if let Some(rest) = word.strip_suffix('e') {
        let m = measure(rest);
        if m > 1 || (m == 1 && !ends_short(rest)) {
            word.truncate(rest.len());
        }
    }
    if word.ends_with("ll") && measure(&word) > 1 {
        word.pop();
    }
    word
}

fn plural(word: &str) -> &str {
    if word.ends_with("sses") || word.ends_with("ies") {
        &word[..word.len() - 2]
    } else if word.ends_with('s') && !word.ends_with("ss") {
        &word[..word.len() - 1]
    } else {
        word
    }
}

fn past(word: &mut String) {
    if let Some(rest) = word.strip_suffix("eed") {
        if measure(rest) > 0 {
            word.pop();
        }
        return;
    }
    let cut = ["ed", "ing"].iter().find_map(|end| word.strip_suffix(end).filter(|rest| has_vowel(rest)));
    let Some(length) = cut.map(str::len) else { return };
    word.truncate(length);
    if ["at", "bl", "iz"].iter().any(|end| word.ends_with(end)) {
        word.push('e');
    } else if doubled(word) && !word.ends_with(['l', 's', 'z']) {
        word.pop();
    } else if measure(word) == 1 && ends_short(word) {
        word.push('e');
    }
}

fn is_consonant(word: &[u8], at: usize) -> bool {
    match word[at] {
        b'a' | b'e' | b'i' | b'o' | b'u' => false,
        b'y' => at == 0 || !is_consonant(word, at - 1),
        _ => true,
    }
}

/// How often a vowel is followed by a consonant.
fn measure(word: &str) -> usize {
    let word = word.as_bytes();
    (1..word.len()).filter(|&at| is_consonant(word, at) && !is_consonant(word, at - 1)).count()
}

fn has_vowel(word: &str) -> bool {
    (0..word.len()).any(|at| !is_consonant(word.as_bytes(), at))
}

fn doubled(word: &str) -> bool {
    let w = word.as_bytes();
    w.len() > 1 && w[w.len() - 1] == w[w.len() - 2] && is_consonant(w, w.len() - 1)
}

/// Consonant, vowel, consonant at the end, the last not w, x or y.
fn ends_short(word: &str) -> bool {
    let (w, n) = (word.as_bytes(), word.len());
    n > 2
        && is_consonant(w, n - 1)
        && !is_consonant(w, n - 2)
        && is_consonant(w, n - 3)
        && !word.ends_with(['w', 'x', 'y'])
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn the_published_examples_come_out() {
        let pairs = [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("hopping", "hop"),
            ("filing", "file"),
            ("happy", "happi"),
            ("relational", "relat"),
            ("vietnamization", "vietnam"),
            ("electrical", "electr"),
            ("adjustment", "adjust"),
            ("adoption", "adopt"),
            ("controlling", "control"),
            ("roll", "roll"),
        ];
        for (word, expected) in pairs {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn a_long_run_of_letters_is_its_own_stem() {
        // `y` looks at the letter before it: a run of a million must not be walked from each of them.
        let long = "y".repeat(1_000_000);
        assert_eq!(stem(&long), long);
    }
}
