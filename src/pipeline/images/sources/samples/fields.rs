//! The fields of samples in tar files, and the inspection of first samples that finds them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::pipeline::images::image_field_names::MemberField;
use crate::pipeline::images::image_fields::{ImageInspector, Inspected, begins_as_image, is_image};
use crate::recipe::is_reserved;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};
use crate::source::archive::tar::tar_stem;
use crate::source::io::encoding::small_text;
use crate::source::io::name::portable_name;
use crate::source::io::planned::PlannedFile;
use crate::source::items::json_line;
use crate::source::items::metadata::columns::{KeptField, field_not_seen};
use crate::source::items::webdataset::{NextSample, Sample, Samples};
use crate::source::table::typed_values::from_text;
use crate::warning::{Warning, quoted};

/// Number of samples at the start of the first tar file that say whether it is an archive of image folders.
const ARCHIVE_SAMPLES: usize = 16;
/// Maximum number of samples, and of their bytes, that are inspected for fields at the start of the first tar file.
const FIRST_SAMPLES: usize = 4096;
const FIRST_BYTES: u64 = 32 << 20;
/// Number of samples that are inspected in each of the other inspected tar files, and number of these.
pub(in crate::pipeline::images) const OTHER_SAMPLES: usize = 16;
pub(in crate::pipeline::images) const OTHER_TARS: usize = 15;

/// Members that always become fields, by extension, with the types of the fields.
const FIELDS: [(&str, FieldType); 3] =
    [(JSON, FieldType::Json), ("txt", FieldType::String), (CLASS, FieldType::Int64)];
const JSON: &str = "json";
/// The member with the class of a sample. It is a field, or the label if classes are given.
pub(in crate::pipeline::images) const CLASS: &str = "cls";

impl MemberField {
    /// Returns the value of a member.
    ///
    /// # Errors
    ///
    /// Returns a reject if the bytes do not fit the type.
    pub(in crate::pipeline::images) fn value(&self, bytes: &Bytes) -> Result<Value, Reject> {
        let Self { member, ty, .. } = self;
        if *ty == FieldType::Binary {
            return Ok(Value::Bytes(bytes.clone()));
        }
        let text = &*text_of(member, bytes)?;
        match ty {
            // Without interpreting it, because a number may be too large for Rust.
            FieldType::Json => match json_line::parse::<Box<RawValue>>(text) {
                Ok((_, json)) => Ok(Value::Text(json.trim().into())),
                Err(e) => {
                    Err(Reject::new(RejectCode::InvalidJson, format!("the {member} member is not JSON: {e}")))
                }
            },
            FieldType::Int64 => text.trim().parse().map(Value::Int).map_err(|_| {
                Reject::new(RejectCode::InvalidValue, format!("the {member} member is not an integer"))
            }),
            FieldType::String => Ok(Value::Text(text.into())),
            ty => from_text(member, *ty, text.trim()),
        }
    }
}

/// Returns the text of a member.
pub(in crate::pipeline::images) fn text_of<'a>(
    member: &str,
    bytes: &'a [u8],
) -> Result<Cow<'a, str>, Reject> {
    small_text(&format!("the {member} member"), bytes)
}

/// Returns the fields of samples with no other members than those of all tar files.
pub(in crate::pipeline::images) fn default_members(has_classes: bool) -> Vec<MemberField> {
    let fields = FIELDS.iter().filter(|(name, _)| !(has_classes && *name == CLASS));
    fields.map(|(name, ty)| member_field(name, *ty)).collect()
}

fn member_field(member: &str, ty: FieldType) -> MemberField {
    let name = member.replace('.', "_");
    let is_taken = is_reserved(&name) && !FIELDS.iter().any(|(field, _)| *field == member);
    let name = if is_taken { format!("{name}_{}", ty.name()) } else { name };
    MemberField { name, member: member.to_owned(), ty }
}

impl MemberField {
    /// Returns the field of a column that the user keeps.
    pub(in crate::pipeline::images) fn of_column((kept, field): (&KeptField, &Field)) -> Self {
        Self { name: field.name.clone(), member: kept.member.clone(), ty: field.ty }
    }
}

