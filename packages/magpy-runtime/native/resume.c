/* Resuming: frames of unchanged functions are started in the middle.
 *
 * CPython makes the frame: the function is called with dummy arguments, and a PEP 523 hook that is installed for just
 * that call gets the frame before it runs. Its locals, stack and instruction pointer are overwritten, and the default
 * evaluator goes on from there; it also disposes of the frame. A frame that waits for an inner one is linked into
 * the thread's chain of frames by hand, as the evaluator would, while the inner one is resumed from here. */
#include "resume.h"

#ifndef RESUME_QUICK
#  define RESUME_QUICK RESUME
#endif
#ifndef RESUME_CHECK
#  define RESUME_CHECK RESUME
#endif

/* The frame that is being started on this thread. */
typedef struct {
    Resumption *resumption;
    Py_ssize_t level;
    bool phantom;               /* it only brings the code's instrumentation up to date */
    bool reached;
    bool collects;              /* garbage is collected again once the frame is there */
} Start;

static MP_THREAD_LOCAL Start *starting = NULL;
/* The hook found when ours was installed. No Python code runs between installing it and its call, so that one
 * variable serves all threads. */
static _PyFrameEvalFunction outer_hook = NULL;

/* Tells the tracers and profilers of this thread that a rebuilt frame (linked as current) starts; without this they
 * would see it return only. Returns -1 with an exception set. */
#if MP_USES_MONITORING
static int
announce(PyThreadState *tstate, PyCodeObject *code, int unit)
{
    if (tstate->tracing != 0) {
        return 0;
    }
    PyInterpreterState *interp = tstate->interp;
    const _PyCoMonitoringData *data = code->_co_monitoring;
    uint8_t tools = data != NULL ? data->active_monitors.tools[PY_MONITORING_EVENT_PY_START]
                                 : interp->monitors.tools[PY_MONITORING_EVENT_PY_START];
    int status = 0;
    for (int tool = 0; status == 0 && tools >> tool != 0; tool++) {
        PyObject *callable = interp->monitoring_callables[tool][PY_MONITORING_EVENT_PY_START];
        if ((tools >> tool & 1) == 0 || callable == NULL) {
            continue;
        }
        int what = tstate->what_event;
        tstate->what_event = PY_MONITORING_EVENT_PY_START;
        tstate->tracing++;
        PyObject *result = PyObject_CallFunction(callable, "Oi", code, unit * (int)sizeof(_Py_CODEUNIT));
        tstate->tracing--;
        tstate->what_event = what;
        status = result == NULL ? -1 : 0;
        Py_XDECREF(result);
    }
    return status;
}
#else
static int
call_tracer(PyThreadState *tstate, Py_tracefunc function, PyObject *object, PyFrameObject *frame)
{
    if (function == NULL) {
        return 0;
    }
    int what = tstate->tracing_what;
    tstate->tracing_what = PyTrace_CALL;
    PyThreadState_EnterTracing(tstate);
    frame->f_lineno = PyFrame_GetLineNumber(frame);
    int status = function(object, frame, PyTrace_CALL, Py_None);
    frame->f_lineno = 0;
    PyThreadState_LeaveTracing(tstate);
    tstate->tracing_what = what;
    return status;
}

static int
announce(PyThreadState *tstate, PyCodeObject *code, int unit)
{
    (void)code;
    (void)unit;
    if (tstate->tracing != 0 || (tstate->c_tracefunc == NULL && tstate->c_profilefunc == NULL)) {
        return 0;
    }
    PyFrameObject *frame = PyThreadState_GetFrame(tstate);
    if (frame == NULL) {
        return -1;
    }
    int status = call_tracer(tstate, tstate->c_tracefunc, tstate->c_traceobj, frame);
    if (status == 0) {
        status = call_tracer(tstate, tstate->c_profilefunc, tstate->c_profileobj, frame);
    }
    Py_DECREF(frame);
    return status;
}
#endif

