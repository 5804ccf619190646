"""Functions of another module than their callers', for `test_callers`."""

import logging
import sys
import warnings

LOGGER = logging.getLogger("magpy.tests.callers")


def note(message, level=1):
    LOGGER.info("%s", message, stacklevel=level)


def caution(message, level=1):
    warnings.warn(message, UserWarning, stacklevel=level)


def caller():
    return sys._getframe(1).f_code.co_name


def through(function, *args):
    return function(*args)
