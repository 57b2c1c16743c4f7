//! The pack of the Korean dictionary, out of MeCab's compiled files.
//!
//! What is left out: readings, meanings and decompositions, of which most of the original's 100 MB are. What is
//! kept is all that decides how a text is cut and what its pieces are.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::json;

use crate::darts::Darts;
use crate::{Failure, Made, Source, Wheel, member};

pub(crate) const SOURCE: Source = Source {
    id: "mecab-ko-dic/2.1.1",
    purpose: "korean",
    package: "python-mecab-ko-dic 2.1.1.post2",
    file: "python_mecab_ko_dic-2.1.1.post2-py3-none-any.whl",
    sha256: "ef8f4e80c8976f1340a7264abb0c96f384fe059fd897584aeba0151753c6ae9b",
};

const FOLDER: &str = "mecab_ko_dic/dictionary";

/// A word class as the lattice knows it: left and right context, cost after a blank, part of speech.
type Class = [u16; 4];

#[derive(Default)]
struct Classes {
    numbers: HashMap<Class, u16>,
    list: Vec<Class>,
    tags: Vec<String>,
}

impl Classes {
    fn number(&mut self, token: &Token, penalties: &HashMap<u16, u16>) -> Result<u16, Failure> {
        let tag = token.feature.split(',').next().unwrap_or_default();
        let tag = match self.tags.iter().position(|known| known == tag) {
            Some(number) => number,
            None => {
                self.tags.push(tag.to_owned());
                self.tags.len() - 1
            }
        };
        let blank = penalties.get(&token.posid).copied().unwrap_or_default();
        let class = [token.left, token.right, blank, u16::try_from(tag)?];
        if let Some(number) = self.numbers.get(&class) {
            return Ok(*number);
        }
        let number = u16::try_from(self.list.len())?;
        self.numbers.insert(class, number);
        self.list.push(class);
        Ok(number)
    }
}

struct Token<'d> {
    left: u16,
    right: u16,
    posid: u16,
    cost: i16,
    feature: &'d str,
}

/// One of MeCab's compiled dictionaries.
struct Compiled<'d> {
    darts: Darts<'d>,
    tokens: &'d [u8],
    features: &'d [u8],
}

impl<'d> Compiled<'d> {
    fn new(data: &'d [u8]) -> Result<Self, Failure> {
        let number = |at: usize| -> Result<usize, Failure> {
            Ok(u32::from_le_bytes(data.get(at..at + 4).ok_or("a dictionary is cut off")?.try_into()?)
                as usize)
        };
        let (darts, tokens, features) = (number(24)?, number(28)?, number(32)?);
        let part =
            |from: usize, length: usize| data.get(from..from + length).ok_or("a dictionary is cut off");
        Ok(Self {
            darts: Darts(part(72, darts)?),
            tokens: part(72 + darts, tokens)?,
            features: part(72 + darts + tokens, features)?,
        })
    }

    /// The words of a value of the double array: it holds where they are and how many.
    fn words(&self, value: u32) -> Result<Vec<Token<'d>>, Failure> {
        let (from, count) = ((value >> 8) as usize, (value & 0xff) as usize);
        (from..from + count).map(|number| self.token(number)).collect()
    }

    fn token(&self, number: usize) -> Result<Token<'d>, Failure> {
        let t = self.tokens.get(number * 16..number * 16 + 16).ok_or("a word is cut off")?;
        let short = |at: usize| u16::from_le_bytes([t[at], t[at + 1]]);
        let feature = u32::from_le_bytes([t[8], t[9], t[10], t[11]]) as usize;
        let rest = self.features.get(feature..).ok_or("a feature is cut off")?;
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        Ok(Token {
            left: short(0),
            right: short(2),
            posid: short(4),
            cost: short(6).cast_signed(),
            feature: std::str::from_utf8(&rest[..end])?,
        })
    }
}

