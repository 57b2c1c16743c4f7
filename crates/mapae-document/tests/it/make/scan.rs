//! Pages as a scanner gives them: drawn, and put into files as nothing but pixels.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use hayro::hayro_interpret::font::{FontData, FontQuery};
use hayro::hayro_interpret::{InterpreterSettings, hayro_syntax::Pdf};
use hayro::vello_cpu::color::palette::css::WHITE;
use hayro::{PixmapSettings, RenderCache, RenderSettings, render};
use image::{DynamicImage, GrayImage, ImageFormat, Luma};

/// Dots an inch of a usual scan.
pub(crate) const DPI: f64 = 200.0;

/// A page of a PDF, drawn; Hangul by a font of this machine, because samples have none of their own.
pub(crate) fn drawn(pdf: &[u8], page: usize) -> GrayImage {
    let pdf = Pdf::new(Arc::new(pdf.to_vec())).unwrap();
    let usual = InterpreterSettings::default();
    let resolve = usual.font_resolver.clone();
    let settings = InterpreterSettings {
        font_resolver: Arc::new(move |query| match query {
            FontQuery::Fallback(font) if font.character_collection.is_some() => Some((hangul(), 0)),
            query => resolve(query),
        }),
        ..usual
    };
    let scale = (DPI / 72.0) as f32;
    let size = PixmapSettings { x_scale: scale, y_scale: scale, bg_color: WHITE };
    let drawn = render(&pdf.pages()[page], &RenderCache::new(), &settings, &RenderSettings::default(), &size);
    let grey = drawn.data().iter().map(|p| ((u32::from(p.r) + u32::from(p.g) + u32::from(p.b)) / 3) as u8);
    GrayImage::from_raw(drawn.width().into(), drawn.height().into(), grey.collect()).unwrap()
}

fn hangul() -> FontData {
    static FONT: OnceLock<Arc<Vec<u8>>> = OnceLock::new();
    let read = || std::fs::read("/usr/share/fonts/truetype/nanum/NanumGothic.ttf").map(Arc::new);
    FONT.get_or_init(|| read().expect("the package fonts-nanum is installed, as `cargo xtask test` does"))
        .clone()
}

/// A PDF whose pages are these pictures.
pub(crate) fn scanned(pictures: &[GrayImage]) -> Vec<u8> {
    stamped(pictures, "")
}

/// The same, with further content on each page.
pub(crate) fn stamped(pictures: &[GrayImage], stamp: &str) -> Vec<u8> {
    let points = |pixels: u32| f64::from(pixels) * 72.0 / DPI;
    let kids: String = (0..pictures.len()).map(|n| format!("{} 0 R ", 3 + 3 * n)).collect();
    let mut objects = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", pictures.len()).into_bytes(),
    ];
    for (n, picture) in pictures.iter().enumerate() {
        let (w, h) = (points(picture.width()), points(picture.height()));
        let (content, image) = (4 + 3 * n, 5 + 3 * n);
        objects.push(
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {w} {h}] /Contents {content} 0 R \
                 /Resources << /XObject << /X {image} 0 R >> /Font << {} >> >> >>",
                super::HELVETICA
            )
            .into_bytes(),
        );
        objects.push(super::stream("", format!("q {w} 0 0 {h} 0 0 cm /X Do Q {stamp}").as_bytes()));
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(picture).unwrap();
        let entries = format!(
            "/Type /XObject /Subtype /Image /Width {} /Height {} /ColorSpace /DeviceGray /BitsPerComponent 8 \
             /Filter /FlateDecode",
            picture.width(),
            picture.height()
        );
        objects.push(super::stream(&entries, &packer.finish().unwrap()));
    }
    super::file((1..).zip(objects).collect(), "")
}

/// The picture as a file of this format.
pub(crate) fn saved(picture: &GrayImage, format: ImageFormat) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    DynamicImage::from(picture.clone()).write_to(&mut file, format).unwrap();
    file.into_inner()
}

/// As it comes out of a scanner in which it lay askew: its lines fall by `slope`.
pub(crate) fn skewed(picture: &GrayImage, slope: f64) -> GrayImage {
    let (width, height) = picture.dimensions();
    let (sin, cos) = slope.atan().sin_cos();
    let (cx, cy) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
    GrayImage::from_fn(width, height, |x, y| {
        let (dx, dy) = (f64::from(x) - cx, f64::from(y) - cy);
        let (u, v) = (dx * cos + dy * sin + cx, dy * cos - dx * sin + cy);
        if u < 0.0 || v < 0.0 {
            return Luma([255]);
        }
        *picture.get_pixel_checked(u as u32, v as u32).unwrap_or(&Luma([255]))
    })
}
