//! Page section for thumbnails.

use crate::numbers::{count, plural};
use crate::report::escape::clipped;
use crate::report::gather::{ImageStats, Thumbnail};
use crate::source::io::base64;

/// Maximum number of characters of a caption.
const CAPTION_CHARACTERS: usize = 120;
/// Maximum number of characters of the name of an image or a class.
const NAME_CHARACTERS: usize = 80;

pub(super) fn section(out: &mut String, images: &ImageStats) {
    if !images.thumbnails.is_empty() {
        out.push_str(&format!(
            "<section class=\"card\">\n<h3>{} of this split</h3>\n",
            plural(images.thumbnails.len() as u64, "image")
        ));
        contact_sheet(out, &images.thumbnails);
        out.push_str("</section>\n");
    }
}

/// Appends thumbnails side by side.
pub(super) fn contact_sheet(out: &mut String, thumbnails: &[Thumbnail]) {
    out.push_str("<div class=\"sheet\">\n");
    for image in thumbnails {
        let name = image.class.as_deref().unwrap_or(&image.key);
        let (width, height) = image.size;
        out.push_str("<figure><div class=\"frame\">");
        match &image.jpeg {
            Ok(jpeg) => out.push_str(&format!(
                "<img src=\"data:image/jpeg;base64,{}\" width=\"{}\" height=\"{}\" alt=\"{}\" title=\"{}\">",
                base64::encode(jpeg),
                image.shown.0,
                image.shown.1,
                clipped(&format!("Record {}, {name}", image.record), 200),
                clipped(&image.key, 300)
            )),
            Err(why) => out.push_str(&format!("<p>cannot be shown: {}</p>", clipped(why, 120))),
        }
        out.push_str(&format!(
            "</div><figcaption><b><bdi>{}</bdi></b>{}<span class=\"soft\">{} · {width}×{height}</span></figcaption></figure>\n",
            clipped(name, NAME_CHARACTERS),
            image.caption.as_deref().map_or_else(String::new, |caption| {
                format!("<bdi>{}</bdi><br>", clipped(caption, CAPTION_CHARACTERS))
            }),
            count(image.record),
        ));
    }
    out.push_str("</div>\n");
}
