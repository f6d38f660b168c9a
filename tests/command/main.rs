//! Tests of the command as a process: exit statuses, messages and files.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod bad_input;
mod bench;
mod bench_pairs;
mod chat_parts;
mod chat_rows;
mod chats;
mod command_line;
mod dataset_writer;
mod determinism;
mod exclude;
mod export;
mod export_mixture;
mod failures;
mod foreign;
mod headspace;
mod help;
#[allow(unreachable_pub, reason = "this is a test, not a library")]
mod html_page;
mod image_fields;
mod images_archives;
mod images_sources;
mod images_tar;
mod images_tfrecord;
mod inspect;
mod inspect_masks;
mod inspect_mixture;
#[allow(unreachable_pub, reason = "this is a test, not a library")]
#[path = "../../lab/simulate/tests/common/installed.rs"]
mod installed;
mod layouts;
mod lifecycle;
mod like;
mod memory;
mod messages;
mod metadata_beside;
mod mistakes;
mod multimodal;
mod multimodal_packs;
mod no_labels;
mod open_files;
mod option_names;
mod output_directory;
mod parts;
mod preferences;
mod prompts;
mod records;
mod remote_each_request;
mod remote_output;
mod remote_races;
#[allow(unreachable_pub, reason = "this is a test, not a library")]
mod remote_setup;
mod remote_sources;
mod repair;
mod repair_places;
mod repeated_keys;
mod report;
mod resume;
mod run_report;
mod sidecars;
mod simulate;
mod source_names;
mod split_by;
mod standard_output;
#[allow(unreachable_pub, reason = "this is a test, not a library")]
mod support;
mod text_documents;
mod text_sources;
mod text_tables;
mod text_zip;
#[allow(unreachable_pub, reason = "this is a test, not a library")]
#[path = "../shared/tier.rs"]
mod tier;
#[allow(unreachable_pub, reason = "this is a test, not a library")]
#[path = "../shared/tree.rs"]
mod tree;
mod warnings;
