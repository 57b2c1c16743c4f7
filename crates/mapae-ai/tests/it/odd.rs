//! Texts that are none: every method gives a result, of a bounded size.

use mapae_ai::classify::{Classifier, Example, builtin};
use mapae_ai::intents::{INTENTS_MAX, intents};
use mapae_ai::keywords::keywords;
use mapae_ai::language;

fn odd() -> Vec<(&'static str, String)> {
    let broken = String::from_utf8_lossy(b"\xff\xfe\xec\x95 ab \xed\xa0\x80 c\xc0\xaf").into_owned();
    vec![
        ("nothing", String::new()),
        ("blanks", " \n\t\u{3000}\u{200b}".repeat(1_000)),
        ("one letter", "x".repeat(10_000_000)),
        ("one syllable", "가".repeat(500_000)),
        ("one word", "가나다 ".repeat(300_000)),
        ("lines", "\n".repeat(1_000_000)),
        ("headings", "# a\n".repeat(200_000)),
        ("numbers", "1 22 3,333 4.5% -6 2026-01-31 ".repeat(10_000)),
        ("invalid UTF-8, read as well as it can be", broken.repeat(1_000)),
        ("mixed scripts", "한글english日本語кириллица العربية ไทย ".repeat(5_000)),
        ("emoji", "🙂👩‍👩‍👧‍👦🇰🇷👍🏽 ".repeat(20_000)),
        ("combining marks", format!("e{} ", "\u{301}".repeat(5_000)).repeat(20)),
        ("decomposed Hangul", "\u{1112}\u{1161}\u{11ab} ".repeat(50_000)),
        ("controls", "\u{0}\u{1b}[31m\u{7f}".repeat(10_000)),
        ("brackets", "([{<".repeat(100_000)),
    ]
}

#[test]
fn odd_texts_have_results_of_a_bounded_size() {
    let example = |label: &str, text: &str| Example { label: label.into(), text: text.into() };
    let examples: Vec<Example> = ["a b", "a c", "a d", "a e"]
        .map(|text| example("a", text))
        .into_iter()
        .chain(["x y", "x z", "x w", "x v"].map(|text| example("x", text)))
        .collect();
    let taught = Classifier::train(&[], &examples, None).expect("trains");
    for (what, text) in odd() {
        let found = keywords(&text, 15);
        assert!(found.len() <= 15, "{what}");
        for keyword in &found {
            assert!(
                text.get(keyword.at.clone()).is_some() && keyword.score.is_finite(),
                "{what}: {keyword:?}"
            );
        }
        let found = intents(&text, None);
        assert!(found.len() <= INTENTS_MAX, "{what}");
        assert!(found.iter().all(|intent| text[intent.at.clone()] == intent.answer), "{what}");
        for class in [builtin::classify("", &text), taught.classify(&text, None)] {
            let sum: f64 = class.scores.values().sum();
            assert!((sum - 1.0).abs() < 1e-3 && class.confidence.is_finite(), "{what}: {class:?}");
        }
        let _ = language::of(&text);
    }
}

/// Training on them is training like any other.
#[test]
fn odd_texts_can_be_examples() {
    let examples: Vec<Example> = odd()
        .into_iter()
        .enumerate()
        .map(|(at, (_, text))| Example {
            label: (at % 2).to_string(),
            text: text.chars().take(10_000).collect(),
        })
        .collect();
    let taught = Classifier::train(&[], &examples, None).expect("trains");
    assert!(taught.validation.as_ref().expect("validated").accuracy.is_finite());
}

#[test]
fn odd_texts_have_vectors_and_morphemes() {
    let Some(models) = crate::models() else { return };
    let (encoder, dictionary) =
        (models.embedder().expect("a pack"), models.dictionary.as_ref().expect("a pack"));
    for (what, text) in odd() {
        // Some hundred pieces each: vectors of more are only slower.
        let text: String = text.chars().take(500).collect();
        let vector = encoder.embed(&[&text]).pop().expect("a vector");
        assert!(vector.iter().all(|number| number.is_finite()) && vector.len() == 512, "{what}");
        let _ = dictionary.morphemes(&text);
    }
}
