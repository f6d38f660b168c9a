//! Configurations of a repository of the Hugging Face Hub: sets of its files that form a dataset each.
//!
//! The card (`README.md`) of a repository lists them, as `datasets` reads it (`MetadataConfigs`). Files of several
//! configurations often hold the same items, so they are never converted together.

use std::path::Path;

use glob::{MatchOptions, Pattern};
use serde::{Deserialize, Serialize};

use super::yaml::Yaml;
use crate::error::{Error, Result};
use crate::numbers::listed;
use crate::options::SourceSpec;
use crate::source::io::planned::PlannedFile;
use crate::source::list::file_list::FileList;
use crate::source::list::listing::Listing;
use crate::source::list::source_file::SourceFile;
use crate::storage::{ObjectUrl, stat};
use crate::warning::{Warning, quoted};

/// Name of the option.
const CONFIG: &str = "config";
/// Files that list the configurations, the more important one last.
const CARDS: [&str; 2] = ["README.md", ".huggingface.yaml"];
/// Maximum size of a card that is read.
const MAX_CARD_BYTES: u64 = 4 << 20;
/// Name of the configuration that `datasets` loads if none is named.
const DEFAULT: &str = "default";
/// Split of files that are listed without one.
const TRAIN: &str = "train";

/// A configuration in a card.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HubConfig {
    name: String,
    is_default: bool,
    /// Folder that paths are relative to.
    folder: String,
    /// Splits with the patterns of their files; `None`: names determine the splits.
    files: Option<Vec<(String, Vec<String>)>>,
}

/// The files of the configurations that were chosen, by split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFiles(Vec<SourceFiles>);

/// The files of the configuration of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SourceFiles {
    source: u32,
    /// Pairs of split and pattern, in the order of the card.
    patterns: Vec<(String, String)>,
}

impl ConfigFiles {
    /// Returns whether no source has a configuration that lists its files.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the split of `file`; `None` if its source has no configuration that lists files.
    pub(super) fn split_of(&self, file: &SourceFile) -> Option<&str> {
        let of_source = self.0.iter().find(|files| files.source == file.source)?;
        of_source.split_of(&path_of(file))
    }
}

impl SourceFiles {
    fn split_of(&self, path: &Path) -> Option<&str> {
        let fits = |(_, pattern): &&(String, String)| {
            Pattern::new(pattern).is_ok_and(|pattern| matches(&pattern, path))
        };
        self.patterns.iter().find(fits).map(|(split, _)| split.as_str())
    }
}

/// Returns the path of the file that a pattern names; for a member of an archive, of the archive.
fn path_of(file: &SourceFile) -> std::path::PathBuf {
    match &file.member {
        Some(member) => file.relative.components().take(member.archive_parts as usize).collect(),
        None => file.relative.clone(),
    }
}

fn matches(pattern: &Pattern, path: &Path) -> bool {
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    pattern.matches_path_with(path, options)
}

/// Leaves in `listing` the files of one configuration of each source that has some. `name` is the value of `--config`. Returns
/// the files by split.
///
/// # Errors
///
/// Fails if there are several configurations and none is named or the default, and if there is none of that name.
pub fn choose(
    listing: &mut Listing,
    sources: &[SourceSpec],
    name: Option<&str>,
    warnings: &mut Vec<Warning>,
) -> Result<ConfigFiles> {
    let mut chosen = Vec::new();
    let mut has_name = false;
    for (source, ordinal) in sources.iter().zip(0..) {
        let configs = configs_of(source)?;
        has_name |= !configs.is_empty();
        if configs.len() < 2 && name.is_none() {
            continue;
        }
        if !configs.is_empty() {
            chosen.push((ordinal, pick(&configs, name, source, warnings)?.clone()));
        }
    }
    if let Some(name) = name.filter(|_| !has_name) {
        return Err(Error::usage(format!("no source lists configurations, so there is no {name:?}"))
            .of_option(CONFIG)
            .help("configurations are listed by `configs` in the README.md of a folder that is a source; leave the option out"));
    }
    let mut by_split = ConfigFiles::default();
    for (ordinal, config) in chosen {
        let source = &sources[ordinal as usize];
        let patterns = config.patterns(source)?;
        let is_kept = |file: &SourceFile| {
            file.source != ordinal
                || match &patterns {
                    Some(files) => files.split_of(&file.relative).is_some(),
                    None => file.relative.starts_with(&config.folder),
                }
        };
        let mut kept = FileList::default();
        let mut has_files = false;
        for file in listing.files.iter() {
            if is_kept(&file) {
                has_files |= file.source == ordinal;
                kept.push(&file);
            } else {
                listing.skipped.add(&file.origin);
            }
        }
        if !has_files {
            return Err(Error::usage(format!("there are no files of the configuration {:?}", config.name))
                .of_option(CONFIG)
                .at_path(&source.path)
                .help("download its files, or name the folder of another one as the source"));
        }
        listing.files = kept;
        by_split.0.extend(patterns.map(|files| SourceFiles { source: ordinal, ..files }));
    }
    Ok(by_split)
}

