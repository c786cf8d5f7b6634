"""A bundle's bill of materials, in CycloneDX 1.6 JSON."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from appliance.bundle.manifest import Entry
from appliance.bundle.wheels import Facts

NAME = "sbom.cdx.json"
_TYPES = {"model": "machine-learning-model", "firmware": "firmware"}


def document(
    version: str, created: str, entries: Mapping[Entry, Facts | None], *, licence: str
) -> bytes:
    """Wheels by name, version, licence and package address; other binaries by file. The same bytes
    for the same content."""
    components = [_component(entry, facts) for entry, facts in entries.items()]
    content = json.dumps(components, sort_keys=True)
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'steelyard {content}')}",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {
                "type": "application",
                "bom-ref": f"steelyard@{version}",
                "name": "steelyard",
                "version": version,
                "licenses": [{"license": {"id": licence}}],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": f"steelyard@{version}", "dependsOn": [c["bom-ref"] for c in components]}
        ],
    }
    return (json.dumps(head, indent=1) + "\n").encode()


def _component(entry: Entry, facts: Facts | None) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": entry.sha256}]
    found: dict[str, Any] = {
        "type": _TYPES.get(entry.role, "library"),
        "bom-ref": entry.path,
        "name": entry.path.rpartition("/")[2] if facts is None else facts.name,
        "hashes": hashes,
    }
    if facts is None:
        return found
    name = facts.name.lower().replace("_", "-").replace(".", "-")
    found |= {"version": facts.version, "purl": f"pkg:pypi/{name}@{facts.version}"}
    if facts.summary:
        found["description"] = facts.summary
    if facts.licence:
        found["licenses"] = [{"license": {"name": facts.licence.splitlines()[0]}}]
    return found
