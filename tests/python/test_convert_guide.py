"""The programs of the guide "Convert any samples" run unchanged, and the features are those of numpy."""

import json
import re
import subprocess
import sys
import wave

import numpy as np

import dsconvert
from conftest import ROOT

PAGE = (ROOT / "docs/how-to/convert-any-samples.md").read_text()


def write(path, seconds, frequency, rate=16_000):
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = (np.sin(np.arange(int(seconds * rate)) * 2 * np.pi * frequency / rate) * 9_000).astype(np.int16)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


def by_transformers(path):
    """Returns the log-mel spectrogram that transformers computes."""
    from transformers.audio_utils import mel_filter_bank, spectrogram

    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768
    filters = mel_filter_bank(257, 80, 0, 8_000, 16_000, norm=None, mel_scale="htk")
    window = np.hanning(401)[:-1]
    power = spectrogram(samples, window, 400, 160, fft_length=512, power=2.0, center=False, mel_filters=filters, mel_floor=0)
    return np.log(power.T + 1e-6)


def test_the_guide_about_audio_features(tmp_path):
    for number in range(30):
        write(tmp_path / f"audio/speaker-{number % 3}/{number:02}.wav", 0.2 + 0.05 * (number % 9), 200 + 100 * number)
    write(tmp_path / "audio/short.wav", 0.01, 440)
    write(tmp_path / "audio/other.wav", 0.5, 440, rate=8_000)
    (tmp_path / "audio/broken.wav").write_bytes(b"RIFF")
    blocks = dict(re.findall(r'^```python title="(.*?)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
    assert set(blocks) == {"features.py", "convert.py", "train.py", "simulate.py", "table.py"}
    for name, program in blocks.items():
        (tmp_path / name).write_text(program)

    def run(name):
        made = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        return made.stdout

    assert "speech: committed; 33 items in" in run("convert.py")
    rejects = [json.loads(line) for line in (tmp_path / "speech/rejects.jsonl").read_text().splitlines()]
    assert [reject["code"] for reject in rejects] == ["function-failed", "function-rejected", "function-rejected"]
    assert [reject["message"] for reject in rejects[1:]] == [
        "not one channel of 16 bits at 16000 Hz", "shorter than 100 ms",
    ]
    dataset = dsconvert.open(tmp_path / "speech", "train")
    assert len(dataset) == 30
    record = dataset[4]
    assert record["key"].endswith(".wav") and record["log_mel"].shape == (record["frames"], 80)
    for record in dataset:
        expected = by_transformers(tmp_path / record["key"])
        assert np.abs(record["log_mel"] - expected).max() < 0.01, record["key"]
    printed = run("train.py").splitlines()
    shapes = [re.fullmatch(r"\((\d+), (\d+), 80\) \2 (\d+)", line) for line in printed]
    assert sum(int(shape[1]) for shape in shapes) == 30
    assert sum(int(shape[3]) for shape in shapes) == dataset.index_column("frames").sum()
    assert all(int(shape[1]) * int(shape[2]) <= 400 for shape in shapes)
    assert "0 items" in run("convert.py"), "nothing is left to do"
    assert run("simulate.py") == "600 records\n"
    episodes = dsconvert.open(tmp_path / "episodes")
    assert {name: len(episodes[name]) for name in episodes.splits} == {"train": 540, "test": 60}
    assert episodes["test"][31]["key"] == "19/1"
    assert run("table.py") == ""
    found = {record["key"]: list(record["embedding"]) for record in dsconvert.open(tmp_path / "embeddings", "train")}
    assert found == {"a": [1, 2], "b": [3, 4]}
