//! Which language a text is in, by its script and, for Latin script, by English's commonest words.
//! Not a classifier: an unsure text has no language.

/// Characters looked at; a language shows in the first pages or not at all.
const SAMPLE: usize = 200_000;

/// The BCP 47 tag of the text's main language: `ko`, `ja`, `zh`, `en`, or `None` where it does not show one.
///
/// Looks at the first 200,000 characters.
pub fn of(text: &str) -> Option<&'static str> {
    let (mut hangul, mut kana, mut han, mut latin) = (0u64, 0u64, 0u64, 0u64);
    for c in text.chars().take(SAMPLE) {
        match c {
            '\u{ac00}'..='\u{d7a3}' | '\u{1100}'..='\u{11ff}' | '\u{3131}'..='\u{318e}' => hangul += 1,
            '\u{3041}'..='\u{30ff}' => kana += 1,
            '\u{4e00}'..='\u{9fff}' => han += 1,
            c if c.is_alphabetic() && c < '\u{250}' => latin += 1,
            _ => {}
        }
    }
    // A syllable of these scripts says as much as two to three letters.
    if hangul * 4 >= latin && hangul > kana && hangul > 0 {
        Some("ko")
    } else if kana * 4 >= latin && kana > 0 {
        Some("ja")
    } else if han * 4 >= latin && han > 0 {
        Some("zh")
    } else if latin > 0 && is_english(text) {
        Some("en")
    } else {
        None
    }
}

fn is_english(text: &str) -> bool {
    const COMMON: [&str; 16] = [
        "the", "of", "and", "to", "in", "a", "is", "for", "on", "with", "by", "this", "that", "from", "are",
        "at",
    ];
    let (mut words, mut common) = (0u32, 0u32);
    for word in text.split(|c: char| !c.is_alphabetic()).filter(|w| !w.is_empty()).take(5_000) {
        words += 1;
        common += u32::from(COMMON.iter().any(|c| word.eq_ignore_ascii_case(c)));
    }
    common * 100 >= words * 8 && common > 0
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_language_is_named_only_where_the_text_shows_it() {
        assert_eq!(of("2026년 예산 보고서 (Budget Report)"), Some("ko"));
        assert_eq!(of("The budget of the city is set by the council."), Some("en"));
        assert_eq!(of("Der Haushalt der Stadt wird vom Rat beschlossen."), None);
        assert_eq!(of("これは予算の報告です"), Some("ja"));
        assert_eq!(of("1,234 5,678"), None);
    }
}
