"""Puts our kernels into llama.cpp's sources before they are compiled: `patch.py LLAMA_CPP_FOLDER`.

CMake runs it (see wheel.py). Standard library only. Every edit names a line of ggml that must be
there exactly once: should a newer llama.cpp have changed it, the build stops and says so.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CPU = Path("ggml/src/ggml-cpu")
HEADERS = (
    "steelyard_switch.h",
    "steelyard_gemm.h",
    "steelyard_attention.h",
    "steelyard_flash.h",
    "steelyard_ggml.h",
    "steelyard_rows.h",
)


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` goes in front of the one line `before`."""

    file: Path
    before: str
    text: str


EDITS = (
    Edit(
        CPU / "llamafile/sgemm.cpp",
        "#include <type_traits>",
        '#include "../steelyard_gemm.h"\n',
    ),
    Edit(
        CPU / "llamafile/sgemm.cpp",
        "    // only enable sgemm for prompt processing",
        """\
#ifdef STEELYARD_GEMM
    if (steelyard::enabled() && Ctype == GGML_TYPE_F32) {
        const int ith = params->ith, nth = params->nth;
        if (Atype == GGML_TYPE_Q4_1 && Btype == GGML_TYPE_Q8_1 &&
            steelyard::multiply<steelyard::WeightQ4_1, steelyard::ActivationQ8_1>(
                ith, nth, m, n, k, A, lda, B, ldb, (float *)C, ldc))
            return true;
        if (Atype == GGML_TYPE_Q8_0 && Btype == GGML_TYPE_Q8_0 &&
            steelyard::multiply<steelyard::WeightQ8_0, steelyard::ActivationQ8_0>(
                ith, nth, m, n, k, A, lda, B, ldb, (float *)C, ldc))
            return true;
    }
#endif
""",
    ),
    Edit(
        CPU / "ops.cpp",
        '#include "ops.h"',
        "".join(
            f'#include "{header}"\n'
            for header in ("steelyard_attention.h", "steelyard_ggml.h", "steelyard_rows.h")
        ),
    ),
    Edit(
        CPU / "ops.cpp",
        "    const bool kv_is_f32_or_f16 = (k->type == GGML_TYPE_F32 || k->type == GGML_TYPE_F16);",
        """\
    if (steelyard::flash_attention(params, dst)) {
        return;
    }
""",
    ),
    # PIECES, and HEAD in front of each: see steelyard_flash.h.
    Edit(
        CPU / "ggml-cpu.c",
        "                        cur += MAX(prefill, decode);",
        "                        decode = MAX(decode, sizeof(float)*64*neq2*(16 + DV));\n",
    ),
    Edit(
        CPU / "ops.cpp",
        "            const float mv = mp ? slope*GGML_CPU_FP16_TO_FP32(mp[ic]) : 0.0f;",
        """\
            if (mp) {
                ic = steelyard::next_visible(mp, ic, ic_end);
                if (ic >= ic_end) {
                    break;
                }
            }
""",
    ),
    # ggml converts the masks of a whole tile of cells, row by row, before it sees that none counts.
    Edit(
        CPU / "ops.cpp",
        "            // skip the tile entirely if all the masks are -inf",
        """            if (mask) {
                const char * const rows = (const char *)mask->data + iq1 * mask->nb[1] +
                    (iq2 % mask->ne[2]) * mask->nb[2] + (iq3 % mask->ne[3]) * mask->nb[3];
                bool visible = false;
                for (int tq = 0; tq < tile_rows && !visible; tq++) {
                    const uint16_t * row = (const uint16_t *)(rows + tq * mask->nb[1]);
                    visible = steelyard::next_visible(row, ic, ic + kv_tile) < ic + kv_tile;
                }
                if (!visible) {
                    continue;
                }
            }
""",
    ),
)


class Changed(Exception):
    """llama.cpp no longer has a line that an edit needs."""


def edited(text: str, edit: Edit) -> str:
    """The text with one edit made; raises Changed when its line is not there exactly once."""
    line = edit.before + "\n"
    at = text.find(line)
    starts_line = at == 0 or text[at - 1 : at] == "\n"
    if text.count("\n" + line) + text.startswith(line) != 1:
        raise Changed(f"{edit.file}: expected one line {edit.before.strip()!r}")
    if not starts_line:
        at = text.index("\n" + line) + 1
    return text[:at] + edit.text + text[at:]


def apply(root: Path) -> None:
    """Edits the sources under `root`; does nothing when they have been edited before."""
    if (root / CPU / HEADERS[0]).exists():
        return
    for path in {edit.file for edit in EDITS}:
        text = (root / path).read_text(encoding="utf-8")
        for edit in EDITS:
            if edit.file == path:
                text = edited(text, edit)
        (root / path).write_text(text, encoding="utf-8")
    for header in HEADERS:
        shutil.copy(HERE / header, root / CPU / header)


if __name__ == "__main__":
    try:
        apply(Path(sys.argv[1]))
    except Changed as error:
        sys.exit(f"steelyard's kernels do not fit this llama.cpp: {error}")
