//! What a person reads when a request has failed.

use object_store::Error as Failure;

use super::super::object_url::ObjectUrl;
use crate::error::{Error, ErrorKind};

/// An error of `doing` (as in "cannot read") something at `url`.
pub(super) fn failure(doing: &str, url: &ObjectUrl, failure: Failure) -> Error {
    let at = |message: String| Error::new(ErrorKind::Io, message).at_path(url.as_path());
    match failure {
        Failure::NotFound { .. } => {
            at(format!("cannot {doing}: there is no such object or bucket")).help("check the address")
        }
        Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
            at(format!("cannot {doing}: the store refuses these credentials ({})", reason(&failure)))
                .help(credentials(url.scheme()))
        }
        Failure::Precondition { .. } => changed(url),
        Failure::InvalidPath { source } => {
            Error::usage(format!("cannot {doing}: a key cannot be used as a path: {source}"))
                .at_path(url.as_path())
                .help("rename or delete that object, or name a prefix that it is not under")
        }
        other if other.to_string().contains("404 Not Found") => {
            at(format!("cannot {doing}: there is no such object or bucket")).help("check the address")
        }
        other => {
            let help = match other.to_string().contains("metadata/instance")
                || other.to_string().contains("169.254.")
            {
                true => credentials(url.scheme()),
                false => {
                    "check the address, the credentials and the network; the same command goes on with --resume"
                }
            };
            at(format!("cannot {doing}")).caused_by(other).help(help)
        }
    }
}

/// Whether the connection ended in the middle of a response that the client does not ask for again.
pub(super) fn is_cut_short(failure: &Failure) -> bool {
    failure.to_string().contains("response body")
}

/// The object is not what it was when it was first met.
pub(super) fn changed(url: &ObjectUrl) -> Error {
    Error::new(ErrorKind::Io, "the object was replaced while it was read")
        .at_path(url.as_path())
        .help("leave sources and datasets alone while they are read; start again")
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

/// The innermost cause: what the server said.
fn reason(failure: &Failure) -> String {
    let mut cause: &dyn std::error::Error = failure;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
