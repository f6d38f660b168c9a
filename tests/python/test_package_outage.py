"""Reading a dataset over HTTP from a server that stops responding."""

import http.server
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest


class Server:
    """Serves the files of `folder`. Once `fails` is set, shards are answered with status 503."""

    def __init__(self, folder):
        outer = self
        self.fails = False
        self.refused = threading.Semaphore(0)

        class Handler(http.server.SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __init__(self, *args):
                super().__init__(*args, directory=str(folder))

            def log_message(self, *args):
                pass

            def do_GET(self):
                if outer.fails and "train-" in self.path or self.path.endswith("/_fail"):
                    outer.fails = True
                    outer.refused.release()
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif given := self.headers.get("Range"):
                    content = (folder / self.path.lstrip("/")).read_bytes()
                    first, last = map(int, given.removeprefix("bytes=").split("-"))
                    part = content[first : last + 1]
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
                    self.send_header("Content-Length", str(len(part)))
                    self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
                    self.end_headers()
                    self.wfile.write(part)
                else:
                    super().do_GET()

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server():
    started = []

    def start(folder):
        started.append(Server(folder))
        return started[-1]

    yield start
    for one in started:
        one.http.shutdown()


def start(code, **environment):
    """Runs `code` in another process. `environment` replaces the default of three minutes of retries."""
    # A process in the background may have been started with signals ignored.
    handler = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    lines = ["import signal, sys, time, dsconvert", handler, textwrap.dedent(code)]
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)], env={**os.environ, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


@pytest.mark.parametrize("fmt", ["msgpack", "parquet"])
def test_a_batch_fails_as_fast_as_a_record_and_nothing_is_lost(server, corpus_in, fmt):
    site = server(corpus_in(fmt).path)
    process = start(f"""
        import urllib.error, urllib.request
        train = dsconvert.open("{site.url}", "train")
        train.length(0)
        records = iter(train)
        keys = [next(records)["key"]]
        try:
            urllib.request.urlopen("{site.url}/_fail")
        except urllib.error.HTTPError:
            pass

        def seconds(read):
            start = time.monotonic()
            try:
                read()
            except dsconvert.IoError as error:
                assert error.remedy and "train-" in str(error), error
                return time.monotonic() - start
            raise AssertionError("no error")

        last = len(train) - 1
        batch = seconds(lambda: train[list(range(last, last - 30, -1))])
        one = seconds(lambda: train[last])
        assert batch < 4 * one, (batch, one)
        # The third failure in a row, after which the store counts as unavailable.
        failed = seconds(lambda: [keys.append(record["key"]) for record in records])
        assert failed < 4 * one, (failed, one)
        at_once = seconds(lambda: train[last])
        assert at_once < one / 2, (at_once, one)
        print("failed", flush=True)
        sys.stdin.readline()
        while len(keys) <= last:
            try:
                keys.append(next(records)["key"])
            except dsconvert.IoError:
                time.sleep(0.1)
        assert keys == [record["key"] for record in dsconvert.open("{corpus_in(fmt).path}", "train")]
        print("equal")
    """, DSCONVERT_RETRY_SECONDS="1")
    first = process.stdout.readline()
    site.fails = False
    assert (first, process.communicate("\n")[0], process.returncode) == ("failed\n", "equal\n", 0)


WAITS = {
    "record": """split[len(split) - 1]""",
    "records": """split[list(range(len(split)))]""",
    "iteration": """list(split)""",
    "loader": """
        for batch in dsconvert.Loader(split, batch_size=8, num_threads=2):
            pass
    """,
    "loader with a transform": """
        for batch in dsconvert.Loader(split, batch_size=8, num_threads=2, transform=lambda record: record):
            pass
    """,
}


@pytest.mark.parametrize("name", ["open", *WAITS])
def test_ctrl_c_ends_a_wait_for_the_store(server, corpus_in, name):
    site = server(corpus_in("msgpack").path)
    opened = f"""split = dsconvert.open("{site.url}", "train"); split.length(0)"""
    if name == "open":
        # The address of an object that the server refuses.
        opened, code = "", f"""dsconvert.open("{site.url}/train-")"""
    else:
        code = textwrap.dedent(WAITS[name]).strip()
    site.fails = True
    process = start(
        f"{opened}\ntry:\n{textwrap.indent(code, '    ')}\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    assert site.refused.acquire(timeout=60)
    process.send_signal(signal.SIGINT)
    try:
        # Without the signal, requests are retried for half a minute or more.
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (output, process.returncode) == ("interrupted\n", 0)
