//! The images of samples in tar files and of rows in tables: which one is the main image, and which are fields.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::image_field_names::{ChosenMember, MemberField, is_mask_name, named, natural};
use crate::error::{Error, Result};
use crate::recipe::ListedImage;
use crate::schema::{FieldType, IMAGE};
use crate::transform::image::{self as transform, ImageOptions, ImageTransform, ImageType};
use crate::warning::{Warning, quoted};

/// Names of the main image of a sample or row that has several: `0001.rgb.jpg`.
const MAIN_NAMES: [&str; 5] = [IMAGE, "img", "rgb", "input", "photo"];
/// Offset of the bit depth in a PNG file.
const PNG_DEPTH: usize = 24;

/// Which images of a sample or row are the main image and fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRoles {
    /// The member or column of the main image, if it is named; otherwise, it is the image that is not a field.
    pub(super) main: Option<String>,
    pub(super) fields: Vec<MemberField>,
}

impl ImageRoles {
    /// Returns the images as the option `image_fields` lists them.
    pub(super) fn listed(&self) -> Vec<MemberField> {
        let main = |member: &String| MemberField {
            name: IMAGE.to_owned(),
            member: member.clone(),
            ty: FieldType::Image,
        };
        self.main.iter().map(main).chain(self.fields.iter().cloned()).collect()
    }

    /// Returns the roles of the listed members of samples.
    ///
    /// # Errors
    ///
    /// Fails if a member does not have the extension of an image, or two fields would have the same name.
    pub(super) fn of_members(listed: &[ListedImage]) -> Result<Self> {
        let is_main = |image: &&ListedImage| image.name.as_deref() == Some(IMAGE);
        if let Some(ListedImage { member, .. }) = listed.iter().find(|image| !is_image(&image.member)) {
            return Err(Error::usage(format!("{member:?} does not have an image extension"))
                .of_option("image_fields")
                .help("MEMBER is the part of a name after its first dot, as in seg.png"));
        }
        let member = |image: &ListedImage| ChosenMember::new(image.name.as_deref(), &image.member, image.ty);
        let further = listed.iter().filter(|image| !is_main(image)).map(member).collect();
        let main = listed.iter().find(is_main).map(|image| image.member.to_ascii_lowercase());
        let fields = named(further).map_err(|e| e.of_option("image_fields"))?;
        Ok(Self { main, fields })
    }
}

/// Returns whether a member of a sample has the extension of an image.
pub(super) fn is_image(member: &str) -> bool {
    transform::has_image_extension(&format!("x.{member}"))
}

/// Returns whether the bytes of a member or column start like an image, even one that this build cannot read.
pub(super) fn begins_as_image(bytes: &[u8], name: &str) -> bool {
    transform::has_signature(bytes) || transform::is_unreadable_photo(bytes, &format!("x.{name}"))
}

/// What the header of an image shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImageLook {
    is_png: bool,
    /// Whether it is a PNG file with 16 bits per sample.
    is_deep: bool,
    /// Width and height of the upright image, if its header is sound.
    size: Option<(u32, u32)>,
}

/// Reader of the headers of inspected images.
pub(super) struct ImageInspector(ImageTransform);

impl ImageInspector {
    pub(super) fn new() -> Result<Self> {
        let options = ImageOptions { max_pixels: u64::MAX, ..ImageOptions::default() };
        Ok(Self(ImageTransform::new(options)?))
    }

    pub(super) fn look(&self, bytes: &[u8]) -> ImageLook {
        let is_png = transform::sniff(bytes) == Some(ImageType::Png);
        let is_deep = is_png && bytes.get(PNG_DEPTH) == Some(&16);
        let size = self.0.peek(bytes).ok().map(|header| (header.width, header.height));
        ImageLook { is_png, is_deep, size }
    }
}

/// An inspected image of a sample or row: its member or column, and its header.
pub(super) type Inspected = (String, ImageLook);

