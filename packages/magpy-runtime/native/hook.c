/* The Python type FrameHook: frames that start are answered by callables instead of being run (PEP 523).
 *
 * While a hook is installed on some thread, every frame of the process passes through `hook_frame`; on other threads
 * and for other code that costs one comparison, but calls are not inlined. A frame that is answered is disposed of by
 * CPython itself: it is sent to one of its own return instructions, whose value is dropped. Tracers do not see it.
 * CPython 3.13 does not ask PEP 523 hooks about `__init__` where it has specialised the call of a class: such frames
 * are not answered, and run. */
#include "capture.h"

typedef struct {
    PyCodeObject *code;     /* owned; NULL: free */
    PyObject *answer;       /* owned; NULL: none any more */
    int leave;              /* the code unit of a return instruction */
    bool pushes;            /* which takes a value off the stack */
} Entry;

typedef struct {
    PyObject_HEAD
    Entry *entries;         /* by code pointer: open addressing, a power of two, at most half full */
    size_t capacity;
    size_t used;
    Py_ssize_t answers;     /* entries that have one */
    PyObject *discover;     /* owned or NULL: asked about each code object once */
    bool silent;            /* an exception gets no entry for the frame that it leaves */
    unsigned long long answered;
} FrameHook;

/* The hooks that are installed on this thread, innermost first. */
typedef struct Installed {
    FrameHook *hook;        /* owned */
    struct Installed *outer;
} Installed;

/* How many code objects a hook asks about. */
#define MAX_KNOWN 4096

static MP_THREAD_LOCAL Installed *installed = NULL;
static Py_ssize_t installed_anywhere = 0;
static _PyFrameEvalFunction outer_hook = NULL;     /* what was there before ours, NULL: CPython's own */
static MP_THREAD_LOCAL Frame *passing = NULL;       /* the frame that it was given last */

/* Where a code object's entry is, or would be put. The table must have room. */
static Entry *
find_entry(Entry *entries, size_t capacity, PyCodeObject *code)
{
    size_t at = ((uintptr_t)code >> 4) * (size_t)0x9E3779B1u & (capacity - 1);
    while (entries[at].code != NULL && entries[at].code != code) {
        at = (at + 1) & (capacity - 1);
    }
    return &entries[at];
}

/* The entry that answers for a code object on this thread, or NULL; then `asks` is a hook that does not know it. */
static Entry *
find_answer(PyCodeObject *code, FrameHook **hook, FrameHook **asks)
{
    for (Installed *at = installed; at != NULL; at = at->outer) {
        if (at->hook->answers == 0 && at->hook->discover == NULL) {
            continue;
        }
        Entry *entry = at->hook->capacity > 0 ? find_entry(at->hook->entries, at->hook->capacity, code) : NULL;
        if (entry != NULL && entry->answer != NULL) {
            *hook = at->hook;
            return entry;
        }
        if ((entry == NULL || entry->code == NULL) && at->hook->discover != NULL && at->hook->used < MAX_KNOWN) {
            *asks = at->hook;
            return NULL;
        }
    }
    return NULL;
}

/* The arguments of a frame that has not run yet, as a new tuple. */
static PyObject *
arguments(Frame *frame, PyCodeObject *code)
{
    int count = code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
                ((code->co_flags & CO_VARKEYWORDS) != 0);
    PyObject *values = PyTuple_New(count);
    for (int i = 0; values != NULL && i < count; i++) {
        PyObject *value = frame->localsplus[i];
        PyTuple_SET_ITEM(values, i, Py_NewRef(value != NULL ? value : mp_null));
    }
    return values;
}

static PyObject *hook_frame(PyThreadState *tstate, Frame *frame, int throwflag);

/* Whether this thread's frames may be answered now: not where a recorder watches, nor for a tracer's own frames, nor where
 * somebody else's hook stands on ours, who would get the frames of the answers. */
static inline bool
may_answer(PyThreadState *tstate)
{
    return tstate->tracing == 0 && (mp_current == NULL || mp_current->diverted != NULL) &&
           _PyInterpreterState_GetEvalFrameFunc(tstate->interp) == hook_frame;
}

static int find_return(PyCodeObject *code, Entry *entry);
static int set_answer(FrameHook *self, PyCodeObject *code, PyObject *answer);

