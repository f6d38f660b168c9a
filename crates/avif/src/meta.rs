//! The `meta` box: image items, where their data is, their properties and how they refer to each other.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::boxes::{BmffBox, Boxes, Fields, FourCc, name};
use crate::error::{Error, Result};
use crate::properties::Properties;

/// Maximum number of items. Photographs that cameras split into tiles have a few hundred.
const MAX_ITEMS: usize = 4096;
/// Maximum number of extents, references and associations of properties, each over all items.
const MAX_ENTRIES: usize = 1 << 16;

/// An image, or metadata.
#[derive(Debug, Default)]
pub(crate) struct Item<'a> {
    pub(crate) kind: FourCc,
    pub(crate) properties: Properties<'a>,
    /// Offset and length of the parts of the data.
    extents: Vec<(u64, u64)>,
    /// Whether the offsets are those of the `idat` box.
    is_in_idat: bool,
    /// A method of storing data that this crate does not read.
    is_constructed: bool,
}

/// A reference of one item to others.
#[derive(Debug)]
struct Reference {
    kind: FourCc,
    from: u32,
    to: Vec<u32>,
}

/// The content of a `meta` box.
#[derive(Debug)]
pub(crate) struct Meta<'a> {
    file: &'a [u8],
    idat: &'a [u8],
    /// Identifier of the primary item.
    pub(crate) primary: u32,
    items: BTreeMap<u32, Item<'a>>,
    references: Vec<Reference>,
}

fn too_many(what: &str) -> Error {
    Error::too_large(format!("it has more {what} than any real image"))
}

impl<'a> Meta<'a> {
    /// Reads the `meta` box `content` of `file`.
    pub(crate) fn read(file: &'a [u8], content: &'a [u8]) -> Result<Self> {
        let mut meta = Self { file, idat: &[], primary: 0, items: BTreeMap::new(), references: Vec::new() };
        let (fields, ..) = Fields::versioned(*b"meta", content)?;
        let boxes: Vec<_> = fields.boxes().collect::<Result<_>>()?;
        let find = |kind: &FourCc| boxes.iter().find(|found| found.kind == *kind).map(|found| found.content);
        let handler = find(b"hdlr").ok_or_else(|| Error::corrupt("its box `meta` has no box `hdlr`"))?;
        if handler.get(8..12) != Some(b"pict") {
            return Err(Error::corrupt("its box `meta` is not about pictures"));
        }
        if let Some(primary) = find(b"pitm") {
            let (mut fields, version, _) = Fields::versioned(*b"pitm", primary)?;
            meta.primary = fields.u16_or_u32(version > 0)?;
        }
        meta.idat = find(b"idat").unwrap_or_default();
        for found in boxes {
            match &found.kind {
                b"iinf" => meta.read_infos(found)?,
                b"iloc" => meta.read_locations(found)?,
                b"iref" => meta.read_references(found)?,
                b"iprp" => meta.read_properties(found)?,
                _ => {}
            }
        }
        Ok(meta)
    }

