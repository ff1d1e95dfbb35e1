"""As much of PyTorch as the worker asks for."""

__version__ = "0.fake"
_threads = 2


class Array:
    def __matmul__(self, other):
        return self

    def sum(self):
        return 0.0


def rand(*sizes):
    return Array()


def set_num_threads(count):
    global _threads
    _threads = count


def get_num_threads():
    return _threads
