//! Several sources of records, read as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::index::LengthRun;
use dsconvert_dataset::sample::{Ids, Value, box_numbers, pack_box_numbers};
use dsconvert_dataset::schema::{ASSISTANT_MASKS, CU_SEQLENS, Field, FieldType, LABEL, Schema};

use super::batch::{ImageShape, Lengths, Runs, json_digest, no_such_record};
use super::record::ReadIds;
use super::source::RecordProperties;
use super::{Record, RecordSource};

/// Maximum number of sources whose ids are lent together. The ids of records of more sources are read as records, because
/// each source that lends ids adds a stack frame.
const MAX_LENDING: usize = 8;

/// How the classes of several sources become those of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ClassNames {
    /// All sources have the same classes, in the same order.
    #[default]
    Equal,
    /// Classes of the same name are one class. Those of the first source keep their labels, and new ones of later sources
    /// follow.
    Merged,
}

/// The records of several sources, one source after another.
///
/// Its records have the fields that all sources have. Sources that cannot be trained on together are refused.
///
/// ```
/// # mod testing { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing/dataset.rs")); }
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// # testing::write(path, dsconvert_dataset::format::Format::Arrow, dsconvert_dataset::schema::Kind::Text, &[&[4], &[3]])?;
/// use dsconvert_reader::{ClassNames, Concatenated, Dataset, RecordSource};
///
/// let dataset = Dataset::open(path)?;
/// let part = |name: &str| -> Result<_, dsconvert_reader::error::Error> {
///     Ok((name.to_owned(), dataset.split(name)?.into()))
/// };
/// let both = Concatenated::new(vec![part("train")?, part("validation")?], ClassNames::Equal)?;
/// assert_eq!(both.lengths().records(), 7);
/// assert_eq!(both.get_many(&[5])?[0].key(), dataset.split("validation")?.get(1)?.key());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Concatenated {
    parts: Arc<[Part]>,
    /// One past the last ordinal of each part.
    ends: Arc<[u64]>,
    schema: Arc<Schema>,
    fingerprint: String,
    ranks: OnceLock<Arc<[RankRun]>>,
}

/// One of the sources.
#[derive(Debug, Clone)]
struct Part {
    name: String,
    source: Arc<dyn RecordSource>,
    /// Ordinal of its first record.
    first: u64,
    /// For each field of the schema, its index in the records of the source. `None` for the masks of a source that marks
    /// no tokens: all of them are to be trained on.
    columns: Vec<Option<usize>>,
    /// Whether the records have the fields of the schema and no others, in the same order.
    is_same: bool,
    /// The label of each label of the source; empty if they are equal.
    labels: Vec<i64>,
}

/// Records of one part that were requested.
struct PartRecords<'a> {
    part: &'a Part,
    /// Their indexes among all records that were requested.
    slots: Vec<usize>,
    /// Their ordinals in the part.
    ordinals: Vec<u64>,
}

/// Records of one length in one source.
#[derive(Debug, Clone, Copy)]
struct RankRun {
    length: u64,
    /// Rank of the first one among all records.
    first_rank: u64,
    part: u32,
    /// Rank of the first one in its source.
    part_rank: u64,
}

