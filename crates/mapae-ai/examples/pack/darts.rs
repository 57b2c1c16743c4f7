//! MeCab's double array: 8 bytes a unit, `base` and `check`; a value is a negative base behind a zero byte.

pub(crate) struct Darts<'d>(pub(crate) &'d [u8]);

impl Darts<'_> {
    fn unit(&self, at: usize) -> Option<(i32, u32)> {
        let unit = self.0.get(at * 8..at * 8 + 8)?;
        Some((
            i32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]),
            u32::from_le_bytes([unit[4], unit[5], unit[6], unit[7]]),
        ))
    }

    /// The base that follows `base` by a byte.
    fn step(&self, base: i32, byte: u8) -> Option<i32> {
        let (next, check) = self.unit(usize::try_from(base).ok()? + usize::from(byte) + 1)?;
        (check == base.cast_unsigned()).then_some(next)
    }

    fn value(&self, base: i32) -> Option<u32> {
        let (value, check) = self.unit(usize::try_from(base).ok()?)?;
        (check == base.cast_unsigned() && value < 0).then(|| (-i64::from(value) - 1) as u32)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<u32> {
        let (root, _) = self.unit(0)?;
        self.value(key.iter().try_fold(root, |base, byte| self.step(base, *byte))?)
    }

    /// Every key with its value, ascending.
    pub(crate) fn each(&self, each: &mut impl FnMut(&[u8], u32)) {
        if let Some((root, _)) = self.unit(0) {
            self.walk(root, &mut Vec::new(), each);
        }
    }

    fn walk(&self, base: i32, key: &mut Vec<u8>, each: &mut impl FnMut(&[u8], u32)) {
        if let Some(value) = self.value(base) {
            each(key, value);
        }
        for byte in 0..=u8::MAX {
            if let Some(next) = self.step(base, byte) {
                key.push(byte);
                self.walk(next, key, each);
                key.pop();
            }
        }
    }
}
