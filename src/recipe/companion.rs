//! Files beside or parallel to images that become additional images, named by a pattern.

use std::fmt;
use std::str::FromStr;

use super::images::is_reserved;
use crate::error::{Error, Result};
use crate::options::{Input, OptionValue, serde_as_text};
use crate::schema::FieldType;

/// A file that each image has, and that becomes a field: `mask=masks/{stem}.png`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Companion {
    /// Name of the field.
    pub name: String,
    /// The path of the file, relative to the source of the image.
    pub pattern: PathPattern,
    /// Either a mask or an image.
    pub ty: FieldType,
    /// Whether images may lack the file.
    pub is_optional: bool,
}

/// A path with placeholders for the parts of the path of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    pieces: Vec<Piece>,
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The folder of the image, relative to its source; may be empty.
    Folder,
    /// The folder without its first component.
    Subfolder,
    /// The name without its extension, and without this ending.
    Stem(String),
}

const HELP: &str = "expected NAME=PATTERN[:mask|:image][?], as in mask=masks/{stem}.png or depth={dir}/{stem}_depth.png:image; \
                    {dir} is the folder of the image, {subdir} the folder without its first component, {stem} the name without \
                    its extension, and {stem%ENDING} also without this ending";

impl PathPattern {
    /// Returns the path that belongs to the image at `path`, both relative to the source; `None` if the image does not have
    /// the ending that the pattern replaces, or is not below a folder whose first component it leaves out.
    pub fn path_for(&self, path: &[u8]) -> Option<Vec<u8>> {
        let name_at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (folder, name) = (&path[..name_at.saturating_sub(1)], &path[name_at..]);
        let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0);
        let stem = &name[..dot.unwrap_or(name.len())];
        let mut made = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => made.extend_from_slice(text.as_bytes()),
                Piece::Folder => made.extend_from_slice(folder),
                Piece::Subfolder if folder.is_empty() => return None,
                Piece::Subfolder => {
                    let slash =
                        folder.iter().position(|&byte| byte == b'/').map_or(folder.len(), |slash| slash + 1);
                    made.extend_from_slice(&folder[slash..]);
                }
                Piece::Stem(ending) => {
                    made.extend_from_slice(
                        stem.strip_suffix(ending.as_bytes()).filter(|rest| !rest.is_empty())?,
                    );
                }
            }
        }
        // An empty folder leaves a slash.
        let parts = made.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
        Some(parts.collect::<Vec<_>>().join(&b'/'))
    }

    /// Returns whether `path` may belong to an image.
    pub fn fits(&self, path: &[u8]) -> bool {
        fit(&self.pieces, path, true)
    }
}

/// Returns whether `path` consists of `pieces`. At the start of a part of a path, folders may be empty.
fn fit(pieces: &[Piece], path: &[u8], is_start: bool) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return path.is_empty() };
    match piece {
        Piece::Text(text) => {
            let fits = |text: &str| {
                path.strip_prefix(text.as_bytes()).is_some_and(|path| fit(rest, path, text.ends_with('/')))
            };
            fits(text) || (is_start && text.starts_with('/') && fits(&text[1..]))
        }
        Piece::Folder | Piece::Subfolder => {
            (0..=path.len()).any(|end| fit(rest, &path[end..], end == 0 && is_start))
        }
        Piece::Stem(_) => {
            let longest = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
            (1..=longest).any(|end| fit(rest, &path[end..], false))
        }
    }
}

impl FromStr for PathPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |what: String| Error::usage(what).help(HELP);
        let text = text.trim_start_matches("./");
        if text.ends_with('/') || text.contains("//") || text.split('/').any(|part| part == ".") {
            return Err(invalid(format!("{text:?} has an empty part")));
        }
        if text.ends_with("{dir}") || text.ends_with("{subdir}") {
            return Err(invalid(format!("{text:?} ends with a folder")));
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let Some((placeholder, after)) = after.split_once('}') else {
                return Err(invalid(format!("{text:?} has a brace without its counterpart")));
            };
            pieces.push(match placeholder {
                "dir" => Piece::Folder,
                "subdir" => Piece::Subfolder,
                "stem" => Piece::Stem(String::new()),
                other => match other.strip_prefix("stem%") {
                    Some(ending) if !ending.is_empty() => Piece::Stem(ending.to_owned()),
                    _ => return Err(invalid(format!("unknown placeholder {{{other}}} in {text:?}"))),
                },
            });
            rest = after;
        }
        if rest.contains('}') {
            return Err(invalid(format!("{text:?} has a brace without its counterpart")));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        if !pieces.iter().any(|piece| matches!(piece, Piece::Stem(_))) {
            return Err(invalid(format!(
                "{text:?} is the same file for all images of a folder: it lacks {{stem}}"
            )));
        }
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err(invalid(format!(
                "{text:?} leads out of the source; name the folder that has both as SRC"
            )));
        }
        Ok(Self { text: text.to_owned(), pieces })
    }
}

impl FromStr for Companion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |what: String| Error::usage(what).help(HELP);
        let (name, rest) =
            text.split_once('=').ok_or_else(|| invalid(format!("{text:?} has no field name")))?;
        let (rest, is_optional) = rest.strip_suffix('?').map_or((rest, false), |rest| (rest, true));
        let (pattern, ty) = match rest.rsplit_once(':') {
            None => (rest, None),
            Some((rest, "mask")) => (rest, Some(FieldType::Mask)),
            Some((rest, "image")) => (rest, Some(FieldType::Image)),
            Some((_, other)) => {
                return Err(invalid(format!("unknown type {other:?}; expected mask or image")));
            }
        };
        if name.is_empty() || is_reserved(name) {
            return Err(invalid(format!("{name:?} cannot be the name of a companion: another field has it")));
        }
        let is_png = pattern.to_ascii_lowercase().ends_with(".png");
        let ty = ty.unwrap_or(if is_png { FieldType::Mask } else { FieldType::Image });
        Ok(Self { name: name.to_owned(), pattern: pattern.parse()?, ty, is_optional })
    }
}

