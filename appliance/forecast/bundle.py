"""One forecaster in one file, `*.forecaster`: a zip of weights, scores and a report.

It may come from anywhere, so it is read as hostile: sizes, names, hashes, shapes and numbers are
checked before anything of it is used, and nothing in it is ever unpickled or run unseen.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from appliance.forecast import archive, features, onnxgraph
from appliance.forecast.archive import Arrays, BadArchive
from appliance.forecast.conformal import Table
from appliance.forecast.features import Pipeline
from appliance.forecast.first import First, Reader
from appliance.forecast.neighbours import Neighbours
from appliance.forecast.network import MOST_PARAMETERS, Network
from appliance.forecast.onnxgraph import BadGraph
from appliance.forecast.told import Claim

FORMAT = 1
SUFFIX = ".forecaster"
MAX_FILE = 32 * 1024 * 1024
"""Bytes of the file."""
MAX_UNPACKED = 64 * 1024 * 1024
MAX_MANIFEST = 1024 * 1024
MANIFEST = "manifest.json"
FP32, INT8, ARRAYS, REFINE = "fp32.onnx", "int8.onnx", "arrays.npz", "refine.npz"
FIRST = "first.onnx"
REPORT_HTML, REPORT_JSON = "report.html", "report.json"
NEEDED = frozenset({MANIFEST, FP32, ARRAYS})
NAMES = NEEDED | {INT8, FIRST, REFINE, REPORT_HTML, REPORT_JSON}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")

REMEDY = "make a new one with `steelyard calibrate`, or go back to the former one"


class BadForecaster(Exception):
    """A forecaster cannot be used. Says what is wrong and what to do, without telling paths."""


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the 25th logit z becomes a number: sigmoid(slope * z + intercept)."""

    claim: Claim = "confidence"
    slope: float = 1.0
    intercept: float = 0.0
    known: bool = False
    """False: nothing was learned, so nothing is told."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file is. `members` is filled in by `Bundle.pack`."""

    format: int = FORMAT
    name: str
    """The version's name, as clients see it: letters, digits, dots, dashes, 64 at most."""
    created: str
    """ISO 8601, UTC."""
    model_sha256: str
    model_name: str
    features: int
    """features.VERSION."""
    embedder: str
    """Name of the embedder (embedders.py)."""
    inputs: int
    """Features that the network reads."""
    precision: str = "fp32"
    """What is to run where the configuration does not say: fp32 or int8."""
    quality: Quality = Quality()
    conformal: Table = Table()
    first_conformal: Table = Table()
    """Of the forecasts that know the first logits."""
    scores: dict[str, Any] = {}
    """Figures on held-out prompts; `skill` is shown."""
    training: dict[str, Any] = {}
    """How it was made: prompts, answers, seeds, sources, sampling."""
    members: dict[str, str] = {}
    """SHA-256 of every other member."""


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A forecaster whose every part was checked."""

    manifest: Manifest
    pipeline: Pipeline
    neighbours: Neighbours
    """Those of the training prompts."""
    network: Network
    fp32: bytes
    int8: bytes | None = None
    refine: Arrays | None = None
    """The arrays of the in-flight refinement (refine.py)."""
    report_html: bytes = b""
    report_json: bytes = b""
    first: First | None = None
    """What makes sharper forecasts of first logits (first.py)."""

    @classmethod
    def read(cls, path: Path) -> "Bundle":
        """Raises BadForecaster."""
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE + 1)
        except OSError as error:
            raise BadForecaster(f"the file cannot be read: {error.strerror or error}") from error
        return cls.parse(data)

    @classmethod
    def parse(cls, data: bytes) -> "Bundle":
        """Raises BadForecaster."""
        if len(data) > MAX_FILE:
            raise BadForecaster(f"the file is larger than {MAX_FILE} bytes: {REMEDY}")
        try:
            return _parsed(archive.unzip(data, MAX_UNPACKED, NAMES))
        except (BadArchive, BadGraph, ValueError) as error:
            raise BadForecaster(f"the file is damaged or foreign: {error}; {REMEDY}") from error

    def pack(self) -> bytes:
        """The file. The same parts give the same bytes."""
        members = {
            FP32: self.fp32,
            INT8: self.int8,
            FIRST: self.first.fp32 if self.first is not None else None,
            ARRAYS: archive.npz(self._arrays()),
            REFINE: archive.npz(self.refine) if self.refine is not None else None,
            REPORT_HTML: self.report_html,
            REPORT_JSON: self.report_json,
        }
        kept = {name: data for name, data in members.items() if data}
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in kept.items()}
        manifest = msgspec.structs.replace(self.manifest, members=hashes)
        told = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"))
        return archive.pack({MANIFEST: told, **kept})

    def _arrays(self) -> Arrays:
        parts: Mapping[str, Mapping[str, Any]] = {
            "pipeline": self.pipeline.arrays(),
            "neighbours": self.neighbours.arrays(),
            "network": self.network.arrays(),
        }
        if self.first is not None:
            parts = {
                **parts,
                "first_reader": self.first.reader.arrays(),
                "first_network": self.first.network.arrays(),
            }
        return {f"{part}.{name}": a for part, held in parts.items() for name, a in held.items()}

    def named(self, name: str) -> "Bundle":
        """The same under another version name."""
        return replace(self, manifest=msgspec.structs.replace(self.manifest, name=name))

    def require_model(self, sha256: str) -> None:
        """Raises BadForecaster where it was made for another model."""
        made_for = self.manifest.model_sha256
        if made_for != sha256:
            raise BadForecaster(
                f"it was made for the model {self.manifest.model_name[:80]!r} with SHA-256 "
                f"{made_for[:12]}…, and the box serves {sha256[:12]}…: run `steelyard calibrate`"
            )


def _parsed(members: Mapping[str, bytes]) -> Bundle:
    """Raises BadForecaster, BadArchive, BadGraph, ValueError."""
    if missing := NEEDED - set(members):
        raise BadArchive(f"{', '.join(sorted(missing))} is missing")
    manifest = _manifest(members)
    held = archive.arrays(members[ARRAYS], MAX_UNPACKED)
    if manifest.features != features.VERSION:
        raise BadForecaster(
            f"it was made with version {manifest.features} of the features, and this box has "
            f"{features.VERSION}: run `steelyard calibrate`"
        )
    refine = members.get(REFINE)
    bundle = Bundle(
        manifest,
        Pipeline.from_arrays(_part(held, "pipeline")),
        Neighbours.from_arrays(_part(held, "neighbours")),
        Network.restored(_part(held, "network")),
        members[FP32],
        members.get(INT8),
        archive.arrays(refine, MAX_UNPACKED) if refine is not None else None,
        members.get(REPORT_HTML, b""),
        members.get(REPORT_JSON, b""),
        _first(members, held),
    )
    _check_parts(bundle)
    return bundle


def _manifest(members: Mapping[str, bytes]) -> Manifest:
    data = members[MANIFEST]
    if len(data) > MAX_MANIFEST:
        raise BadArchive(f"{MANIFEST} is larger than {MAX_MANIFEST} bytes")
    _check_format(data)
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadArchive(f"{MANIFEST}: {str(error)[:200]}") from error
    _check_hashes(manifest, members)
    if not _NAME.fullmatch(manifest.name) or manifest.precision not in ("fp32", "int8"):
        raise BadArchive(f"{MANIFEST} has a name or a precision that is none")
    quality = manifest.quality
    if not (math.isfinite(quality.slope) and math.isfinite(quality.intercept)):
        raise BadArchive(f"{MANIFEST}: the quality's calibration is not finite")
    if not (manifest.conformal.valid() and manifest.first_conformal.valid()):
        raise BadArchive(f"{MANIFEST}: the conformal table is not one")
    return manifest


def _check_format(data: bytes) -> None:
    class Format(msgspec.Struct):
        format: int

    try:
        found = msgspec.json.decode(data, type=Format).format
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadArchive(f"{MANIFEST}: {str(error)[:200]}") from error
    if found != FORMAT:
        raise BadForecaster(
            f"it is of format {found}, and this box reads {FORMAT}: use one made by the same "
            "version of steelyard, or run `steelyard calibrate`"
        )


def _check_hashes(manifest: Manifest, members: Mapping[str, bytes]) -> None:
    found = {
        name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != MANIFEST
    }
    wrong = sorted(
        name
        for name in found.keys() | manifest.members.keys()
        if found.get(name) != manifest.members.get(name)
    )
    if wrong:
        raise BadArchive(f"{', '.join(wrong)[:200]} is not what {MANIFEST} says (SHA-256)")


def _part(held: Arrays, part: str) -> Arrays:
    start = f"{part}."
    return {name[len(start) :]: array for name, array in held.items() if name.startswith(start)}


def _first(members: Mapping[str, bytes], held: Arrays) -> First | None:
    """Raises ValueError."""
    if FIRST not in members:
        return None
    reader = Reader.from_arrays(_part(held, "first_reader"))
    return First(reader, Network.restored(_part(held, "first_network")), members[FIRST])


def _check_parts(bundle: Bundle) -> None:
    """That they are parts of one forecaster."""
    width, manifest = bundle.pipeline.width, bundle.manifest
    if not width == manifest.inputs == bundle.network.inputs:
        raise BadArchive(
            f"its features are {width}, its network reads {bundle.network.inputs} and "
            f"{MANIFEST} says {manifest.inputs}"
        )
    if bundle.pipeline.embedder != manifest.embedder:
        raise BadArchive(f"its features are not of the embedder {manifest.embedder[:40]!r}")
    if bundle.neighbours.dimensions != bundle.pipeline.neighbourhood().dimensions:
        raise BadArchive("its neighbours are not of its features")
    if bundle.network.parameters >= MOST_PARAMETERS:
        raise BadArchive(f"its network has {bundle.network.parameters} weights, which is too many")
    for name, model in ((FP32, bundle.fp32), (INT8, bundle.int8)):
        if model is not None:
            _check_graph(name, model, width)
    if bundle.first is not None:
        bundle.first.check(width)
        _check_graph(FIRST, bundle.first.fp32, bundle.first.network.inputs)
    if bundle.refine is not None and not all(_finite(a) for a in bundle.refine.values()):
        raise BadArchive(f"{REFINE} holds what is not a number")


def _check_graph(name: str, model: bytes, inputs: int) -> None:
    try:
        onnxgraph.check(model, inputs)
    except BadGraph as error:
        raise BadArchive(f"{name} {error}") from error


def _finite(array: Any) -> bool:
    return array.dtype.kind not in "f" or bool(np.all(np.isfinite(array)))