    fn item(&mut self, id: u32) -> Result<&mut Item<'a>> {
        if self.items.len() >= MAX_ITEMS && !self.items.contains_key(&id) {
            return Err(too_many("items"));
        }
        Ok(self.items.entry(id).or_default())
    }

    fn read_infos(&mut self, found: BmffBox<'a>) -> Result<()> {
        let (mut fields, version, _) = Fields::versioned(found.kind, found.content)?;
        fields.u16_or_u32(version > 0)?;
        for entry in fields.boxes() {
            let BmffBox { kind, content } = entry?;
            let (mut fields, version, _) = Fields::versioned(kind, content)?;
            if kind != *b"infe" || version < 2 {
                continue;
            }
            let id = fields.u16_or_u32(version > 2)?;
            let _protection = fields.u16()?;
            self.item(id)?.kind = fields.four()?;
        }
        Ok(())
    }

    fn read_locations(&mut self, found: BmffBox<'a>) -> Result<()> {
        let (mut fields, version, _) = Fields::versioned(found.kind, found.content)?;
        if version > 2 {
            return Err(Error::unsupported(format!("its box `iloc` has version {version}")));
        }
        let (sizes, more) = (fields.u8()?, fields.u8()?);
        let [offset_bytes, length_bytes, base_bytes] = [sizes >> 4, sizes & 15, more >> 4];
        let index_bytes = if version > 0 { more & 15 } else { 0 };
        let mut left = MAX_ENTRIES;
        for _ in 0..fields.u16_or_u32(version > 1)? {
            let id = fields.u16_or_u32(version > 1)?;
            let method = if version > 0 { fields.u16()? & 15 } else { 0 };
            let reference = fields.u16()?;
            let base = fields.sized(base_bytes)?;
            let count = usize::from(fields.u16()?);
            left = left.checked_sub(count).ok_or_else(|| too_many("parts of items"))?;
            let mut extents = Vec::new();
            for _ in 0..count {
                fields.sized(index_bytes)?;
                let offset = base.checked_add(fields.sized(offset_bytes)?);
                let offset = offset.ok_or_else(|| Error::corrupt("an offset in its box `iloc` overflows"))?;
                extents.push((offset, fields.sized(length_bytes)?));
            }
            let item = self.item(id)?;
            item.extents = extents;
            item.is_in_idat = method == 1;
            // Data in another item, or in another file.
            item.is_constructed = method > 1 || reference != 0;
        }
        Ok(())
    }

    fn read_references(&mut self, found: BmffBox<'a>) -> Result<()> {
        let (fields, version, _) = Fields::versioned(found.kind, found.content)?;
        let mut left = MAX_ENTRIES;
        for reference in fields.boxes() {
            let BmffBox { kind, content } = reference?;
            let mut fields = Fields::new(kind, content);
            let from = fields.u16_or_u32(version > 0)?;
            let count = usize::from(fields.u16()?);
            left = left.checked_sub(count + 1).ok_or_else(|| too_many("references"))?;
            let to = (0..count).map(|_| fields.u16_or_u32(version > 0)).collect::<Result<_>>()?;
            self.references.push(Reference { kind, from, to });
        }
        Ok(())
    }

    fn read_properties(&mut self, found: BmffBox<'a>) -> Result<()> {
        let boxes = Fields::new(found.kind, found.content).boxes();
        let Some(container) = boxes.clone().find(b"ipco")? else {
            return Err(Error::corrupt("its box `iprp` has no box `ipco`"));
        };
        let properties: Vec<_> =
            Fields::new(container.kind, container.content).boxes().collect::<Result<_>>()?;
        let mut left = MAX_ENTRIES;
        for found in boxes {
            let BmffBox { kind, content } = found?;
            if kind != *b"ipma" {
                continue;
            }
            let (mut fields, version, flags) = Fields::versioned(kind, content)?;
            for _ in 0..fields.u32()? {
                let id = fields.u16_or_u32(version > 0)?;
                let count = usize::from(fields.u8()?);
                left = left.checked_sub(count + 1).ok_or_else(|| too_many("properties"))?;
                for _ in 0..count {
                    let (is_essential, index) = if flags & 1 == 1 {
                        let word = fields.u16()?;
                        (word & 0x8000 != 0, word & 0x7fff)
                    } else {
                        let byte = fields.u8()?;
                        (byte & 0x80 != 0, u16::from(byte & 0x7f))
                    };
                    // 0 means none.
                    let Some(index) = usize::from(index).checked_sub(1) else { continue };
                    let property = properties.get(index).ok_or_else(|| {
                        Error::corrupt(format!(
                            "an item has the property {}, which does not exist",
                            index + 1
                        ))
                    })?;
                    self.item(id)?.properties.add(*property, is_essential)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the item `id`.
    pub(crate) fn get(&self, id: u32) -> Result<&Item<'a>> {
        self.items.get(&id).ok_or_else(|| Error::corrupt(format!("it has no item {id}")))
    }

    /// Returns the items to which `from` refers by `kind`.
    pub(crate) fn targets(&self, kind: &FourCc, from: u32) -> &[u32] {
        let found = self.references.iter().find(|entry| entry.kind == *kind && entry.from == from);
        found.map(|entry| entry.to.as_slice()).unwrap_or_default()
    }

    /// Returns the items that refer to `to` by `kind`.
    pub(crate) fn sources(&self, kind: &FourCc, to: u32) -> impl Iterator<Item = u32> {
        let refers = move |entry: &&Reference| entry.kind == *kind && entry.to.contains(&to);
        self.references.iter().filter(refers).map(|entry| entry.from)
    }

    /// Returns the alpha image of the item `id`, if it has one.
    pub(crate) fn alpha_of(&self, id: u32) -> Option<u32> {
        let is_alpha = |source: &u32| self.items.get(source).is_some_and(|item| item.properties.is_alpha());
        self.sources(b"auxl", id).find(is_alpha)
    }

    /// Returns the EXIF block of the item `id`, without the offset that precedes it.
    pub(crate) fn exif_of(&self, id: u32) -> Option<Cow<'a, [u8]>> {
        let is_exif = |source: &u32| self.items.get(source).is_some_and(|item| &item.kind == b"Exif");
        let data = self.data(self.sources(b"cdsc", id).find(is_exif)?).ok()?;
        let start = usize::try_from(u32::from_be_bytes(*data.first_chunk()?)).ok()?.checked_add(4)?;
        match data {
            Cow::Borrowed(data) => data.get(start..).map(Cow::Borrowed),
            Cow::Owned(data) => data.get(start..).map(|block| Cow::Owned(block.to_vec())),
        }
    }

    /// Returns the data of the item `id`, whose parts are joined if it has several.
    pub(crate) fn data(&self, id: u32) -> Result<Cow<'a, [u8]>> {
        let parts = self.parts(id)?;
        if let [part] = parts[..] {
            return Ok(Cow::Borrowed(part));
        }
        let total = parts.iter().map(|part| part.len()).sum();
        let mut joined = Vec::new();
        joined.try_reserve_exact(total).map_err(|_| Error::out_of_memory())?;
        parts.iter().for_each(|part| joined.extend_from_slice(part));
        Ok(Cow::Owned(joined))
    }

    fn parts(&self, id: u32) -> Result<Vec<&'a [u8]>> {
        let item = self.get(id)?;
        if item.is_constructed {
            return Err(Error::unsupported("the data of an item is in another item or file"));
        }
        let source = if item.is_in_idat { self.idat } else { self.file };
        let cut = || match item.is_in_idat {
            true => Error::corrupt("the data of an item goes beyond the end of its box `idat`"),
            false => Error::truncated(format_args!("the data of the item `{}`", name(item.kind))),
        };
        let mut left = source.len();
        let mut parts = Vec::with_capacity(item.extents.len());
        for &(offset, length) in &item.extents {
            let rest =
                usize::try_from(offset).ok().and_then(|offset| source.get(offset..)).ok_or_else(cut)?;
            let part = match length {
                // Up to the end.
                0 => rest,
                length => {
                    usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(cut)?
                }
            };
            left = left
                .checked_sub(part.len())
                .ok_or_else(|| Error::corrupt("the parts of an item overlap in the file"))?;
            parts.push(part);
        }
        if parts.iter().all(|part| part.is_empty()) {
            return Err(Error::corrupt(format!("the item `{}` has no data", name(item.kind))));
        }
        Ok(parts)
    }
}

/// Returns the first box `kind` of the file `bytes`.
pub(crate) fn top_level<'a>(bytes: &'a [u8], kind: &FourCc) -> Result<Option<BmffBox<'a>>> {
    Boxes::of_file(bytes).find(kind)
}