/* Makes a frame the thread's current one, and takes that back. */
static void
link_frame(PyThreadState *tstate, Frame *frame)
{
    frame->previous = mp_current_frame(tstate);
    mp_set_current_frame(tstate, frame);
}

static void
unlink_frame(PyThreadState *tstate, Frame *frame)
{
    mp_set_current_frame(tstate, frame->previous);
}

/* Puts the state into a fresh frame. Cannot fail: everything was checked before. */
static void
fill_frame(Frame *frame, const Rebuilt *rebuilt)
{
    int nlocals = rebuilt->code->co_nlocalsplus;
    for (int i = 0; i < nlocals; i++) {
        PyObject *value = PyTuple_GET_ITEM(rebuilt->locals, i), *old = frame->localsplus[i];
        frame->localsplus[i] = value == mp_null ? NULL : Py_NewRef(value);
        Py_XDECREF(old);
    }
    int depth = (int)PyTuple_GET_SIZE(rebuilt->stack);
    for (int i = 0; i < depth; i++) {
        PyObject *value = PyTuple_GET_ITEM(rebuilt->stack, i);
        frame->localsplus[nlocals + i] = value == mp_null ? NULL : Py_NewRef(value);
    }
    frame->stacktop = nlocals + depth;
}

/* Lets the evaluator go on in a filled and linked frame: with the pending exception at `at`, or at `start`. */
static PyObject *
evaluate(PyThreadState *tstate, Frame *frame, const Rebuilt *rebuilt, bool raises)
{
    if (!raises) {
        mp_frame_set_next(frame, rebuilt->start);
        int op = _Py_OPCODE(_PyCode_CODE(rebuilt->code)[rebuilt->start]);
        bool announces_itself = op == RESUME || op == RESUME_QUICK || op == RESUME_CHECK;
#if MP_USES_MONITORING
        announces_itself = announces_itself || op == INSTRUMENTED_RESUME;
#endif
        raises = !announces_itself && announce(tstate, rebuilt->code, rebuilt->start) < 0;
    }
    if (raises) {
        mp_frame_set_raising(frame, rebuilt->at);
    }
    unlink_frame(tstate, frame);
    return _PyEval_EvalFrameDefault(tstate, frame, raises);
}

/* A frame that waits for the one inside it, and then goes on. */
static PyObject *
run_suspended(PyThreadState *tstate, Frame *frame, Resumption *resumption, Py_ssize_t level)
{
    const Rebuilt *rebuilt = &resumption->frames[level];
    PyObject *value = NULL;
    if (mp_enter_python_frame(tstate) == 0) {
        if (Py_EnterRecursiveCall(" while resuming") == 0) {
            value = mp_resume_level(resumption, level + 1);
            Py_LeaveRecursiveCall();
        }
        mp_leave_python_frame(tstate);
    }
    if (value != NULL && rebuilt->room > 0) {
        frame->localsplus[frame->stacktop++] = value;
    }
    else {
        Py_XDECREF(value);
    }
    return evaluate(tstate, frame, rebuilt, value == NULL);
}

