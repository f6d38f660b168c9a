"""Boxes and captions of COCO and YOLO, and masks beside images, against positions computed by Pillow and numpy."""

import json
import random
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw, ImageOps

ORIENTATION = 0x0112
OPTIONS = {
    "as they are": [],
    "shorter": ["--resize", "shorter:64"],
    "crop": ["--resize", "shorter:48", "--crop", "center:40x40"],
    "pad": ["--resize", "longer:50", "--pad", "64x60"],
    "exact": ["--resize", "exact:41x57", "--enlarge"],
}


def records(out):
    table = pa.concat_tables(pq.read_table(shard) for shard in sorted(out.glob("*/*.parquet")))
    return {row["key"].split("/", 1)[1]: row for row in table.to_pylist()}


def manifest(out):
    return json.loads((out / "manifest.json").read_bytes())


def rejects(out):
    lines = (out / "rejects.jsonl").read_text().splitlines()
    return {reject["origin"].split("/", 1)[1]: (reject["code"], reject["message"]) for reject in map(json.loads, lines)}


def around(pixels):
    """The box around the pixels that are set."""
    rows, columns = np.nonzero(pixels.any(1))[0], np.nonzero(pixels.any(0))[0]
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def rectangles(numbers, width, height):
    """Boxes in corners of their own, so that they do not overlap."""
    boxes = []
    for right in (0, 1):
        for bottom in (0, 1):
            w, h = numbers.randint(8, width // 2 - 4), numbers.randint(8, height // 2 - 4)
            x = right * (width // 2) + numbers.randint(0, width // 2 - w - 1)
            y = bottom * (height // 2) + numbers.randint(0, height // 2 - h - 1)
            boxes.append([x, y, x + w, y + h])
    numbers.shuffle(boxes)
    return boxes[: numbers.randint(0, 4)]


@pytest.fixture(scope="module")
def turned(tmp_path_factory):
    """Images with all orientations; boxes of the stored and of the upright images."""
    folder, numbers = tmp_path_factory.mktemp("turned"), random.Random(5)
    (folder / "images").mkdir()
    found = []
    for at in range(32):
        # Sides that differ, because nothing tells a stored square from an upright one.
        width, height = numbers.randint(90, 130), numbers.randint(60, 80)
        boxes = rectangles(numbers, width, height)
        image = Image.new("RGB", (width, height))
        for number, box in enumerate(boxes):
            color = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 250)][number]
            ImageDraw.Draw(image).rectangle([box[0], box[1], box[2] - 1, box[3] - 1], fill=color)
        exif = Image.Exif()
        exif[ORIENTATION] = at % 8 + 1
        name = f"{at:02}.png"
        image.save(folder / "images" / name, exif=exif)
        upright = []
        for box in boxes:
            alone = Image.new("L", (width, height))
            alone.getexif()[ORIENTATION] = at % 8 + 1
            ImageDraw.Draw(alone).rectangle([box[0], box[1], box[2] - 1, box[3] - 1], fill=255)
            upright.append(around(np.asarray(ImageOps.exif_transpose(alone))))
        transposes = at % 8 >= 4
        size = (height, width) if transposes else (width, height)
        found.append((name, (width, height), boxes, size, [list(map(int, box)) for box in upright]))
    return folder, found


def coco(found, state):
    """A file with sparse category ids. `state` chooses which size is stated, and with it whose boxes are listed."""
    images, annotations = [], []
    for number, (name, size, boxes, upright_size, upright_boxes) in enumerate(found):
        as_stored = state == "stored" or (state == "mixed" and number % 3 == 0)
        (width, height), listed = (size, boxes) if as_stored else (upright_size, upright_boxes)
        images.append({"id": 1000 + number, "file_name": name, "width": width, "height": height})
        for at, (x1, y1, x2, y2) in enumerate(listed):
            annotations.append({
                "id": len(annotations), "image_id": 1000 + number, "category_id": [90, 3, 17, 1][at],
                "bbox": [x1, y1, x2 - x1, y2 - y1], "iscrowd": int(at == 2), "area": 1.5, "segmentation": [],
            })
    categories = [{"id": i, "name": name} for i, name in [(90, "d"), (3, "b"), (17, "c"), (1, "a")]]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


def placed(boxes, size, options):
    """Boxes of an upright image of `size` after resize, crop and pad; None where nothing is left."""
    options = dict(zip(options[::2], options[1::2]))
    width, height = size
    kind, _, value = options.get("--resize", "none:").partition(":")
    half_up = lambda side, to, of: max(1, (2 * side * to + of) // (2 * of))
    if kind == "exact":
        resized = tuple(map(int, value.split("x")))
    elif kind == "none":
        resized = size
    else:
        by = min(size) if kind == "shorter" else max(size)
        # Images are not enlarged.
        resized = tuple(half_up(side, int(value), by) for side in size) if int(value) < by else size
    crop = tuple(map(int, options.get("--crop", "center:9999x9999").removeprefix("center:").split("x")))
    kept = np.minimum(crop, resized)
    start = (np.array(resized) - kept) // 2
    pad = tuple(map(int, options.get("--pad", "0x0").split("x")))
    before = (np.maximum(pad, kept) - kept) // 2
    made = []
    for x1, y1, x2, y2 in boxes:
        corners = np.array([[x1, y1], [x2, y2]], float) * np.array(resized) / np.array(size) - start
        corners = np.clip(corners, 0, kept)
        is_left = (corners[0] < corners[1]).all()
        made.append((corners + before).ravel() if is_left else None)
    return made


@pytest.mark.parametrize("state", ["stored", "upright", "mixed"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_boxes_follow_their_image(turned, options, state, dsconvert, tmp_path):
    folder, found = turned
    (tmp_path / "a.json").write_text(json.dumps(coco(found, state)))
    out = tmp_path / "out"
    options_given = [*options, "--encode", "png", *(["--filter", "box"] if options else [])]
    dsconvert("images", folder / "images", "--annotations", tmp_path / "a.json", "--out", out, *options_given)
    rows, outside = records(out), 0
    assert manifest(out)["schema"]["class_names"] == ["a", "b", "c", "d"]
    assert len(rows) == len(found)
    for at, (name, size, boxes, upright_size, upright) in enumerate(found):
        row = rows[name]
        # Where both sizes are equal, boxes are those of the upright image.
        is_ambiguous = size == upright_size and at % 8 != 0
        listed = upright
        if is_ambiguous and (state == "stored" or (state == "mixed" and at % 3 == 0)):
            listed = boxes
        expected = [(box, at) for at, box in enumerate(placed(listed, upright_size, options)) if box is not None]
        outside += len(listed) - len(expected)
        assert row["labels"] == [[3, 1, 2, 0][at] for _, at in expected]
        assert row["iscrowd"] == [int(at == 2) for _, at in expected]
        np.testing.assert_allclose(
            np.reshape(row["boxes"], (-1, 4)), np.reshape([box for box, _ in expected], (-1, 4)), atol=1e-4
        )
        if listed is boxes and listed != upright:
            continue
        # The pixels agree.
        image = np.asarray(Image.open(__import__("io").BytesIO(row["image"]["bytes"])).convert("RGB")).astype(int)
        for box, number in expected:
            color = np.array([(250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 250)][number])
            near = (np.abs(image - color).max(2) < 125)
            if min(box[2] - box[0], box[3] - box[1]) > 4:
                assert np.abs(np.array(around(near)) - box).max() <= 1.01, (name, box, around(near))
    notes = manifest(out)["notes"]
    assert notes.get("boxes_outside", 0) == outside
    empty = sum(not row["labels"] for row in rows.values())
    assert notes["images_without_boxes"] == empty > 0


def test_yolo_labels_are_fractions_of_the_upright_image(turned, dsconvert, tmp_path):
    folder, found = turned
    labels = tmp_path / "labels"
    labels.mkdir()
    (labels / "data.yaml").write_text("nc: 4\nnames:\n  0: a\n  1: b\n  2: 'c d'\n  3: e\n")
    polygons = 0
    for name, _, _, (width, height), upright in found:
        lines = []
        for at, (x1, y1, x2, y2) in enumerate(upright):
            if at == 1:
                polygons += 1
                points = [x1, (y1 + y2) / 2, (x1 + x2) / 2, y1, x2, (y1 + y2) / 2, (x1 + x2) / 2, y2]
                lines.append(
                    " ".join([str(at), *(str(p / (height if i % 2 else width)) for i, p in enumerate(points))])
                )
            else:
                center = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height]
                lines.append(" ".join(map(str, [at, *center])))
        if lines:
            (labels / name.replace(".png", ".txt")).write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    dsconvert("images", folder / "images", "--annotations", labels, "--out", out, *OPTIONS["pad"])
    rows = records(out)
    assert list(rows["00.png"]) == ["key", "image", "width", "height", "origin", "boxes", "labels"]
    for name, _, _, size, upright in found:
        np.testing.assert_allclose(
            np.reshape(rows[name]["boxes"], (-1, 4)), np.reshape(placed(upright, size, OPTIONS["pad"]), (-1, 4)),
            atol=1e-4
        )
        assert rows[name]["labels"] == list(range(len(upright)))
    assert manifest(out)["notes"]["boxes_of_polygons"] == polygons > 0
    assert manifest(out)["schema"]["class_names"] == ["a", "b", "c d", "e"]


def test_captions_and_instances_are_merged(turned, dsconvert, tmp_path):
    folder, found = turned
    instances = coco(found[:-2], "upright")
    captions = {"images": instances["images"], "annotations": []}
    for number in range(40):
        captions["annotations"].append({"id": number, "image_id": 1000 + number % 9, "caption": f"ein Bär {number}\n"})
    for name, content in [("instances", instances), ("captions", captions)]:
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    out = tmp_path / "out"
    ran = dsconvert(
        "images", folder / "images", "--annotations", tmp_path / "instances.json",
        "--annotations", tmp_path / "captions.json", "--out", out,
    )
    assert "2 images without annotations" in ran.stderr
    rows = records(out)
    for at, (name, *_) in enumerate(found):
        expected = [f"ein Bär {number}\n" for number in range(40) if number % 9 == at]
        if at >= len(found) - 2:
            assert rows[name]["boxes"] is rows[name]["captions"] is rows[name]["labels"] is None
        else:
            assert json.loads(rows[name]["captions"]) == expected
    assert manifest(out)["notes"]["images_without_annotations"] == 2


@pytest.fixture
def plain(tmp_path):
    """Two images in folders, and a function that writes annotations for them."""
    for name in ["s/a/1.png", "s/b/2.png"]:
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(tmp_path / name)

    def write(name="a.json", **changes):
        content = {
            "images": [{"id": i, "file_name": f"{i}.png", "width": 40, "height": 30} for i in (1, 2)],
            "annotations": [{"image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4]}],
            "categories": [{"id": 5, "name": "cat"}],
            **changes,
        }
        (tmp_path / name).write_text(json.dumps(content))
        return tmp_path / name

    return tmp_path, write


def annotation(**changes):
    return {"image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4], **changes}


@pytest.mark.parametrize("changes, code", [
    ({"images": [{"id": 1, "file_name": "1.png", "width": 41, "height": 30}]}, "annotation-mismatch"),
    ({"images": [{"id": i, "file_name": "1.png", "width": 40, "height": 30} for i in (1, 7)]}, "annotation-mismatch"),
    ({"annotations": [annotation(category_id=6)]}, "unknown-label"),
    ({"annotations": [annotation(category_id=None)]}, "unknown-label"),
])
def test_damage_of_one_image_rejects_it(plain, changes, code, dsconvert):
    folder, write = plain
    out = folder / "out"
    dsconvert("images", folder / "s", "--annotations", write(**changes), "--out", out, "--max-rejects", "60%")
    assert {name: code for name, (code, _) in rejects(out).items()} == {"a/1.png": code}


@pytest.mark.parametrize("changes, message", [
    ({"annotations": [annotation(bbox=[1, 2, 3, float("nan")])]}, "is not a file of COCO annotations"),
    ({"annotations": [annotation(image_id=1e30)]}, "is not a file of COCO annotations"),
    ({"annotations": [{"image_id": 1, "segments_info": []}], "categories": []}, "neither boxes nor captions"),
    ({"categories": []}, "no categories"),
    ({"annotations": [annotation(), annotation(category_id=6)], "categories": [{"id": 5, "name": "cat"}, {"id": 6, "name": "cat"}]},
     "5 and 6 are both called"),
    ({"categories": [{"id": 5, "name": "cat"}, {"id": 5, "name": "dog"}]}, 'the category 5 is "dog"'),
    ({"images": [{"id": 1, "file_name": "1.png"}, {"id": 1, "file_name": "2.png"}]}, "same id"),
])
def test_contradictions_are_refused_before_anything_is_written(plain, changes, message, dsconvert):
    folder, write = plain
    path = write(**changes)
    ran = dsconvert("images", folder / "s", "--annotations", path, "--out", folder / "out", status=2)
    assert message in ran.stderr and str(path) in ran.stderr, ran.stderr
    assert not (folder / "out").exists()


def test_files_that_disagree_are_refused(plain, dsconvert):
    folder, write = plain
    first = write()
    for second, message in [
        (write("b.json"), "has boxes here and in"),
    ]:
        ran = dsconvert(
            "images", folder / "s", "--annotations", first, "--annotations", second, "--out", folder / "out", status=2
        )
        assert message in ran.stderr, ran.stderr
    Image.new("RGB", (40, 30)).save(folder / "s/b/1.png")
    ran = dsconvert("images", folder / "s", "--annotations", first, "--out", folder / "out", status=2)
    assert 'the name "1.png" fits several images: "s/a/1.png" and "s/b/1.png"' in ran.stderr, ran.stderr
    # The folder of the annotations decides.
    beside = write("s/a/x.json")
    dsconvert("images", folder / "s", "--annotations", beside, "--out", folder / "out")
    rows = records(folder / "out")
    assert rows["a/1.png"]["labels"] == [0] and rows["b/1.png"]["labels"] is None
    for options, message in [
        (["--layout", "labels"], "--layout labels takes classes from folders"),
        (["--annotations", folder / "none.json"], "there is no such file"),
        (["--files-from", "-"], "cannot be used with"),
        (["--metadata", beside], "both describe the images"),
    ]:
        ran = dsconvert("images", folder / "s", "--annotations", beside, "--out", folder / "o", *options, status=2)
        assert message in ran.stderr, ran.stderr


def test_odd_boxes_and_annotations_are_counted(plain, dsconvert):
    folder, write = plain
    listed = [[1, 2, 3, 4], [1, 2, 0, 4], [1, 2, 3, -4], [1, 2], [-9, -9, 5, 5], [1, 2, 1e300, 4], [-2, 25, 9, 99], []]
    annotations = [annotation(bbox=box) for box in listed] + [annotation(image_id=77), annotation(image_id=78)]
    images = [{"id": i, "file_name": f"{i}.png", "width": 40, "height": 30} for i in (1, 2, 3)]
    ran = dsconvert(
        "images", folder / "s", "--annotations", write(images=images, annotations=annotations), "--out", folder / "out"
    )
    assert "2 annotations of images that it does not list are left out" in ran.stderr, ran.stderr
    assert '1 image that it lists is not among the sources, such as "3.png"' in ran.stderr, ran.stderr
    rows = records(folder / "out")
    assert rows["a/1.png"]["boxes"] == [[1, 2, 4, 6], [0, 25, 7, 30]]
    assert rows["b/2.png"]["boxes"] == [] == rows["b/2.png"]["iscrowd"]
    notes = manifest(folder / "out")["notes"]
    assert (notes["boxes_invalid"], notes["boxes_outside"], notes["images_without_boxes"]) == (5, 1, 1)
    for text in ["5 boxes without an area", "1 box outside", "1 image without boxes"]:
        assert text in ran.stdout + ran.stderr, ran.stderr


def test_classes_are_in_a_given_order(plain, dsconvert):
    folder, write = plain
    path = write()
    (folder / "classes.txt").write_text("dog\ncat\n")
    dsconvert(
        "images", folder / "s", "--annotations", path, "--classes", folder / "classes.txt", "--out", folder / "out"
    )
    assert records(folder / "out")["a/1.png"]["labels"] == [1]
    (folder / "classes.txt").write_text("dog\n")
    ran = dsconvert(
        "images", folder / "s", "--annotations", path, "--classes", folder / "classes.txt", "--out", folder / "o",
        status=2
    )
    assert 'the category "cat" is not among --classes: "dog"' in ran.stderr, ran.stderr


def test_parts_and_another_run_give_the_same_bytes(turned, dsconvert, tmp_path):
    folder, found = turned
    (tmp_path / "a.json").write_text(json.dumps(coco(found, "mixed")))
    arguments = ["images", folder / "images", "--annotations", tmp_path / "a.json", "--unit-bytes", "4KiB", "--shuffle"]
    dsconvert(*arguments, "--out", tmp_path / "whole", "--threads", "1")
    dsconvert("plan", *arguments, "--out", tmp_path / "parts")
    for part in ["2/2", "1/2"]:
        dsconvert("run", tmp_path / "parts", "--part", part)
    dsconvert("merge", tmp_path / "parts")
    shards = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").glob("*/*.parquet"))
    assert len(shards) > 1
    for shard in [*shards, "manifest.json"]:
        assert (tmp_path / "whole" / shard).read_bytes() == (tmp_path / "parts" / shard).read_bytes()


def test_companions_are_masks_of_their_image(turned, dsconvert, tmp_path):
    folder, found = turned
    root = tmp_path / "s"
    for at, (name, size, boxes, _, _) in enumerate(found):
        for part in ["images/deep", "masks/deep", "depth"]:
            (root / part).mkdir(parents=True, exist_ok=True)
        (root / "images/deep" / name).write_bytes((folder / "images" / name).read_bytes())
        mask = np.zeros(size[::-1], np.uint8)
        for number, (x1, y1, x2, y2) in enumerate(boxes):
            mask[y1:y2, x1:x2] = number + 1
        Image.fromarray(mask).save(root / "masks/deep" / name.replace(".png", "_seg.png"))
        if at % 2:
            Image.new("L", size, 99).save(root / "depth" / name)
    Image.new("L", (4, 4)).save(root / "masks/deep/none_seg.png")
    (tmp_path / "a.json").write_text(json.dumps(coco(found, "upright")))
    out = tmp_path / "out"
    options = ["--companion", "seg=masks/{subdir}/{stem}_seg.png,depth=depth/{stem}.png:image?", *OPTIONS["crop"]]
    ran = dsconvert(
        "images", root, "--annotations", tmp_path / "a.json", "--encode", "png", "--filter", "box", "--out", out,
        *options
    )
    assert "1 file that fits the pattern of a companion is skipped" in ran.stderr, ran.stderr
    rows = records(out)
    assert len(rows) == len(found)
    compared = 0
    for at, (name, size, _, upright_size, _) in enumerate(found):
        row = rows[f"images/deep/{name}"]
        read = lambda field: np.asarray(Image.open(__import__("io").BytesIO(row[field]["bytes"])))
        assert read("seg").shape == read("image").shape[:2] == (40, 40)
        if size == upright_size and at % 8:
            continue
        for box, label in zip(row["boxes"], row["labels"]):
            number = [3, 1, 2, 0].index(label) + 1
            if min(box[2] - box[0], box[3] - box[1]) > 4:
                assert np.abs(np.array(around(read("seg") == number)) - box).max() <= 1
                compared += 1
        assert (row["depth"] is None) == (at % 2 == 0)
        if at % 2:
            assert read("depth").shape[:2] == (40, 40) and (read("depth") == 99).all()
    assert compared > 20
    (root / "masks/deep/00_seg.png").unlink()
    dsconvert("images", root, "--out", tmp_path / "o", *options)
    assert rejects(tmp_path / "o") == {
        "images/deep/00.png": ("missing-file", 'it has no companion "seg": there is no file "masks/deep/00_seg.png"')
    }
    assert manifest(tmp_path / "o")["options"]["companion"] == [
        "seg=masks/{subdir}/{stem}_seg.png:mask", "depth=depth/{stem}.png:image?"
    ]


def test_labels_beside_images_are_no_sidecars(dsconvert, tmp_path):
    """The layout of Darknet, with captions beside the images, too; and the same in an archive with COCO annotations."""
    (tmp_path / "s/obj").mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (40, 30)).save(tmp_path / f"s/obj/{number}.jpg")
        if number:
            (tmp_path / f"s/obj/{number}.txt").write_text("1 0.5 0.5 0.5 0.5\n" * (number % 3))
        (tmp_path / f"s/obj/{number}.caption").write_text(f"number {number}")
    (tmp_path / "s/classes.txt").write_text("cat\ndog\n")
    dsconvert("images", tmp_path / "s", "--annotations", tmp_path / "s", "--layout", "flat", "--out", tmp_path / "out")
    rows = records(tmp_path / "out")
    for number in range(6):
        row = rows[f"obj/{number}.jpg"]
        assert row["boxes"] == [[10, 7.5, 30, 22.5]] * (number % 3) and row["labels"] == [1] * (number % 3)
        assert row["caption"] == f"number {number}" and "txt" not in row
    assert manifest(tmp_path / "out")["sources"]["skipped"] == 1
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        for path in sorted((tmp_path / "s/obj").glob("*.jpg")):
            archive.write(path, f"images/{path.name}")
    content = {
        "images": [{"id": 1, "file_name": "3.jpg", "width": 40, "height": 30}],
        "annotations": [annotation()], "categories": [{"id": 5, "name": "cat"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    dsconvert("images", tmp_path / "s.zip", "--annotations", tmp_path / "a.json", "--out", tmp_path / "zipped")
    rows = records(tmp_path / "zipped")
    assert len(rows) == 6 and rows["images/3.jpg"]["boxes"] == [[1, 2, 4, 6]] and rows["images/2.jpg"]["boxes"] is None


def test_other_images_take_options_but_not_annotations(plain, dsconvert):
    folder, write = plain
    path = write()
    dsconvert("images", folder / "s", "--annotations", path, "--resize", "shorter:16", "--out", folder / "out")
    ran = dsconvert("images", folder / "s", "--like", folder / "out", "--out", folder / "more")
    assert "was made with annotations" in ran.stderr
    assert "boxes" not in records(folder / "more")["a/1.png"] and manifest(folder / "more")["schema"].get("class_names") == ["a", "b"]
    dsconvert("images", folder / "s", "--like", folder / "out", "--annotations", path, "--out", folder / "same")
    assert records(folder / "same") == records(folder / "out")
    assert manifest(folder / "same")["options"]["classes"] == manifest(folder / "out")["schema"]["class_names"] == ["cat"]
    ran = dsconvert("inspect", folder / "out", "--recipe")
    assert "--annotations ANNOTATIONS" in ran.stdout


def test_pages_show_boxes_and_captions(turned, dsconvert, tmp_path):
    folder, found = turned
    instances = coco(found, "upright")
    (tmp_path / "a.json").write_text(json.dumps(instances))
    captions = [{"image_id": image["id"], "caption": f"<b>&{image['id']}"} for image in instances["images"][:9]]
    (tmp_path / "c.json").write_text(json.dumps({"images": instances["images"], "annotations": captions}))
    out = tmp_path / "out"
    dsconvert(
        "images", folder / "images", "--annotations", tmp_path / "a.json", "--annotations", tmp_path / "c.json", "--out", out,
        "--encode", "png",
    )
    page, sheet = tmp_path / "page.html", tmp_path / "sheet.png"
    dsconvert("inspect", out, "--html", page, "--contact-sheet", sheet)
    text = page.read_text()
    for number in range(9):
        assert f"&lt;b&gt;&amp;{1000 + number}" in text
    # Outlines have colors that no image has.
    colors = {tuple(color) for color in np.asarray(Image.open(sheet).convert("RGB")).reshape(-1, 3)}
    assert {(255, 60, 60), (60, 220, 60), (70, 130, 255), (255, 215, 0)} <= colors
