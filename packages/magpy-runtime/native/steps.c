/* A record's guard as steps.
 *
 * The generated Python says the same (`magpy.explain`) and is the truth; strict mode runs both and wants them to agree.
 * Objects that a step binds are in registers, which the caller owns; what the record holds by identity is in the steps. */
#include "dispatch.h"

#include <time.h>

/* After so long a time what a check of so many tensors looks at is taken to have left the processor's caches. */
#define MANY_TENSORS 16
#define LONG_NS 50000

#define TENSOR_LINES 4      /* of the caches, for what torch keeps of a tensor */
#define GRADIENT_WORD 3     /* of that: where what it keeps for gradients is, which has two lines that are looked at */
#define GRADIENT_LINE 128

#if defined(__GNUC__)
#  define FETCH(address) __builtin_prefetch(address)
#else
#  define FETCH(address) ((void)(address))
#endif

/* -- running the steps ------------------------------------------------------------------------------------------------ */

/* The call's arguments as the tuple that Python wants. */
PyObject *
mp_call_args(const Call *call)
{
    PyObject *tuple = PyTuple_New(call->count);
    for (Py_ssize_t i = 0; tuple != NULL && i < call->count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(call->args[i]));
    }
    return tuple;
}

PyObject *
mp_call_kwargs(const Call *call)
{
    if (call->kwargs != NULL) {
        return Py_NewRef(call->kwargs);
    }
    PyObject *dict = PyDict_New();
    Py_ssize_t count = call->names != NULL ? PyTuple_GET_SIZE(call->names) : 0;
    for (Py_ssize_t i = 0; dict != NULL && i < count; i++) {
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(call->names, i), call->args[call->count + i]) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

/* Two names: keywords are strings, nearly always interned ones. */
static inline bool
same_name(PyObject *one, PyObject *other)
{
    return one == other || (PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other) && PyUnicode_Compare(one, other) == 0);
}

static bool
keywords_fit(Call *call, PyObject *wanted)
{
    Py_ssize_t count = PyTuple_GET_SIZE(wanted);
    if (call->kwargs != NULL) {
        if (PyDict_GET_SIZE(call->kwargs) != count) {
            return false;
        }
        PyObject *key, *value;
        Py_ssize_t at = 0, i = 0;
        while (PyDict_Next(call->kwargs, &at, &key, &value)) {
            if (!same_name(key, PyTuple_GET_ITEM(wanted, i))) {
                return false;
            }
            call->keywords[i++] = value;
        }
        return true;
    }
    if (count != (call->names != NULL ? PyTuple_GET_SIZE(call->names) : 0)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!same_name(PyTuple_GET_ITEM(call->names, i), PyTuple_GET_ITEM(wanted, i))) {
            return false;
        }
        call->keywords[i] = call->args[call->count + i];
    }
    return true;
}

static int
modes_fit(const NativeGuard *self)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->modes); i++) {
        PyObject *pair = PyTuple_GET_ITEM(self->modes, i);
        PyObject *found = PyObject_CallNoArgs(PyTuple_GET_ITEM(pair, 0));
        if (found == NULL) {
            return -1;
        }
        bool same = found == PyTuple_GET_ITEM(pair, 1);
        Py_DECREF(found);
        if (!same) {
            return 0;
        }
    }
    return 1;
}

/* The facts about held objects: 1, or 0 and the number of the failure, or -1. */
static int
held_fit(const NativeGuard *self, Py_ssize_t *failed)
{
    if (Py_IS_TYPE(self->held, &mp_FactTableType)) {
        int held = mp_table_check((FactTable *)self->held, failed);
        *failed = -1 - *failed;
        return held;
    }
    PyObject *found = PyObject_CallNoArgs(self->held);
    if (found == NULL) {
        return -1;
    }
    int held = found == Py_None;
    *failed = held ? 0 : -1 - PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : held;
}

static int64_t
now_ns(void)
{
    struct timespec now;
    return timespec_get(&now, TIME_UTC) == TIME_UTC ? (int64_t)now.tv_sec * 1000000000 + now.tv_nsec : 0;
}

