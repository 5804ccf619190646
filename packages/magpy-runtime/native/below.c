/* Calling below frames that do not go on: a function sees its callers, although no code of theirs runs.
 *
 * The frames are rebuilt as for a resumption and linked into the thread's chain, each suspended in its call. When the
 * function is done they are disposed of by CPython itself, as FrameHook does it. Frames of hidden files (MagPy's own)
 * between the program's are left out of the chain, so that it looks as it would without them. */
#include "resume.h"

/* Whether the code of a file is hidden, by the file's name as an object: few files, most code objects share theirs. */
typedef struct {
    PyObject *name;     /* owned or NULL */
    bool hidden;
} Known;

#define KNOWN_FILES 256

static Known known[KNOWN_FILES];
static PyObject *hidden_prefixes = NULL;    /* owned; a tuple of str */

static bool
is_hidden(PyCodeObject *code)
{
    PyObject *name = code->co_filename;
    Known *at = &known[((uintptr_t)name >> 4) % KNOWN_FILES];
    if (at->name != name) {
        bool hidden = false;
        for (Py_ssize_t i = 0; hidden_prefixes != NULL && !hidden && i < PyTuple_GET_SIZE(hidden_prefixes); i++) {
            hidden = PyUnicode_Tailmatch(name, PyTuple_GET_ITEM(hidden_prefixes, i), 0, PY_SSIZE_T_MAX, -1) == 1;
        }
        at->hidden = hidden;
        Py_XSETREF(at->name, Py_NewRef(name));
    }
    return at->hidden;
}

/* The innermost frame that is not hidden, or NULL. */
static Frame *
visible(Frame *frame)
{
    while (frame != NULL) {
#if MP_USES_MONITORING
        if (frame->owner != FRAME_OWNED_BY_CSTACK && !is_hidden(mp_frame_code(frame))) {
            break;
        }
#else
        if (!is_hidden(mp_frame_code(frame))) {
            break;
        }
#endif
        frame = frame->previous;
    }
    return frame;
}

/* hide(prefixes): frames of files whose names start so are hidden from functions that are called below frames. */
PyObject *
mp_hide(PyObject *Py_UNUSED(module), PyObject *prefixes)
{
    if (!PyTuple_Check(prefixes)) {
        PyErr_SetString(PyExc_TypeError, "hide() takes a tuple of str");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(prefixes); i++) {
        if (!PyUnicode_Check(PyTuple_GET_ITEM(prefixes, i))) {
            PyErr_SetString(PyExc_TypeError, "hide() takes a tuple of str");
            return NULL;
        }
    }
    Py_XSETREF(hidden_prefixes, Py_NewRef(prefixes));
    for (int i = 0; i < KNOWN_FILES; i++) {
        Py_CLEAR(known[i].name);
    }
    Py_RETURN_NONE;
}

/* Makes the innermost frame that is not hidden the current one. Gives the one that was, to be put back. */
Frame *
mp_skip_hidden(PyThreadState *tstate)
{
    Frame *current = mp_current_frame(tstate), *shown = visible(current);
    if (shown != NULL && shown != current) {
        mp_set_current_frame(tstate, shown);
    }
    return current;
}

/* Empties the stack of a frame that will not go on. */
static void
empty_stack(Frame *frame, int nlocals)
{
    while (frame->stacktop > nlocals) {
        PyObject *value = frame->localsplus[--frame->stacktop];
        Py_XDECREF(value);
    }
}

/* Disposes of a frame that is not linked: it returns at once, or raises the pending exception. */
void
mp_dispose(PyThreadState *tstate, Frame *frame, int leave, bool pushes, bool raises)
{
    if (!raises) {
        int nlocals = mp_frame_code(frame)->co_nlocalsplus;
        if (pushes) {
            frame->localsplus[nlocals] = Py_NewRef(Py_None);
        }
        frame->stacktop = nlocals + pushes;
        mp_frame_set_next(frame, leave);
    }
    else {      /* at RESUME, which no handler covers, so that the frame has an entry in the traceback */
        mp_frame_set_pending(frame, mp_frame_code(frame)->_co_firsttraceable);
    }
    PyThreadState_EnterTracing(tstate);
    mp_allow_recursion(tstate, 5);
    PyObject *dropped = _PyEval_EvalFrameDefault(tstate, frame, raises);
    mp_allow_recursion(tstate, -5);
    PyThreadState_LeaveTracing(tstate);
    Py_XDECREF(dropped);
}

