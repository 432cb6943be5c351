"""The list that every module of faults adds to: for each id, what the problem must have, the wrong computation, and ids that are right too."""

FAULTS, MULTIHEAD = {}, {"G": 3, "group": 1}


def fault(name, also=(), **want):
    def register(function):
        FAULTS.setdefault(name, []).append((want, function, tuple(also)))
        return function

    return register
