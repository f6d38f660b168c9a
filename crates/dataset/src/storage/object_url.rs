//! Object storage addresses.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::foreign::hub_remedy;

/// Schemes of object stores, which can be read and written.
const STORES: [&str; 7] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss"];
/// Schemes of web servers, whose files can only be read one by one.
const SERVERS: [&str; 2] = ["http", "https"];

/// An address in object storage without a trailing slash, for example `s3://bucket/prefix`.
///
/// Options and messages use [`Path`] for both local files and addresses, because `s3://bucket/x` is also a valid path.
/// Always check for an address before using such a path.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectUrl {
    text: String,
    /// Length of `scheme://bucket` in bytes.
    root: usize,
}

impl ObjectUrl {
    /// Parses `path` as an address; `None` for a local path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) for an unknown scheme, an address without a bucket or with a
    /// password, or an address with a part that no object key can contain (`..`, an empty part, a control character).
    pub fn parse(path: &Path) -> Result<Option<Self>> {
        let Some((text, scheme)) = path.to_str().and_then(|text| Some((text, scheme(text)?))) else {
            return Ok(None);
        };
        let refuse =
            |what: &str, help: &str| Err(Error::usage(format!("{text:?} {what}")).help(help.to_owned()));
        let lower = scheme.to_ascii_lowercase();
        if !STORES.contains(&lower.as_str()) && !SERVERS.contains(&lower.as_str()) {
            if let Some(remedy) = hub_remedy(path) {
                return refuse(&format!("has the unsupported scheme {scheme}://"), &remedy);
            }
            return refuse(
                &format!("has the unsupported scheme {scheme}://"),
                "use a local path, or a URL that starts with s3://, gs://, az:// or https://",
            );
        }
        let after = &text[scheme.len() + "://".len()..];
        let after = after.trim_end_matches('/');
        let bucket = after.split('/').next().unwrap_or_default();
        if bucket.is_empty() {
            return refuse("has no bucket", "use a URL such as s3://bucket/prefix");
        }
        if bucket.contains('@') && !lower.starts_with("abfs") {
            return Err(Error::usage("a URL must not contain a password")
                .help("set the credentials in the environment, for example AWS_ACCESS_KEY_ID"));
        }
        if SERVERS.contains(&lower.as_str()) && after.contains(['?', '#']) {
            return Err(Error::usage("the URL of a file on a web server must not contain `?` or `#`")
                .help("the part after it may be secret and would be stored; download the file first"));
        }
        if after.chars().any(char::is_control) || after.split('/').any(|part| matches!(part, "" | "." | ".."))
        {
            return refuse("has a part that no object key can contain", "leave out `..`, `.` and `//`");
        }
        let text = format!("{lower}://{after}");
        let root = lower.len() + "://".len() + bucket.len();
        Ok(Some(Self { text, root }))
    }

    /// Returns whether `path` looks like an address with any scheme.
    pub fn is_url(path: &Path) -> bool {
        path.to_str().and_then(scheme).is_some()
    }

    /// Returns whether `path` looks like an address on a web server.
    pub fn is_server_url(path: &Path) -> bool {
        let is_server = |scheme: &str| SERVERS.iter().any(|server| server.eq_ignore_ascii_case(scheme));
        path.to_str().and_then(scheme).is_some_and(is_server)
    }

    /// Returns the path, or the address, of the file `relative` below the folder `root`.
    ///
    /// Object keys are used as they are. Addresses on web servers are percent-encoded where a character of the name has
    /// another meaning in a URL.
    pub fn file_below(root: &Path, relative: &Path) -> PathBuf {
        match relative.to_str() {
            Some(name) if Self::is_server_url(root) => {
                root.join(name.replace('%', "%25").replace('#', "%23").replace('?', "%3F"))
            }
            _ => root.join(relative),
        }
    }

    /// Returns the address of `relative` under this one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if `relative` is not a plain relative path.
    pub fn join(&self, relative: &str) -> Result<Self> {
        let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control);
        if !relative.split('/').all(is_plain) || relative.contains('\\') {
            return Err(Error::corrupt(format!("the path {relative:?} is not a plain relative path"))
                .at_path(self.as_path()));
        }
        Ok(Self { text: format!("{}/{relative}", self.text), root: self.root })
    }

    /// Returns the scheme and bucket: `s3://bucket`.
    pub fn root(&self) -> &str {
        &self.text[..self.root]
    }

    /// Returns the key, or the key prefix, within the bucket; empty for the whole bucket.
    pub fn key(&self) -> &str {
        self.text[self.root..].trim_start_matches('/')
    }

    /// Returns whether this is `other`, or below it. Schemes with the same meaning, such as `s3` and `s3a`, are equal.
    pub fn is_within(&self, other: &Self) -> bool {
        let rest = self.path().strip_prefix(other.path());
        self.store() == other.store() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns one name for all schemes of a store.
    fn store(&self) -> &str {
        match self.scheme() {
            "s3a" => "s3",
            "azure" => "az",
            "abfss" => "abfs",
            other => other,
        }
    }

    /// Returns bucket and key: `://bucket/key`.
    fn path(&self) -> &str {
        &self.text[self.scheme().len()..]
    }

    /// Returns the scheme.
    pub fn scheme(&self) -> &str {
        self.text.split(':').next().unwrap_or_default()
    }

    /// Returns whether this is an address on a web server, which can be read but not listed or written.
    pub fn is_server(&self) -> bool {
        SERVERS.contains(&self.scheme())
    }

    /// Returns the address.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address as a path, for options and messages.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.text)
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Extracts the scheme by the rules of RFC 3986: `s3` from `s3://bucket/x`.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let mut bytes = scheme.bytes();
    let is_scheme = bytes.next()?.is_ascii_alphabetic()
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    is_scheme.then_some(scheme)
}