/* Asks for what a check of tensors will look at, all at once: after a big graph nothing of it is in the processor's caches,
 * and the check itself goes from pointer to pointer. An address that is none costs nothing. */
static void
fetch_tensors(const Step *step)
{
    for (Py_ssize_t i = 0; i < step->count; i++) {
        if (step->operands[i].number < 0) {
            FETCH(step->operands[i].object);
        }
    }
    for (Py_ssize_t i = 0; i < step->count; i++) {
        const PyObject *object = step->operands[i].object;
        if (step->operands[i].number < 0 && Py_TYPE(object)->tp_basicsize >= (Py_ssize_t)sizeof(PyObject) + 8) {
            const char *tensor = *(const char *const *)(object + 1);
            for (int line = 0; line < TENSOR_LINES; line++) {
                FETCH(tensor + 64 * line);
            }
        }
    }
    for (Py_ssize_t i = 0; step->points && i < step->count; i++) {
        if (step->operands[i].number < 0) {
            const char *const *tensor = *(const char *const *const *)(step->operands[i].object + 1);
            if (tensor != NULL) {
                FETCH(tensor[GRADIENT_WORD]);
                FETCH(tensor[GRADIENT_WORD] + GRADIENT_LINE);
            }
        }
    }
}

/* Whether tensors are as they were. The tuple of arguments is kept from call to call: a model has many parameters. */
static int
tensors_fit(const NativeGuard *self, Step *step, PyObject *const *registers)
{
    PyObject *args = step->scratch;
    step->scratch = NULL;   /* another thread or an inner call makes a tuple of its own */
    if (args == NULL) {
        args = PyTuple_New(step->count);
        if (args == NULL) {
            return -1;
        }
        for (Py_ssize_t i = 0; i < step->count; i++) {
            PyTuple_SET_ITEM(args, i, Py_NewRef(step->operands[i].number < 0 ? step->operands[i].object : Py_None));
        }
    }
    bool many = step->count >= MANY_TENSORS;
    if (many && now_ns() - step->checked_ns > LONG_NS) {
        fetch_tensors(step);
    }
    for (Py_ssize_t i = 0; i < step->count && i <= step->index; i++) {
        if (step->operands[i].number >= 0) {
            PyObject *empty = PyTuple_GET_ITEM(args, i);
            PyTuple_SET_ITEM(args, i, Py_NewRef(registers[step->operands[i].number]));
            Py_DECREF(empty);
        }
    }
    PyObject *found = PyObject_Call(self->tensors, args, NULL);
    int result = found == NULL ? -1 : found == Py_True;
    Py_XDECREF(found);
    if (many) {
        step->checked_ns = now_ns();
    }
    if (Py_REFCNT(args) != 1 || step->scratch != NULL) {
        Py_DECREF(args);
        return result;
    }
    for (Py_ssize_t i = 0; i < step->count && i <= step->index; i++) {
        if (step->operands[i].number >= 0) {
            PyObject *given = PyTuple_GET_ITEM(args, i);
            PyTuple_SET_ITEM(args, i, Py_NewRef(Py_None));
            Py_DECREF(given);
        }
    }
    step->scratch = args;
    return result;
}

/* The answer to a step's question: borrowed, or kept alive by `*owned`; NULL with or without an exception. */
static PyObject *
ask(const Step *step, const Call *call, PyObject *const *registers, PyObject **owned)
{
    switch (step->question) {
    case ASK_ARGUMENT:
        return call->args[step->argument];
    case ASK_KEYWORD:
        return call->keywords[step->argument];
    case ASK_CALL:
        return *owned = PyObject_Call(PyTuple_GET_ITEM(step->key, 0), PyTuple_GET_ITEM(step->key, 1), NULL);
    case ASK_LENGTH: {
        Py_ssize_t length = mp_builtin_length(mp_operand(&step->operands[0], registers));
        return length < 0 ? NULL : (*owned = PyLong_FromSsize_t(length));
    }
    case ASK_GLOBALS: {
        PyObject *object = mp_operand(&step->operands[0], registers);
        if (PyFunction_Check(object)) {
            return ((PyFunctionObject *)object)->func_globals;
        }
        return *owned = PyObject_CallOneArg(step->key, object);
    }
    case ASK_DRAWN: {
        PyObject *const *how = ((PyTupleObject *)step->key)->ob_item;
        return *owned = mp_draw(how[0], how[1], how[2], mp_operand(&step->operands[0], registers));
    }
    default: {
        PyObject *object = mp_operand(&step->operands[0], registers);
        if (!mp_fits(step->question, object, step->key)) {
            return NULL;
        }
        return mp_answer(step->question, object, step->key, step->argument, owned);
    }
    }
}

