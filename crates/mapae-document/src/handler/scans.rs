//! The stage `ocr`: pages without a usable text layer, read by their pictures and put in the place of what they were.
//!
//! It is kept in parts of [`PAGES`] pages, as many at a time as recognition has places: what a killed worker had in
//! hand is all that is done again. That pages cannot be read costs their text, never the document.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use mapae::handler::Context;
use mapae::job::retry::Failure;

use super::{Analyze, failure, request};
use crate::document::{Document, Span, Warning};
use crate::error::{DocumentError, Language};
use crate::ocr::{Installed, Missing, Scan};
use crate::read;
use crate::table::sight::Sight;

/// Pages of a part.
const PAGES: usize = 8;

/// A warning that recognition makes untrue.
const SETTLED: [&str; 2] = ["no-text", "unknown-characters"];

impl Analyze {
    /// Puts what is read on the pages `scans` into the document; answers what was seen on them.
    pub(super) async fn recognise(
        &self,
        ctx: &Context,
        scans: &[u32],
        password: Option<&String>,
        document: &mut Document,
    ) -> Result<Vec<Sight>, Failure> {
        let installed = match self.installed().await {
            Ok(installed) => installed,
            Err((code, why)) => {
                let pages = scans.len();
                let message = format!("Text on the pictures of {pages} pages was not read: {why}.");
                document.warnings.push(Warning::new(code, None, message));
                return Ok(Vec::new());
            }
        };
        let missing = installed.languages_missing();
        if !missing.is_empty() {
            let message = format!("Recognition lacks the data of a language: {}.", missing.join(", "));
            document.warnings.push(Warning::new("ocr-language-missing", None, message));
        }
        let (scans, beyond) = scans.split_at(scans.len().min(self.limits.scans as usize));
        if let Some(first) = beyond.first() {
            let message = "The document has more pages to be read by their pictures than allowed; this one and those after it are left out.";
            document.warnings.push(Warning::new("ocr-limit", Some(*first), message));
        }
        let (done, of) = (AtomicU64::new(0), scans.len() as u64);
        let told = |pages: usize| {
            let done = done.fetch_add(pages as u64, Ordering::Relaxed) + pages as u64;
            ctx.stage_progress("ocr", done, of);
        };
        told(0);
        let parts = (0u32..).zip(scans.chunks(PAGES).map(<[u32]>::to_vec)).map(|(number, pages)| {
            let (installed, told) = (&installed, &told);
            async move {
                let read = ctx.part("ocr", number, || self.part(ctx, &pages, password, installed)).await;
                told(pages.len());
                read
            }
        });
        let read: Vec<Vec<Scan>> = stream::iter(parts).buffered(self.ocr.places()).try_collect().await?;
        Ok(self.replaced(read.into_iter().flatten(), document))
    }

    async fn installed(&self) -> Result<Installed, (&'static str, &'static str)> {
        if self.ocr.is_off() {
            return Err(("ocr-off", "recognition is switched off here"));
        }
        self.reader.recogniser(&self.ocr.tesseract).await.map_err(|missing| match missing {
            Missing::Program => ("ocr-missing", "the program for it, tesseract, is not installed"),
            Missing::Languages => ("ocr-missing", "tesseract has no data for Korean or English"),
        })
    }

    /// Reads some pages, one by one where one of them spoils it for all.
    async fn part(
        &self,
        ctx: &Context,
        pages: &[u32],
        password: Option<&String>,
        by: &Installed,
    ) -> Result<Vec<Scan>, Failure> {
        let _place = tokio::select! {
            place = self.ocr.place() => place,
            () = ctx.stopped() => return Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
        };
        match self.scans(ctx, pages, password, by).await? {
            Ok(scans) => return Ok(scans),
            Err(_) if pages.len() > 1 => {}
            Err(_) => return Ok(Vec::new()),
        }
        let mut scans = Vec::new();
        for page in pages {
            scans
                .extend(self.scans(ctx, std::slice::from_ref(page), password, by).await?.unwrap_or_default());
        }
        Ok(scans)
    }

    /// The inner error is the document's own.
    async fn scans(
        &self,
        ctx: &Context,
        pages: &[u32],
        password: Option<&String>,
        by: &Installed,
    ) -> Result<Result<Vec<Scan>, DocumentError>, Failure> {
        let Some(source) = ctx.job().source.clone() else { return Ok(Ok(Vec::new())) };
        let file = ctx.source().await?;
        let request = request(source, password, Span::ALL);
        tokio::select! {
            read = self.reader.scans(file, request, pages, by, &self.limits) => match read {
                Err(error) if !error.is_terminal() => Err(failure(error, Language::English)),
                read => Ok(read),
            },
            () = ctx.stopped() => Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
        }
    }

    /// Pages whose pictures have text take their places in the document.
    fn replaced(&self, read: impl Iterator<Item = Scan>, document: &mut Document) -> Vec<Sight> {
        let pages = document.pages.get_or_insert_default();
        let mut text_left = self.limits.text_bytes.saturating_sub(document.text.len() as u64);
        let mut sights = Vec::new();
        for scan in read {
            document.warnings.extend(scan.warnings);
            let Ok(at) = pages.binary_search_by_key(&scan.page.number, |page| page.number) else { continue };
            let Some(left) = text_left.checked_sub(scan.page.text.len() as u64) else { continue };
            // A picture that shows less than the page says has nothing to add.
            let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).count();
            if letters(&scan.page.text) <= letters(&pages[at].text) {
                continue;
            }
            text_left = left;
            let number = scan.page.number;
            let settled = |w: &Warning| w.page == Some(number) && SETTLED.contains(&w.code.as_str());
            document.warnings.retain(|warning| !settled(warning));
            pages[at] = scan.page;
            sights.push(scan.sight);
        }
        document.text = read::joined(pages);
        document.language = mapae_ai::language::of(&document.text).map(str::to_owned);
        sights
    }
}
