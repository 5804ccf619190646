/* Chains of segments: the rest of a call behind a boundary, served from segment to segment.
 *
 * One turn of the loop runs the operation at the boundary, finds the record behind its outcome, and runs that record's
 * mock. What is not usual goes to methods in Python: of the boundary `go_on` and `go_wrong`, of the dispatcher
 *
 *   operate(site, function, args, keywords, slots)  the operation may look at its callers, or somebody takes its time
 *   no_segment(point, box, made)                    no record: `box` holds the slots, and whoever lets the program go on
 *                                                   takes them out, since objects live as long as it holds them
 *   guard_raised(point, box, error)                 a guard has raised
 *   serve_segment(point, record, box)               a record that needs more than its mock; `box` holds what was bound, too;
 *                                                   gives whether the call is over, and its result or what the mock gave
 *   segment_failed(point, record, box, error)       the mock has raised
 *   strip(error)                                    takes MagPy's frames out of what an operation has raised
 *
 * `no_segment`, `guard_raised` and `segment_failed` give the result of the whole call. */
#include "dispatch.h"

static PyObject *name_go_on, *name_go_wrong, *name_operate, *name_no_segment, *name_guard_raised,
    *name_serve_segment, *name_segment_failed, *name_strip;
static bool timed;

#define TURNS 64

/* -- errors ----------------------------------------------------------------------------------------------------------- */

/* The exception that is set, with its traceback, taken from the thread. */
PyObject *
mp_take_error(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
        Py_DECREF(traceback);
    }
    Py_DECREF(type);
    return error;
#endif
}

/* `[one]` or `[one, two]`; takes the references. */
static PyObject *
boxed(PyObject *one, PyObject *two)
{
    PyObject *box = PyList_New(two != NULL ? 2 : 1);
    if (box == NULL) {
        Py_DECREF(one);
        Py_XDECREF(two);
        return NULL;
    }
    PyList_SET_ITEM(box, 0, one);
    if (two != NULL) {
        PyList_SET_ITEM(box, 1, two);
    }
    return box;
}

/* -- one step of a chain ---------------------------------------------------------------------------------------------- */

