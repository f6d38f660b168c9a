"""Images in Parquet and Arrow files, written by the real `datasets` library and others, become records."""

import io
import json
import resource
import subprocess
import tarfile

import datasets
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from PIL import Image

NAMES = ["tench", "ant", "zebra"]


def picture(i, form="PNG"):
    """The bytes of an image whose size and colors depend on `i`."""
    pixels = np.random.default_rng(i).integers(0, 256, (8 + i % 5, 12, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def rows(count):
    return {
        "image": [{"bytes": picture(i), "path": f"{i}.png"} for i in range(count)],
        "label": [[2, 0, 1, None][i % 4] for i in range(count)],
        "caption": [f"picture {i}" for i in range(count)],
        "boxes": [[[i, 1.5]] for i in range(count)],
    }


FEATURES = datasets.Features({
    "image": datasets.Image(),
    "label": datasets.ClassLabel(names=NAMES),
    "caption": datasets.Value("string"),
    "boxes": datasets.Sequence(datasets.Sequence(datasets.Value("float32"))),
})


def hub(folder, count=90, features=FEATURES, **more):
    """Writes a dataset folder as on the Hub, with two files of one split and one of another."""
    table = datasets.Dataset.from_dict({**rows(count), **more}, features=features)
    data = folder / "data"
    data.mkdir(parents=True)
    (folder / "README.md").write_text("# A dataset")
    for i, name in enumerate(["train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"]):
        table.shard(3, i, contiguous=True).to_parquet(data / f"{name}.parquet", batch_size=7)
    return folder


def records(out, split):
    found = pa.concat_tables([pq.read_table(file) for file in sorted((out / split).glob("*.parquet"))]).to_pylist()
    return [{**record, "image": record["image"]["bytes"]} for record in found]


def test_rows_written_by_the_library_become_records(dsconvert, tmp_path):
    source = hub(tmp_path / "pets")
    out = tmp_path / "out"
    dsconvert("images", source, "--out", out, "--encode", "png", "--quiet")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["schema"]["class_names"] == NAMES
    assert {name: split["records"] for name, split in manifest["splits"].items()} == {"train": 60, "validation": 30}
    expected = rows(90)
    found = records(out, "train") + records(out, "validation")
    assert [record["key"] for record in found[:2]] == [f"pets/data/train-00000-of-00002.parquet#{i}" for i in range(2)]
    for i, record in enumerate(found):
        given = np.asarray(Image.open(io.BytesIO(expected["image"][i]["bytes"])))
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(record["image"]))), given), i
        assert record["label"] == expected["label"][i]
        assert record["caption"] == expected["caption"][i]
        assert json.loads(record["boxes"]) == expected["boxes"][i]


def test_the_dataset_is_the_same_on_one_thread_and_on_several(dsconvert, tmp_path):
    source = hub(tmp_path / "pets")
    for threads in [1, 4]:
        dsconvert("images", source, "--out", tmp_path / f"out{threads}", "--threads", threads, "--quiet")
    one, several = (records(tmp_path / f"out{threads}", "train") for threads in [1, 4])
    assert one == several