/// Returns the configuration with that `name`; without one, the default.
fn pick<'c>(
    configs: &'c [HubConfig],
    name: Option<&str>,
    source: &SourceSpec,
    warnings: &mut Vec<Warning>,
) -> Result<&'c HubConfig> {
    let names = || listed(configs.iter().map(|config| format!("{:?}", config.name)));
    if let Some(name) = name {
        return configs.iter().find(|config| config.name == name).ok_or_else(|| {
            Error::usage(format!("there is no configuration {name:?}"))
                .of_option(CONFIG)
                .at_path(&source.path)
                .help(format!("README.md lists {}", names()))
        });
    }
    let mut defaults = configs.iter().filter(|config| config.is_default);
    match (defaults.next(), defaults.next()) {
        (Some(default), None) => {
            let others = configs.iter().filter(|config| *config != default);
            let others: Vec<String> = others.map(|config| config.name.clone()).collect();
            let message = format!(
                "of the configurations in README.md, the default, {:?}, is converted, and its others are not: {}",
                default.name,
                quoted(&others)
            );
            warnings.push(
                Warning::new("default-config", message)
                    .with("chosen", &default.name)
                    .with("others", others)
                    .remedy("config", "NAME", "chooses another one"),
            );
            Ok(default)
        }
        _ => Err(Error::usage(format!(
            "README.md lists several configurations, which are not converted together: {}",
            names()
        ))
        .at_path(&source.path)
        .help("choose one with `config NAME`, or name a folder in it as the source")),
    }
}

impl HubConfig {
    /// Returns the patterns of the files; `None` if only their folder is known.
    fn patterns(&self, source: &SourceSpec) -> Result<Option<SourceFiles>> {
        let Some(files) = &self.files else { return Ok(None) };
        let mut patterns = Vec::new();
        for (split, paths) in files {
            for path in paths {
                let refused = |what: String| Error::usage(what).of_option(CONFIG).at_path(&source.path);
                if path.contains("://") || path.starts_with('/') || path.split('/').any(|part| part == "..") {
                    let what = format!("the configuration {:?} names files elsewhere: {path:?}", self.name);
                    return Err(refused(what).help("download them, and list them with `files_from`"));
                }
                let path = path.strip_prefix("./").unwrap_or(path);
                let pattern = match self.folder.as_str() {
                    "" => path.to_owned(),
                    folder => format!("{}/{path}", Pattern::escape(folder)),
                };
                Pattern::new(&pattern).map_err(|e| {
                    let what =
                        format!("the configuration {:?} has the invalid pattern {path:?}: {e}", self.name);
                    refused(what).help("name the folder of its files as the source")
                })?;
                patterns.push((split.clone(), pattern));
            }
        }
        Ok(Some(SourceFiles { source: 0, patterns }))
    }
}

/// Returns the configurations that the card of a local folder lists.
fn configs_of(source: &SourceSpec) -> Result<Vec<HubConfig>> {
    let mut found = Vec::new();
    if ObjectUrl::is_url(&source.path) || !stat(&source.path)?.is_some_and(|meta| meta.is_dir()) {
        return Ok(found);
    }
    for name in CARDS {
        let path = source.path.join(name);
        if !stat(&path)?.is_some_and(|meta| meta.is_file()) {
            continue;
        }
        let bytes = PlannedFile::now(&path)?.start(MAX_CARD_BYTES)?;
        let text = String::from_utf8_lossy(&bytes);
        let yaml = if name == CARDS[0] { front_matter(&text) } else { Some(text.as_ref()) };
        let Some(block) = yaml.and_then(configs_block) else { continue };
        let configs = Yaml::parse(&block).and_then(|yaml| parse_configs(&yaml));
        found = configs.ok_or_else(|| {
            Error::usage("its list of configurations (`configs`) cannot be read")
                .at_path(&path)
                .help("correct it, or name the folders of one configuration as sources")
        })?;
    }
    Ok(found)
}

/// Returns the YAML between the lines `---` at the start of a card.
fn front_matter(card: &str) -> Option<&str> {
    let rest = card.trim_start_matches('\u{feff}').strip_prefix("---")?;
    let start = rest.find('\n')?;
    let length = rest[start..].find("\n---")?;
    Some(&rest[start..start + length])
}

