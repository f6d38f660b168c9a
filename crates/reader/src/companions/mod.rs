//! Companions: datasets of further fields for the records of an opened dataset, in its order.
//!
//! Record `i` of a split of the companion belongs to record `i` of that split of the base, so reading both joins nothing. What
//! the companion was made for is checked once, when both are opened ([`check`](check::check_companion)).

mod check;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use check::bound_split;
pub(super) use check::check_companion;
use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::manifest::BoundField;
use dsconvert_dataset::sample::Value;
use dsconvert_dataset::schema::{Field, Schema};

use super::record::ReadIds;
use super::{Dataset, Record, Split};

/// What is known about a field that a companion adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddedField {
    /// Names of the fields of the base that the values were made from.
    pub reads: Vec<String>,
    /// How the values follow those of the base.
    pub bound: BoundField,
}

/// Returns the fields of the records that `companion` adds to those of its base: all that the user named.
fn added_fields(companion: &Schema) -> impl Iterator<Item = &Field> {
    let built_in = companion.layout().built_in;
    companion.fields.iter().filter(move |field| !built_in.contains(&&*field.name))
}

/// Returns the schema of the records of `base` with the fields of `companions`.
///
/// # Errors
///
/// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) if two fields have the same name, or if the type of one needs the
/// indexes of its own dataset.
pub(super) fn joined_schema(base: &Schema, companions: &[Dataset]) -> Result<Schema> {
    let mut schema = base.clone();
    for companion in companions {
        for field in added_fields(companion.stored_schema()) {
            if schema.index_of(&field.name).is_some() {
                let what = format!("the records have a field {:?} already", field.name);
                return Err(Error::usage(what).at_path(companion.path()).of_option("add").help(
                    "add only one dataset with this field, or make the companion again with another name",
                ));
            }
            if field.ty.is_per_box() || field.ty.is_class() || schema_is_aligned(companion, &field.name) {
                let what = format!(
                    "the field {:?} has the type {}, which no companion adds",
                    field.name,
                    field.ty.name()
                );
                return Err(Error::usage(what).at_path(companion.path()).of_option("add"));
            }
            schema.fields.push(field.clone());
        }
    }
    Ok(schema)
}

fn schema_is_aligned(companion: &Dataset, name: &str) -> bool {
    let schema = companion.stored_schema();
    schema.aligned().any(|at| schema.fields.get(at).is_some_and(|field| field.name == name))
}

/// A split and those of its companions, whose fields are one list.
#[derive(Debug)]
pub(super) struct Joined {
    schema: Arc<Schema>,
    /// The split itself, then those of the companions, each with only the fields that are needed of it.
    parts: Vec<Split>,
    /// The part and the index in its records of each field.
    places: Vec<(usize, usize)>,
}

impl Joined {
    /// Joins `base` with the same split of its `companions`. `schema` has the fields of all of them.
    pub(super) fn new(base: Split, companions: Vec<Split>, schema: Arc<Schema>) -> Self {
        let own = base.schema().fields.len();
        let parts: Vec<Split> = std::iter::once(base).chain(companions).collect();
        let of_parts = |(at, field): (usize, &Field)| {
            let skipped = usize::from(at >= own);
            let found = parts.iter().enumerate().skip(skipped);
            found.filter_map(|(part, split)| Some((part, split.schema().index_of(&field.name)?))).next()
        };
        let places = schema.fields.iter().enumerate().filter_map(of_parts).collect();
        Self { schema, parts, places }
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the same split for the child of a fork.
    pub(super) fn detached(&self) -> Self {
        Self {
            schema: Arc::clone(&self.schema),
            parts: self.parts.iter().map(Split::detached).collect(),
            places: self.places.clone(),
        }
    }

    /// Returns the fingerprints of the companions.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().skip(1).map(|part| part.manifest().fingerprint.as_str())
    }

    /// Returns what is known about the fields of companions.
    pub(super) fn added(&self) -> BTreeMap<String, AddedField> {
        let field = |(field, &(part, _)): (&Field, &(usize, usize))| {
            let binding = self.parts.get(part).filter(|_| part > 0)?.manifest().binding.as_ref()?;
            let reads = binding.reads().map(str::to_owned).collect();
            let bound = binding.fields.get(&field.name).cloned().unwrap_or_default();
            Some((field.name.clone(), AddedField { reads, bound }))
        };
        self.schema.fields.iter().zip(&self.places).filter_map(field).collect()
    }

