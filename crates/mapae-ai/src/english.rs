//! English without a dictionary: which words cannot be part of a name of something, and what a word is
//! counted as.
//!
//! The lists are closed classes (articles, pronouns, prepositions, …) and verbs, adverbs and adjectives that
//! say little in any text. Inflected forms of the verbs are derived, not listed.

mod stem;

use std::collections::HashSet;
use std::sync::LazyLock;

pub(crate) use stem::stem;

const FUNCTION: &str = "a an the this that these those such same other another each every either neither both all any \
some no none one two three four five six seven eight nine ten first second third several many much few fewer little \
less least more most enough own i me my mine myself we us our ours ourselves you your yours yourself he him his \
himself she her hers herself it its itself they them their theirs themselves who whom whose which what whatever \
whichever where when why how whether while whereas although though because since unless until till if then else \
than as so and or nor but yet for of in on at by to from with without within into onto upon over under above below \
between among amongst through throughout during before after against about around across along behind beyond near \
off out up down per via toward towards except despite besides instead rather not only also too very just even still \
already again ever never always often sometimes usually once twice here there now today tomorrow yesterday later \
soon almost quite perhaps maybe however therefore thus hence moreover furthermore otherwise nevertheless meanwhile \
am is are was were be been being do does did done doing have has had having can could may might must shall should \
will would ought cannot don't doesn't didn't isn't aren't wasn't weren't won't can't couldn't shouldn't wouldn't \
let's it's that's there's etc eg ie e.g i.e viz cf et al versus vs yes ok okay like unlike according due";

const VERBS: &str = "accept accomplish achieve add address adopt aim allow announce appear apply argue arise ask assume \
attempt avoid base become begin believe belong bring build call carry cause choose cite claim combine come compare \
comprise conclude confirm consider consist contain continue contribute convert correspond create deal decide define \
demonstrate denote depend derive describe determine develop devise differ discover discuss employ enable encounter \
encourage ensure establish evaluate examine exhibit exist expect explain explore express extend fail find follow \
generate get give go grow happen help highlight hold identify illustrate imagine imply improve include incorporate \
indicate influence inform intend introduce investigate involve keep know lead learn leave let lie look lose make \
mean meet mention need note obtain observe occur offer outline overcome perform play point possess prefer prepare \
present propose prove provide publish put quantify raise reach realize realise receive recommend reduce refer reflect \
regard relate remain report represent require resemble resolve reveal run satisfy say see seek seem select serve show \
solve specify stand start state stay suffer suggest suppose take tell tend think try turn understand undertake use \
utilize utilise vary verify want work write yield";

const IRREGULAR: &str = "became begun began brought built came chose chosen dealt drawn drew found gave given gone got \
gotten grew grown held kept knew known led left lay lain lost made meant met put ran said saw seen shown shewn sought \
stood sought taken took taught thought told understood undertook underwent went wrote written spent sent set used";

const PLAIN: &str = "able available certain clear common complete considerable current different difficult easy \
effective entire essential existing following full further general good great important interesting large last latest \
likely main major necessary new next novel old older original particular possible potential present previous prior \
recent related relevant respective right short significant similar simple single small special specific strong \
subsequent substantial sufficient suitable typical unable useful usual various well whole wide better best larger \
largest smaller smallest higher lower greater";

/// Nouns of talk about a text, not of its matter.
const VAGUE: &str = "advantage aim amount article aspect author basis benefit case chapter contrast degree detail \
difference example extent fact figure form idea instance issue item kind lack line lot manner means number order page \
paper part people person place possibility purpose question range reason reference respect result role section \
sense set side situation sort step study table term terms thing time topic type use usage variety view way work year \
month day week hour minute percent mr mrs ms dr";

/// Nouns and adjectives that end in `-ly`, which else marks an adverb.
const LY: &str = "ally anomaly assembly belly bully butterfly costly daily early elderly family fly friendly holy \
homily italy jelly july lily monopoly monthly multiply oligopoly only poly quarterly rally reply supply tally \
weekly yearly likely lively lonely lovely orderly timely ugly unlikely";

struct Lists {
    stops: HashSet<String>,
    plain: HashSet<String>,
    vague: HashSet<String>,
    ly: HashSet<String>,
}

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let set = |words: &str| words.split_whitespace().map(str::to_owned).collect::<HashSet<_>>();
    let mut stops = set(FUNCTION);
    stops.extend(set(IRREGULAR));
    stops.extend(VERBS.split_whitespace().flat_map(forms));
    let vague = VAGUE.split_whitespace().flat_map(|word| [word.to_owned(), plural(word)]).collect();
    Lists { stops, plain: set(PLAIN), vague, ly: set(LY) }
});

/// The regular forms of a verb.
fn forms(verb: &str) -> Vec<String> {
    let stem = verb.strip_suffix('e').unwrap_or(verb);
    let y = verb.strip_suffix('y').filter(|rest| !rest.ends_with(['a', 'e', 'o', 'u']));
    let (third, past) = match y {
        Some(rest) => (format!("{rest}ies"), format!("{rest}ied")),
        None => (plural(verb), format!("{stem}ed")),
    };
    vec![verb.to_owned(), third, past, format!("{stem}ing")]
}

fn plural(word: &str) -> String {
    let hissing = ["s", "x", "z", "ch", "sh", "o"].iter().any(|end| word.ends_with(end));
    match word.strip_suffix('y').filter(|rest| !rest.ends_with(['a', 'e', 'o', 'u'])) {
        Some(rest) => format!("{rest}ies"),
        None if hissing => format!("{word}es"),
        None => format!("{word}s"),
    }
}

/// Whether a word, in lower case, ends every phrase it stands beside.
pub(crate) fn is_stop(word: &str) -> bool {
    let adverb = word.len() > 4 && word.ends_with("ly") && !LISTS.ly.contains(word);
    adverb || LISTS.stops.contains(word)
}

/// Whether a phrase that begins with this word says as much without it.
pub(crate) fn is_plain(word: &str) -> bool {
    LISTS.plain.contains(word)
}

/// Whether a word says nothing about the matter when it stands alone.
pub(crate) fn is_vague(word: &str) -> bool {
    LISTS.vague.contains(word) || LISTS.plain.contains(word)
}

#[cfg(test)]
mod tests {
    use super::{is_plain, is_stop, is_vague};

    #[test]
    fn words_that_only_hold_a_sentence_together_end_a_phrase() {
        for word in ["the", "proposes", "applied", "using", "carries", "slowly", "without"] {
            assert!(is_stop(word), "{word}");
        }
        for word in ["supply", "family", "queue", "distributed", "testing"] {
            assert!(!is_stop(word), "{word}");
        }
        assert!(is_plain("novel") && is_vague("studies") && !is_vague("queue"));
    }
}