/* The last lines of a guard, in Python: a function of what they name gives what they bind, in the registers that `expected`
 * lists, or the number of the check that failed. */
static int
more_holds(const Step *step, PyObject **registers, Py_ssize_t *failed)
{
    PyObject *args[MAX_REGISTERS + 1];
    for (Py_ssize_t i = 0; i < step->count; i++) {
        args[i + 1] = mp_operand(&step->operands[i], registers);
    }
    PyObject *found = PyObject_Vectorcall(step->key, args + 1, (size_t)step->count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (found == NULL) {
        return -1;
    }
    int result = -1;
    Py_ssize_t count = PyTuple_GET_SIZE(step->expected);
    if (PyLong_Check(found)) {
        *failed = PyLong_AsSsize_t(found);
        result = *failed == -1 && PyErr_Occurred() ? -1 : 0;
    }
    else if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != count) {
        PyErr_SetString(PyExc_TypeError, "a guard gives a tuple or a number");
    }
    else {
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(step->expected, i));
            Py_XSETREF(registers[number], Py_NewRef(PyTuple_GET_ITEM(found, i)));
        }
        result = 1;
    }
    Py_DECREF(found);
    return result;
}

/* The rest of a guard, in Python: it gives all that is bound, or the number of the check that failed. */
static int
rest_holds(const Step *step, const Call *call, PyObject **registers, Py_ssize_t *failed)
{
    Py_ssize_t front = step->question == 1 ? 2 : 0;
    PyObject *args = PyTuple_New(front + step->count);
    if (args == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < step->count; i++) {
        PyTuple_SET_ITEM(args, front + i, Py_NewRef(mp_operand(&step->operands[i], registers)));
    }
    if (front > 0) {
        PyObject *positional = mp_call_args(call), *keywords = positional != NULL ? mp_call_kwargs(call) : NULL;
        PyTuple_SET_ITEM(args, 0, positional);
        PyTuple_SET_ITEM(args, 1, keywords);
        if (keywords == NULL) {
            Py_DECREF(args);
            return -1;
        }
    }
    PyObject *found = PyObject_Call(step->key, args, NULL);
    Py_DECREF(args);
    if (found == NULL) {
        return -1;
    }
    int result = -1;
    if (PyLong_Check(found)) {
        *failed = PyLong_AsSsize_t(found);
        result = *failed == -1 && PyErr_Occurred() ? -1 : 0;
    }
    else if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != step->index) {
        PyErr_SetString(PyExc_TypeError, "a guard gives a tuple or a number");
    }
    else {
        for (Py_ssize_t i = 0; i < step->index; i++) {
            Py_XSETREF(registers[i], Py_NewRef(PyTuple_GET_ITEM(found, i)));
        }
        result = 1;
    }
    Py_DECREF(found);
    return result;
}

/* Whether an object is among those of a table. */
static inline bool
is_in(const Outside *outside, const PyObject *object)
{
    for (size_t at = (uintptr_t)object >> 4;; at++) {
        const void *found = outside->slots[at & outside->mask];
        if (found == NULL || found == (const void *)object) {
            return found != NULL;
        }
    }
}

