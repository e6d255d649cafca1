"""`barnabas certs`: the files, who may read them, and that they fit together."""

import json
import ssl
import stat
from pathlib import Path

import pytest

from barnabas_client.cli import main


def run(*words: str) -> int:
    return main(words)


def handshake(broker: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Bring both sides together in memory."""
    to_broker, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = broker.wrap_bio(to_broker, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_broker, server_hostname=host)
    for side in (here, there, here, there, here):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    assert here.getpeercert()
    assert there.getpeercert()


def test_the_certificates_fit_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "tls"
    assert run("certs", str(folder), "--host", "kafka.example.com", "--json") == 0
    files = json.loads(capsys.readouterr().out)
    assert sorted(files) == ["broker", "ca", "client"]
    for file in files.values():
        assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    for host in ("localhost", "127.0.0.1", "kafka.example.com"):
        broker = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files["ca"])
        broker.load_cert_chain(files["broker"])
        broker.verify_mode = ssl.CERT_REQUIRED
        client = ssl.create_default_context(cafile=files["ca"])
        client.load_cert_chain(files["client"])
        for side in (broker, client):
            side.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does from 3.13 on
        handshake(broker, client, host)


def test_files_that_exist_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("certs", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith(f"{tmp_path / 'ca.pem'}: the authority")
    before = (tmp_path / "ca.pem").read_bytes()
    assert run("certs", str(tmp_path)) == 1
    assert "To do: take another folder, or --force" in capsys.readouterr().err
    assert (tmp_path / "ca.pem").read_bytes() == before
    assert run("certs", str(tmp_path), "--force") == 0
    assert (tmp_path / "ca.pem").read_bytes() != before


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run("certs", str(tmp_path / "file")) == 1
    assert capsys.readouterr().err.strip().endswith("File exists")
