"""What a function says it returns is registered as storable, so that its results can be recorded."""

import builtins
from collections.abc import Callable
from typing import Any

from holdfast.codec.discovery import classes_in, remember, return_annotation
from holdfast.records.loading import loading


def register_result(function: Callable[..., Any]) -> None:
    """Register the classes that a function's return annotation names, and the classes that their fields name.

    A name that is not defined yet is looked up when a result is recorded.
    """
    annotation = return_annotation(function)
    if annotation is None:
        return
    classes, is_complete = classes_in(annotation)
    if not is_complete:
        remember(annotation)
    if all(getattr(builtins, cls.__name__, None) is cls for cls in classes):
        return
    with loading():
        from holdfast.codec.registry import adopt
    for cls in classes:
        adopt(cls, local=annotation.local)
