//! Eojeol: Korean without a dictionary. An eojeol to the noun it begins with, by the particle or ending it ends
//! with.
//!
//! This is the way where no dictionary pack is there: it takes the longest known particle off and leaves the
//! rest as it is, so it sometimes cuts a noun that ends like one.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::is_hangul;

/// Particles, longest first within a length when matched.
const PARTICLES: &str = "으로부터는 에서부터 으로부터 이라고는 에서조차 에게서는 으로써는 으로서는 에서만은 까지는 까지도 \
부터는 부터도 에서는 에서도 에서의 에게는 에게도 에게서 한테서 으로는 으로도 으로서 으로써 으로의 로부터 이라는 이라고 이라도 \
이라면 이라서 이란 이나마 이든지 이든 이며 이고 이나 이자 이다 입니다 라는 라고 라도 라면 처럼 보다 만큼 마다 조차 마저 밖에 \
까지 부터 에서 에게 한테 께서 에는 에도 와의 과의 와는 과는 와도 과도 로는 로도 로서 로써 으로 하고 이랑 대로 만의 만을 만이 \
들은 들이 들을 들의 들과 들에 은 는 이 가 을 를 의 에 와 과 로 도 만 나 랑 야";

/// Endings that make a verb or an adjective of the noun before them.
const ENDINGS: &str = "하였습니다 하였다 하겠습니다 합니다 합니까 하십시오 하세요 하시오 하는데 하는지 하는 하여야 하여도 하여 \
하고자 하고 하며 하면서 하면 하도록 하려면 하려고 하려는 하기 하거나 하게 하지 하자 하던 하다 한다 한다면 할지 할 함 함으로써 \
해야 해도 해서 해 했습니다 했다 했던 했을 했으며 되었습니다 되었다 되었으며 됩니다 되는지 되는 되어야 되어 되고 되며 되면 \
되도록 되거나 되기 되지 되던 되다 된다 된 될 됨 돼 됐다 시키는 시킨다 시켜 시키고 시킬 시킨 적인 적으로 적이다 적이고 스럽게 \
스러운 롭게 로운";

/// Whole eojeol that hold a sentence together.
const FUNCTION: &str = "그 이 저 것 것은 것이 것을 것으로 것입니다 것이다 수 수가 수는 때 때는 때문에 때문 등 등의 등을 등이 및 또는 \
혹은 그리고 그러나 하지만 그런데 따라서 그래서 또한 즉 다만 만약 만일 모든 각 각각 여러 다른 어떤 이런 그런 이러한 그러한 해당 \
위한 위해 위하여 대한 대해 대하여 관한 관해 관하여 통해 통하여 따라 따른 따르면 의한 의해 의하여 인한 인해 함께 같은 같이 경우 \
경우에 경우에는 경우는 있는 있다 있습니다 있으며 있고 있을 있도록 없는 없다 없습니다 없이 없으면 않는 않은 않다 않습니다 않고 \
않으면 않을 한 두 세 네 매우 아주 더 덜 가장 다시 이미 아직 바로 모두 많은 많이 적은 좋은 새로운 다음 다음과 위 아래 안 밖 \
중 중에 중에서 후 후에 전 전에 동안 이후 이전 현재 경우도 내 내에 외 외에 간 간의 점 바 줄 데 듯 채 뿐 만 약 총 제 본 당";

/// Nouns of talk about a thing, which are no keywords alone.
const VAGUE: &str = "사용 이용 활용 경우 내용 방법 방식 예 예제 예시 다음 문서 설명 참고 참조 필요 가능 제공 수행 처리 확인 포함 관련 \
결과 지원 추가 정보 작업 항목 부분 사항 문제 목적 대상 상황 시작 완료 실행 진행 변경 선택 표시 적용 발생 구성 지정 생성 자세 자세한 \
이상 이하 이유 최대 최소 여부 기준 수준 정도 단계 시간 사람 종류 나머지 전체 일부 일반 기본 대부분 각각 우리 여기 거기 이것 그것 \
이때 오늘 내일 어제 올해 작년 내년 하나 자신 때문 위치 상태 값 개 번 가지 년 월 일 시 분 초 명 원 건 회";