/// Chooses the main image and the fields from inspected samples, by the names of their members. Returns them with a warning
/// if the names do not say which image is the main one.
///
/// # Errors
///
/// Fails if two additional images would have the same name.
pub(super) fn roles_of_samples(samples: &[Vec<Inspected>]) -> Result<(ImageRoles, Option<Warning>)> {
    let mains: Vec<Option<&Inspected>> = samples.iter().map(|sample| main_by_name(sample)).collect();
    let is_decided = mains.iter().any(Option::is_some);
    let chosen = if is_decided { None } else { chosen_main(samples) };
    // Of each additional image, the number of inspected ones, and of those that may be masks.
    let mut further: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (sample, by_name) in samples.iter().zip(mains) {
        let main = match (by_name, &chosen) {
            (Some(main), _) => Some(main),
            (None, Some(chosen)) => sample.iter().find(|(member, _)| *member == chosen.member),
            (None, None) => continue,
        };
        let main_member = main.map_or_else(|| chosen.as_ref().map(|c| &c.member), |(member, _)| Some(member));
        for (member, look) in sample.iter().filter(|(member, _)| Some(member) != main_member) {
            let has_size = main.is_none_or(|(_, main)| look.fits(main));
            let is_like_main = |c: &ChosenMain| c.is_first || main.is_some_and(|(_, main)| main.is_png);
            let is_peer = chosen.as_ref().is_some_and(is_like_main);
            let is_mask = look.is_png && (is_mask_name(member) || (has_size && !is_peer));
            let (all, masks) = further.entry(member).or_default();
            *all += 1;
            *masks += usize::from(is_mask);
        }
    }
    let members = further.iter().map(|(member, (all, masks))| {
        // One sample that does not fit is rejected. It must not change the type of the others.
        let is_mask = 2 * masks >= *all;
        ChosenMember::new(None, member, (!is_mask).then_some(FieldType::Image))
    });
    let mut fields = named(members.collect())?;
    // Sorted by name, because the order of the members may differ between samples.
    fields.sort_by_key(|field| (chosen.is_some().then(|| natural(&field.name)), field.name.clone()));
    let others: Vec<String> = further.keys().map(|&member| member.to_owned()).collect();
    let chosen = chosen.filter(|chosen| !chosen.is_first);
    let warning = chosen.map(|chosen| main_image_chosen(&chosen.member, &others));
    Ok((ImageRoles { main: None, fields }, warning))
}

/// Returns the warning about columns or features that become no fields.
pub(super) fn columns_left_out(columns: &[String]) -> Warning {
    let message = format!(
        "these columns are left out, because of their type, because `image_fields` does not list them, or because dsconvert \
         has a field of that name: {}",
        quoted(columns)
    );
    let effect = "lists the columns that become fields, and gives them other names";
    let warning = Warning::new("columns-left-out", message).with("columns", columns);
    warning.remedy("keep_fields", "NEW=NAME,…", effect)
}

/// Returns the warning about the member or column `main`, which is the main image although its name does not say so.
pub(super) fn main_image_chosen(main: &str, others: &[String]) -> Warning {
    let message = format!(
        "{main:?} is the main image, because no image has a usual name; the others are {}",
        quoted(others)
    );
    let effect = "chooses the main image, and lists the others that become fields";
    let warning = Warning::new("main-image-chosen", message).with("main", main).with("others", others);
    warning.remedy("image_fields", "image=NAME,…", effect)
}

impl ImageLook {
    /// Returns whether both images have the same size, as far as it is known.
    fn fits(&self, other: &Self) -> bool {
        self.size.zip(other.size).is_none_or(|(a, b)| a == b)
    }
}

/// Returns the type of an additional image in a column called `name`, given its inspected images, each with the main image
/// of its row.
pub(super) fn type_in_column<'a>(
    name: &str,
    images: impl Iterator<Item = (&'a ImageLook, Option<&'a ImageLook>)>,
) -> FieldType {
    let is_mask = |(image, main): (&ImageLook, Option<&ImageLook>)| {
        image.is_png && (image.is_deep || is_mask_name(name)) && main.is_none_or(|main| image.fits(main))
    };
    let (mut all, mut masks) = (0, 0);
    for inspected in images {
        all += 1;
        masks += usize::from(is_mask(inspected));
    }
    if all > 0 && 2 * masks >= all { FieldType::Mask } else { FieldType::Image }
}