def test_columns_of_bytes_and_labels_of_text_are_read(dsconvert, tmp_path):
    labels = ["dog", "cat", None, "dog"]
    table = pa.table({
        "img": pa.array([picture(i, "JPEG") for i in range(4)], pa.binary()),
        "label": labels,
        "width": [1, 2, 3, 4],
        "day": pa.array([1, 2, 3, 4], pa.date32()),
        "time": pa.array([1, 2, 3, 4], pa.time32("s")),
    })
    # Without a declaration, a column of bytes is taken for images if it is called `img` or `image`.
    pq.write_table(table, tmp_path / "plain.parquet")
    done = dsconvert("images", tmp_path / "plain.parquet", "--out", tmp_path / "out")
    assert 'of that name: "width", "time"' in done.stderr
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["schema"]["class_names"] == ["cat", "dog"]
    found = records(tmp_path / "out", "train")
    assert [record["label"] for record in found] == [1, 0, None, 1]
    assert [record["day"] for record in found] == [f"1970-01-0{day}" for day in range(2, 6)]
    assert all(record["image"] == picture(i, "JPEG") for i, record in enumerate(found))
    # Split by the names of the files, "cat" is in only one of two splits.
    (tmp_path / "two").mkdir()
    pq.write_table(table, tmp_path / "two/train.parquet")
    pq.write_table(table.slice(2), tmp_path / "two/test.parquet")
    done = dsconvert("images", tmp_path / "two", "--out", tmp_path / "splits")
    assert 'the class "cat" occurs only in train' in done.stderr
    # Integers without names are ordinals; --classes gives them names.
    pq.write_table(table.set_column(1, "label", pa.array([1, 0, 1, 7])), tmp_path / "plain.parquet")
    classes = tmp_path / "classes.txt"
    classes.write_text("a\nb\n")
    options = ["--classes", classes, "--max-rejects", "1", "--quiet"]
    dsconvert("images", tmp_path / "plain.parquet", "--out", tmp_path / "named", *options)
    assert [record["label"] for record in records(tmp_path / "named", "train")] == [1, 0, 1]
    # A class listed twice would be two classes.
    classes.write_text("a\nb\na\n")
    refused = dsconvert("images", tmp_path / "plain.parquet", "--out", tmp_path / "twice", *options, status=2)
    assert 'the class "a" is listed twice' in refused.stderr


def test_a_class_of_only_one_split_causes_a_warning_when_only_the_conversion_counts_it(dsconvert, tmp_path):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    declared, tars = tmp_path / "declared", tmp_path / "tars"
    declared.mkdir()
    tars.mkdir()
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in NAMES))
    for split, labels in {"train": [0, 1, 0, 2], "test": [0, None, 2]}.items():
        found = {"image": [rows(i + 1)["image"][i] for i in range(len(labels))], "label": labels}
        datasets.Dataset.from_dict(found, features=features).to_parquet(declared / f"{split}.parquet")
        with tarfile.open(tars / f"{split}.tar", "w") as tar:
            for i, label in enumerate(labels):
                for name, content in [(f"{i}.png", picture(i)), (f"{i}.cls", b"" if label is None else str(label).encode())]:
                    if content:
                        member = tarfile.TarInfo(name)
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
    for source, options in {declared: [], tars: ["--classes", tmp_path / "classes.txt"]}.items():
        out = tmp_path / f"{source.name}-out"
        warned = dsconvert("images", source, "--out", out, *options).stderr
        assert f'the class "{NAMES[1]}" occurs only in train' in warned and "--layout flat" in warned
        # The same from merge; none if there is only one split, or if splits are random.
        parts = tmp_path / f"{source.name}-parts"
        dsconvert("plan", "images", source, "--out", parts, *options)
        dsconvert("run", parts, "--part", "1/1")
        assert "occurs only in train" in dsconvert("merge", parts).stderr
        for number, more in enumerate([[], ["--split", "train=0.5,test=0.5"]]):
            out = tmp_path / f"{source.name}-flat-{number}"
            done = dsconvert("images", source, "--out", out, "--layout", "flat", *options, *more)
            assert "occurs only in" not in done.stderr
    # With all classes in both splits, and with unlabeled records in one.
    for labels in ([2, 1, 0, 0], [None]):
        found = {"image": rows(len(labels))["image"], "label": labels}
        datasets.Dataset.from_dict(found, features=features).to_parquet(declared / "test.parquet")
        done = dsconvert("images", declared, "--out", tmp_path / f"none-{len(labels)}")
        assert "occurs only in" not in done.stderr


