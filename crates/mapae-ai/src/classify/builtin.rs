//! Sorts of business documents, told apart without an example: by the words that documents of a sort call
//! themselves and hold, in Korean and English.
//!
//! This is for the first hour, before there are examples: it knows what a document says of itself and nothing of
//! its matter. Its answers are `by` label text and are unsure wherever they do not stand out.

use super::{By, Class, answer};

/// Characters of a document that are looked at, and those at its beginning that name it.
const CHARS_MAX: usize = 20_000;
const TITLE_CHARS: usize = 120;
/// Weight of the words of a sort: where they name the document, and where it holds them.
const NAMED: f64 = 5.0;
const HELD: f64 = 1.0;
const HINTED: f64 = 0.35;
/// What speaks for none of the sorts.
const OTHER: f64 = 1.0;
/// Under this share, or with the second nearer than the margin, an answer is unsure.
const SURE: f64 = 0.45;
const MARGIN: f64 = 0.15;

/// A sort of document.
struct Sort {
    label: &'static str,
    /// What such a document calls itself.
    names: &'static [&'static str],
    /// What it often holds and others seldom do.
    hints: &'static [&'static str],
}

/// What is none of these is `other`.
const SORTS: [Sort; 13] = [
    Sort {
        label: "budget",
        names: &["예산안", "예산서", "예산", "budget", "budget proposal", "세입세출"],
        hints: &[
            "세입",
            "세출",
            "편성",
            "집행률",
            "증감",
            "회계연도",
            "appropriation",
            "fiscal year",
            "expenditure",
            "revenue",
        ],
    },
    Sort {
        label: "invoice",
        names: &[
            "청구서",
            "세금계산서",
            "거래명세서",
            "invoice",
            "tax invoice",
            "bill to",
            "영수증",
            "receipt",
        ],
        hints: &[
            "공급가액",
            "부가세",
            "합계금액",
            "입금",
            "계좌",
            "납부기한",
            "due date",
            "subtotal",
            "amount due",
            "vat",
            "payment terms",
        ],
    },
    Sort {
        label: "contract",
        names: &["계약서", "협약서", "약정서", "계약", "agreement", "contract", "nda"],
        hints: &[
            "갑",
            "을은",
            "갑은",
            "당사자",
            "해지",
            "손해배상",
            "준거법",
            "hereby",
            "party",
            "parties",
            "termination",
            "governing law",
            "liability",
            "indemnify",
        ],
    },
    Sort {
        label: "report",
        names: &["보고서", "결과보고", "실적보고", "보고", "report", "annual report", "quarterly report"],
        hints: &[
            "추진 실적",
            "추진실적",
            "현황",
            "향후 계획",
            "시사점",
            "요약",
            "executive summary",
            "findings",
            "highlights",
            "outlook",
        ],
    },
    Sort {
        label: "minutes",
        names: &["회의록", "의사록", "minutes", "meeting minutes", "meeting notes"],
        hints: &[
            "참석자",
            "안건",
            "의결",
            "회의 일시",
            "결정 사항",
            "결정사항",
            "attendees",
            "agenda",
            "action items",
            "adjourned",
            "motion",
        ],
    },
    Sort {
        label: "manual",
        names: &[
            "설명서",
            "매뉴얼",
            "사용자 가이드",
            "가이드",
            "안내서",
            "지침서",
            "manual",
            "user guide",
            "guide",
            "handbook",
            "installation",
        ],
        hints: &[
            "설치",
            "단계",
            "클릭",
            "버튼",
            "주의",
            "실행합니다",
            "step",
            "click",
            "install",
            "press",
            "troubleshooting",
            "warning",
        ],
    },
    Sort {
        label: "policy",
        names: &[
            "규정",
            "방침",
            "정책",
            "내규",
            "규칙",
            "약관",
            "조례",
            "policy",
            "regulation",
            "code of conduct",
            "terms of service",
        ],
        hints: &[
            "제1조",
            "시행일",
            "준수",
            "적용 범위",
            "부칙",
            "위반",
            "must",
            "shall",
            "compliance",
            "scope",
            "violation",
            "effective date",
        ],
    },
    Sort {
        label: "price-list",
        names: &[
            "단가표",
            "가격표",
            "요금표",
            "견적서",
            "price list",
            "quotation",
            "quote",
            "rate card",
            "pricing",
        ],
        hints: &[
            "단가",
            "정가",
            "할인",
            "견적",
            "유효기간",
            "요금제",
            "unit price",
            "discount",
            "sku",
            "per month",
            "list price",
        ],
    },
    Sort {
        label: "statistics",
        names: &[
            "통계",
            "통계표",
            "조사 결과",
            "지표",
            "statistics",
            "survey results",
            "indicators",
            "dataset",
        ],
        hints: &[
            "전년 대비",
            "비율",
            "인구",
            "표본",
            "응답자",
            "증감률",
            "percent",
            "population",
            "respondents",
            "year on year",
            "sample size",
        ],
    },
    Sort {
        label: "form",
        names: &["신청서", "서식", "양식", "신고서", "동의서", "application form", "form", "questionnaire"],
        hints: &[
            "성명",
            "생년월일",
            "주소",
            "연락처",
            "서명",
            "작성자",
            "date of birth",
            "signature",
            "applicant",
            "check one",
            "please print",
        ],
    },
    Sort {
        label: "faq",
        names: &["자주 묻는 질문", "자주묻는질문", "faq", "질의응답", "frequently asked questions", "q&a"],
        hints: &["나요?", "까요?", "질문", "답변", "how do i", "what is", "can i"],
    },
    Sort {
        label: "notice",
        names: &["공고", "공지", "안내문", "알림", "공고문", "notice", "announcement"],
        hints: &[
            "모집",
            "접수 기간",
            "접수기간",
            "제출처",
            "문의처",
            "일시",
            "장소",
            "hereby notified",
            "will be held",
            "please be advised",
            "deadline",
        ],
    },
    Sort {
        label: "research-paper",
        names: &["논문", "연구", "초록", "abstract", "research paper", "thesis"],
        hints: &[
            "선행 연구",
            "가설",
            "실험",
            "연구 방법",
            "참고 문헌",
            "참고문헌",
            "we propose",
            "related work",
            "experiments",
            "references",
            "et al",
            "hypothesis",
        ],
    },
];

