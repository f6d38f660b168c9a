//! Companions: images and masks beside or parallel to images, which become their fields.
//!
//! Like a [sidecar](super::sidecars), a companion follows its image in the list of files.

use std::os::unix::ffi::OsStrExt;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::found::FoundImages;
use super::image_field_names::MemberField;
use super::sidecars::FileField;
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::options::SourceSpec;
use crate::printable::printable;
use crate::recipe::Companion;
use crate::sample::{Reject, RejectCode};
use crate::source::list::detail::Detail;
use crate::source::list::expand::is_image_name;
use crate::source::list::file_list::{FileList, NearbyFiles};
use crate::source::list::source_file::SourceFile;
use crate::warning::Warning;

/// The images of a listing, apart from those that may be companions.
pub(super) struct Divided {
    pub(super) images: FileList,
    /// Hashes of the paths of possible companions with their ordinals in the listing, sorted.
    companions: Vec<(u128, u32)>,
}

/// Divides the files of `listing` that are images by name: those that fit the pattern of a companion are not images.
///
/// # Errors
///
/// Fails if all of them fit.
pub(super) fn divide(
    listing: &FileList,
    companions: &[Companion],
    sources: &[SourceSpec],
) -> Result<Divided> {
    let mut divided = Divided { images: FileList::default(), companions: Vec::new() };
    let fits = |file: &SourceFile| {
        !file.is_named()
            && companions.iter().any(|one| one.pattern.fits(file.relative.as_os_str().as_bytes()))
    };
    for (file, ordinal) in listing.iter().zip(0..) {
        let is_damage = file.member.as_ref().is_some_and(|member| member.is_damage());
        match fits(&file) {
            _ if is_damage => {}
            true => {
                let hash = hash(file.source, file.relative.as_os_str().as_bytes());
                divided.companions.push((hash, ordinal));
            }
            false if is_image_name(&file.name(sources)) => divided.images.push(&file),
            false => {}
        }
    }
    divided.companions.sort_unstable();
    if divided.images.is_empty() && !divided.companions.is_empty() {
        return Err(Error::usage(
            "all images fit the patterns of companions, so there is no image that they belong to",
        )
        .of_option("companion")
        .help("write a pattern that images do not fit, such as masks/{stem}.png"));
    }
    Ok(divided)
}

impl Divided {
    /// Adds the images to those that are `made`, with these `details` and with their companions after them. The companions are
    /// in `listing`. An image without one is rejected unless it may lack it.
    pub(super) fn accompany(
        self,
        listing: &FileList,
        companions: &[Companion],
        details: Vec<Detail>,
        made: &mut FoundImages,
    ) {
        let mut used = vec![false; self.companions.len()];
        let mut nearby: Vec<NearbyFiles<'_>> = companions.iter().map(|_| NearbyFiles::new(listing)).collect();
        for (at, Companion { name, pattern: _, ty, is_optional: _ }) in companions.iter().enumerate() {
            let field = MemberField { name: name.clone(), member: name.clone(), ty: *ty };
            made.fields.push(field.field());
            made.roles.fields.push(field);
            made.file_fields.push(FileField { ty: *ty, at });
        }
        for (image, mut detail) in self.images.iter().zip(details) {
            let mut found = Vec::new();
            for (companion, nearby) in companions.iter().zip(&mut nearby) {
                let path = match image.is_named() {
                    true => None,
                    false => companion.pattern.path_for(image.relative.as_os_str().as_bytes()),
                };
                let at = path.as_ref().and_then(|path| self.position(image.source, path));
                let file = at.and_then(|at| nearby.get(self.companions[at].1 as usize)).cloned();
                if let Some(at) = at {
                    used[at] = true;
                }
                if file.is_none() && !companion.is_optional {
                    let missing = match path {
                        Some(path) => {
                            format!("there is no file {:?}", printable(&String::from_utf8_lossy(&path)))
                        }
                        None => "the path of the image does not fit its pattern".to_owned(),
                    };
                    let message = format!("it has no companion {:?}: {missing}", companion.name);
                    detail.defect.get_or_insert(Box::new(Reject::new(RejectCode::MissingFile, message)));
                }
                found.push(file);
            }
            made.files.push(&image);
            made.details.push(detail);
            for (file, field) in found.into_iter().zip(0..) {
                if let Some(file) = file {
                    made.files.push(&SourceFile { of_field: Some(field), ..file });
                    made.details.push(Detail::default());
                }
            }
        }
        let mut unused = self.companions.iter().zip(&used).filter(|(_, used)| !**used);
        if let Some(((_, first), _)) = unused.next() {
            let example = listing.get(*first as usize).map(|file| file.origin).unwrap_or_default();
            let files = 1 + unused.count() as u64;
            let message = format!(
                "{} that {} the pattern of a companion {} skipped, because no image has them, such as {:?}",
                plural(files, "file"),
                if files == 1 { "fits" } else { "fit" },
                if files == 1 { "is" } else { "are" },
                printable(&example)
            );
            let warning = Warning::new("companions-unpaired", message);
            made.warnings.push(warning.with("files", files).with("example", example));
        }
    }

    /// Returns the position of the companion at `path` of a source.
    fn position(&self, source: u32, path: &[u8]) -> Option<usize> {
        let wanted = hash(source, path);
        let at = self.companions.partition_point(|(hash, _)| *hash < wanted);
        self.companions.get(at).is_some_and(|(hash, _)| *hash == wanted).then_some(at)
    }
}

fn hash(source: u32, path: &[u8]) -> u128 {
    xxh3_128_with_seed(path, source.into())
}
