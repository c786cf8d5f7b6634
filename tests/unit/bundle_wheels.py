"""Wheels of a few lines, pip's own, and bundles that can really be installed from them."""

import functools
import importlib.metadata
import io
import json
import zipfile
from pathlib import Path

from appliance.bundle.create import INSTALLER
from appliance.bundle.signing import SecretKey
from appliance.engine.wheel import ROOT

from .bundle_box import KEY, make_bundle

MAIN = """\
import sys
if sys.argv[1:2] == ["selftest"]:
    print("no tensor fits", file=sys.stderr)
    sys.exit({fault})
print("steelyard {version}", *sys.argv[1:])
"""
SYSTEM = {
    "files": [
        {
            "source": "box.service",
            "target": "/etc/systemd/system/box.service",
            "mode": 0o644,
            "appliance": False,
            "keep": False,
        }
    ],
    "enabled": ["box.service"],
}


def wheel_of(name: str, version: str, files: dict[str, bytes]) -> bytes:
    info = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*whole, f"{info}/RECORD"))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, data in {**whole, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(path), data)  # not the time of day
    return out.getvalue()


@functools.cache
def pip_wheel() -> tuple[str, bytes]:
    """Of the pip that this environment was made with."""
    pip = importlib.metadata.distribution("pip")
    files = {
        str(file): Path(str(file.locate())).read_bytes()
        for file in pip.files or ()
        if str(file).startswith("pip/") and file.suffix != ".pyc"
    }
    return f"pip-{pip.version}-py3-none-any.whl", wheel_of("pip", pip.version, files)


def installable(folder: Path, version: str, fault: int = 0, key: SecretKey = KEY) -> Path:
    """A bundle with the real installer, and a `steelyard` of four lines whose self-test ends with
    the status `fault`."""
    name, pip = pip_wheel()
    main = MAIN.format(version=version, fault=fault).encode()
    own = wheel_of(
        "steelyard", version, {"appliance/__init__.py": b"", "appliance/__main__.py": main}
    )
    package = "appliance/bundle"
    files = {
        f"wheels/{name}": pip,
        f"wheels/steelyard-{version}-py3-none-any.whl": own,
        "install.sh": (ROOT / "images/bundle/install.sh").read_bytes(),
        "installer/__main__.py": (ROOT / "images/bundle/main.py").read_bytes(),
        "installer/appliance/__init__.py": b"",
        "system/layout.json": json.dumps(SYSTEM).encode(),
        "system/box.service": f"# {version}\n".encode(),
        **{
            f"installer/{package}/{module}.py": (ROOT / package / f"{module}.py").read_bytes()
            for module in INSTALLER
        },
    }
    roles = {path: path.partition("/")[0].rstrip("s") for path in files}
    roles |= {"install.sh": "installer"}
    roles |= {path: "installer" for path in files if path.startswith("installer/")}
    return make_bundle(folder, files, roles=roles, version=version, key=key)
