"""Boxes in the layouts of other tools: the rows of "What is read of the files of other tools", and boxes against pixels."""

import io
import json
import xml.etree.ElementTree as ET

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw, ImageOps

from test_annotations import ORIENTATION, around, manifest, records, rejects

MODES = {
    "as they are": [],
    "shorter": ["--resize", "shorter:48"],
    "crop": ["--resize", "shorter:48", "--crop", "center:40x40"],
    "pad": ["--resize", "longer:50", "--pad", "64x60"],
    "exact": ["--resize", "exact:41x57", "--enlarge"],
    "buckets": ["--buckets", "area:64x64,step:16,max-ratio:2.5"],
}
NAMES = ["cat", "traffic light"]


def rotated(at, folder):
    """An image with one rectangle and the orientation `at % 8 + 1`. Returns its upright size and the upright rectangle."""
    rng = np.random.default_rng(at)
    width, height = int(rng.integers(100, 130)), int(rng.integers(60, 80))
    x, y = int(rng.integers(20, width // 2)), int(rng.integers(8, height // 2))
    box = [x, y, x + int(rng.integers(20, width - x)), y + int(rng.integers(15, height - y))]
    image = Image.new("RGB", (width, height))
    ImageDraw.Draw(image).rectangle([box[0], box[1], box[2] - 1, box[3] - 1], fill="white")
    exif = Image.Exif()
    exif[ORIENTATION] = at % 8 + 1
    image.save(folder / f"{at:02}.png", exif=exif)
    with Image.open(folder / f"{at:02}.png") as stored:
        upright = ImageOps.exif_transpose(stored)
    return upright.size, [int(side) for side in around(np.asarray(upright.convert("L")) > 127)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures") / "images"
    folder.mkdir()
    return folder, {f"{at:02}.png": rotated(at, folder) for at in range(16)}


def coco(found):
    images = [
        {"id": at, "file_name": name, "width": w, "height": h} for at, (name, ((w, h), _)) in enumerate(found.items())
    ]
    boxes = [{"image_id": at, "category_id": 1, "bbox": [x, y, right - x, bottom - y]}
             for at, (_, (x, y, right, bottom)) in enumerate(found.values())]
    return {
        "images": images,
        "annotations": boxes,
        "categories": [{"id": at, "name": name} for at, name in enumerate(NAMES)],
    }


def voc(size, boxes, name="x.jpg", database="Unknown"):
    root = ET.Element("annotation")
    ET.SubElement(root, "filename").text = name
    ET.SubElement(ET.SubElement(root, "source"), "database").text = database
    stated = ET.SubElement(root, "size")
    for key, value in zip(("width", "height", "depth"), (*size, 3)):
        ET.SubElement(stated, key).text = str(value)
    for label, difficult, box in boxes:
        item = ET.SubElement(root, "object")
        ET.SubElement(item, "name").text = label
        ET.SubElement(item, "difficult").text = str(difficult)
        inner = ET.SubElement(item, "bndbox")
        for key, value in zip(("xmin", "ymin", "xmax", "ymax"), box):
            ET.SubElement(inner, key).text = str(value)
    return ET.tostring(root)


def yolo_line(kind, size, box):
    x1, x2 = box[0] / size[0], box[2] / size[0]
    y1, y2 = box[1] / size[1], box[3] / size[1]
    numbers = [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
    if kind == "segment":
        numbers = [x1, y1, (x1 + x2) / 2, y1, x2, y1, x2, y2, x1, y2]
    elif kind == "obb":
        numbers = [x1, y1, x2, y1, x2, y2, x1, y2]
    elif kind == "pose":
        numbers += [(x1 + x2) / 2, y1, 2, x1, (y1 + y2) / 2, 1, 0, 0, 0]
    return " ".join(map(str, [1, *numbers])) + "\n"


def sources(kind, folder, found, root):
    """Writes the images with boxes in a layout, and returns the arguments that convert them."""
    if kind == "coco":
        (root / "a.json").write_text(json.dumps(coco(found)))
        return [folder, "--annotations", root / "a.json"]
    if kind == "voc":
        (root / "Annotations").mkdir()
        for name, (size, box) in found.items():
            (root / "Annotations" / name.replace(".png", ".xml")).write_bytes(voc(size, [(NAMES[1], 0, box)]))
        return [folder, "--annotations", root / "Annotations"]
    if kind.startswith("yolo"):
        (root / "labels").mkdir()
        shape = "kpt_shape: [3, 3]\n" if kind == "yolo pose" else ""
        (root / "data.yaml").write_text(f"{shape}nc: 2\nnames: {NAMES}\n")
        for name, (size, box) in found.items():
            (root / "labels" / name.replace(".png", ".txt")).write_text(yolo_line(kind.split()[1], size, box))
        return [folder, "--annotations", root / "labels"]
    sized = [(name, [x, y, right - x, bottom - y]) for name, (_, (x, y, right, bottom)) in found.items()]
    if kind == "objects":
        rows = [{"file_name": name, "objects": {"bbox": [box], "categories": [1]}} for name, box in sized]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (root / "m.jsonl").write_text(text)
        return [folder, "--metadata", root / "m.jsonl"]
    if kind == "columns":
        lines = [f'{name},"{box}",{found[name][0][0]},{found[name][0][1]},light' for name, box in sized]
        (root / "m.csv").write_text("\n".join(["image_id,bbox,width,height,category", *lines]))
        return [folder, "--metadata", root / "m.csv", "--path-field", "image_id", "--list-fields", "bbox,category"]
    features = datasets.Features({
        "image": datasets.Image(), "width": datasets.Value("int32"), "height": datasets.Value("int32"),
        "objects": {"id": datasets.List(datasets.Value("int64")), "area": datasets.List(datasets.Value("int64")),
                    "bbox": datasets.List(datasets.List(datasets.Value("float32"), length=4)),
                    "category": datasets.List(datasets.ClassLabel(names=NAMES))},
    })
    columns = {
        "image": [{"bytes": (folder / name).read_bytes(), "path": name} for name, _ in sized],
        "width": [found[name][0][0] for name, _ in sized], "height": [found[name][0][1] for name, _ in sized],
        "objects": [
            {"id": [at], "area": [box[2] * box[3]], "bbox": [box], "category": [1]} for at, (_, box) in enumerate(sized)
        ],
    }
    (root / "data").mkdir()
    datasets.Dataset.from_dict(columns, features=features).to_parquet(root / "data/train-00000-of-00001.parquet")
    return [root / "data"]


KINDS = ["coco", "yolo detect", "yolo segment", "yolo obb", "yolo pose", "voc", "objects", "columns", "hub"]


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_of_all_kinds_are_where_the_pixels_are(pictures, kind, dsconvert, tmp_path):
    folder, found = pictures
    arguments, compared = sources(kind, folder, found, tmp_path), 0
    for mode, options in MODES.items():
        out = tmp_path / mode.replace(" ", "-")
        dsconvert(
            "images", *arguments, "--out", out, "--encode", "png", *options, *(["--filter", "box"] if options else [])
        )
        rows = records(out)
        assert len(rows) == 16
        for row in rows.values():
            pixels = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("L")) > 127
            assert len(row["boxes"]) == len(row["labels"])
            for box in row["boxes"]:
                if min(box[2] - box[0], box[3] - box[1]) > 3:
                    assert np.abs(np.array(box) - around(pixels)).max() <= 1.01, (mode, row["key"], box, around(pixels))
                    compared += 1
        names = manifest(out)["schema"]["class_names"]
        assert {names[label] for row in rows.values() for label in row["labels"]} <= {"traffic light", "light", "1"}
    assert compared > 80


def test_keypoints_are_not_corners(pictures, dsconvert, tmp_path):
    folder, found = pictures
    arguments = sources("yolo pose", folder, found, tmp_path)
    ran = dsconvert("images", *arguments, "--out", tmp_path / "out")
    assert "16 boxes with keypoints, which are not stored" in ran.stdout
    assert manifest(tmp_path / "out")["notes"]["keypoints_left_out"] == 16
    # In any configuration in or above the folder; without one, the visibility of 2 shows that these are no polygons.
    (tmp_path / "data.yaml").rename(tmp_path / "coco8-pose.yaml")
    dsconvert("images", *arguments, "--out", tmp_path / "same")
    assert records(tmp_path / "same") == records(tmp_path / "out")
    (tmp_path / "coco8-pose.yaml").write_text(f"names: {NAMES}\n")
    ran = dsconvert("images", *arguments, "--out", tmp_path / "none", status=3)
    assert "invalid-value" in ran.stderr + ran.stdout
    for path in (tmp_path / "labels").iterdir():
        path.write_text("1 0.5 0.5 0.2 0.4 0.42 0.35 0.58 0.35 0.58 0.65 0.42 0.65\n")
    ran = dsconvert("images", *arguments, "--out", tmp_path / "polygons")
    assert "16 lines of labels are read as polygons, but could be boxes with keypoints" in ran.stderr, ran.stderr
    (tmp_path / "data.yaml").write_text(f"nc: 3\nnames: {NAMES}\n")
    ran = dsconvert("images", *arguments, "--out", tmp_path / "o", status=2)
    assert "nc is 3, but there are 2 names" in ran.stderr


def test_what_ultralytics_tolerates_is_tolerated(pictures, dsconvert, tmp_path):
    folder, found = pictures
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/classes.txt").write_text("x\n")
    lines = ["0 -0.0000012 0.1 0.1 0.3 0.1 0.3 0.4 0.0 0.4", "0 0.5 0.5 0.2 0.2 0.87", "0 1.005 0.5 0.2 0.2", "0 1.02 0.5 0.2 0.2",
             # Of DOTA.
             "10.0 10.0 50.0 10.0 50.0 40.0 10.0 40.0 plane 0"]
    for name, line in zip(found, lines):
        (tmp_path / "labels" / name.replace(".png", ".txt")).write_text(line)
    dsconvert("images", folder, "--annotations", tmp_path / "labels", "--out", tmp_path / "out", "--max-rejects", "20%")
    rows = records(tmp_path / "out")
    assert {name: code for name, (code, _) in rejects(tmp_path / "out").items()} == dict.fromkeys(
        ["03.png", "04.png"], "invalid-value"
    )
    for name, expected in [("00.png", [0, 0, 0.4, 0.3]), ("01.png", [0.4, 0.4, 0.6, 0.6]), ("02.png", [0.905, 0.4, 1, 0.6])]:
        size = found[name][0]
        np.testing.assert_allclose(rows[name]["boxes"], [np.array(expected) * [*size, *size]], atol=1e-3)
    assert manifest(tmp_path / "out")["notes"]["confidences_left_out"] == 2


def plain(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 60)).save(folder / name)


def test_labels_elsewhere_are_warned_of(dsconvert, tmp_path):
    plain(tmp_path, "images/train/a.png", "images/val/b.png", "images/val/c.png")
    (tmp_path / "labels/train").mkdir(parents=True)
    (tmp_path / "labels/validation").mkdir()
    (tmp_path / "classes.txt").write_text("x\n")
    (tmp_path / "labels/README.txt").write_text("exported\n")
    (tmp_path / "labels/train/a.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    for name in "bc":
        (tmp_path / f"labels/validation/{name}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    ran = dsconvert("images", tmp_path / "images", "--annotations", tmp_path / "labels", "--out", tmp_path / "out")
    assert "2 files of annotations belong to no image" in ran.stderr and "validation/b.txt" in ran.stderr, ran.stderr
    assert "no image in validation has a box" in ran.stderr
    (tmp_path / "labels/validation").rename(tmp_path / "labels/val")
    ran = dsconvert("images", tmp_path / "images", "--annotations", tmp_path / "labels", "--out", tmp_path / "good")
    assert "warning" not in ran.stderr, ran.stderr


def test_categories_with_other_numbers_are_joined_by_name(dsconvert, tmp_path):
    root = tmp_path / "s"
    plain(root, "train/a.png", "val/b.png")
    for folder, name, ids, label in [("train", "a", "ABCD", 1), ("val", "b", "ACBD", 2)]:
        (root / folder / "x.json").write_text(json.dumps({
            "images": [{"id": 1, "file_name": f"{name}.png", "width": 80, "height": 60}],
            "annotations": [{"image_id": 1, "category_id": label, "bbox": [10, 10, 20, 20]}],
            "categories": [{"id": at, "name": letter} for at, letter in enumerate(ids)],
        }))
    both = ["--annotations", root / "train/x.json", "--annotations", root / "val/x.json"]
    ran = dsconvert("images", root, *both, "--out", tmp_path / "out")
    assert "categories are joined by name" in ran.stderr
    assert [row["labels"] for row in records(tmp_path / "out").values()] == [[1], [1]]
    assert manifest(tmp_path / "out")["schema"]["class_names"] == list("ABCD")


def test_names_of_another_machine_are_matched_by_their_last_part(dsconvert, tmp_path):
    plain(tmp_path / "s", "a.png", "deep/b.png", "x/c.png", "y/c.png")
    names = ["..\\..\\data\\a.png", "C:\\Users\\me\\b.png", "D:\\c.png", "..\\none.png"]
    (tmp_path / "a.json").write_text(json.dumps({
        "images": [{"id": at, "file_name": name, "width": 80, "height": 60} for at, name in enumerate(names)],
        "annotations": [{"image_id": at, "category_id": 0, "bbox": [at, 0, 20, 20]} for at in range(4)],
        "categories": [{"id": 0, "name": "x"}],
    }))
    ran = dsconvert(
        "images", tmp_path / "s", "--annotations", tmp_path / "a.json", "--layout", "flat", "--out", tmp_path / "out"
    )
    assert "2 images named by a path that leads elsewhere" in ran.stderr, ran.stderr
    assert "2 images that it lists are not among the sources" in ran.stderr, ran.stderr
    rows = records(tmp_path / "out")
    assert rows["a.png"]["boxes"] == [[0, 0, 20, 20]] and rows["deep/b.png"]["boxes"] == [[1, 0, 21, 20]]
    assert rows["x/c.png"]["boxes"] is rows["y/c.png"]["boxes"] is None


def test_members_of_coco_that_are_not_stored_are_counted(dsconvert, tmp_path):
    plain(tmp_path / "s", "a.png")
    more = [
        {"segmentation": [[1, 1, 9, 1, 9, 9]], "keypoints": [1, 1, 2], "num_keypoints": 1},
        {"segmentation": {"counts": [1, 2], "size": [60, 80]}, "iscrowd": 1},
        {"score": 0.5, "ignore": 1, "attributes": {"rotation": 30.0, "occluded": True}},
    ]
    (tmp_path / "a.json").write_text(json.dumps({
        "images": [{"id": 1, "file_name": "a.png", "width": 80, "height": 60}],
        "annotations": [{"image_id": 1, "category_id": 0, "bbox": [1, 1, 8, 8], "area": 3, **one} for one in more],
        "categories": [{"id": 0, "name": "x"}],
    }))
    ran = dsconvert("images", tmp_path / "s", "--annotations", tmp_path / "a.json", "--out", tmp_path / "out")
    notes = manifest(tmp_path / "out")["notes"]
    expected = {"masks": 2, "keypoints": 1, "confidences": 1, "ignore_flags": 1, "rotations": 1}
    assert {name: notes[f"{name}_left_out"] for name in expected} == expected
    assert "2 boxes with a mask, which is not stored" in ran.stdout
    assert records(tmp_path / "out")["a.png"]["iscrowd"] == [0, 1, 0]


def test_voc_has_difficult_objects_and_damage(dsconvert, tmp_path):
    plain(tmp_path / "s", *(f"{at}.png" for at in range(6)))
    (tmp_path / "xml").mkdir()
    size = (80, 60)
    files = [
        voc(size, [("cat", 1, [1, 1, 80, 60]), ("ant", 0, [10, 20, 30.5, 40])]),
        voc(size, [("cat", 0, [1, 1, 80, 60])], database="The VOC2007 Database"),
        voc((0, 0), []),
        voc((81, 60), []),
        b"<annotation><object>",
    ]
    for at, content in enumerate(files):
        (tmp_path / f"xml/{at}.xml").write_bytes(content)
    (tmp_path / "xml/other.xml").write_bytes(voc(size, []))
    out = tmp_path / "out"
    ran = dsconvert("images", tmp_path / "s", "--annotations", tmp_path / "xml", "--out", out, "--max-rejects", "50%")
    rows = records(out)
    assert manifest(out)["schema"]["class_names"] == ["ant", "cat"]
    assert rows["0.png"]["boxes"] == [[1, 1, 80, 60], [10, 20, 30.5, 40]]
    assert rows["0.png"]["labels"] == [1, 0] and rows["0.png"]["difficult"] == [1, 0]
    assert rows["1.png"]["boxes"] == [[0, 0, 80, 60]] and rows["2.png"]["boxes"] == []
    assert rows["5.png"]["boxes"] is None and "1 image without annotations" in ran.stderr
    assert {name: code for name, (code, _) in rejects(out).items()} == {
        "3.png": "annotation-mismatch", "4.png": "invalid-value"
    }
    assert "1 file of annotations belongs to no image" in ran.stderr
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    given = ["--classes", tmp_path / "classes.txt"]
    ran = dsconvert(
        "images", tmp_path / "s", "--annotations", tmp_path / "xml", "--out", tmp_path / "o", *given, status=2
    )
    assert 'the class "ant" is not among --classes' in ran.stderr
    # Labels of YOLO in the same folder, with the names of their classes.
    (tmp_path / "xml/classes.txt").write_text("cat\n")
    (tmp_path / "xml/0.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    ran = dsconvert("images", tmp_path / "s", "--annotations", tmp_path / "xml", "--out", tmp_path / "o", status=2)
    assert "labels of YOLO and XML of Pascal VOC" in ran.stderr


def metadata(folder, rows):
    plain(folder, *(row["file_name"] for row in rows))
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_boxes_in_fields_follow_the_image_or_are_warned_of(dsconvert, tmp_path):
    objects = [{"bbox": [[20, 12, 16, 8]], "categories": [1]}, {"bbox": [[0, 0, 80, 60]], "categories": [0]}]
    metadata(
        tmp_path / "known",
        [{"file_name": f"{at}.png", "objects": one, "width": 80, "height": 60} for at, one in enumerate(objects)],
    )
    ran = dsconvert("images", tmp_path / "known", "--resize", "shorter:30", "--out", tmp_path / "out")
    assert 'the boxes in "objects" are read as x, y, width, height' in ran.stderr
    rows = records(tmp_path / "out")
    assert rows["0.png"]["boxes"] == [[10, 6, 18, 10]] and rows["1.png"]["boxes"] == [[0, 0, 40, 30]]
    assert [row["labels"] for row in rows.values()] == [[1], [0]]
    assert manifest(tmp_path / "out")["schema"]["class_names"] == ["0", "1"]
    # The source's own numbers are kept.
    assert json.loads(rows["0.png"]["objects"]) == objects[0]
    assert (rows["0.png"]["width"], rows["0.png"]["source_width"], rows["0.png"]["source_height"]) == (40, "80", "60")
    warned = "stay in pixels of the source"
    for name, rows in {
        "unclear": [{"bbox": [[0, 0, 80, 60]], "category": [0]}],
        "half named": [{"bbox": [[20, 12, 16, 8]]}, {"bbox": [[20, 12, 16, 8]], "category": [0]}],
    }.items():
        metadata(tmp_path / name, [{"file_name": f"{at}.png", "objects": one} for at, one in enumerate(rows)])
        ran = dsconvert("images", tmp_path / name, "--out", tmp_path / f"{name}-out")
        assert warned in ran.stderr and "boxes" not in records(tmp_path / f"{name}-out")["0.png"], name
    # As in tables of one class on Kaggle, with another class for the image.
    metadata(tmp_path / "unnamed", [{"file_name": "0.png", "label": "a", "bbox": "[20.0, 12.0, 16.0, 8.0]"}])
    dsconvert("images", tmp_path / "unnamed", "--resize", "shorter:30", "--out", tmp_path / "unnamed-out")
    row = records(tmp_path / "unnamed-out")["0.png"]
    assert (row["boxes"], row["label"], "labels" in row) == ([[10, 6, 18, 10]], 0, False)
    assert manifest(tmp_path / "unnamed-out")["schema"]["class_names"] == ["a"]
    metadata(
        tmp_path / "labeled",
        [{"file_name": "0.png", "label": "a", "objects": {"bbox": [[20, 12, 16, 8]], "category": [0]}}],
    )
    assert warned in dsconvert("images", tmp_path / "labeled", "--out", tmp_path / "labeled-out").stderr
    metadata(tmp_path / "sides", [{"file_name": "0.png", "width": 80, "xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}])
    ran = dsconvert("images", tmp_path / "sides", "--out", tmp_path / "sides-out")
    assert warned in ran.stderr and "xmin, ymin, xmax, ymax" in ran.stderr
    metadata(
        tmp_path / "corners",
        [{"file_name": "0.png", "objects": {"bbox": [[10, 10, 30, 40]], "area": [600.0], "category": ["cat"]}}],
    )
    ran = dsconvert("images", tmp_path / "corners", "--out", tmp_path / "corners-out")
    assert "are read as x1, y1, x2, y2" in ran.stderr
    assert records(tmp_path / "corners-out")["0.png"]["boxes"] == [[10, 10, 30, 40]]


def test_the_size_beside_boxes_of_the_hub_is_kept(pictures, dsconvert, tmp_path):
    folder, found = pictures
    arguments = sources("hub", folder, found, tmp_path)
    dsconvert("images", *arguments, "--resize", "shorter:30", "--out", tmp_path / "out")
    table = pa.concat_tables(pq.read_table(shard) for shard in (tmp_path / "out").glob("*/*.parquet")).to_pylist()
    assert manifest(tmp_path / "out")["schema"]["class_names"] == NAMES
    dsconvert("plan", "images", *arguments, "--resize", "shorter:30", "--out", tmp_path / "parts")
    dsconvert("run", tmp_path / "parts", "--part", "1/1")
    dsconvert("merge", tmp_path / "parts")
    assert (tmp_path / "parts/manifest.json").read_bytes() == (tmp_path / "out/manifest.json").read_bytes()
    for row, (size, (x, y, right, bottom)) in zip(table, found.values()):
        assert (row["source_width"], row["source_height"]) == size and row["labels"] == [1]
        assert json.loads(row["objects"])["bbox"] == [[x, y, right - x, bottom - y]]


def test_a_roboflow_export_of_coco_is_read_as_it_comes(dsconvert, tmp_path):
    root = tmp_path / "export"
    names = ["things", "dog", "cat-1", "cat-1"]
    categories = [
        {"id": at, "name": name, "supercategory": "none" if at == 0 else "things"} for at, name in enumerate(names)
    ]
    annotations = []
    for folder, count in [("train", 5), ("valid", 3), ("test", 2)]:
        images, boxes = [], []
        for at in range(count):
            name = f"IMG_{at}_jpg.rf.{at:032x}.jpg"
            plain(root, f"{folder}/{name}")
            images.append(
                {"id": at, "license": 1, "file_name": name, "height": 60, "width": 80, "date_captured": "2024-01-01"}
            )
            for number in range(at):
                boxes.append({"id": len(boxes), "image_id": at, "category_id": 1 + number % 2, "bbox": [number, at, 10.5, 20], "area": 210,
                              "segmentation": [], "iscrowd": 0})
        content = {
            "info": {"year": "2024"}, "licenses": [], "categories": categories, "images": images, "annotations": boxes
        }
        path = root / folder / "_annotations.coco.json"
        path.write_text(json.dumps(content))
        annotations += ["--annotations", path]
    (root / "README.roboflow.txt").write_text("Roboflow\n")
    ran = dsconvert("images", root, *annotations, "--out", tmp_path / "out")
    assert "warning" not in ran.stderr, ran.stderr
    rows, classes = records(tmp_path / "out"), manifest(tmp_path / "out")["schema"]["class_names"]
    assert {split: one["records"] for split, one in manifest(tmp_path / "out")["splits"].items()} == {
        "train": 5, "validation": 3, "test": 2
    }
    for folder in ["train", "valid", "test"]:
        theirs = json.loads((root / folder / "_annotations.coco.json").read_text())
        names = {category["id"]: category["name"] for category in theirs["categories"]}
        for image in theirs["images"]:
            row = rows[f"{folder}/{image['file_name']}"]
            found = [one for one in theirs["annotations"] if one["image_id"] == image["id"]]
            assert row["boxes"] == [[x, y, x + w, y + h] for x, y, w, h in (one["bbox"] for one in found)]
            assert [classes[label] for label in row["labels"]] == [names[one["category_id"]] for one in found]
    # With pycocotools, where it is installed.
    try:
        from pycocotools.coco import COCO
    except ImportError:
        return
    for folder in ["train", "valid", "test"]:
        theirs = COCO(root / folder / "_annotations.coco.json")
        for image in theirs.loadImgs(theirs.getImgIds()):
            row, found = rows[f"{folder}/{image['file_name']}"], theirs.loadAnns(theirs.getAnnIds(image["id"]))
            assert row["boxes"] == [[x, y, x + w, y + h] for x, y, w, h in (one["bbox"] for one in found)]
            assert [classes[label] for label in row["labels"]] == [
                theirs.cats[one["category_id"]]["name"] for one in found
            ]


def test_a_roboflow_export_of_yolo_is_read_as_it_comes(dsconvert, tmp_path):
    root = tmp_path / "export"
    root.mkdir()
    (root / "data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 2\nnames: ['cat', 'traffic light']\n\n"
        "roboflow:\n  workspace: w\n  project: p\n  version: 1\n"
    )
    (root / "README.dataset.txt").write_text("# things > 2024\nProvided by a user\n")
    expected = {}
    for folder in ["train", "valid", "test"]:
        for at in range(4):
            name = f"{folder}/images/{at}_jpg.rf.{at:032x}.jpg"
            plain(root, name)
            lines = [f"{number % 2} 0.{4 + number} 0.5 0.25 0.5" for number in range(at)]
            label = (root / name.replace("/images/", "/labels/")).with_suffix(".txt")
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text("\n".join(lines))
            expected[name] = [
                [(0.4 + number / 10) * 80 - 10, 15, (0.4 + number / 10) * 80 + 10, 45] for number in range(at)
            ]
    ran = dsconvert("images", root, "--annotations", root, "--out", tmp_path / "out")
    assert "warning" not in ran.stderr, ran.stderr
    rows = records(tmp_path / "out")
    assert {split: one["records"] for split, one in manifest(tmp_path / "out")["splits"].items()} == {
        "train": 4, "validation": 4, "test": 4
    }
    assert set(rows) == set(expected)
    for name, boxes in expected.items():
        np.testing.assert_allclose(np.reshape(rows[name]["boxes"], (-1, 4)), np.reshape(boxes, (-1, 4)), atol=1e-4)
        assert rows[name]["labels"] == [number % 2 for number in range(len(boxes))]


def test_a_voc_archive_is_read_as_it_comes(dsconvert, tmp_path):
    root = tmp_path / "VOCdevkit/VOC2007"
    (root / "Annotations").mkdir(parents=True)
    (root / "ImageSets/Main").mkdir(parents=True)
    (root / "ImageSets/Main/train.txt").write_text("000001\n000002\n")
    for at in range(1, 5):
        plain(root, f"JPEGImages/{at:06}.jpg")
        boxes = [
            (["dog", "person"][number % 2], number % 2, [1 + number, 1 + at, 40 + number, 60]) for number in range(at)
        ]
        (root / f"Annotations/{at:06}.xml").write_bytes(voc((80, 60), boxes, f"{at:06}.jpg", "The VOC2007 Database"))
    ran = dsconvert("images", root / "JPEGImages", "--annotations", root / "Annotations", "--out", tmp_path / "out")
    assert "warning" not in ran.stderr, ran.stderr
    rows, classes = records(tmp_path / "out"), manifest(tmp_path / "out")["schema"]["class_names"]
    assert classes == ["dog", "person"] and len(rows) == 4
    for path in (root / "Annotations").iterdir():
        objects = ET.parse(path).getroot().findall("object")
        row = rows[f"{path.stem}.jpg"]
        # The pixels of the challenges are counted from 1, and the last one is inside the box.
        sides = [
            [float(one.find(f"bndbox/{side}").text) for side in ("xmin", "ymin", "xmax", "ymax")] for one in objects
        ]
        assert row["boxes"] == [[x1 - 1, y1 - 1, x2, y2] for x1, y1, x2, y2 in sides]
        assert [classes[label] for label in row["labels"]] == [one.find("name").text for one in objects]
        assert row["difficult"] == [int(one.find("difficult").text) for one in objects]
    # From the folder above, too.
    dsconvert("images", f"x={root}", "--annotations", root, "--out", tmp_path / "above", "--layout", "flat")
    assert [row["boxes"] for row in records(tmp_path / "above").values()] == [row["boxes"] for row in rows.values()]