/// Returns the main image of a sample: the only one with a plain extension or with a usual name. Returns `None` if that is
/// ambiguous.
fn main_by_name(sample: &[Inspected]) -> Option<&Inspected> {
    let has_stem = |(member, _): &&Inspected| member.contains('.');
    let plain = sample.iter().filter(|image| !has_stem(image)).count();
    let is_main = |(member, _): &&Inspected| match (plain, member.rsplit_once('.')) {
        (0, Some((stem, _))) => MAIN_NAMES.contains(&stem),
        (_, stem) => stem.is_none(),
    };
    let mut found = sample.iter().filter(is_main);
    found.next().filter(|_| found.next().is_none())
}

/// A main image that is not known by a usual name.
struct ChosenMain {
    member: String,
    /// Whether it has the lowest of the numbers that distinguish the images.
    is_first: bool,
}

/// Chooses the main image of samples without a usual name: the one with the lowest number if only numbers distinguish the
/// images, otherwise the one that is not called like a mask and that most samples have, and of these the first. Returns
/// `None` if every sample has one image.
fn chosen_main(samples: &[Vec<Inspected>]) -> Option<ChosenMain> {
    if samples.iter().all(|sample| sample.len() < 2) {
        return None;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (member, _) in samples.iter().flatten() {
        *counts.entry(member).or_default() += 1;
    }
    let stem = |member: &str| member.rsplit_once('.').map_or(String::new(), |(stem, _)| stem.to_owned());
    let family = |member: &str| stem(member).trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let mut members = counts.keys();
    let first = members.next().map(|member| family(member))?;
    let is_numbered = |member: &str| stem(member).ends_with(|c: char| c.is_ascii_digit());
    let is_first = counts.keys().all(|member| is_numbered(member) && family(member) == first);
    let order = |(member, count): &(&str, usize)| {
        let stem = stem(member);
        let rank = main_rank(&stem);
        let count = if is_first { 0 } else { *count };
        (rank, is_mask_name(member), Reverse(count), natural(member), (*member).to_owned())
    };
    let (member, _) = counts.iter().map(|(member, count)| (*member, *count)).min_by_key(order)?;
    Some(ChosenMain { member: member.to_owned(), is_first })
}

/// Returns the position of `name` among the usual names of main images; other names come after them.
pub(super) fn main_rank(name: &str) -> usize {
    let is_name = |known: &&str| name.eq_ignore_ascii_case(known);
    MAIN_NAMES.iter().position(is_name).unwrap_or(MAIN_NAMES.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::ImageFields;

    const PLAIN: ImageLook = ImageLook { is_png: false, is_deep: false, size: Some((4, 3)) };
    const PNG: ImageLook = ImageLook { is_png: true, ..PLAIN };
    const SMALL: ImageLook = ImageLook { size: Some((2, 1)), ..PNG };

    #[test]
    fn lists_are_parsed_and_formatted() {
        let text = "seg.png,depth=d.PNG:image,.left.jpg,image=images[2],label.png,png";
        let listed: ImageFields = text.parse().unwrap();
        assert_eq!(listed.to_string(), text.replace(".left", "left"));
        assert_eq!("auto".parse::<ImageFields>().unwrap(), ImageFields::Auto);
        for wrong in [
            "",
            "seg.png:masks",
            "=seg.png",
            "a=seg.png,b=SEG.png",
            "a=",
            "width=seg.png",
            "image=a.jpg,image=b.jpg",
            "image=a.png:mask",
        ] {
            assert!(wrong.parse::<ImageFields>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn listed_members_have_names_and_types() {
        let roles = |text: &str| match text.parse().unwrap() {
            ImageFields::Listed(listed) => ImageRoles::of_members(&listed),
            other => panic!("{other:?}"),
        };
        let shown = |roles: ImageRoles| {
            let fields = roles.listed();
            let texts = fields.iter().map(|f| format!("{}={}:{}", f.name, f.member, f.ty.name()));
            texts.collect::<Vec<_>>().join(",")
        };
        let found = shown(roles("seg.png,depth=d.PNG:image,.left.jpg,label.png,png,image=Rgb.jpg").unwrap());
        assert_eq!(
            found,
            "image=rgb.jpg:image,seg=seg.png:mask,depth=d.png:image,left=left.jpg:image,label_mask=label.png:mask,\
             png=png:mask"
        );
        assert_eq!(shown(roles(&found).unwrap()), found);
        for wrong in ["seg", "seg.npy"] {
            assert!(roles(wrong).unwrap_err().to_string().contains("image extension"), "{wrong}");
        }
    }

    /// The fields of samples with these members, and the main image if it had to be chosen.
    fn auto(samples: &[&[(&str, ImageLook)]]) -> (String, Option<String>) {
        let sample = |s: &&[(&str, ImageLook)]| s.iter().map(|(m, look)| ((*m).to_owned(), *look)).collect();
        let samples: Vec<Vec<Inspected>> = samples.iter().map(sample).collect();
        let (roles, warning) = roles_of_samples(&samples).unwrap();
        let fields = roles.fields.iter().map(|f| format!("{}={}:{}", f.name, f.member, f.ty.name()));
        let chosen = warning.map(|warning| warning.value("main").as_str().unwrap().to_owned());
        (fields.collect::<Vec<_>>().join(" "), chosen)
    }

    #[test]
    fn the_main_image_of_a_sample_is_identified() {
        let (none, some) = (None, |chosen: &str| Some(chosen.to_owned()));
        for (samples, fields, chosen) in [
            (&[&[("jpg", PLAIN), ("seg.png", PNG)][..]][..], "seg=seg.png:mask", none.clone()),
            (&[&[("rgb.png", PNG), ("seg.png", PNG)]], "seg=seg.png:mask", none.clone()),
            (&[&[("png", PNG)]], "", none.clone()),
            // A mask has the size of its image.
            (&[&[("jpg", PLAIN), ("thumb.png", SMALL)]], "thumb=thumb.png:image", none.clone()),
            // One that does not fit is rejected, and does not change the type.
            (
                &[&[("jpg", PLAIN), ("b.png", SMALL)], &[("jpg", PLAIN), ("b.png", PNG)]],
                "b=b.png:mask",
                none.clone(),
            ),
            (&[&[("jpg", PLAIN), ("seg.png", SMALL)]], "seg=seg.png:mask", none.clone()),
            // A name decides for all samples: the first one is rejected.
            (&[&[("jpg", PLAIN), ("png", PNG)], &[("jpg", PLAIN)]], "", none.clone()),
            // Samples with different numbers of images.
            (
                &[
                    &[("1.jpg", PLAIN), ("2.png", PNG)],
                    &[("10.jpg", PLAIN), ("1.jpg", PLAIN)],
                    &[("1.jpg", PLAIN)],
                ],
                "2=2.png:image 10=10.jpg:image",
                none.clone(),
            ),
            (&[&[("view1.jpg", PLAIN), ("view0.jpg", PLAIN)]], "view1=view1.jpg:image", none.clone()),
            // No name says which one is the main image.
            (&[&[("right.png", SMALL), ("left.png", PNG)]], "right=right.png:image", some("left.png")),
            (&[&[("jpg", PLAIN), ("png", PNG)]], "png=png:mask", some("jpg")),
            (&[&[("b.png", PNG), ("a_mask.png", PNG)]], "a_mask=a_mask.png:mask", some("b.png")),
            (&[&[("b.jpg", PLAIN), ("a.jpg", PLAIN)], &[("b.jpg", PLAIN)]], "a=a.jpg:image", some("b.jpg")),
        ] {
            assert_eq!(auto(samples), (fields.to_owned(), chosen), "{samples:?}");
        }
    }

    #[test]
    fn a_column_of_masks_has_their_name_and_size() {
        let ty = |name: &str, image: ImageLook| type_in_column(name, [(&image, Some(&PLAIN))].into_iter());
        assert_eq!(ty("mask", PNG), FieldType::Mask);
        assert_eq!(ty("edited", PNG), FieldType::Image);
        assert_eq!(ty("edited", ImageLook { is_deep: true, ..PNG }), FieldType::Mask);
        assert_eq!(ty("mask", PLAIN), FieldType::Image);
        assert_eq!(ty("mask", SMALL), FieldType::Image);
        assert_eq!(type_in_column("mask", std::iter::empty()), FieldType::Image);
    }
}