/* Whether a step holds: 1, 0, or -1 with an exception set. */
static int
step_holds(const NativeGuard *self, Step *step, Call *call, const PyObject *modes, PyObject **registers, Py_ssize_t *failed)
{
    switch (step->kind) {
    case STEP_POSITIONAL:
        return call->count == step->index;
    case STEP_KEYWORDS:
        return keywords_fit(call, step->expected);
    case STEP_MODES:
        return self->modes == modes ? 1 : modes_fit(self);
    case STEP_HELD:
        return held_fit(self, failed);
    case STEP_TENSORS:
        return tensors_fit(self, step, registers);
    case STEP_DIFFERENT:
        for (Py_ssize_t i = 1; i < step->count; i++) {
            for (Py_ssize_t k = 0; k < i; k++) {
                if (mp_operand(&step->operands[i], registers) == mp_operand(&step->operands[k], registers)) {
                    return 0;
                }
            }
        }
        return 1;
    case STEP_OUTSIDE:
        return !is_in(step->outside, mp_operand(&step->operands[0], registers));
    case STEP_COMPARE: {
        PyObject *one = mp_operand(&step->operands[0], registers), *other = mp_operand(&step->operands[1], registers);
        bool numbers = (PyLong_CheckExact(one) || PyFloat_CheckExact(one)) &&
                       (PyLong_CheckExact(other) || PyFloat_CheckExact(other));
        PyObject *found = numbers ? PyObject_RichCompare(one, other, step->question) : NULL;
        int result = found == NULL ? (numbers ? -1 : 0) : (found == Py_True) == (step->index != 0);
        Py_XDECREF(found);
        return result;
    }
    case STEP_MORE:
        return more_holds(step, registers, failed);
    case STEP_REST:
        return rest_holds(step, call, registers, failed);
    case STEP_TRUE: {
        PyObject *args = PyTuple_New(step->count);
        for (Py_ssize_t i = 0; args != NULL && i < step->count; i++) {
            PyTuple_SET_ITEM(args, i, Py_NewRef(mp_operand(&step->operands[i], registers)));
        }
        PyObject *found = args != NULL ? PyObject_Call(step->key, args, NULL) : NULL;
        Py_XDECREF(args);
        int result = found == NULL ? -1 : PyObject_IsTrue(found);
        Py_XDECREF(found);
        return result;
    }
    default:
        break;
    }
    if (step->kind == STEP_IS && (step->question == ASK_LENGTH || step->question == ASK_TRUTH)) {
        Py_ssize_t length = mp_builtin_length(mp_operand(&step->operands[0], registers));
        if (length < 0) {
            return 0;
        }
        return step->question == ASK_LENGTH ? length == step->index : (length > 0) == (step->index != 0);
    }
    PyObject *owned = NULL;
    PyObject *found = ask(step, call, registers, &owned);
    if (found == NULL) {
        if (PyErr_Occurred()) {
            return -1;
        }
        found = mp_null;
    }
    int result = 1;
    switch (step->kind) {
    case STEP_IS:
        result = found == step->expected;
        break;
    case STEP_PLAIN:
        if (found != step->expected) {
            result = 0;
            if (Py_TYPE(found) == Py_TYPE(step->expected)) {
                Py_INCREF(found);
                result = mp_same_value(self->same_value, found, step->expected);
                Py_DECREF(found);
            }
        }
        break;
    case STEP_SAME:
        result = found == registers[step->index];
        break;
    case STEP_BIND:
        registers[step->index] = Py_NewRef(found);
        break;
    }
    Py_XDECREF(owned);
    return result;
}

/* -- steps that are tried first ---------------------------------------------------------------------------------------- */

static bool
asks_of_objects(const Step *step)
{
    return step->question == ASK_ARGUMENT || (step->question >= 0 && step->question < ASK_KINDS) ||
           step->question == ASK_GLOBALS || step->question == ASK_DRAWN;
}

/* Adds the registers that a step looks into; false if it is not one that can be tried before those in front of it. */
static bool
needs(const Step *step, uint64_t *registers)
{
    bool known = step->kind == STEP_COMPARE ||
                 ((step->kind == STEP_IS || step->kind == STEP_PLAIN || step->kind == STEP_SAME || step->kind == STEP_BIND) &&
                  asks_of_objects(step));
    for (Py_ssize_t i = 0; known && i < step->count; i++) {
        if (step->operands[i].number >= 0) {
            *registers |= (uint64_t)1 << step->operands[i].number;
        }
    }
    if (step->kind == STEP_SAME) {
        *registers |= (uint64_t)1 << step->index;
    }
    return known;
}