/* Gets a fresh frame of the function that is being started, or any frame of another thread. */
static PyObject *
start_hook(PyThreadState *tstate, Frame *frame, int throwflag)
{
    Start *start = starting;
    Rebuilt *rebuilt = start != NULL ? &start->resumption->frames[start->level] : NULL;
    if (rebuilt == NULL || throwflag || mp_frame_function(frame) != (PyObject *)rebuilt->function) {
        return (outer_hook != NULL ? outer_hook : _PyEval_EvalFrameDefault)(tstate, frame, throwflag);
    }
    starting = NULL;
    start->reached = true;
    _PyInterpreterState_SetEvalFrameFunc(tstate->interp, outer_hook);
    if (start->collects) {
        PyGC_Enable();
    }
    Resumption *resumption = start->resumption;
    Py_ssize_t level = start->level;
    if (start->phantom) {
        tstate->tracing++;
        PyErr_SetNone(PyExc_StopIteration);
        PyObject *result = _PyEval_EvalFrameDefault(tstate, frame, 1);
        tstate->tracing--;
        return result;
    }
    fill_frame(frame, rebuilt);
    Py_CLEAR(rebuilt->locals);
    Py_CLEAR(rebuilt->stack);
    bool innermost = level + 1 == resumption->count;
    if (resumption->below != NULL) {
        mp_frame_set_pending(frame, rebuilt->at);
        return mp_wait_below(tstate, frame, resumption, level);
    }
    if (innermost && resumption->exception == NULL) {
        mp_frame_set_next(frame, rebuilt->start);
    }
    else {
        mp_frame_set_pending(frame, rebuilt->at);
    }
    link_frame(tstate, frame);
    Recorder *recorder = resumption->recorder;
    if (recorder != NULL && mp_current == recorder) {
        mp_adopt(recorder, frame, innermost && resumption->exception == NULL ? rebuilt->start : rebuilt->at);
    }
    if (!innermost) {
        return run_suspended(tstate, frame, resumption, level);
    }
    if (resumption->exception != NULL) {
        mp_raise(resumption->exception);
    }
    return evaluate(tstate, frame, rebuilt, resumption->exception != NULL);
}

/* Calls a function with arguments that bind whatever its signature, through the hook. */
static PyObject *
call_through_hook(Start *start)
{
    PyFunctionObject *function = start->resumption->frames[start->level].function;
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    int positional = code->co_argcount, keywords = code->co_kwonlyargcount;
    PyObject *names = PyTuple_New(keywords);
    PyObject **args = PyMem_Malloc((size_t)(positional + keywords + 1) * sizeof(PyObject *));
    if (names == NULL || args == NULL) {
        Py_XDECREF(names);
        PyMem_Free(args);
        return PyErr_NoMemory();
    }
    args[0] = NULL;
    for (int i = 0; i < positional + keywords; i++) {
        args[i + 1] = Py_None;
    }
    for (int i = 0; i < keywords; i++) {
        PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(code->co_localsplusnames, positional + i)));
    }
    PyInterpreterState *interp = PyInterpreterState_Get();
    Start *outer = starting;
    _PyFrameEvalFunction found = _PyInterpreterState_GetEvalFrameFunc(interp);
    start->collects = PyGC_Disable();
    starting = start;
    outer_hook = found;
    _PyInterpreterState_SetEvalFrameFunc(interp, start_hook);
    PyObject *result = PyObject_Vectorcall((PyObject *)function, args + 1,
                                           (size_t)positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                           keywords > 0 ? names : NULL);
    if (!start->reached) {
        _PyInterpreterState_SetEvalFrameFunc(interp, found);
        if (start->collects) {
            PyGC_Enable();
        }
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_RuntimeError, "%R cannot be resumed", function);
        }
        Py_CLEAR(result);
    }
    starting = outer;
    Py_DECREF(names);
    PyMem_Free(args);
    return result;
}

/* Brings the events of monitoring tools in a code object up to date, as its RESUME would, which is skipped. */
static int
instrument(Resumption *resumption, Py_ssize_t level)
{
#if MP_USES_MONITORING
    PyCodeObject *code = resumption->frames[level].code;
#  if PY_VERSION_HEX >= 0x030D0000
    uintptr_t version = PyInterpreterState_Get()->ceval.instrumentation_version & ~(uintptr_t)_PY_EVAL_EVENTS_MASK;
#  else
    uint64_t version = PyInterpreterState_Get()->monitoring_version;
#  endif
    if (code->_co_instrumentation_version != version) {
        Start start = {.resumption = resumption, .level = level, .phantom = true};
        PyObject *result = call_through_hook(&start);
        Py_XDECREF(result);
        if (!start.reached) {
            return -1;
        }
        PyErr_Clear();
    }
#else
    (void)resumption;
    (void)level;
#endif
    return 0;
}