def test_invalid_rows_are_rejected(dsconvert, tmp_path):
    given = rows(8)
    given["image"][1] = None
    given["image"][2] = {"bytes": b"no image", "path": None}
    given["image"][3] = {"bytes": picture(3)[:40], "path": None}
    given["image"][4] = {"bytes": None, "path": "elsewhere/4.png"}
    given["label"][5] = 9
    given["label"][6] = -1
    members = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"image": pa.array(given["image"], members), "label": pa.array(given["label"], pa.int64())})
    declared = {"info": {"features": {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": NAMES}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(declared)}), tmp_path / "a.parquet")
    dsconvert("images", tmp_path / "a.parquet", "--out", tmp_path / "out", "--max-rejects", "5", "--quiet")
    rejects = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert [(reject["origin"], reject["code"]) for reject in rejects] == [
        ("a.parquet#1", "missing-field"), ("a.parquet#2", "unknown-type"), ("a.parquet#3", "truncated"),
        ("a.parquet#4", "missing-field"), ("a.parquet#5", "unknown-label"),
    ]
    assert "has an image path (\"elsewhere/4.png\")" in rejects[3]["message"]
    # The library stores a missing label as -1.
    assert [record["label"] for record in records(tmp_path / "out", "train")] == [2, None, None]


def test_damaged_files_are_rejected_and_others_converted(dsconvert, tmp_path):
    source = hub(tmp_path / "pets")
    file = source / "data/train-00001-of-00002.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    dsconvert("images", source, "--out", tmp_path / "out", "--max-rejects", "1", "--quiet")
    (reject,) = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert reject["origin"] == "pets/data/train-00001-of-00002.parquet"
    assert len(records(tmp_path / "out", "train")) == 30


def deep_footer(depth):
    """A Parquet file without rows, whose schema is `depth` groups in each other."""
    # In the compact protocol of Thrift: the version, then the schema as a list of structs with name and child count.
    element = b"\x48\x01a\x15\x02\x00"
    count = depth + 1
    varint = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14])
    leaf = b"\x15\x02\x25\x00\x18\x01a\x00"
    footer = b"\x15\x02\x19\xfc" + varint + element * depth + leaf + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_a_schema_that_is_nested_too_deeply_is_damage(dsconvert, tmp_path):
    source = hub(tmp_path / "pets")
    (source / "data/deep.parquet").write_bytes(deep_footer(200_000))
    dsconvert("images", source, "--out", tmp_path / "out", "--max-rejects", "1", "--quiet")
    (reject,) = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert reject["origin"] == "pets/data/deep.parquet" and "nested too deeply" in reject["message"]
    assert len(records(tmp_path / "out", "train")) == 60


def test_there_may_be_more_files_than_a_process_can_have_open(binary, tmp_path):
    table = pa.table({"image": pa.array([picture(0)], pa.binary()), "label": ["a"]})
    (tmp_path / "many").mkdir()
    for i in range(100):
        pq.write_table(table, tmp_path / f"many/{i}.parquet")
    done = subprocess.run(
        [binary, "images", tmp_path / "many", "--out", tmp_path / "out", "--quiet"], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48)),
    )
    assert done.returncode == 0, done.stderr
    assert len(records(tmp_path / "out", "train")) == 100


@pytest.mark.parametrize(("labels", "classes", "expected"), [
    ([0, 1, 2, 3], ["1", "2", "3"], ["rejected", 0, 1, 2]),
    ([0, 1, 2, 1], ["a", "b", "c"], [0, 1, 2, 1]),
    (["cat", "0", "1", "dog"], ["dog", "cat"], [1, "rejected", "rejected", 0]),
    (["1.0", "2.0", None, "1.0"], None, [1, 2, None, 1]),
    (["1.0", "2.0", None, "1.0"], ["1", "2"], [0, 1, None, 0]),
])
def test_labels_mean_the_same_as_in_tables(labels, classes, expected, dsconvert, tmp_path):
    options = ["--max-rejects", "2", "--quiet"]
    if classes is not None:
        (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in classes))
        options += ["--classes", tmp_path / "classes.txt"]
    table = pa.table({"image": pa.array([picture(i) for i in range(4)], pa.binary()), "label": labels})
    pq.write_table(table, tmp_path / "rows.parquet")
    dsconvert("images", tmp_path / "rows.parquet", "--out", tmp_path / "out", *options)
    (tmp_path / "files").mkdir()
    for i in range(4):
        (tmp_path / f"files/{i}.png").write_bytes(picture(i))
    named = "".join(f"{i}.png,{'' if label is None else label}\n" for i, label in enumerate(labels))
    (tmp_path / "files/metadata.csv").write_text(f"file_name,label\n{named}")
    dsconvert("images", tmp_path / "files", "--out", tmp_path / "beside", *options)
    converted = [label for label in expected if label != "rejected"]
    for out in ("out", "beside"):
        assert [record["label"] for record in records(tmp_path / out, "train")] == converted


