//! Deduplication of documents: a pass over all texts before the first unit.
//!
//! Texts are identified by their SHA-256 after `--normalize`. SHA-256 has no known collisions, accidental or crafted,
//! so texts with equal hashes are considered equal without reading them again. Reading them again would be expensive,
//! because compressed files cannot be read from the middle. The hashes are sorted on disk, and the duplicates are
//! stored there in record order.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dsconvert_writer::outcome::Outcomes;
use dsconvert_writer::stop::Stop;
use dsconvert_writer::workers::Workers;
use sha2::{Digest, Sha256};

use super::blocks::for_each_block;
use super::canonical::canonical;
use super::conversion::TextJob;
use super::duplicates::{DocumentPosition, DuplicatesFile, PAIR_BYTES, POSITION_BYTES, encode_position};
use super::feed::TextTask;
use super::multimodal::Multimodal;
use super::sources::source::TextItem;
use crate::error::{Error, Result};
use crate::index::sort::ExternalSort;
use crate::pipeline::dedup::{DUPLICATE_PAIRS_NAME, is_stored, store};
use crate::pipeline::memory::MemoryPool;
use crate::recipe::TextRecipe;
use crate::source::io::broken::Broken;
use crate::source::items::text::fields::SourceDocument;
use crate::source::list::source_file::SourceFile;
use crate::storage::NewFile;

/// Memory of each of the two sorts. The second one takes its rows from the first.
const SORT_BYTES: usize = dsconvert_writer::SORT_BYTES / 2;
const HASH_BYTES: usize = 32;
/// Size of a row: hash and position of a document.
const TEXT_BYTES: usize = HASH_BYTES + POSITION_BYTES;

/// Finds the duplicates in all units. Of equal documents, the first in record order is kept. Duplicates found by an
/// earlier attempt at the same plan are reused.
pub(super) fn find(
    job: &TextJob,
    work: &Path,
    workers: &Workers,
    memory: &MemoryPool,
    stop: &Stop,
) -> Result<DuplicatesFile> {
    let path = work.join(DUPLICATE_PAIRS_NAME);
    if is_stored(&path)? {
        return DuplicatesFile::open(&path);
    }
    let texts = Mutex::new(ExternalSort::<TEXT_BYTES>::new(work, SORT_BYTES));
    for_each_block(job, "looking for duplicates", workers, memory, stop, |task, held| {
        let TextTask { section, file, mut items, .. } = task;
        let (context, mut out, mut rows) = (job.item_context(), Outcomes::default(), Vec::new());
        while let Some(TextItem { mark, document }) = items.next(&context, &mut out)? {
            let position = DocumentPosition { section, mark };
            let Ok(document) = document else { continue };
            rows.extend(match &job.conversion.multimodal {
                Some(multimodal) => hashed_with_images(job, multimodal, &file, &document, position)?,
                None => hashed(context.recipe, &document, position),
            });
        }
        drop(items);
        drop(held);
        let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
        rows.into_iter().try_for_each(|row| texts.push(row))
    })?;
    let mut pairs = ExternalSort::<PAIR_BYTES>::new(work, SORT_BYTES);
    let mut first: Option<[u8; TEXT_BYTES]> = None;
    for row in texts.into_inner().unwrap_or_else(PoisonError::into_inner).finish()? {
        let row = row?;
        match first.filter(|first| first[..HASH_BYTES] == row[..HASH_BYTES]) {
            None => first = Some(row),
            Some(first) => {
                let mut pair = [0; PAIR_BYTES];
                pair[..POSITION_BYTES].copy_from_slice(&row[HASH_BYTES..]);
                pair[POSITION_BYTES..].copy_from_slice(&first[HASH_BYTES..]);
                pairs.push(pair)?;
            }
        }
    }
    let mut file = NewFile::create_shared(&path)?;
    for pair in pairs.finish()? {
        file.write_all(&pair?).map_err(|e| Error::io("write", &path, e))?;
    }
    store(file)?;
    DuplicatesFile::open(&path)
}

/// Returns the hash of a document and its position; `None` if it is not compared.
fn hashed(
    recipe: &TextRecipe,
    document: &SourceDocument<'_>,
    position: DocumentPosition,
) -> Option<[u8; TEXT_BYTES]> {
    let mut row = [0; TEXT_BYTES];
    row[HASH_BYTES..].copy_from_slice(&encode_position(position));
    if let Some(ids) = &document.ids {
        let mut hash = Sha256::new();
        ids.for_each_bytes(|bytes| hash.update(bytes));
        row[..HASH_BYTES].copy_from_slice(&hash.finalize());
        return Some(row);
    }
    let text = match recipe.chat.has_masks() {
        true => Cow::Owned(canonical(&document.text)),
        // Documents that will be rejected are not duplicates of anything.
        false => recipe.normalize.apply(&document.text, recipe.max_document_bytes).ok()?,
    };
    if text.is_empty() {
        return None;
    }
    row[..HASH_BYTES].copy_from_slice(&Sha256::digest(text.as_bytes()));
    Some(row)
}

/// Returns the hash of a chat with its images, wherever they are stored, and its position; `None` if it is not compared.
///
/// # Errors
///
/// Fails if an image has changed or cannot be read.
fn hashed_with_images(
    job: &TextJob,
    multimodal: &Multimodal,
    file: &SourceFile,
    document: &SourceDocument<'_>,
    position: DocumentPosition,
) -> Result<Option<[u8; TEXT_BYTES]>> {
    // Documents that will be rejected are not duplicates of anything.
    let Ok(chat) = multimodal.chat(&document.text) else { return Ok(None) };
    let mut hash = Sha256::new();
    hash.update(Sha256::digest(canonical(&chat.chat)));
    match multimodal.sources(job, file, chat.images, |bytes, _| hash.update(Sha256::digest(bytes))) {
        Ok(_) => {}
        Err(Broken::Damaged(_)) => return Ok(None),
        Err(Broken::Failed(error)) => return Err(error),
    }
    let mut row = [0; TEXT_BYTES];
    row[..HASH_BYTES].copy_from_slice(&hash.finalize());
    row[HASH_BYTES..].copy_from_slice(&encode_position(position));
    Ok(Some(row))
}