/* The operation at a boundary: its outcome, or NULL with what it has raised. */
static PyObject *
operate(Dispatcher *self, SiteSlots *site, PyObject *function, PyObject *args, PyObject *keywords, PyObject *slots)
{
    if (site->sees || timed) {
        PyObject *stack[6] = {(PyObject *)self, (PyObject *)site, function, args, keywords, slots};
        return PyObject_VectorcallMethod(name_operate, stack, 6 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    return PyObject_Call(function, args, PyDict_GET_SIZE(keywords) > 0 ? keywords : NULL);
}

/* The slots with one more behind them. */
static PyObject *
pushed(PyObject *slots, PyObject *outcome)
{
    Py_ssize_t count = PyTuple_GET_SIZE(slots);
    PyObject *tuple = PyTuple_New(count + 1);
    if (tuple == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(PyTuple_GET_ITEM(slots, i)));
    }
    PyTuple_SET_ITEM(tuple, count, Py_NewRef(outcome));
    return tuple;
}

/* Where the program goes on and what its frames hold then, as the boundary's method says. */
static int
ask_site(SiteSlots *site, PyObject *name, PyObject *given, PyObject *args, PyObject *slots, Way **way, PyObject **after)
{
    PyObject *stack[4] = {(PyObject *)site, given, args, slots};
    PyObject *found = PyObject_VectorcallMethod(name, stack, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (found == NULL) {
        return -1;
    }
    if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != 2 || !Py_IS_TYPE(PyTuple_GET_ITEM(found, 0), &mp_WayType) ||
        !PyTuple_CheckExact(PyTuple_GET_ITEM(found, 1))) {
        Py_DECREF(found);
        PyErr_SetString(PyExc_TypeError, "a boundary leads a way, with slots");
        return -1;
    }
    *way = (Way *)Py_NewRef(PyTuple_GET_ITEM(found, 0));
    *after = Py_NewRef(PyTuple_GET_ITEM(found, 1));
    Py_DECREF(found);
    return 0;
}

/* The same after an outcome. */
static int
go_on(SiteSlots *site, PyObject *outcome, PyObject *args, PyObject *slots, Way **way, PyObject **after)
{
    if (site->form != FORM_OTHER) {
        int truth = site->form == FORM_TESTED ? PyObject_IsTrue(outcome) : 0;
        if (truth < 0) {
            return -1;
        }
        PyObject *known = site->ways[truth];
        if (known != NULL && Py_IS_TYPE(known, &mp_WayType)) {
            *after = site->form == FORM_TESTED ? Py_NewRef(slots) : pushed(slots, outcome);
            if (*after == NULL) {
                return -1;
            }
            *way = (Way *)Py_NewRef(known);
            (*way)->count++;
            return 0;
        }
    }
    return ask_site(site, name_go_on, outcome, args, slots, way, after);
}

/* The same after an exception, which is set. */
static int
go_wrong(Dispatcher *self, SiteSlots *site, PyObject *args, PyObject *slots, Way **way, PyObject **after)
{
    PyObject *error = mp_take_error();
    int done = 0;
    if (((PyBaseExceptionObject *)error)->traceback != NULL) {
        PyObject *stack[2] = {(PyObject *)self, error};
        PyObject *stripped = PyObject_VectorcallMethod(name_strip, stack, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_XDECREF(stripped);
        done = stripped != NULL ? 0 : -1;
    }
    done = done < 0 ? -1 : ask_site(site, name_go_wrong, error, args, slots, way, after);
    Py_DECREF(error);
    return done;
}

/* What guards behind a boundary need not find out. */
typedef struct {
    PyObject *none;         /* owned; no keyword arguments */
    PyObject *modes;        /* owned or NULL; torch's modes, where the guard of the segment before has found them */
} Known;

/* What serves behind a boundary. */
typedef struct {
    RecordSlots *record;    /* owned */
    NativeGuard *native;    /* owned or NULL: its guard has filled the registers */
    PyObject *bound;        /* owned or NULL: what a guard in Python has given */
} Found;

static void
found_clear(Found *found, PyObject **registers)
{
    if (found->native != NULL) {
        mp_drop(registers, found->native->registers);
    }
    Py_CLEAR(found->native);
    Py_CLEAR(found->bound);
    Py_CLEAR(found->record);
}

/* Whether a record serves: 1, 0, or -1 with an exception set. */
static int
try_record(PyObject *candidate, PyObject *slots, const Known *known, PyObject **registers, Found *found)
{
    if (!PyObject_TypeCheck(candidate, &mp_RecordSlotsType)) {
        PyErr_SetString(PyExc_TypeError, "not a record");
        return -1;
    }
    RecordSlots *record = (RecordSlots *)Py_NewRef(candidate);
    int held;
    if (record->native != NULL && Py_IS_TYPE(record->native, &mp_NativeGuardType)) {
        NativeGuard *native = (NativeGuard *)Py_NewRef(record->native);
        Call call = {.args = ((PyTupleObject *)slots)->ob_item, .count = PyTuple_GET_SIZE(slots), .kwargs = known->none};
        Py_ssize_t failed;
        held = mp_guard_call(native, &call, known->modes, registers, &failed);
        if (held >= 0 && native->strict != NULL && mp_guard_check(native, &call, registers, held, failed) < 0) {
            held = -1;
        }
        if (held > 0) {
            found->native = native;
        }
        else {
            mp_drop(registers, native->registers);
            Py_DECREF(native);
        }
    }
    else {
        PyObject *bound = record->guard != NULL ? PyObject_CallFunctionObjArgs(record->guard, slots, known->none, NULL) : NULL;
        if (record->guard == NULL) {
            PyErr_SetString(PyExc_TypeError, "a record without a guard");
        }
        held = bound == NULL ? -1 : PyTuple_CheckExact(bound);
        if (held > 0) {
            found->bound = bound;
        }
        else {
            Py_XDECREF(bound);
        }
    }
    if (held > 0) {
        found->record = record;
    }
    else {
        Py_DECREF(record);
    }
    return held;
}

/* The record is the latest that served from there. */
static void
remember(Way *way, const void *record)
{
    int at = 0;
    while (at < LIKELY - 1 && way->likely[at] != record) {
        at++;
    }
    for (; at > 0; at--) {
        way->likely[at] = way->likely[at - 1];
    }
    way->likely[0] = record;
}

static bool
is_likely(const void *const *likely, const void *record)
{
    for (int i = 0; i < LIKELY; i++) {
        if (likely[i] == record) {
            return true;
        }
    }
    return false;
}

/* The record whose guard passes, those first that served from there: 1, 0, or -1 with an exception set. */
static int
find(Way *way, PyObject *slots, const Known *known, PyObject **registers, Found *found)
{
    PyObject *cache = way->cache;
    PyObject *records = PyObject_TypeCheck(cache, &mp_CacheSlotsType) ? ((CacheSlots *)cache)->records : NULL;
    if (records == NULL || !PyTuple_CheckExact(records)) {
        PyErr_SetString(PyExc_TypeError, "a resume point has a cache of records");
        return -1;
    }
    Py_INCREF(records);
    const void *likely[LIKELY];
    memcpy(likely, way->likely, sizeof likely);     /* guards may run other calls */
    int held = 0;
    Py_ssize_t count = PyTuple_GET_SIZE(records);
    for (int i = 0; held == 0 && i < LIKELY && likely[i] != NULL; i++) {
        for (Py_ssize_t k = 0; k < count; k++) {    /* it is there unless it was dropped */
            if (PyTuple_GET_ITEM(records, k) == likely[i]) {
                held = try_record(PyTuple_GET_ITEM(records, k), slots, known, registers, found);
                break;
            }
        }
    }
    for (Py_ssize_t k = 0; held == 0 && k < count; k++) {
        if (!is_likely(likely, PyTuple_GET_ITEM(records, k))) {
            held = try_record(PyTuple_GET_ITEM(records, k), slots, known, registers, found);
            if (held > 0 && k > 0) {
                mp_move_to_front((CacheSlots *)cache, records, k);
            }
        }
    }
    Py_DECREF(records);
    return held;
}

/* -- the loop --------------------------------------------------------------------------------------------------------- */

/* A method that gives the result of the whole call; takes the reference to the box. */
static PyObject *
leave_to(Dispatcher *self, PyObject *name, PyObject *point, PyObject *record, PyObject *box, PyObject *last)
{
    if (box == NULL) {
        return NULL;
    }
    PyObject *stack[5] = {(PyObject *)self, point};
    size_t count = 2;
    if (record != NULL) {
        stack[count++] = record;
    }
    stack[count++] = box;
    stack[count++] = last;
    PyObject *result = PyObject_VectorcallMethod(name, stack, count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(box);
    return result;
}

/* The same with the exception that is set, if MagPy deals with such. */
static PyObject *
leave_error_to(Dispatcher *self, PyObject *name, PyObject *point, PyObject *record, PyObject *slots)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        Py_DECREF(slots);
        return NULL;
    }
    PyObject *error = mp_take_error();
    PyObject *result = leave_to(self, name, point, record, boxed(slots, NULL), error);
    Py_DECREF(error);
    return result;
}

/* A record that needs more than its mock: 1 and what the mock gave, 0 and the call's result, or -1. Takes the slots. */
static int
serve_segment(Dispatcher *self, PyObject *point, Found *found, PyObject **registers, PyObject *slots, PyObject **result)
{
    PyObject *record = Py_NewRef(found->record);
    PyObject *bound = found->native != NULL ? mp_guard_bound(found->native, registers) : Py_NewRef(found->bound);
    found_clear(found, registers);
    PyObject *box = NULL, *given = NULL;
    if (bound != NULL) {
        box = boxed(slots, bound);
    }
    else {
        Py_DECREF(slots);
    }
    if (box != NULL) {
        PyObject *stack[4] = {(PyObject *)self, point, record, box};
        given = PyObject_VectorcallMethod(name_serve_segment, stack, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    Py_XDECREF(box);
    Py_DECREF(record);
    if (given == NULL) {
        return -1;
    }
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != 2) {
        Py_DECREF(given);
        PyErr_SetString(PyExc_TypeError, "serve_segment() gives whether the call is over, and a result");
        return -1;
    }
    bool over = PyTuple_GET_ITEM(given, 0) == Py_True;
    *result = Py_NewRef(PyTuple_GET_ITEM(given, 1));
    Py_DECREF(given);
    return !over;
}

/* Do what is due at a boundary: where it led (owned), and the slots there (owned). Takes `left`. */
static int
pass(Dispatcher *self, SiteSlots *site, PyObject *left, Way **way, PyObject **after, bool *made)
{
    if (!PyTuple_CheckExact(left) || PyTuple_GET_SIZE(left) != 4 || !PyTuple_CheckExact(PyTuple_GET_ITEM(left, 1)) ||
        !PyDict_CheckExact(PyTuple_GET_ITEM(left, 2)) || !PyTuple_CheckExact(PyTuple_GET_ITEM(left, 3))) {
        Py_DECREF(left);
        PyErr_SetString(PyExc_TypeError, "a segment leaves an operation, its arguments, keyword arguments, and slots");
        return -1;
    }
    PyObject *function = PyTuple_GET_ITEM(left, 0), *args = PyTuple_GET_ITEM(left, 1);
    PyObject *keywords = PyTuple_GET_ITEM(left, 2), *slots = PyTuple_GET_ITEM(left, 3);
    site->taken++;
    *made = function == self->fresh;
    PyObject *outcome = operate(self, site, function, args, keywords, slots);
    int done = outcome != NULL ? go_on(site, outcome, args, slots, way, after) : go_wrong(self, site, args, slots, way, after);
    Py_XDECREF(outcome);
    Py_DECREF(left);
    return done;
}

/* Let signals' handlers and other threads run: a loop of the program's may need no Python. */
static int
pause_loop(void)
{
    Py_BEGIN_ALLOW_THREADS
    Py_END_ALLOW_THREADS
    return PyErr_CheckSignals();
}

/* The rest of a call behind the boundary at which a segment has ended; takes what that has left: the operation, its
 * arguments, its keyword arguments, and the slots. `modes`: those of torch that its guard has found, NULL if it may have
 * changed them. */
PyObject *
mp_go_on(Dispatcher *self, PyObject *boundary, PyObject *left, PyObject *modes)
{
    Known known = {.none = PyDict_New(), .modes = Py_XNewRef(modes)};
    if (known.none == NULL) {
        Py_DECREF(left);
        return NULL;
    }
    PyObject *result = NULL, *site = Py_NewRef(boundary), *registers[MAX_REGISTERS];
    for (unsigned turn = 1;; turn++) {
        if (!PyObject_TypeCheck(site, &mp_SiteSlotsType)) {
            PyErr_SetString(PyExc_TypeError, "not a boundary");
            Py_DECREF(left);
            break;
        }
        if (turn % TURNS == 0 && pause_loop() < 0) {
            Py_DECREF(left);
            break;
        }
        Way *way;
        PyObject *slots;
        bool made = false;
        int done = pass(self, (SiteSlots *)site, left, &way, &slots, &made);
        if (((SiteSlots *)site)->sees || !((SiteSlots *)site)->steady) {
            Py_CLEAR(known.modes);
        }
        Py_CLEAR(site);
        if (done < 0) {
            break;
        }
        PyObject *point = Py_NewRef(way->point);
        Found found = {NULL};
        int held = find(way, slots, &known, registers, &found);
        if (held > 0) {
            remember(way, found.record);
        }
        Py_DECREF(way);
        if (held <= 0) {
            result = held < 0 ? leave_error_to(self, name_guard_raised, point, NULL, slots) :
                     leave_to(self, name_no_segment, point, NULL, boxed(slots, NULL), made ? Py_True : Py_False);
            Py_DECREF(point);
            break;
        }
        RecordSlots *record = (RecordSlots *)Py_NewRef(found.record);
        PyObject *given = NULL;
        Py_XSETREF(known.modes, record->steady && found.native != NULL && found.native->asks_modes ? Py_NewRef(found.native->modes) : NULL);
        if (mp_is_plain(record, found.native)) {
            given = mp_record_run(record, found.native, registers, found.bound);
            found_clear(&found, registers);
            if (given == NULL) {
                result = leave_error_to(self, name_segment_failed, point, (PyObject *)record, slots);
                Py_DECREF(point);
                Py_DECREF(record);
                break;
            }
            Py_DECREF(slots);
            record->hits++;
            if (record->boundary == NULL || record->boundary == Py_None) {
                mp_count_hit(self);
                result = given;
                given = NULL;
            }
        }
        else if ((held = serve_segment(self, point, &found, registers, slots, &given)) <= 0) {
            result = given;
            given = NULL;
        }
        Py_DECREF(point);
        if (given == NULL) {
            Py_DECREF(record);
            break;
        }
        left = given;
        site = Py_NewRef(record->boundary != NULL ? record->boundary : Py_None);
        Py_DECREF(record);
    }
    Py_XDECREF(site);
    Py_DECREF(known.none);
    Py_XDECREF(known.modes);
    return result;
}

/* go_on(site, box): the rest of a call behind a segment that ended at a boundary; `box` holds what its mock gave. */
PyObject *
mp_dispatcher_go_on(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_CheckExact(args[1]) || PyList_GET_SIZE(args[1]) != 1) {
        PyErr_SetString(PyExc_TypeError, "go_on(site, box)");
        return NULL;
    }
    PyObject *left = Py_NewRef(PyList_GET_ITEM(args[1], 0));
    if (PyList_SetSlice(args[1], 0, 1, NULL) < 0) {
        Py_DECREF(left);
        return NULL;
    }
    return mp_go_on((Dispatcher *)self, args[0], left, NULL);
}

/* -- the module ------------------------------------------------------------------------------------------------------- */

/* set_timed(flag): whether all operations at boundaries go through Python, where somebody takes their time. */
static PyObject *
set_timed(PyObject *Py_UNUSED(module), PyObject *flag)
{
    int value = PyObject_IsTrue(flag);
    if (value < 0) {
        return NULL;
    }
    timed = value;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_timed", set_timed, METH_O, "set_timed(flag, /)\n--\n\nSay whether somebody takes the time of operations at boundaries."},
    {NULL, NULL, 0, NULL},
};

/* Add the types and functions of this file to the module. */
int
mp_chain_ready(PyObject *module)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_go_on, "go_on"}, {&name_go_wrong, "go_wrong"}, {&name_operate, "operate"},
        {&name_no_segment, "no_segment"}, {&name_guard_raised, "guard_raised"}, {&name_serve_segment, "serve_segment"},
        {&name_segment_failed, "segment_failed"}, {&name_strip, "strip"},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return mp_ways_ready(module) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