/* A step has failed: from now on it is tried first, with what it rests on. */
static void
try_first(NativeGuard *self, Py_ssize_t failed)
{
    uint64_t registers = 0;
    Py_ssize_t found[MAX_EARLY];
    int count = 0;
    if (!needs(&self->steps[failed], &registers)) {
        return;
    }
    found[count++] = failed;
    for (Py_ssize_t i = failed - 1; i >= 0; i--) {
        const Step *step = &self->steps[i];
        bool binds = step->kind == STEP_BIND && (registers >> step->index & 1) != 0;
        bool checks = step->kind == STEP_IS && (step->question == ASK_TYPE || step->question == ASK_LENGTH) &&
                      step->operands[0].number >= 0 && (registers >> step->operands[0].number & 1) != 0;
        if (!binds && !checks && step->kind != STEP_POSITIONAL) {
            continue;
        }
        if (count == MAX_EARLY || (binds && !needs(step, &registers))) {
            return;
        }
        found[count++] = i;
    }
    for (int i = 0; i < count; i++) {
        self->early[i] = found[count - 1 - i];
    }
    self->early_count = count;
}

/* Whether the steps hold that are tried first: 1, 0, or -1 with an exception set. What raises may rest on a step that was
 * left out, a tensor's size on its rank: the steps in order say what that means. */
static int
early_hold(NativeGuard *self, Call *call, PyObject **registers, Py_ssize_t *failed)
{
    int held = 1;
    Py_ssize_t numbers[MAX_EARLY];
    int count = self->early_count;
    memcpy(numbers, self->early, sizeof numbers);   /* a question may lead to another call */
    for (int i = 0; held > 0 && i < count; i++) {
        Step *step = &self->steps[numbers[i]];
        *failed = step->number;
        held = step_holds(self, step, call, NULL, registers, failed);
    }
    if (held < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        held = 1;
    }
    for (int i = 0; i < count; i++) {
        if (self->steps[numbers[i]].kind == STEP_BIND) {
            Py_CLEAR(registers[self->steps[numbers[i]].index]);
        }
    }
    return held;
}

/* -- whole guards ----------------------------------------------------------------------------------------------------- */

/* Whether a call is one that the record serves: 1 and what is bound, 0 and the number of a check that failed, or -1; in
 * strict mode it is the first. Either way the caller owns what is in the registers. `modes` are those that were just found
 * to be in force, or NULL. */
int
mp_guard_call(NativeGuard *self, Call *call, const PyObject *modes, PyObject **registers, Py_ssize_t *failed)
{
    memset(registers, 0, (size_t)self->registers * sizeof(PyObject *));
    int early = self->early_count > 0 ? early_hold(self, call, registers, failed) : 1;
    if (early < 0 || (early == 0 && self->strict == NULL)) {
        return early;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Step *step = &self->steps[i];
        *failed = step->number;
        int held = step_holds(self, step, call, modes, registers, failed);
        if (held <= 0) {
            if (held == 0) {
                try_first(self, i);
            }
            return held;
        }
    }
    if (early == 0) {
        PyErr_SetString(PyExc_SystemError, "steps that were tried first failed, and then held");
        return -1;
    }
    return 1;
}

PyObject *
mp_guard_bound(const NativeGuard *self, PyObject *const *registers)
{
    PyObject *tuple = PyTuple_New(self->handed);
    for (Py_ssize_t i = 0; tuple != NULL && i < self->handed; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(registers[i]));
    }
    return tuple;
}

/* In strict mode: hold the generated guard against what was found here. 0, or -1 with an exception set. */
int
mp_guard_check(NativeGuard *self, const Call *call, PyObject *const *registers, int held, Py_ssize_t failed)
{
    PyObject *args = mp_call_args(call), *kwargs = mp_call_kwargs(call);
    PyObject *found = held ? mp_guard_bound(self, registers) : PyLong_FromSsize_t(failed);
    PyObject *result = NULL;
    if (args != NULL && kwargs != NULL && found != NULL) {
        result = PyObject_CallFunctionObjArgs(self->strict, self, args, kwargs, found, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(found);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}