impl Concatenated {
    /// Concatenates `sources`, each with a name for messages.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when there are none, or when two of them differ in their kind, their tokenizer, the type of a
    /// field of the same name, how rows are packed, whether there are labels, or their classes.
    pub fn new(sources: Vec<(String, Arc<dyn RecordSource>)>, classes: ClassNames) -> Result<Self> {
        let Some((first_name, first)) = sources.first() else {
            return Err(Error::usage("there is no dataset").help("name one or more"));
        };
        for (name, source) in sources.iter().skip(1) {
            check_compatible((first_name, &**first), (name, &**source))?;
        }
        let class_names = merged_classes(&sources, classes)?;
        let fields = common_fields(&sources)?;
        let is_common = |name: &&String| {
            fields.iter().any(|field| field.name == **name)
                && sources.iter().all(|(_, source)| source.schema().indexed.contains(name))
        };
        let indexed = first.schema().indexed.iter().filter(is_common).cloned().collect();
        let schema = Schema { kind: first.schema().kind, fields, class_names, indexed };
        let mut ends = Vec::new();
        let mut parts = Vec::new();
        for (name, source) in sources {
            let start = ends.last().copied().unwrap_or(0);
            let end = source.lengths().records().checked_add(start);
            ends.push(end.ok_or_else(|| Error::corrupt("the number of records overflows 64 bits"))?);
            parts.push(Part::new(name, source, start, &schema));
        }
        let fingerprints: Vec<(String, &[i64])> =
            parts.iter().map(|part| (part.source.fingerprint(), &*part.labels)).collect();
        let digest = json_digest("the fingerprints of the sources", &fingerprints)?;
        Ok(Self {
            parts: parts.into(),
            ends: ends.into(),
            schema: Arc::new(schema),
            fingerprint: format!("concatenated/{digest}"),
            ranks: OnceLock::new(),
        })
    }

    /// Returns the names and sources, in order.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<dyn RecordSource>)> {
        self.parts.iter().map(|part| (part.name.as_str(), &part.source))
    }

    /// Returns the same sources for the child of a fork.
    pub(crate) fn reopen(&self) -> Self {
        let reopened = |part: &Part| Part { source: part.source.reopened(), ..part.clone() };
        Self { parts: self.parts.iter().map(reopened).collect(), ..self.clone() }
    }

    /// Returns the part with the record `record`, and its ordinal there.
    fn part_of(&self, record: u64) -> Result<(usize, &Part, u64)> {
        let at = self.ends.partition_point(|&end| end <= record);
        match self.parts.get(at) {
            Some(part) => Ok((at, part, record - part.first)),
            None => Err(no_such_record(self.records(), record)),
        }
    }

    /// Groups `records` by their parts.
    fn groups(&self, records: &[u64]) -> Result<Vec<PartRecords<'_>>> {
        let mut found = Vec::with_capacity(records.len());
        for (slot, &record) in records.iter().enumerate() {
            let (at, _, ordinal) = self.part_of(record)?;
            found.push((at, slot, ordinal));
        }
        found.sort_unstable();
        let group = |of_part: &[(usize, usize, u64)]| {
            let part = self.parts.get(of_part.first()?.0)?;
            let (slots, ordinals) = of_part.iter().map(|&(_, slot, ordinal)| (slot, ordinal)).unzip();
            Some(PartRecords { part, slots, ordinals })
        };
        Ok(found.chunk_by(|a, b| a.0 == b.0).filter_map(group).collect())
    }

    /// Returns the runs of all sources by length and then by source.
    fn ranks(&self) -> Result<&[RankRun]> {
        if let Some(ranks) = self.ranks.get() {
            return Ok(ranks);
        }
        let mut runs: Vec<Runs<'_>> = Vec::new();
        let mut heads = BinaryHeap::new();
        let head = |at: usize, run: LengthRun| Reverse((run.length, at, run.first_rank, run.count));
        for (at, part) in self.parts.iter().enumerate() {
            let mut of_part = part.source.lengths().runs()?;
            heads.extend(of_part.next().transpose()?.map(|run| head(at, run)));
            runs.push(of_part);
        }
        let mut merged = Vec::new();
        let mut first_rank = 0u64;
        while let Some(Reverse((length, at, part_rank, count))) = heads.pop() {
            merged.push(RankRun { length, first_rank, part: at as u32, part_rank });
            first_rank = first_rank.saturating_add(count);
            let next = runs.get_mut(at).and_then(Iterator::next).transpose()?;
            heads.extend(next.map(|run| head(at, run)));
        }
        if first_rank != self.records() {
            let what =
                format!("the lengths are those of {first_rank} records, but there are {}", self.records());
            return Err(Error::corrupt(what));
        }
        Ok(self.ranks.get_or_init(|| merged.into()))
    }
}

