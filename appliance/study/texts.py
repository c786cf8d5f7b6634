"""Lines of our own in several languages and forms, for tokenizers to be compared on."""

from collections.abc import Iterable
from pathlib import Path

from appliance.study.errors import StudyError

MAX_FILE = 16 * 1024 * 1024
"""Bytes of an operator's text."""

BUILT_IN: dict[str, tuple[str, ...]] = {
    "English": (
        "The steelyard is older than the pan balance: one weight slides along an unequal arm.",
        "Please send the revised invoice by Friday, and copy the warehouse on your reply.",
        "It rained all night, so the ferry to the islands did not leave until noon.",
        "A pump that hums but moves no water has usually lost its prime.",
        "She counted the crates twice, found one missing, and called the driver.",
        "Measure the voltage first; if it is below eleven volts, charge the battery overnight.",
    ),
    "Chinese": (
        "杆秤比天平更古老，一个秤砣沿着长短不等的秤杆滑动。",
        "请在星期五之前把修改后的发票发过来，并抄送给仓库。",
        "雨下了一整夜，去岛上的渡船直到中午才开。",
        "水泵有声音却不出水，多半是里面进了空气。",
        "她把箱子数了两遍，发现少了一个，就给司机打了电话。",
        "先测电压，如果低于十一伏，就充一夜的电。",
    ),
    "German": (
        "Die Schnellwaage ist älter als die Balkenwaage: ein Gewicht gleitet den Arm entlang.",
        "Bitte schicken Sie die geänderte Rechnung bis Freitag, mit Kopie an das Lager.",
        "Es regnete die ganze Nacht, deshalb fuhr die Fähre zu den Inseln erst mittags.",
        "Eine Pumpe, die brummt und nicht fördert, hat meistens Luft angesaugt.",
    ),
    "French": (
        "La balance romaine est plus ancienne que la balance à plateaux.",
        "Merci de renvoyer la facture corrigée avant vendredi, avec copie à l'entrepôt.",
        "Il a plu toute la nuit, si bien que le bac n'est parti vers les îles qu'à midi.",
        "Une pompe qui ronfle sans débiter a le plus souvent aspiré de l'air.",
    ),
    "Russian": (
        "Безмен древнее чашечных весов: одна гиря скользит по неравному плечу.",
        "Пришлите, пожалуйста, исправленный счёт до пятницы, с копией на склад.",
        "Дождь шёл всю ночь, и паром на острова вышел только в полдень.",
    ),
    "Japanese": (
        "竿秤は天秤よりも古く、一つの分銅が長さの違う腕の上を滑る。",
        "訂正した請求書を金曜日までに送り、倉庫にも写しを送ってください。",
        "一晩中雨が降ったので、島へ行く船は昼まで出なかった。",
    ),
    "Code": (
        "def heaviest(crates: list[Crate]) -> Crate:\n    return max(crates, key=lambda c: c.kg)",
        "for (int i = 0; i < count; i++) { total += weights[i] * prices[i]; }",
        "SELECT customer, COUNT(*) AS orders FROM sales GROUP BY customer ORDER BY orders DESC;",
        "if err != nil {\n\treturn fmt.Errorf(\"reading %s: %w\", path, err)\n}",
    ),
    "JSON": (
        '{"id": 4711, "item": "pump", "weight_kg": 12.5, "tags": ["used", "tested"], "ok": true}',
        '[{"date": "2026-03-14", "kwh": 18.25}, {"date": "2026-03-15", "kwh": 17.9}]',
    ),
    "Figures": (
        "2026-03-14 08:15:02 | 230.1 V | 4.82 A | 1109.1 W | 49.98 Hz",
        "1 000 000 / 37 = 27 027.027; 12.5 % of 480 is 60; 3 × 17 = 51",
        "+49 30 555 0123 45, IBAN DE00 1234 5678 9012 3456 78",
    ),
    "Emoji": (
        "Done ✅ see you at the harbour ⛵ at seven 🕖, bring a coat 🧥!",
        "👩‍🔧🔩🪛 → 🏭 → 📦📦📦 → 🚚 → 🏠",
    ),
}  # fmt: skip
"""Group: its lines. An escaped new line is inside one line's text."""

_SCRIPTS = (
    ("Japanese", (("\u3040", "\u30ff"),)),
    ("Korean", (("\uac00", "\ud7af"), ("\u1100", "\u11ff"))),
    ("Chinese", (("\u4e00", "\u9fff"), ("\u3400", "\u4dbf"))),
    ("Cyrillic", (("\u0400", "\u04ff"),)),
    ("Arabic", (("\u0600", "\u06ff"),)),
    ("Devanagari", (("\u0900", "\u097f"),)),
    ("Greek", (("\u0370", "\u03ff"),)),
)
_SHARE = 0.2
"""Of a line's letters: so many of a script make the line that script's. Kana go first, for Japanese
is written with Chinese characters too."""


def grouped(file: Path | None) -> dict[str, tuple[str, ...]]:
    """The built-in lines, or the file's by the script that they are written in. Raises
    StudyError."""
    if file is None:
        return BUILT_IN
    groups: dict[str, list[str]] = {}
    for line in _lines(file):
        groups.setdefault(script(line), []).append(line)
    if not groups:
        raise StudyError(f"{file} holds no text")
    return {name: tuple(lines) for name, lines in sorted(groups.items())}


def script(line: str) -> str:
    """What a line is written in; Latin also stands for languages written with it."""
    letters = [letter for letter in line if letter.isalpha()]
    if not letters:
        return "No letters"
    for name, ranges in _SCRIPTS:
        found = sum(_within(letter, ranges) for letter in letters)
        if found >= _SHARE * len(letters):
            return name
    return "Latin" if sum(letter < "\u0250" for letter in letters) * 2 >= len(letters) else "Other"


def _within(letter: str, ranges: Iterable[tuple[str, str]]) -> bool:
    return any(first <= letter <= last for first, last in ranges)


def _lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as source:
            data = source.read(MAX_FILE + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{file} cannot be read as UTF-8 text: {error}") from None
    if len(data) > MAX_FILE:
        raise StudyError(f"{file} is larger than {MAX_FILE // 2**20} MiB: give a part of it")
    return [line for line in text.splitlines() if line.strip()]
