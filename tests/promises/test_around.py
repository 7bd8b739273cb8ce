"""The one way in which functions of fairseq are replaced."""

import inspect
from types import SimpleNamespace

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
    for name in ("method", "static", "of_class"):

        @around(Child, name)
        def _marked(original, *args, **kwargs):
            return ["around", *original(*args, **kwargs)]

    assert Child().method(1, more=2) == ["around", "parent", 1, 2]
    assert Child.static(3) == Child().static(3) == ["around", 3]
    assert Child.of_class(4) == ["around", "Child", 4]
    # What is inherited stays the parent's own.
    assert Parent().method(1) == ["parent", 1, 0] and Parent.of_class(4) == ["Parent", 4]


def test_the_arguments_can_be_asked_for_as_fairseq_does():
    """It builds models for translation and for training by whether a task takes an argument."""
    owner = SimpleNamespace(function=lambda cfg, from_checkpoint=False: (cfg, from_checkpoint))

    @around(owner, "function")
    @around(owner, "function")
    def _twice(original, *args, **kwargs):
        return original(*args, **kwargs)

    assert inspect.getfullargspec(owner.function).args == ["cfg", "from_checkpoint"]
    assert owner.function("a", from_checkpoint=True) == ("a", True)