impl Part {
    fn new(name: String, source: Arc<dyn RecordSource>, first: u64, schema: &Schema) -> Self {
        let own = source.schema();
        let columns: Vec<Option<usize>> =
            schema.fields.iter().map(|field| own.index_of(&field.name)).collect();
        let is_same = columns.iter().copied().eq((0..own.fields.len()).map(Some));
        let labels = match own.class_names == schema.class_names {
            true => Vec::new(),
            false => {
                let label = |name| schema.class_names.iter().position(|other| other == name);
                own.class_names.iter().map(|name| label(name).map_or(-1, |at| at as i64)).collect()
            }
        };
        Self { name, source, first, columns, is_same, labels }
    }

    /// Returns a record of the source as a record of the concatenation.
    fn convert(&self, record: Record, schema: &Arc<Schema>) -> Result<Record> {
        let ordinal = record.ordinal();
        let values = record.into_inner().values;
        let mut values = match self.is_same {
            true => values,
            false => {
                let of_column = |column: &Option<usize>| match column {
                    Some(index) => Ok(values.get(*index).cloned().unwrap_or(Value::Null)),
                    None => {
                        let length = self.source.lengths().length_of(ordinal)?;
                        Ok(Value::Bytes(vec![1; length as usize].into()))
                    }
                };
                self.columns.iter().map(of_column).collect::<Result<Vec<_>>>()?
            }
        };
        if !self.labels.is_empty() {
            let mapped = |label: i64| {
                let mapped = usize::try_from(label).ok().and_then(|at| self.labels.get(at)).copied();
                let unknown = || self.source.at_record(Error::corrupt("the label has no class"), ordinal);
                mapped.filter(|&label| label >= 0).ok_or_else(unknown)
            };
            for (field, value) in schema.fields.iter().zip(&mut values) {
                match value {
                    Value::Int(label) if field.name == LABEL => *label = mapped(*label)?,
                    Value::Bytes(labels) if field.ty.is_class() => {
                        let all = box_numbers(labels).map(mapped).collect::<Result<Vec<_>>>()?;
                        *labels = pack_box_numbers(all);
                    }
                    _ => {}
                }
            }
        }
        Ok(Record::new(Arc::clone(schema), self.first + ordinal, values))
    }
}

impl RecordSource for Concatenated {
    fn name(&self) -> &str {
        self.parts.first().map_or("", |part| part.source.name())
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn lengths(&self) -> &dyn Lengths {
        self
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        let mut out: Vec<Option<Record>> = std::iter::repeat_with(|| None).take(records.len()).collect();
        for PartRecords { part, slots, ordinals } in self.groups(records)? {
            for (slot, record) in slots.into_iter().zip(part.source.get_many(&ordinals)?) {
                if let Some(out) = out.get_mut(slot) {
                    *out = Some(part.convert(record, &self.schema)?);
                }
            }
        }
        // A source that returns fewer records than requested leaves a gap.
        Ok(out.into_iter().flatten().collect())
    }

    fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        let groups = self.groups(records)?;
        let lenders: Option<Vec<Lender<'_>>> =
            groups.iter().map(|group| Some((group, (*group.part.columns.get(field_index)?)?))).collect();
        match lenders.as_deref() {
            Some([(group, index)]) => group.part.source.lend_ids(&group.ordinals, *index, read),
            Some(lenders) if lenders.len() <= MAX_LENDING => {
                lend_all(lenders, vec![None; records.len()], read)
            }
            _ => {
                read(&super::source::ids_in(&self.get_many(records)?, field_index)?);
                Ok(())
            }
        }
    }