    /// Returns the same split with only the fields `names`, in that order.
    pub(super) fn select(&self, names: &[&str]) -> Result<Split> {
        let base = self.parts.first().ok_or_else(|| Error::internal("a split has no records"))?;
        let find = |name: &&str| {
            self.schema.index_of(name).and_then(|at| self.places.get(at)).map(|&(part, _)| part).ok_or_else(
                || {
                    let names: Vec<&str> = self.schema.fields.iter().map(|f| f.name.as_str()).collect();
                    Error::usage(format!("the dataset has no field {name:?}"))
                        .help(format!("its fields are {}", names.join(", ")))
                },
            )
        };
        if let Some((_, name)) = names.iter().enumerate().find(|&(at, name)| names[..at].contains(name)) {
            return Err(Error::usage(format!("the field {name:?} is requested twice")));
        }
        let of_names = names.iter().map(find).collect::<Result<Vec<usize>>>()?;
        if of_names.iter().all(|&part| part == 0) {
            return base.select(names);
        }
        let part = |(at, part): (usize, &Split)| {
            let own: Vec<&str> =
                names.iter().zip(&of_names).filter(|&(_, &part)| part == at).map(|(name, _)| *name).collect();
            part.select(&own)
        };
        let parts = self.parts.iter().enumerate().map(part).collect::<Result<Vec<_>>>()?;
        let field =
            |name: &&str| self.schema.index_of(name).and_then(|at| self.schema.fields.get(at).cloned());
        let schema = Schema {
            kind: self.schema.kind,
            fields: names.iter().filter_map(field).collect(),
            class_names: self.schema.class_names.clone(),
            indexed: Vec::new(),
        };
        let place = |(name, &part): (&&str, &usize)| Some((part, parts.get(part)?.schema().index_of(name)?));
        let places = names.iter().zip(&of_names).filter_map(place).collect();
        Ok(base.joined_with(Self { schema: Arc::new(schema), parts, places }))
    }

    /// Returns the record with the ordinal `record`.
    pub(super) fn get(&self, record: u64) -> Result<Record> {
        let read = |part: usize| self.of_part(part, |split| split.get(record));
        let records = self.needed().map(|part| Ok((part, read(part)?))).collect::<Result<_>>()?;
        Ok(self.join(record, records))
    }

    /// Returns the records with the ordinals `records`, in that order; one that cannot be read is an error in its position.
    pub(super) fn get_each(&self, records: &[u64]) -> Result<Vec<Result<Record>>> {
        let mut joined: Vec<Result<BTreeMap<usize, Record>>> =
            records.iter().map(|_| Ok(BTreeMap::new())).collect();
        for part in self.needed() {
            let of_part = self.of_part(part, |split| split.get_each(records))?;
            for (all, record) in joined.iter_mut().zip(of_part) {
                let record = record.map_err(|error| self.of_companion(part, error));
                match (&mut *all, record) {
                    (Ok(all), Ok(record)) => drop(all.insert(part, record)),
                    (Ok(_), Err(error)) => *all = Err(error),
                    (Err(_), _) => {}
                }
            }
        }
        let join = |(&ordinal, all): (&u64, Result<_>)| all.map(|all| self.join(ordinal, all));
        Ok(records.iter().zip(joined).map(join).collect())
    }

    /// Calls `read` with the token ids in the field at `field_index` of `records`.
    pub(super) fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        let &(part, index) =
            self.places.get(field_index).ok_or_else(|| Error::internal("there is no such field"))?;
        self.of_part(part, |split| split.lend_ids(records, index, read))
    }

    /// Returns the parts that have fields of the records, ascending.
    fn needed(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.parts.len()).filter(|part| self.places.iter().any(|(of_field, _)| of_field == part))
    }

    fn of_part<T>(&self, part: usize, read: impl FnOnce(&Split) -> Result<T>) -> Result<T> {
        let split = self.parts.get(part).ok_or_else(|| Error::internal("there is no such companion"))?;
        read(split).map_err(|error| self.of_companion(part, error))
    }

    /// Adds the path of a companion to an error about its records: the shards of all datasets have the same names.
    fn of_companion(&self, part: usize, error: Error) -> Error {
        match self.parts.get(part) {
            Some(split) if part > 0 && error.place().path.is_none() => error.at_path(split.dataset_path()),
            _ => error,
        }
    }

    /// Makes one record of those of the parts.
    fn join(&self, ordinal: u64, mut of_parts: BTreeMap<usize, Record>) -> Record {
        let value = |&(part, index): &(usize, usize)| match of_parts.get_mut(&part) {
            Some(record) => record.take(index),
            None => Value::Null,
        };
        let values = self.places.iter().map(value).collect();
        Record::new(Arc::clone(&self.schema), ordinal, values)
    }
}
