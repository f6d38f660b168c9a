//! `dsconvert.add_fields`.

use std::path::{Path, PathBuf};

use dsconvert::add_fields::{AddOptions, AddOutput, add_fields as add, bind_computed, open_base};
use dsconvert::error::Error;
use dsconvert::options::{Existing, ResumeCheck};
use dsconvert::pipeline::Stop;
use dsconvert::schema::Field;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::error::raise;
use crate::interrupt::detached;

/// The options, as JSON.
#[derive(Deserialize)]
struct Options {
    #[serde(flatten)]
    fields: AddOptions,
    out: PathBuf,
    resume: bool,
    overwrite: bool,
    scratch: Option<PathBuf>,
}

/// Names of the fields, numbers of records, of records without a row and of surplus rows, and whether all was there already.
type Added = (Vec<String>, u64, u64, u64, bool);

/// Adds the columns of the table at `table` to the records of the dataset at `base`, opened with `companions`.
#[pyfunction]
pub(crate) fn add_fields(
    py: Python<'_>,
    base: PathBuf,
    table: PathBuf,
    options: &str,
    companions: Vec<PathBuf>,
) -> PyResult<Added> {
    let Options { fields, out, resume, overwrite, scratch } = serde_json::from_str(options)
        .map_err(|e| raise(Error::usage(format!("an option is invalid: {e}"))))?;
    let existing = match (resume, overwrite) {
        (true, _) => Existing::Resume(ResumeCheck::Sizes),
        (false, true) => Existing::Overwrite,
        (false, false) => Existing::Refuse,
    };
    let output = AddOutput { out, existing, scratch };
    detached(py, true, || write(&base, &table, &fields, &output, &companions))
}

fn write(
    base: &Path,
    table: &Path,
    options: &AddOptions,
    output: &AddOutput,
    companions: &[PathBuf],
) -> Result<Added, Error> {
    let base = open_base(base, companions)?;
    let added = add(&base, table, options, output, &Stop::default())?;
    Ok((added.fields, added.records, added.missing, added.surplus, added.was_complete))
}

/// Returns the binding of a companion of the dataset at `base` whose `fields`, as JSON, a program computes.
#[pyfunction]
pub(crate) fn bind_fields(
    py: Python<'_>,
    base: PathBuf,
    options: &str,
    fields: &str,
    companions: Vec<PathBuf>,
) -> PyResult<String> {
    let invalid = |e: serde_json::Error| raise(Error::usage(format!("an option is invalid: {e}")));
    let options: AddOptions = serde_json::from_str(options).map_err(invalid)?;
    let fields: Vec<Field> = serde_json::from_str(fields).map_err(invalid)?;
    let bind = || {
        let binding = bind_computed(&open_base(&base, &companions)?, &options, &fields)?;
        serde_json::to_string(&binding).map_err(|e| Error::not_serialized("the binding", e))
    };
    detached(py, true, bind)
}
