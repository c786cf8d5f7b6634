#!/bin/sh
# Installs Steelyard from the bundle that this file lies in. As root, on Debian or Ubuntu with the
# python3 that they come with; no network.
#
#   sh install.sh --key KEY               # KEY: the public key, or its file
#   sh install.sh --key KEY --no-start    # installs, and starts nothing
#   sh install.sh --key KEY --root DIR    # into a tree that becomes an image
#
# Nothing but the folder `installer` runs before the signature and every file have been checked. To
# trust this file and that folder too, check them with tools of your own first (docs/install.md).
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

python=${PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || fail "there is no python3: apt install python3"
"$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python 3.11 or newer is needed (Debian 12, Ubuntu 24.04): $("$python" --version 2>&1)"
"$python" -I -c 'import venv' 2>/dev/null ||
    fail "this python3 has no venv module: apt install python3-venv"
[ -f "$here/installer/__main__.py" ] || fail "$here/installer is missing: copy the bundle again"

exec "$python" -I -B "$here/installer" install "$here" "$@"