/* Disposes of a suspended frame that is not linked any more. What keeps its frame object sees it as it was. */
static void
leave(PyThreadState *tstate, Frame *frame, int at)
{
    empty_stack(frame, mp_frame_code(frame)->co_nlocalsplus);
#if MP_USES_MONITORING
    const CodeTables *tables = mp_code_tables(mp_frame_code(frame));    /* they are there: the frame was checked */
    PyFrameObject *object = frame->frame_obj;
    Py_XINCREF(object);
    bool raises = tables->leave < 0;
    if (raises) {
        PyErr_SetNone(PyExc_StopIteration);
    }
    mp_dispose(tstate, frame, tables->leave, tables->pushes, raises);
    if (raises) {
        PyErr_Clear();
    }
    if (object != NULL && Py_REFCNT(object) > 1) {
        mp_frame_set_pending(object->f_frame, at);
    }
    Py_XDECREF(object);
#else
    (void)tstate;
    (void)at;       /* its caller, _PyEval_Vector, clears it */
#endif
}

/* A rebuilt frame that waits for what is called below it, and is disposed of then. */
PyObject *
mp_wait_below(PyThreadState *tstate, Frame *frame, Resumption *resumption, Py_ssize_t level)
{
    const Below *below = resumption->below;
    int at = resumption->frames[level].at;
    frame->previous = mp_current_frame(tstate);
    mp_set_current_frame(tstate, frame);
    PyObject *result = NULL;
    if (mp_enter_python_frame(tstate) == 0) {
        if (Py_EnterRecursiveCall(" while resuming") == 0) {
            result = level + 1 < resumption->count ? mp_resume_level(resumption, level + 1) :
                     PyObject_Call(below->function, below->args, below->kwargs);
            Py_LeaveRecursiveCall();
        }
        mp_leave_python_frame(tstate);
    }
    mp_set_current_frame(tstate, frame->previous);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    leave(tstate, frame, at);
    PyErr_Restore(type, value, traceback);
    return result;
}

/* call_below(frames, function, args, kwargs): what the function gives or raises. A list of frames is empty afterwards;
 * without frames, only those that are hidden are left out. `start` of a frame is not looked at. */
PyObject *
mp_call_below(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !PyTuple_Check(args[2]) || (args[3] != Py_None && !PyDict_Check(args[3]))) {
        PyErr_SetString(PyExc_TypeError, "call_below(frames, function, args, kwargs)");
        return NULL;
    }
    PyObject *sequence = PySequence_Fast(args[0], "call_below() argument 'frames' must be a sequence");
    if (sequence == NULL) {
        return NULL;
    }
    Below below = {args[1], args[2], args[3] == Py_None || PyDict_GET_SIZE(args[3]) == 0 ? NULL : args[3]};
    Resumption resumption = {.count = PySequence_Fast_GET_SIZE(sequence), .below = &below};
    PyObject *result = NULL;
    PyThreadState *tstate = PyThreadState_Get();
    Frame *current = mp_skip_hidden(tstate);
    if (resumption.count == 0) {
        result = PyObject_Call(below.function, below.args, below.kwargs);
    }
    else if ((resumption.frames = PyMem_Calloc((size_t)resumption.count, sizeof(Rebuilt))) == NULL) {
        PyErr_NoMemory();
    }
    else if (mp_check_recorder(NULL) == 0 && mp_read_frames(&resumption, sequence) == 0 &&
             (!PyList_CheckExact(args[0]) || PyList_SetSlice(args[0], 0, PY_SSIZE_T_MAX, NULL) == 0)) {
        Py_CLEAR(sequence);
        result = mp_resume_level(&resumption, 0);
    }
    mp_set_current_frame(tstate, current);
    mp_release_frames(&resumption);
    Py_XDECREF(sequence);
    return result;
}