pub(crate) fn make(wheel: &mut Wheel) -> Result<Made, Failure> {
    let mut file = |name: &str| member(wheel, &format!("{FOLDER}/{name}"));
    let (system, unknown, matrix) = (file("sys.dic")?, file("unk.dic")?, file("matrix.bin")?);
    let (characters, settings) = (file("char.bin")?, file("dicrc")?);
    let penalties = penalties(&String::from_utf8(settings)?)?;
    let (system, unknown) = (Compiled::new(&system)?, Compiled::new(&unknown)?);

    let mut classes = Classes::default();
    let (mut words, mut tokens) = (fst::MapBuilder::memory(), Vec::new());
    let mut failure = None;
    let mut nouns: [HashMap<u16, u32>; 2] = Default::default();
    system.darts.each(&mut |key, value| {
        let mut add = || -> Result<(), Failure> {
            let from = tokens.len() as u64 / 4;
            let found = system.words(value)?;
            for token in &found {
                let class = classes.number(token, &penalties)?;
                tokens.extend_from_slice(&class.to_le_bytes());
                tokens.extend_from_slice(&token.cost.to_le_bytes());
                for (which, start) in ["NNG,*,F", "NNG,*,T"].iter().enumerate() {
                    if token.feature.starts_with(start) {
                        *nouns[which].entry(class).or_default() += 1;
                    }
                }
            }
            Ok(words.insert(key, from << 8 | found.len() as u64)?)
        };
        if let Err(error) = add() {
            failure.get_or_insert(error);
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }

    let names = u32::from_le_bytes(characters.get(..4).ok_or("no categories")?.try_into()?) as usize;
    let mut categories = Vec::new();
    for name in characters.get(4..4 + names * 32).ok_or("no categories")?.chunks_exact(32) {
        let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(32)];
        let value = unknown.darts.get(name).ok_or("a category without a word")?;
        let mut readings = Vec::new();
        for token in unknown.words(value)? {
            readings.push((classes.number(&token, &penalties)?, token.cost));
        }
        categories.push(readings);
    }
    let most = |counts: &HashMap<u16, u32>| counts.iter().max_by_key(|(_, n)| **n).map(|(class, _)| *class);
    let nouns = [most(&nouns[0]).ok_or("no nouns")?, most(&nouns[1]).ok_or("no nouns")?];
    let Links { rows, columns, costs, width } = links(&matrix)?;
    let shorts = |list: &[u16]| list.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let facts = json!({ "tags": classes.tags, "nouns": nouns, "width": width, "categories": categories });
    Ok(Made {
        facts,
        sections: vec![
            ("words".to_owned(), words.into_inner()?),
            ("tokens".to_owned(), tokens),
            ("classes".to_owned(), shorts(&classes.list.concat())),
            ("rows".to_owned(), shorts(&rows)),
            ("columns".to_owned(), shorts(&columns)),
            ("costs".to_owned(), shorts(&costs)),
            ("characters".to_owned(), characters[4 + names * 32..].to_vec()),
        ],
    })
}

/// The line of the settings that says what words of which sort cost more after a blank.
fn penalties(settings: &str) -> Result<HashMap<u16, u16>, Failure> {
    let line = settings.lines().find_map(|line| line.strip_prefix("left-space-penalty-factor"));
    let list = line.and_then(|line| line.split_once('=')).ok_or("no penalties")?.1;
    let numbers: Vec<u16> = list.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>()?;
    Ok(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// The table of costs with equal rows and columns stored once.
struct Links {
    rows: Vec<u16>,
    columns: Vec<u16>,
    costs: Vec<u16>,
    width: usize,
}

fn links(matrix: &[u8]) -> Result<Links, Failure> {
    let numbers: Vec<u16> = matrix.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    let [width, height, costs @ ..] = numbers.as_slice() else { return Err("no table of costs".into()) };
    let (width, height) = (usize::from(*width), usize::from(*height));
    if costs.len() != width * height {
        return Err("the table of costs is not whole".into());
    }
    let (rows, kept_rows) = distinct((0..height).map(|row| &costs[row * width..(row + 1) * width]))?;
    let column = |c: usize| kept_rows.iter().map(|row| row[c]).collect::<Vec<u16>>();
    let (columns, kept) = distinct((0..width).map(column))?;
    let costs = (0..kept_rows.len()).flat_map(|row| kept.iter().map(move |column| column[row])).collect();
    Ok(Links { rows, columns, costs, width: kept.len() })
}

/// For each item the number of the first one equal to it, and those first ones.
fn distinct<T: Eq + Hash + Clone>(items: impl Iterator<Item = T>) -> Result<(Vec<u16>, Vec<T>), Failure> {
    let (mut numbers, mut kept, mut seen) = (Vec::new(), Vec::new(), HashMap::new());
    for item in items {
        let number = *seen.entry(item.clone()).or_insert(kept.len());
        if number == kept.len() {
            kept.push(item);
        }
        numbers.push(u16::try_from(number)?);
    }
    Ok((numbers, kept))
}
