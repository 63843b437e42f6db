"""A decorator like `dataclass(frozen=True, slots=True)` that compiles each generated method at its first use.

The standard library generates and compiles six functions when a class is defined. That takes 0.3 ms of CPU for each
class. A cold start defines a hundred classes and calls few of those functions (docs/contributing/adr/0041). Here ``__init__`` is
compiled for the first instance, ``__eq__`` and ``__hash__`` for the first comparison, and the other methods are not
generated. `fields`, `replace`, `asdict`, ``match``, pickling and copying work as with the standard library, and a type
checker sees the standard library's decorator.

`Lasting` and `once` are for frozen values that live long: what follows from such a value is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

__all__ = ["Lasting", "lazy_dataclass", "once", "once_for_all"]

if TYPE_CHECKING:
    from dataclasses import dataclass as lazy_dataclass
else:
    import dataclasses
    from reprlib import recursive_repr

    @dataclasses.dataclass(frozen=True, slots=True)
    class _Model:
        """A class whose ``__dataclass_params__`` every lazy dataclass gets."""

    def lazy_dataclass(*, frozen, slots):
        """Return the class decorator. Both arguments must be True; use the standard library for other kinds."""
        if not frozen or not slots:
            raise TypeError("only lazy_dataclass(frozen=True, slots=True)")
        return _lazy_class

    def _lazy_class(cls):
        # Without a docstring, dataclass() would compute the signature for one, which is slow.
        cls.__doc__ = cls.__doc__ or cls.__name__
        result = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
        if any(not item.init or item.kw_only for item in dataclasses.fields(result)):
            raise TypeError(f"{cls.__name__}: every field is a positional parameter")
        result.__dataclass_params__ = _Model.__dataclass_params__
        result.__setattr__, result.__delattr__ = _no_assignment, _no_deletion
        result.__getstate__, result.__setstate__ = _getstate, _setstate
        if "__repr__" not in cls.__dict__:
            result.__repr__ = _repr

        def first_init(self, *args, **kwargs):
            result.__init__ = _init_of(result)
            result.__init__(self, *args, **kwargs)

        def first_eq(self, other):
            _compare_by(result)
            return result.__eq__(self, other)

        def first_hash(self):
            _compare_by(result)
            return result.__hash__(self)

        result.__init__ = first_init
        if "__eq__" not in cls.__dict__:
            result.__eq__, result.__hash__ = first_eq, first_hash
        return result

    def _init_of(cls):
        """Compile ``__init__``. It assigns in a class that is not frozen; to set each slot takes twice as long."""
        scope, parameters, lines = {"_missing": dataclasses.MISSING, "_opened": _opened}, ["self"], []
        scope["_set_class"] = object.__dict__["__class__"].__set__
        for item in dataclasses.fields(cls):
            name, value = item.name, item.name
            if item.default_factory is not dataclasses.MISSING:
                scope[f"_make_{name}"] = item.default_factory
                parameters.append(f"{name}=_missing")
                value = f"_make_{name}() if {name} is _missing else {name}"
            elif item.default is not dataclasses.MISSING:
                scope[f"_default_{name}"] = item.default
                parameters.append(f"{name}=_default_{name}")
            else:
                parameters.append(name)
            lines.append(f" self.{name} = {value}")
        if lines:
            lines = [" _cls = self.__class__", " _set_class(self, _opened(_cls))", *lines, " self.__class__ = _cls"]
        if hasattr(cls, "__post_init__"):
            lines.append(" self.__post_init__()")
        body = "\n".join(lines or [" pass"])
        exec(f"def __init__({', '.join(parameters)}):\n{body}", scope)  # noqa: S102 - as dataclasses does it
        init = scope["__init__"]
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        return init

    @cache
    def _opened(cls):
        """Return a class of the same slots whose objects are not frozen."""
        slots = {"__slots__": cls.__slots__} if "__slots__" in cls.__dict__ else {}
        methods = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
        return type(cls.__name__, cls.__bases__, slots | methods)

    def _compare_by(cls):
        """Give ``cls`` the standard library's ``__eq__`` and ``__hash__``, taken from a class with the same fields."""
        items = dataclasses.fields(cls)
        names = {item.name: dataclasses.field(hash=item.hash, compare=item.compare) for item in items}
        twin = type(cls.__name__, (), {**names, "__annotations__": dict.fromkeys(names, "object")})
        twin = dataclasses.dataclass(init=False, repr=False, unsafe_hash=True)(twin)
        cls.__eq__, cls.__hash__ = twin.__eq__, twin.__hash__

    @recursive_repr()
    def _repr(self):
        values = (f"{item.name}={getattr(self, item.name)!r}" for item in dataclasses.fields(self) if item.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"

    def _no_assignment(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _no_deletion(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _getstate(self):
        return [getattr(self, item.name) for item in dataclasses.fields(self)]

    def _setstate(self, state):
        for item, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, item.name, value)


class Lasting:
    """A base of frozen classes whose objects remember what `once` has computed of them. A copy by `replace` begins with nothing."""

    __slots__ = ("followed",)
    followed: dict[object, Any]


_Lasting = TypeVar("_Lasting", bound=Lasting)
_More = TypeVarTuple("_More")
_Result = TypeVar("_Result")
_set_followed = Lasting.__dict__["followed"].__set__


def once(function: Callable[[_Lasting, *_More], _Result]) -> Callable[[_Lasting, *_More], _Result]:
    """Return a pure function that computes its result once for each object and each further arguments, which are hashable."""

    @wraps(function)
    def remembering(value: _Lasting, *more: *_More) -> _Result:
        key = (function, more) if more else function
        try:  # most calls find a result, thousands of them for a window
            known: _Result = value.followed[key]
        except AttributeError:
            _set_followed(value, dict[object, Any]())
        except KeyError:
            pass
        else:
            return known
        result = value.followed[key] = function(value, *more)
        return result

    return remembering


def once_for_all(
    function: Callable[[Sequence[_Lasting], *_More], _Result],
) -> Callable[[Sequence[_Lasting], *_More], _Result]:
    """Return a pure function of several objects, at least one, that computes its result once for the same ones in a row.

    The last of them remembers it.
    """

    @wraps(function)
    def remembering(values: Sequence[_Lasting], *more: *_More) -> _Result:
        of_last = _once_of_last(values[-1], function, *more)
        if not (len(of_last.values) == len(values) and all(map(is_, of_last.values, values))):
            of_last.values, of_last.result = tuple(values), function(values, *more)
        result: _Result = of_last.result
        return result

    return remembering


class _OfLast:
    """The result of a function of several objects. ``values`` are none before the first call."""

    values: Sequence[object] = ()
    result: Any = None


@once
def _once_of_last(value: _Lasting, function: object, *more: object) -> _OfLast:
    return _OfLast()