def test_incompatible_sources_are_refused(dsconvert, tmp_path):
    source = hub(tmp_path / "pets")
    (source / "data/more.png").write_bytes(picture(1))
    refused = dsconvert("images", source, "--out", tmp_path / "out", status=2)
    assert "others are not, such as pets/data/more.png" in refused.stderr
    (source / "data/more.png").unlink()
    other = datasets.Dataset.from_dict(
        {"image": rows(2)["image"]}, features=datasets.Features({"image": datasets.Image()})
    )
    other.to_parquet(source / "data/train-other.parquet")
    refused = dsconvert("images", source, "--out", tmp_path / "out", status=2)
    assert "the columns differ from those of" in refused.stderr
    # Parquet files without images are skipped.
    pq.write_table(pa.table({"text": ["a"]}), source / "data/train-other.parquet")
    dsconvert("images", source, "--out", tmp_path / "out", "--quiet")
    assert json.loads((tmp_path / "out/manifest.json").read_text())["sources"]["skipped"] == 2


def test_a_plan_is_predicted_and_converted_in_parts(dsconvert, tmp_path):
    source = hub(tmp_path / "pets")
    dry = dsconvert("images", source, "--out", tmp_path / "dry", "--dry-run", "--sample", "20")
    assert all(name in dry.stdout for name in NAMES), dry.stdout
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    dsconvert("images", source, "--out", whole, "--quiet")
    dsconvert("plan", "images", source, "--out", parts)
    for part in ["1/2", "2/2"]:
        dsconvert("run", parts, "--part", part)
    dsconvert("merge", parts)
    assert records(parts, "train") == records(whole, "train")


def test_heif_images_are_rejected_by_name(dsconvert, tmp_path):
    source = tmp_path / "photos"
    source.mkdir()
    (source / "a.png").write_bytes(picture(1))
    (source / "b.heic").write_bytes(b"\0\0\0\x20ftypheic" + bytes(100))
    dsconvert("images", source, "--out", tmp_path / "out", "--max-rejects", "1")
    (reject,) = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert reject["code"] == "unsupported"
    assert "HEIF images cannot be read by this build; convert them to PNG first" in reject["message"]
    assert "`heif-convert IN.heic OUT.png`" in reject["message"]


STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def structs(*images):
    return [None if image is None else {"bytes": image, "path": None} for image in images]


def sized(number, size, mode="RGB"):
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return written(Image.fromarray(pixels).convert(mode))


def written(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def pixels(value):
    if value is None:
        return None
    return np.asarray(Image.open(io.BytesIO(value["bytes"] if isinstance(value, dict) else value)))


def check_columns(dsconvert, tmp_path, columns, expected, options=(), says=(), schema_metadata=None, rejected=0):
    """Converts a table, compares each image field with the images of the table, and repairs the dataset."""
    table = pa.table(columns)
    if schema_metadata:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": schema_metadata}})})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    done = dsconvert(
        "images", tmp_path / "t.parquet", "--out", out, "--encode", "png", "--max-rejects", "100%", *options
    )
    assert all(part in done.stdout + done.stderr for part in says), done.stdout + done.stderr
    schema = {f["name"]: f["type"] for f in json.loads((out / "manifest.json").read_text())["schema"]["fields"]}
    found = pa.concat_tables([pq.read_table(file) for file in sorted((out / "train").glob("*.parquet"))]).to_pylist()
    assert {name: ty for name, ty in schema.items() if ty in ("image", "mask")} == {
        n: t for n, (t, _) in expected.items()
    }
    for name, (_, images) in expected.items():
        assert len(found) == len(images)
        for record, image in zip(found, images, strict=True):
            if image is None:
                assert record[name] is None
            else:
                assert np.array_equal(pixels(record[name]), pixels(image)), name
    whole = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    next((out / "train").glob("*.parquet")).unlink()
    dsconvert("inspect", out, "--verify", "--repair", tmp_path / "t.parquet")
    assert whole == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    return found


