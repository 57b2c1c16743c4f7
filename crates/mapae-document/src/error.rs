//! Why a document could not be read: stable codes, a sentence in Korean and English, never its content.

use serde::{Deserialize, Serialize};

/// The language of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Korean,
    English,
}

/// What was too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Excess {
    File,
    Pages,
    Sheets,
    Cells,
    /// One string, or one piece of markup.
    String,
    /// Pixels of a picture.
    Pixels,
    /// The unpacked content of a compressed file.
    Unpacked,
    Memory,
    Output,
}

/// Why a document could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "code", content = "what", rename_all = "kebab-case")]
pub enum DocumentError {
    #[error("{}", self.message(Language::English))]
    Encrypted,
    #[error("{}", self.message(Language::English))]
    PasswordWrong,
    #[error("{}", self.message(Language::English))]
    EncryptionUnsupported,
    #[error("{}", self.message(Language::English))]
    Damaged,
    #[error("{}", self.message(Language::English))]
    Empty,
    #[error("{}", self.message(Language::English))]
    Unsupported,
    /// A known format in a form that its programs gave up long ago (HWP 3, Excel before 97).
    #[error("{}", self.message(Language::English))]
    FormatOld,
    #[error("{}", self.message(Language::English))]
    Mismatch,
    #[error("{}", self.message(Language::English))]
    TooLarge(Excess),
    #[error("{}", self.message(Language::English))]
    TooSlow,
    #[error("{}", self.message(Language::English))]
    Crashed,
    /// The reader was killed for trying what no reader does: the document has taken it over, or tried to.
    #[error("{}", self.message(Language::English))]
    Forbidden,
    /// The reader itself could not be run here; the document was not judged.
    #[error("{}", self.message(Language::English))]
    Unavailable,
}

/// How a reader was lost: the class under which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Crash,
    Timeout,
    Memory,
    /// It was taken over, or tried to be.
    Forbidden,
}

impl Loss {
    /// The class as it is written in metrics.
    pub fn class(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Forbidden => "forbidden",
        }
    }

    /// Whether a cheaper reading may do. What attacked once is not given a second try.
    pub fn may_be_read_cheaply(self) -> bool {
        self != Self::Forbidden
    }
}

impl DocumentError {
    /// How the reader was lost; `None` where it lived and said itself what was wrong.
    pub fn loss(&self) -> Option<Loss> {
        match self {
            Self::Crashed => Some(Loss::Crash),
            Self::TooSlow => Some(Loss::Timeout),
            Self::TooLarge(Excess::Memory) => Some(Loss::Memory),
            Self::Forbidden => Some(Loss::Forbidden),
            _ => None,
        }
    }