/// Returns an error if `path`, the value of `option`, is a URL.
///
/// `s3://bucket/x` is also a valid path: without this check, a run would create the folder `s3:` and succeed.
///
/// # Errors
///
/// Returns [`ErrorKind::Usage`](crate::error::ErrorKind) if `path` starts with a scheme and `://`.
pub fn check_local(option: &'static str, path: &Path) -> Result<()> {
    if !ObjectUrl::is_url(path) {
        return Ok(());
    }
    Err(Error::usage(format!("{:?} is a URL, not a local path", path.to_string_lossy()))
        .of_option(option)
        .help("name a local file or folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<ObjectUrl>> {
        ObjectUrl::parse(Path::new(text))
    }

    #[test]
    fn urls_are_compared_by_store_and_component() {
        let within = |a: &str, b: &str| {
            let url = |text: &str| ObjectUrl::parse(Path::new(text)).unwrap().unwrap();
            url(a).is_within(&url(b))
        };
        for (a, b) in [
            ("s3://b/t", "s3://b/t"),
            ("s3a://b/t/out", "s3://b/t"),
            ("azure://b/t", "az://b"),
            ("abfss://c@a/t", "abfs://c@a/t"),
        ] {
            assert!(within(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("s3://b/tt", "s3://b/t"),
            ("s3://b", "s3://b/t"),
            ("gs://b/t", "s3://b/t"),
            ("s3://bb", "s3://b"),
        ] {
            assert!(!within(a, b), "{a} {b}");
        }
    }

    #[test]
    fn addresses_are_distinguished_from_paths() {
        for path in ["s3:/bucket", "a/b://c", "://x", "1s://x", "x", ""] {
            assert_eq!(parse(path).unwrap(), None, "{path}");
            assert!(!ObjectUrl::is_url(Path::new(path)));
        }
        for (text, root, key) in [
            ("s3://bucket", "s3://bucket", ""),
            ("S3://bucket/", "s3://bucket", ""),
            ("s3://bucket/a/b c/", "s3://bucket", "a/b c"),
            ("https://host:80/x", "https://host:80", "x"),
        ] {
            let url = parse(text).unwrap().unwrap();
            assert_eq!((url.root(), url.key()), (root, key));
        }
    }

    #[test]
    fn names_are_encoded_only_on_web_servers() {
        let below = |root: &str, name: &str| ObjectUrl::file_below(Path::new(root), Path::new(name));
        let name = "a b/é#1?x=%41\\.jpg";
        for root in ["photos", "s3://bucket/50%25", "S3://bucket"] {
            assert_eq!(below(root, name), Path::new(root).join(name));
        }
        for root in ["http://host/50%25", "HTTPS://host/50%25/"] {
            let file = below(root, name);
            assert_eq!(file, Path::new(root).join("a b/é%231%3Fx=%2541\\.jpg"));
            assert!(ObjectUrl::parse(&file).unwrap().unwrap().is_server());
        }
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for text in [
            "a+b-c.d://x",
            "file:///x",
            "s3://",
            "s3:///x",
            "s3://b/../x",
            "s3://b//x",
            "s3://b/\n",
            "s3://me:secret@b/x",
            "https://host/x?secret",
            "https://host/x#secret",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn only_plain_paths_are_joined() {
        let url = parse("s3://bucket/set").unwrap().unwrap();
        assert_eq!(url.join("train/x.pb").unwrap().as_str(), "s3://bucket/set/train/x.pb");
        for bad in ["", "/x", "../x", "a//b", "a/./b", "a\\b", "a\n"] {
            assert!(url.join(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn urls_are_not_paths() {
        for url in ["s3://bucket/x", "HTTPS://host/x", "a+b-c.d://x", "file:///x"] {
            let message = check_local("out", Path::new(url)).unwrap_err().to_string();
            assert!(message.contains("out") && message.contains("is a URL"), "{message}");
        }
        for path in ["s3:/bucket", "a/b://c", "://x", "1s://x", "x", ""] {
            check_local("out", Path::new(path)).unwrap();
        }
    }
}
