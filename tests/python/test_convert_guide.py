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


def test_the_guide_about_audio_features(tmp_path):
    for number in range(30):
        write(tmp_path / f"audio/speaker-{number % 3}/{number:02}.wav", 0.2 + 0.05 * (number % 9), 200 + 100 * number)
    write(tmp_path / "audio/short.wav", 0.01, 440)
    (tmp_path / "audio/broken.wav").write_bytes(b"RIFF")
    blocks = dict(re.findall(r'^```python title="(.*?)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
    assert set(blocks) == {"features.py", "convert.py", "train.py", "simulate.py", "table.py"}
    for name, program in blocks.items():
        (tmp_path / name).write_text(program)

    def run(name):
        made = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        return made.stdout

    assert "speech: committed; 32 items in" in run("convert.py")
    rejects = [json.loads(line) for line in (tmp_path / "speech/rejects.jsonl").read_text().splitlines()]
    assert [reject["code"] for reject in rejects] == ["function-failed", "function-rejected"]
    dataset = dsconvert.open(tmp_path / "speech", "train")
    assert len(dataset) == 30
    record = dataset[4]
    assert record["key"].endswith(".wav") and record["spectrum"].shape == (record["frames"], 80)
    # The loudest bin is that of the tone.
    tone = 200 + 100 * int(record["key"][-6:-4])
    assert abs(int(record["spectrum"][3].argmax()) - tone / 16_000 * 158) <= 1
    printed = run("train.py").splitlines()
    shapes = [re.fullmatch(r"\((\d+), (\d+), 80\) \2", line) for line in printed]
    assert sum(int(shape[1]) for shape in shapes) == 30
    assert all(int(shape[1]) * int(shape[2]) <= 400 for shape in shapes)
    assert "0 items" in run("convert.py"), "nothing is left to do"
    assert run("simulate.py") == "600 records\n"
    episodes = dsconvert.open(tmp_path / "episodes")
    assert {name: len(episodes[name]) for name in episodes.splits} == {"train": 540, "test": 60}
    assert episodes["test"][31]["key"] == "19/1"
    assert run("table.py") == ""
    found = {record["key"]: list(record["embedding"]) for record in dsconvert.open(tmp_path / "embeddings", "train")}
    assert found == {"a": [1, 2], "b": [3, 4]}