def test_every_image_column_becomes_a_field(dsconvert, tmp_path):
    a, b, small = sized(1, (16, 12)), sized(2, (16, 12)), sized(3, (5, 7))
    mask = sized(4, (16, 12), "L")
    columns = {
        "original": pa.array(structs(a, b), STRUCT), "seg_mask": pa.array(structs(mask, None), STRUCT),
        "edited": pa.array(structs(small, b), STRUCT), "prompt": ["x", "y"],
    }
    says = ['"original" is the main image', "--image-fields image=NAME"]
    expected = {"image": ("image", [a, b]), "seg_mask": ("mask", [mask, None]), "edited": ("image", [small, b])}
    found = check_columns(dsconvert, tmp_path, columns, expected, says=says)
    assert [record["prompt"] for record in found] == ["x", "y"]
    # Named by hand: the main image, and a column that is left out.
    expected = {"image": ("image", [small, b]), "before": ("image", [a, b])}
    options = ["--image-fields", "image=Edited,before=original"]
    check_columns(dsconvert, tmp_path, columns, expected, options, ["left out: 1 column: seg_mask"])
    expected = {"image": ("image", [a, b])}
    check_columns(dsconvert, tmp_path, columns, expected, ["--image-fields", "none"], ["2 columns: seg_mask, edited"])
    # One column has the usual name: no warning.
    columns["img"] = columns.pop("edited")
    expected = {"image": ("image", [small, b]), "original": ("image", [a, b])}
    check_columns(dsconvert, tmp_path, columns | {"seg_mask": pa.nulls(2, STRUCT)},
                  expected | {"seg_mask": ("image", [None, None])}, says=["  images: image = img,"])


@pytest.mark.parametrize("kind", [
    pa.list_(STRUCT), pa.large_list(STRUCT), pa.list_(pa.binary()), pa.list_(pa.large_binary()),
])
def test_lists_of_images_become_numbered_fields(kind, dsconvert, tmp_path):
    images = [sized(i, (8 + i, 9)) for i in range(6)]
    lists = [images[:1], images[1:3], [images[3], None, images[4]], [], [images[5]]]
    as_stored = lists if pa.types.is_binary(kind.value_type) or pa.types.is_large_binary(kind.value_type) else [structs(*l) for l in lists]
    columns = {"images": pa.array(as_stored, kind), "problem": list("abcde")}
    at = lambda i: [l[i] if i < len(l) else None for l in lists if l]
    expected = {"image": ("image", at(0)), "images_1": ("image", at(1)), "images_2": ("image", at(2))}
    found = check_columns(dsconvert, tmp_path, columns, expected)
    assert [record["problem"] for record in found] == ["a", "b", "c", "e"]
    # A row without an image is rejected; one item of the lists is named.
    expected = {"image": ("image", at(0)), "last": ("image", at(2))}
    says = ["1 list image is left out", "1 missing-field"]
    check_columns(dsconvert, tmp_path, columns, expected, ["--image-fields", "image=images[0],last=images[2]"], says)
    # Beside a main image, all items are fields.
    columns["image"] = pa.array([images[5]] * 5, pa.binary())
    at = lambda i: [l[i] if i < len(l) else None for l in lists]
    if pa.types.is_struct(kind.value_type):
        expected = {"image": ("image", [images[5]] * 5)} | {f"images_{i}": ("image", at(i)) for i in range(3)}
        check_columns(dsconvert, tmp_path, columns, expected)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("name", ["jpg", "image_bytes", "Data", "bytes"])
def test_columns_of_bytes_are_images_by_content(name, kind, dsconvert, tmp_path):
    a, b = sized(1, (16, 12)), sized(2, (3, 4))
    columns = {
        "path": ["a", "b"], name: pa.array([a, b], kind), "embedding": pa.array([b"\0\1", b"\2\3"], kind),
    }
    found = check_columns(
        dsconvert, tmp_path, columns, {"image": ("image", [a, b])}, says=[f"  images: image = {name}"]
    )
    assert [record["embedding"] for record in found] == [b"\0\1", b"\2\3"]
    check_columns(dsconvert, tmp_path, columns, {"image": ("image", [a, b])}, ["--image-field", name])
    # Beside a column of images, other bytes stay as they are.
    columns["image"] = pa.array([b, a], kind)
    found = check_columns(dsconvert, tmp_path, columns, {"image": ("image", [b, a])})
    assert found[0][name] == a
    both = {"image": ("image", [b, a]), name: ("image", [a, b])}
    check_columns(dsconvert, tmp_path, columns, both, ["--image-field", name])


