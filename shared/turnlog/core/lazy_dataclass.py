"""`dataclass(frozen=True, slots=True)`, of which nothing is compiled before it is called.

The standard library writes the text of six functions for each class and compiles it when the class is made: 0.3 ms of CPU
for each, and a cold start makes a hundred of them, most of which it never calls (docs/adr/0041). Here ``__init__`` is
compiled with the first instance, ``__eq__`` and ``__hash__`` with the first comparison, the others never. All else is as
there: `fields`, `replace`, `asdict`, ``match``, pickles and copies. To a type checker it is the standard library's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["lazy_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as lazy_dataclass
else:
    import dataclasses
    from reprlib import recursive_repr

    @dataclasses.dataclass(frozen=True, slots=True)
    class _Model:
        """What the parameters of a class are taken from."""

    def lazy_dataclass(*, frozen, slots):
        """Both have to be true: for any other kind there is the standard library's."""
        if not frozen or not slots:
            raise TypeError("only lazy_dataclass(frozen=True, slots=True)")
        return _made

    def _made(cls):
        cls.__doc__ = cls.__doc__ or cls.__name__  # else its signature is made, which takes as long as all the rest
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
        if any(not one.init or one.kw_only for one in dataclasses.fields(made)):
            raise TypeError(f"{cls.__name__}: every field is a positional parameter")
        made.__dataclass_params__ = _Model.__dataclass_params__
        made.__setattr__, made.__delattr__ = _no_assignment, _no_deletion
        made.__getstate__, made.__setstate__ = _getstate, _setstate
        if "__repr__" not in cls.__dict__:
            made.__repr__ = _repr

        def first_init(self, *args, **kwargs):
            made.__init__ = _init_of(made)
            made.__init__(self, *args, **kwargs)

        def first_eq(self, other):
            _compare_by(made)
            return made.__eq__(self, other)

        def first_hash(self):
            _compare_by(made)
            return made.__hash__(self)

        made.__init__ = first_init
        if "__eq__" not in cls.__dict__:
            made.__eq__, made.__hash__ = first_eq, first_hash
        return made

    def _init_of(cls):
        """Sets the slots themselves: ``__setattr__`` is closed."""
        scope, parameters, lines = {"_missing": dataclasses.MISSING}, ["self"], []
        for one in dataclasses.fields(cls):
            name, value = one.name, one.name
            scope[f"_set_{name}"] = cls.__dict__[name].__set__
            if one.default_factory is not dataclasses.MISSING:
                scope[f"_make_{name}"] = one.default_factory
                parameters.append(f"{name}=_missing")
                value = f"_make_{name}() if {name} is _missing else {name}"
            elif one.default is not dataclasses.MISSING:
                scope[f"_default_{name}"] = one.default
                parameters.append(f"{name}=_default_{name}")
            else:
                parameters.append(name)
            lines.append(f" _set_{name}(self, {value})")
        if hasattr(cls, "__post_init__"):
            lines.append(" self.__post_init__()")
        body = "\n".join(lines or [" pass"])
        exec(f"def __init__({', '.join(parameters)}):\n{body}", scope)  # noqa: S102 - as dataclasses does it
        init = scope["__init__"]
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        return init

    def _compare_by(cls):
        """The standard library's ``__eq__`` and ``__hash__``, of a class with the same fields."""
        found = dataclasses.fields(cls)
        names = {one.name: dataclasses.field(hash=one.hash, compare=one.compare) for one in found}
        twin = type(cls.__name__, (), {**names, "__annotations__": dict.fromkeys(names, "object")})
        twin = dataclasses.dataclass(init=False, repr=False, unsafe_hash=True)(twin)
        cls.__eq__, cls.__hash__ = twin.__eq__, twin.__hash__

    @recursive_repr()
    def _repr(self):
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _no_assignment(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _no_deletion(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _getstate(self):
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def _setstate(self, state):
        for one, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)
