//! Error messages for failed requests.

use object_store::Error as Failure;

use super::super::object_url::ObjectUrl;
use crate::error::{Error, ErrorKind};

/// Creates the error for `doing` something (as in "cannot read") at `url`.
pub(super) fn failure(doing: &str, url: &ObjectUrl, failure: Failure) -> Error {
    let at = |message: String| Error::new(ErrorKind::Io, message).at_path(url.as_path());
    match failure {
        Failure::Precondition { .. } => changed(url),
        Failure::InvalidPath { source } => {
            Error::usage(format!("cannot {doing}: a key cannot be used as a path: {source}"))
                .at_path(url.as_path())
                .help("rename or delete that object, or choose a prefix that does not contain it")
        }
        // The type of the cause is private; its text has "Range" or "range".
        Failure::NotSupported { source } if source.to_string().contains("ange") => {
            at(format!("cannot {doing}: the server does not support range requests"))
                .caused_by(source)
                .help("download the files first and use the local copy")
        }
        missing if is_bucket_missing(&missing) => at(format!("cannot {doing}: there is no such bucket"))
            .help("check the name of the bucket, and the region and the endpoint in the environment"),
        missing if is_missing(&missing) => {
            at(format!("cannot {doing}: there is no such object or bucket")).help("check the URL")
        }
        refused if is_refused(&refused) && is_skewed(&refused) => {
            at(format!("cannot {doing}: the clock of this machine differs from that of the store"))
                .help("set the clock, for example with NTP, and run the command again")
                .unavailable()
        }
        refused if is_refused(&refused) => {
            at(format!("cannot {doing}: the store refuses these credentials ({})", reason(&refused)))
                .help(credentials(url.scheme()))
                .unavailable()
        }
        other => {
            let (text, reason) = (other.to_string(), reason(&other));
            let help = if is_of_metadata(&text) {
                credentials(url.scheme())
            } else if reason.contains("certificate") {
                "check the URL; for a private certificate authority, set SSL_CERT_FILE to its certificates"
            } else {
                "check the URL, the credentials and the network"
            };
            // The client does not show why a connection failed.
            let message = match text.contains(&reason) {
                true => format!("cannot {doing}"),
                false => format!("cannot {doing} ({reason})"),
            };
            at(message).caused_by(other).help(help).unavailable()
        }
    }
}

/// Returns whether the credentials could not be requested from the machine's metadata service.
fn is_of_metadata(text: &str) -> bool {
    ["metadata/instance", "computeMetadata", "169.254."].iter().any(|part| text.contains(part))
}

fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::NotFound { .. }) || has_status(failure, "404 Not Found")
}

fn is_refused(failure: &Failure) -> bool {
    matches!(failure, Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. })
        || ["403 Forbidden", "401 Unauthorized"].iter().any(|status| has_status(failure, status))
}

/// Returns whether the store responded with this status. The client distinguishes only some failures, and none for
/// listings.
fn has_status(failure: &Failure, status: &str) -> bool {
    failure.to_string().contains(&format!("status code: {status}"))
}

/// Returns whether the connection ended in the middle of a response that the client does not request again.
pub fn is_cut_short(failure: &impl std::error::Error) -> bool {
    failure.to_string().contains("response body")
}

/// Returns the error for an object that has changed since it was first read.
pub(super) fn changed(url: &ObjectUrl) -> Error {
    Error::new(ErrorKind::Io, "the object was replaced while it was read")
        .at_path(url.as_path())
        .help("do not modify sources and datasets while they are read; start again")
}

fn credentials(scheme: &str) -> &'static str {
    match scheme {
        "gs" => "set GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for public data",
        "az" | "azure" | "abfs" | "abfss" => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or another way to sign in"
        }
        _ => {
            "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION (and AWS_SESSION_TOKEN, AWS_ENDPOINT_URL where needed), \
             or AWS_SKIP_SIGNATURE=true for public data; check the clock, too"
        }
    }
}

/// Returns whether the bucket or container does not exist. Responses without a body do not report this.
pub(super) fn is_bucket_missing(failure: &Failure) -> bool {
    let text = failure.to_string();
    ["<Code>NoSuchBucket<", "<Code>ContainerNotFound<"].iter().any(|code| text.contains(code))
}

/// Returns whether the store rejects the time at which a request was signed.
fn is_skewed(failure: &Failure) -> bool {
    let text = failure.to_string();
    ["RequestTimeTooSkewed", "RequestExpired", "Request date header too old"]
        .iter()
        .any(|code| text.contains(code))
}

/// Returns the text of the innermost cause of `error`.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Returns the innermost cause, which is the server's response.
fn reason(failure: &Failure) -> String {
    let text = innermost(failure);
    match (element(&text, "Code"), element(&text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text,
    }
}

/// Extracts the text of an element from an XML error response.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(text, _)| text)
}