impl fmt::Display for Companion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, pattern, ty, is_optional } = self;
        write!(f, "{name}={}:{}{}", pattern.text, ty.name(), if *is_optional { "?" } else { "" })
    }
}

serde_as_text!(Companion);

impl OptionValue for Vec<Companion> {
    const INPUT: Input = Input::Text;

    fn parse(text: &str) -> Result<Self> {
        let mut all: Self = Vec::new();
        for part in text.split(',').map(str::trim) {
            let companion: Companion = part.parse()?;
            if all.iter().any(|other| other.name == companion.name) {
                return Err(Error::usage(format!("{:?} is listed twice", companion.name)).help(HELP));
            }
            all.push(companion);
        }
        Ok(all)
    }

    fn text(&self) -> Option<String> {
        Some(self.iter().map(Companion::to_string).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    proptest! {
        /// Otherwise, the companion of an image would be an image itself.
        #[test]
        fn the_path_for_an_image_fits_the_pattern(
            parts in vec(select(vec!["{dir}", "{subdir}", "{stem}", "{stem%b}", "/", "a", "b", "_", ".png"]), 1..7),
            image in "[ab_.]{1,3}(/[ab_.]{1,3}){0,3}",
        ) {
            let text = parts.concat();
            if let Ok(pattern) = text.parse::<PathPattern>()
                && let Some(path) = pattern.path_for(image.as_bytes())
            {
                let shown = String::from_utf8_lossy(&path);
                prop_assert!(pattern.fits(&path), "{} {}: {}", text, image, shown);
            }
        }
    }

    fn path(pattern: &str, image: &str) -> Option<String> {
        let made = pattern.parse::<PathPattern>().unwrap().path_for(image.as_bytes());
        made.map(|path| String::from_utf8(path).unwrap())
    }

    #[test]
    fn patterns_name_the_file_of_an_image() {
        for (pattern, image, expected) in [
            ("masks/{stem}.png", "a/b.c.jpg", Some("masks/b.c.png")),
            ("{dir}/{stem}_mask.png", "x/y/b.jpg", Some("x/y/b_mask.png")),
            ("{dir}/{stem}_mask.png", "b.jpg", Some("b_mask.png")),
            ("annotations/{subdir}/{stem}.png", "images/training/b.jpg", Some("annotations/training/b.png")),
            ("annotations/{subdir}/{stem}.png", "images/b.jpg", Some("annotations/b.png")),
            ("annotations/{subdir}/{stem}.png", "b.jpg", None),
            ("gt/{subdir}/{stem%_left}_ids.png", "left/aachen/a_1_left.png", Some("gt/aachen/a_1_ids.png")),
            ("gt/{stem%_left}_ids.png", "left/a.png", None),
            ("{stem}.png", ".hidden", Some(".hidden.png")),
            ("./masks/{stem}.png", "b.jpg", Some("masks/b.png")),
        ] {
            assert_eq!(path(pattern, image).as_deref(), expected, "{pattern} {image}");
            let parsed: PathPattern = pattern.parse().unwrap();
            assert!(
                expected.is_none_or(|expected| parsed.fits(expected.as_bytes())),
                "{pattern} {expected:?}"
            );
        }
        let fits = |pattern: &str, path: &str| pattern.parse::<PathPattern>().unwrap().fits(path.as_bytes());
        assert!(
            fits("{dir}/{stem}_mask.png", "a/b/c_mask.png") && !fits("{dir}/{stem}_mask.png", "a/b/c.png")
        );
        assert!(!fits("masks/{stem}.png", "masks/a/b.png") && !fits("masks/{stem}.png", "images/b.png"));
        assert!(!fits("masks/{stem}.png", "masks/.png") && fits("masks/{subdir}/{stem}.png", "masks/b.png"));
    }

    #[test]
    fn lists_are_parsed_and_formatted() {
        let text = "mask=masks/{stem}.png,depth={dir}/{stem}_d.png:image?,left=l/{stem}.jpg";
        let parsed = <Vec<Companion> as OptionValue>::parse(text).unwrap();
        let shown = parsed.text().unwrap();
        assert_eq!(
            shown,
            "mask=masks/{stem}.png:mask,depth={dir}/{stem}_d.png:image?,left=l/{stem}.jpg:image"
        );
        assert_eq!(<Vec<Companion> as OptionValue>::parse(&shown).unwrap(), parsed);
        let json = serde_json::to_string(&parsed).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Companion>>(&json).unwrap(), parsed);
        for wrong in [
            "",
            "masks/{stem}.png",
            "=masks/{stem}.png",
            "image=masks/{stem}.png",
            "mask=masks/a.png",
            "mask=masks/{name}.png",
            "mask=masks/{stem.png",
            "mask=masks/stem}.png",
            "mask=/masks/{stem}.png",
            "mask=../masks/{stem}.png",
            "mask=masks/{stem}.png:label",
            "mask={stem}.png,mask=m/{stem}.png",
            "mask={stem%}.png",
            "mask=masks//{stem}.png",
            "mask=masks/{stem}/",
            "mask=masks/./{stem}.png",
            "mask={stem}/{dir}",
        ] {
            assert!(<Vec<Companion> as OptionValue>::parse(wrong).is_err(), "{wrong}");
        }
    }
}
