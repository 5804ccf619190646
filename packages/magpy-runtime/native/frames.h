/* What differs between CPython versions about an interpreter frame.
 *
 * Every use of CPython's internal headers in this package is here and in the two hooks_*.c files. All
 * functions borrow: nothing here takes or gives a reference. */
#ifndef MAGPY_FRAMES_H
#define MAGPY_FRAMES_H

#ifndef Py_BUILD_CORE
#  define Py_BUILD_CORE 1
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#  error "magpy-runtime's capture supports CPython 3.11, 3.12 and 3.13"
#endif
#ifdef Py_GIL_DISABLED
#  error "magpy-runtime does not support free-threaded builds"
#endif

#if defined(__GNUC__)
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wunused-parameter"
#  pragma GCC diagnostic ignored "-Wsign-compare"
#  pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030C0000
#  include <internal/pycore_instruments.h>
#  include <internal/pycore_interp.h>
#endif
#include <opcode.h>
#if defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif

/* 3.11 keeps the depth of the value stack in the frame while a trace function runs; 3.12 and later do not
 * while an instruction event runs, so there the depth comes from a static analysis of the code object. */
#define MP_USES_MONITORING (PY_VERSION_HEX >= 0x030C0000)

typedef struct _PyInterpreterFrame Frame;

/* The code object that a frame runs (borrowed). */
static inline PyCodeObject *
mp_frame_code(const Frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

/* The function object that a frame runs (borrowed), or NULL. */
static inline PyObject *
mp_frame_function(const Frame *frame)
{
#if MP_USES_MONITORING
    PyObject *function = frame->f_funcobj;
#else
    PyObject *function = (PyObject *)frame->f_func;
#endif
    return function != NULL && PyFunction_Check(function) ? function : NULL;
}

/* The innermost Python frame of a thread, or NULL. */
static inline Frame *
mp_current_frame(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030D0000
    return tstate->current_frame;
#else
    return tstate->cframe->current_frame;
#endif
}

/* Lets a thread recurse `more` levels deeper than its limit allows. */
static inline void
mp_allow_recursion(PyThreadState *tstate, int more)
{
#if MP_USES_MONITORING
    tstate->py_recursion_remaining += more;
    tstate->c_recursion_remaining += more;
#else
    tstate->recursion_remaining += more;
#endif
}

#endif