/* Rebuilds the frames from `level` on and gives the result of the outermost of them. */
PyObject *
mp_resume_level(Resumption *resumption, Py_ssize_t level)
{
    Recorder *recorder = resumption->recorder;
    if (recorder != NULL && mp_current == recorder) {
        mp_prepare_adoption(recorder, resumption->frames[level].code);
    }
    if (resumption->below == NULL && instrument(resumption, level) < 0) {
        return NULL;
    }
    Start start = {.resumption = resumption, .level = level};
    return call_through_hook(&start);
}

/* Refuses a frame that cannot be rebuilt from what is given. Returns -1 with an exception set. */
static int
check_frame(Rebuilt *rebuilt, const Resumption *resumption, bool innermost)
{
    bool raises = resumption->exception != NULL, below = resumption->below != NULL;
    PyCodeObject *code = rebuilt->code;
    if ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0 ||
        (code->co_flags & CO_OPTIMIZED) == 0) {
        PyErr_Format(PyExc_ValueError, "%R is not an ordinary function's code and cannot be resumed", code);
        return -1;
    }
    const CodeTables *tables = mp_code_tables(code);
    if (tables == NULL) {
        return -1;
    }
    Py_ssize_t depth = PyTuple_GET_SIZE(rebuilt->stack);
    int start = rebuilt->start, at = rebuilt->at;
    if (PyTuple_GET_SIZE(rebuilt->locals) != code->co_nlocalsplus) {
        PyErr_Format(PyExc_ValueError, "%R has %d local values", code, code->co_nlocalsplus);
        return -1;
    }
    if (!innermost || raises || below) {
        if (at < code->_co_firsttraceable || at >= tables->length || tables->depths[at] < 0) {
            PyErr_Format(PyExc_ValueError, "%R has no instruction at code unit %d", code, at);
            return -1;
        }
        if (depth < tables->kept[at] || depth > code->co_stacksize) {
            PyErr_Format(PyExc_ValueError, "%R: %d stack values stay at code unit %d, not %zd", code,
                         (int)tables->kept[at], at, depth);
            return -1;
        }
    }
    if (!below && (!innermost || !raises)) {
        if (start < code->_co_firsttraceable || start >= tables->length || tables->depths[start] < 0) {
            PyErr_Format(PyExc_ValueError, "%R has no instruction at code unit %d", code, start);
            return -1;
        }
        Py_ssize_t missing = tables->depths[start] - depth;
        if (missing != 0 && (innermost || missing != 1)) {
            PyErr_Format(PyExc_ValueError, "%R: the stack has %d values at code unit %d, not %zd", code,
                         (int)tables->depths[start], start, depth);
            return -1;
        }
        rebuilt->room = (int)missing;
        int before = start - 1;
        while (before >= 0 && tables->depths[before] < 0) {
            before--;   /* an inline cache */
        }
        if (before >= 0 && tables->indices[before] >= start) {
            PyErr_Format(PyExc_ValueError, "%R: code unit %d is in the middle of an instruction", code, start);
            return -1;
        }
#ifdef KW_NAMES
        if (before >= 0 && _Py_OPCODE(_PyCode_CODE(code)[before]) == KW_NAMES) {
            PyErr_Format(PyExc_ValueError, "%R: the keywords of the call at code unit %d are lost", code, start);
            return -1;
        }
#endif
    }
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        char kind = PyBytes_AS_STRING(code->co_localspluskinds)[i];
        PyObject *value = PyTuple_GET_ITEM(rebuilt->locals, i);
        if ((kind & CO_FAST_FREE) && !PyCell_Check(value)) {
            PyErr_Format(PyExc_ValueError, "%R: local value %d must be a cell", code, i);
            return -1;
        }
    }
    return 0;
}