/// What the first samples of tar files show.
#[derive(Default)]
pub(in crate::pipeline::images) struct InspectedTars {
    /// The images of the samples that have any.
    pub(in crate::pipeline::images) images: Vec<Vec<Inspected>>,
    /// The other members of these samples.
    members: BTreeMap<String, MemberLook>,
    /// Whether there are images, and they have no class, text or additional image of their own. Of the first tar file only.
    pub(in crate::pipeline::images) has_bare_images: bool,
    /// Folder of an image, if the first tar file looks like an archive of image folders rather than a WebDataset: bare
    /// images in folders.
    pub(in crate::pipeline::images) folder: Option<String>,
    /// Whether a sample with an image has a class.
    pub(in crate::pipeline::images) has_classes: bool,
}

/// What the inspected members of one name have in common.
#[derive(Clone, Copy)]
struct MemberLook {
    is_text: bool,
    is_json: bool,
}

impl InspectedTars {
    /// Inspects the first samples of the first tar file. A damaged file is reported when it is converted.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub(in crate::pipeline::images) fn first(&mut self, tar: &PlannedFile) -> Result<()> {
        let root = tar.path.file_name().map(portable_name).unwrap_or_default();
        let root = tar_stem(&root);
        let (mut has_images, mut has_members) = (false, false);
        let mut folder = None;
        self.inspect(tar, FIRST_SAMPLES, FIRST_BYTES, |number, sample, images| {
            if number > ARCHIVE_SAMPLES {
                return;
            }
            has_images |= images > 0;
            has_members |= images > 0 && sample.members.len() > 1;
            let parent = sample.name.rsplit_once('/').map(|(parent, _)| parent);
            // An archive of one folder usually has its name.
            if let Some(parent) = parent.filter(|parent| images > 0 && *parent != root) {
                folder.get_or_insert_with(|| parent.to_owned());
            }
        })?;
        self.has_bare_images = has_images && !has_members;
        self.folder = folder.filter(|_| self.has_bare_images);
        Ok(())
    }

    /// Inspects the first samples of another tar file.
    ///
    /// # Errors
    ///
    /// As [`Self::first`].
    pub(in crate::pipeline::images) fn other(&mut self, tar: &PlannedFile) -> Result<()> {
        self.inspect(tar, OTHER_SAMPLES, FIRST_BYTES, |_, _, _| {})
    }

    /// Inspects samples until there are `max_samples`, or one exceeds `max_bytes`. Calls `each` with the number of each
    /// sample, counted from 1, and of its images.
    fn inspect(
        &mut self,
        tar: &PlannedFile,
        max_samples: usize,
        max_bytes: u64,
        mut each: impl FnMut(usize, &Sample, usize),
    ) -> Result<()> {
        let inspector = ImageInspector::new()?;
        let mut samples = Samples::open(tar)?;
        let (mut number, mut bytes) = (0, 0);
        while number < max_samples && (number < ARCHIVE_SAMPLES || bytes < max_bytes) {
            let Some((_, found)) = samples.read()? else { break };
            let NextSample::Sample(sample) = found else { continue };
            number += 1;
            bytes += sample.members.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
            let is_image_member = |(member, _): &&(String, Bytes)| is_image(member);
            let images: Vec<Inspected> = sample
                .members
                .iter()
                .filter(is_image_member)
                .map(|(member, bytes)| (member.clone(), inspector.look(bytes)))
                .collect();
            each(number, &sample, images.len());
            if images.is_empty() {
                continue;
            }
            self.has_classes |= sample.members.iter().any(|(member, _)| member == CLASS);
            for (member, bytes) in
                sample.members.iter().filter(|m| !is_image_member(m) && !begins_as_image(&m.1, &m.0))
            {
                let look = MemberLook::of(member, bytes);
                let known = self.members.entry(member.clone()).or_insert(look);
                known.is_text &= look.is_text;
                known.is_json &= look.is_json;
            }
            self.images.push(images);
        }
        Ok(())
    }

    /// Returns the fields that members become, and adds warnings about those that are left out. `kept` are the members
    /// that the user names; without them, all that hold text are fields. With `has_classes`, the class is the label.
    ///
    /// # Errors
    ///
    /// Fails if two fields would have the same name.
    pub(in crate::pipeline::images) fn fields(
        &self,
        kept: Option<&[KeptField]>,
        has_classes: bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<MemberField>> {
        let mut fields = match kept {
            Some(kept) => self.listed(kept, warnings),
            None => self.found(has_classes, warnings),
        };
        if has_classes {
            fields.retain(|field| field.member != CLASS);
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = fields.iter().find(|field| !names.insert(&field.name)) {
            return Err(Error::usage(format!("two members would be the field {:?}", twice.name))
                .of_option("keep_fields")
                .help(format!("choose a name: `keep_fields NAME={}`", twice.member)));
        }
        Ok(fields)
    }

    fn found(&self, has_classes: bool, warnings: &mut Vec<Warning>) -> Vec<MemberField> {
        let mut fields = default_members(has_classes);
        let mut left_out = Vec::new();
        for (member, look) in &self.members {
            if FIELDS.iter().any(|(known, _)| known == member) {
                continue;
            }
            match look.ty(member) {
                Some(ty) if !member.is_empty() => fields.push(member_field(member, ty)),
                _ => left_out.push(member.clone()),
            }
        }
        if !left_out.is_empty() {
            let kept: Vec<String> = fields.iter().map(|field| field.member.clone()).collect();
            let keep = kept.iter().chain(left_out.first()).cloned().collect::<Vec<_>>().join(",");
            let message = format!(
                "members of samples that are neither images nor text are left out: {}; list those that become fields, as in \
                 `keep_fields {keep}:binary`",
                quoted(&left_out)
            );
            let warning = Warning::new("members-left-out", message);
            warnings.push(warning.with("members", left_out).with("kept", kept));
        }
        fields
    }

    fn listed(&self, kept: &[KeptField], warnings: &mut Vec<Warning>) -> Vec<MemberField> {
        let mut fields = Vec::new();
        for KeptField { name, member, ty } in kept {
            let member = member.trim_start_matches('.').to_ascii_lowercase();
            let look = self.members.get(&member);
            let known = FIELDS.iter().find(|(known, _)| *known == member).map(|(_, ty)| *ty);
            if look.is_none() && known.is_none() && !self.images.is_empty() {
                let there: Vec<String> = self.members.keys().cloned().collect();
                warnings.push(field_not_seen(&member, "the first samples", &there));
            }
            let by_content = || look.map_or_else(|| by_name(&member), |look| look.ty(&member));
            let ty = ty.or(known).or_else(by_content).unwrap_or(FieldType::Binary);
            let field = member_field(&member, ty);
            fields.push(MemberField { name: name.clone().unwrap_or(field.name), ..field });
        }
        fields
    }
}

impl MemberLook {
    fn of(member: &str, bytes: &[u8]) -> Self {
        let text = text_of(member, bytes).ok();
        let is_printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0c');
        let text = text.filter(|text| text.chars().all(is_printable));
        let is_json = |text: &str| json_line::parse::<Box<RawValue>>(text).is_ok();
        Self {
            is_text: text.is_some(),
            is_json: is_json_name(member) && text.as_deref().is_some_and(is_json),
        }
    }

    /// Returns the type of a field of text; `None` if it is not text.
    fn ty(self, member: &str) -> Option<FieldType> {
        match self {
            Self { is_json: true, .. } if is_json_name(member) => Some(FieldType::Json),
            Self { is_text: true, .. } => Some(FieldType::String),
            _ => None,
        }
    }
}

fn is_json_name(member: &str) -> bool {
    member.rsplit('.').next() == Some(JSON)
}

/// Returns the type of a member that was not seen.
fn by_name(member: &str) -> Option<FieldType> {
    match member.rsplit('.').next() {
        Some(JSON) => Some(FieldType::Json),
        Some("txt" | "text" | "caption") => Some(FieldType::String),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::KEY;

    #[test]
    fn members_of_text_become_fields_and_others_are_named() {
        let mut tars = InspectedTars::default();
        for (member, bytes) in [
            ("caption", &b"a cat"[..]),
            ("en.txt", b"\xef\xbb\xbfa \xc3\xa9"),
            ("meta.json", b"{\"a\": NaN}"),
            ("bad.json", b"{"),
            ("fr.txt", b"\xff\xfea\0\xe9\0"),
            ("npy", b"\x93NUMPY"),
            ("mp3", b"ID3\0"),
            (KEY, b"0001"),
        ] {
            tars.members.insert(member.to_owned(), MemberLook::of(member, bytes));
        }
        let mut warnings = Vec::new();
        let shown = |fields: Vec<MemberField>| {
            let texts = fields.iter().skip(2).map(|f| format!("{}={}:{}", f.name, f.member, f.ty.name()));
            texts.collect::<Vec<_>>().join(" ")
        };
        let fields = tars.fields(None, true, &mut warnings).unwrap();
        assert_eq!(
            shown(fields),
            "bad_json=bad.json:string caption=caption:string en_txt=en.txt:string \
             fr_txt=fr.txt:string key_string=key:string \
             meta_json=meta.json:json"
        );
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert_eq!(warning.value("members"), &serde_json::json!(["mp3", "npy"]));
    }
}
