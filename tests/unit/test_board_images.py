"""Which firmware the box brings onto its board: what its own keys have signed, where it has any."""

from pathlib import Path

import pytest

from appliance.board.images import FOLDER, checked, image_named, images
from firmware_bridge.firmware.slots import KEYS
from firmware_bridge.image import ImageError
from tests.unit.update_parts import small_image, stranger, trust

STRANGERS = f"{stranger().public_key().public_numbers().n:x}\n"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir()
    return tmp_path / FOLDER / KEYS


def test_without_a_file_of_keys_the_board_alone_decides(tmp_path: Path) -> None:
    assert checked(small_image().data, tmp_path) == small_image()


def test_with_keys_only_what_they_signed_is_taken(keys: Path, tmp_path: Path) -> None:
    keys.write_text(trust())
    assert checked(small_image().data, tmp_path) == small_image()
    keys.write_text(STRANGERS)
    with pytest.raises(ImageError, match="has signed it"):
        checked(small_image().data, tmp_path)


@pytest.mark.parametrize("text", ["", "\n", "garbage"])
def test_a_file_of_keys_that_holds_none_lets_nothing_through(
    keys: Path, tmp_path: Path, text: str
) -> None:
    """It may have been cut off with the power."""
    keys.write_text(text)
    with pytest.raises(ImageError, match="no public key"):
        checked(small_image().data, tmp_path)


def test_a_file_of_keys_that_cannot_be_read_lets_nothing_through(
    keys: Path, tmp_path: Path
) -> None:
    keys.mkdir()
    with pytest.raises(ImageError, match="cannot be read: Is a directory"):
        checked(small_image().data, tmp_path)
    (tmp_path / FOLDER / "new.fw").write_bytes(small_image().data)
    (listed,) = images(tmp_path)
    assert "cannot be read" in listed.problem


@pytest.mark.parametrize(
    "name", ["../x.fw", "a\0b.fw", "a/b.fw", "x", "\x1b[2K.fw", "/etc/x.fw", ""]
)
def test_an_image_is_named_by_its_file_alone(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError, match="no name of an image"):
        image_named(name, tmp_path)