/// The labels that [`classify`] knows.
pub fn labels() -> Vec<&'static str> {
    SORTS.iter().map(|sort| sort.label).chain(["other"]).collect()
}

/// The sort of a document by what it says of itself. `name`: that of its file, or nothing.
pub fn classify(name: &str, text: &str) -> Class {
    let text = text.char_indices().nth(CHARS_MAX).map_or(text, |(end, _)| &text[..end]);
    let title_end =
        text.trim_start().char_indices().nth(TITLE_CHARS).map_or(text.trim_start().len(), |(end, _)| end);
    let title = spread(&format!("{name} {}", &text.trim_start()[..title_end]));
    let body = spread(text);
    let held = |word: &str| (1.0 + count(&body, word) as f64).ln().min(2.0);
    let mut weights: Vec<f64> = SORTS
        .iter()
        .map(|sort| {
            let named = sort.names.iter().map(|word| f64::from(u8::from(count(&title, word) > 0)));
            // A longer name holds a shorter one: they do not count twice.
            let named = named.fold(0.0, f64::max) * NAMED;
            let held_names = sort.names.iter().map(|word| held(word)).fold(0.0, f64::max) * HELD;
            named + held_names + HINTED * sort.hints.iter().map(|word| held(word)).sum::<f64>()
        })
        .collect();
    // Where nothing speaks for any sort, nothing speaks for `other` either.
    let silent = weights.iter().all(|weight| *weight == 0.0);
    weights.push(OTHER);
    // Squared, so that one clear sign outweighs many faint ones.
    let sum: f64 = weights.iter().map(|w| w * w).sum();
    let shares: Vec<f32> = weights.iter().map(|w| (w * w / sum) as f32).collect();
    let labels: Vec<String> = labels().into_iter().map(str::to_owned).collect();
    let mut class = answer(&labels, &shares, By::LabelText, SURE);
    class.unsure |= class.margin < MARGIN || silent;
    class
}

/// Lower case, each run of other characters a blank, with a blank at both ends.
fn spread(text: &str) -> String {
    let mut out = String::from(" ");
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() || matches!(c, '?' | '&') {
            out.push(c);
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out.push(' ');
    out
}

/// Korean words stand anywhere, with particles after them; Latin ones stand alone.
fn count(text: &str, word: &str) -> usize {
    if word.is_ascii() { text.matches(&format!(" {word} ")).count() } else { text.matches(word).count() }
}
