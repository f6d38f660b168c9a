//! Tests of names, caches and folders of tokenizers.

use std::fs;

use super::*;

fn empty_caches(dir: &Path) -> (HubCache, RankCache) {
    let hub = dir.join("hub").into_os_string().into_string().unwrap();
    (
        HubCache::of(|name| (name == "HF_HUB_CACHE").then(|| hub.clone())),
        RankCache::in_folder(Some(dir.join("ranks"))),
    )
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn the_hub_cache_folder_matches_that_of_its_client() {
    let folder = |variables: &[(&str, &str)]| {
        let cache = HubCache::of(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        cache.folder("org/model").display().to_string()
    };
    assert_eq!(folder(&[("HOME", "/h")]), "/h/.cache/huggingface/hub/models--org--model");
    assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub/models--org--model");
    assert_eq!(folder(&[("HOME", "/h"), ("HF_HOME", "~/f")]), "/h/f/hub/models--org--model");
    assert_eq!(folder(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")]), "/c/models--org--model");
    assert_eq!(folder(&[("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/c")]), "/c/models--org--model");
}

#[test]
fn model_names_are_distinguished_from_paths() {
    for name in ["gpt2", "org/model", "Qwen/Qwen2.5-0.5B", "a_b/c.d"] {
        assert!(HubCache::is_model(name), "{name}");
    }
    for name in ["", "/x", "a/b/c", "../x", "./x", "a//b", "org/", "a b", "models--a--b", "s3://x/y"] {
        assert!(!HubCache::is_model(name), "{name}");
    }
}

#[test]
fn a_folder_with_snapshots_of_its_own_is_not_a_cached_model() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, ranks) = empty_caches(dir.path());
    let model = dir.path().join("model");
    let tokenizer = model.join("tokenizer.json");
    write(&tokenizer, "{}");
    for step in ["step1", "step2"] {
        write(&model.join("snapshots").join(step).join("weights"), "");
    }
    assert_eq!(find_in(model.to_str().unwrap(), &hub, &ranks).unwrap().path, tokenizer);
}

#[test]
fn the_main_revision_of_a_cached_model_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, ranks) = empty_caches(dir.path());
    let model = hub.folder("org/model");
    let find = |name: &str| find_in(name, &hub, &ranks).map(|found| (found.path, found.json));
    let old = model.join("snapshots/0aa/tokenizer.json");
    write(&old, "{\"old\": 1}");
    // The only revision, although none is called main.
    assert_eq!(find("org/model").unwrap().0, old);
    let new = model.join("snapshots/1bb/tokenizer.json");
    write(&new, "{}");
    let error = find("org/model").unwrap_err();
    assert!(error.to_string().contains("has 2 revisions"), "{error}");
    write(&model.join("refs/main"), "1bb\n");
    assert_eq!(find("org/model").unwrap(), (new.clone(), b"{}".to_vec()));
    // The folder of the model, and the folder of a revision.
    assert_eq!(find(model.to_str().unwrap()).unwrap().0, new);
    assert_eq!(find(old.parent().unwrap().to_str().unwrap()).unwrap().0, old);
    for revision in ["2cc", "../..", ""] {
        write(&model.join("refs/main"), revision);
        let error = find("org/model").unwrap_err();
        assert!(error.to_string().contains("no files of the revision"), "{error}");
    }
}

#[test]
fn a_missing_tokenizer_lists_the_paths_tried() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, ranks) = empty_caches(dir.path());
    let error = |name: &str| {
        let error = find_in(name, &hub, &ranks).unwrap_err();
        (error.to_string(), error.remedy().unwrap_or_default().to_owned())
    };
    let (message, help) = error("org/model");
    assert!(
        message.contains("looked for org/model, ") && message.contains("models--org--model"),
        "{message}"
    );
    assert!(help.contains("AutoTokenizer.from_pretrained('org/model').save_pretrained('DIR')"), "{help}");
    let (message, help) = error("cl100k_base");
    assert!(message.contains("9b5ad71b2ce5302211f9c61530b329a4922fc6a4"), "{message}");
    assert!(help.contains("tiktoken.get_encoding('cl100k_base')"), "{help}");
    let (message, help) = error("nothing/at/all.json");
    assert!(
        message.ends_with("looked for nothing/at/all.json") && help.contains("`tokenizer` takes"),
        "{message}"
    );
}

#[test]
fn a_damaged_file_in_the_tiktoken_cache_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, ranks) = empty_caches(dir.path());
    let encoding = TiktokenEncoding::named("o200k_base").unwrap();
    write(&ranks.file(encoding), "YQ== 0\n");
    let error = find_in("o200k_base", &hub, &ranks).unwrap_err();
    assert!(error.to_string().contains("this is not the published file of o200k_base"), "{error}");
    let digest = hex(&Sha256::digest(b"YQ== 0\n"));
    let mut published = *encoding;
    published.sha256 = digest.leak();
    assert_eq!(ranks.find(&published).unwrap(), Some(ranks.file(encoding)));
}

#[test]
fn parts_of_a_tokenizer_are_refused_with_the_command_that_converts_them() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, ranks) = empty_caches(dir.path());
    let folder = dir.path().join("old");
    write(&folder.join("vocab.json"), "{}");
    write(&folder.join("merges.txt"), "");
    for name in [folder.clone(), folder.join("vocab.json"), folder.join("merges.txt")] {
        let error = find_in(name.to_str().unwrap(), &hub, &ranks).unwrap_err();
        let help = error.remedy().unwrap_or_default();
        assert!(help.contains(&format!("from_pretrained('{}')", folder.display())), "{error}: {help}");
    }
    write(&folder.join("a.tiktoken"), "YQ== 0\n");
    let error = find_in(folder.to_str().unwrap(), &hub, &ranks).unwrap_err();
    assert!(error.to_string().contains("has no pre-tokenization pattern"), "{error}");
    write(&folder.join("b.tiktoken"), "YQ== 0\n");
    let error = find_in(folder.to_str().unwrap(), &hub, &ranks).unwrap_err();
    assert!(error.to_string().contains("several tokenizers: a.tiktoken, b.tiktoken"), "{error}");
}
