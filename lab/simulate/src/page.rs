//! The animated page: one HTML file with the options, the simulator in JavaScript, and the timeline as a picture for
//! browsers without JavaScript.

use crate::error::Error;
use crate::json;
use crate::run::Run;
use crate::svg::{escape, timeline_svg};

/// Maximum number of batches in the run that a page shows.
pub const MAX_PAGE_BATCHES: usize = 20_000;
/// Maximum number of workers that a page shows: the cells of more workers would be too small.
const MAX_PAGE_WORKERS: u32 = 64;

const TEMPLATE: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/page.css");
const SIMULATE: &str = include_str!("../page/simulate.js");
const WORDS: &str = include_str!("../page/words.js");
const CHART: &str = include_str!("../page/chart.js");
const VIEW: &str = include_str!("../page/view.js");

/// Returns a self-contained HTML page, with `title`, that animates `run` and reruns it with other options.
///
/// ```
/// use dsconvert_simulate::{Options, page_html, simulate};
///
/// let run = simulate(&Options::new(700.0, 100.0, 7)?)?;
/// let html = page_html(&run, "My loader <3")?;
/// assert!(html.contains("<h1>My loader &lt;3</h1>"));
/// assert!(!html.contains("http:") || html.contains("www.w3.org"));
/// # Ok::<(), dsconvert_simulate::Error>(())
/// ```
///
/// # Errors
///
/// If the run has more than [`MAX_PAGE_BATCHES`] batches or more than 64 workers.
pub fn page_html(run: &Run, title: &str) -> Result<String, Error> {
    if run.options.workers > MAX_PAGE_WORKERS {
        let workers = run.options.workers;
        return Err(Error::new(
            "workers",
            format!("a page shows at most {MAX_PAGE_WORKERS} workers, not {workers}"),
        )
        .help("draw the timeline with `svg` instead"));
    }
    let loaded = run.batches.len();
    if loaded > MAX_PAGE_BATCHES {
        return Err(Error::new(
            "html",
            format!("a page shows at most {MAX_PAGE_BATCHES} batches, not {loaded}"),
        )
        .help("simulate a shorter time"));
    }
    // The sliders can make the run longer. It then matches the crate only if the page embeds the whole trace, or at
    // least as much of it as any run of a page uses.
    let options = json::options(&run.options, MAX_PAGE_BATCHES * 2);
    let mut html = String::with_capacity(200_000);
    // Replaces placeholders from left to right, so inserted text is never searched for placeholders.
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        html.push_str(before);
        let Some((name, after)) = after.split_once("}}") else { break };
        match name {
            "title" => html.push_str(&escape(title)),
            "style" => html.push_str(STYLE),
            "options" => html.push_str(&options),
            "picture" => html.push_str(&timeline_svg(run, title)),
            "simulate" => html.push_str(SIMULATE),
            "words" => html.push_str(WORDS),
            "chart" => html.push_str(CHART),
            "view" => html.push_str(VIEW),
            _ => {}
        }
        rest = after;
    }
    html.push_str(rest);
    Ok(html)
}