/* Asks a hook about code that it does not know. Returns -1 with an exception set. */
static int
discover(FrameHook *hook, PyCodeObject *code)
{
    Entry made = {0};
    PyObject *answer = Py_None;
    if (find_return(code, &made) < 0) {
        PyErr_Clear();
        Py_INCREF(answer);
    }
    else {
        Installed *saved = installed;
        installed = NULL;
        answer = PyObject_CallOneArg(hook->discover, (PyObject *)code);
        installed = saved;
        if (answer == NULL) {
            return -1;
        }
    }
    int status = set_answer(hook, code, answer);
    Py_DECREF(answer);
    return status;
}

/* Lets an answered frame go; its result or the pending exception goes to the caller. */
static void
leave_frame(PyThreadState *tstate, Frame *frame, int leave, bool pushes, bool raises, bool silent)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    if (raises && silent) {
        PyErr_Fetch(&type, &value, &traceback);
    }
    mp_dispose(tstate, frame, leave, pushes, raises && !silent);
    if (raises && silent) {
        PyErr_Restore(type, value, traceback);
    }
}

/* Hands a frame to the hook that was there before. Others stack theirs on ours, and ours may come to stand on theirs: a
 * frame that comes back is run. */
static PyObject *
pass_on(PyThreadState *tstate, Frame *frame, int throwflag)
{
    if (outer_hook == NULL) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    Frame *saved = passing;
    passing = frame;
    PyObject *result = outer_hook(tstate, frame, throwflag);
    passing = saved;
    return result;
}

