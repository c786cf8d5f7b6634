"""The Containerfile's rules, the image's base and context, and the health check."""

import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.container import healthcheck
from images.container.lint import faults, steps
from images.container.oci import CONTAINERFILE, BadBase, Base, buildah
from images.layout import HERE
from images.rootfs.debian import Source
from tests.unit.certificates import issue

TEXT = CONTAINERFILE.read_text()
DIGEST = "registry.example/cuda@sha256:" + "0" * 64


def test_our_containerfile_keeps_the_rules() -> None:
    assert faults(TEXT) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("FROM ${BASE} AS base", "FROM debian:12 AS base", "no argument: debian:12"),
        ("ARG BASE", "ARG BASE=debian:12", "BASE has a default"),
        ("FROM base\n", "FROM other\n", "no argument: other"),
        ("USER 61842:61842", "USER root", "USER is not a number"),
        ("USER 61842:61842", "USER 0:0", "USER is not a number"),
        ("USER 61842:61842\n", "", "the image has no USER"),
        ("VOLUME /var/lib/steelyard\n", "", "the image has no VOLUME"),
        ("--no-index ", "", "pip install without --no-index"),
        ("--no-deps ", "", "pip install without --no-deps"),
        ("COPY wheels/ /wheels/", "ADD https://x/y.whl /wheels/", "ADD fetches"),
        ("COPY wheels/ /wheels/", "RUN curl https://x/y.whl", "fetches something"),
        ('CMD ["serve"]', "CMD serve", "CMD starts a shell"),
        ("ENV PATH", "ENV API_KEY=x PATH", "a secret would stay"),
        ("--no-install-recommends ", "", "apt-get without --no-install-recommends"),
        ("rm -rf /var/lib/apt/lists/*", "true", "apt-get without rm -rf"),
    ],
)
def test_what_breaks_a_rule_is_found(old: str, new: str, says: str) -> None:
    assert old in TEXT
    found = faults(TEXT.replace(old, new))
    assert any(says in fault for fault in found), found


def test_image_without_a_health_check_is_found() -> None:
    kept, _, rest = TEXT.partition("HEALTHCHECK")
    assert "the image has no HEALTHCHECK" in faults(kept + rest[rest.index("ENTRYPOINT") :])


def test_files_of_the_image_exist_where_they_are_called() -> None:
    copied = [step.rest for step in steps(TEXT) if step.word == "COPY"]
    assert any(rest.startswith("healthcheck.py ") for rest in copied)
    assert (HERE / "container/healthcheck.py").is_file()


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("nvidia/cuda:12.6.0-runtime-ubuntu24.04", "no image by its digest"),
        ("x@sha256:123", "no image by its digest"),
        ("", "name one base"),
    ],
)
def test_base_without_a_digest_is_refused(reference: str, says: str) -> None:
    with pytest.raises(BadBase, match=says):
        Base.read(reference, None)


def test_two_bases_or_a_missing_tree_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBase, match="name one base"):
        Base.read(DIGEST, tmp_path)
    with pytest.raises(BadBase, match="is no file"):
        Base.read("", tmp_path / "missing.tar")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "one-1-py3-none-any.whl").write_bytes(b"wheel")
    return folder


def test_context_holds_the_wheels_and_the_check(wheels: Path, tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def run(command: list[str]) -> None:
        ran.append(command)
        if "bud" in command:
            context = Path(command[-1])
            assert (context / "wheels/one-1-py3-none-any.whl").read_bytes() == b"wheel"
            assert (context / "healthcheck.py").is_file()

    buildah(Base.read(DIGEST, None), Source(wheels), tmp_path / "out", "name", 5, run)
    assert [command[1] for command in ran] == ["bud", "push"]
    assert f"BASE={DIGEST}" in ran[0]
    assert ran[0][ran[0].index("--timestamp") + 1] == "5"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wheels"]


def test_tree_as_a_base_is_cleared_away_also_when_it_fails(wheels: Path, tmp_path: Path) -> None:
    ran: list[str] = []
    (tmp_path / "tree.tar").touch()

    def run(command: list[str]) -> None:
        ran.append(command[1])
        if command[1] == "commit":
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        buildah(Base("", tmp_path / "tree.tar"), Source(wheels), tmp_path / "out", "n", 5, run)
    assert ran == ["from", "add", "run", "commit", "rm"]


def test_image_without_wheels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBase, match="no wheels"):
        buildah(Base(DIGEST), Source(tmp_path), tmp_path / "out", "n", 5, lambda command: None)


def test_engines_for_several_cpus_are_not_all_put_in(wheels: Path, tmp_path: Path) -> None:
    for level in ("v2", "v3"):
        (wheels / f"llama_cpp_python-0.3+{level}-py3-none-any.whl").touch()
    with pytest.raises(BadBase, match="several wheels of llama_cpp_python"):
        buildah(Base(DIGEST), Source(wheels), tmp_path / "out", "n", 5, lambda command: None)


class Health(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Tests are silent."""


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_daemon_that_answers_lives(server: http.server.HTTPServer) -> None:
    assert healthcheck.lives(server.server_port)


def test_daemon_with_a_certificate_of_its_own_lives(
    server: http.server.HTTPServer, tmp_path: Path
) -> None:
    cert, key, _ = issue(tmp_path, "box", ["box.site"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    assert healthcheck.lives(server.server_port)


def test_daemon_that_says_otherwise_does_not(
    server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Health, "status", 503)
    assert not healthcheck.lives(server.server_port)


def test_proxy_of_the_environment_is_not_asked(
    server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert healthcheck.lives(server.server_port)


def test_nobody_there_is_no_life(server: http.server.HTTPServer) -> None:
    port = server.server_port
    server.shutdown()
    server.server_close()
    assert not healthcheck.lives(port)


def test_port_is_found_as_the_daemon_finds_it(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    assert healthcheck.port({"STEELYARD_CONFIG": str(file)}) == healthcheck.PORT
    file.write_text("[server]\nport = 9000\n")
    assert healthcheck.port({"STEELYARD_CONFIG": str(file)}) == 9000
    assert healthcheck.port({"STEELYARD_CONFIG": str(file), "STEELYARD_SERVER_PORT": "7"}) == 7