/* Reads the frames (a tuple or list of tuples). Returns -1 with an exception set. */
int
mp_read_frames(Resumption *resumption, PyObject *sequence)
{
    for (Py_ssize_t i = 0; i < resumption->count; i++) {
        Rebuilt *rebuilt = &resumption->frames[i];
        PyObject *item = PySequence_Fast_GET_ITEM(sequence, i);
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "a frame is a tuple (function, start, at, locals, stack)");
            return -1;
        }
        if (!PyArg_ParseTuple(item, "O!iiO!O!;a frame is a tuple (function, start, at, locals, stack)",
                              &PyFunction_Type, &rebuilt->function, &rebuilt->start, &rebuilt->at, &PyTuple_Type,
                              &rebuilt->locals, &PyTuple_Type, &rebuilt->stack)) {
            rebuilt->function = NULL;
            rebuilt->locals = rebuilt->stack = NULL;
            return -1;
        }
        Py_INCREF(rebuilt->function);
        Py_INCREF(rebuilt->locals);
        Py_INCREF(rebuilt->stack);
        rebuilt->code = (PyCodeObject *)rebuilt->function->func_code;
        if (check_frame(rebuilt, resumption, i + 1 == resumption->count) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Refuses a recorder that cannot take frames over now, and a recorder that would not know of them. */
int
mp_check_recorder(Recorder *recorder)
{
    PyThreadState *tstate = PyThreadState_Get();
    if (recorder == NULL) {
        if (mp_current != NULL && !mp_current->paused && mp_current->diverted == NULL && tstate->tracing == 0) {
            PyErr_SetString(PyExc_RuntimeError, "a Recorder is running on this thread: resume with it");
            return -1;
        }
        return 0;
    }
    if (mp_current != recorder || recorder->paused || recorder->diverted != NULL || tstate->tracing != 0) {
        PyErr_SetString(PyExc_RuntimeError, "resume() needs a Recorder that records on this thread now");
        return -1;
    }
    return 0;
}

/* Drops what is still held of the frames. */
void
mp_release_frames(Resumption *resumption)
{
    for (Py_ssize_t i = 0; resumption->frames != NULL && i < resumption->count; i++) {
        Py_CLEAR(resumption->frames[i].function);
        Py_CLEAR(resumption->frames[i].locals);
        Py_CLEAR(resumption->frames[i].stack);
    }
    PyMem_Free(resumption->frames);
}

/* resume(frames, exception=None, recorder=None): the result is that of the outermost frame. A list of frames is empty
 * afterwards, so that the program's objects live as long as it holds them itself. */
PyObject *
mp_resume(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"frames", "exception", "recorder", NULL};
    PyObject *given, *exception = Py_None, *recorder = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:resume", names, &given, &exception, &recorder)) {
        return NULL;
    }
    if (exception != Py_None && !PyExceptionInstance_Check(exception)) {
        PyErr_SetString(PyExc_TypeError, "resume() argument 'exception' must be an exception or None");
        return NULL;
    }
    if (recorder != Py_None && !PyObject_TypeCheck(recorder, &mp_RecorderType)) {
        PyErr_SetString(PyExc_TypeError, "resume() argument 'recorder' must be a Recorder or None");
        return NULL;
    }
    PyObject *sequence = PySequence_Tuple(given);
    if (sequence == NULL) {
        return NULL;
    }
    Resumption resumption = {
        .count = PyTuple_GET_SIZE(sequence),
        .exception = exception == Py_None ? NULL : exception,
        .recorder = recorder == Py_None ? NULL : (Recorder *)recorder,
    };
    PyObject *result = NULL;
    if (resumption.count == 0) {
        PyErr_SetString(PyExc_ValueError, "resume() needs at least one frame");
    }
    else if ((resumption.frames = PyMem_Calloc((size_t)resumption.count, sizeof(Rebuilt))) == NULL) {
        PyErr_NoMemory();
    }
    else if (mp_check_recorder(resumption.recorder) == 0 && mp_read_frames(&resumption, sequence) == 0 &&
             (!PyList_CheckExact(given) || PyList_SetSlice(given, 0, PY_SSIZE_T_MAX, NULL) == 0)) {
        Py_CLEAR(sequence);
        PyThreadState *tstate = PyThreadState_Get();
        Frame *current = mp_skip_hidden(tstate);
        result = mp_resume_level(&resumption, 0);
        mp_set_current_frame(tstate, current);
    }
    mp_release_frames(&resumption);
    Py_XDECREF(sequence);
    return result;
}