struct Lists {
    vague: HashSet<&'static str>,
    particles: Vec<&'static str>,
    endings: Vec<&'static str>,
    function: HashSet<&'static str>,
}

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let longest_first = |words: &'static str| {
        let mut words: Vec<_> = words.split_whitespace().collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words
    };
    Lists {
        particles: longest_first(PARTICLES),
        endings: longest_first(ENDINGS),
        vague: VAGUE.split_whitespace().collect(),
        function: FUNCTION.split_whitespace().collect(),
    }
});

/// What an eojeol is in a phrase of nouns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Eojeol<'t> {
    /// A noun with nothing after it: the phrase may go on.
    Bare(&'t str),
    /// A noun with a particle: the phrase ends with it.
    Marked(&'t str),
    /// Nothing of a phrase.
    Other,
}

/// The noun that an eojeol begins with, by what it ends with.
pub(crate) fn eojeol(word: &str) -> Eojeol<'_> {
    if LISTS.function.contains(word) {
        return Eojeol::Other;
    }
    let latin = !word.chars().last().is_some_and(is_hangul);
    if latin {
        return if word.chars().any(char::is_alphabetic) { Eojeol::Bare(word) } else { Eojeol::Other };
    }
    let is_noun = |rest: &str| {
        let enough = rest.chars().count() >= 2 || rest.ends_with(|c: char| c.is_ascii_alphanumeric());
        enough && !LISTS.function.contains(rest)
    };
    if let Some(rest) = LISTS.endings.iter().find_map(|end| word.strip_suffix(end)) {
        return if is_noun(rest) { Eojeol::Marked(rest) } else { Eojeol::Other };
    }
    if looks_verbal(word) {
        return Eojeol::Other;
    }
    // Only these two are no ending of a verb as well, so that one syllable before them is a noun.
    if let Some(noun) = word.strip_suffix(['을', '를']).filter(|noun| noun.chars().count() == 1) {
        return if LISTS.function.contains(noun) { Eojeol::Other } else { Eojeol::Marked(noun) };
    }
    match LISTS.particles.iter().filter_map(|end| word.strip_suffix(end)).find(|rest| is_noun(rest)) {
        Some(rest) => Eojeol::Marked(rest),
        None if word.chars().count() >= 2 => Eojeol::Bare(word),
        None => Eojeol::Other,
    }
}

/// Whether a noun says nothing about the matter when it stands alone.
pub(crate) fn is_vague(noun: &str) -> bool {
    LISTS.vague.contains(noun) || LISTS.function.contains(noun)
}

/// Endings of verbs that no noun has.
fn looks_verbal(word: &str) -> bool {
    const ENDS: [&str; 18] = [
        "습니다",
        "ㅂ니다",
        "니다",
        "세요",
        "십시오",
        "으며",
        "면서",
        "려면",
        "려고",
        "도록",
        "었다",
        "았다",
        "였다",
        "었던",
        "았던",
        "어야",
        "아야",
        "지만",
    ];
    ENDS.iter().any(|end| word.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::{Eojeol, eojeol};

    #[test]
    fn particles_and_endings_come_off_and_the_noun_stays() {
        assert_eq!(eojeol("작업을"), Eojeol::Marked("작업"));
        assert_eq!(eojeol("데이터베이스에서는"), Eojeol::Marked("데이터베이스"));
        assert_eq!(eojeol("처리합니다"), Eojeol::Marked("처리"));
        assert_eq!(eojeol("메시지"), Eojeol::Bare("메시지"));
        assert_eq!(eojeol("API를"), Eojeol::Marked("API"));
        assert_eq!(eojeol("큐를"), Eojeol::Marked("큐"));
        assert_eq!(eojeol("그리고"), Eojeol::Other);
        assert_eq!(eojeol("늘었지만"), Eojeol::Other);
        assert_eq!(eojeol("나이"), Eojeol::Bare("나이"));
    }
}
