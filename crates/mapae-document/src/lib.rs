//! PDF, spreadsheet and text documents to pages, sheets, tables and text, each read in a child process of its own.
//!
//! Documents come from strangers and the parsers of their formats are large, so nothing is parsed in the
//! process that serves others. In reading order:
//!
//! - [`document`]: what a document turns into, the model of `document.json`
//! - [`limits`], [`error`]: how much it may take, and why it could not be read
//! - [`child`]: the road of a caller: a file in, a document or an error out
//! - [`detect`]: what a file is, by its bytes and its name
//! - `read`: bytes to document, inside the child;  `decrypt`: documents with a password;  `archive`, `xml`: what
//!   formats are made of;  `bombs`, `spent`: what would take too much, and when time is up;  `pdf`, `sheet`, and those that `flow`: `hwp`, `hwpx`, `docx`, `pptx`, `html`,
//!   `markdown`: the formats
//! - [`ocr`]: text on pictures, by a program beside this one;  `image`: files that are pictures
//! - [`table`]: words and rules of a page to its tables
//! - [`output`]: the folder that `mapae analyze` writes
//! - [`understand`]: class, keywords and intents, by whatever the caller has for them
//! - [`handler`]: the kind `document.analyze`, which does all of this as a job

pub mod child;
pub mod detect;
pub mod document;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod handler;
pub mod limits;
pub mod ocr;
pub mod output;
pub mod table;
pub mod understand;

mod archive;
mod bombs;
mod decrypt;
mod docx;
mod flow;
mod html;
mod hwp;
mod hwpx;
mod image;
mod markdown;
mod pdf;
mod pptx;
mod read;
mod sheet;
mod spent;
mod xml;
