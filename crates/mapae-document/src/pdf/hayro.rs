//! The parser: `hayro-interpret`, pure Rust, pinned because it is young.
//!
//! Its known defects and what is done about them: it cannot be stopped (the device leaves by unwinding), it
//! announces filled and stroked text twice (lines drop what is printed twice), it inflates whatever a stream
//! asks for (bombs are spoilt before), it loses step at a code its character map does not have (the
//! Korean maps are given without holes), and it ends broken pages silently.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hayro_interpret::hayro_syntax::Pdf;
use hayro_interpret::hayro_syntax::page::{Page, Rotation};
use hayro_interpret::hayro_syntax::{DecryptionError, LoadPdfError};
use hayro_interpret::kurbo::{Affine, Rect};
use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, interpret_page};

use super::glyphs::{BudgetSpent, GlyphDevice};
use super::unicode::ReverseCmaps;
use super::{Cut, PageContent, PdfBackend, cmaps, picture};
use crate::document::Span;
use crate::error::DocumentError;
use crate::limits::Limits;
use crate::ocr::{Picture, Pose};
use crate::spent::Deadline;

pub(super) struct Hayro(Pdf);

impl PdfBackend for Hayro {
    fn open(data: Vec<u8>, password: Option<&str>) -> Result<Self, DocumentError> {
        let data = Arc::new(data);
        let given = password.filter(|password| !password.is_empty());
        let opened = match given.map(|password| Pdf::new_with_password(data.clone(), password)) {
            // A password given for many files must not close one that has none.
            None | Some(Err(_)) => Pdf::new(data),
            Some(Ok(pdf)) => Ok(pdf),
        };
        opened.map(Self).map_err(|error| match error {
            LoadPdfError::Decryption(DecryptionError::PasswordProtected) => match given {
                None => DocumentError::Encrypted,
                Some(_) => DocumentError::PasswordWrong,
            },
            LoadPdfError::Decryption(DecryptionError::UnsupportedAlgorithm) => {
                DocumentError::EncryptionUnsupported
            }
            LoadPdfError::Decryption(_) | LoadPdfError::Invalid => DocumentError::Damaged,
        })
    }

    fn page_count(&self) -> u32 {
        u32::try_from(self.0.pages().len()).unwrap_or(u32::MAX)
    }

    fn pages(&self, span: Span, limits: &Limits, each: &mut dyn FnMut(PageContent) -> bool) {
        let mut cache = InterpreterCache::new();
        let mut reverse = ReverseCmaps::default();
        let deadline = Deadline::of(limits);
        let pages = self.0.pages().iter().zip(1u32..).skip(span.first.saturating_sub(1) as usize);
        for (page, number) in pages.take_while(|(_, number)| span.is_before_end(*number)) {
            let area = page.intersected_crop_box();
            let (width, height) = page.base_dimensions();
            let area = if area.width() < 1.0 || area.height() < 1.0 {
                Rect::new(0.0, 0.0, f64::from(width), f64::from(height))
            } else {
                Rect::new(area.x0, area.y0, area.x1, area.y1)
            };
            let mut device = GlyphDevice::new(area, limits.page_operations, deadline, &mut reverse);
            // A page whose time has passed is still told of.
            let cut = match deadline.is_over() {
                true => Some(Cut::Budget),
                false => self.draw(page, area, &cache, &mut device),
            };
            let (drawn, covered) = (device.drawn, device.covered);
            let (glyphs, marks) = (device.page, device.marks);
            if cut.is_some() {
                // An interrupted interpreter may have left the cache half done.
                cache = InterpreterCache::new();
            }
            let content = PageContent {
                number,
                width: f64::from(width),
                height: f64::from(height),
                rotation: rotation(page.rotation()),
                origin: (area.x0, area.y0),
                glyphs,
                marks,
                drawn,
                covered,
                cut,
            };
            if !each(content) {
                break;
            }
        }
    }

    fn picture(&self, number: u32) -> Option<(Picture, Pose)> {
        let page = self.0.pages().get(number.checked_sub(1)? as usize)?;
        picture::draw(page, rotation(page.rotation()), &settings())
    }
}

fn settings() -> InterpreterSettings {
    InterpreterSettings { cmap_resolver: Arc::new(cmaps::resolve), ..InterpreterSettings::default() }
}

impl Hayro {
    fn draw<'a>(
        &'a self,
        page: &Page<'a>,
        area: Rect,
        cache: &InterpreterCache<'a>,
        device: &mut GlyphDevice<'_>,
    ) -> Option<Cut> {
        let drawn = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::new(Affine::IDENTITY, area, cache, self.0.xref(), settings());
            interpret_page(page, &mut context, device);
        }));
        match drawn {
            Ok(()) => None,
            Err(payload) if payload.is::<BudgetSpent>() => Some(Cut::Budget),
            Err(_) => Some(Cut::Broken),
        }
    }
}

fn rotation(rotation: Rotation) -> u16 {
    match rotation {
        Rotation::None => 0,
        Rotation::Horizontal => 90,
        Rotation::Flipped => 180,
        Rotation::FlippedHorizontal => 270,
    }
}
