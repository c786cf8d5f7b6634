"""Whether the daemon of this container answers; exit status 0 if so. Standard library only.

It asks this machine's own loopback address for what is public anyway, so the certificate is not
looked at: it may be the operator's, of a CA that is not known in here.
"""

import os
import ssl
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

CONFIG = "/etc/steelyard/steelyard.toml"
PORT = 8421
TIMEOUT_S = 4.0


def port(environment: Mapping[str, str]) -> int:
    """As the daemon finds it: the environment, the file, the default."""
    if told := environment.get("STEELYARD_SERVER_PORT"):
        return int(told)
    file = Path(environment.get("STEELYARD_CONFIG", CONFIG))
    if not file.is_file():
        return PORT
    return int(tomllib.loads(file.read_text("utf-8")).get("server", {}).get("port", PORT))


def lives(at: int) -> bool:
    """With TLS or without."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    ours = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting)
    )
    for scheme in ("https", "http"):
        try:
            with ours.open(f"{scheme}://127.0.0.1:{at}/health", timeout=TIMEOUT_S) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            continue
    return False


if __name__ == "__main__":
    sys.exit(0 if lives(port(os.environ)) else 1)