static PyObject *
hook_frame(PyThreadState *tstate, Frame *frame, int throwflag)
{
    FrameHook *hook = NULL, *asks = NULL;
    Entry *entry = NULL;
    if (passing == frame) {
        passing = NULL;
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    if (installed != NULL && !throwflag && may_answer(tstate)) {
        entry = find_answer(mp_frame_code(frame), &hook, &asks);
        if (asks != NULL) {
            Py_INCREF(asks);
            if (discover(asks, mp_frame_code(frame)) < 0) {
                PyErr_Clear();
            }
            Py_DECREF(asks);
            asks = NULL;
            entry = installed != NULL ? find_answer(mp_frame_code(frame), &hook, &asks) : NULL;
        }
    }
    if (entry != NULL) {
        PyObject *function = mp_frame_function(frame);
        int leave = entry->leave;
        bool pushes = entry->pushes, silent = hook->silent;
        PyObject *answer = Py_NewRef(entry->answer);
        PyObject *args[3] = {NULL, function != NULL ? function : Py_None, arguments(frame, mp_frame_code(frame))};
        Py_INCREF(hook);
        Installed *saved = installed;
        if (hook->discover != NULL) {
            installed = NULL;       /* the answers' own code is not to be asked about */
        }
        PyObject *result = args[2] == NULL ? NULL :
                           PyObject_Vectorcall(answer, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        installed = saved;
        Py_XDECREF(args[2]);
        Py_DECREF(answer);
        hook->answered += result != mp_null;
        Py_DECREF(hook);
        if (result != mp_null) {
            leave_frame(tstate, frame, leave, pushes, result == NULL, silent);
            return result;
        }
        Py_DECREF(result);
    }
    return pass_on(tstate, frame, throwflag);
}

/* Installs a hook on this thread. Returns -1 with an exception set. */
static int
hook_install(FrameHook *self)
{
    Installed *made = PyMem_Malloc(sizeof(Installed));
    if (made == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *made = (Installed){(FrameHook *)Py_NewRef(self), installed};
    installed = made;
    if (installed_anywhere++ == 0) {
        PyInterpreterState *interp = PyInterpreterState_Get();
        _PyFrameEvalFunction found = _PyInterpreterState_GetEvalFrameFunc(interp);
        if (found != hook_frame) {      /* another hook may have put ours back after it was removed */
            outer_hook = found;
            _PyInterpreterState_SetEvalFrameFunc(interp, hook_frame);
        }
    }
    return 0;
}

/* Removes the hook that was installed last on this thread. Returns -1 with an exception set when it is another. */
static int
hook_remove(FrameHook *self)
{
    Installed *last = installed;
    if (last == NULL || last->hook != self) {
        PyErr_SetString(PyExc_RuntimeError, "this FrameHook is not the last one installed on this thread");
        return -1;
    }
    installed = last->outer;
    if (--installed_anywhere == 0) {
        PyInterpreterState *interp = PyInterpreterState_Get();
        if (_PyInterpreterState_GetEvalFrameFunc(interp) == hook_frame) {
            _PyInterpreterState_SetEvalFrameFunc(interp, outer_hook);
        }
    }
    PyMem_Free(last);
    Py_DECREF(self);
    return 0;
}

static PyObject *
frame_hook_install(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return hook_install((FrameHook *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
frame_hook_remove(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return hook_remove((FrameHook *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
frame_hook_enter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return hook_install((FrameHook *)self) < 0 ? NULL : Py_NewRef(self);
}

static PyObject *
frame_hook_exit(PyObject *self, PyObject *Py_UNUSED(args))
{
    return hook_remove((FrameHook *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

/* run(func, args=(), kwargs=None): borrows all three; func's result, with the hook installed while it runs. */
static PyObject *
frame_hook_run(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"func", "args", "kwargs", NULL};
    PyObject *function, *arguments = mp_empty, *keywords = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O!O:run", names, &function, &PyTuple_Type, &arguments,
                                     &keywords)) {
        return NULL;
    }
    if (keywords != Py_None && !PyDict_Check(keywords)) {
        PyErr_SetString(PyExc_TypeError, "run() argument 'kwargs' must be a dict or None");
        return NULL;
    }
    if (hook_install((FrameHook *)self) < 0) {
        return NULL;
    }
    PyObject *result = PyObject_Call(function, arguments, keywords == Py_None ? NULL : keywords);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (hook_remove((FrameHook *)self) < 0) {       /* the program left another one behind */
        Py_CLEAR(result);
        Py_CLEAR(type);
        Py_CLEAR(value);
        Py_CLEAR(traceback);
        return NULL;
    }
    PyErr_Restore(type, value, traceback);
    return result;
}

/* unhooked(function, args, kwargs): the function's result; no hook of this thread answers below it. */
PyObject *
mp_unhooked(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "unhooked(function, args, kwargs)");
        return NULL;
    }
    Installed *saved = installed;
    installed = NULL;
    PyObject *result = PyObject_Call(args[0], args[1], args[2]);
    installed = saved;
    return result;
}

/* Finds a return instruction. Returns -1 with an exception set when frames of the code cannot be answered. */
static int
find_return(PyCodeObject *code, Entry *entry)
{
    if ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0 &&
        (code->co_flags & CO_OPTIMIZED) != 0) {
        int found = mp_find_return(code, &entry->pushes);
        if (found == -2) {
            return -1;
        }
        entry->leave = found;
        if (found >= 0) {
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "frames of %R cannot be answered", code);
    return -1;
}

/* Makes room for one more entry. Returns -1 with an exception set. */
static int
reserve_entry(FrameHook *self)
{
    if (2 * (self->used + 1) <= self->capacity) {
        return 0;
    }
    size_t capacity = self->capacity ? 2 * self->capacity : 16;
    Entry *entries = PyMem_Calloc(capacity, sizeof(Entry));
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < self->capacity; i++) {
        if (self->entries[i].code != NULL) {
            *find_entry(entries, capacity, self->entries[i].code) = self->entries[i];
        }
    }
    PyMem_Free(self->entries);
    self->entries = entries;
    self->capacity = capacity;
    return 0;
}

/* Keeps what answers for a code object; None: nothing does. Returns -1 with an exception set. */
static int
set_answer(FrameHook *self, PyCodeObject *code, PyObject *answer)
{
    Entry made = {0};
    bool answers = answer != Py_None;
    if (answers && !PyCallable_Check(answer)) {
        PyErr_SetString(PyExc_TypeError, "answer() argument 'callable' must be callable or None");
        return -1;
    }
    if ((answers && find_return(code, &made) < 0) || reserve_entry(self) < 0) {
        return -1;
    }
    Entry *entry = find_entry(self->entries, self->capacity, code);
    if (entry->code == NULL) {
        entry->code = (PyCodeObject *)Py_NewRef(code);
        self->used++;
    }
    if (answers) {
        entry->leave = made.leave;
        entry->pushes = made.pushes;
    }
    PyObject *old = entry->answer;
    entry->answer = answers ? Py_NewRef(answer) : NULL;
    self->answers += answers - (old != NULL);
    Py_XDECREF(old);
    return 0;
}

/* answer(code, callable): keeps both; None takes the answer back. */
static PyObject *
frame_hook_answer(PyObject *object, PyObject *args)
{
    PyCodeObject *code;
    PyObject *answer;
    Entry made;
    if (!PyArg_ParseTuple(args, "O!O:answer", &PyCode_Type, &code, &answer) || find_return(code, &made) < 0 ||
        set_answer((FrameHook *)object, code, answer) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* FrameHook(answers=None, discover=None, silent=False): a mapping's items are given to answer(). */
static PyObject *
frame_hook_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *answers = Py_None, *discover = Py_None;
    int silent = 0;
    static char *names[] = {"answers", "discover", "silent", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOp:FrameHook", names, &answers, &discover, &silent)) {
        return NULL;
    }
    PyObject *self = type->tp_alloc(type, 0);
    if (self != NULL) {
        ((FrameHook *)self)->discover = discover == Py_None ? NULL : Py_NewRef(discover);
        ((FrameHook *)self)->silent = silent;
    }
    PyObject *items = self != NULL && answers != Py_None ? PyMapping_Items(answers) : NULL;
    for (Py_ssize_t i = 0; items != NULL && i < PyList_GET_SIZE(items); i++) {
        PyObject *result = frame_hook_answer(self, PyList_GET_ITEM(items, i));
        if (result == NULL) {
            Py_CLEAR(items);
            break;
        }
        Py_DECREF(result);
    }
    if (answers != Py_None && items == NULL) {
        Py_CLEAR(self);
    }
    Py_XDECREF(items);
    return self;
}

static int
frame_hook_traverse(PyObject *object, visitproc visit, void *arg)
{
    FrameHook *self = (FrameHook *)object;
    Py_VISIT(self->discover);
    for (size_t i = 0; i < self->capacity; i++) {
        Py_VISIT(self->entries[i].code);
        Py_VISIT(self->entries[i].answer);
    }
    return 0;
}

static int
frame_hook_clear(PyObject *object)
{
    FrameHook *self = (FrameHook *)object;
    Entry *entries = self->entries;
    size_t capacity = self->capacity;
    self->entries = NULL;
    self->capacity = self->used = 0;
    self->answers = 0;
    Py_CLEAR(self->discover);
    for (size_t i = 0; i < capacity; i++) {
        Py_XDECREF(entries[i].code);
        Py_XDECREF(entries[i].answer);
    }
    PyMem_Free(entries);
    return 0;
}

static void
frame_hook_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    frame_hook_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *
frame_hook_get_answered(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((FrameHook *)object)->answered);
}

static PyMethodDef frame_hook_methods[] = {
    {"answer", frame_hook_answer, METH_VARARGS,
     "answer(code, callable)\n--\n\nLet callable(function, arguments) answer frames of the code; None: not any more."},
    {"install", frame_hook_install, METH_NOARGS, "install()\n--\n\nAnswer this thread's frames from now on."},
    {"remove", frame_hook_remove, METH_NOARGS, "remove()\n--\n\nUndo the last install()."},
    {"run", (PyCFunction)(void (*)(void))frame_hook_run, METH_VARARGS | METH_KEYWORDS,
     "run(func, args=(), kwargs=None)\n--\n\nCall func with the hook installed."},
    {"__enter__", frame_hook_enter, METH_NOARGS, "Install the hook."},
    {"__exit__", frame_hook_exit, METH_VARARGS, "Remove the hook."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef frame_hook_getset[] = {
    {"answered", frame_hook_get_answered, NULL, "How many frames were answered.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject mp_FrameHookType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.FrameHook",
    .tp_basicsize = sizeof(FrameHook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "FrameHook(answers=None, discover=None, silent=False)\n--\n\nAnswers frames that start, by their code.",
    .tp_new = frame_hook_new,
    .tp_dealloc = frame_hook_dealloc,
    .tp_traverse = frame_hook_traverse,
    .tp_clear = frame_hook_clear,
    .tp_methods = frame_hook_methods,
    .tp_getset = frame_hook_getset,
};
