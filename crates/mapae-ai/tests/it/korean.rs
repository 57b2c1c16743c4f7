use std::time::Instant;

use mapae_ai::korean::UserWords;

#[test]
fn a_text_is_cut_and_named_as_mecab_cuts_and_names_it() {
    let Some(dictionary) = crate::dictionary() else { return };
    for row in crate::frozen("mecab-ko.jsonl") {
        let text = row["text"].as_str().expect("a text");
        let found: Vec<(u64, u64, &str)> = dictionary
            .morphemes(text)
            .iter()
            .map(|m| {
                let chars = |end: usize| text[..end].chars().count() as u64;
                (chars(m.start), chars(m.end), m.tag)
            })
            .collect();
        let expected: Vec<(u64, u64, &str)> = row["tokens"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|t| {
                let number = |i: usize| t[i].as_u64().expect("a number");
                (number(0), number(1), t[2].as_str().expect("a tag"))
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_word_of_the_user_stays_whole() {
    let (Some(folder), Some(plain)) = (crate::folder(), crate::dictionary()) else { return };
    let count = |d: &mapae_ai::korean::Dictionary, text: &str| d.morphemes(text).first().map(|m| m.end);
    assert_ne!(count(&plain, "멱등성을"), Some("멱등성".len()), "else this tests nothing");
    let pack = mapae_ai::pack::Pack::open(&folder.join("mecab-ko.mpk")).expect("opens");
    let own = mapae_ai::korean::Dictionary::new(pack).expect("a dictionary").with_words(UserWords::shipped());
    for word in ["멱등성", "재시도", "스케줄러", "재스캔", "인메모리"] {
        assert_eq!(count(&own, &format!("{word}을 쓴다")), Some(word.len()), "{word}");
    }
}

#[test]
fn odd_and_huge_texts_are_read_in_linear_time() {
    let Some(dictionary) = crate::dictionary() else { return };
    for text in ["", " ", "\n\n", "\u{0}", "🙂", "\u{fffd}", "\u{300}"] {
        assert!(dictionary.morphemes(text).len() <= 1, "{text:?}");
    }
    // Of each sort one that would take hours if the time grew with the square of the length.
    let begun = Instant::now();
    for text in ["a".repeat(2_000_000), "가".repeat(600_000), "1".repeat(2_000_000), "가a1 ".repeat(300_000)]
    {
        let morphemes = dictionary.morphemes(&text);
        assert!(morphemes.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(!morphemes.is_empty());
    }
    eprintln!("{:?}", begun.elapsed());
}
