"""Programs that refuse what they are asked for, in one line."""


def refusal(capsys, main, *arguments):
    """The line in which a program ends, which must be its only one; its exit status is 1."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line
