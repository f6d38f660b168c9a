//! Conversion of library errors to the exceptions of the Python package.

use std::io;

use dsconvert::error::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// Returns the exception for `error`; see `dsconvert.errors`. Takes `error` by value for `map_err`.
pub(crate) fn raise(error: Error) -> PyErr {
    Python::attach(|py| exception(py, &error).map_or_else(|failed| failed, PyErr::from_value))
}

/// Returns the name of a kind, and of its exception class.
fn names(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::Usage => ("usage", "UsageError"),
        ErrorKind::Io => ("io", "IoError"),
        ErrorKind::Corrupt => ("corrupt", "CorruptError"),
        ErrorKind::Unsupported => ("unsupported", "UnsupportedError"),
        ErrorKind::OutOfRange => ("out-of-range", "OutOfRangeError"),
        ErrorKind::NotCommitted => ("not-committed", "NotCommittedError"),
        ErrorKind::NothingNew => ("nothing-new", "NotCommittedError"),
        ErrorKind::Internal => ("internal", "InternalError"),
        ErrorKind::Interrupted(_) => ("interrupted", "NotCommittedError"),
        _ => ("other", "Error"),
    }
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    if let Some(raised) = std::error::Error::source(error).and_then(|source| source.downcast_ref::<PyErr>()) {
        // An exception of a user's function is raised unchanged, with a note of where it happened.
        let raised = raised.clone_ref(py).into_value(py).into_bound(py).into_any();
        raised.call_method1("add_note", (error.to_string(),))?;
        return Ok(raised);
    }
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("dsconvert.errors").map(Bound::unbind))?.bind(py);
    let (kind, mut class) = names(error.kind());
    let place = error.place();
    let path = place.path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let keywords = PyDict::new(py);
    keywords.set_item("kind", kind)?;
    keywords.set_item("place", (path, place.offset, place.shard.as_deref(), place.row))?;
    keywords.set_item("remedy", error.remedy())?;
    if let (ErrorKind::Io, Some(cause)) = (error.kind(), system_error(error)) {
        if let Some(number) = cause.raw_os_error() {
            keywords.set_item("errno", number)?;
        }
        if cause.kind() == io::ErrorKind::NotFound {
            class = "NotFoundError";
        }
    }
    module.getattr(class)?.call((error.to_string(),), Some(&keywords))
}

/// Returns the system error that caused `error`, if there is one.
fn system_error(error: &Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref::<io::Error>()
}
