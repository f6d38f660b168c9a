"""`dsconvert.ray` on a local cluster gives the bytes of the plain command, even if workers or nodes die."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dsconvert as package
from conftest import FIXTURES, ROOT
from dsconvert import ray as dsconvert_ray
from dsconvert.ray import commands, conversion
from dsconvert.ray.package_shipping import shipped
from dsconvert.ray.task_size import TaskSize
from dsconvert.ray.unit_tasks import ranges
from ray_cluster import LocalCluster, commands_of, kill, parent, raylet, wait_for

pytestmark = pytest.mark.sampled("frameworks", one_in=8, using="cluster")
GUIDE = ROOT / "docs/how-to/convert-with-ray.md"
OPTIONS = {"resize": "shorter:64", "unit_bytes": "262144"}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """The photographs three times, so that there are units to interrupt."""
    folder = tmp_path_factory.mktemp("ray") / "photos"
    for copy in range(3):
        shutil.copytree(FIXTURES / "photos", folder / f"copy{copy}")
    return folder


@pytest.fixture(scope="module")
def whole(dsconvert, photos):
    """The dataset of the plain command."""
    out = photos.parent / "whole"
    dsconvert("images", photos, "--out", out, *FLAGS)
    return tree(out)


@pytest.fixture(scope="module")
def cluster():
    found = LocalCluster()
    found.add_node()
    found.add_node()
    yield found
    disconnect()
    found.close()


@pytest.fixture
def connected(cluster):
    """Connects this process to the cluster, and leaves it connected because each connection starts new workers."""
    connect(cluster)
    return cluster


def connect(cluster):
    import ray

    if not ray.is_initialized():
        ray.init(address=cluster.address, log_to_driver=False)


def disconnect():
    import ray

    ray.shutdown()


def convert(photos, out, **more):
    return dsconvert_ray.convert("images", photos, out, **{"task_seconds": 0.01, **OPTIONS, **more})


@pytest.mark.every_push
def test_the_dataset_has_the_bytes_of_the_command(connected, photos, whole, tmp_path):
    seen = []
    report = convert(photos, tmp_path / "out", progress=seen.append, max_tasks=3)
    assert tree(tmp_path / "out") == whole
    assert report.converted == report.units == seen[-1].done > 3
    assert report.tasks > 3 and max(now.tasks for now in seen) <= 3, "at most so many tasks are submitted at a time"
    assert report.records == len(package.open(tmp_path / "out")) and report.rejected == 3
    with pytest.raises(package.UsageError, match="a dataset already exists"):
        convert(photos, tmp_path / "out")
    again = convert(photos, tmp_path / "out", resume=True)
    assert (again.converted, again.tasks, again.units) == (0, 0, report.units)
    assert tree(tmp_path / "out") == whole


def test_text_with_deduplication_splits_and_packing_has_the_bytes_of_the_command(connected, dsconvert, tmp_path):
    tokenizer = FIXTURES / "tokenizers/bpe.json"
    options = {"dedup": "exact", "split": "train=0.8,validation=0.2", "pack": 64, "unit_bytes": 65536, "shuffle": True}
    # The corpus is UTF-8, so a task that ignored the encoding would store other bytes.
    options["encoding"] = "windows-1252"
    dsconvert_ray.convert("text", FIXTURES / "corpus", tmp_path / "ray", tokenizer=tokenizer, **options)
    flags = [
        "--dedup=exact", "--split=train=0.8,validation=0.2", "--pack=64", "--unit-bytes=65536", "--shuffle",
        "--encoding=windows-1252",
    ]
    dsconvert("text", FIXTURES / "corpus", "--out", tmp_path / "plain", "--tokenizer", tokenizer, *flags)
    assert tree(tmp_path / "ray") == tree(tmp_path / "plain")


def test_a_killed_worker_changes_nothing(connected, photos, whole, tmp_path):
    killed = []

    def kill_one(now):
        if not killed:
            child, worker = wait_for(lambda: list(commands_of(tmp_path / "out").items()), 120)[0]
            kill(worker)
            killed.append(child)
            # The command must not continue without its worker, concurrently with the retry.
            wait_for(lambda: child not in commands_of(tmp_path / "out"), 10)

    convert(photos, tmp_path / "out", progress=kill_one)
    assert killed and tree(tmp_path / "out") == whole


def test_a_killed_node_changes_nothing(connected, photos, whole, tmp_path):
    node = connected.add_node()
    killed = []

    def on_the_node():
        return [child for child, worker in commands_of(tmp_path / "out").items() if parent(worker) == raylet(node)]

    def kill_node(now):
        if not killed:
            killed.extend(wait_for(on_the_node, 60))
            connected.kill_node(node)

    convert(photos, tmp_path / "out", progress=kill_node, num_cpus=1)
    assert killed and tree(tmp_path / "out") == whole


def test_a_node_that_does_not_see_the_output_is_named(connected, photos, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with connected.node_with_hidden(out) as node:
        if node is None:
            pytest.skip("no mount namespace can be made here: unshare -m and unshare -rm are refused")
        with pytest.raises(package.UsageError, match=f"node {node[:8]}.*does not see the output directory") as caught:
            convert(photos, out)
        assert "same file system under the same path" in caught.value.remedy
    assert not list((out / ".dsconvert").glob("units/*")), "no work was started"
    assert convert(photos, out, resume=True).converted > 3, "without that node, the conversion continues"


def test_a_node_without_the_package_is_named_and_it_can_be_shipped(connected, photos, whole, tmp_path):
    installed = Path(package.__file__).parent
    with connected.node_with_hidden(installed) as node:
        if node is None:
            pytest.skip("no mount namespace can be made here: unshare -m and unshare -rm are refused")
        with pytest.raises(package.UsageError, match=f"node {node[:8]}.*dsconvert cannot be imported there") as caught:
            convert(photos, tmp_path / "out")
        assert "ship='package'" in caught.value.remedy
        with pytest.raises(package.UsageError, match="ship does not apply: this process is already connected to Ray"):
            convert(photos, tmp_path / "out2", ship="package")
        disconnect()
        convert(photos, tmp_path / "out", resume=True, ship="package", address=connected.address)
        connect(connected)
    assert tree(tmp_path / "out") == whole


def test_another_build_on_a_node_is_refused(connected, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "build_id", lambda: "0" * 64)
    with pytest.raises(package.UsageError, match="its build of dsconvert .* differs from that of the driver"):
        convert(photos, tmp_path / "out")


def test_units_that_fail_are_named_and_the_rest_is_kept(connected, dsconvert, photos, tmp_path):
    files = sorted(photos.rglob("*.jpg"))
    # Not in the first task, and in a task of several units.
    damaged = files[len(files) // 2]
    original, times = damaged.read_bytes(), damaged.stat()
    small_units = {"unit_bytes": "65536", "task_seconds": 1000}
    try:

        def change(now):
            damaged.write_bytes(b"changed")

        failed = r"1 of \d+ units failed after 1 retry: \d+; .* has 7 now"
        with pytest.raises(package.NotCommittedError, match=failed) as caught:
            convert(photos, tmp_path / "out", progress=change, max_tasks=1, max_retries=1, **small_units)
    finally:
        damaged.write_bytes(original)
        os.utime(damaged, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "resume" in caught.value.remedy and not (tmp_path / "out/manifest.json").exists()
    with pytest.raises(package.UsageError, match="has not finished"):
        convert(photos, tmp_path / "out", **small_units)
    assert convert(photos, tmp_path / "out", resume=True, **small_units).converted == 1, "finished units are kept"
    dsconvert("images", photos, "--out", tmp_path / "whole", "--resize=shorter:64", "--unit-bytes=65536")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


@pytest.mark.parametrize("resume", [True, "verify"])
def test_a_damaged_unit_is_converted_again(connected, photos, whole, dsconvert, tmp_path, resume):
    out = tmp_path / "out"
    dsconvert("plan", "images", photos, "--out", out, *FLAGS)
    dsconvert("run", out)
    shard = next(out.glob(".dsconvert/units/000002/done/*.parquet"))
    shard.write_bytes(b"short" if resume is True else bytes(shard.stat().st_size))
    convert(photos, out, resume=resume)
    assert tree(out) == whole


def command(cluster, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "dsconvert.ray", *map(str, arguments), "--address", cluster.address],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # SIGINT is ignored if the tests were started in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **more,
    )


def test_an_interrupted_command_can_be_resumed(cluster, photos, whole, tmp_path):
    out = tmp_path / "out"
    arguments = ["images", photos, "--out", out, *FLAGS, "--task-seconds", "0.01"]
    process = command(cluster, *arguments)
    wait_for(lambda: list(out.glob(".dsconvert/units/*/done")) and commands_of(out), 120)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and "dsconvert: interrupted\n  the finished units are kept" in errors, errors
    wait_for(lambda: not commands_of(out), 10)
    finished = len(list(out.glob(".dsconvert/units/*/done")))
    process = command(cluster, *arguments, "--resume", "--quiet")
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (0, ""), errors
    assert finished >= 1 and tree(out) == whole


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "usage:"),
        (["images", "nowhere", "--out", "out"], 2, "nowhere"),
        (["images", "nowhere", "--out", "out", "--dry-run"], 2, "--dry-run is not supported with Ray"),
        (["images", "nowhere", "--out", "out", "--task-seconds", "0"], 2, "task_seconds: 0.0 is not a positive number"),
        (["images", "nowhere", "--out", "out", "-j", "2"], 2, "--threads is not supported with Ray"),
        (["images", "--resume", "nowhere", "--out", "out"], 2, "nowhere"),
        (["images", "nowhere", "--out", "out", "--num-cpus", "0"], 2, "num_cpus: 0 is below the minimum of 1"),
    ],
)
def test_invalid_commands_have_a_message(cluster, tmp_path, arguments, status, message):
    process = command(cluster, *arguments, cwd=tmp_path) if arguments[1:] else subprocess.Popen(
        [sys.executable, "-m", "dsconvert.ray"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _, errors = process.communicate(timeout=120)
    assert process.returncode == status and message in errors and "Traceback" not in errors, errors


@pytest.mark.parametrize(("errors", "message", "remedy"), [
    ("warning: slow\nerror: stopped\n  tip: run it again\n", "stopped", "run it again"),
    ("error: no value\n\nUsage: dsconvert\n       --help\n", "no value", None),
    ("error: not given:\n  --tokenizer <NAME>\n\nUsage: dsconvert\n", "not given:\n  --tokenizer <NAME>", None),
    (
        "error: 2 rejects\n  a: empty\n  b: empty\n  tip: fix them\n  tip: or accept them\n",
        "2 rejects\n  a: empty\n  b: empty", "fix them\nor accept them",
    ),
    ("error: no option\n\n  tip: '--encode'\n\nUsage: dsconvert\n", "no option", "'--encode'"),
    ("error: first\n  tip: one\nerror: last\n", "last", None),
    ("", "dsconvert images ended with exit status 3", None),
])
def test_the_help_of_a_command_becomes_the_remedy_without_its_label(errors, message, remedy):
    error = commands._error(["images"], 3, errors)
    assert (error.message, error.remedy) == (message, remedy)


def test_options_become_arguments(monkeypatch):
    passed = {}
    monkeypatch.setattr(
        conversion, "convert_with", lambda kind, arguments, out, **more: passed.update(arguments=arguments)
    )
    options = {"keep_fields": ["id", "url"], "shuffle": True, "strict": False, "seed": 7, "tokenizer": Path("t.json")}
    dsconvert_ray.convert("text", ["a", Path("b")], "out", **options, overwrite=False, split=None)
    assert passed["arguments"] == ["a", "b", "--keep-fields=id,url", "--shuffle", "--seed=7", "--tokenizer=t.json"]
    with pytest.raises(package.UsageError, match="threads is not supported with Ray") as caught:
        dsconvert_ray.convert("text", "a", "out", threads=4)
    assert "num_cpus" in caught.value.remedy


@pytest.mark.parametrize(("resume", "flags"), [
    (False, []), (np.False_, []), (True, ["--resume"]), (np.True_, ["--resume"]), ("verify", ["--resume=verify"]),
])
def test_resume_may_be_a_boolean_of_numpy(monkeypatch, tmp_path, resume, flags):
    class Ran(Exception):
        pass

    def run(*arguments):
        raise Ran(*arguments[-len(flags):] if flags else arguments[-1:])

    monkeypatch.setattr(conversion, "_connected", lambda address, ship: contextlib.nullcontext())
    monkeypatch.setattr(conversion, "run", run)
    with pytest.raises(Ran) as ran:
        dsconvert_ray.convert("text", "a", tmp_path / "out", resume=resume, num_cpus=np.int64(1))
    assert ran.value.args == tuple(flags or [tmp_path / "out"])


def test_booleans_of_numpy_are_flags(monkeypatch):
    passed = {}
    monkeypatch.setattr(
        conversion, "convert_with", lambda kind, arguments, out, **more: passed.update(arguments=arguments)
    )
    dsconvert_ray.convert("text", "a", "out", shuffle=np.True_, overwrite=np.False_)
    assert passed["arguments"] == ["a", "--shuffle"]


@pytest.mark.parametrize(("options", "message"), [
    ({"resume": 0}, 'resume: 0 is not False, True or "verify"'),
    ({"resume": "yes"}, 'resume: \'yes\' is not False, True or "verify"'),
    ({"num_cpus": 1.5}, "num_cpus: 1.5 is not an integer"),
    ({"max_retries": "3"}, "max_retries: '3' is not an integer"),
    ({"max_tasks": np.int64(0)}, "max_tasks: 0 is below the minimum of 1"),
    ({"reserve_memory": -1}, "reserve_memory: -1 is below the minimum of 0"),
    ({"task_seconds": "long"}, "task_seconds: 'long' is not a positive number of seconds"),
    ({"task_seconds": float("nan")}, "task_seconds: nan is not a positive number of seconds"),
])
def test_invalid_arguments_are_named(options, message):
    with pytest.raises(package.UsageError) as caught:
        dsconvert_ray.convert("text", "a", "out", **options)
    assert str(caught.value) == message


def test_integers_of_numpy_and_an_endless_task_are_accepted(connected, photos, whole, tmp_path):
    numbers = {name: np.int64(1) for name in ("num_cpus", "max_tasks", "max_retries")}
    report = convert(photos, tmp_path / "out", task_seconds=float("inf"), reserve_memory=np.int64(1 << 20), **numbers)
    assert report.converted > 3 and tree(tmp_path / "out") == whole


def test_an_address_is_refused_if_the_process_is_connected(connected, tmp_path):
    with pytest.raises(package.UsageError, match="address does not apply: this process is already connected to Ray"):
        dsconvert_ray.convert("text", "a", tmp_path / "out", address=connected.address)


def test_without_ray_the_message_says_what_to_install(tmp_path):
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    done = subprocess.run(
        [sys.executable, "-m", "dsconvert.ray", "images", "x", "--out", "y"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True,
    )
    assert done.returncode == 2
    assert "dsconvert.ray needs the package ray" in done.stderr and "dsconvert[ray]" in done.stderr


def test_importing_it_imports_no_ray():
    program = "import sys, dsconvert.ray; print('ray' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False False\n", done.stderr


def test_a_wheel_is_unpacked_for_the_nodes(tmp_path):
    wheel = tmp_path / "dsconvert-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("dsconvert/__init__.py", "")
        archive.writestr("dsconvert-1.dist-info/METADATA", "")
    with shipped(wheel) as environment:
        [folder] = environment["py_modules"]
        assert [path.name for path in Path(folder).iterdir()] == ["__init__.py"] and Path(folder).name == "dsconvert"
    assert not Path(folder).exists()
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other/__init__.py", "")
    for wrong in ("missing.whl", "other.whl"):
        with pytest.raises(package.UsageError, match=f"ship: .*{wrong}"), shipped(tmp_path / wrong):
            pass


def test_tasks_take_about_the_requested_time():
    # 4 slots, units of 3 s, tasks of 30 s: from any first assumption, sizes converge to 10 units.
    size = TaskSize(seconds=30.0, unit_seconds=1000.0)
    assert size.units(10_000, 4) == 1
    for done in range(1, 41):
        size.finished(1, done * 3 / 4, 4)
    assert size.units(10_000, 4) == 10
    # The last units are divided among the slots.
    assert [size.units(remaining, 4) for remaining in (40, 16, 7, 1)] == [5, 2, 1, 1]


def test_the_first_tasks_are_sized_by_bytes():
    assert TaskSize.assumed("images", 45, 2 << 30, 8).units(1000, 2) == 2
    assert TaskSize.assumed("text", 45, 256 << 20, 8).units(1000, 2) == 40
    assert TaskSize.assumed("text", 45, 0, 8).units(1000, 2) == 250
    assert TaskSize.assumed("text", float("inf"), 256 << 20, 8).units(1000, 2) == 250, "no limit of time"


def test_units_are_written_as_ranges():
    assert ranges([3, 7, 8, 9]) == "3,7-9" and ranges([]) == ""


def rows(records):
    """Records with lists instead of arrays."""
    return [{name: getattr(value, "tolist", lambda: value)() for name, value in record.items()} for record in records]


def by_key(records):
    return sorted(rows(records), key=lambda record: record["key"])


@pytest.mark.parametrize("format", ["parquet", "msgpack"])
def test_datasets_are_read_into_ray_data(connected, photos_in, corpus_in, format):
    for path in (photos_in(format).path, corpus_in(format).path):
        records = dsconvert_ray.read(path)
        assert records.count() == len(package.open(path)), "the count is known from the shard table"
        assert by_key(records.take_all()) == by_key(package.open(path))
    chosen = dsconvert_ray.read(path, "validation", fields=["length", "key"])
    assert chosen.schema().names == ["length", "key"]
    assert by_key(chosen.take_all()) == by_key(package.open(path, "validation", fields=["length", "key"]))
    with pytest.raises(package.UsageError, match='no split "test"'):
        dsconvert_ray.read(path, "test")
    with pytest.raises(package.UsageError, match="fields is empty"):
        dsconvert_ray.read(path, fields=[])


def test_a_dataset_in_object_storage_is_read_into_ray_data(connected, objects, photos_in):
    path = photos_in("arrow").path
    storage_options = objects(path).storage_options
    records = dsconvert_ray.read("s3://bucket", "validation", fields=["key", "image"], storage_options=storage_options)
    local = package.open(path, "validation", fields=["key", "image"])
    assert records.count() == len(local) and by_key(records.take_all()) == by_key(local)


def test_sources_may_be_in_object_storage(cluster, dsconvert, objects, photos, tmp_path, monkeypatch):
    environment = objects(photos).environment
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    dsconvert("images", "s3://bucket", "--out", tmp_path / "plain", *FLAGS)
    import ray

    disconnect()
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": environment})
    try:
        assert convert("s3://bucket", tmp_path / "ray").converted > 3
    finally:
        disconnect()
    assert tree(tmp_path / "ray") == tree(tmp_path / "plain")


def test_an_output_in_object_storage_is_refused(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(package.UsageError, match="s3://bucket/x: the output .* must be a directory, not a URL") as caught:
        convert(photos, "s3://bucket/x")
    assert "convert-on-many-machines.md" in caught.value.remedy and not list(tmp_path.iterdir())


def test_damage_is_found_when_reading(connected, photos_in, tmp_path):
    shutil.copytree(photos_in("msgpack").path, tmp_path / "out")
    shard = sorted((tmp_path / "out/train").iterdir())[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(Exception, match=shard.name):
        dsconvert_ray.read(tmp_path / "out").take_all()


def test_the_commands_and_programs_of_the_guide_run(cluster, tmp_path, monkeypatch):
    """Runs them in a folder with the photos."""
    page = GUIDE.read_text()
    (tmp_path / "photos").symlink_to(FIXTURES / "photos")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = 0
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if "# on the cluster" in block:
            continue
        command = ["sh", "-ec", block] if language == "sh" else [sys.executable, "-c", block]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, block + done.stdout + done.stderr
        ran += 1
    assert ran >= 3 and (tmp_path / "photos-256/manifest.json").exists()