    /// The stable code, the same in every version and language.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Encrypted => "document-encrypted",
            Self::PasswordWrong => "document-password-wrong",
            Self::EncryptionUnsupported => "document-encryption-unsupported",
            Self::Damaged => "document-damaged",
            Self::Empty => "document-empty",
            Self::Unsupported => "document-unsupported",
            Self::FormatOld => "document-format-old",
            Self::Mismatch => "document-mismatch",
            Self::TooLarge(_) => "document-too-large",
            Self::TooSlow => "document-too-slow",
            Self::Crashed => "document-crashed",
            Self::Forbidden => "document-forbidden",
            Self::Unavailable => "document-reader-unavailable",
        }
    }

    /// Whether trying the same file again cannot help. Only a reader that could not be started is worth it.
    pub fn is_terminal(&self) -> bool {
        !matches!(self, Self::Unavailable)
    }

    /// One sentence on what is wrong and one on what to do.
    pub fn message(&self, language: Language) -> &'static str {
        let (korean, english) = self.messages();
        match language {
            Language::Korean => korean,
            Language::English => english,
        }
    }

    fn messages(&self) -> (&'static str, &'static str) {
        match self {
            Self::Encrypted => (
                "암호로 보호된 문서입니다. 암호를 함께 보내 주세요.",
                "The document is protected by a password. Send the password with it.",
            ),
            Self::PasswordWrong => (
                "암호가 맞지 않습니다. 암호를 확인한 뒤 다시 보내 주세요.",
                "The password does not open the document. Check it and send it again.",
            ),
            Self::EncryptionUnsupported => (
                "지원하지 않는 방식으로 암호화된 문서입니다. 암호를 해제해 저장한 뒤 다시 보내 주세요.",
                "The document is encrypted in a way that cannot be opened here. Save it without protection and send it again.",
            ),
            Self::Damaged => (
                "문서가 손상되어 읽을 수 없습니다. 원본 프로그램에서 다시 저장해 보내 주세요.",
                "The document is damaged and cannot be read. Save it again in the program it came from.",
            ),
            Self::Empty => {
                ("빈 파일입니다. 올린 파일을 확인해 주세요.", "The file is empty. Check what was uploaded.")
            }
            Self::Unsupported => (
                "지원하지 않는 파일 형식입니다. PDF, HWP, HWPX, DOCX, PPTX, XLSX, XLS, XLSB, ODS, CSV, HTML, MD, TXT, PNG, JPEG, TIFF, WEBP 파일을 보내 주세요.",
                "This kind of file is not supported. Send a PDF, HWP, HWPX, DOCX, PPTX, XLSX, XLS, XLSB, ODS, CSV, HTML, MD, TXT, PNG, JPEG, TIFF or WEBP file.",
            ),
            Self::FormatOld => (
                "예전 형식(한글 3.0, 엑셀 95 이전)의 문서입니다. 지금 쓰는 프로그램에서 HWPX, HWP 5.0, XLSX 등으로 다시 저장해 보내 주세요.",
                "The document is in an old form of its format (HWP 3, Excel before 97). Save it with a program of today, as HWPX, HWP 5 or XLSX.",
            ),
            Self::Mismatch => (
                "파일 확장자와 실제 내용이 다릅니다. 올바른 확장자로 저장해 다시 보내 주세요.",
                "The file's content is not what its extension says. Save it under the right extension.",
            ),
            Self::TooLarge(excess) => excess.messages(),
            Self::TooSlow => (
                "정해진 시간 안에 문서를 읽지 못했습니다. 문서를 나누어 보내 주세요.",
                "The document could not be read in the time allowed. Split it into smaller documents.",
            ),
            Self::Crashed => (
                "문서를 읽는 도중 판독기가 멈추었습니다. 문서가 손상되었을 수 있으니 다시 저장해 보내 주세요.",
                "The reader broke down on this document. It is probably damaged; save it again and retry with that.",
            ),
            Self::Forbidden => (
                "이 문서를 읽던 판독기가 허용되지 않은 동작을 시도하여 중단시켰습니다. 공격용 파일일 수 있으니 출처를 확인해 주세요.",
                "The reader of the document tried to do what no reader may and was stopped. The file may be an attack; check where it came from.",
            ),
            Self::Unavailable => (
                "지금은 문서를 읽을 수 없습니다. 잠시 후 다시 시도합니다.",
                "The document cannot be read right now. It will be tried again.",
            ),
        }
    }
}

impl Excess {
    fn messages(self) -> (&'static str, &'static str) {
        match self {
            Self::File => (
                "파일이 허용된 크기보다 큽니다. 파일을 나누어 보내 주세요.",
                "The file is larger than allowed. Split it into smaller files.",
            ),
            Self::Pages => (
                "쪽수가 허용된 수보다 많습니다. 문서를 나누어 보내 주세요.",
                "The document has more pages than allowed. Split it into smaller documents.",
            ),
            Self::Sheets => (
                "시트 수가 허용된 수보다 많습니다. 파일을 나누어 보내 주세요.",
                "The workbook has more sheets than allowed. Split it into smaller workbooks.",
            ),
            Self::Cells => (
                "셀 수가 허용된 수보다 많습니다. 파일을 나누어 보내 주세요.",
                "The document has more table cells than allowed. Split it into smaller documents.",
            ),
            Self::String => (
                "셀 하나의 내용이 허용된 길이보다 깁니다. 내용을 나누어 다시 저장해 주세요.",
                "A single cell or element is longer than allowed. Shorten it and save the file again.",
            ),
            Self::Pixels => (
                "그림의 픽셀 수가 허용된 것보다 많습니다. 해상도를 낮추어 보내 주세요.",
                "The picture has more pixels than allowed. Send it in a lower resolution.",
            ),
            Self::Unpacked => (
                "압축을 풀면 허용된 크기보다 커지는 파일입니다. 파일을 나누어 보내 주세요.",
                "The file unpacks to more than is allowed. Split it into smaller files.",
            ),
            Self::Memory => (
                "문서를 읽는 데 허용된 것보다 많은 메모리가 필요합니다. 문서를 나누어 보내 주세요.",
                "Reading the document takes more memory than allowed. Split it into smaller documents.",
            ),
            Self::Output => (
                "분석 결과가 허용된 크기보다 큽니다. 문서를 나누어 보내 주세요.",
                "The result is larger than allowed. Split the document into smaller ones.",
            ),
        }
    }
}