    fn block_end(&self, start: u64, most_bytes: u64) -> Result<u64> {
        let (_, part, ordinal) = self.part_of(start)?;
        Ok(part.first + part.source.block_end(ordinal, most_bytes)?)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Result<Record>> + Send> {
        let (parts, schema) = (Arc::clone(&self.parts), Arc::clone(&self.schema));
        Box::new((0..parts.len()).flat_map(move |at| {
            let (parts, schema) = (Arc::clone(&parts), Arc::clone(&schema));
            let records = parts.get(at).map(|part| part.source.iter());
            records.into_iter().flatten().map(move |record| match parts.get(at) {
                Some(part) => record.and_then(|record| part.convert(record, &schema)),
                None => record,
            })
        }))
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(self.reopen())
    }

    fn properties(&self) -> RecordProperties {
        let all: Vec<RecordProperties> = self.parts.iter().map(|part| part.source.properties()).collect();
        let first = all.first().cloned().unwrap_or_default();
        RecordProperties {
            has_masks: all.iter().any(|part| part.has_masks),
            tokenizer: all.iter().find_map(|part| part.tokenizer.clone()),
            vision: all.into_iter().find_map(|part| part.vision),
            part_ends: self.ends.to_vec(),
            is_mixture: false,
            ..first
        }
    }

    fn is_remote(&self) -> bool {
        self.parts.iter().any(|part| part.source.is_remote())
    }

    fn at_record(&self, error: Error, record: u64) -> Error {
        match self.part_of(record) {
            Ok((_, part, ordinal)) => part.source.at_record(error, ordinal),
            Err(_) => error.at_row(record),
        }
    }
}

impl Lengths for Concatenated {
    fn records(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        let runs = self.ranks()?;
        let run = runs.partition_point(|run| run.first_rank <= rank).checked_sub(1);
        let run = run.and_then(|at| runs.get(at)).filter(|_| rank < self.records());
        match run.and_then(|run| Some((run, self.parts.get(run.part as usize)?))) {
            Some((run, part)) => {
                let rank = run.part_rank + (rank - run.first_rank);
                Ok(part.first + part.source.lengths().record_at(rank)?)
            }
            None => Err(no_such_record(self.records(), rank)),
        }
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        let (_, part, ordinal) = self.part_of(record)?;
        part.source.lengths().length_of(ordinal)
    }

    fn trained_of(&self, record: u64) -> Result<u64> {
        let (_, part, ordinal) = self.part_of(record)?;
        part.source.lengths().trained_of(ordinal)
    }

    fn longest_side_of(&self, record: u64) -> Result<u64> {
        let (_, part, ordinal) = self.part_of(record)?;
        part.source.lengths().longest_side_of(ordinal)
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        let (_, part, ordinal) = self.part_of(record)?;
        part.source.lengths().shape_of(ordinal)
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        let (_, part, ordinal) = self.part_of(record)?;
        part.source.lengths().column_of(ordinal, name)
    }

    fn key_of(&self, record: u64) -> Option<String> {
        let (_, part, ordinal) = self.part_of(record).ok()?;
        part.source.key_of(ordinal)
    }

    fn can_be_cut(&self) -> bool {
        self.schema.holds_token_ids()
    }

    fn runs(&self) -> Result<Runs<'_>> {
        let (runs, records) = (self.ranks()?, self.records());
        let mut at = 0;
        Ok(Box::new(std::iter::from_fn(move || {
            let &RankRun { length, first_rank, .. } = runs.get(at)?;
            while runs.get(at).is_some_and(|run| run.length == length) {
                at += 1;
            }
            let end = runs.get(at).map_or(records, |run| run.first_rank);
            Some(Ok(LengthRun { length, count: end - first_rank, first_rank }))
        })))
    }
}

/// Records of one part, and the index of the field of token ids in them.
type Lender<'a> = (&'a PartRecords<'a>, usize);