/// Returns the lines of the key `configs` at the top level, so that nothing else needs to be understood.
fn configs_block(yaml: &str) -> Option<String> {
    let mut lines = yaml.lines().skip_while(|line| !line.starts_with("configs:"));
    let mut block = vec![lines.next()?];
    block.extend(lines.take_while(|line| line.is_empty() || line.starts_with([' ', '-', '#'])));
    Some(block.join("\n"))
}

fn parse_configs(yaml: &Yaml) -> Option<Vec<HubConfig>> {
    let Yaml::List(items) = yaml.get("configs")? else {
        // `configs:` without a value.
        return yaml.get("configs")?.text().filter(|text| text.is_empty()).map(|_| Vec::new());
    };
    items.iter().map(parse_config).collect()
}

fn parse_config(yaml: &Yaml) -> Option<HubConfig> {
    let name = yaml.get("config_name")?.text()?.to_owned();
    let is_true =
        yaml.get("default").and_then(Yaml::text).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let folder = yaml.get("data_dir").and_then(Yaml::text).unwrap_or_default();
    let folder = folder.trim_start_matches("./").trim_matches('/').to_owned();
    let files = match yaml.get("data_files") {
        None => None,
        Some(Yaml::List(items)) if items.iter().any(|item| matches!(item, Yaml::Map(_))) => {
            let of_split =
                |item: &Yaml| Some((item.get("split")?.text()?.to_owned(), item.get("path")?.texts()?));
            Some(items.iter().map(of_split).collect::<Option<Vec<_>>>()?)
        }
        Some(paths) => Some(vec![(TRAIN.to_owned(), paths.texts()?)]),
    };
    Some(HubConfig { is_default: is_true || name == DEFAULT, name, folder, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = "---\nlicense: mit\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train-*\n  \
                        - split: dev_x\n    path: [main/dev-*, main/more/**]\n- config_name: plain\n  data_dir: ./plain\n- config_name: \
                        all\n  data_files: \"all/*.csv\"\n---\n# Card\nconfigs: no\n";

    fn configs(card: &str) -> Vec<HubConfig> {
        let block = configs_block(front_matter(card).unwrap()).unwrap();
        parse_configs(&Yaml::parse(&block).unwrap()).unwrap()
    }

    #[test]
    fn configurations_are_those_of_the_card() {
        let found = configs(CARD);
        assert_eq!(
            found.iter().map(|config| config.name.as_str()).collect::<Vec<_>>(),
            ["main", "plain", "all"]
        );
        assert!(found.iter().all(|config| !config.is_default));
        assert_eq!((found[1].folder.as_str(), &found[1].files), ("plain", &None));
        let source = SourceSpec { label: "s".into(), path: "s".into() };
        let main = found[0].patterns(&source).unwrap().unwrap();
        for (path, split) in [
            ("main/train-00000-of-00001.parquet", Some("train")),
            ("main/dev-0.parquet", Some("dev_x")),
            ("main/more/a/b.parquet", Some("dev_x")),
            ("main/x/train-0.parquet", None),
            ("other/train-0.parquet", None),
        ] {
            assert_eq!(main.split_of(Path::new(path)), split, "{path}");
        }
        let all = found[2].patterns(&source).unwrap().unwrap();
        assert_eq!(all.patterns, [("train".to_owned(), "all/*.csv".to_owned())]);
    }

    #[test]
    fn the_default_is_chosen_and_named() {
        let source = SourceSpec { label: "s".into(), path: "s".into() };
        let mut warnings = Vec::new();
        let found = configs(CARD);
        let error = pick(&found, None, &source, &mut warnings).unwrap_err().to_string();
        assert!(error.contains("\"main\", \"plain\"") || error.contains("\"main\""), "{error}");
        assert_eq!(pick(&found, Some("all"), &source, &mut warnings).unwrap().name, "all");
        assert!(pick(&found, Some("none"), &source, &mut warnings).is_err());
        assert!(warnings.is_empty());
        for card in [
            CARD.replace("config_name: all", "config_name: default"),
            CARD.replace("data_dir", "default: true\n  data_dir"),
        ] {
            let found = configs(&card);
            let chosen = pick(&found, None, &source, &mut warnings).unwrap();
            assert!(chosen.is_default);
            let warning = warnings.pop().unwrap();
            assert_eq!(warning.value("others").as_array().unwrap().len(), 2);
        }
    }

    #[test]
    fn files_elsewhere_are_refused() {
        let source = SourceSpec { label: "s".into(), path: "s".into() };
        for path in ["hf://datasets/x/y.csv", "/etc/*", "../x/*", "a**b/["] {
            let card = CARD.replace("\"all/*.csv\"", &format!("\"{path}\""));
            assert!(configs(&card)[2].patterns(&source).is_err(), "{path}");
        }
    }
}
