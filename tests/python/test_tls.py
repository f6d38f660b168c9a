"""Object storage over TLS: the certificate of the server is checked against the trusted authorities."""

import datetime
import http.server
import ipaddress
import os
import re
import ssl
import subprocess
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

CORPUS = "".join(f'{{"text": "document {i}"}}\n' for i in range(500)).encode()


class OneFile(http.server.BaseHTTPRequestHandler):
    """Serves `CORPUS` under any path, also in ranges."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body, status = CORPUS, 200
        if requested := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(requested[1]), int(requested[2] or len(CORPUS) - 1)
            body, status = CORPUS[start : end + 1], 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(CORPUS)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"one"')
        self.send_header("Last-Modified", "Mon, 01 Jun 2026 00:00:00 GMT")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def certificate(subject, key, issuer, issuer_key, *extensions):
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def server(tmp_path):
    """The port of a server with TLS, and the certificate file of the authority that signed its certificate."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority, host = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("authority", "localhost")
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    trusted = tmp_path / "authority.pem"
    trusted.write_bytes(
        certificate(authority, authority_key, authority, authority_key, x509.BasicConstraints(ca=True, path_length=0))
    )
    own = tmp_path / "server.pem"
    own.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate(host, key, authority, authority_key, x509.SubjectAlternativeName(names))
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneFile)
    http_server.socket = context.wrap_socket(http_server.socket, server_side=True)
    threading.Thread(target=http_server.serve_forever, daemon=True).start()
    yield http_server.server_port, trusted
    http_server.shutdown()
    http_server.server_close()


def converted(binary, source, out, **environment):
    return subprocess.run(
        [binary, "text", source, "--tokenizer", "bytes", "--out", out, "--quiet"],
        env={**os.environ, "DSCONVERT_RETRY_SECONDS": "1", **environment}, capture_output=True, text=True,
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_corpus_on_a_web_server_with_tls_is_read(binary, server, tmp_path, host):
    port, trusted = server
    local = tmp_path / "corpus.jsonl"
    local.write_bytes(CORPUS)
    here, there = tmp_path / "here", tmp_path / "there"
    assert converted(binary, local, here).returncode == 0
    done = converted(binary, f"https://{host}:{port}/corpus.jsonl", there, SSL_CERT_FILE=str(trusted))
    assert done.returncode == 0, done.stderr
    shards = sorted(path.relative_to(here) for path in here.rglob("train-*.arrow"))
    assert shards
    for shard in shards:
        assert (here / shard).read_bytes() == (there / shard).read_bytes()


def test_an_unknown_authority_is_refused(binary, server, tmp_path):
    port, _ = server
    done = converted(binary, f"https://localhost:{port}/corpus.jsonl", tmp_path / "out")
    assert done.returncode == 3, done.stderr
    assert "invalid peer certificate: UnknownIssuer" in done.stderr
    assert "SSL_CERT_FILE" in done.stderr
    assert "retries" not in done.stderr  # another attempt would fail for the same reason
    assert not (tmp_path / "out/manifest.json").exists()
