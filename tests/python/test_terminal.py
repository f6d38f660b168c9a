"""The command on a terminal: styles, and a progress line that is erased at the end."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from conftest import FIXTURES

CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)|(\x1b.)")


# Enough for the messages of these tests.
WIDTH = 120


def screen(output, width=WIDTH):
    """The lines that a terminal of `width` columns shows after `output`; styles and unknown sequences have no effect."""
    lines, row, column = [""], 0, 0
    for number, letter, back, down, text, _ in CONTROL.findall(output):
        for character in text:
            if column == width:
                row, column = row + 1, 0
                lines.extend([""] * (row + 1 - len(lines)))
            line = lines[row].ljust(column)
            lines[row] = line[:column] + character + line[column + 1 :]
            column += 1
        if text:
            continue
        if back:
            column = 0
        elif down:
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        elif letter == "A":
            row = max(0, row - int(number or 1))
        elif letter == "K":
            lines[row] = "" if number == "2" else lines[row][:column]
        elif letter == "J":
            lines[row:] = [lines[row][:column]]
    return [line.rstrip() for line in lines]


def read_until(terminal, wanted, output="", seconds=60):
    """Reads from the terminal until the output matches `wanted`, or to the end if `wanted` is None."""
    end = time.monotonic() + seconds
    while wanted is None or not re.search(wanted, output):
        assert time.monotonic() < end, output
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            got = os.read(terminal, 65536)
        except OSError:  # Linux reports the end of a terminal as an error.
            got = b""
        if not got:
            return output
        # A read may end within a character.
        while True:
            try:
                output += got.decode()
                break
            except UnicodeDecodeError:
                got += os.read(terminal, 1)
    return output


@pytest.fixture
def on_terminal(binary):
    """Starts the command with a terminal as standard error; returns the process and the terminal."""
    started = []

    def start(*args, variables=(), **options):
        terminal, other = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        environment.update(variables, TERM="xterm")
        process = subprocess.Popen([binary, *args], stderr=other, env=environment, **options)
        os.close(other)
        started.append((process, terminal))
        return process, terminal

    yield start
    for process, terminal in started:
        process.kill()
        process.wait()
        os.close(terminal)


def test_the_progress_line_is_shown_whole(on_terminal, tmp_path):
    process, terminal = on_terminal(
        "text", "-", "--input-format", "txt", "--documents", "line", "--out", tmp_path / "out", "--tokenizer", "bytes",
        stdin=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(b"some words\n" * 200_000)
    output = read_until(terminal, r"(?s)[1-9],\d{3} items.*\x1b\[2K")
    # Up to the last redraw, which is preceded by clearing the line.
    drawn = output[: output.rindex("\x1b[2K")]
    items = re.findall(r"([\d,]+) items", drawn)[-1]
    assert screen(drawn)[-1].startswith(f" {items} items · ")


@pytest.mark.parametrize("variables", [{}, {"DSCONVERT_TEST_PAUSE": "last error"}])
def test_an_interrupted_run_leaves_no_progress_line(on_terminal, tmp_path, variables):
    process, terminal = on_terminal(
        "text", "-", "--input-format", "txt", "--documents", "line", "--out", tmp_path / "out", "--tokenizer", "bytes",
        stdin=subprocess.PIPE, variables=variables,
    )  # fmt: skip
    process.stdin.write(b"some words\n" * 200_000)
    # Standard input stays open: the run waits for more of it.
    output = read_until(terminal, "elapsed")
    assert re.search(r"\d items? [^\r]* elapsed", output)
    assert "%" not in output, "there is no percentage of an unknown size"
    process.send_signal(signal.SIGINT)
    output = read_until(terminal, None, output)
    assert process.wait(30) == 130
    lines = [line for line in screen(output) if line]
    tip = "  tip: standard input cannot be read again: start again with --overwrite"
    assert lines == ["error: stopped before the end", tip]
    assert "\x1b[31m" in output, "errors are red on a terminal"


@pytest.mark.parametrize("width", [40, 60, WIDTH])
def test_ctrl_c_on_a_terminal_that_echoes_it_leaves_no_progress_line(on_terminal, tmp_path, width):
    process, terminal = on_terminal(
        "text", "-", "--input-format", "txt", "--documents", "line", "--out", tmp_path / "out", "--tokenizer", "bytes",
        stdin=subprocess.PIPE,
        # The terminal becomes the controlling terminal of the process: it echoes ^C and sends the signal.
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process.stdin.write(b"some words\n" * 200_000)
    # Waits until the line was drawn several times in the width of the terminal.
    output = read_until(terminal, r"(?s)\d/s.*\d/s.*\d/s")
    drawn = [CONTROL.sub(lambda found: found[5] or "", line) for line in output.split("\r")]
    assert width - 1 <= max(map(len, drawn)) <= width, "the line fills the terminal"
    os.write(terminal, b"\x03")
    output = read_until(terminal, None, output)
    assert process.wait(30) == 130
    assert "^C" in output
    lines = [line for line in screen(output, width) if line]
    assert not any("/s" in line or "item" in line for line in lines), lines
    assert lines[0].startswith("error: stopped before the end"[: width - 1])


def test_verbose_lines_and_the_progress_line_do_not_mix(on_terminal, tmp_path):
    process, terminal = on_terminal(
        "images", FIXTURES / "photos", "--out", tmp_path / "out", "-vv", "--max-rejects", "50%",
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    lines = [line for line in screen(read_until(terminal, None)) if line]
    assert process.wait(30) == 0
    assert [re.sub(r"^\d+:\d\d +|:.*", "", line) for line in lines] == ["rejected photos/night/broken.jpg", "unit 0"]
