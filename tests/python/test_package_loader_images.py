"""The Python package: batches of images of a `Loader`, cropped, undecodable and damaged."""

import logging
import pickle
import shutil

import numpy as np
import pytest

import dsconvert
import image_samples

IGNORED = -100


@pytest.fixture
def pictures(photos_in):
    return dsconvert.open(photos_in("arrow").path, "train", decode=True)


def test_center_crops_show_the_middle(pictures):
    for layout in ("hwc", "chw"):
        loader = dsconvert.Loader(pictures, batch_size=4, center_crop=(64, 80), layout=layout)
        for batch in loader:
            images = batch["image"] if layout == "hwc" else batch["image"].transpose(0, 2, 3, 1)
            assert images.dtype == np.uint8 and images.shape == (loader.last.rows, 64, 80, 3)
            assert batch["label"].dtype == np.int64
            records = pictures[loader.last.records]
            assert batch["label"].tolist() == [record["label"] for record in records]
            for image, record in zip(images, records):
                height, width, _ = record["image"].shape
                if height < 64 or width < 80:
                    continue
                differences = [
                    np.abs(record["image"][y : y + 64, x : x + 80].astype(int) - image).mean()
                    for y in {(height - 64) // 2, (height - 63) // 2}
                    for x in {(width - 80) // 2, (width - 79) // 2}
                ]
                assert min(differences) < 3


def test_random_crops_depend_on_seed_and_epoch_only(pictures):
    def epoch(seed, threads, epoch=0):
        loader = dsconvert.Loader(
            pictures, batch_size=4, shuffle=False, random_resized_crop=48, hflip=True, seed=seed, num_threads=threads
        )
        loader.set_epoch(epoch)
        return np.concatenate([batch["image"] for batch in loader])

    first = epoch(1, 2)
    assert first.shape == (len(pictures), 48, 48, 3)
    assert np.array_equal(first, epoch(1, 1)) and np.array_equal(first, epoch(1, 0))
    assert not np.array_equal(first, epoch(2, 1))
    assert not np.array_equal(first, epoch(1, 1, epoch=1))


def test_jpegs_of_12_bits_can_be_cropped_and_reduced(command, tmp_path):
    steps = [[(x - y) * 6 for x in range(8)] for y in range(8)]
    (tmp_path / "files").mkdir()
    (tmp_path / "files/08.jpg").write_bytes(image_samples.gray_jpeg(steps, 8))
    # The same picture: 12 bits are divided by 16.
    fine = [[value * 16 for value in row] for row in steps]
    (tmp_path / "files/12.jpg").write_bytes(image_samples.gray_jpeg(fine, 12))
    command("images", tmp_path / "files", "--out", tmp_path / "out", "--encode", "keep", "--quiet")
    options = {"random_resized_crop": 16, "crop_scale": (1, 1), "crop_ratio": (1, 1), "shuffle": False}
    (batch,) = dsconvert.Loader(tmp_path / "out", batch_size=2, **options)
    eight, twelve = batch["image"].astype(int)
    assert np.abs(eight - twelve).max() <= 4 and eight.min() < 100 < 150 < eight.max()


def test_images_that_differ_in_size_need_a_crop(pictures):
    with pytest.raises(dsconvert.UsageError, match="pixels") as caught:
        list(dsconvert.Loader(pictures, batch_size=len(pictures)))
    assert "center_crop" in caught.value.remedy
    batch = next(iter(dsconvert.Loader(pictures, batch_size=2, decode=False)))
    assert [type(image) for image in batch["image"]] == [bytes, bytes]
    shapes = {batch["image"].shape[1:] for batch in dsconvert.Loader(pictures, batch_size=1)}
    assert shapes == {record["image"].shape for record in pictures}


@pytest.fixture
def one_undecodable(photos_in, tmp_path):
    """Images of which the middle one cannot be decoded. Without checksums, it does not count as damaged."""
    shutil.copytree(photos_in("arrow").path, tmp_path / "altered")
    split = dsconvert.open(tmp_path / "altered", "train", verify_checksums=False)
    record = split[len(split) // 2]
    for shard in (tmp_path / "altered/train").iterdir():
        shard.write_bytes(shard.read_bytes().replace(record["image"], bytes(len(record["image"]))))
    assert split[len(split) // 2]["image"].count(0) == len(record["image"])
    return split


def test_an_undecodable_image_is_an_error_by_default(one_undecodable):
    bad = len(one_undecodable) // 2
    loader = dsconvert.Loader(one_undecodable, batch_size=4, center_crop=32, shuffle=False)
    batches, seen = iter(loader), []
    with pytest.raises(dsconvert.Error, match=f"record {bad} .*cannot be decoded"):
        for _ in batches:
            seen += loader.last.records
    for _ in batches:
        seen += loader.last.records
    assert seen == [i for i in range(len(one_undecodable)) if i // 4 != bad // 4]


def test_an_undecodable_image_may_leave_its_row_blank(one_undecodable, caplog):
    bad, count = len(one_undecodable) // 2, len(one_undecodable)
    options = {"batch_size": 4, "random_resized_crop": 32, "seed": 5, "undecodable": "blank"}
    loader = dsconvert.Loader(one_undecodable, **options)
    sampler = dsconvert.BatchSampler(one_undecodable, batch_size=4, seed=5)
    assert len(loader) == len(sampler)
    with caplog.at_level("WARNING", logger="dsconvert"):
        states = []
        for batch, expected in zip(loader, sampler, strict=True):
            assert list(batch) == ["image", "label", "valid"] and loader.last.records == expected
            assert loader.last.blank == [record for record in expected if record == bad]
            assert batch["valid"].tolist() == [record != bad for record in expected]
            for image, label, record in zip(batch["image"], batch["label"], expected):
                assert image.any() == (record != bad)
                assert label == (IGNORED if record == bad else one_undecodable[record]["label"])
            states.append(loader.state_dict())
            assert states[-1] == sampler.state_dict()
    assert loader.blank_rows == 1 and len(caplog.messages) == 1 and f"record {bad} " in caplog.messages[0]

    # Resuming after any batch, or reading on two ranks, gives each record once.
    for done, state in enumerate(states, 1):
        resumed = dsconvert.Loader(one_undecodable, **options)
        resumed.load_state_dict(state)
        resumed.set_epoch(0)
        assert len([batch for batch in resumed]) == len(loader) - done
    seen, blank = [], 0
    for rank in range(2):
        ours = dsconvert.Loader(one_undecodable, **options, rank=rank, world_size=2)
        assert len(ours) == -(-count // 8)
        for batch in ours:
            seen += loader_records(ours, batch)
        blank += ours.blank_rows
    assert sorted(seen) == [i for i in range(count) if i != bad] and blank == 1


def loader_records(loader, batch):
    """The records whose rows are valid."""
    return [record for record, valid in zip(loader.last.records, batch["valid"]) if valid]


def test_an_interrupted_warning_about_a_blank_row_loses_no_batch(one_undecodable):
    options = {"batch_size": 4, "center_crop": 32, "shuffle": False, "undecodable": "blank", "num_threads": 1}
    loader = dsconvert.Loader(one_undecodable, **options)
    count, seen, interrupts = len(loader), 0, 0

    def interrupt_once(record):
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            raise KeyboardInterrupt
        return True

    logger = logging.getLogger("dsconvert")
    logger.addFilter(interrupt_once)
    try:
        batches = iter(loader)
        while True:
            try:
                seen += next(batches, None) is not None
            except KeyboardInterrupt:
                assert loader.state_dict()["plan"]["records"]["step"] == seen
                assert loader.blank_rows == 0
                continue
            if loader._remaining() == 0:
                break
    finally:
        logger.removeFilter(interrupt_once)
    assert (seen, interrupts, loader.blank_rows) == (count, 2, 1)


def test_warnings_about_blank_rows_are_limited(one_undecodable, caplog):
    loader = dsconvert.Loader(one_undecodable, batch_size=4, center_crop=32, undecodable="blank")
    with caplog.at_level("WARNING", logger="dsconvert"):
        for _ in range(15):
            for _ in loader:
                pass
    assert loader.blank_rows == 15 and len(caplog.messages) == 11 and "blank_rows" in caplog.messages[-1]


def test_damage_is_an_error_even_if_undecodable_images_are_blank(one_undecodable):
    loader = dsconvert.Loader(one_undecodable._source.path, batch_size=4, center_crop=32, undecodable="blank")
    with pytest.raises(dsconvert.CorruptError, match="checksum|CRC"):
        list(loader)


def test_a_pickled_loader_makes_the_same_batches(pictures):
    loader = dsconvert.Loader(pictures, batch_size=4, random_resized_crop=32, seed=3)
    again = pickle.loads(pickle.dumps(loader))
    for ours, theirs in zip(loader, again, strict=True):
        assert np.array_equal(ours["image"], theirs["image"])
