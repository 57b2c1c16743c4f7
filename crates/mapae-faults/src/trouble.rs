//! How a cell goes wrong.

/// Why a cell is not green.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The planned fault never happened: the cell has proved nothing.
    NotHit(String),
    /// Promises that do not hold.
    Broken(Vec<String>),
    /// What the test itself needs did not work.
    Site(String),
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

impl Trouble {
    pub(crate) fn broken(what: impl Into<String>) -> Self {
        Self::Broken(vec![what.into()])
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotHit(why) => write!(f, "the planned fault did not happen: {why}"),
            Self::Broken(promises) => write!(f, "{}", promises.join("\n  ")),
            Self::Site(why) => write!(f, "the test could not be run: {why}"),
        }
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Site(error.to_string())
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Site(error.to_string())
    }
}

impl From<mapae::store::contract::StoreError> for Trouble {
    fn from(error: mapae::store::contract::StoreError) -> Self {
        Self::Site(format!("{}: {error}", error.code()))
    }
}
