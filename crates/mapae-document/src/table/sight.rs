//! What is seen on a page: words, rules and shades, all in PDF points from the bottom left of the page before
//! its rotation, whatever file they came from.

use serde::{Deserialize, Serialize};

/// Left, bottom, right, top.
pub type Box = [f64; 4];

/// Share of the size that a word reaches above its baseline.
pub const ASCENT: f64 = 0.75;
/// Share of the size that a word reaches below its baseline.
pub const DESCENT: f64 = 0.21;

/// A page as the extraction of tables takes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sight {
    /// Counts from 1.
    pub page: u32,
    pub width: f64,
    pub height: f64,
    /// Clockwise, one of 0, 90, 180 and 270.
    pub rotation: u16,
    pub words: Vec<Word>,
    /// Level and upright lines, with their thickness.
    pub rules: Vec<Box>,
    /// Coloured rectangles.
    pub fills: Vec<Box>,
}

/// A word and where it stands. Across its reading direction the box reaches from [`DESCENT`] below the
/// baseline to [`ASCENT`] above it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Word {
    pub text: String,
    pub bbox: Box,
    /// Font size, points.
    pub size: f64,
    pub turn: Turn,
}

/// Which way a word is read on the page as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    /// To the right.
    #[default]
    Level,
    /// From the bottom up.
    Up,
    /// Upside down.
    Over,
    /// From the top down.
    Down,
}
