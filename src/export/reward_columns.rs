//! Preference pairs as whole sequences, as a folder for `datasets`: what the reward trainer of TRL reads.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{Float64Builder, Int32Builder, ListBuilder};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};

use super::hf::check_split_names;
use super::hub_card::Features;
use super::row_columns::RowColumns;
use super::rows_file::{list, signed};
use super::{Columns, ExportInput, ExportOptions, ExportSplit, left_out, unused_fields};
use crate::error::{Error, Result};
use crate::reader::Record;
use crate::sample::Value;
use crate::schema::FieldType;
use crate::schema::preference::{
    CHOSEN_IDS, CHOSEN_MASKS, LONGEST, PROMPT_IDS, REJECTED_IDS, REJECTED_MASKS,
};

/// Name of the field, and of the column, by which the preferred completion should be better.
const MARGIN: &str = "margin";
/// Fields that the sequences are made of, or that are not needed with them: a reward model reads whole sequences.
const USED: [&str; 5] = [CHOSEN_IDS, REJECTED_IDS, CHOSEN_MASKS, REJECTED_MASKS, LONGEST];

/// Pairs of whole sequences.
pub(super) struct RewardColumns {
    schema: SchemaRef,
    /// Position of the margin, if there is one.
    margin: Option<usize>,
    warnings: Vec<String>,
}

impl RewardColumns {
    pub(super) fn new(input: &ExportInput, _: &ExportOptions) -> Result<Self> {
        check_split_names(input)?;
        let schema = input.schema()?;
        let missing =
            [PROMPT_IDS, CHOSEN_IDS, REJECTED_IDS].into_iter().find(|name| schema.index_of(name).is_none());
        if !schema.holds_completions() || missing.is_some() {
            return Err(Error::usage("`columns reward` is for preference pairs")
                .help("convert pairs with `chosen_field` and `rejected_field`"));
        }
        let is_number = |ty| {
            use FieldType::{Float32, Float64, Int32, Int64, UInt32, UInt64};
            matches!(ty, Float32 | Float64 | Int32 | Int64 | UInt32 | UInt64)
        };
        let margin = schema.index_of(MARGIN);
        if let Some(field) = margin.and_then(|at| schema.fields.get(at)).filter(|field| !is_number(field.ty))
        {
            let what =
                format!("the field {MARGIN:?} has the type {}, which is not a number", field.ty.name());
            return Err(Error::usage(what).help("keep it as a number: `keep_fields margin:float64`"));
        }
        let used: Vec<&str> = USED.iter().copied().chain([MARGIN]).collect();
        let fields = unused_fields(schema, &used);
        let warnings = left_out("`columns reward`", &fields).into_iter().collect();
        let mut columns = vec![list(CHOSEN_IDS, DataType::Int32), list(REJECTED_IDS, DataType::Int32)];
        columns.extend(margin.map(|_| Field::new(MARGIN, DataType::Float64, true)));
        Ok(Self { schema: Arc::new(ArrowSchema::new(columns)), margin, warnings })
    }

    /// Adds a pair.
    fn add(
        &self,
        record: &Record,
        sides: &mut [(&str, ListBuilder<Int32Builder>)],
        margins: &mut Float64Builder,
    ) -> Result<()> {
        for (name, side) in sides {
            for name in [PROMPT_IDS, name] {
                let Some(Value::Ids(ids)) = record.get(name) else {
                    return Err(Error::corrupt(format!("the record has no {name:?}")));
                };
                for id in ids.iter() {
                    side.values().append_value(signed(id)?);
                }
            }
            side.append(true);
        }
        let margin = self.margin.and_then(|at| record.values().get(at));
        margins.append_option(match margin {
            Some(Value::Float(margin)) => Some(*margin),
            Some(Value::Int(margin)) => Some(*margin as f64),
            Some(Value::UInt(margin)) => Some(*margin as f64),
            Some(_) => {
                return Err(Error::usage(format!(
                    "the record has no {MARGIN:?}, which the trainer needs of all"
                ))
                .help("leave the field out with `fields`, or convert only pairs that have it"));
            }
            None => None,
        });
        Ok(())
    }
}

impl RowColumns for RewardColumns {
    const CONTENT: &str = "preference pairs";

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn columns(&self) -> Columns {
        Columns::Reward
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn arrays(&self, split: &ExportSplit, records: &[Record]) -> Result<Vec<ArrayRef>> {
        let mut sides = [CHOSEN_IDS, REJECTED_IDS].map(|name| (name, ListBuilder::default()));
        let mut margins = Float64Builder::new();
        for record in records {
            self.add(record, &mut sides, &mut margins)
                .map_err(|e| split.source.at_record(e, record.ordinal()))?;
        }
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (_, mut side) in sides {
            columns.push(Arc::new(side.finish()));
        }
        columns.extend(self.margin.map(|_| -> ArrayRef { Arc::new(margins.finish()) }));
        Ok(columns)
    }

    fn features(&self) -> Features {
        let ids = |name: &str| (name.to_owned(), "sequence: int32".to_owned());
        let mut fields = vec![ids(CHOSEN_IDS), ids(REJECTED_IDS)];
        fields.extend(self.margin.map(|_| (MARGIN.to_owned(), "dtype: float64".to_owned())));
        Features { task: None, fields }
    }
}
