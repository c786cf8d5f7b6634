"""A key to the own box, where it asks for one: made in its state directory for this run, revoked
after it. Whoever may write there may do that on the command line as well."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from appliance.accounts.keys import FILE_NAME, By, KeyExists, KeysError, KeyStore
from appliance.calibrate.client import Client, Facts, Refused

NAME = "calibration"
SCOPES = ("infer", "metrics")
_UNAUTHORISED = 401
_BY = By(operator=NAME, host="local")


@contextmanager
def let_in(client: Client, state_dir: Path, *, given: bool) -> Iterator[Facts]:
    """What the box is, asked with a key that it takes. `given`: the operator named one, which is
    then the only one tried. Raises BoxAway, Refused, KeysError."""
    try:
        facts = client.facts()
    except Refused as error:
        if given or error.status != _UNAUTHORISED:
            raise
        with _own_key(state_dir) as secret:
            client.use(secret)
            yield client.facts()
        return
    yield facts


@contextmanager
def _own_key(state_dir: Path) -> Iterator[str]:
    store = KeyStore(state_dir / FILE_NAME)
    expires = store.today() + timedelta(days=2)
    try:
        secret = store.create(NAME, SCOPES, expires, by=_BY)
    except KeyExists:  # of a run that was killed
        store.revoke(NAME, by=_BY)
        secret = store.create(NAME, SCOPES, expires, by=_BY)
    try:
        yield secret
    finally:
        with suppress(KeysError):  # it expires by itself
            store.revoke(NAME, by=_BY)
