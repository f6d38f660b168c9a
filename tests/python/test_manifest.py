"""manifest.json lists every file of the dataset, and its numbers add up."""

import hashlib
import json
import re


def test_outcomes_add_up(anything):
    manifest = anything.manifest
    parts = [manifest, *manifest["splits"].values()]
    for part in parts:
        assert part["found"] == part["converted"] + part["filtered"] + part["duplicates"] + part["rejected"]
    for name in ("found", "converted", "filtered", "duplicates", "rejected"):
        assert manifest[name] == sum(split[name] for split in manifest["splits"].values())
    assert sum(manifest["reject_codes"].values()) == manifest["rejected"]
    rejects = (anything.path / "rejects.jsonl").read_text().splitlines()
    assert len(rejects) == manifest["rejected"] > 0
    assert manifest["sources"]["skipped"] == (1 if anything.kind == "images" else 0)


def test_the_digest_is_that_of_the_file_with_zeros_in_its_place(anything):
    data = (anything.path / "manifest.json").read_bytes()
    start = b'{\n  "manifest_version": 3,\n  "digest": "sha256:'
    assert data.startswith(start)
    zeroed, count = re.subn(rb'(?<="digest": "sha256:)[0-9a-f]{64}(?=")', b"0" * 64, data, count=1)
    assert count == 1 and anything.manifest["digest"] == "sha256:" + hashlib.sha256(zeroed).hexdigest()


def test_the_plan_is_described(anything):
    plan = anything.manifest["plan"]
    shards = [row["path"].rsplit("/", 1)[1] for row in anything.shard_table]
    assert all(int(shard.rsplit("-", 2)[1]) < plan["units"] for shard in shards)
    assert plan["unit_bytes"] > 0 and plan["unit_pieces"] > 0
    assert re.fullmatch("sha256:[0-9a-f]{64}", plan["listing"])


def test_every_file_is_listed_with_its_hash(anything):
    manifest = anything.manifest
    listed = [*manifest["files"], manifest["shard_table"]]
    for split in manifest["splits"].values():
        listed += [*split["record_index"], *split["length_index"], split["length_histogram"]]
    for entry in listed:
        data = (anything.path / entry["path"]).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest()), entry["path"]
    shards = {row["path"] for row in anything.shard_table}
    present = {str(p.relative_to(anything.path)) for p in anything.path.rglob("*") if p.is_file()}
    assert present == {entry["path"] for entry in listed} | shards | {"manifest.json"}


def test_lengths_are_summarised(anything):
    for name, split in anything.manifest["splits"].items():
        lengths = sorted(anything.index(name, "record_index")["length"].to_pylist())
        summary = split["length"]
        assert summary["unit"] == ("pixels" if anything.kind == "images" else "tokens")
        assert (summary["min"], summary["max"], summary["total"]) == (lengths[0], lengths[-1], sum(lengths))
        assert abs(summary["mean"] - sum(lengths) / len(lengths)) < 1e-6
        for percent in (50, 99):
            assert summary[f"p{percent}"] == lengths[-(-percent * len(lengths) // 100) - 1]


def test_classes_are_counted_exactly(anything, dsconvert):
    names = anything.manifest["schema"].get("class_names")
    described = json.loads(dsconvert("inspect", anything.path, "--json").stdout)["splits"]
    for name, split in anything.manifest["splits"].items():
        if names is None:
            assert "class_counts" not in split and "classes" not in described[name]
            continue
        labels = [record["label"] for record in anything.records(name)]
        assert split["class_counts"] == [labels.count(label) for label in range(len(names))]
        assert described[name]["classes"] == dict(zip(names, split["class_counts"], strict=True))
        assert described[name]["labels_read"] == len(labels) == split["records"]


def test_no_path_or_operational_option_of_the_run_is_stored(anything):
    text = (anything.path / "manifest.json").read_text()
    assert str(anything.path) not in text
    assert "/tmp" not in text and "threads" not in text


def test_inspect_reports_the_same_numbers(anything, dsconvert):
    report = json.loads(dsconvert("inspect", anything.path, "--json").stdout)
    assert (report["kind"], report["format"]) == (anything.kind, anything.format)
    for name in ("found", "converted", "filtered", "duplicates", "rejected"):
        assert report[name] == anything.manifest[name]
    assert set(report["splits"]) == set(anything.splits)
    for name, split in report["splits"].items():
        kept = anything.manifest["splits"][name]
        assert (split["records"], split["shards"], split["bytes"]) == (kept["records"], kept["shards"], kept["bytes"])
        for number in ("unit", "min", "max", "mean", "p50", "p99"):
            assert split["length"][number] == kept["length"][number]


def test_inspect_verifies(anything, dsconvert):
    dsconvert("inspect", anything.path, "--verify")
    for split in anything.splits:
        for shard in anything.shards(split):
            dsconvert("inspect", shard)