/// Calls `read` with `held` and the ids of `lenders`, which are lent by one source after another.
fn lend_all(lenders: &[Lender<'_>], held: Vec<Option<Ids<&[u8]>>>, read: &mut ReadIds<'_>) -> Result<()> {
    let Some(((first, field_index), rest)) = lenders.split_first() else {
        let all: Vec<Ids<&[u8]>> = held.into_iter().flatten().collect();
        read(&all);
        return Ok(());
    };
    let mut result = Ok(());
    first.part.source.lend_ids(&first.ordinals, *field_index, &mut |ids| {
        let mut held = held.clone();
        for (&slot, ids) in first.slots.iter().zip(ids) {
            if let Some(held) = held.get_mut(slot) {
                *held = Some(ids.clone());
            }
        }
        result = lend_all(rest, held, read);
    })?;
    result
}

/// Checks that two sources can be read as one, except for the fields of their records.
fn check_compatible(
    (name, source): (&str, &dyn RecordSource),
    (other_name, other): (&str, &dyn RecordSource),
) -> Result<()> {
    let (kind, other_kind) = (source.schema().kind, other.schema().kind);
    if kind != other_kind {
        let what = format!("{name} holds {}, but {other_name} holds {}", kind.name(), other_kind.name());
        return Err(Error::usage(what).help("read datasets of one kind together"));
    }
    let (properties, other_properties) = (source.properties(), other.properties());
    if let (Some(own), Some(others)) = (&properties.tokenizer, &other_properties.tokenizer)
        && own != others
    {
        let shown = |sha256: &str| sha256.get(..12).unwrap_or(sha256).to_owned();
        let what = format!(
            "{name} and {other_name} have different tokenizers ({} and {})",
            shown(own),
            shown(others)
        );
        return Err(Error::usage(what).help("convert both with one tokenizer: the same id is another token"));
    }
    if let (Some(_), None) | (None, Some(_)) = (&properties.vision, &other_properties.vision) {
        let what = format!("of {name} and {other_name}, one holds chats with images and the other does not");
        return Err(Error::usage(what)
            .help("convert chats without images with the same processor (`images_field`), too"));
    }
    if let (Some(own), Some(others)) = (&properties.vision, &other_properties.vision)
        && let Some((parameter, own, others)) = own.difference(others)
    {
        let what = format!(
            "the images of {name} and {other_name} were counted with different processors ({parameter} {own} and {others})"
        );
        return Err(Error::usage(what).help("convert both with one processor"));
    }
    let differs = |name: &&String| {
        other_properties.added.get(*name).is_some_and(|other| properties.added.get(*name) != Some(other))
    };
    if let Some(field) = properties.added.keys().find(differs) {
        let what = format!("the values of {field:?} follow other fields in {name} than in {other_name}");
        return Err(Error::usage(what).help("add the fields of both datasets alike"));
    }
    if properties.packed_length != other_properties.packed_length {
        let rows = |length: Option<u64>| {
            length.map_or_else(|| "single documents".to_owned(), |n| format!("rows packed for {n} tokens"))
        };
        let (own, others) = (rows(properties.packed_length), rows(other_properties.packed_length));
        let what = format!("{name} holds {own}, but {other_name} holds {others}");
        return Err(Error::usage(what).help("convert all without `pack`, and pack them with `seq_len`"));
    }
    if properties.raw_channels != other_properties.raw_channels {
        let stored = |channels: Option<usize>| {
            channels.map_or_else(|| "encoded images".to_owned(), |n| format!("raw samples of {n} channels"))
        };
        let (own, others) = (stored(properties.raw_channels), stored(other_properties.raw_channels));
        let what = format!("{name} holds {own}, but {other_name} holds {others}");
        return Err(Error::usage(what).help("convert both with the same encode"));
    }
    Ok(())
}

/// Returns the fields that the records of all sources have, in the order of the first source.
fn common_fields(sources: &[(String, Arc<dyn RecordSource>)]) -> Result<Vec<Field>> {
    // Where no token is marked, all are to be trained on. Nothing replaces masks that were not selected.
    let has_masks = sources.iter().any(|(_, source)| source.schema().masks_field().is_some())
        && sources
            .iter()
            .all(|(_, source)| !source.properties().has_masks || source.schema().masks_field().is_some());
    let mut common: Vec<Field> = Vec::new();
    let Some((first_name, first)) = sources.first() else { return Ok(common) };
    let is_packed = first.properties().packed_length.is_some();
    let mut all: Vec<(&str, &Field)> = Vec::new();
    for (name, source) in sources {
        for field in &source.schema().fields {
            if all.iter().all(|(_, other)| other.name != field.name) {
                all.push((name.as_str(), field));
            }
        }
    }
    for (name, field) in all {
        if field.name == ASSISTANT_MASKS {
            if has_masks {
                common.push(Field::required(ASSISTANT_MASKS, FieldType::Flags));
            }
            continue;
        }
        let mut nullable = false;
        let mut missing = None;
        for (other_name, source) in sources {
            let schema = source.schema();
            match schema.index_of(&field.name).and_then(|index| schema.fields.get(index)) {
                Some(other) if other.ty == field.ty => nullable |= other.nullable,
                Some(other) => {
                    let what = format!(
                        "the field {:?} has the type {} in {name}, but {} in {other_name}",
                        field.name,
                        field.ty.name(),
                        other.ty.name()
                    );
                    return Err(Error::usage(what).help("select fields that have one type in all datasets"));
                }
                None => missing = Some(other_name),
            }
        }
        let is_payload = first.schema().layout().payload == Some(&*field.name);
        let is_added = sources.iter().any(|(_, source)| source.properties().added.contains_key(&field.name));
        // Pairs and completions with a label are other records.
        let is_side = first.schema().holds_completions() && field.ty.id_width().is_some();
        let is_needed = is_side
            || is_payload
            || is_added
            || field.ty == FieldType::Label
            || (field.name == CU_SEQLENS && is_packed);
        match missing {
            None => common.push(Field { nullable, ..field.clone() }),
            Some(missing) if is_added => {
                let what =
                    format!("{name} has the field {:?} of a companion, but {missing} does not", field.name);
                return Err(Error::usage(what).help("open each dataset with such a companion (`add`)"));
            }
            Some(missing) if is_needed => {
                let what = format!("{name} has the field {:?}, but {missing} does not", field.name);
                return Err(Error::usage(what).help(
                    "select the same fields of each dataset, without this one, or convert them alike",
                ));
            }
            Some(_) => {}
        }
    }
    if common.is_empty() {
        let what = format!("the records of {first_name} have no field in common with those of the others");
        return Err(Error::usage(what).help("select the same fields of each dataset"));
    }
    Ok(common)
}

/// Returns the names of the classes.
fn merged_classes(sources: &[(String, Arc<dyn RecordSource>)], classes: ClassNames) -> Result<Vec<String>> {
    let Some((first_name, first)) = sources.first() else { return Ok(Vec::new()) };
    let mut names = first.schema().class_names.clone();
    for (name, source) in sources {
        let own = &source.schema().class_names;
        if classes == ClassNames::Equal && *own != names {
            let shown = |names: &[String], at: usize| {
                names.get(at).map_or_else(|| "missing".to_owned(), |name| format!("{name:?}"))
            };
            let at = names.iter().zip(own).take_while(|(a, b)| a == b).count();
            let what = format!(
                "{first_name} and {name} have different classes: class {at} is {} in {first_name}, but {} in {name}",
                shown(&names, at),
                shown(own, at)
            );
            return Err(Error::usage(what)
                .help("merge the classes by their names (`merge_classes`; in Rust, ClassNames::Merged)"));
        }
        for class in own {
            if !names.contains(class) {
                names.push(class.clone());
            }
        }
    }
    Ok(names)
}
