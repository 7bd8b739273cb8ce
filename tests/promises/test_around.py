"""The one way in which functions of fairseq are replaced."""

import inspect

from ea_fairseq.guard.around import around


class Parent:
    def method(self, value, more=0):
        return ["parent", value, more]

    @staticmethod
    def static(value):
        return [value]

    @classmethod
    def of_class(cls, value):
        return [cls.__name__, value]


class Child(Parent):
    pass


def test_methods_of_every_kind_are_put_around():
    """What is inherited stays the parent's own; and fairseq asks for the arguments of some."""
    for name in ("method", "method", "static", "of_class"):

        @around(Child, name)
        def _marked(original, *args, **kwargs):
            return ["around", *original(*args, **kwargs)]

    assert Child().method(1, more=2) == ["around", "around", "parent", 1, 2]
    assert Child.static(3) == Child().static(3) == ["around", 3]
    assert Child.of_class(4) == ["around", "Child", 4]
    assert Parent().method(1) == ["parent", 1, 0] and Parent.of_class(4) == ["Parent", 4]
    assert inspect.getfullargspec(Child.method).args == ["self", "value", "more"]
