//! Words of a user that the dictionary does not know or would cut: names, terms of a trade.

use std::collections::HashMap;

/// Words that are read as one common noun wherever they stand.
#[derive(Clone, Debug, Default)]
pub struct UserWords {
    /// By first character; each with whether it ends in a vowel.
    words: HashMap<char, Vec<(String, bool)>>,
}

/// Why a list of words cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UserWordError {
    #[error("there are {0} words: at most {WORDS_MAX} can be given")]
    TooMany(usize),
    #[error("word number {0} is empty, has a blank in it or is longer than {LENGTH_MAX} characters")]
    Word(usize),
}

const WORDS_MAX: usize = 100_000;
const LENGTH_MAX: usize = 40;

/// Terms of business and IT that the dictionary of 2018 cuts.
const SHIPPED: &str = "재시도 재시도율 스케줄러 멱등성 멱등 재스캔 인메모리 메시징 메시지큐 메시징큐 쿠버네티스 컨테이너 마이크로서비스 \
데이터레이크 데이터웨어하우스 데이터베이스 워크로드 웹훅 웹소켓 엔드포인트 엔드투엔드 백엔드 프런트엔드 프론트엔드 로드밸런서 \
오토스케일링 클러스터 파드 레플리카 오케스트레이션 리포지토리 커밋 롤백 롤아웃 배포판 파이프라인 대시보드 챗봇 임베딩 토크나이저 \
프롬프트 딥러닝 머신러닝 인공지능 빅데이터 클라우드 온프레미스 오픈소스 깃허브 슬랙 노션 워크플로 워크플로우 체크포인트 하트비트 \
데드레터 옵저버빌리티 텔레메트리 레이턴시 스루풋 타임아웃 스로틀링 샤딩 파티셔닝 인덱싱 캐싱 직렬화 역직렬화 비동기 동기화 병렬화 \
세금계산서 전자세금계산서 견적서 발주서 거래명세서 품의서 결재선 전자결재 회의록 업무협약 개인정보 개인정보처리방침 부가가치세 \
원천징수 연말정산 사업자등록번호 통신판매업 간편결제 정산금 미수금 매출채권 손익분기점 현금흐름표 재무상태표 손익계산서 재무제표 \
영업이익률 당기순이익 감가상각비 예산안 결산서 집행률 이월액 보조금 정책자금 스타트업 핀테크 이커머스 구독형 리드타임 공급망";

impl UserWords {
    /// The words that come with the program.
    pub fn shipped() -> Self {
        let words: Vec<&str> = SHIPPED.split_whitespace().collect();
        Self::new(&words).expect("a test checks the list")
    }

    /// # Errors
    /// [`UserWordError`]: too many words, or one that is none.
    pub fn new(words: &[&str]) -> Result<Self, UserWordError> {
        if words.len() > WORDS_MAX {
            return Err(UserWordError::TooMany(words.len()));
        }
        let mut list = Self::default();
        for (number, word) in words.iter().enumerate() {
            let length = word.chars().count();
            let (Some(first), Some(last)) = (word.chars().next(), word.chars().last()) else {
                return Err(UserWordError::Word(number + 1));
            };
            if length > LENGTH_MAX || word.contains(char::is_whitespace) {
                return Err(UserWordError::Word(number + 1));
            }
            list.words.entry(first).or_default().push(((*word).to_owned(), ends_open(last)));
        }
        Ok(list)
    }

    /// These and those.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        other.words.into_iter().for_each(|(first, words)| self.words.entry(first).or_default().extend(words));
        self
    }

    /// Every word that the text begins with: its length in bytes, and whether it ends in a vowel.
    pub(super) fn each(&self, text: &str, mut each: impl FnMut(usize, bool)) {
        let Some(words) = text.chars().next().and_then(|first| self.words.get(&first)) else { return };
        words
            .iter()
            .filter(|(word, _)| text.starts_with(word))
            .for_each(|(word, open)| each(word.len(), *open));
    }
}

/// Cheaper than the words it would be cut into, and the longer the more.
pub(super) fn cost(bytes: usize) -> i16 {
    1_000i16.saturating_sub(i16::try_from(bytes).unwrap_or(i16::MAX).saturating_mul(250))
}

/// Whether a syllable has no consonant after its vowel.
fn ends_open(c: char) -> bool {
    super::is_hangul(c) && (u32::from(c) - 0xac00).is_multiple_of(28)
}

#[cfg(test)]
mod tests {
    use super::{UserWordError, UserWords};

    #[test]
    fn the_shipped_words_are_words_and_bad_ones_are_refused() {
        let mut found = Vec::new();
        UserWords::shipped().each("재시도율은", |length, open| found.push((length, open)));
        assert_eq!(found, [(9, true), (12, false)]);
        assert_eq!(UserWords::new(&["가", ""]).err(), Some(UserWordError::Word(2)));
        assert_eq!(UserWords::new(&["가 나"]).err(), Some(UserWordError::Word(1)));
    }
}
