//! Documents of many pages are read and kept [`PAGES`] at a time, each time in a child of its own: what a killed worker
//! had in hand is all that is done again, and no child holds more than that.

use mapae::handler::Context;
use mapae::job::retry::Failure;

use super::Analyze;
use crate::document::{Converted, PageTables, Span, Warning};
use crate::error::Language;
use crate::pdf::TEXT_LIMIT;
use crate::read;
use crate::table::document::CELLS_LIMIT;
use crate::table::sight::Sight;

/// Pages of a part. A child that opens the file again costs about as much as one page of it.
pub(super) const PAGES: usize = 100;

/// The spans of a document of so many pages.
fn spans(pages: usize) -> impl Iterator<Item = (u32, Span)> {
    (0..)
        .zip((0..pages).step_by(PAGES))
        .map(|(number, before)| (number, Span { first: before as u32 + 1, count: PAGES as u32 }))
}

impl Analyze {
    /// The stage `convert`. Its first part is all of it where the document is not long.
    pub(super) async fn converted(
        &self,
        ctx: &Context,
        password: Option<&String>,
        language: Language,
    ) -> Result<Converted, Failure> {
        let first = Span { first: 1, count: PAGES as u32 };
        let mut whole = ctx.stage("convert", || self.convert(ctx, password, first, language)).await?;
        let total = whole.pages_total.unwrap_or(0) as usize;
        let Some(pages) = whole.document.pages.as_mut().filter(|_| total > PAGES) else { return Ok(whole) };
        for (number, span) in spans(total).skip(1) {
            ctx.stage_progress("convert", u64::from(span.first) - 1, total as u64);
            let work = || async {
                let mut part = self.convert(ctx, password, span, language).await?;
                // Their text is in the pages.
                part.document.text.clear();
                Ok(part)
            };
            let part = ctx.part("convert", number, work).await?;
            pages.extend(part.document.pages.unwrap_or_default());
            whole.document.warnings.extend(part.document.warnings);
            whole.scans.extend(part.scans);
        }
        let mut left = self.limits.text_bytes;
        let fits = pages.iter().take_while(|page| match left.checked_sub(page.text.len() as u64) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        let fits = fits.count();
        if let Some(page) = pages.get(fits).filter(|_| fits < pages.len()) {
            whole.document.warnings.push(Warning::new("text-limit", Some(page.number), TEXT_LIMIT));
            pages.truncate(fits);
        }
        whole.document.text = read::joined(pages);
        whole.document.language = mapae_ai::language::of(&whole.document.text).map(str::to_owned);
        Ok(whole)
    }

    /// The stage `tables` of a long document.
    pub(super) async fn tables_in_parts(
        &self,
        ctx: &Context,
        password: Option<&String>,
        scans: &[Sight],
        pages: usize,
    ) -> Result<PageTables, Failure> {
        let mut whole = PageTables::default();
        let mut left = self.limits.cells;
        for (number, span) in spans(pages) {
            ctx.stage_progress("tables", u64::from(span.first) - 1, pages as u64);
            // The page before is looked at as well, for what goes on from it.
            let near = |scan: &&Sight| scan.page + 1 >= span.first && span.is_before_end(scan.page);
            let scans: Vec<Sight> = scans.iter().filter(near).cloned().collect();
            let part = ctx.part("tables", number, || self.tables(ctx, password, &scans, span)).await?;
            let before = whole.tables.len() as u32;
            whole.warnings.extend(part.warnings);
            for mut table in part.tables {
                let Some(rest) = left.checked_sub(table.cells.len() as u64) else {
                    whole.warnings.push(Warning::new("tables-limit", table.page, CELLS_LIMIT));
                    return Ok(whole);
                };
                left = rest;
                table.id += before;
                // Nothing before: the first part has nothing to continue.
                table.continues = table.continues.map(|id| id + before).filter(|id| *id > 0);
                whole.tables.push(table);
            }
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_hold_every_page_once() {
        let firsts: Vec<u32> = spans(250).map(|(_, span)| span.first).collect();
        assert_eq!(firsts, [1, 101, 201]);
        let span = Span { first: 101, count: 100 };
        assert!(span.is_before_end(200) && !span.is_before_end(201));
        assert!(Span::ALL.is_before_end(2_000));
    }
}
