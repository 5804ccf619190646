/* Where events come from on CPython 3.12 and later: sys.monitoring. */
#include "capture.h"