def test_columns_that_are_unclear_or_no_images_are_named(dsconvert, tmp_path):
    a = sized(1, (16, 12))
    pq.write_table(pa.table({"x": pa.array([a, b"hello"], pa.binary())}), tmp_path / "x.parquet")
    refused = dsconvert("images", tmp_path / "x.parquet", "--out", tmp_path / "out", status=3)
    assert 'the column "x"' in refused.stderr and "--image-fields NAME" in refused.stderr
    dsconvert("images", tmp_path / "x.parquet", "--out", tmp_path / "out", "--image-field", "x", "--max-rejects", "1")
    refused = dsconvert("images", tmp_path / "x.parquet", "--out", tmp_path / "no", "--image-field", "y", status=2)
    assert "--image-fields" in refused.stderr and "(y)" in refused.stderr
    # Files that are no images have the structure of images.
    columns = {
        "image": pa.array(structs(a), STRUCT), "sound": pa.array(structs(b"RIFF"), STRUCT), "width": [3], "n": [1]
    }
    says = ["left out: 2 columns: sound, width", "--keep-fields NEW=NAME"]
    found = check_columns(dsconvert, tmp_path, columns, {"image": ("image", [a])}, says=says)
    assert found[0]["n"] == 1
    found = check_columns(dsconvert, tmp_path, columns, {"image": ("image", [a])}, ["--keep-fields", "w=width"])
    assert found[0]["w"] == 3 and "n" not in found[0]
    # A further image that is only a path is a reject, not null.
    columns = {"image": pa.array(structs(a), STRUCT), "other": pa.array([{"bytes": None, "path": "b.png"}], STRUCT)}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    done = dsconvert("images", tmp_path / "p.parquet", "--out", tmp_path / "p", status=3)
    assert 'the column "other"' in done.stderr and "b.png" in done.stderr


def test_datasets_of_the_library_with_several_images_become_fields(dsconvert, tmp_path):
    features = datasets.Features({
        "before": datasets.Image(), "after": datasets.Image(), "views": datasets.Sequence(datasets.Image()),
        "kind": datasets.ClassLabel(names=["a", "b"]),
    })
    images = [Image.open(io.BytesIO(sized(i, (10 + i, 8)))) for i in range(9)]
    data = {"before": images[:3], "after": images[3:6], "views": [images[6:8], [], images[8:]], "kind": [0, 1, 0]}
    datasets.Dataset.from_dict(data, features=features).to_parquet(tmp_path / "t.parquet")
    dsconvert("images", tmp_path / "t.parquet", "--out", tmp_path / "out", "--encode", "png", "--quiet")
    found = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "out/train/*.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    for i, record in enumerate(found):
        assert np.array_equal(np.asarray(record["image"]), np.asarray(images[i]))
        assert np.array_equal(np.asarray(record["after"]), np.asarray(images[3 + i]))
        for item in range(2):
            views = data["views"][i]
            view = record[f"views_{item}"]
            assert (view is None) == (item >= len(views))
            assert view is None or np.array_equal(np.asarray(view), np.asarray(views[item]))
    assert found["label"] == [0, 1, 0]


