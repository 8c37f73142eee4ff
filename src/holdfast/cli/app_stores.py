"""Which store an application works on: the one that was asked for, else the one that the application was given."""

from typing import TYPE_CHECKING

from holdfast.cli.agents import AnyAgent, core_of
from holdfast.cli.session import Session
from holdfast.runs.api import default_store
from holdfast.runs.durable import Durable
from holdfast.runs.store import Store, tools_of
from holdfast.sync.functions import inner_default_store

if TYPE_CHECKING:
    from typing import Any

    App = AnyAgent | Durable[Any, Any]

DEFAULTS = (default_store, inner_default_store)


def own_store(app: "App") -> Store | None:
    """The store that a durable function or an agent was given; None if it uses the default one."""
    find = app._store if isinstance(app, Durable) else core_of(app).store  # noqa: SLF001  no program asks for it
    return None if find in DEFAULTS else find()


def choose_store(session: Session, name: str, app: "App") -> str:
    """Make the session use the application's own store, unless another was asked for; then a note says so."""
    own = own_store(app)
    if own is None:
        return ""
    if not session.named_store:
        session.use(own)
        return ""
    return "" if is_same(own, session) else f"using {session.named_store}, not the store that {name} was given"


def is_same(own: Store, session: Session) -> bool:
    """True if both keep their threads in the same place."""
    readers = [tools_of(store).reader for store in (own, session.store._store)]  # noqa: SLF001  the blocking handle
    places = [(id(reader.backend), reader.bindings.prefix) for reader in readers]
    return places[0] == places[1]
