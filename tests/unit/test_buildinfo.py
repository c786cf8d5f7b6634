"""The record that an engine's build leaves, and what is told of it."""

import json

import pytest

from appliance import buildinfo
from appliance.buildinfo import BuildInfo


def test_the_record_of_a_build_is_told_in_one_line():
    record = {"llama_commit": "0c1e57098", "compiler": "clang 19.1.7", "amx": "on", "surprise": "x"}
    summary = buildinfo.parse(json.dumps(record)).summary()
    assert "llama.cpp 0c1e57098" in summary
    assert "clang 19.1.7, AMX on" in summary


@pytest.mark.parametrize("text", ["", "{", "[]", '{"amx": 1}'])
def test_a_damaged_record_is_unknown_and_no_error(text):
    assert buildinfo.parse(text) == BuildInfo()
    assert buildinfo.parse(text).llama_commit == "unknown"


def test_the_installed_library_was_built_by_us():
    assert buildinfo.installed().llama_commit != buildinfo.UNKNOWN
    assert buildinfo.installed().amx in ("on", "off", "absent")
