//! Drawing a page for recognition.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hayro::vello_cpu::color::palette::css::WHITE;
use hayro::{PixmapSettings, RenderCache, RenderSettings, render};
use hayro_interpret::InterpreterSettings;
use hayro_interpret::hayro_syntax::page::Page;

use crate::ocr::{Picture, Pose, dpi_for};

/// The page as it is shown, in grey; `None` where drawing breaks down.
pub(super) fn draw(
    page: &Page<'_>,
    rotation: u16,
    settings: &InterpreterSettings,
) -> Option<(Picture, Pose)> {
    let (width, height) = page.base_dimensions();
    let (width, height) = (f64::from(width), f64::from(height));
    let scale = dpi_for(width, height) / 72.0;
    let pixmap = PixmapSettings { x_scale: scale as f32, y_scale: scale as f32, bg_color: WHITE };
    // The cache may be left half done by a page that breaks down, so each has its own.
    let drawn = catch_unwind(AssertUnwindSafe(|| {
        render(page, &RenderCache::new(), settings, &RenderSettings::default(), &pixmap)
    }));
    let drawn = drawn.ok()?;
    let grey = drawn.data().iter().map(|p| luma(p.r, p.g, p.b)).collect();
    let picture = Picture { width: drawn.width().into(), height: drawn.height().into(), grey };
    Some((picture, Pose { scale: 1.0 / scale, page: (width, height), rotation }))
}

/// Lightness as televisions take it.
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 77 + u32::from(g) * 150 + u32::from(b) * 29) >> 8) as u8
}
