//! The HTML page of a dataset: one self-contained file without scripts.

mod elements;
mod images;
mod overview;
mod run;
mod runs;
mod splits;
mod summary;
mod text;

use sha2::{Digest, Sha256};

pub use self::summary::summary_html;
use super::escape::escape;
use super::gather::DatasetReport;
use super::run::RunReport;
use super::svg;

/// Style of the page; the style of the plots is appended to it.
const STYLE: &str = include_str!("style.css");

/// Returns the HTML page of `report`, with the run reports of its conversion: one, or those of its parts.
///
/// The page loads nothing: pictures are `data:` URLs. Its content security policy allows no other pictures, and only
/// the style sheet whose hash it names.
pub fn page_html(report: &DatasetReport, runs: &[RunReport]) -> String {
    let style = format!("{STYLE}{}", svg::STYLE);
    let mut body = String::new();
    overview::header(&mut body, report, !runs.is_empty());
    overview::problems(&mut body, report);
    overview::split_table(&mut body, report);
    for (number, split) in report.splits.iter().enumerate() {
        splits::section(&mut body, report, split, number);
    }
    overview::rejects(&mut body, report);
    overview::schema(&mut body, report);
    overview::options(&mut body, report);
    match runs {
        [] => {}
        [run] => run::section(&mut body, report, run),
        runs => runs::section(&mut body, report, runs),
    }
    overview::footer(&mut body, report);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{}'; img-src data:; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{} – dsconvert</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n</body>\n</html>\n",
        elements::base64(&Sha256::digest(style.as_bytes())),
        escape(&report.name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_and_markup_satisfy_the_content_security_policy() {
        // A closing tag would end the `style` element.
        assert!(!STYLE.contains("</") && !svg::STYLE.contains("</"));
        // A policy without 'unsafe-inline' forbids style attributes.
        for source in [
            include_str!("elements.rs"),
            include_str!("splits.rs"),
            include_str!("images.rs"),
            include_str!("run.rs"),
            include_str!("runs.rs"),
            include_str!("text.rs"),
        ] {
            assert!(!source.contains(concat!("sty", "le=")));
        }
    }
}