def test_folders_of_save_to_disk_become_the_records_that_load_from_disk_returns(dsconvert, tmp_path):
    saved = tmp_path / "saved"
    table = datasets.Dataset.from_dict(rows(230), features=FEATURES)
    datasets.DatasetDict({"train": table, "test": table.select(range(20))}).save_to_disk(
        saved, num_shards={"train": 2, "test": 1}
    )
    theirs = datasets.load_from_disk(saved)
    # The library keeps a copy of the rows in the folder.
    theirs["train"].map(lambda row: {"caption": row["caption"] + "!"})
    assert list(saved.glob("train/cache-*.arrow"))
    for out, threads in [("one", 1), ("four", 4)]:
        done = dsconvert("images", saved, "--out", tmp_path / out, "--encode", "png", "--threads", threads)
    assert "by first-level folders: test, train" in done.stdout
    assert "6 files skipped: 5 .json, 1 .arrow" in done.stdout, done.stdout
    assert (tmp_path / "one/manifest.json").read_bytes() == (tmp_path / "four/manifest.json").read_bytes()
    dsconvert("inspect", tmp_path / "one", "--verify")
    for split, expected in theirs.items():
        found = records(tmp_path / "one", split)
        assert len(found) == len(expected)
        for ours, their in zip(found, expected):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(ours["image"]))), np.asarray(their["image"]))
            assert (ours["label"], ours["caption"]) == (their["label"], their["caption"])
            assert json.loads(ours["boxes"]) == their["boxes"]
    assert found[0]["key"] == "saved/test/data-00000-of-00001.arrow#0"
    # A copy that is itself the source is read, and may have another name.
    cached = next(saved.glob("train/cache-*.arrow"))
    dsconvert("images", f"copy={cached}", "--out", tmp_path / "copy", "--quiet")
    assert records(tmp_path / "copy", "train")[1]["caption"] == "picture 1!"


def test_arrow_files_of_any_writer_give_the_records_of_a_parquet_file(dsconvert, tmp_path):
    images = pa.array(rows(30)["image"], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    table = pa.table({"image": images, "label": ["a", "b", None] * 10, "day": pa.array(range(30), pa.date32())})
    coded = table.set_column(1, "label", table["label"].dictionary_encode())
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    pq.write_table(table, tmp_path / "parquet.parquet")
    feather.write_feather(table, tmp_path / "lz4.feather", compression="lz4", chunksize=7)
    feather.write_feather(coded, tmp_path / "coded.Feather", compression="uncompressed")
    with pa.ipc.new_file(tmp_path / "zstd.ipc", table.schema, options=options) as out:
        out.write_table(table, max_chunksize=4)
    with pa.ipc.new_stream(tmp_path / "stream.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=4)
    polars.from_arrow(table).write_ipc(tmp_path / "polars.arrow")
    stream = (tmp_path / "stream.arrow").read_bytes()
    (tmp_path / "cut.arrow").write_bytes(stream[: len(stream) * 2 // 3])

    def convert(name):
        dsconvert("images", tmp_path / name, "--out", tmp_path / "out" / name, "--quiet", "--max-rejects", "100%")
        found = records(tmp_path / "out" / name, "train")
        assert [record["key"] for record in found] == [f"{name}#{i}" for i in range(len(found))]
        return [{key: value for key, value in record.items() if key not in ("key", "origin")} for record in found]

    expected = convert("parquet.parquet")
    assert len(expected) == 30
    for name in ["lz4.feather", "coded.Feather", "zstd.ipc", "stream.arrow", "polars.arrow"]:
        assert convert(name) == expected, name
    # The rows before the end of a truncated stream are kept.
    assert convert("cut.arrow") == expected[:16]
    rejects = [json.loads(line) for line in (tmp_path / "out/cut.arrow/rejects.jsonl").read_text().splitlines()]
    assert [(reject["origin"], reject["code"]) for reject in rejects] == [("cut.arrow#16", "truncated")]


def test_bytes_of_text_are_kept_as_strings_if_asked_for(dsconvert, tmp_path):
    """Spark and old writers store strings as bytes without an annotation."""
    captions = [b"a cat", "é".encode(), None, b"\xff"]
    images = pa.array([{"bytes": picture(i), "path": None} for i in range(4)])
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"image": images, "caption": pa.array(captions, pa.binary())}), tmp_path / "in/a.parquet")
    dsconvert(
        "images", tmp_path / "in", "--out", tmp_path / "out", "--keep-fields", "caption:string", "--max-rejects", "1",
        "--quiet",
    )
    assert [record["caption"] for record in records(tmp_path / "out", "train")] == ["a cat", "é", None]
    assert '"invalid-utf8"' in (tmp_path / "out/rejects.jsonl").read_text()
    pq.write_table(
        pa.table({"image": images, "caption": ["x"] * 4, "Caption": ["y"] * 4}).rename_columns(["image", "a", "a"]),
        tmp_path / "in/a.parquet",
    )
    refused = dsconvert("images", tmp_path / "in", "--out", tmp_path / "two", "--keep-fields", "a", status=2)
    assert 'two columns are called "a"' in refused.stderr
