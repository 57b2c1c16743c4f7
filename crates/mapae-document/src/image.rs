//! Files that are pictures: a page each.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, ImageDecoder, ImageReader, Limits as Memory, imageops};

use crate::document::Page;
use crate::error::{DocumentError, Excess};
use crate::ocr::{DPI, PIXELS_MAX, Picture, Pose};

/// Memory for the pixels of a file, bytes.
const MEMORY_BYTES: u64 = 400 * 1024 * 1024;
/// The longer side of the sheet a picture is taken for, points: A4. Few files say truly how large they are.
const SHEET: f64 = 842.0;
/// How many times a small picture is enlarged at most: recognition wants letters of some size, not none of them.
const ENLARGED_MAX: f64 = 3.0;

/// Size of the page that a picture is, points, after what the camera says of its orientation.
pub(crate) fn page(data: &[u8], pixels_max: u64) -> Result<Page, DocumentError> {
    let mut decoder = decoder(data, pixels_max)?;
    let (mut width, mut height) = decoder.dimensions();
    if turns_sides(decoder.orientation().unwrap_or(Orientation::NoTransforms)) {
        (width, height) = (height, width);
    }
    let scale = scale(width, height);
    let (width, height) = (f64::from(width) * scale, f64::from(height) * scale);
    Ok(Page { number: 1, width, height, rotation: 0, text: String::new(), ocr: false })
}

/// The picture in the size in which it is read.
pub(crate) fn picture(data: &[u8], pixels_max: u64) -> Result<(Picture, Pose), DocumentError> {
    let mut decoder = decoder(data, pixels_max)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let decoded = DynamicImage::from_decoder(decoder).map_err(|_| DocumentError::Damaged)?;
    let mut decoded = DynamicImage::from(on_white(decoded));
    decoded.apply_orientation(orientation);
    let grey = decoded.into_luma8();
    let points = scale(grey.width(), grey.height());
    let page = (f64::from(grey.width()) * points, f64::from(grey.height()) * points);
    let wanted = points * f64::from(DPI) / 72.0;
    let most = (PIXELS_MAX as f64 / (f64::from(grey.width()) * f64::from(grey.height()))).sqrt();
    let factor = wanted.min(ENLARGED_MAX).min(most);
    let grey = sized(grey, factor);
    let pose = Pose { scale: page.0 / f64::from(grey.width()), page, rotation: 0 };
    let (width, height) = grey.dimensions();
    Ok((Picture { width, height, grey: grey.into_raw() }, pose))
}

fn decoder(data: &[u8], pixels_max: u64) -> Result<impl ImageDecoder + '_, DocumentError> {
    let mut reader =
        ImageReader::new(Cursor::new(data)).with_guessed_format().map_err(|_| DocumentError::Damaged)?;
    let mut memory = Memory::default();
    memory.max_alloc = Some(MEMORY_BYTES);
    reader.limits(memory);
    let decoder = reader.into_decoder().map_err(|_| DocumentError::Damaged)?;
    let (width, height) = decoder.dimensions();
    match u64::from(width) * u64::from(height) {
        0 => Err(DocumentError::Damaged),
        pixels if pixels > pixels_max || decoder.total_bytes() > MEMORY_BYTES => {
            Err(DocumentError::TooLarge(Excess::Pixels))
        }
        _ => Ok(decoder),
    }
}

fn turns_sides(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// Points of a pixel.
fn scale(width: u32, height: u32) -> f64 {
    // A picture of few pixels is a small part of a screen rather than a coarse sheet.
    (SHEET / f64::from(width.max(height))).min(0.75)
}

/// Grey, with paper behind what is transparent.
fn on_white(decoded: DynamicImage) -> GrayImage {
    if !decoded.color().has_alpha() {
        return decoded.into_luma8();
    }
    let mut grey = decoded.into_luma_alpha8();
    for pixel in grey.pixels_mut() {
        let [l, a] = pixel.0.map(u32::from);
        pixel.0[0] = ((l * a + 255 * (255 - a)) / 255) as u8;
    }
    GrayImage::from_fn(grey.width(), grey.height(), |x, y| image::Luma([grey.get_pixel(x, y).0[0]]))
}

fn sized(grey: GrayImage, factor: f64) -> GrayImage {
    if (factor - 1.0).abs() < 0.1 {
        return grey;
    }
    let side = |pixels: u32| ((f64::from(pixels) * factor).round() as u32).max(1);
    imageops::resize(&grey, side(grey.width()), side(grey.height()), imageops::FilterType::Triangle)
}
