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
#if PY_VERSION_HEX >= 0x030D0000
#  include <internal/pycore_ceval.h>
#endif
#include <opcode.h>
#if defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif

/* 3.11 keeps the depth of the value stack in the frame while a trace function runs; 3.12 and later do not
 * while an instruction event runs, so there the depth comes from a static analysis of the code object. */
#define MP_USES_MONITORING (PY_VERSION_HEX >= 0x030C0000)

typedef struct _PyInterpreterFrame Frame;

/* Where an exception at a code unit is handled, -1: nowhere (plan.c). */
int mp_handler_of(PyCodeObject *code, int unit);

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

/* Makes another frame the innermost one. */
static inline void
mp_set_current_frame(PyThreadState *tstate, Frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    tstate->current_frame = frame;
#else
    tstate->cframe->current_frame = frame;
#endif
}

/* Lets a frame go on at code unit `unit`. Before 3.13 the pointer stays one behind. */
static inline void
mp_frame_set_next(Frame *frame, int unit)
{
#if PY_VERSION_HEX >= 0x030D0000
    frame->instr_ptr = _PyCode_CODE(mp_frame_code(frame)) + unit;
#else
    frame->prev_instr = _PyCode_CODE(mp_frame_code(frame)) + unit - 1;
#endif
}

/* Lets a frame stand at the instruction at `unit`, which is in progress. */
static inline void
mp_frame_set_pending(Frame *frame, int unit)
{
#if PY_VERSION_HEX >= 0x030D0000
    frame->instr_ptr = _PyCode_CODE(mp_frame_code(frame)) + unit;
    frame->return_offset = 0;
#else
    frame->prev_instr = _PyCode_CODE(mp_frame_code(frame)) + unit;
#endif
}

/* Lets a frame that is evaluated with the throw flag raise at `unit`. CPython 3.13 looks for the handler one unit
 * before the pointer, and takes the line from the pointer; see mp_handler_of. */
static inline void
mp_frame_set_raising(Frame *frame, int unit)
{
    mp_frame_set_pending(frame, unit);
#if PY_VERSION_HEX >= 0x030D0000
    PyCodeObject *code = mp_frame_code(frame);
    if (mp_handler_of(code, unit) != mp_handler_of(code, unit - 1)) {
        frame->instr_ptr++;
    }
#endif
}

/* Counts a frame that Python code runs in against the recursion limit. Returns -1 with an exception set. */
static inline int
mp_enter_python_frame(PyThreadState *tstate)
{
#if MP_USES_MONITORING
    if (tstate->py_recursion_remaining <= 1) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
        return -1;
    }
    tstate->py_recursion_remaining--;
#else
    (void)tstate;       /* 3.11 counts C and Python together */
#endif
    return 0;
}

static inline void
mp_leave_python_frame(PyThreadState *tstate)
{
#if MP_USES_MONITORING
    tstate->py_recursion_remaining++;
#else
    (void)tstate;
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
