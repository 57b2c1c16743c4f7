//! Text on pictures: pages without a text layer, and files that are pictures.
//!
//! ```text
//! child  ─ skew: the page drawn, or the file decoded, made level; grey, bounded ─► parent ─► tesseract, a process a page
//!        ◄─ its words with their boxes ──────────────────────────────────
//!        ─ words, straight: pieces to words, which way the page lies, words to lines;  rules: ruling lines
//!        ─ scan: the same lines, text and sight of a page as a text layer would have given
//! ```
//!
//! Whatever is parsed is parsed in the child: the program that recognises is given nothing but grey pixels, and
//! what it says is read by the child.

mod picture;
mod rules;
mod scan;
mod skew;
mod straight;
mod tesseract;
mod words;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::document::{Page, Warning};
use crate::error::DocumentError;
use crate::table::sight::Sight;

pub(crate) use picture::{DPI, PIXELS_MAX, Picture, Pose, dpi_for};
pub(crate) use scan::scan;
pub(crate) use tesseract::{DATA, PAGE_WALL};
pub use tesseract::{Installed, Missing, Tesseract};

/// Bytes of a picture: its pixels, and room for what stands before them.
pub(crate) const PICTURE_BYTES_MAX: u64 = PIXELS_MAX + 64;

/// Has a picture read: what the recogniser says about it, nothing where it failed.
pub(crate) type Ask<'a> = dyn FnMut(&[u8]) -> Result<Vec<u8>, DocumentError> + 'a;

/// A page as recognition reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scan {
    pub page: Page,
    pub sight: Sight,
    /// 0 to 100, over its words; 0 without any.
    pub confidence: f64,
    pub warnings: Vec<Warning>,
}

/// Recognition in one process: by what, and how many pages at a time.
#[derive(Clone)]
pub struct Ocr {
    pub tesseract: Tesseract,
    places: usize,
    free: Arc<Semaphore>,
}

impl Default for Ocr {
    /// A place for each processor.
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Ocr {
    /// No more than `places` pages are read at the same time; with none, none is ever read.
    pub fn new(places: usize) -> Self {
        let places = places.min(Semaphore::MAX_PERMITS);
        Self { tesseract: Tesseract::default(), places, free: Arc::new(Semaphore::new(places)) }
    }

    /// Whether nothing is to be read.
    pub fn is_off(&self) -> bool {
        self.places == 0
    }

    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// A place, once there is one.
    pub(crate) async fn place(&self) -> OwnedSemaphorePermit {
        self.free.clone().acquire_owned().await.expect("the places are never closed")
    }
}
