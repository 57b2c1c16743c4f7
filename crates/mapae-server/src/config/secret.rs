//! Values that must not be shown: secrets, and addresses that may hold a password.

use std::fmt;

/// A secret. Nothing prints it; whoever needs it asks by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The address of a database, broker or file store. Printed without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole address, password and all: for opening a connection and nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// `sqlite`, `postgres`, `embedded`, `s3` …
    pub fn scheme(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// The path of an address that names one on this machine.
    pub fn path(&self) -> &str {
        let rest = self.0.split_once(':').map_or("", |(_, rest)| rest);
        rest.strip_prefix("//").unwrap_or(rest).split('?').next().unwrap_or_default()
    }
}

impl fmt::Display for Address {
    /// What stands between the user's name and the last `@` is not shown, and of a query only the names
    /// are: a password may stand in either.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, rest) = match self.0.split_once("//").zip(self.0.rfind('@')) {
            Some(((scheme, rest), at)) if at > scheme.len() => {
                let name = rest.split([':', '@', '/', '?']).next().unwrap_or_default();
                (format!("{scheme}//{name}:***"), &self.0[at..])
            }
            _ => (String::new(), self.0.as_str()),
        };
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        write!(f, "{user}{place}")?;
        for (index, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            let name = pair.split('=').next().unwrap_or_default();
            write!(f, "{}{name}=***", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed_wherever_it_stands() {
        let cases = [
            ("postgres://app:hunter2@db:5432/jobs", "postgres://app:***@db:5432/jobs"),
            ("postgres://app:hun@ter2@db/jobs", "postgres://app:***@db/jobs"),
            ("postgres://app:hun/ter2@db/jobs", "postgres://app:***@db/jobs"),
            ("postgres://app:hun?ter2@db/jobs", "postgres://app:***@db/jobs"),
            ("postgres://db/jobs?user=app&password=hunter2", "postgres://db/jobs?user=***&password=***"),
            ("sqlite:mapae-data/mapae.db", "sqlite:mapae-data/mapae.db"),
            ("embedded:", "embedded:"),
        ];
        for (address, shown) in cases {
            assert_eq!(Address::new(address).to_string(), shown);
            assert_eq!(format!("{:?}", Address::new(address)), shown);
        }
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }

    #[test]
    fn the_path_of_a_local_address_is_read_with_and_without_slashes() {
        for address in ["file:a/b", "file://a/b", "file:a/b?mode=ro"] {
            assert_eq!(Address::new(address).path(), "a/b");
        }
        assert_eq!(Address::new("file:///a/b").path(), "/a/b");
    }
}
